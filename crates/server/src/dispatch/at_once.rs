//! The work that a loop does without waiting: reads of rows in RAM, and the submission of writes.
//!
//! All other work goes through [`Store::execute`], which may wait.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use node::reads::{Local, Origin, Proof, Read};
use node::session::Kind;
use node::{Answer, Item, Outcome, Submit, Work, COPIED_BYTES_MAX};
use storage::KeyCounts;

use crate::clock;
use crate::loops::Asker;
use crate::proposals::NotDone;
use crate::regions::RegionShared;
use crate::store::Store;

/// Maximum bytes of writes whose keys are looked up before they are submitted.
const NOTHING_BYTES_MAX: usize = 16 << 10;

/// The result of a submission.
pub enum Finished {
    Answered(Vec<Answer>),
    /// The region has given slots away, or this store does not lead it. Commands without an answer
    /// were not proposed.
    GoesOn(Vec<Option<Answer>>),
}

impl Store {
    /// Answers writes of keys that do not exist, as far as RAM knows. Returns `None` if they need
    /// an entry of the log, or if this store does not lead the region under a lease. Adds the keys
    /// that they have looked up to `counts`.
    pub fn find_nothing_at_once(
        &self,
        region: &RegionShared,
        items: &[Item],
        origin: Origin,
        counts: &mut KeyCounts,
    ) -> Option<Vec<Answer>> {
        if !items.iter().all(Item::needs_its_keys) {
            return None;
        }
        // The look-ups hold up the loop, and are in vain if the last key exists.
        if items.iter().map(Item::bytes).sum::<usize>() > NOTHING_BYTES_MAX {
            return None;
        }
        if region.leader() != Some(self.id) || !self.membership.may_use_lease() {
            return None;
        }
        let version = region.newest_version();
        let now = clock::boot_nanos();
        self.want_lease(region, now);
        let read = Read::begin_nothing(region, items, origin, || now)?;
        let now = region.read_time(self.wall.millis());
        let (answers, counted) = self.engine.find_nothing_in_ram(region, items, now)?;
        self.note_read(&read, region, items, version)?;
        *counts += counted;
        self.metrics.writes_of_nothing.inc_by(items.len() as u64);
        Some(answers)
    }

    /// Counts the commands whose view was taken. Returns `None` if they may not be answered with
    /// it.
    fn note_read(
        &self,
        read: &Read<<RegionShared as Local>::Token>,
        region: &RegionShared,
        items: &[Item],
        version: u64,
    ) -> Option<()> {
        let slots = items.iter().map(|item| item.slot);
        if !read.may_be_answered(region, slots, version, clock::boot_nanos) {
            return None;
        }
        region.reads.fetch_add(items.len() as u64, Ordering::Relaxed);
        self.regions.touch(region);
        Some(())
    }

    /// Reads rows that are all in RAM. Returns `None` if the read needs more: rows from flash, for
    /// strong reads a region that this store leads under a lease, or for weak reads a peer here
    /// that is fresh enough. Such a read is not counted. Adds the keys that the reads have looked
    /// up to `counts`.
    pub fn read_at_once(
        &self,
        region: &RegionShared,
        items: &[Item],
        kind: Kind,
        counts: &mut KeyCounts,
    ) -> Option<Vec<Answer>> {
        let version = region.newest_version();
        let read = match kind {
            Kind::Weak(_) => Read::begin_weak(region, items.iter().map(|item| item.slot), version)?,
            Kind::Reads => {
                if region.leader() != Some(self.id) || !self.membership.may_use_lease() {
                    return None;
                }
                let now = clock::boot_nanos();
                self.want_lease(region, now);
                Read::begin(region, Proof::Lease(Origin::Here), || now)?
            }
            Kind::Writes => return None,
        };
        if let Kind::Weak(Some(max)) = kind {
            let applied = region.applied();
            if !region.freshness().suffices(max, clock::boot_nanos(), applied) {
                return None;
            }
        }
        let now = region.read_time(self.wall.millis());
        let (answers, counted) = self.engine.read_all_from_ram(region, items, now)?;
        self.note_read(&read, region, items, version)?;
        *counts += counted;
        if kind == Kind::Reads {
            self.metrics.reads_by_lease.inc_by(items.len() as u64);
        }
        Some(answers)
    }

    /// Creates a submission of writes. Returns `None` if the caller must use [`Store::execute`]:
    /// this store does not lead the region, has no room, or the writes are so large that a task
    /// should encode them.
    pub fn submission(
        &self,
        region: &RegionShared,
        items: &Arc<Vec<Item>>,
        deadline: Instant,
        (author, client): (u64, Asker),
    ) -> Option<Submit<Asker>> {
        let is_here = region.leader() == Some(self.id);
        if !is_here || self.disk.is_full() || !super::lie_in(items, region, region.newest_version()) {
            return None;
        }
        let bytes: usize = items.iter().map(Item::bytes).sum();
        if bytes > COPIED_BYTES_MAX {
            return None;
        }
        self.disk.will_grow(bytes as u64);
        if self.disk.is_full() {
            return None;
        }
        let work = Work::Commands(items.clone());
        self.proposals.note_writes(region, &work);
        let deadline = clock::boot_nanos_at(deadline);
        Some(Submit { region: region.id(), work, deadline, author, client })
    }

    /// Converts the outcome of a submission of `count` commands.
    pub fn finished(&self, outcome: Outcome, count: usize) -> Finished {
        match self.proposals.answers_of(outcome, count) {
            Ok(answers) if answers.iter().all(Option::is_some) => {
                Finished::Answered(answers.into_iter().flatten().collect())
            }
            Ok(answers) => Finished::GoesOn(answers),
            Err(NotDone::NotLeader) => Finished::GoesOn(vec![None; count]),
            Err(NotDone::Error(error)) => Finished::Answered(vec![error.into(); count]),
        }
    }
}
