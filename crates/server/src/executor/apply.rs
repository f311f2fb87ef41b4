//! The apply thread turns committed entries into rows. The entries of all waiting regions share one
//! write set, which also holds each region's applied index. Clients get replies only after the
//! write.
//!
//! It executes the entries that the worker's thread could not execute over rows in RAM
//! ([`super::in_ram`]). `node::ApplyQueue` and `node::Backlog` decide which entries these are, and
//! their order. A stalled device delays neither votes nor heartbeats. A full device makes the batch
//! and all later entries wait, while reads continue.
//!
//! If rows must first be read from a slow device, the rows of several commands are read at the same
//! time (`turn`).
//!
//! A split or a merge changes the owner of rows here, in the batch of its entry. Snapshots and
//! removals of peers pass through here on their way to the thread that executes them (`lifecycle`).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::Mark;
use crossbeam_channel::{Receiver, Sender};
use node::{lifecycle, ApplyEffect, ApplyJob, Backlog, Execution, Meta, Next};
use parking_lot::Mutex;
use resp::Reply;
use storage::{RegionState, Txn};
use types::{RegionDescriptor, RegionId, META_REGION};

use super::in_ram::ApplyHandle;
use super::parts::Parts;
use super::turn::Turn;
use crate::config::DebugCommand;
use crate::consistency_checks::Order;
use crate::loops::{Asker, Outcomes, ToWorker};

/// Maximum payload of one write set, in bytes; a single entry may be larger. The limit lets clients
/// of the first entries send their next commands while later entries execute.
const BATCH_BYTES_MAX: usize = 128 << 10;
/// Maximum payload of one write set while rows are prefetched, in bytes. More entries mean more
/// rows that are read at the same time.
const BATCH_BYTES_AHEAD: usize = 8 << 20;
const ROOM_POLL: Duration = Duration::from_millis(200);

/// A committed entry, and the client on this store that waits for it.
pub type ToApply = node::ToApply<Asker>;

/// Messages to the apply thread, processed in order.
pub enum ToApplier {
    Job(ApplyJob<Asker>),
    Stop,
}

pub struct Applier {
    parts: Parts,
    execution: Arc<Mutex<Execution>>,
    jobs: Receiver<ToApplier>,
    backlog: Backlog<Asker>,
    is_stopping: bool,
    lifecycle: Sender<lifecycle::Job>,
    /// Remaining turns in which rows are prefetched.
    ahead: u32,
}

impl Applier {
    /// Reads and publishes the applied index of each region. The sender is for the thread that
    /// replaces rows. `marks` are the marks of peers that are quarantined or skip entries.
    pub fn new(
        parts: Parts,
        lifecycle: Sender<lifecycle::Job>,
        marks: &BTreeMap<RegionId, Mark>,
    ) -> (Applier, ApplyHandle, Sender<ToApplier>) {
        let mut execution =
            Execution::new(parts.config.store, parts.config.enable_debug_command == DebugCommand::Yes);
        for (region, slots) in parts.regions.local() {
            match parts.engine.region_state(region) {
                Ok(state) => {
                    publish_state(&parts, region, &state);
                    execution.load(region, state, slots);
                }
                Err(error) => parts.ends.fatal(&format!("region {region} cannot be read: {error}")),
            }
        }
        for (&region, mark) in marks {
            execution.load_mark(region, mark.clone());
            if let Some(held) = &mark.held {
                parts.quarantines.publish(region, Some(held.clone()));
            }
        }
        let (sender, jobs) = crossbeam_channel::unbounded();
        let execution = Arc::new(Mutex::new(execution));
        let handle = ApplyHandle::new(parts.clone(), execution.clone(), sender.clone());
        let backlog = Backlog::default();
        (Applier { parts, execution, jobs, backlog, is_stopping: false, lifecycle, ahead: 0 }, handle, sender)
    }

    /// Runs until the worker has ended and everything it sent is applied.
    pub fn run(mut self) {
        allocator::share_arena_of_rows();
        loop {
            match self.next() {
                Some(next) => {
                    if !self.perform(next) {
                        return;
                    }
                }
                None if self.is_stopping => return,
                None => {
                    let told = self.jobs.recv().unwrap_or(ToApplier::Stop);
                    self.take(told);
                }
            }
        }
    }

