//! Committed entries become rows: every entry that waits, of all regions, in one RocksDB batch that also
//! says how far each region is applied. Then, and not before, their clients are answered.
//!
//! This has its own thread, so that a stalled device holds up neither votes nor heartbeats. A full one makes
//! the batch wait, and with it everything committed later; reads go on.
//!
//! Where rows have to be read from a slow device first, those of several commands are read at once (`turn`).
//!
//! A split makes its region's rows here, in the batch of its entry; a merge's rows change hands in it. Snapshots and the end of peers pass
//! through here, in their order among the entries, on their way to the thread that sees to them (`lives`).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use replica::Committed;
use resp::Reply;
use storage::rows::{region_descriptor_row, region_state_row};
use storage::{RegionState, StorageError, Txn, WriteSet};
use tokio::sync::mpsc;
use types::{Changed, RegionDescriptor, RegionId, SlotRange, META_REGION};

use super::inbox::ToWorker;
use super::lives::LifeJob;
use super::proposals::{Outcomes, Waiting};
use super::turn::Turn;
use crate::store::Store;

/// Committed bytes that wait to be applied beyond which nothing more is proposed here.
const BEHIND_BYTES: usize = 32 << 20;
/// Payload bytes of one RocksDB batch; a single entry may be larger.
const BATCH_BYTES_MAX: usize = 8 << 20;
const NO_SPACE_RETRY: Duration = Duration::from_millis(200);

/// A committed entry, and who waits for it on this store.
pub struct ToApply {
    pub entry: Committed,
    pub waiting: Option<Waiting>,
}

/// What the apply thread is told, in order.
pub enum Job {
    Entries(RegionId, Vec<ToApply>),
    /// Nothing of this region comes until its rows were replaced, or ever again.
    Life(LifeJob),
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

    pub fn send_life(&self, job: LifeJob) {
        let _ = self.jobs.send(Job::Life(job));
    }

    /// Whether so much waits that proposing more would only make it wait longer.
    pub fn is_behind(&self) -> bool {
        self.store.unapplied_bytes.load(Ordering::Relaxed) > BEHIND_BYTES
    }
}

fn bytes_of(entries: &[ToApply]) -> usize {
    entries.iter().map(|apply| apply.entry.payload.len()).sum()
}

/// A batch that is executed but not yet written.
#[derive(Default)]
struct Executed {
    writes: WriteSet,
    states: Vec<(RegionId, RegionState)>,
    /// New ones of regions that have a peer here, in the order of their making.
    descriptors: Vec<RegionDescriptor>,
    /// Regions that merged into others.
    absorbed: Vec<RegionId>,
    answers: Vec<(Waiting, Vec<Option<Reply>>)>,
}

pub struct Applier {
    store: Arc<Store>,
    states: BTreeMap<RegionId, RegionState>,
    /// The slots of each region as of its state.
    slots: BTreeMap<RegionId, SlotRange>,
    jobs: Receiver<Job>,
    lives: Sender<LifeJob>,
    outcomes: mpsc::UnboundedSender<Outcomes>,
    /// Turns from here on in which rows are read ahead.
    ahead: u32,
}

impl Applier {
    /// Reads and publishes how far each region is applied. The sender is for whoever replaces rows.
    pub fn new(
        store: Arc<Store>,
        outcomes: mpsc::UnboundedSender<Outcomes>,
        lives: Sender<LifeJob>,
    ) -> (Applier, ApplyQueue, Sender<Job>) {
        let (mut states, mut slots) = (BTreeMap::new(), BTreeMap::new());
        for region in store.regions.all().iter().filter(|region| region.is_local()) {
            match store.engine.region_state(region.id()) {
                Ok(state) => {
                    region.set_applied(state.applied_index, state.last_stamp_ms);
                    store.engine.publish_counts(region.id(), &state);
                    states.insert(region.id(), state);
                    slots.insert(region.id(), region.slots_or_all());
                }
                Err(error) => store.fatal(&format!("region {} cannot be read: {error}", region.id())),
            }
        }
        let (sender, jobs) = crossbeam_channel::unbounded();
        let queue = ApplyQueue { jobs: sender.clone(), store: store.clone() };
        (Applier { store, states, slots, jobs, lives, outcomes, ahead: 0 }, queue, sender)
    }

