//! The apply thread: everything that waits, of all regions, becomes one write set with each region's applied
//! index in it; then how far it came is published, and clients are answered last.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use command::entry::Items;
use replica::Input;
use resp::Reply;
use storage::rows::{region_state_row, slots_range, SPACE_META_REGION};
use storage::{Reader, Txn, WriteSet};
use types::{RegionId, SlotRange, StoreId, META_REGION};

use super::{ToApply, Waiting};
use crate::client::Outcome;
use crate::clock::MILLISECOND;
use crate::observation::Observation;
use crate::rng::fold;
use crate::world::{Work, World};

/// An entry's execution, to be shown to the invariants.
struct Executed {
    region: RegionId,
    index: u64,
    term: u64,
    entry: u64,
    now_ms: u64,
    replies: Vec<Reply>,
    waiting: Option<Waiting>,
}

impl World {
    pub(super) fn wake_apply(&mut self, id: StoreId) {
        let slow = if self.rng.chance(3) { 100 } else { 1 };
        let delay = self.rng.below(2 * slow * MILLISECOND);
        let Some(process) = self.process(id) else { return };
        if !process.to_apply.is_empty() && !std::mem::replace(&mut process.has_apply, true) {
            self.schedule_work(id, delay, Work::Apply);
        }
    }

    pub(super) fn apply(&mut self, id: StoreId) {
        let Some(process) = self.process(id) else { return };
        process.has_apply = false;
        let mut by_region: BTreeMap<RegionId, Vec<ToApply>> = BTreeMap::new();
        for (region, entries) in process.to_apply.drain(..) {
            by_region.entry(region).or_default().extend(entries);
        }
        let mut writes = WriteSet::default();
        let mut executed = Vec::new();
        let mut touched = Vec::new();
        for (region, entries) in by_region {
            touched.push(region);
            if let Err(what) = self.execute(id, region, entries, &mut writes, &mut executed) {
                return self.violate("execution", format!("store {id}, region {region}: {what}"));
            }
        }
        let store = self.store_mut(id);
        store.engine.write(writes);
        for &region in &touched {
            self.show_rows(id, region);
        }
        for done in &executed {
            self.tally.entries_applied += 1;
            let &Executed { region, index, entry, now_ms, ref replies, .. } = done;
            self.observe(&Observation::Executed { store: id, region, index, entry, now_ms, replies });
        }
        self.publish(id, &touched);
        self.answer(id, executed);
        // Memtables that are full are flushed without being asked for.
        if self.rng.chance(4) {
            let count = self.rng.below(self.stores[&id].engine.unflushed() as u64 + 1) as usize;
            self.store_mut(id).engine.flush_oldest(count);
        }
    }

    fn execute(
        &mut self,
        id: StoreId,
        region: RegionId,
        entries: Vec<ToApply>,
        writes: &mut WriteSet,
        executed: &mut Vec<Executed>,
    ) -> Result<(), String> {
        let store = self.stores.get_mut(&id).expect("a store of this cluster");
        let Some(process) = &mut store.process else { return Ok(()) };
        let state = process.states.get(&region).ok_or("it has no peer here")?;
        let slots = process.regions[&region].descriptor.slots.unwrap_or(SlotRange::ALL);
        let mut txn = Txn::new(&store.engine, region, state.clone());
        for (entry, waiting) in entries {
            let expected = txn.state().applied_index + 1;
            if entry.index != expected {
                return Err(format!("entry {} comes where {expected} should", entry.index));
            }
            if !entry.payload.is_empty() {
                if region == META_REGION {
                    let reply = cluster::apply_entry(&entry.payload, &mut process.meta, &mut txn);
                    reply.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
                } else {
                    let items = Items::decode(entry.payload.clone()).map_err(|error| error.to_string())?;
                    let replies = command::entry::apply(&entry.payload, &mut txn, slots)
                        .map_err(|error| error.to_string())?;
                    executed.push(Executed {
                        region,
                        index: entry.index,
                        term: entry.term,
                        entry: items.seed,
                        now_ms: txn.state().last_stamp_ms,
                        replies,
                        waiting,
                    });
                }
            }
            let state = txn.state_mut();
            state.applied_index = entry.index;
            state.applied_term = entry.term;
        }
        let (more, state) = txn.finish();
        writes.ranges_deleted.extend(more.ranges_deleted);
        writes.rows.extend(more.rows);
        process.states.insert(region, state);
        Ok(())
    }

    fn publish(&mut self, id: StoreId, touched: &[RegionId]) {
        for &region in touched {
            let Some(process) = self.process(id) else { return };
            let state = &process.states[&region];
            let (index, stamp) = (state.applied_index, state.last_stamp_ms);
            if let Some(shared) = process.regions.get_mut(&region) {
                (shared.applied, shared.last_stamp_ms) = (index, stamp);
            }
            self.input(id, Input::Applied { region, index });
        }
    }

    fn answer(&mut self, id: StoreId, executed: Vec<Executed>) {
        for Executed { region, index, term, replies, waiting, .. } in executed {
            let Some(waiting) = waiting else { continue };
            let Some(process) = self.process(id) else { return };
            let voters: Vec<StoreId> = process.regions[&region].descriptor.voters().collect();
            let seen = Observation::Acknowledged { store: id, region, index, term, voters: &voters };
            self.observe(&seen);
            for (client, reply) in waiting.clients.into_iter().zip(replies) {
                if let Some((client, op)) = client {
                    self.reply(client, op, Outcome::Done { reply, read_ms: None });
                }
            }
        }
    }

    /// Shows the invariants what a region's rows are here.
    pub(crate) fn show_rows(&mut self, id: StoreId, region: RegionId) {
        let store = &self.stores[&id];
        let Some(process) = &store.process else { return };
        let Some(state) = process.states.get(&region) else { return };
        let (from, to) = match process.regions[&region].descriptor.slots {
            Some(slots) => slots_range(slots),
            None => (Bytes::from_static(&[SPACE_META_REGION]), Bytes::from_static(&[SPACE_META_REGION + 1])),
        };
        let own = store.engine.get(&region_state_row(region)).ok().flatten().unwrap_or_default();
        let mut digest = fold(region, &own);
        let scanned = store.engine.scan(&from, &to, &mut |row, value| {
            digest = fold(fold(digest, row), value);
            ControlFlow::Continue(())
        });
        let index = state.applied_index;
        if scanned.is_ok() {
            self.observe(&Observation::Rows { store: id, region, index, digest });
        }
    }
}
