//! The RAM tier: rows in front of RocksDB, exact at every moment.
//!
//! A hit never touches RocksDB, so the cache alone must be right. It is, by two rules:
//!
//! * A writer evicts its rows *before* RocksDB has the new ones and installs the new values *after*. Between the two nobody finds the row here, so once anybody has seen the new
//!   value nobody sees the old one.
//! * A reader that missed may fill only what is still true: it notes the row's stripe before it reads
//!   RocksDB, and fills only when no writer was in the stripe then and none has been since. Check and fill
//!   happen under the stripe's lock, which a writer takes to enter, so no stale fill follows an eviction.
//!
//! Deleted ranges cannot be evicted row by row at the price of a delete. They are remembered, and a cached
//! row is a hit only if it is younger than every remembered range that covers it. When too many are
//! remembered one pass over the cache settles them; a value read before that pass is not filled after it.
//!
//! Writers may be many, but a row has one writer at a time: its region's apply.
//!
//! A row that was just written is taken to be hot: the next write of its key looks for it, and so do readers.
//! Rows of regions' states are not: they are written with every batch and read at start only.
//!
//! Absent rows are not cached: bloom filters answer those cheaply, and they would displace hot rows.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use quick_cache::Weighter;
use storage::{Result, WriteSet};

/// Many more than a batch has rows: of two rows of a batch in one stripe only one is installed.
const STRIPES: usize = 16384;

/// A row above this would push out a thousand ordinary ones.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// What an entry takes beside its key and value: two reference counts and the cache's own bookkeeping.
const ENTRY_OVERHEAD_BYTES: u64 = 160;

/// For the cache's initial sizing only.
const EXPECTED_ROW_BYTES: u64 = 512;

const RANGES_MAX: usize = 64;

pub(crate) struct RowCache {
    rows: Cache<Bytes, Cached, RowWeight>,
    stripes: Box<[Stripe]>,
    hash: RandomState,
    ranges: RwLock<DeletedRanges>,
    /// Rises with every range that is deleted; mirrors `DeletedRanges::age`.
    age: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone)]
struct Cached {
    value: Bytes,
    /// [`RowCache::age`] before the value was read or written.
    age: u64,
}

#[derive(Default)]
struct DeletedRanges {
    age: u64,
    ranges: Vec<DeletedRange>,
    /// A value read before this may be of a range that is no longer remembered.
    settled_age: u64,
}

struct DeletedRange {
    from: Bytes,
    to: Bytes,
    /// Rows younger than this were written after the deletion. `u64::MAX` while it is being written.
    age: u64,
}

/// `visits` counts writers that came and those that went; `writers` is how many are in.
#[derive(Default)]
struct Stripe {
    state: Mutex<StripeState>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct StripeState {
    visits: u64,
    writers: u32,
}

#[derive(Clone)]
struct RowWeight;

impl Weighter<Bytes, Cached> for RowWeight {
    fn weight(&self, row: &Bytes, cached: &Cached) -> u64 {
        (row.len() + cached.value.len()) as u64 + ENTRY_OVERHEAD_BYTES
    }
}

impl DeletedRanges {
    fn cover(&self, row: &[u8], age: u64) -> bool {
        self.ranges.iter().any(|range| age < range.age && range.from[..] <= *row && *row < range.to[..])
    }