    pub(super) fn next(&mut self) -> Option<Next<Asker>> {
        while let Ok(told) = self.jobs.try_recv() {
            self.take(told);
        }
        self.backlog.next(if self.ahead > 0 { BATCH_BYTES_AHEAD } else { BATCH_BYTES_MAX })
    }

    fn take(&mut self, told: ToApplier) {
        match told {
            ToApplier::Job(job) => self.backlog.push(job),
            ToApplier::Stop => self.is_stopping = true,
        }
    }

    /// Returns false if the store is stopping. The log then holds the entries that were not
    /// applied.
    pub(super) fn perform(&mut self, next: Next<Asker>) -> bool {
        match next {
            Next::Entries { by_region } => return self.apply(by_region),
            Next::Life(job) => {
                if matches!(job, lifecycle::Job::Replace { .. } | lifecycle::Job::End { .. }) {
                    self.parts.checks.withdraw(job.region());
                }
                let begun = self.execution.lock().begin(job);
                begun.into_iter().for_each(|job| self.go_on(job));
            }
            Next::Reload(descriptor) => self.reload(descriptor),
        }
        true
    }

    /// Passes the steps of a job to the thread that carries them out.
    fn go_on(&self, job: lifecycle::Job) {
        if let lifecycle::Job::Hold { region, mark } = &job {
            self.parts.quarantines.publish(*region, mark.held.clone());
        }
        let _ = self.lifecycle.send(job);
    }

    fn apply(&mut self, by_region: BTreeMap<RegionId, Vec<ToApply>>) -> bool {
        if !self.wait_for_room() {
            return false;
        }
        self.keep_pace();
        let started = Instant::now();
        let entries: usize = by_region.values().map(Vec::len).sum();
        let mut outcomes = Outcomes::new();
        // The rows are written before another thread may execute.
        let mut execution = self.execution.lock();
        let mut applied = Vec::new();
        let wants_record = self.parts.notices.are_wanted();
        for effect in execute(&self.parts, &mut self.ahead, &mut execution, by_region, wants_record) {
            match effect {
                ApplyEffect::Applied(indexes) => applied.extend(indexes),
                ApplyEffect::Answer { client, outcome } => outcomes.push((client, outcome)),
                ApplyEffect::Hold { region, mark } => self.go_on(lifecycle::Job::Hold { region, mark }),
                other => carry_out(&self.parts, other, entries),
            }
        }
        if !wants_record {
            self.parts.notices.executed_without_record();
        }
        drop(execution);
        let _ = self.parts.worker.send(ToWorker::Applied { indexes: applied, outcomes });
        self.parts.metrics.apply.record(started.elapsed());
        true
    }

    fn reload(&mut self, descriptor: RegionDescriptor) {
        let region = descriptor.id;
        let state = match self.parts.engine.region_state(region) {
            Ok(state) => state,
            Err(error) => {
                let what = format!("region {region} cannot be read");
                self.parts.ends.rows_failed_for_good(&what, &error)
            }
        };
        if region == META_REGION {
            if let Err(error) = self.parts.cluster.reload(self.parts.engine.rows()) {
                self.parts.ends.rows_failed_for_good("the cluster's state cannot be read", &error);
            }
        }
        if let Some(slots) = descriptor.slots {
            self.parts.engine.rows_came(slots);
        }
        let slots = descriptor.slots;
        // A read that finds these rows must not find the applied index of the rows before them.
        self.parts.regions.set_applied(region, state.applied_index, state.last_stamp_ms);
        self.parts.regions.set_local(&[descriptor]);
        publish_state(&self.parts, region, &state);
        self.execution.lock().load(region, state, slots);
        self.parts.blocked.look_at_all();
        self.parts.notices.replaced(slots.unwrap_or(types::SlotRange::ALL));
    }

    /// Waits while earlier writes were faster than the flush under way. So the room lasts as long
    /// as the flush, and clients see slower writes instead of none.
    fn keep_pace(&self) {
        let rows = self.parts.engine.rows();
        let wait = rows.write_wait();
        if !wait.is_zero() && !self.is_stopping {
            std::thread::sleep(wait);
            rows.waited(wait);
        }
    }

