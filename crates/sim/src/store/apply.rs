//! The apply thread: everything that waits, of all regions, becomes one write set with each region's applied
//! index in it; then how far it came is published, and clients are answered last.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use command::entry::Items;
use replica::Input;
use resp::Reply;
use storage::rows::{decode_key_row, region_state_row, table_range, Part, TABLE_KEYS};
use storage::{DbCounts, Meta, Reader, RegionState, Txn, WriteSet};
use types::{RegionDescriptor, RegionId, SlotRange, StoreId, FIRST_INDEX, FIRST_TERM, META_REGION};

use super::recovery::{descriptor_row, own_rows};
use super::{rows_of, Job, ToApply, Waiting};
use crate::client::Outcome;
use crate::clock::MILLISECOND;
use crate::observation::Observation;
use crate::rng::fold;
use crate::world::{Work, World};

/// Entries that may still be proposed under the old voters after a change was executed and before the worker
/// is told.
const PROPOSED_MEANWHILE: u64 = 8;

/// An entry's execution, to be shown to the invariants.
struct Executed {
    region: RegionId,
    index: u64,
    term: u64,
    entry: u64,
    now_ms: u64,
    replies: Vec<Option<Reply>>,
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
        while let Some(Job::Entries { .. }) = process.to_apply.front() {
            if let Some(Job::Entries { region, entries }) = process.to_apply.pop_front() {
                by_region.entry(region).or_default().extend(entries);
            }
        }
        if by_region.is_empty() {
            if let Some(job) = process.to_apply.pop_front() {
                self.do_job(id, job);
            }
            return self.wake_apply(id);
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
        self.wake_apply(id);
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
        let mut seen = Vec::new();
        let store = self.stores.get_mut(&id).expect("a store of this cluster");
        let Some(process) = &mut store.process else { return Ok(()) };
        let state = process.states.get(&region).ok_or("it has no peer here")?;
        let mut slots = process.regions[&region].descriptor.slots.unwrap_or(SlotRange::ALL);
        let mut txn = Txn::new(&store.engine, region, state.clone());
        for (entry, waiting) in entries {
            let expected = txn.state().applied_index + 1;
            if entry.index != expected {
                return Err(format!("entry {} comes where {expected} should", entry.index));
            }
            if !entry.payload.is_empty() {
                if region == META_REGION {
                    let reply = cluster::apply_entry(&entry.payload, &mut process.meta, &mut txn);
                    // What the state machine refuses, it refuses everywhere.
                    let _ = reply.map_err(|error| error.to_string())?;
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
            if let Some(changed) = entry.change {
                let old = process.regions[&region].descriptor.clone();
                let expect = entry.token.and_then(|token| process.expected.remove(&token));
                let last = process.worker.status(region, 0).map_or(0, |status| status.last);
                let before = process.voters_before.entry(region).or_default();
                before.push((last + PROPOSED_MEANWHILE, old.voters().collect()));
                slots = changed.region.slots.unwrap_or(SlotRange::ALL);
                if let Some(child) = &changed.split_off {
                    let is_here = txn.get(&region_state_row(child.id)).ok().flatten().is_some();
                    let state = split_state(&mut txn, child)?;
                    if !is_here {
                        own_rows(child, &state).into_iter().for_each(|(row, value)| {
                            txn.put(row, value.expect("both rows are there"));
                        });
                        process.set_local(child, &state);
                        process.states.insert(child.id, state);
                    }
                    self.tally.splits += 1;
                }
                let state = txn.state().clone();
                txn.put(descriptor_row(region), changed.region.encode());
                process.set_local(&changed.region, &state);
                process.ledger.learn_descriptor(&changed.region);
                self.tally.changes += 1;
                self.tally.joints += u64::from(changed.region.is_joint());
                seen.push((changed, old.epoch, expect));
            }
        }
        let (more, state) = txn.finish();
        writes.ranges_deleted.extend(more.ranges_deleted);
        writes.rows.extend(more.rows);
        process.states.insert(region, state);
        for (changed, before, expect) in &seen {
            if let (&before, &Some(expect)) = (before, expect) {
                self.observe(&Observation::Changed { region, before, expect });
            }
            let text = format!("store {id}: region {region} is {:?}", changed.region);
            self.say(&text);
            let split_off = changed.split_off.as_ref();
            self.observe(&Observation::Described { store: id, region: &changed.region, split_off });
        }
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
            let mut voters: Vec<Vec<StoreId>> = vec![process.regions[&region].descriptor.voters().collect()];
            let before = process.voters_before.get(&region).into_iter().flatten();
            voters.extend(before.filter(|(through, _)| index <= *through).map(|(_, voters)| voters.clone()));
            let seen = Observation::Acknowledged { store: id, region, index, term, voters: &voters };
            self.observe(&seen);
            for (client, reply) in waiting.clients.into_iter().zip(replies) {
                let Some((client, op)) = client else { continue };
                let outcome = match reply {
                    Some(reply) => Outcome::Done { reply, read_ms: None },
                    // The slot was given away before: nothing was executed.
                    None => Outcome::Refused { leader: None },
                };
                self.reply(client, op, outcome);
            }
        }
    }

    /// Shows the invariants what a region's rows are here.
    pub(crate) fn show_rows(&mut self, id: StoreId, region: RegionId) {
        let store = &self.stores[&id];
        let Some(process) = &store.process else { return };
        let Some(state) = process.states.get(&region) else { return };
        let (from, to) = rows_of(&process.regions[&region].descriptor);
        let own = [region_state_row(region), descriptor_row(region)]
            .map(|row| store.engine.get(&row).ok().flatten().unwrap_or_default());
        let mut digest = fold(fold(region, &own[0]), &own[1]);
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

/// The state with which a region begins that is split off, and which its parent's counts lose.
fn split_state(txn: &mut Txn<'_>, child: &RegionDescriptor) -> Result<RegionState, String> {
    let slots = child.slots.ok_or("a region without slots is not split")?;
    let mut counts: BTreeMap<u16, DbCounts> = BTreeMap::new();
    let mut bytes = 0;
    let mut failure = None;
    for slot in slots.first..=slots.last {
        let (from, to) = table_range(slot, TABLE_KEYS);
        let scanned = txn.scan(&from, &to, &mut |row, value| {
            match decode_key_row(row) {
                Ok((key, Part::Meta)) => {
                    let expires = Meta::decode(&Bytes::copy_from_slice(value))
                        .is_ok_and(|meta| meta.expire_at_ms.is_some());
                    let counts = counts.entry(key.db).or_default();
                    counts.keys += 1;
                    counts.with_expiry += u64::from(expires);
                    bytes += key.key.len() + storage::meta::string_len(value).unwrap_or(0);
                }
                Ok((_, Part::Element { subkey, .. })) => bytes += subkey.len() + value.len(),
                Err(error) => failure = Some(error.to_string()),
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(|error| error.to_string())?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    let parent = txn.state_mut();
    let mut state = parent.clone();
    (state.applied_index, state.applied_term) = (FIRST_INDEX, FIRST_TERM);
    state.clear_counts();
    state.adjust_bytes(bytes, 0);
    if parent.bytes() < bytes as u64 {
        return Err("a region counts fewer bytes than it has".into());
    }
    parent.adjust_bytes(0, bytes);
    for (db, counts) in counts {
        state.set_counts(db, counts);
        let left = parent.counts(db);
        let keys = left.keys.checked_sub(counts.keys).ok_or("a region counts fewer keys than it has")?;
        let with_expiry = left.with_expiry.checked_sub(counts.with_expiry).ok_or("times are not counted")?;
        parent.set_counts(db, DbCounts { keys, with_expiry });
    }
    Ok(state)
}
