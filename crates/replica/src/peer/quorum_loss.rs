//! One peer's part in the recovery of a region whose majority of voters is lost for good.
//!
//! ```text
//!   every survivor   promises: it votes for the keeper in a term above all that survivors know
//!   the keeper       appends an entry once all have promised, and takes its log for committed
//!   the keeper       applies that entry, is the only voter, and leads
//!   the others       follow the keeper's log, as learners
//! ```
//!
//! The promise is the vote of an election in which the survivors stand in for all voters. No peer
//! gives two promises in a term, so two concurrent orders cannot produce two keepers. After its
//! promise a survivor accepts nothing of earlier terms: its log stays as it was reported until the
//! keeper leads.
//!
//! The entry is forced, because no majority can acknowledge it. The right to force it is decided
//! outside of this crate (`cluster::quorum_loss`): the operator says which stores are lost, and the
//! keeper is a survivor whose log holds every entry that any survivor knows to be committed.

use super::*;
use crate::action::{PeerReport, RecoveryRefusal, Unfit};
use crate::change_entry;
use raft::GetEntriesContext;
use types::Recovery;

/// Maximum number of runs in a report. Each run is the entries of one term.
const RUNS_MAX: usize = 64;

impl<L: LogStore> Peer<L> {
    /// Returns the facts about this peer that an order to recover the region needs.
    pub fn report(&self, config: &Config) -> PeerReport {
        let raft = &self.raw.raft;
        let log = &raft.raft_log;
        let (first, last) = (self.raw.store().first(), log.last_index());
        PeerReport {
            region: self.region,
            peer: self.id,
            descriptor: self.descriptor.clone(),
            ends_as: self.descriptor_at_the_end(),
            term: raft.term,
            vote: (raft.vote != 0).then_some(raft.vote),
            is_saved: self.is_all_saved(),
            leads: self.is_leader(),
            unfit: self.unfit(config),
            commit: log.committed,
            commit_term: log.term(log.committed).unwrap_or(0),
            applied: log.applied,
            last,
            runs: self.runs(first - 1, last),
        }
    }

    /// Returns true if the log has the term, the vote and every entry durably.
    fn is_all_saved(&self) -> bool {
        let raft = &self.raw.raft;
        let is_given = self.given_vote == (raft.term, raft.vote) && self.saved_term == raft.term;
        is_given && self.unsaved.entries.is_empty() && !self.unsaved.must_sync && self.in_flight.is_none()
    }

    /// Returns the first index and the term of each run of entries, newest first. Terms never
    /// decrease along a log, so a binary search finds the beginning of a run.
    fn runs(&self, low: LogIndex, last: LogIndex) -> Vec<(LogIndex, Term)> {
        let log = &self.raw.raft.raft_log;
        let mut runs = Vec::new();
        let mut end = last;
        while runs.len() < RUNS_MAX {
            let Ok(term) = log.term(end) else { return runs };
            let (mut before, mut first) = (low, end);
            if log.term(low).is_ok_and(|of_low| of_low == term) {
                first = low;
            }
            while before + 1 < first {
                let middle = before + (first - before) / 2;
                match log.term(middle).is_ok_and(|of_middle| of_middle == term) {
                    true => first = middle,
                    false => before = middle,
                }
            }
            runs.push((first, term));
            if first <= low {
                break;
            }
            end = first - 1;
        }
        runs
    }

    fn unfit(&self, config: &Config) -> Option<Unfit> {
        if self.is_blank {
            Some(Unfit::Blank)
        } else if self.applying.is_some() {
            Some(Unfit::Applying)
        } else if self.missing_since.is_some() {
            Some(Unfit::MissingEntries)
        } else if self.is_taken {
            Some(Unfit::Merged)
        } else if self.yields {
            Some(Unfit::Stopping)
        } else if self.is_unclean() {
            Some(Unfit::Unclean)
        } else if let Some(unfit) = self.unfit_by_quarantine() {
            Some(unfit)
        } else if !self.descriptor_at_the_end().has_peer_on(config.store) {
            Some(Unfit::Removed)
        } else {
            None
        }
    }

    /// Returns the region's descriptor as it will be when the whole log is applied.
    fn descriptor_at_the_end(&self) -> RegionDescriptor {
        let log = &self.raw.raft.raft_log;
        let mut descriptor = self.handed_descriptor.clone();
        // A quarantined peer's descriptor is as of its quarantine.
        let (mut low, high) = ((self.handed + 1).min(self.withheld_from()), log.last_index() + 1);
        while low < high {
            let context = GetEntriesContext::empty(false);
            // A failed read stops the worker in its next turn.
            let entries = log.slice(low, high, CHANGES_READ_BYTES, context).unwrap_or_default();
            for entry in entries.iter().filter(|entry| !entry.context.is_empty()) {
                let change = change_entry::decode(&entry.context);
                if let Some(changed) = change.and_then(|change| change.apply(&descriptor, entry.index)) {
                    descriptor = changed.region;
                }
            }
            low += entries.len().max(1) as u64;
        }
        descriptor
    }

    /// Votes for the keeper in a term above that of every survivor. The promise counts once the
    /// report shows that it is saved.
    pub fn promise_recovery(
        &mut self,
        ctx: &mut Context,
        term: Term,
        keeper: PeerId,
    ) -> Result<(), RecoveryRefusal> {
        let raft = &self.raw.raft;
        if self.is_leader() {
            return Err(RecoveryRefusal::Leads);
        }
        if (raft.term, raft.vote) == (term, keeper) {
            return Ok(());
        }
        if raft.term >= term {
            return Err(RecoveryRefusal::Promised { term: raft.term });
        }
        self.drive(ctx, |raw| {
            raw.raft.become_follower(term, 0);
            raw.raft.vote = keeper;
        });
        Ok(())
    }

    /// Forces the recovery's entry into the log. From then on the whole log counts as committed.
    pub fn recover(
        &mut self,
        ctx: &mut Context,
        term: Term,
        recovery: &Recovery,
    ) -> Result<(), RecoveryRefusal> {
        let is_done = |descriptor: &RegionDescriptor| {
            descriptor.recoveries.iter().any(|done| done.order == recovery.order)
        };
        if is_done(&self.handed_descriptor) {
            return Ok(());
        }
        if let Some(unfit) = self.unfit(&ctx.config) {
            return Err(RecoveryRefusal::Unfit(unfit));
        }
        let raft = &self.raw.raft;
        let is_promised = (raft.term, raft.vote) == (term, self.id) && self.is_all_saved();
        if self.is_leader() || !is_promised || recovery.keeper != ctx.config.store {
            return Err(RecoveryRefusal::NotPromised);
        }
        let last = raft.raft_log.last_index();
        if last != recovery.last {
            return Err(RecoveryRefusal::Moved { last });
        }
        let mut entry = Entry { index: last + 1, term, ..Entry::default() };
        // The entry has the type of a configuration change, because the library does not campaign
        // while such an entry is committed and not applied.
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.context = change_entry::encode_recovery(self.handed_descriptor.epoch, recovery);
        self.drive(ctx, |raw| {
            raw.raft.become_follower(term, 0);
            raw.raft.raft_log.append(&[entry]);
            raw.raft.raft_log.commit_to(last + 1);
        });
        Ok(())
    }
}
