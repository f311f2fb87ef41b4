//! Merges of a sealed region, the source, into its neighbour, the target.
//!
//! ```text
//!   source ── prepare, entry `sealed_at` ──▶ sealed: no command, read or change ── taken ──▶ gone
//!                                              │  │                                ▲
//!                                  rollback ◀──┘  │ has applied the seal           │ at once
//!                                                 ▼                                │
//!   target ── … ── commit ─────────────────── handed out ──────────────────────── applied
//! ```
//!
//! The source's log alone determines which commands are void: those after the seal, on every peer.
//! Before a commit is proposed, every peer of the source must have its log through the seal. From
//! then on the merge must not be rolled back. So each store can complete the source from its own
//! log, even after the other stores have removed the region. The rows do not move: from the commit
//! on, the same keys belong to the target.
//!
//! A lagging target may get a snapshot instead, which contains the source's rows: see
//! `Worker::receive`. If the target has no peer on this store, a store that holds the source's
//! slots informs the source that it has merged into the target: see `Worker::announced`.

use super::*;
use crate::change_entry::{self, EntryChange};
use crate::failpoints::Failpoint;
use raft::GetEntriesContext;
use types::{PeerRole, RegionChange};

/// A committed merge that waits for its source on this store, together with all later entries.
pub(super) struct Takeover {
    pub index: LogIndex,
    pub source: RegionDescriptor,
}

impl<L: LogStore> Peer<L> {
    /// Returns true if commands are refused because the seal is applied, or because it was proposed
    /// by this peer and is not applied yet.
    pub(super) fn is_sealed(&self) -> bool {
        let is_sealed = self.descriptor.merging.is_some() || self.raw.raft.raft_log.applied < self.sealing;
        is_sealed && !Failpoint::SealIgnored.is_on()
    }

    /// Checks the conditions for a merge's commit that the target's descriptor does not show.
    pub(super) fn check_merge(&self, change: &RegionChange) -> Result<(), Refusal> {
        let RegionChange::CommitMerge { source, source_index } = change else { return Ok(()) };
        let is_sealed = source
            .merging
            .is_some_and(|merging| merging.into == self.region && merging.sealed_at == *source_index);
        if !is_sealed {
            return Err(Refusal::Invalid(types::ChangeError::NotMergeable));
        }
        // A learner without data could start from a snapshot taken before the merge. By then the
        // source's peer on its store may already have been removed after the merge.
        let learners = self.descriptor.peers.iter().filter(|peer| peer.role == PeerRole::Learner);
        match learners.map(|peer| peer.store).find(|&store| !self.has_caught_up(store)) {
            Some(store) => Err(Refusal::Behind { store }),
            None => Ok(()),
        }
    }

    /// Hands out committed entries, except those that must wait for a snapshot or a merge.
    pub(super) fn hand_out(&mut self, entries: Vec<Committed>, out: &mut Outbox) {
        self.held.extend(entries);
        self.release(out);
    }

    pub(super) fn release(&mut self, out: &mut Outbox) {
        if !self.may_execute_held() {
            return;
        }
        let end = match self.takeovers.front() {
            Some(takeover) if !Failpoint::MergeNotAwaited.is_on() => {
                self.held.partition_point(|entry| entry.index < takeover.index)
            }
            _ => self.held.len(),
        };
        let entries: Vec<Committed> = self.held.drain(..end).collect();
        if !entries.is_empty() {
            out.later.push(Action::Apply { region: self.region, entries });
        }
    }

    /// Returns the sealed descriptor of the source for which all further committed entries wait.
    pub fn awaits(&self) -> Option<&RegionDescriptor> {
        self.takeovers.front().map(|takeover| &takeover.source).filter(|_| self.may_execute_held())
    }

    /// Continues after the awaited source is finished.
    pub fn take_over(&mut self, out: &mut Outbox) {
        self.takeovers.pop_front();
        self.release(out);
    }

    /// Completes the source of a committed merge. Returns true once its rows are complete, no entry
    /// of it waits to be applied, and none will be handed out.
    pub fn come_to_its_end(&mut self, ctx: &mut Context, sealed: &RegionDescriptor) -> bool {
        let Some(merging) = sealed.merging else { return false };
        let log = &self.raw.raft.raft_log;
        if log.committed < merging.sealed_at && merging.sealed_at <= log.last_index() {
            // The merge's commit proves that the seal is committed. No leader of the source may be
            // left to announce that commit.
            self.drive(ctx, |raw| raw.raft.raft_log.commit_to(merging.sealed_at));
        }
        self.is_taken |= self.applying.is_none() && self.descriptor.merging == sealed.merging;
        self.is_taken && self.handed == self.raw.raft.raft_log.applied
    }

    /// Returns true if the consensus code has output now. Entries that a quarantined peer
    /// withholds, and entries that are being read, do not count.
    pub fn has_ready(&self) -> bool {
        self.raw.has_ready() && !self.is_withholding() && !self.raw.store().awaits_execution()
    }

    /// Returns true from the acceptance of a snapshot until its rows are in place.
    pub fn is_applying_snapshot(&self) -> bool {
        self.applying.is_some()
    }

    /// Returns true if no entry of the peer waits to be applied, and a flush covers every split
    /// that it has applied.
    pub fn is_at_rest(&self) -> bool {
        let applied = self.raw.raft.raft_log.applied;
        let is_done = self.handed == applied || applied.saturating_add(1) == self.withheld_from();
        self.applying.is_none() && !self.owes_rows() && is_done
    }

    /// Returns the regions that may have absorbed this one, according to its descriptor and the
    /// unapplied entries of its log.
    pub fn possible_heirs(&self) -> Vec<RegionId> {
        let mut heirs: Vec<RegionId> = self.descriptor.merging.iter().map(|merging| merging.into).collect();
        let log = &self.raw.raft.raft_log;
        let (low, high) = (log.applied + 1, log.last_index() + 1);
        let context = GetEntriesContext::empty(false);
        // A failed read stops the worker in its next turn.
        let entries = log.slice(low.max(log.first_index()), high, None, context).unwrap_or_default();
        for entry in entries.iter().filter(|entry| !entry.context.is_empty()) {
            let change = change_entry::decode(&entry.context);
            if let Some(EntryChange::Proposed { change: RegionChange::PrepareMerge { into }, .. }) = change {
                heirs.push(into);
            }
        }
        heirs
    }
}
