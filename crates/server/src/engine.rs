//! The rows of this store: reads for clients, one write for each turn of the worker.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use command::{Exec, Limits, Mode, Outcome};
use parking_lot::Mutex;
use rocks::FlashKeyspace;
use storage::{rows, Reader, RegionState, StorageError, Txn, Visit, WriteSet};
use types::{RegionDescriptor, RegionId, Slot, SlotRange, UnixMillis, META_REGION};

use crate::readers::Readers;
use crate::region::shared::RegionShared;
use crate::slot_times::SlotTimes;
use node::Item;

pub struct Engine {
    flash: Arc<FlashKeyspace>,
    readers: Readers,
    upkeep: Upkeep,
    /// Of each region that has a peer here, as applied.
    counts: Mutex<BTreeMap<RegionId, Counts>>,
}

/// When a look for work is worth its reads.
pub struct Upkeep {
    /// When keys of a slot are due.
    pub expiry: SlotTimes,
    /// At once, where elements of a collection may be left that is gone.
    pub sweep: SlotTimes,
}

struct Counts {
    /// By database: keys, and those with a time.
    keys: Vec<(u16, (u64, u64))>,
    bytes: u64,
}

impl Engine {
    pub fn new(flash: FlashKeyspace) -> Engine {
        let flash = Arc::new(flash);
        Engine::with(Readers::new(flash.clone()), flash)
    }

    fn with(readers: Readers, flash: Arc<FlashKeyspace>) -> Engine {
        let upkeep = Upkeep { expiry: SlotTimes::unknown(), sweep: SlotTimes::unknown() };
        Engine { flash, readers, upkeep, counts: Mutex::new(BTreeMap::new()) }
    }

    /// An engine that takes every read for a slow one.
    #[cfg(test)]
    pub fn on_a_slow_device(flash: FlashKeyspace) -> Engine {
        let flash = Arc::new(flash);
        Engine::with(Readers::with(flash.clone(), std::time::Duration::ZERO), flash)
    }

    pub fn flash(&self) -> &FlashKeyspace {
        &self.flash
    }

    /// What the rows hold of a region, as of what is applied: its state and its descriptor. `None`: nothing yet.
    pub fn region_rows(
        &self,
        region: RegionId,
    ) -> storage::Result<Option<(RegionState, Option<RegionDescriptor>)>> {
        let row = rows::region_state_row(region);
        let Some(state) = self.flash.get(&row)? else { return Ok(None) };
        let decode = |row: Bytes| {
            RegionDescriptor::decode(&row).map_err(|error| StorageError::Corrupt(error.to_string()))
        };
        let descriptor = self.flash.get(&rows::region_descriptor_row(region))?.map(decode).transpose()?;
        Ok(Some((RegionState::decode(&state)?, descriptor)))
    }

    /// What the rows say of a region: how far it is applied, its time, its counts.
    pub fn region_state(&self, region: RegionId) -> storage::Result<RegionState> {
        storage::load_state(self.flash(), region)
    }

    /// Executes a read of a few rows that are all in RAM. `None`: it must go to the rows.
    pub fn read_from_ram(&self, region: &RegionShared, item: &Item, now: UnixMillis) -> Option<Outcome> {
        if !item.is_bounded_read() {
            return None;
        }
        let rows = FewRows::new(&self.flash, Source::Ram);
        let outcome = run(&rows, region, item, now).ok()?;
        rows.are_of_one_moment().then_some(outcome)
    }

    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Executes a read over rows of one moment.
    pub fn read(&self, region: &RegionShared, item: &Item, now: UnixMillis) -> storage::Result<Outcome> {
        if item.is_bounded_read() {
            // This way the rows come into RAM, which a view does not look into.
            let rows = FewRows::new(&self.flash, Source::RamOrFlash);
            let outcome = run(&rows, region, item, now)?;
            if rows.are_of_one_moment() {
                return Ok(outcome);
            }
        }
        run(&self.flash.view(), region, item, now)
    }

    pub fn write(&self, writes: &WriteSet) -> storage::Result<()> {
        self.flash.write(writes)?;
        for (row, value) in &writes.rows {
            match rows::upkeep_of(row).filter(|_| value.is_some()) {
                Some((slot, rows::Upkeep::Expire { at_ms })) => self.upkeep.expiry.note(slot, at_ms),
                Some((slot, rows::Upkeep::Sweep)) => self.upkeep.sweep.note(slot, 0),
                None => {}
            }
        }
        Ok(())
    }

