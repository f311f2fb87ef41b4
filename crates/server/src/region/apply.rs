//! Committed entries become rows: every entry of a turn, of all regions, in one RocksDB batch that also
//! says how far each region is applied.
//!
//! A full device makes the batch wait, and with it everything committed later; the worker goes on, so
//! that leadership and reads do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use replica::Committed;
use resp::Reply;
use storage::{RegionState, StorageError, Txn, WriteSet};
use types::{LogIndex, RegionId, SlotRange, META_REGION};

use crate::store::Store;

/// What one successful write of rows completed.
#[derive(Default)]
pub struct Applied {
    pub indexes: Vec<(RegionId, LogIndex)>,
    /// Replies of the entries that were proposed here, by token.
    pub answers: Vec<(u64, Vec<Reply>)>,
}

/// A batch that is executed but not yet written.
struct Executed {
    writes: WriteSet,
    states: Vec<(RegionId, RegionState)>,
    answers: Vec<(u64, Vec<Reply>)>,
}

pub struct Applier {
    store: Arc<Store>,
    states: BTreeMap<RegionId, RegionState>,
    waiting: VecDeque<(RegionId, Vec<Committed>)>,
    stalled: Option<Executed>,
    said_full: bool,
}

impl Applier {
    pub fn new(store: Arc<Store>) -> Applier {
        let mut states = BTreeMap::new();
        for region in store.regions.values().filter(|region| region.local) {
            match store.engine.region_state(region.id()) {
                Ok(state) => {
                    region.set_applied(state.applied_index, state.last_stamp_ms);
                    store.engine.publish_counts(region.id(), &state);
                    states.insert(region.id(), state);
                }
                Err(error) => store.fatal(&format!("region {} cannot be read: {error}", region.id())),
            }
        }
        Applier { store, states, waiting: VecDeque::new(), stalled: None, said_full: false }
    }

    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    pub fn queue(&mut self, region: RegionId, entries: Vec<Committed>) {
        self.waiting.push_back((region, entries));
    }

    /// Executes and writes everything that waits; nothing when the device is still full.
    pub fn run(&mut self) -> Applied {
        let executed = match self.stalled.take() {
            Some(stalled) => stalled,
            None if self.waiting.is_empty() => return Applied::default(),
            None => self.execute(),
        };
        match self.store.engine.write(&executed.writes) {
            Ok(()) => {
                if std::mem::take(&mut self.said_full) {
                    tracing::info!("there is room for rows again");
                }
                self.publish(executed)
            }
            Err(StorageError::NoSpace(reason)) => {
                self.store.disk.set_full();
                if !std::mem::replace(&mut self.said_full, true) {
                    tracing::error!(%reason, "no space for rows: applying waits for room");
                }
                self.stalled = Some(executed);
                Applied::default()
            }
            Err(error) => self.store.fatal(&format!("rows cannot be written: {error}")),
        }
    }

    fn execute(&mut self) -> Executed {
        let mut by_region: BTreeMap<RegionId, Vec<Committed>> = BTreeMap::new();
        for (region, entries) in self.waiting.drain(..) {
            by_region.entry(region).or_default().extend(entries);
        }
        let mut executed = Executed { writes: WriteSet::default(), states: Vec::new(), answers: Vec::new() };
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
        entries: Vec<Committed>,
        executed: &mut Executed,
    ) -> storage::Result<()> {
        let Some(state) = self.states.get(&region) else {
            return Err(StorageError::Corrupt(format!(
                "an entry of region {region}, which has no peer here"
            )));
        };
        let slots = self.store.regions[&region].descriptor.slots.unwrap_or(SlotRange::ALL);
        let mut txn = Txn::new(self.store.engine.flash(), region, state.clone());
        for entry in entries {
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
                if let Some(token) = entry.token {
                    executed.answers.push((token, replies));
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

    fn publish(&self, executed: Executed) -> Applied {
        let bytes: usize = executed
            .writes
            .rows
            .iter()
            .map(|(row, value)| row.len() + value.as_ref().map_or(0, |v| v.len()))
            .sum();
        self.store.metrics.rows_bytes_written.inc_by(bytes as u64);
        let mut applied = Applied { indexes: Vec::new(), answers: executed.answers };
        for (region, state) in executed.states {
            self.store.engine.publish_counts(region, &state);
            self.store.regions[&region].set_applied(state.applied_index, state.last_stamp_ms);
            applied.indexes.push((region, state.applied_index));
        }
        applied
    }
}
