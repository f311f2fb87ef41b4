//! Committed entries become rows: every entry that waits, of all regions, in one write set that also
//! says how far each region is applied. Then, and not before, their clients are answered.
//!
//! Entries whose rows are in RAM are executed in the worker's thread (`ApplyQueue::execute`); the rest have a thread of their own, so that a stalled device holds up neither votes nor heartbeats. A full one makes
//! the batch wait, and with it everything committed later; reads go on.
//!
//! Where rows have to be read from a slow device first, those of several commands are read at once (`turn`).
//!
//! A split makes its region's rows here, in the batch of its entry; a merge's rows change hands in it. Snapshots and the end of peers pass
//! through here, in their order among the entries, on their way to the thread that sees to them (`lives`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use node::{lives, ApplyEffect, Execution, InRamOutcome};
use parking_lot::Mutex;
use rocks::Keyspace;
use storage::{Reader, RegionState, StorageError, Txn, Visit};
use types::{LogIndex, RegionDescriptor, RegionId, META_REGION};

use super::inbox::{Asker, Outcomes, ToWorker};
use super::turn::Turn;
use crate::store::Store;

/// Payload bytes of one write set; a single entry may be larger. Clients of the first entries are answered, and send
/// what comes next, while later ones execute.
const BATCH_BYTES_MAX: usize = 128 << 10;
/// The same while rows are read ahead: the more entries there are, the more of their rows are read at once.
const BATCH_BYTES_AHEAD: usize = 8 << 20;
/// While rows are missed each time, entries are tried in the worker's thread ever more seldom: once in so many times
/// at least.
const UNSEEN_MAX: u32 = 63;
/// Entries, and values, of more bytes than this are not copied in the worker's thread.
const HERE_BYTES_MAX: usize = 1 << 20;
const ROOM_POLL: Duration = Duration::from_millis(200);

/// A committed entry, and who waits for it on this store.
pub type ToApply = node::ToApply<Asker>;

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
    execution: Arc<Mutex<Execution>>,
    /// By region, the last entry that went to the thread, until the thread has said that it is applied.
    sent: BTreeMap<RegionId, LogIndex>,
    /// Entries that came meanwhile. They are executed here once the thread is done with those before them.
    held: BTreeMap<RegionId, Vec<ToApply>>,
    /// Regions whose rows are replaced or end: the thread alone knows when they may be executed again. Until it has executed
    /// entries of theirs, all go to it.
    away: BTreeSet<RegionId>,
    /// So many times more entries go to the thread without a look whether RAM has their rows.
    unseen: u32,
    /// How often that is when rows are missed next.
    unseen_next: u32,
}

/// Entries that were executed here, in the worker's thread.
pub struct ExecutedHere {
    pub applied: Vec<(RegionId, LogIndex)>,
    pub outcomes: Outcomes,
}

impl Drop for ApplyQueue {
    fn drop(&mut self) {
        let held: Vec<RegionId> = self.held.keys().copied().collect();
        held.into_iter().for_each(|region| self.send(region, Vec::new()));
        let _ = self.jobs.send(Job::Stop);
    }
}

impl ApplyQueue {
    /// Has the entries executed: at once where RAM has all that they need and nothing of the region is under way, else by
    /// the thread.
    pub fn execute(&mut self, region: RegionId, entries: Vec<ToApply>) -> Option<ExecutedHere> {
        if self.unseen > 0 || self.away.contains(&region) {
            self.unseen = self.unseen.saturating_sub(1);
            self.send(region, entries);
            return None;
        }
        if self.sent.contains_key(&region) {
            self.store.unapplied_bytes.fetch_add(bytes_of(&entries), Ordering::Relaxed);
            self.held.entry(region).or_default().extend(entries);
            return None;
        }
        match self.execute_here(region, entries) {
            Ok(executed) => Some(executed),
            Err(entries) => {
                self.send(region, entries);
                None
            }
        }
    }

    fn execute_here(
        &mut self,
        region: RegionId,
        entries: Vec<ToApply>,
    ) -> Result<ExecutedHere, Vec<ToApply>> {
        if !self.store.engine.rows().has_room() || bytes_of(&entries) > HERE_BYTES_MAX {
            return Err(entries);
        }
        // Held by the thread while it executes for other regions, perhaps over a slow device.
        let Some(mut execution) = self.execution.try_lock() else { return Err(entries) };
        let (started, count) = (Instant::now(), entries.len());
        let executed = execution.execute_in_ram(region, entries, &RamRows(self.store.engine.rows()), &mut ());
        let effects = match executed.unwrap_or_else(|error| self.store.fatal(&error.to_string())) {
            InRamOutcome::Executed(effects) => effects,
            InRamOutcome::NotExecuted(entries) => {
                self.unseen = self.unseen_next;
                self.unseen_next = (2 * self.unseen_next + 1).min(UNSEEN_MAX);
                return Err(entries);
            }
        };
        self.unseen_next = 0;
        let mut here = ExecutedHere { applied: Vec::new(), outcomes: Outcomes::new() };
        for effect in effects {
            match effect {
                ApplyEffect::Applied(indexes) => here.applied.extend(indexes),
                ApplyEffect::Answer { client, outcome } => here.outcomes.push((client, outcome)),
                other => carry_out(&self.store, other, count),
            }
        }
        self.store.metrics.apply.record(started.elapsed());
        Ok(here)
    }

    /// The thread has said that these entries are applied. Has those executed that were held for that.
    pub fn applied(&mut self, region: RegionId, index: LogIndex) -> Option<ExecutedHere> {
        if self.sent.get(&region).is_none_or(|last| *last > index) {
            return None;
        }
        self.sent.remove(&region);
        self.away.remove(&region);
        let entries = self.take_held(region);
        if entries.is_empty() {
            return None;
        }
        self.execute(region, entries)
    }