    pub fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }

    /// Rows have come into these slots that were not [written](Self::write) here.
    pub fn rows_came(&self, slots: SlotRange) {
        self.upkeep.expiry.forget(slots);
        self.upkeep.sweep.forget(slots);
    }

    pub fn publish_counts(&self, region: RegionId, state: &RegionState) {
        let keys = state.databases().map(|(db, of_db)| (db, (of_db.keys, of_db.with_expiry))).collect();
        self.counts.lock().insert(region, Counts { keys, bytes: state.bytes() });
    }

    /// The region has no peer here any more.
    pub fn forget_counts(&self, region: RegionId) {
        self.counts.lock().remove(&region);
    }

    /// Keys and keys with expiry by database, over the regions that have a peer here.
    pub fn key_counts(&self) -> BTreeMap<u16, (u64, u64)> {
        let mut sums = BTreeMap::new();
        for (_, counts) in self.counts.lock().iter().filter(|(region, _)| **region != META_REGION) {
            for (db, (keys, with_expiry)) in &counts.keys {
                let sum: &mut (u64, u64) = sums.entry(*db).or_default();
                *sum = (sum.0 + keys, sum.1 + with_expiry);
            }
        }
        sums
    }

    pub fn keys_in_region(&self, region: RegionId) -> u64 {
        let counts = self.counts.lock();
        counts.get(&region).map_or(0, |counts| counts.keys.iter().map(|(_, (keys, _))| keys).sum())
    }

    /// Bytes of a region's live keys and values, as applied: exact, whatever is in memtables or overwritten.
    pub fn bytes_in_region(&self, region: RegionId) -> u64 {
        self.counts.lock().get(&region).map_or(0, |counts| counts.bytes)
    }

    /// The sum over the regions that have a peer here.
    pub fn user_bytes(&self) -> u64 {
        self.counts.lock().values().fold(0, |sum, counts| sum.saturating_add(counts.bytes))
    }

    /// Up to `max` keys of a slot in database 0 that are not over at `now_ms`, as applied here.
    pub fn keys_in_slot(&self, slot: Slot, now_ms: UnixMillis, max: usize) -> storage::Result<Vec<Bytes>> {
        command::keys_in_slot(&self.flash.view(), slot, 0, now_ms, max)
    }

    pub fn has_expiring_keys(&self, region: RegionId) -> bool {
        let counts = self.counts.lock();
        counts.get(&region).is_some_and(|counts| counts.keys.iter().any(|(_, (_, expiring))| *expiring > 0))
    }

    /// Approximate bytes on the device of each slot range. What is in memtables only does not count.
    fn bytes_within(&self, slots: &[SlotRange]) -> Vec<u64> {
        let ranges: Vec<_> = slots.iter().map(|slots| rows::slots_range(*slots)).collect();
        self.flash.approximate_sizes(&ranges).unwrap_or_else(|_| vec![0; slots.len()])
    }

    /// The slot, not the first, that cuts a range into halves of about the same bytes; `None` for a single slot.
    pub fn slot_in_the_middle(&self, slots: SlotRange) -> Option<Slot> {
        if slots.len() < 2 {
            return None;
        }
        let mut range = slots;
        let mut before = 0;
        let total: u64 = self.bytes_within(&[slots])[0];
        // Each round looks closer at the part in which the middle lies.
        while range.len() > 1 && total > 0 {
            let parts = cut(range);
            let sizes = self.bytes_within(&parts);
            let mut end = before;
            let found = parts.iter().zip(&sizes).find(|(_, bytes)| {
                before = end;
                end += **bytes;
                end >= total / 2
            });
            // Sizes are estimates, and of parts they need not add up.
            range = *found.map_or(&parts[parts.len() - 1], |(part, _)| part);
        }
        let middle = match total {
            0 => slots.first + (slots.len() / 2) as Slot,
            _ => range.first,
        };
        Some(middle.clamp(slots.first + 1, slots.last))
    }
}

/// A range in up to 64 parts.
fn cut(range: SlotRange) -> Vec<SlotRange> {
    let step = range.len().div_ceil(64);
    let begins = (usize::from(range.first)..=usize::from(range.last)).step_by(step);
    begins
        .map(|first| SlotRange {
            first: first as Slot,
            last: (first + step - 1).min(range.last.into()) as Slot,
        })
        .collect()
}

fn run(reader: &dyn Reader, region: &RegionShared, item: &Item, now: UnixMillis) -> storage::Result<Outcome> {
    let mut txn = Txn::read_only(reader, region.id());
    let mut exec = Exec {
        txn: &mut txn,
        now_ms: now,
        // A read may draw (RANDOMKEY, HRANDFIELD): it changes nothing, so any seed will do.
        seed: crate::clock::boot_nanos(),
        db: item.db,
        mode: Mode::Read,
        slots: region.slots_or_all(),
        limits: Limits::default(),
        resp3: item.resp3,
    };
    command::execute(item.spec, &item.args, &mut exec)
}

enum Source {
    Ram,
    RamOrFlash,
}

/// The present state of a few rows, without a view.
///
/// Rows that are read one after the other may be of different moments. They are of one if each of them is
/// found in RAM again, the very same value and not an equal one, after the last was read: a value stays in
/// RAM from its first reading to its second, so all of them were there in between.
struct FewRows<'a> {
    flash: &'a FlashKeyspace,
    source: Source,
    /// Set when a row was asked for that is not there to be had, or a range.
    missed: Cell<bool>,
    read: RefCell<Vec<(Bytes, Option<Bytes>)>>,
}

impl<'a> FewRows<'a> {
    fn new(flash: &'a FlashKeyspace, source: Source) -> FewRows<'a> {
        FewRows { flash, source, missed: Cell::new(false), read: RefCell::new(Vec::new()) }
    }

    fn are_of_one_moment(&self) -> bool {
        if self.missed.get() {
            return false;
        }
        let read = self.read.borrow();
        let same = |(row, value): &(Bytes, Option<Bytes>)| match (value, self.flash.get_if_cached(row)) {
            (Some(first), Some(again)) => first.as_ptr() == again.as_ptr() && first.len() == again.len(),
            _ => false,
        };
        // One row is of one moment by itself.
        read.len() <= 1 || read.iter().all(same)
    }
}

impl Reader for FewRows<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        let value = match self.source {
            Source::Ram => self.flash.get_if_cached(row),
            Source::RamOrFlash => self.flash.get_cached(row)?,
        };
        if value.is_none() && matches!(self.source, Source::Ram) {
            self.missed.set(true);
        }
        let mut read = self.read.borrow_mut();
        read.push((Bytes::copy_from_slice(row), value.clone()));
        Ok(value)
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut Visit<'_>) -> Result<(), StorageError> {
        self.missed.set(true);
        Ok(())
    }
}
