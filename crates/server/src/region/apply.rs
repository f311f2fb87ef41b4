//! Committed entries become rows: every entry that waits, of all regions, in one write set that also
//! says how far each region is applied. Then, and not before, their clients are answered.
//!
//! This has its own thread, so that a stalled device holds up neither votes nor heartbeats. A full one makes
//! the batch wait, and with it everything committed later; reads go on.
//!
//! Where rows have to be read from a slow device first, those of several commands are read at once (`turn`).
//!
//! A split makes its region's rows here, in the batch of its entry; a merge's rows change hands in it. Snapshots and the end of peers pass
//! through here, in their order among the entries, on their way to the thread that sees to them (`lives`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use node::{lives, ApplyEffect, Execution, Outcome};
use storage::{RegionState, Txn, WriteSet};
use tokio::sync::mpsc;
use types::{RegionDescriptor, RegionId, META_REGION};

use super::inbox::{Asker, ToWorker};
use super::turn::Turn;
use crate::store::Store;

/// Payload bytes of one write set; a single entry may be larger. Clients of the first entries are answered, and send
/// what comes next, while later ones execute.
const BATCH_BYTES_MAX: usize = 128 << 10;
/// The same while rows are read ahead: the more entries there are, the more of their rows are read at once.
const BATCH_BYTES_AHEAD: usize = 8 << 20;
const ROOM_POLL: Duration = Duration::from_millis(200);

/// A committed entry, and who waits for it on this store.
pub type ToApply = node::ToApply<Asker>;

/// Outcomes on their way to the clients' tasks.
pub type Outcomes = Vec<(Asker, Outcome)>;

/// What the apply thread is told, in order.
pub enum Job {
    Entries(RegionId, Vec<ToApply>),
    /// Nothing of this region comes until its rows were replaced, or ever again.
    Life(lives::Job),
    /// The region's rows are those of a snapshot now.
    Reload(RegionDescriptor),
    Stop,
}

/// The worker's end of the queue. When it goes, so does the thread.
pub struct ApplyQueue {
    jobs: Sender<Job>,
    store: Arc<Store>,
}

impl Drop for ApplyQueue {
    fn drop(&mut self) {
        let _ = self.jobs.send(Job::Stop);
    }
}

impl ApplyQueue {
    pub fn send(&self, region: RegionId, entries: Vec<ToApply>) {
        self.store.unapplied_bytes.fetch_add(bytes_of(&entries), Ordering::Relaxed);
        // The thread ends only with the store.
        let _ = self.jobs.send(Job::Entries(region, entries));
    }

    pub fn send_life(&self, job: lives::Job) {
        let _ = self.jobs.send(Job::Life(job));
    }

    /// Bytes of committed entries that may join those that wait here.
    pub fn room(&self) -> u64 {
        let waiting = self.store.unapplied_bytes.load(Ordering::Relaxed) as u64;
        self.store.budget.execution.saturating_sub(waiting)
    }
}

fn bytes_of(entries: &[ToApply]) -> usize {
    entries.iter().map(ToApply::bytes).sum()
}

pub struct Applier {
    store: Arc<Store>,
    execution: Execution,
    jobs: Receiver<Job>,
    /// Of jobs that were taken, in order.
    entries: VecDeque<(RegionId, ToApply)>,
    /// Taken, and to be begun after `entries`.
    next: Option<Job>,
    lives: Sender<lives::Job>,
    outcomes: mpsc::UnboundedSender<Outcomes>,
    /// Turns from here on in which rows are read ahead.
    ahead: u32,
}

impl Applier {
    /// Reads and publishes how far each region is applied. The sender is for whoever replaces rows.
    pub fn new(
        store: Arc<Store>,
        outcomes: mpsc::UnboundedSender<Outcomes>,
        lives: Sender<lives::Job>,
    ) -> (Applier, ApplyQueue, Sender<Job>) {
        let mut execution = Execution::new(store.id);
        for region in store.regions.all().iter().filter(|region| region.is_local()) {
            match store.engine.region_state(region.id()) {
                Ok(state) => {
                    region.set_applied(state.applied_index, state.last_stamp_ms);
                    store.engine.publish_counts(region.id(), &state);
                    execution.load(region.id(), state, region.slots());
                }
                Err(error) => store.fatal(&format!("region {} cannot be read: {error}", region.id())),
            }
        }
        let (sender, jobs) = crossbeam_channel::unbounded();
        let queue = ApplyQueue { jobs: sender.clone(), store: store.clone() };
        let applier = Applier {
            store,
            execution,
            jobs,
            entries: VecDeque::new(),
            next: None,
            lives,
            outcomes,
            ahead: 0,
        };
        (applier, queue, sender)
    }

    /// Runs until the worker has gone and everything it handed over is applied.
    pub fn run(mut self) {
        loop {
            let (entries, bytes) = self.next_entries();
            if !entries.is_empty() {
                match self.apply(entries, bytes) {
                    true => continue,
                    false => return,
                }
            }
            match self.next.take().or_else(|| self.jobs.recv().ok()) {
                Some(Job::Entries(region, entries)) => self.take(region, entries),
                Some(Job::Life(job)) => {
                    self.execution.unload(job.region());
                    let _ = self.lives.send(job);
                }
                Some(Job::Reload(descriptor)) => self.reload(descriptor),
                Some(Job::Stop) | None => return,
            }
        }
    }

    fn take(&mut self, region: RegionId, entries: Vec<ToApply>) {
        self.entries.extend(entries.into_iter().map(|entry| (region, entry)));
    }

