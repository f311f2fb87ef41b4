//! Decides which thread executes committed entries, and in which order.
//!
//! The worker's thread executes entries whose rows are in RAM
//! ([`Execution::execute_in_ram`](crate::Execution)), without waiting. All other entries go to the
//! apply thread, which may wait for a device. [`ApplyQueue`] is the worker's end of the queue
//! between them, and [`Backlog`] is the apply thread's end.
//!
//! ```text
//!  Effect::Apply ─▶ ApplyQueue ─┬─▶ Executor::attempt    all rows in RAM, none sent before
//!                     ▲   │ hold └─▶ Executor::send ─▶ Backlog::next ─▶ Execution::execute
//!                     └───┴──────── applied ◀──────────────────────────────┘
//! ```

use std::collections::{BTreeMap, VecDeque};

use types::{LogIndex, RegionDescriptor, RegionId};

use crate::apply::ToApply;
use crate::failpoints::Failpoint;
use crate::lifecycle;

/// Maximum number of `Apply` effects that go to the apply thread without an attempt. The number
/// doubles with each attempt that misses a row.
const SKIPPED_MAX: u32 = 63;
/// Maximum bytes of entries that one attempt of the worker's thread executes.
const ATTEMPT_BYTES_MAX: u64 = 1 << 20;

/// The jobs of the apply thread, in order.
#[derive(Debug)]
pub enum ApplyJob<C> {
    Entries {
        region: RegionId,
        entries: Vec<ToApply<C>>,
    },
    /// Begin a job of a peer's lifecycle. No entry of a region whose rows are being replaced
    /// arrives before the replacement is complete. No entry of a removed peer ever arrives again.
    Life(lifecycle::Job),
    /// Load the region, whose rows were replaced by a snapshot.
    Reload(RegionDescriptor),
}

/// The result of an attempt to execute entries in the worker's thread.
pub enum Attempt<C> {
    /// The effects were carried out.
    Executed,
    /// The apply thread is executing, or there is no room for rows.
    Busy(Vec<ToApply<C>>),
    /// A row that the entries need is not in RAM, or they do more than execute commands. They had
    /// no effect.
    NotInRam(Vec<ToApply<C>>),
}

/// The threads that an [`ApplyQueue`] directs.
pub trait Executor<C> {
    /// Executes the entries over rows in RAM and carries out the effects, or returns the entries
    /// unchanged.
    fn attempt(&mut self, region: RegionId, entries: Vec<ToApply<C>>) -> Attempt<C>;

    /// Appends a job to the apply thread's backlog.
    fn send(&mut self, job: ApplyJob<C>);

    /// Takes entries that are not executed because their region's peer is quarantined. Tells their
    /// clients that the outcome is unknown.
    fn withheld(&mut self, entries: Vec<ToApply<C>>);
}

/// The worker's end of the queue.
#[derive(Debug)]
pub struct ApplyQueue<C> {
    /// The entries of each region that were sent to the apply thread and are not reported as
    /// applied, as index and bytes.
    sent: BTreeMap<RegionId, VecDeque<(LogIndex, u64)>>,
    /// Entries that arrived after them. They are attempted once the apply thread has applied the
    /// entries before them.
    held: BTreeMap<RegionId, Vec<ToApply<C>>>,
    /// Regions whose rows are being replaced or removed. Only the apply thread knows when they may
    /// be executed again. So all their entries go to it until it has applied one that was sent
    /// during the replacement. The value is the first such entry, once there is one.
    away: BTreeMap<RegionId, Option<LogIndex>>,
    /// Quarantined regions, with the first entry of each that is not executed.
    stopped: BTreeMap<RegionId, LogIndex>,
    /// Bytes of all entries in `sent` and `held`.
    bytes: u64,
    /// Number of further `Apply` effects that go to the apply thread without an attempt.
    skipped: u32,
    /// The value of `skipped` after the next attempt that misses a row.
    skipped_next: u32,
}

impl<C> Default for ApplyQueue<C> {
    fn default() -> ApplyQueue<C> {
        ApplyQueue {
            sent: BTreeMap::new(),
            held: BTreeMap::new(),
            away: BTreeMap::new(),
            stopped: BTreeMap::new(),
            bytes: 0,
            skipped: 0,
            skipped_next: 0,
        }
    }
}