    /// Waits until the memtables have room, however long the flush takes. Returns false if the
    /// store stops first; the log then holds everything.
    fn wait_for_room(&self) -> bool {
        let mut told = false;
        while !self.parts.engine.rows().wait_for_room(ROOM_POLL) {
            if self.parts.ends.is_stopping() {
                return false;
            }
            if self.parts.disk.is_full() && !told {
                tracing::error!("no space for rows: applying waits for room");
                told = true;
            }
        }
        if told {
            tracing::info!("there is room for rows again");
        }
        true
    }
}

/// Executes one batch. `ahead` is the number of remaining turns in which rows are prefetched; it is
/// updated for the next batch.
fn execute(
    parts: &Parts,
    ahead: &mut u32,
    execution: &mut Execution,
    by_region: BTreeMap<RegionId, Vec<ToApply>>,
    wants_record: bool,
) -> Vec<ApplyEffect<Asker>> {
    let commands = by_region.iter().filter(|(region, _)| **region != META_REGION);
    let payloads = commands.flat_map(|(_, entries)| entries).map(|apply| apply.entry.payload.clone());
    let of_commands = |payload: &Bytes| !payload.is_empty() && !command::order::is_order(payload);
    let payloads = payloads.filter(of_commands).collect();
    let turn = Turn::new(&parts.engine, &parts.metrics, *ahead, payloads);
    let turn = turn.with_record(wants_record);
    let mut meta = MetaRegion { parts };
    let effects = execution.execute(by_region, &turn, &mut meta, &mut ());
    *ahead = turn.left();
    effects.unwrap_or_else(|error| {
        let what = format!("region {} cannot execute its log", error.region);
        parts.ends.rows_failed_for_good(&what, &error.error)
    })
}

/// Carries out the effects that do not depend on the executing thread. `entries` is the number of
/// executed entries.
pub(super) fn carry_out(parts: &Parts, effect: ApplyEffect<Asker>, entries: usize) {
    match effect {
        ApplyEffect::Write(writes) => {
            let row_bytes =
                |(row, value): &(Bytes, Option<Bytes>)| row.len() + value.as_ref().map_or(0, Bytes::len);
            let bytes: usize = writes.rows.iter().map(row_bytes).sum();
            let last = parts.blocked.last();
            let fed = parts.blocked.fed_by(&writes);
            parts.engine.write(writes);
            fed.iter().for_each(|place| parts.blocked.look_at(place));
            parts.blocked.look_at_those_behind(last);
            parts.metrics.rows_bytes_written.inc_by(bytes as u64);
            parts.metrics.entries_applied.inc_by(entries as u64);
        }
        ApplyEffect::Describe(descriptors) => parts.regions.set_local(&descriptors),
        ApplyEffect::Absorbed { region } => {
            parts.engine.forget_counts(region);
            parts.checks.withdraw(region);
        }
        ApplyEffect::State { region, state } => publish_state(parts, region, &state),
        ApplyEffect::Changed { region, record } => {
            let leader = parts.regions.get(region).and_then(|region| region.leader());
            parts.notices.tell(&record, leader == Some(parts.config.store));
        }
        ApplyEffect::Published { messages, dropped } => {
            parts.spread.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
            parts.notices.publish(messages, &parts.spread, parts.config.cluster_enabled);
        }
        ApplyEffect::Counted(counts) => parts.metrics.keys.add(counts),
        ApplyEffect::Check { region, index, number } => parts.checks.begin(Order { region, index, number }),
        ApplyEffect::Applied(_) | ApplyEffect::Answer { .. } | ApplyEffect::Hold { .. } => {
            unreachable!("the caller's")
        }
    }
}

/// The cluster's state, which the meta region's entries change.
struct MetaRegion<'a> {
    parts: &'a Parts,
}

impl Meta for MetaRegion<'_> {
    fn apply(&mut self, payload: &Bytes, txn: &mut Txn<'_>) -> storage::Result<Vec<Option<Reply>>> {
        self.parts.cluster.apply(payload, txn)
    }

    fn reload(&mut self) -> storage::Result<()> {
        self.parts.cluster.reload(self.parts.engine.rows())
    }
}

fn publish_state(parts: &Parts, region: RegionId, state: &RegionState) {
    parts.engine.publish_counts(region, state);
    parts.regions.set_applied(region, state.applied_index, state.last_stamp_ms);
}