    /// The entries of the next batch, and their bytes. None where another job is next, or nothing waits.
    fn next_entries(&mut self) -> (BTreeMap<RegionId, Vec<ToApply>>, usize) {
        let most = if self.ahead > 0 { BATCH_BYTES_AHEAD } else { BATCH_BYTES_MAX };
        let (mut by_region, mut bytes): (BTreeMap<_, Vec<_>>, usize) = (BTreeMap::new(), 0);
        loop {
            while let Some((region, entry)) = self.entries.pop_front() {
                if bytes > 0 && bytes + entry.bytes() > most {
                    self.entries.push_front((region, entry));
                    return (by_region, bytes);
                }
                bytes += entry.bytes();
                by_region.entry(region).or_default().push(entry);
            }
            if self.next.is_none() {
                self.next = self.jobs.try_recv().ok();
            }
            match self.next.take() {
                Some(Job::Entries(region, entries)) => self.take(region, entries),
                other => {
                    self.next = other;
                    return (by_region, bytes);
                }
            }
        }
    }

    /// False: the store stops.
    fn apply(&mut self, by_region: BTreeMap<RegionId, Vec<ToApply>>, bytes: usize) -> bool {
        if !self.wait_for_room() {
            return false;
        }
        let started = Instant::now();
        let entries: usize = by_region.values().map(Vec::len).sum();
        let mut outcomes = Outcomes::new();
        for effect in self.execute(by_region) {
            match effect {
                ApplyEffect::Write(writes) => {
                    self.store.engine.write(&writes);
                    self.store.unapplied_bytes.fetch_sub(bytes, Ordering::Relaxed);
                    self.count(&writes, entries);
                }
                ApplyEffect::Describe(descriptors) => self.store.set_local_regions(&descriptors),
                ApplyEffect::Absorbed { region } => self.store.engine.forget_counts(region),
                ApplyEffect::State { region, state } => self.publish_state(region, &state),
                ApplyEffect::Applied(indexes) => {
                    let _ = self.store.worker.send(ToWorker::Applied { indexes });
                }
                ApplyEffect::Answer { client, outcome } => outcomes.push((client, outcome)),
            }
        }
        if !outcomes.is_empty() {
            let _ = self.outcomes.send(outcomes);
        }
        self.store.metrics.apply.record(started.elapsed());
        true
    }

    fn count(&self, writes: &WriteSet, entries: usize) {
        let row_bytes =
            |(row, value): &(Bytes, Option<Bytes>)| row.len() + value.as_ref().map_or(0, |value| value.len());
        let bytes: usize = writes.rows.iter().map(row_bytes).sum();
        self.store.metrics.rows_bytes_written.inc_by(bytes as u64);
        self.store.metrics.entries_applied.inc_by(entries as u64);
    }

    fn reload(&mut self, descriptor: RegionDescriptor) {
        let region = descriptor.id;
        let state = match self.store.engine.region_state(region) {
            Ok(state) => state,
            Err(error) => self.store.fatal(&format!("region {region} cannot be read: {error}")),
        };
        if region == META_REGION {
            match cluster::MetaState::load(self.store.engine.rows()) {
                Ok(meta) => self.store.cluster.replace(meta),
                Err(error) => self.store.fatal(&format!("the cluster's state cannot be read: {error}")),
            }
        }
        if let Some(slots) = descriptor.slots {
            self.store.engine.rows_came(slots);
        }
        let slots = descriptor.slots;
        self.store.set_local_regions(&[descriptor]);
        self.publish_state(region, &state);
        self.execution.load(region, state, slots);
    }

    /// Waits until the memtables have room, however long it takes to bring them to flash. False: the store stops
    /// first, and the log has it all.
    fn wait_for_room(&self) -> bool {
        let mut told = false;
        while !self.store.engine.rows().wait_for_room(ROOM_POLL) {
            if self.store.stopping.load(Ordering::Relaxed) {
                return false;
            }
            if self.store.disk.is_full() && !told {
                tracing::error!("no space for rows: applying waits for room");
                told = true;
            }
        }
        if told {
            tracing::info!("there is room for rows again");
        }
        true
    }

    fn execute(&mut self, by_region: BTreeMap<RegionId, Vec<ToApply>>) -> Vec<ApplyEffect<Asker>> {
        let store = self.store.clone();
        let commands = by_region.iter().filter(|(region, _)| **region != META_REGION);
        let payloads = commands.flat_map(|(_, entries)| entries).map(|apply| apply.entry.payload.clone());
        let payloads = payloads.filter(|payload| !payload.is_empty()).collect();
        let turn = Turn::new(&store.engine, &store.metrics, self.ahead, payloads);
        let mut meta = |payload: &Bytes, txn: &mut Txn<'_>| store.cluster.apply(payload, txn);
        let effects = self.execution.execute(by_region, &turn, &mut meta, &mut ());
        self.ahead = turn.left();
        effects.unwrap_or_else(|error| self.store.fatal(&error.to_string()))
    }

    fn publish_state(&self, region: RegionId, state: &RegionState) {
        self.store.engine.publish_counts(region, state);
        if let Some(shared) = self.store.regions.get(region) {
            shared.set_applied(state.applied_index, state.last_stamp_ms);
        }
    }
}

/// Hands outcomes out from inside the runtime. Each hand-over wakes a client's task, which costs a system
/// call when it comes from another thread and next to nothing here; so the apply thread wakes this task alone.
pub async fn hand_out(mut batches: mpsc::UnboundedReceiver<Outcomes>) {
    while let Some(batch) = batches.recv().await {
        for (client, outcome) in batch {
            let _ = client.send(outcome);
        }
    }
}