impl<C> ApplyQueue<C> {
    /// Executes committed entries, for the effect `Apply`.
    pub fn apply(&mut self, region: RegionId, mut entries: Vec<ToApply<C>>, executor: &mut impl Executor<C>) {
        if let Some(&index) = self.stopped.get(&region) {
            executor.withheld(entries.split_off(entries.partition_point(|apply| apply.entry.index < index)));
            if entries.is_empty() {
                return;
            }
        }
        let is_away = self.away.contains_key(&region) && !Failpoint::ExecuteBeforeReload.is_on();
        if self.skipped > 0 || is_away {
            self.skipped = self.skipped.saturating_sub(1);
            self.bytes += bytes_of(&entries);
            return self.send(region, entries, executor);
        }
        if self.sent.contains_key(&region) && !Failpoint::ExecuteAhead.is_on() {
            self.bytes += bytes_of(&entries);
            self.held.entry(region).or_default().extend(entries);
            return;
        }
        self.attempt(region, entries, executor);
    }

    /// Sends a step of a peer's lifecycle, for the effect `Life`.
    pub fn live(&mut self, job: lifecycle::Job, executor: &mut impl Executor<C>) {
        let region = job.region();
        if matches!(job, lifecycle::Job::Replace { .. } | lifecycle::Job::End { .. }) {
            self.stopped.remove(&region);
        }
        self.send(region, Vec::new(), executor);
        self.away.insert(region, None);
        executor.send(ApplyJob::Life(job));
    }

    /// Processes the apply thread's report that it has applied the region's entries through
    /// `index`.
    pub fn applied(&mut self, region: RegionId, index: LogIndex, executor: &mut impl Executor<C>) {
        let Some(sent) = self.sent.get_mut(&region) else { return };
        let done = sent.partition_point(|(sent, _)| *sent <= index);
        self.bytes -= sent.drain(..done).map(|(_, bytes)| bytes).sum::<u64>();
        if self.away.get(&region).is_some_and(|first| first.is_some_and(|first| first <= index)) {
            self.away.remove(&region);
        }
        if !sent.is_empty() {
            return;
        }
        self.sent.remove(&region);
        let entries = self.take_held(region);
        if !entries.is_empty() {
            self.apply(region, entries, executor);
        }
    }

    /// Stops the region because its peer is quarantined: the entry at `index` and later ones are
    /// not executed. The apply thread has already stopped and reports none of them as applied.
    pub fn stop(&mut self, region: RegionId, index: LogIndex, executor: &mut impl Executor<C>) {
        self.stopped.insert(region, index);
        self.away.insert(region, None);
        if let Some(sent) = self.sent.get_mut(&region) {
            let kept = sent.partition_point(|(sent, _)| *sent < index);
            self.bytes -= sent.drain(kept..).map(|(_, bytes)| bytes).sum::<u64>();
            if sent.is_empty() {
                self.sent.remove(&region);
            }
        }
        let mut held = self.take_held(region);
        executor.withheld(held.split_off(held.partition_point(|apply| apply.entry.index < index)));
        if !held.is_empty() {
            self.apply(region, held, executor);
        }
    }

    /// Ends the stop. The groups hand out again the entries that were not executed.
    pub fn resume(&mut self, region: RegionId) {
        self.stopped.remove(&region);
    }

    /// Sends all held entries to the apply thread, because no attempt follows.
    pub fn close(&mut self, executor: &mut impl Executor<C>) {
        let held: Vec<RegionId> = self.held.keys().copied().collect();
        held.into_iter().for_each(|region| self.send(region, Vec::new(), executor));
    }

    /// Returns the bytes of entries that wait, here or in the apply thread.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn attempt(&mut self, region: RegionId, entries: Vec<ToApply<C>>, executor: &mut impl Executor<C>) {
        let bytes = bytes_of(&entries);
        let attempt = match bytes > ATTEMPT_BYTES_MAX || entries.iter().any(ToApply::ends_batch) {
            true => Attempt::Busy(entries),
            false => executor.attempt(region, entries),
        };
        let entries = match attempt {
            Attempt::Executed => {
                self.skipped_next = 0;
                return;
            }
            Attempt::Busy(entries) => entries,
            Attempt::NotInRam(entries) => {
                self.skipped = self.skipped_next;
                self.skipped_next = (2 * self.skipped_next + 1).min(SKIPPED_MAX);
                entries
            }
        };
        self.bytes += bytes;
        self.send(region, entries, executor);
    }

    /// Takes a region's held entries. They count neither as held nor as sent until they are passed
    /// to `apply` again.
    fn take_held(&mut self, region: RegionId) -> Vec<ToApply<C>> {
        let entries = self.held.remove(&region).unwrap_or_default();
        self.bytes -= bytes_of(&entries);
        entries
    }

    /// Sends the region's held entries, followed by `entries`. All of them must be counted in
    /// `bytes`.
    fn send(&mut self, region: RegionId, entries: Vec<ToApply<C>>, executor: &mut impl Executor<C>) {
        let mut all = self.held.remove(&region).unwrap_or_default();
        all.extend(entries);
        let Some(first) = all.first().map(|apply| apply.entry.index) else { return };
        if let Some(since) = self.away.get_mut(&region) {
            since.get_or_insert(first);
        }
        let sent = self.sent.entry(region).or_default();
        sent.extend(all.iter().map(|apply| (apply.entry.index, apply.bytes() as u64)));
        executor.send(ApplyJob::Entries { region, entries: all });
    }
}

