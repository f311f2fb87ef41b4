//! Quarantined peers, whose logs are not executed any further, and entries that an operator's order
//! skips.

use cluster::{Cause, Mark, Quarantine};
use command::order::Order;
use storage::{StorageError, Txn};
use types::{LogIndex, RegionId};

use super::{Execution, ToApply};
use crate::lifecycle::Job;

impl Execution {
    /// Loads the mark of a peer that was found at start.
    pub fn load_mark(&mut self, region: RegionId, mark: Mark) {
        self.marks.insert(region, mark);
    }

    /// Begins a job of the peer's lifecycle. Returns the job whose steps must be carried out, if
    /// any.
    pub fn begin(&mut self, job: Job) -> Option<Job> {
        match job {
            Job::Replace { .. } | Job::End { .. } => {
                self.unload(job.region());
                Some(job)
            }
            Job::Differ { region, checked } => {
                let what = format!("the check at index {checked}");
                let error = "its rows are not those of the majority";
                let mark = self.hold(region, Cause::Rows, &what, error)?;
                Some(Job::Hold { region, mark })
            }
            Job::Hold { region, mark } => {
                // This job may change the mark of a quarantined peer. It does not quarantine a
                // peer.
                self.is_held(region).then(|| {
                    self.marks.insert(region, mark.clone());
                    Job::Hold { region, mark }
                })
            }
            Job::Release { region, mark } => {
                self.states.get(&region)?;
                self.marks.insert(region, mark.clone());
                Some(Job::Release { region, mark })
            }
        }
    }

    /// Stops execution of the region. Returns the peer's new mark, or `None` if the peer is
    /// quarantined already or has no rows here.
    pub(super) fn hold(&mut self, region: RegionId, cause: Cause, what: &str, error: &str) -> Option<Mark> {
        let index = self.states.get(&region)?.applied_index + 1;
        let mark = self.marks.entry(region).or_default();
        if mark.held.is_some() {
            return None;
        }
        mark.held = Some(Quarantine::new(index, cause, what, error));
        Some(mark.clone())
    }

    pub(super) fn is_held(&self, region: RegionId) -> bool {
        self.marks.get(&region).is_some_and(|mark| mark.held.is_some())
    }

    /// Removes the entries that a quarantined peer does not execute, and returns them.
    pub(super) fn withheld_of<C>(&self, region: RegionId, entries: &mut Vec<ToApply<C>>) -> Vec<ToApply<C>> {
        let held = self.marks.get(&region).and_then(|mark| mark.held.as_ref());
        let Some(index) = held.map(|held| held.index) else { return Vec::new() };
        entries.split_off(entries.partition_point(|apply| apply.entry.index < index))
    }

    pub(super) fn skips(&self, region: RegionId, index: LogIndex) -> bool {
        self.marks.get(&region).is_some_and(|mark| mark.skips.binary_search(&index).is_ok())
    }

    /// Executes an order of the region's log.
    pub(super) fn obey(&self, order: &Order, index: LogIndex, txn: &mut Txn<'_>) -> storage::Result<()> {
        match order {
            Order::Checksum(_) => Ok(()),
            // A peer that executed the entry has different rows from the peers that skipped it.
            Order::Skip(skipped) if !txn.state().has_skipped(*skipped) => {
                let text = format!("the order at {index} skips entry {skipped}, which was executed here");
                Err(StorageError::Corrupt(text))
            }
            Order::Skip(_) => Ok(()),
            Order::Fail { by_panic, stores } => {
                let is_meant = stores.is_empty() || stores.contains(&self.store);
                match is_meant && self.fails_by_order {
                    false => Ok(()),
                    true if *by_panic => panic!("the entry orders a panic"),
                    true => Err(StorageError::Corrupt("the entry orders an error".to_owned())),
                }
            }
        }
    }
}
