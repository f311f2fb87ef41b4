//! Merges: a region that is sealed, and its neighbour that takes it over.
//!
//! ```text
//!   source   ── prepare, entry `sealed_at` ──▶ sealed: no commands, no reads, no other change ── taken ──▶ gone
//!                                                  │ ▲                                            ▲
//!                                       rollback ◀─┘ │ has applied the seal                       │ at once
//!   target   ── ... ── commit ── handed out only when the source here ─┘ ── applied: rows and slots are its own
//! ```
//!
//! What is sealed follows from the source's log alone: a payload behind the seal is void on every peer. Whoever
//! orders the commit has seen every peer of the source hold its log through the seal, and lets nobody take the
//! merge back any more; so each store can finish the source from its own log, even where the others have
//! forgotten the region. The rows do not move: the same keys are the target's from the commit on.
//!
//! A target that lags may get a snapshot instead, which has the source's rows in it: `Worker::receive`. A source
//! whose target is not here any more learns that it has merged away from whoever has its slots:
//! `Worker::announced`.

use super::*;
use crate::change_entry;
use crate::planted::{self, Bug};
use raft::GetEntriesContext;
use types::{PeerRole, RegionChange};

/// A merge that is committed here, and with everything behind it waits for its source.
pub(super) struct Takeover {
    pub index: LogIndex,
    pub source: RegionDescriptor,
}

impl<L: LogStore> Peer<L> {
    /// Whether commands are refused: the seal is applied, or was proposed here and is not decided yet.
    pub(super) fn is_sealed(&self) -> bool {
        let is_sealed = self.descriptor.merging.is_some() || self.raw.raft.raft_log.applied < self.sealing;
        is_sealed && !planted::is(Bug::SealIgnored)
    }

    /// What the descriptor cannot know of a merge that is to be committed.
    pub(super) fn check_merge(&self, change: &RegionChange) -> Result<(), Refusal> {
        let RegionChange::CommitMerge { source, source_index } = change else { return Ok(()) };
        let is_sealed = source
            .merging
            .is_some_and(|merging| merging.into == self.region && merging.sealed_at == *source_index);
        if !is_sealed {
            return Err(Refusal::Invalid(types::ChangeError::NotMergeable));
        }
        // A learner that holds nothing yet could begin with a snapshot of before the merge, and find a source
        // that has been told meanwhile that it is needed no more.
        let learners = self.descriptor.peers.iter().filter(|peer| peer.role == PeerRole::Learner);
        match learners.map(|peer| peer.store).find(|&store| !self.has_caught_up(store)) {
            Some(store) => Err(Refusal::Behind { store }),
            None => Ok(()),
        }
    }

    /// Hands out what is committed, as far as it need not wait for rows.
    pub(super) fn hand_out(&mut self, entries: Vec<Committed>, out: &mut Outbox) {
        self.held.extend(entries);
        self.release(out);
    }

    pub(super) fn release(&mut self, out: &mut Outbox) {
        if self.applying.is_some() {
            return;
        }
        let end = match self.takeovers.front() {
            Some(takeover) if !planted::is(Bug::MergeNotAwaited) => {
                self.held.partition_point(|entry| entry.index < takeover.index)
            }
            _ => self.held.len(),
        };
        let entries: Vec<Committed> = self.held.drain(..end).collect();
        if !entries.is_empty() {
            out.later.push(Action::Apply { region: self.region, entries });
        }
    }

    /// The source, as it was sealed, for which everything that is committed next waits.
    pub fn awaits(&self) -> Option<&RegionDescriptor> {
        self.takeovers.front().map(|takeover| &takeover.source).filter(|_| self.applying.is_none())
    }

    /// The source awaited has come to its end.
    pub fn take_over(&mut self, out: &mut Outbox) {
        self.takeovers.pop_front();
        self.release(out);
    }

    /// Brings the source of a committed merge to its end. True when it is there: its rows are complete, none
    /// of its entries is on its way to be applied, and none will be.
    pub fn come_to_its_end(
        &mut self,
        config: &Config,
        sealed: &RegionDescriptor,
        now: BootNanos,
        out: &mut Outbox,
    ) -> bool {
        let Some(merging) = sealed.merging else { return false };
        let log = &self.raw.raft.raft_log;
        if log.committed < merging.sealed_at && merging.sealed_at <= log.last_index() {
            // Nobody may be left who would say so.
            self.drive(config, now, out, |raw| raw.raft.raft_log.commit_to(merging.sealed_at));
        }
        self.is_taken |= self.applying.is_none() && self.descriptor.merging == sealed.merging;
        self.is_taken && self.handed == self.raw.raft.raft_log.applied
    }

    /// Whether there is something to be handed out now that was not when it was last looked.
    pub fn has_ready(&self) -> bool {
        self.raw.has_ready()
    }

    pub fn is_applying_snapshot(&self) -> bool {
        self.applying.is_some()
    }

    /// Nothing of it is on its way to be applied, and nothing that it made is in its log alone.
    pub fn is_at_rest(&self) -> bool {
        self.applying.is_none() && !self.owes_rows() && self.handed == self.raw.raft.raft_log.applied
    }

    /// The regions into which a merge may have been committed of which this peer was a part.
    pub fn possible_heirs(&self) -> Vec<RegionId> {
        let mut heirs: Vec<RegionId> = self.descriptor.merging.iter().map(|merging| merging.into).collect();
        let log = &self.raw.raft.raft_log;
        let (low, high) = (log.applied + 1, log.last_index() + 1);
        let context = GetEntriesContext::empty(false);
        // What cannot be read is noticed by the worker's next turn.
        let entries = log.slice(low.max(log.first_index()), high, None, context).unwrap_or_default();
        for entry in entries.iter().filter(|entry| !entry.context.is_empty()) {
            if let Some((_, RegionChange::PrepareMerge { into })) = change_entry::decode(&entry.context) {
                heirs.push(into);
            }
        }
        heirs
    }
}
