//! Committed entries become rows: every entry that waits, of all regions, in one RocksDB batch that also
//! says how far each region is applied. Then, and not before, their clients are answered.
//!
//! This has its own thread, so that a stalled device holds up neither votes nor heartbeats. A full one makes
//! the batch wait, and with it everything committed later; reads go on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use replica::Committed;
use resp::Reply;
use storage::{RegionState, StorageError, Txn, WriteSet};
use tokio::sync::mpsc;
use types::{RegionId, SlotRange, META_REGION};

use super::inbox::ToWorker;
use super::proposals::{Outcomes, Waiting};
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

type Job = (RegionId, Vec<ToApply>);

/// The worker's end of the queue.
pub struct ApplyQueue {
    jobs: Sender<Job>,
    bytes: Arc<AtomicUsize>,
}

impl ApplyQueue {
    pub fn send(&self, region: RegionId, entries: Vec<ToApply>) {
        self.bytes.fetch_add(bytes_of(&entries), Ordering::Relaxed);
        // The thread ends only with the store.
        let _ = self.jobs.send((region, entries));
    }

    /// Whether so much waits that proposing more would only make it wait longer.
    pub fn is_behind(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > BEHIND_BYTES
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
    answers: Vec<(Waiting, Vec<Option<Reply>>)>,
}

pub struct Applier {
    store: Arc<Store>,
    states: BTreeMap<RegionId, RegionState>,
    jobs: Receiver<Job>,
    queued_bytes: Arc<AtomicUsize>,
    outcomes: mpsc::UnboundedSender<Outcomes>,
}

impl Applier {
    /// Reads and publishes how far each region is applied.
    pub fn new(store: Arc<Store>, outcomes: mpsc::UnboundedSender<Outcomes>) -> (Applier, ApplyQueue) {
        let mut states = BTreeMap::new();
        for region in store.regions.all().iter().filter(|region| region.is_local()) {
            match store.engine.region_state(region.id()) {
                Ok(state) => {
                    region.set_applied(state.applied_index, state.last_stamp_ms);
                    store.engine.publish_counts(region.id(), &state);
                    states.insert(region.id(), state);
                }
                Err(error) => store.fatal(&format!("region {} cannot be read: {error}", region.id())),
            }
        }
        let (sender, jobs) = crossbeam_channel::unbounded();
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let queue = ApplyQueue { jobs: sender, bytes: queued_bytes.clone() };
        (Applier { store, states, jobs, queued_bytes, outcomes }, queue)
    }

    /// Runs until the worker has gone and everything it handed over is applied.
    pub fn run(mut self) {
        while let Ok(first) = self.jobs.recv() {
            let started = Instant::now();
            let mut bytes = bytes_of(&first.1);
            let mut by_region: BTreeMap<RegionId, Vec<ToApply>> = BTreeMap::new();
            by_region.insert(first.0, first.1);
            while bytes < BATCH_BYTES_MAX {
                let Ok((region, entries)) = self.jobs.try_recv() else { break };
                bytes += bytes_of(&entries);
                by_region.entry(region).or_default().extend(entries);
            }
            let executed = self.execute(by_region);
            if !self.write(&executed.writes) {
                return;
            }
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.publish(executed);
            self.store.metrics.apply.record(started.elapsed());
        }
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
        for (region, entries) in by_region {
            if let Err(error) = self.execute_region(region, entries, &mut executed) {
                self.store.fatal(&format!("region {region} cannot apply: {error}"));
            }
        }
        executed
    }

    fn execute_region(
        &mut self,
        region: RegionId,
        entries: Vec<ToApply>,
        executed: &mut Executed,
    ) -> storage::Result<()> {
        let Some(state) = self.states.get(&region) else {
            return Err(StorageError::Corrupt(format!(
                "an entry of region {region}, which has no peer here"
            )));
        };
        let shared = self.store.regions.get(region);
        let slots = shared.map_or(SlotRange::ALL, |shared| shared.slots_or_all());
        let mut txn = Txn::new(self.store.engine.flash(), region, state.clone());
        for ToApply { entry, waiting } in entries {
            assert_eq!(
                entry.index,
                txn.state().applied_index + 1,
                "entries of region {region} apply in order"
            );
            if !entry.payload.is_empty() {
                let replies = match region {
                    META_REGION => self.store.cluster.apply(&entry.payload, &mut txn)?,
                    _ => command::entry::apply(&entry.payload, &mut txn, slots)?,
                };
                if let Some(waiting) = waiting {
                    executed.answers.push((waiting, replies));
                }
            }
            let state = txn.state_mut();
            state.applied_index = entry.index;
            state.applied_term = entry.term;
            self.store.metrics.entries_applied.inc();
        }
        let (writes, state) = txn.finish();
        executed.writes.ranges_deleted.extend(writes.ranges_deleted);
        executed.writes.rows.extend(writes.rows);
        self.states.insert(region, state.clone());
        executed.states.push((region, state));
        Ok(())
    }

    fn publish(&self, executed: Executed) {
        let row_bytes = |(row, value): &(bytes::Bytes, Option<bytes::Bytes>)| {
            row.len() + value.as_ref().map_or(0, |value| value.len())
        };
        let bytes: usize = executed.writes.rows.iter().map(row_bytes).sum();
        self.store.metrics.rows_bytes_written.inc_by(bytes as u64);
        let mut indexes = Vec::with_capacity(executed.states.len());
        for (region, state) in executed.states {
            self.store.engine.publish_counts(region, &state);
            if let Some(shared) = self.store.regions.get(region) {
                shared.set_applied(state.applied_index, state.last_stamp_ms);
            }
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