    fn take_held(&mut self, region: RegionId) -> Vec<ToApply> {
        let entries = self.held.remove(&region).unwrap_or_default();
        self.store.unapplied_bytes.fetch_sub(bytes_of(&entries), Ordering::Relaxed);
        entries
    }

    fn send(&mut self, region: RegionId, entries: Vec<ToApply>) {
        let mut all = self.take_held(region);
        all.extend(entries);
        let Some(last) = all.last().map(|apply| apply.entry.index) else { return };
        self.sent.insert(region, last);
        self.store.unapplied_bytes.fetch_add(bytes_of(&all), Ordering::Relaxed);
        // The thread ends only with the store.
        let _ = self.jobs.send(Job::Entries(region, all));
    }

    pub fn send_life(&mut self, job: lives::Job) {
        self.send(job.region(), Vec::new());
        self.sent.remove(&job.region());
        self.away.insert(job.region());
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
    execution: Arc<Mutex<Execution>>,
    jobs: Receiver<Job>,
    /// Of jobs that were taken, in order.
    entries: VecDeque<(RegionId, ToApply)>,
    /// Taken, and to be begun after `entries`.
    next: Option<Job>,
    lives: Sender<lives::Job>,
    /// Turns from here on in which rows are read ahead.
    ahead: u32,
}

impl Applier {
    /// Reads and publishes how far each region is applied. The sender is for whoever replaces rows.
    pub fn new(store: Arc<Store>, lives: Sender<lives::Job>) -> (Applier, ApplyQueue, Sender<Job>) {
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
        let execution = Arc::new(Mutex::new(execution));
        let queue = ApplyQueue {
            jobs: sender.clone(),
            store: store.clone(),
            execution: execution.clone(),
            sent: BTreeMap::new(),
            held: BTreeMap::new(),
            away: BTreeSet::new(),
            unseen: 0,
            unseen_next: 0,
        };
        let applier =
            Applier { store, execution, jobs, entries: VecDeque::new(), next: None, lives, ahead: 0 };
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
                    self.execution.lock().unload(job.region());
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
        // The rows are written before anybody else may execute.
        let execution = self.execution.clone();
        let mut execution = execution.lock();
        let mut applied = Vec::new();
        for effect in self.execute(&mut execution, by_region) {
            match effect {
                ApplyEffect::Applied(indexes) => applied.extend(indexes),
                ApplyEffect::Answer { client, outcome } => outcomes.push((client, outcome)),
                other => carry_out(&self.store, other, entries),
            }
        }
        drop(execution);
        self.store.unapplied_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let _ = self.store.worker.send(ToWorker::Applied { indexes: applied, outcomes });
        self.store.metrics.apply.record(started.elapsed());
        true
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
        publish_state(&self.store, region, &state);
        self.execution.lock().load(region, state, slots);
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

    fn execute(
        &mut self,
        execution: &mut Execution,
        by_region: BTreeMap<RegionId, Vec<ToApply>>,
    ) -> Vec<ApplyEffect<Asker>> {
        let store = self.store.clone();
        let commands = by_region.iter().filter(|(region, _)| **region != META_REGION);
        let payloads = commands.flat_map(|(_, entries)| entries).map(|apply| apply.entry.payload.clone());
        let payloads = payloads.filter(|payload| !payload.is_empty()).collect();
        let turn = Turn::new(&store.engine, &store.metrics, self.ahead, payloads);
        let mut meta = |payload: &Bytes, txn: &mut Txn<'_>| store.cluster.apply(payload, txn);
        let effects = execution.execute(by_region, &turn, &mut meta, &mut ());
        self.ahead = turn.left();
        effects.unwrap_or_else(|error| self.store.fatal(&error.to_string()))
    }
}

/// Carries out what does not depend on whose thread executed the entries, of which there were so many.
fn carry_out(store: &Store, effect: ApplyEffect<Asker>, entries: usize) {
    match effect {
        ApplyEffect::Write(writes) => {
            store.engine.write(&writes);
            let row_bytes =
                |(row, value): &(Bytes, Option<Bytes>)| row.len() + value.as_ref().map_or(0, Bytes::len);
            let bytes: usize = writes.rows.iter().map(row_bytes).sum();
            store.metrics.rows_bytes_written.inc_by(bytes as u64);
            store.metrics.entries_applied.inc_by(entries as u64);
        }
        ApplyEffect::Describe(descriptors) => store.set_local_regions(&descriptors),
        ApplyEffect::Absorbed { region } => store.engine.forget_counts(region),
        ApplyEffect::State { region, state } => publish_state(store, region, &state),
        ApplyEffect::Applied(_) | ApplyEffect::Answer { .. } => unreachable!("the caller's"),
    }
}

fn publish_state(store: &Store, region: RegionId, state: &RegionState) {
    store.engine.publish_counts(region, state);
    if let Some(shared) = store.regions.get(region) {
        shared.set_applied(state.applied_index, state.last_stamp_ms);
    }
}

/// Rows that are had without waiting for a device or for a long copy.
struct RamRows<'a>(&'a Keyspace);

impl node::Rows for RamRows<'_> {}

impl Reader for RamRows<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        let value = self.0.get_without_io(row).ok_or(StorageError::NotInRam)?;
        match value.as_ref().is_some_and(|value| value.len() > HERE_BYTES_MAX) {
            true => Err(StorageError::NotInRam),
            false => Ok(value),
        }
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut Visit<'_>) -> storage::Result<()> {
        Err(StorageError::NotInRam)
    }
}

#[cfg(test)]
mod tests;