fn bytes_of<C>(entries: &[ToApply<C>]) -> u64 {
    entries.iter().map(|apply| apply.bytes() as u64).sum()
}

/// The apply thread's end of the queue: jobs in order, and batches of entries.
#[derive(Debug)]
pub struct Backlog<C> {
    entries: VecDeque<(RegionId, ToApply<C>)>,
    /// Jobs after `entries`. The first of them is not a job of entries.
    jobs: VecDeque<ApplyJob<C>>,
    /// Regions whose rows are being replaced, so that a `Reload` will follow. The value is false if
    /// the peer was removed in the meantime: its rows may be gone and must not be loaded.
    reloads: BTreeMap<RegionId, bool>,
}

/// The next work of the apply thread.
#[derive(Debug)]
pub enum Next<C> {
    /// Execute these entries in one write set.
    Entries { by_region: BTreeMap<RegionId, Vec<ToApply<C>>> },
    /// Pass the job to execution first ([`crate::Execution::begin`]). Then carry out the job's
    /// steps, in parallel with execution.
    Life(lifecycle::Job),
    /// Load the region from its rows.
    Reload(RegionDescriptor),
}

impl<C> Default for Backlog<C> {
    fn default() -> Backlog<C> {
        Backlog { entries: VecDeque::new(), jobs: VecDeque::new(), reloads: BTreeMap::new() }
    }
}

impl<C> Backlog<C> {
    pub fn push(&mut self, job: ApplyJob<C>) {
        self.jobs.push_back(job);
        self.take_entries();
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.jobs.is_empty()
    }

    /// Returns the next work of the apply thread. Entries have at most `bytes_max` bytes together,
    /// or are a single larger one. An entry that [ends its batch](ToApply::ends_batch) is the last
    /// of its batch.
    pub fn next(&mut self, bytes_max: usize) -> Option<Next<C>> {
        let (mut by_region, mut bytes) = (BTreeMap::<_, Vec<_>>::new(), 0);
        while self.entries.front().is_some_and(|(_, apply)| bytes == 0 || bytes + apply.bytes() <= bytes_max)
        {
            if let Some((region, apply)) = self.entries.pop_front() {
                bytes += apply.bytes();
                let is_last = apply.ends_batch();
                by_region.entry(region).or_default().push(apply);
                if is_last {
                    break;
                }
            }
        }
        if !by_region.is_empty() {
            return Some(Next::Entries { by_region });
        }
        let next = match self.jobs.pop_front()? {
            ApplyJob::Life(job) => {
                self.expect_reload(&job);
                Some(Next::Life(job))
            }
            ApplyJob::Reload(descriptor) => {
                let is_wanted = self.reloads.remove(&descriptor.id).unwrap_or(true);
                is_wanted.then_some(Next::Reload(descriptor))
            }
            ApplyJob::Entries { .. } => unreachable!("entries are taken before other jobs"),
        };
        self.take_entries();
        next.or_else(|| self.next(bytes_max))
    }

    /// Tracks whether a `Reload` may be executed. A job's steps run in parallel with execution, so
    /// the peer may be removed before the rows of an earlier snapshot are loaded.
    fn expect_reload(&mut self, job: &lifecycle::Job) {
        match job {
            lifecycle::Job::Replace { descriptor, .. } => drop(self.reloads.insert(descriptor.id, true)),
            lifecycle::Job::End { region, .. } => {
                if let Some(is_wanted) = self.reloads.get_mut(region) {
                    *is_wanted = false;
                }
            }
            lifecycle::Job::Differ { .. } | lifecycle::Job::Hold { .. } | lifecycle::Job::Release { .. } => {}
        }
    }

    fn take_entries(&mut self) {
        while let Some(ApplyJob::Entries { .. }) = self.jobs.front() {
            if let Some(ApplyJob::Entries { region, entries }) = self.jobs.pop_front() {
                self.entries.extend(entries.into_iter().map(|apply| (region, apply)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
