//! How a snapshot takes the place of a region's rows while the store runs, and how a peer ends.
//!
//! Both wait for flushes and may take seconds, so they run beside the execution of other regions. The jobs of a store
//! run one after another, and the steps of a job in their order. What a step writes to the log is synced before the next
//! begins; what it writes to the rows is durable after the next [`Step::Flush`], but for a snapshot, which is durable at
//! once. After a crash between two steps the next start does the rest ([`crate::recovery`]), by what the log says:
//!
//! ```text
//!  replace   log: Applying (synced by the batch that accepted it) ─▶ rows replaced ─▶ log: Exists
//!  end       flush ─▶ log: Tombstone ─▶ rows deleted ─▶ flush ─▶ log deleted
//! ```

use types::{LogIndex, PeerId, RegionDescriptor, RegionId, Term};
use wal::PeerLife;

use crate::planted::{self, Bug};

/// Whoever begins a job has unloaded the region first ([`crate::Execution::unload`]): nothing of it is executed meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// A snapshot, all of which this store has received, takes the place of the region's rows.
    Replace { descriptor: RegionDescriptor, index: LogIndex, term: Term },
    /// The peer is no more: see `replica::Action::Destroy`.
    End { region: RegionId, peer: PeerId },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nobody reads the region's rows until they are loaded: they have no token, and the next one is another.
    HideRows,
    /// The snapshot's rows stand in their place, durably. The step may be done again after a crash.
    ReplaceRows { descriptor: RegionDescriptor, index: LogIndex, term: Term },
    /// Written to the log and synced.
    Record(PeerLife),
    /// The region's rows are those of a snapshot, for execution and for readers.
    Load(RegionDescriptor),
    /// The groups are told: `Input::SnapshotApplied`.
    TellApplied,
    /// From now on readers, and those who look for the region's leader, find no peer of it on this store.
    RemovePeer,
    /// What was written to the rows so far survives a crash.
    Flush,
    /// Deletes the region's own rows, and those in its slots, except what other regions on this store have of them.
    DeleteRows,
    /// Deletes all of the region's log except the tombstone, and syncs.
    DestroyLog { peer: PeerId },
    /// The groups are told: `replica::Input::Destroyed`.
    TellDestroyed,
}

impl Job {
    pub fn region(&self) -> RegionId {
        match self {
            Job::Replace { descriptor, .. } => descriptor.id,
            Job::End { region, .. } => *region,
        }
    }

    pub fn steps(self) -> Vec<Step> {
        match self {
            Job::Replace { descriptor, index, term } => {
                let exists = PeerLife::Exists { descriptor: descriptor.clone(), parent: None };
                let mut steps = vec![
                    Step::HideRows,
                    Step::ReplaceRows { descriptor: descriptor.clone(), index, term },
                    Step::Record(exists),
                    // Before the groups are told, for then they hand out entries that follow the snapshot.
                    Step::Load(descriptor),
                    Step::TellApplied,
                ];
                if planted::is(Bug::ExistsBeforeRows) {
                    steps.swap(1, 2);
                }
                steps
            }
            Job::End { peer, .. } => {
                let mut steps = vec![
                    Step::RemovePeer,
                    // For regions that splits of this one made, and for the one that it merged into: until the flush
                    // returns, only this log can make their rows again.
                    Step::Flush,
                    Step::Record(PeerLife::Tombstone { peer }),
                    Step::DeleteRows,
                    Step::Flush,
                    Step::DestroyLog { peer },
                    Step::TellDestroyed,
                ];
                if planted::is(Bug::TombstoneAfterRows) {
                    steps[2..5].rotate_left(1);
                }
                steps
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(steps: &[Step], is: impl Fn(&Step) -> bool) -> usize {
        steps.iter().position(is).expect("a step of the job")
    }

    #[test]
    fn a_peer_exists_again_after_its_rows_and_before_anything_of_it_is_executed() {
        let descriptor = RegionDescriptor::founded(1, None, &[0, 1, 2]);
        let job = Job::Replace { descriptor: descriptor.clone(), index: 9, term: 2 };
        assert_eq!(job.region(), 1);
        let steps = job.steps();
        let replaced = place(&steps, |step| matches!(step, Step::ReplaceRows { index: 9, term: 2, .. }));
        let recorded = place(&steps, |step| matches!(step, Step::Record(PeerLife::Exists { .. })));
        let told = place(&steps, |step| *step == Step::TellApplied);
        assert!(place(&steps, |step| *step == Step::HideRows) < replaced);
        assert!(replaced < recorded && recorded < told);
        assert!(place(&steps, |step| *step == Step::Load(descriptor.clone())) < told);
    }

    #[test]
    fn a_tombstone_stands_between_the_flush_of_others_rows_and_the_end_of_ones_own() {
        let steps = Job::End { region: 1, peer: 7 }.steps();
        let flushes: Vec<usize> = (0..steps.len()).filter(|at| steps[*at] == Step::Flush).collect();
        let tombstone = place(&steps, |step| *step == Step::Record(PeerLife::Tombstone { peer: 7 }));
        let deleted = place(&steps, |step| *step == Step::DeleteRows);
        let log = place(&steps, |step| *step == Step::DestroyLog { peer: 7 });
        assert_eq!(flushes.len(), 2);
        assert!(flushes[0] < tombstone && tombstone < deleted);
        assert!(deleted < flushes[1] && flushes[1] < log);
        assert_eq!(steps.last(), Some(&Step::TellDestroyed));
    }
}