    /// Between the two moments at which a range's writer begins and ends nobody knows what holds.
    fn is_being_deleted(&self, row: &[u8]) -> bool {
        self.cover(row, u64::MAX - 1)
    }
}

impl RowCache {
    pub(crate) fn new(budget_bytes: u64) -> RowCache {
        let expected = (budget_bytes / EXPECTED_ROW_BYTES).max(1);
        RowCache {
            rows: Cache::with_weighter(
                usize::try_from(expected).unwrap_or(usize::MAX),
                budget_bytes,
                RowWeight,
            ),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            hash: RandomState::new(),
            ranges: RwLock::default(),
            age: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// A miss is not counted: whoever asks again with a way to read counts it.
    pub(crate) fn get_if_cached(&self, row: &[u8]) -> Option<Bytes> {
        let value = self.get(row)?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(value)
    }

    /// Neither hit nor miss is counted.
    pub(crate) fn peek(&self, row: &[u8]) -> Option<Bytes> {
        self.get(row)
    }

    pub(crate) fn get_or_read(
        &self,
        row: &[u8],
        read: impl FnOnce() -> Result<Option<Bytes>>,
    ) -> Result<Option<Bytes>> {
        if let Some(value) = self.get(row) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(Some(value));
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let stripe = self.stripe(row);
        let before = *stripe.state.lock();
        let age = self.age.load(Ordering::Acquire);
        let found = read()?;
        if let Some(value) = &found {
            if before.writers == 0 && value.len() <= VALUE_BYTES_MAX {
                let state = stripe.state.lock();
                let deleted = self.ranges.read();
                if *state == before && age >= deleted.settled_age && !deleted.is_being_deleted(row) {
                    self.rows.insert(Bytes::copy_from_slice(row), Cached { value: value.clone(), age });
                }
            }
        }
        Ok(found)
    }

    fn get(&self, row: &[u8]) -> Option<Bytes> {
        let cached = self.rows.get(row)?;
        if cached.age < self.age.load(Ordering::Acquire) && self.ranges.read().cover(row, cached.age) {
            return None;
        }
        Some(cached.value)
    }

    /// Runs `write`, which puts `writes` into RocksDB, and keeps the cache true around it.
    pub(crate) fn write_through(&self, writes: &WriteSet, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let ranges = self.begin_ranges(writes);
        for (row, _) in &writes.rows {
            let mut state = self.stripe(row).state.lock();
            state.visits += 1;
            state.writers += 1;
            self.rows.remove(&row[..]);
        }
        let written = write();
        let age = self.end_ranges(ranges);
        for (row, value) in &writes.rows {
            let mut state = self.stripe(row).state.lock();
            state.visits += 1;
            state.writers -= 1;
            // Another writer in the stripe may be at this very row, with a newer value or an older one.
            if let (Some(value), true, 0) = (value, written.is_ok(), state.writers) {
                if value.len() <= VALUE_BYTES_MAX && row.first() != Some(&storage::rows::SPACE_REGION_STATE) {
                    self.rows.insert(own(row), Cached { value: own(value), age });
                }
            }
        }
        written
    }

    /// Hides the ranges' rows, and gives the number of ranges that `end_ranges` has to stamp.
    fn begin_ranges(&self, writes: &WriteSet) -> Vec<(Bytes, Bytes)> {
        if writes.ranges_deleted.is_empty() {
            return Vec::new();
        }
        let mut deleted = self.ranges.write();
        if deleted.ranges.len() + writes.ranges_deleted.len() > RANGES_MAX {
            self.settle(&mut deleted);
        }
        for (from, to) in &writes.ranges_deleted {
            deleted.ranges.push(DeletedRange { from: from.clone(), to: to.clone(), age: u64::MAX });
        }
        deleted.age += 1;
        self.age.store(deleted.age, Ordering::Release);
        writes.ranges_deleted.clone()
    }

    /// From here on rows of the ranges may be cached again. Gives the age that such rows have.
    fn end_ranges(&self, ranges: Vec<(Bytes, Bytes)>) -> u64 {
        if ranges.is_empty() {
            return self.age.load(Ordering::Acquire);
        }
        let mut deleted = self.ranges.write();
        deleted.age += 1;
        let age = deleted.age;
        for (from, to) in &ranges {
            let open =
                deleted.ranges.iter_mut().find(|r| r.age == u64::MAX && r.from == *from && r.to == *to);
            open.expect("a range stays open until its writer ends it").age = age;
        }
        self.age.store(age, Ordering::Release);
        age
    }

    /// Removes the rows that remembered ranges cover and forgets the ranges.
    fn settle(&self, deleted: &mut DeletedRanges) {
        self.rows.retain(|row, cached| !deleted.cover(row, cached.age));
        deleted.ranges.retain(|range| range.age == u64::MAX);
        deleted.settled_age = deleted.age;
    }

    /// Bytes held, hits and misses so far.
    pub(crate) fn usage(&self) -> (u64, u64, u64) {
        (self.rows.weight(), self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    fn stripe(&self, row: &[u8]) -> &Stripe {
        &self.stripes[self.hash.hash_one(row) as usize % STRIPES]
    }
}

/// The bytes in an allocation of their own: a slice would keep the whole log entry that it came with.
fn own(bytes: &Bytes) -> Bytes {
    if bytes.is_unique() {
        bytes.clone()
    } else {
        Bytes::copy_from_slice(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(row: &str, value: &str) -> WriteSet {
        WriteSet {
            ranges_deleted: vec![],
            rows: vec![(row.to_owned().into(), Some(value.to_owned().into()))],
        }
    }

    fn delete_range(from: &str, to: &str) -> WriteSet {
        WriteSet { ranges_deleted: vec![(from.to_owned().into(), to.to_owned().into())], rows: vec![] }
    }

    fn read(cache: &RowCache, row: &str, stored: &str) -> Bytes {
        let stored = Bytes::copy_from_slice(stored.as_bytes());
        cache.get_or_read(row.as_bytes(), || Ok(Some(stored))).unwrap().unwrap()
    }

    fn is_cached(cache: &RowCache, row: &str) -> bool {
        cache.get(row.as_bytes()).is_some()
    }

    #[test]
    fn a_hit_reads_nothing_and_a_write_replaces_it() {
        let cache = RowCache::new(1 << 20);
        assert_eq!(read(&cache, "a", "1"), "1");
        assert_eq!(read(&cache, "a", "never read"), "1");
        cache.write_through(&put("a", "2"), || Ok(())).unwrap();
        assert_eq!(read(&cache, "a", "never read"), "2");
        cache.write_through(&put("b", "1"), || Ok(())).unwrap();
        assert!(is_cached(&cache, "b"), "what was just written is hot");
        cache.write_through(&put("r1", "1"), || Ok(())).unwrap();
        assert!(!is_cached(&cache, "r1"), "a region's state is not");
    }

    #[test]
    fn a_fill_that_a_write_overtook_is_dropped() {
        let cache = RowCache::new(1 << 20);
        let stale = cache.get_or_read(b"a", || {
            cache.write_through(&put("a", "new"), || Ok(()))?;
            Ok(Some("old".into()))
        });
        assert_eq!(stale.unwrap().unwrap(), "old");
        assert_eq!(read(&cache, "a", "new"), "new");
    }

    #[test]
    fn a_fill_while_the_write_is_under_way_is_dropped() {
        let cache = RowCache::new(1 << 20);
        let write = || {
            assert_eq!(read(&cache, "a", "old"), "old");
            assert!(!is_cached(&cache, "a"));
            Ok(())
        };
        cache.write_through(&put("a", "new"), write).unwrap();
        assert_eq!(read(&cache, "a", "never read"), "new");
    }

    #[test]
    fn a_failed_write_leaves_nothing_cached() {
        let cache = RowCache::new(1 << 20);
        read(&cache, "a", "old");
        let failure = storage::StorageError::NoSpace(String::new());
        assert!(cache.write_through(&put("a", "new"), || Err(failure)).is_err());
        assert!(!is_cached(&cache, "a"));
        assert_eq!(read(&cache, "a", "old"), "old");
        assert!(is_cached(&cache, "a"));
    }

    #[test]
    fn rows_of_a_deleted_range_are_gone_and_may_come_back() {
        let cache = RowCache::new(1 << 20);
        for row in ["a", "b", "c"] {
            read(&cache, row, "1");
        }
        let set = WriteSet { rows: put("b", "2").rows, ..delete_range("b", "c") };
        cache.write_through(&set, || Ok(())).unwrap();
        assert_eq!(read(&cache, "b", "2"), "2");
        assert!(is_cached(&cache, "a") && is_cached(&cache, "b") && is_cached(&cache, "c"));
        cache.write_through(&delete_range("a", "c"), || Ok(())).unwrap();
        assert!(!is_cached(&cache, "a") && !is_cached(&cache, "b") && is_cached(&cache, "c"));
    }

    #[test]
    fn nothing_of_a_range_is_filled_while_it_is_being_deleted() {
        let cache = RowCache::new(1 << 20);
        let write = || {
            assert_eq!(read(&cache, "a", "old"), "old");
            assert!(!is_cached(&cache, "a"));
            assert_eq!(read(&cache, "b", "other"), "other");
            assert!(is_cached(&cache, "b"));
            Ok(())
        };
        cache.write_through(&delete_range("a", "b"), write).unwrap();
        assert!(!is_cached(&cache, "a"));
    }

    #[test]
    fn a_fill_from_before_a_range_deletion_never_hits_even_once_the_range_is_forgotten() {
        let cache = RowCache::new(1 << 20);
        for deletions in [1, RANGES_MAX + 1] {
            let stale = cache.get_or_read(b"a", || {
                for _ in 0..deletions {
                    cache.write_through(&delete_range("a", "b"), || Ok(()))?;
                }
                // The rest are elsewhere, so that settling forgets all that cover the row.
                for _ in 0..RANGES_MAX {
                    cache.write_through(&delete_range("x", "y"), || Ok(()))?;
                }
                Ok(Some("old".into()))
            });
            assert_eq!(stale.unwrap().unwrap(), "old");
            assert!(!is_cached(&cache, "a"));
        }
        assert!(cache.ranges.read().ranges.len() <= RANGES_MAX);
    }

    #[test]
    fn the_budget_holds_and_huge_values_stay_out() {
        let cache = RowCache::new(64 << 10);
        let value = "v".repeat(1000);
        for row in 0..1000 {
            read(&cache, &format!("row{row}"), &value);
        }
        let (bytes, _, misses) = cache.usage();
        assert!(bytes <= 64 << 10 && bytes > 32 << 10, "{bytes}");
        assert_eq!(misses, 1000);
        let cache = RowCache::new(8 << 20);
        read(&cache, "huge", &"v".repeat(VALUE_BYTES_MAX + 1));
        assert!(!is_cached(&cache, "huge"));
    }
}
