//! The peer lifecycle: how a snapshot replaces a region's rows while the store runs, and how a peer
//! is removed.
//!
//! Both wait for flushes and may take seconds, so they run in parallel with the execution of other
//! regions. A store runs one job at a time, and the steps of a job in order. A step's write to the
//! log is synced before the next step begins. Its writes to the rows are durable after the next
//! [`Step::Flush`]. A snapshot is an exception: it is durable at once. After a crash between two
//! steps, the next start uses the log to finish the job ([`crate::recovery`]):
//!
//! ```text
//!  replace   log: Applying (synced by the batch that accepted it) ─▶ rows replaced ─▶ log: Exists
//!  end       flush ─▶ log: Tombstone ─▶ rows deleted ─▶ flush ─▶ mark deleted ─▶ log deleted
//!  hold      log: mark ─▶ groups told                     (quarantine)
//!  release   log: mark ─▶ groups told, which hand out again what was withheld
//! ```

use cluster::Mark;
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, Term};
use wal::PeerLifecycle;

use crate::failpoints::Failpoint;

/// A change in a peer's lifecycle. The caller unloads the region ([`crate::Execution::unload`])
/// before the job begins, so that none of its entries is executed during the job.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// Replaces the region's rows with a snapshot that this store has received completely.
    Replace { descriptor: RegionDescriptor, index: LogIndex, term: Term },
    /// Removes the peer: see `replica::Action::Destroy`.
    End { region: RegionId, peer: PeerId },
    /// Quarantines the peer because the check at this index found that its rows differ from those
    /// of the majority. It becomes a [`Job::Hold`] when execution reaches it.
    Differ { region: RegionId, checked: LogIndex },
    /// Quarantines the peer, or changes its quarantine. Execution already follows the mark.
    Hold { region: RegionId, mark: Mark },
    /// Ends the peer's quarantine.
    Release { region: RegionId, mark: Mark },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Makes the region's rows unreadable until they are loaded: they have no token, and the next
    /// token will differ.
    HideRows,
    /// Replaces the rows with the snapshot's, durably. The step may be repeated after a crash.
    ReplaceRows { descriptor: RegionDescriptor, index: LogIndex, term: Term },
    /// Writes the peer's state to the log and syncs it.
    Record(PeerLifecycle),
    /// Makes the snapshot's rows available to execution and readers.
    Load(RegionDescriptor),
    /// Tells the Raft groups: `Input::SnapshotApplied`.
    TellApplied,
    /// Hides the peer: neither readers nor look-ups of the region's leader find it on this store.
    RemovePeer,
    /// Makes all rows written so far durable.
    Flush,
    /// Deletes the region's own rows and those in its slots, except rows of other regions on this
    /// store.
    DeleteRows,
    /// Deletes the region's log except for the tombstone, and syncs.
    DestroyLog { peer: PeerId },
    /// Tells the Raft groups: `replica::Input::Destroyed`.
    TellDestroyed,
    /// Writes the peer's mark to the log and syncs it.
    RecordMark(Mark),
    /// Deletes the peer's mark, if it has one, and syncs.
    ForgetMark,
    /// Tells the shard: `Input::Held`.
    TellHeld(Mark),
    /// Tells the shard: `Input::Released`.
    TellReleased(Mark),
}

impl Job {
    pub fn region(&self) -> RegionId {
        match self {
            Job::Replace { descriptor, .. } => descriptor.id,
            Job::End { region, .. }
            | Job::Differ { region, .. }
            | Job::Hold { region, .. }
            | Job::Release { region, .. } => *region,
        }
    }

    pub fn steps(self) -> Vec<Step> {
        match self {
            Job::Replace { descriptor, index, term } => {
                let exists = PeerLifecycle::Exists { descriptor: descriptor.clone(), parent: None };
                let mut steps = vec![
                    Step::HideRows,
                    Step::ReplaceRows { descriptor: descriptor.clone(), index, term },
                    Step::Record(exists),
                    Step::ForgetMark,
                    // The rows are loaded before the groups are told, because the groups then hand
                    // out the entries after the snapshot.
                    Step::Load(descriptor),
                    Step::TellApplied,
                ];
                if Failpoint::ExistsBeforeRows.is_on() {
                    steps.swap(1, 2);
                }
                steps
            }
            Job::End { peer, .. } => {
                let mut steps = vec![
                    Step::RemovePeer,
                    // The flush protects the regions that were split off from this one and the one
                    // that it merged into. Until it returns, only this log can restore their rows.
                    Step::Flush,
                    Step::Record(PeerLifecycle::Tombstone { peer }),
                    Step::DeleteRows,
                    Step::Flush,
                    Step::ForgetMark,
                    Step::DestroyLog { peer },
                    Step::TellDestroyed,
                ];
                if Failpoint::TombstoneAfterRows.is_on() {
                    steps[2..5].rotate_left(1);
                }
                steps
            }
            // Execution turns this job into a hold, or drops it.
            Job::Differ { .. } => Vec::new(),
            Job::Hold { mark, .. } => vec![Step::RecordMark(mark.clone()), Step::TellHeld(mark)],
            Job::Release { mark, .. } => vec![Step::RecordMark(mark.clone()), Step::TellReleased(mark)],
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
        let recorded = place(&steps, |step| matches!(step, Step::Record(PeerLifecycle::Exists { .. })));
        let told = place(&steps, |step| *step == Step::TellApplied);
        assert!(place(&steps, |step| *step == Step::HideRows) < replaced);
        assert!(replaced < recorded && recorded < told);
        assert!(place(&steps, |step| *step == Step::Load(descriptor.clone())) < told);
    }

    #[test]
    fn a_mark_is_written_before_anything_goes_by_it() {
        let mark = Mark { skips: vec![7], held: None };
        let steps = Job::Release { region: 1, mark: mark.clone() }.steps();
        assert_eq!(steps, [Step::RecordMark(mark.clone()), Step::TellReleased(mark.clone())]);
        let steps = Job::Hold { region: 1, mark: mark.clone() }.steps();
        assert_eq!(steps, [Step::RecordMark(mark.clone()), Step::TellHeld(mark)]);
    }

    #[test]
    fn a_tombstone_stands_between_the_flush_of_others_rows_and_the_end_of_ones_own() {
        let steps = Job::End { region: 1, peer: 7 }.steps();
        let flushes: Vec<usize> = (0..steps.len()).filter(|at| steps[*at] == Step::Flush).collect();
        let tombstone = place(&steps, |step| *step == Step::Record(PeerLifecycle::Tombstone { peer: 7 }));
        let deleted = place(&steps, |step| *step == Step::DeleteRows);
        let log = place(&steps, |step| *step == Step::DestroyLog { peer: 7 });
        assert_eq!(flushes.len(), 2);
        assert!(flushes[0] < tombstone && tombstone < deleted);
        assert!(deleted < flushes[1] && flushes[1] < log);
        assert_eq!(steps.last(), Some(&Step::TellDestroyed));
    }
}
