//! The row cache of a store: the cache that the store uses ([`storage::clock_cache`]), over records
//! instead of rows.

use storage::clock_cache::{Clock, Entry};

#[derive(Clone, Copy, Debug)]
struct Row {
    record: u32,
    bytes: u64,
}

impl Entry for Row {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn hash(&self) -> u64 {
        types::mix(u64::from(self.record))
    }
}

#[derive(Debug)]
pub(crate) struct RowCache {
    clock: Clock<Row>,
    /// By record.
    place_of: Vec<Option<u32>>,
    entry_bytes: u64,
}

impl RowCache {
    /// Makes a cache of `bytes` in which a row takes `entry_bytes`.
    pub fn new(records: u64, bytes: u64, entry_bytes: u64) -> RowCache {
        RowCache { clock: Clock::new(bytes), place_of: vec![None; records as usize], entry_bytes }
    }

    /// Returns true if the row is cached. Counts as a use of it.
    pub fn finds(&self, record: u32) -> bool {
        let place = self.place_of[record as usize];
        place.is_some_and(|place| self.clock.get_for_use(place as usize).is_some())
    }

    /// Adds a row that was read from the device or has left a memtable.
    pub fn put(&mut self, record: u32) {
        if !self.clock.admits(self.entry_bytes) {
            return;
        }
        if self.place_of[record as usize].is_none() {
            let place = self.clock.add(Row { record, bytes: self.entry_bytes });
            self.place_of[record as usize] = Some(place as u32);
        }
        self.evict();
    }

    /// Evicts rows if the cache exceeds its budget. The store does this also at every write, and
    /// when a memtable has been dropped.
    pub fn evict(&mut self) {
        let RowCache { clock, place_of, .. } = self;
        clock.evict(|_, row| place_of[row.record as usize] = None);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::Bytes;
    use storage::tier::{Found, RamTier, CACHE_ENTRY_OVERHEAD_BYTES};
    use storage::WriteSet;

    use super::*;
    use crate::draw::{popular, Draw};

    #[test]
    fn it_holds_no_more_than_its_budget() {
        let mut cache = RowCache::new(1000, 100_000, 1000);
        let mut draw = Draw::new(4);
        for _ in 0..10_000 {
            let record = draw.below(1000) as u32;
            match draw.below(2) {
                0 => cache.put(record),
                _ => drop(cache.finds(record)),
            }
            let held = cache.place_of.iter().flatten().count() as u64;
            assert_eq!(held * 1000, cache.clock.bytes());
            // The hand passes a bounded number of places per call.
            assert!(held <= 105, "{held}");
        }
        assert!(cache.clock.bytes() >= 99_000);
        let mut none = RowCache::new(1000, 63_999, 1000);
        none.put(1);
        assert!(!none.finds(1), "a row takes at most a part of the cache");
    }

    /// Compares the model with the store's RAM tier under the same requests. In both, rows that
    /// were written come into the cache when their memtable has been flushed.
    #[test]
    fn it_finds_what_the_ram_tier_finds() {
        let (records, bytes) = (10_000u64, 1_600_000);
        let value = Some(Bytes::from(vec![0; 1000]));
        let row = |record: u32| Bytes::copy_from_slice(&record.to_be_bytes());
        let mut theirs = RamTier::new(bytes, u64::MAX, 7);
        let mut ours = RowCache::new(records, bytes, 1004 + CACHE_ENTRY_OVERHEAD_BYTES);
        for writes_percent in [0, 5, 50] {
            let mut draw = Draw::new(writes_percent + 1);
            let mut hits = [0u32; 2];
            for _ in 0..30_000 {
                let record = popular(records, &mut draw) as u32;
                if draw.below(100) < writes_percent {
                    let batch: BTreeSet<u32> = (0..8).map(|_| popular(records, &mut draw) as u32).collect();
                    let rows = batch.iter().map(|record| (row(*record), value.clone()));
                    theirs.write(WriteSet { ranges_deleted: vec![], rows: rows.collect() });
                    ours.evict();
                    theirs.freeze();
                    while !theirs.settle(usize::MAX) {}
                    batch.iter().for_each(|record| ours.put(*record));
                    ours.evict();
                    continue;
                }
                match theirs.get(&row(record)) {
                    Found::Row(_) => hits[0] += 1,
                    Found::OnFlash { epoch } => drop(theirs.fill(&row(record), &value, epoch)),
                }
                match ours.finds(record) {
                    true => hits[1] += 1,
                    false => ours.put(record),
                }
            }
            // The fingerprints of evicted rows collide differently, because the hashes differ.
            let difference = hits[0].abs_diff(hits[1]);
            assert!(hits[0] > 3_000 && difference <= hits[0] / 100, "{writes_percent}% writes: {hits:?}");
        }
    }

    #[test]
    fn popular_rows_stay_while_others_pass_through() {
        let (mut cache, mut draw) = (RowCache::new(20_000, 500_000, 1000), Draw::new(1));
        let mut hits = 0;
        for at in 0..60_000 {
            let record = popular(20_000, &mut draw) as u32;
            let hit = cache.finds(record);
            cache.put(record);
            hits += u32::from(hit && at >= 30_000);
            // A follower's write of a row that no client reads here.
            cache.put(draw.below(20_000) as u32);
        }
        let share = f64::from(hits) / 30_000.0;
        // A cache of the 500 most popular rows would have a hit rate of 26%, and one whose hand
        // spares no row 14%.
        assert!((0.16..0.27).contains(&share), "{share}");
    }
}
