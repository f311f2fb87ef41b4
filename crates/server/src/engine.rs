//! The rows of this store: reads for clients, one write for each turn of the worker.

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use command::{Exec, Limits, Mode, Outcome};
use parking_lot::Mutex;
use rocks::FlashKeyspace;
use storage::{rows, Reader, RegionState, StorageError, Txn, Visit, WriteSet};
use types::{RegionId, Slot, SlotRange, UnixMillis, META_REGION};

use crate::dispatch::Item;
use crate::region::shared::RegionShared;

pub struct Engine {
    flash: FlashKeyspace,
    /// Keys and keys with expiry of each region and database, as applied.
    counts: Mutex<BTreeMap<(RegionId, u16), (u64, u64)>>,
}

impl Engine {
    pub fn new(flash: FlashKeyspace) -> Engine {
        Engine { flash, counts: Mutex::new(BTreeMap::new()) }
    }

    pub fn flash(&self) -> &FlashKeyspace {
        &self.flash
    }

    /// What the rows say of a region: how far it is applied, its time, its counts.
    pub fn region_state(&self, region: RegionId) -> storage::Result<RegionState> {
        storage::load_state(&self.flash, region)
    }

    /// Executes a read whose one row is in RAM. `None`: it must go to the rows.
    pub fn read_from_ram(&self, region: &RegionShared, item: &Item, now: UnixMillis) -> Option<Outcome> {
        if !reads_one_row(item) {
            return None;
        }
        let ram = RamOnly { flash: &self.flash, missed: Cell::new(false) };
        let outcome = run(&ram, region, item, now).ok()?;
        (!ram.missed.get()).then_some(outcome)
    }

    /// Executes a read over one consistent view.
    pub fn read(&self, region: &RegionShared, item: &Item, now: UnixMillis) -> storage::Result<Outcome> {
        if reads_one_row(item) {
            // One row is consistent by itself, and this way it comes into RAM.
            return run(&self.flash, region, item, now);
        }
        run(&self.flash.view(), region, item, now)
    }

    pub fn write(&self, writes: &WriteSet) -> storage::Result<()> {
        self.flash.write(writes)
    }

    pub fn publish_counts(&self, region: RegionId, state: &RegionState) {
        let mut counts = self.counts.lock();
        for (db, of_db) in state.databases() {
            counts.insert((region, db), (of_db.keys, of_db.with_expiry));
        }
        counts.retain(|(of, db), _| *of != region || state.counts(*db).keys > 0);
    }

    /// Keys and keys with expiry by database, over the regions that have a peer here.
    pub fn key_counts(&self) -> BTreeMap<u16, (u64, u64)> {
        let mut sums = BTreeMap::new();
        for ((region, db), (keys, with_expiry)) in self.counts.lock().iter() {
            if *region != META_REGION {
                let sum: &mut (u64, u64) = sums.entry(*db).or_default();
                *sum = (sum.0 + keys, sum.1 + with_expiry);
            }
        }
        sums
    }

    pub fn keys_in_region(&self, region: RegionId) -> u64 {
        let counts = self.counts.lock();
        counts.range((region, 0)..=(region, u16::MAX)).map(|(_, (keys, _))| keys).sum()
    }

    /// Up to `max` keys of a slot in database 0, as applied here.
    pub fn keys_in_slot(&self, slot: Slot, max: usize) -> storage::Result<Vec<Bytes>> {
        command::keys_in_slot(&self.flash.view(), slot, 0, crate::clock::unix_millis(), max)
    }

    pub fn has_expiring_keys(&self, region: RegionId) -> bool {
        let counts = self.counts.lock();
        counts.range((region, 0)..=(region, u16::MAX)).any(|(_, (_, expiring))| *expiring > 0)
    }

    /// Approximate bytes on the device of each slot range.
    pub fn bytes_of(&self, slots: &[SlotRange]) -> Vec<u64> {
        let ranges: Vec<_> = slots.iter().map(|slots| rows::slots_range(*slots)).collect();
        self.flash.approximate_sizes(&ranges).unwrap_or_else(|_| vec![0; slots.len()])
    }

    /// Bytes that the rows take, on the device and in memtables.
    pub fn used_bytes(&self) -> u64 {
        self.flash.stats().map_or(0, |stats| stats.live_sst_bytes + stats.memtable_bytes)
    }
}

/// Whether the command looks at one row of one key, and so needs no view to be consistent.
fn reads_one_row(item: &Item) -> bool {
    match item.spec.name {
        "get" | "strlen" | "getrange" | "substr" | "ttl" | "pttl" | "expiretime" | "pexpiretime" | "type"
        | "hlen" => true,
        "exists" | "touch" => item.args.len() == 2,
        _ => false,
    }
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
        slots: region.descriptor.slots.unwrap_or(SlotRange::ALL),
        limits: Limits::default(),
        resp3: item.resp3,
    };
    command::execute(item.spec, &item.args, &mut exec)
}

/// Only the rows that are in RAM; asking for any other is noted.
struct RamOnly<'a> {
    flash: &'a FlashKeyspace,
    missed: Cell<bool>,
}

impl Reader for RamOnly<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        let cached = self.flash.get_if_cached(row);
        if cached.is_none() {
            self.missed.set(true);
        }
        Ok(cached)
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut Visit<'_>) -> Result<(), StorageError> {
        self.missed.set(true);
        Ok(())
    }
}
