//! The apply thread: committed entries become rows, those of all regions that wait in one write set that also says how far
//! each region is applied. Then, and not before, their clients are answered.
//!
//! It has what the worker's thread could not execute over rows in RAM ([`super::in_ram`]); which entries these are, and
//! the order of everything, is decided by `node::ApplyQueue` and `node::Backlog`. A stalled device holds up neither votes
//! nor heartbeats. A full one makes the batch wait, and with it everything committed later; reads go on.
//!
//! Where rows have to be read from a slow device first, those of several commands are read at once (`turn`).
//!
//! A split makes its region's rows here, in the batch of its entry; a merge's rows change hands in it. Snapshots and the
//! end of peers pass through here on their way to the thread that sees to them (`lives`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::Mark;
use crossbeam_channel::{Receiver, Sender};
use node::{lives, ApplyEffect, ApplyJob, Backlog, Execution, Meta, Next};
use parking_lot::Mutex;
use resp::Reply;
use storage::{RegionState, Txn};
use types::{RegionDescriptor, RegionId, META_REGION};

use super::in_ram::ApplyHandle;
use super::parts::Parts;
use super::turn::Turn;
use crate::checks::Order;
use crate::loops::{Asker, Outcomes, ToWorker};

/// Payload bytes of one write set; a single entry may be larger. Clients of the first entries are answered, and send
/// what comes next, while later ones execute.
const BATCH_BYTES_MAX: usize = 128 << 10;
/// The same while rows are read ahead: the more entries there are, the more of their rows are read at once.
const BATCH_BYTES_AHEAD: usize = 8 << 20;
const ROOM_POLL: Duration = Duration::from_millis(200);

/// A committed entry, and who waits for it on this store.
pub type ToApply = node::ToApply<Asker>;

/// What the apply thread is told, in order.
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
    lives: Sender<lives::Job>,
    /// Turns from here on in which rows are read ahead.
    ahead: u32,
}

impl Applier {
    /// Reads and publishes how far each region is applied. The sender is for whoever replaces rows.
    /// `marks`: of peers that are quarantined or skip entries.
    pub fn new(
        parts: Parts,
        lives: Sender<lives::Job>,
        marks: &BTreeMap<RegionId, Mark>,
    ) -> (Applier, ApplyHandle, Sender<ToApplier>) {
        let mut execution = Execution::new(parts.config.store, parts.config.enable_debug_command);
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
        (Applier { parts, execution, jobs, backlog, is_stopping: false, lives, ahead: 0 }, handle, sender)
    }

    /// Runs until the worker has gone and everything it handed over is applied.
    pub fn run(mut self) {
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

    /// False: the store stops, and the log has what is left.
    pub(super) fn perform(&mut self, next: Next<Asker>) -> bool {
        match next {
            Next::Entries { by_region } => return self.apply(by_region),
            Next::Life(job) => {
                if matches!(job, lives::Job::Replace { .. } | lives::Job::End { .. }) {
                    self.parts.checks.withdraw(job.region());
                }
                let begun = self.execution.lock().begin(job);
                begun.into_iter().for_each(|job| self.go_on(job));
            }
            Next::Reload(descriptor) => self.reload(descriptor),
        }
        true
    }

    /// Has the steps of a job carried out.
    fn go_on(&self, job: lives::Job) {
        if let lives::Job::Hold { region, mark } = &job {
            self.parts.quarantines.publish(*region, mark.held.clone());
        }
        let _ = self.lives.send(job);
    }

    fn apply(&mut self, by_region: BTreeMap<RegionId, Vec<ToApply>>) -> bool {
        if !self.wait_for_room() {
            return false;
        }
        let started = Instant::now();
        let entries: usize = by_region.values().map(Vec::len).sum();
        let mut outcomes = Outcomes::new();
        // The rows are written before anybody else may execute.
        let mut execution = self.execution.lock();
        let mut applied = Vec::new();
        for effect in execute(&self.parts, &mut self.ahead, &mut execution, by_region) {
            match effect {
                ApplyEffect::Applied(indexes) => applied.extend(indexes),
                ApplyEffect::Answer { client, outcome } => outcomes.push((client, outcome)),
                ApplyEffect::Hold { region, mark } => self.go_on(lives::Job::Hold { region, mark }),
                other => carry_out(&self.parts, other, entries),
            }
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
            Err(error) => self.parts.ends.fatal(&format!("region {region} cannot be read: {error}")),
        };
        if region == META_REGION {
            if let Err(error) = self.parts.cluster.reload(self.parts.engine.rows()) {
                self.parts.ends.fatal(&format!("the cluster's state cannot be read: {error}"));
            }
        }
        if let Some(slots) = descriptor.slots {
            self.parts.engine.rows_came(slots);
        }
        let slots = descriptor.slots;
        self.parts.regions.set_local(&[descriptor]);
        publish_state(&self.parts, region, &state);
        self.execution.lock().load(region, state, slots);
    }

    /// Waits until the memtables have room, however long it takes to bring them to flash. False: the store stops
    /// first, and the log has it all.
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

/// Executes one batch. `ahead` is the number of turns in which rows are read ahead, before it and after it.
fn execute(
    parts: &Parts,
    ahead: &mut u32,
    execution: &mut Execution,
    by_region: BTreeMap<RegionId, Vec<ToApply>>,
) -> Vec<ApplyEffect<Asker>> {
    let commands = by_region.iter().filter(|(region, _)| **region != META_REGION);
    let payloads = commands.flat_map(|(_, entries)| entries).map(|apply| apply.entry.payload.clone());
    let of_commands = |payload: &Bytes| !payload.is_empty() && !command::order::is_order(payload);
    let payloads = payloads.filter(of_commands).collect();
    let turn = Turn::new(&parts.engine, &parts.metrics, *ahead, payloads);
    let mut meta = MetaRegion { parts };
    let effects = execution.execute(by_region, &turn, &mut meta, &mut ());
    *ahead = turn.left();
    effects.unwrap_or_else(|error| parts.ends.fatal(&error.to_string()))
}

/// Carries out what does not depend on whose thread executed the entries, of which there were so many.
pub(super) fn carry_out(parts: &Parts, effect: ApplyEffect<Asker>, entries: usize) {
    match effect {
        ApplyEffect::Write(writes) => {
            parts.engine.write(&writes);
            let row_bytes =
                |(row, value): &(Bytes, Option<Bytes>)| row.len() + value.as_ref().map_or(0, Bytes::len);
            let bytes: usize = writes.rows.iter().map(row_bytes).sum();
            parts.metrics.rows_bytes_written.inc_by(bytes as u64);
            parts.metrics.entries_applied.inc_by(entries as u64);
        }
        ApplyEffect::Describe(descriptors) => parts.regions.set_local(&descriptors),
        ApplyEffect::Absorbed { region } => {
            parts.engine.forget_counts(region);
            parts.checks.withdraw(region);
        }
        ApplyEffect::State { region, state } => publish_state(parts, region, &state),
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