    /// Runs until the worker has gone and everything it handed over is applied.
    pub fn run(mut self) {
        let mut next = self.jobs.recv().ok();
        while let Some(job) = next.take() {
            match job {
                Job::Entries(region, entries) => {
                    let mut bytes = bytes_of(&entries);
                    let mut by_region = BTreeMap::from([(region, entries)]);
                    while bytes < BATCH_BYTES_MAX {
                        match self.jobs.try_recv() {
                            Ok(Job::Entries(region, entries)) => {
                                bytes += bytes_of(&entries);
                                by_region.entry(region).or_default().extend(entries);
                            }
                            other => {
                                next = other.ok();
                                break;
                            }
                        }
                    }
                    if !self.apply(by_region, bytes) {
                        return;
                    }
                }
                Job::Life(job) => {
                    self.states.remove(&job.region());
                    self.slots.remove(&job.region());
                    let _ = self.lives.send(job);
                }
                Job::Reload(descriptor) => self.reload(descriptor),
                Job::Stop => return,
            }
            if next.is_none() {
                next = self.jobs.recv().ok();
            }
        }
    }

    /// False: the store stops.
    fn apply(&mut self, by_region: BTreeMap<RegionId, Vec<ToApply>>, bytes: usize) -> bool {
        let started = Instant::now();
        let executed = self.execute(by_region);
        if !self.write(&executed.writes) {
            return false;
        }
        self.store.unapplied_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.publish(executed);
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
            match cluster::MetaState::load(self.store.engine.flash()) {
                Ok(meta) => self.store.cluster.replace(meta),
                Err(error) => self.store.fatal(&format!("the cluster's state cannot be read: {error}")),
            }
        }
        if let Some(slots) = descriptor.slots {
            self.store.engine.rows_came(slots);
        }
        self.slots.insert(region, descriptor.slots.unwrap_or(SlotRange::ALL));
        self.store.set_local_regions(&[descriptor]);
        self.publish_state(region, &state);
        self.states.insert(region, state);
    }

    /// Writes the batch, however long there is no room for it. False: the store stops first, and the log
    /// has it all.
    fn write(&self, writes: &WriteSet) -> bool {
        let mut told = false;
        loop {
            match self.store.engine.write(writes) {
                Ok(()) => {
                    if told {
                        tracing::info!("there is room for rows again");
                    }
                    return true;
                }
                Err(StorageError::NoSpace(reason)) => {
                    self.store.disk.set_full();
                    if !told {
                        tracing::error!(%reason, "no space for rows: applying waits for room");
                        told = true;
                    }
                    if self.store.stopping.load(Ordering::Relaxed) {
                        return false;
                    }
                    std::thread::sleep(NO_SPACE_RETRY);
                }
                Err(error) => self.store.fatal(&format!("rows cannot be written: {error}")),
            }
        }
    }

    fn execute(&mut self, by_region: BTreeMap<RegionId, Vec<ToApply>>) -> Executed {
        let mut executed = Executed::default();
        let store = self.store.clone();
        let commands = by_region.iter().filter(|(region, _)| **region != META_REGION);
        let payloads = commands.flat_map(|(_, entries)| entries).map(|apply| apply.entry.payload.clone());
        let payloads = payloads.filter(|payload| !payload.is_empty()).collect();
        let turn = Turn::new(&store.engine, &store.metrics, self.ahead, payloads);
        for (region, entries) in by_region {
            if let Err(error) = self.execute_region(region, entries, &turn, &mut executed) {
                self.store.fatal(&format!("region {region} cannot apply: {error}"));
            }
        }
        self.ahead = turn.left();
        executed
    }

    fn execute_region(
        &mut self,
        region: RegionId,
        entries: Vec<ToApply>,
        turn: &Turn<'_>,
        executed: &mut Executed,
    ) -> storage::Result<()> {
        let Some(state) = self.states.get(&region) else {
            return Err(StorageError::Corrupt(format!(
                "an entry of region {region}, which has no peer here"
            )));
        };
        let mut slots = self.slots.get(&region).copied().unwrap_or(SlotRange::ALL);
        let mut born = Vec::new();
        let mut txn = Txn::new(turn, region, state.clone());
        for ToApply { entry, waiting } in entries {
            assert_eq!(
                entry.index,
                txn.state().applied_index + 1,
                "entries of region {region} apply in order"
            );
            if !entry.payload.is_empty() {
                let replies = match region {
                    META_REGION => self.store.cluster.apply(&entry.payload, &mut txn)?,
                    _ => {
                        turn.begin_payload();
                        let coming = &mut |items: &_| turn.coming(items);
                        command::entry::apply_told(&entry.payload, &mut txn, slots, coming)?
                    }
                };
                if let Some(waiting) = waiting {
                    executed.answers.push((waiting, replies));
                }
            }
            if let Some(changed) = &entry.change {
                if let Some(source) = &changed.absorbed {
                    // The worker has let nothing of it through that is not applied yet.
                    let state = self.states.remove(&source.id).ok_or_else(|| {
                        StorageError::Corrupt(format!(
                            "region {} is to be absorbed and is not here",
                            source.id
                        ))
                    })?;
                    absorb(&mut txn, source.id, &state);
                    self.slots.remove(&source.id);
                    executed.absorbed.push(source.id);
                }
                if let Some((child, state)) = change(&mut txn, changed)? {
                    born.push((child.id, state));
                    self.slots.insert(child.id, child.slots.unwrap_or(SlotRange::ALL));
                }
                slots = changed.region.slots.unwrap_or(SlotRange::ALL);
                executed.descriptors.push(changed.region.clone());
                executed.descriptors.extend(changed.split_off.clone());
            }
            let state = txn.state_mut();
            state.applied_index = entry.index;
            state.applied_term = entry.term;
            self.store.metrics.entries_applied.inc();
        }
        let (writes, state) = txn.finish();
        executed.writes.ranges_deleted.extend(writes.ranges_deleted);
        executed.writes.rows.extend(writes.rows);
        self.slots.insert(region, slots);
        for (region, state) in std::iter::once((region, state)).chain(born) {
            self.states.insert(region, state.clone());
            executed.states.push((region, state));
        }
        Ok(())
    }

    fn publish_state(&self, region: RegionId, state: &RegionState) {
        self.store.engine.publish_counts(region, state);
        if let Some(shared) = self.store.regions.get(region) {
            shared.set_applied(state.applied_index, state.last_stamp_ms);
        }
    }

    fn publish(&self, executed: Executed) {
        let row_bytes = |(row, value): &(bytes::Bytes, Option<bytes::Bytes>)| {
            row.len() + value.as_ref().map_or(0, |value| value.len())
        };
        let bytes: usize = executed.writes.rows.iter().map(row_bytes).sum();
        self.store.metrics.rows_bytes_written.inc_by(bytes as u64);
        let this = self.store.id;
        let here: Vec<RegionDescriptor> =
            executed.descriptors.into_iter().filter(|descriptor| descriptor.has_peer_on(this)).collect();
        if !here.is_empty() {
            // Before the worker hears of it: until then no lease of the region stands.
            self.store.set_local_regions(&here);
        }
        for region in executed.absorbed {
            self.store.engine.forget_counts(region);
        }
        let mut indexes = Vec::with_capacity(executed.states.len());
        for (region, state) in executed.states {
            self.publish_state(region, &state);
            indexes.push((region, state.applied_index));
        }
        let _ = self.store.worker.send(ToWorker::Applied { indexes });
        let mut outcomes = Outcomes::new();
        for (waiting, replies) in executed.answers {
            waiting.answer(replies, &mut outcomes);
        }
        if !outcomes.is_empty() {
            let _ = self.outcomes.send(outcomes);
        }
    }
}

/// Takes over a region's keys. Their rows stay where they are; those that speak of the region go.
fn absorb(txn: &mut Txn<'_>, source: RegionId, state: &RegionState) {
    txn.state_mut().absorb(state);
    txn.delete(region_state_row(source));
    txn.delete(region_descriptor_row(source));
}

/// Writes what a change makes of the region, and the rows of the region that it splits off.
fn change(txn: &mut Txn<'_>, changed: &Changed) -> storage::Result<Option<(RegionDescriptor, RegionState)>> {
    txn.put(region_descriptor_row(changed.region.id), changed.region.encode());
    let Some(child) = &changed.split_off else { return Ok(None) };
    let counts = storage::count_keys(txn, child.slots.unwrap_or(SlotRange::ALL))?;
    let state = txn.state_mut().split_off(&counts);
    txn.put(region_state_row(child.id), state.encode());
    txn.put(region_descriptor_row(child.id), child.encode());
    Ok(Some((child.clone(), state)))
}
