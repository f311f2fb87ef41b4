//! A cache in RAM of rows that are also on flash. A [`Clock`] decides which rows are admitted and
//! evicted.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::last_use::{LastUse, Seconds};
use super::ranges::Ranges;
use super::row_index::RowIndex;
use crate::clock_cache::{self, Clock};

/// Estimated memory that an entry takes in addition to its key and value, in bytes.
pub const CACHE_ENTRY_OVERHEAD_BYTES: u64 = 192;

/// Minimum number of places of an index for which a smaller one is worth the work.
const INDEX_PLACES_MIN: usize = 1 << 16;
/// Maximum number of rows that are moved to a smaller index, which takes some tens of milliseconds.
const ROWS_MOVED_MAX: usize = 1 << 18;

#[derive(Debug)]
struct Entry {
    hash: u64,
    last_use: LastUse,
    row: Bytes,
    /// The row's value, or `None` if the row does not exist.
    value: Option<Bytes>,
}

#[derive(Debug)]
pub(super) struct RowCache {
    hash_seed: u64,
    /// The places of the clock's entries.
    index: RowIndex<usize>,
    clock: Clock<Entry>,
}

impl clock_cache::Entry for Entry {
    fn bytes(&self) -> u64 {
        bytes_of(&self.row, &self.value)
    }

    fn hash(&self) -> u64 {
        self.hash
    }
}

fn bytes_of(row: &[u8], value: &Option<Bytes>) -> u64 {
    (row.len() + value.as_ref().map_or(0, Bytes::len)) as u64 + CACHE_ENTRY_OVERHEAD_BYTES
}

impl RowCache {
    pub fn new(bytes_max: u64, hash_seed: u64) -> RowCache {
        RowCache { hash_seed, index: RowIndex::default(), clock: Clock::new(bytes_max) }
    }

    pub fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    pub fn bytes(&self) -> u64 {
        self.clock.bytes()
    }

    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.clock.places()
    }

    pub fn is_over(&self) -> bool {
        self.clock.is_over()
    }

    /// Returns an index in place of one that has room for many times the rows that the cache holds.
    /// The old index is returned, because dropping it may take long. Of very many rows only some
    /// are kept, because moving them takes time.
    pub fn shrink(&mut self) -> Option<RowCache> {
        let (places, rows) = (self.clock.places(), self.index.len());
        if places < INDEX_PLACES_MIN || rows > places / 4 {
            return None;
        }
        let mut old = RowCache {
            hash_seed: self.hash_seed,
            index: std::mem::take(&mut self.index),
            clock: self.clock.replace(),
        };
        for place in 0..places {
            if self.index.len() == ROWS_MOVED_MAX {
                break;
            }
            if let Some(Entry { last_use, row, value, .. }) = old.clock.remove(place) {
                self.put(&row, &value, last_use.get());
            }
        }
        Some(old)
    }

    /// Sets the budget in bytes. Rows beyond it are evicted step by step, by this call and later
    /// ones.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.clock.set_bytes_max(bytes_max);
        self.evict();
    }

    /// Returns the row's value: `None` if the row is not cached, `Some(None)` if it is known not to
    /// exist.
    pub fn get(&self, row: &[u8], now: Seconds) -> Option<Option<Bytes>> {
        let entry = self.entry_for_use(row)?;
        entry.last_use.note(now);
        Some(entry.value.clone())
    }

    /// Same as [`get`](Self::get), but does not end the row's idle time.
    pub fn peek(&self, row: &[u8]) -> Option<Option<Bytes>> {
        self.entry_for_use(row).map(|entry| entry.value.clone())
    }

    /// Same as [`get`](Self::get), but has no effect on anything.
    pub fn look(&self, row: &[u8]) -> Option<Option<Bytes>> {
        self.entry(row).map(|entry| entry.value.clone())
    }

    pub fn last_use(&self, row: &[u8]) -> Option<Seconds> {
        self.entry(row).map(|entry| entry.last_use.get())
    }

    /// Ends the idle time of a row, which is not looked up in the cache itself.
    pub fn note_use(&self, row: &[u8], now: Seconds) {
        if let Some(entry) = self.entry(row) {
            entry.last_use.note(now);
        }
    }

    fn entry_for_use(&self, row: &[u8]) -> Option<&Entry> {
        self.clock.get_for_use(self.find(self.hash(row), row)?)
    }

    fn entry(&self, row: &[u8]) -> Option<&Entry> {
        self.clock.get(self.find(self.hash(row), row)?)
    }

    /// Reads what the addition of rows with these hashes will read, so that the processor's cache
    /// has it.
    pub fn touch(&self, added: &[u64]) {
        let hashes = self.clock.touch(added).chain(added.iter().copied());
        let places = hashes.filter_map(|hash| self.index.find(hash, |_| true));
        std::hint::black_box(places.fold(0, usize::wrapping_add));
    }

    /// Adds a row that was last used at `used`, or changes its value.
    pub fn put(&mut self, row: &Bytes, value: &Option<Bytes>, used: Seconds) {
        let hash = self.hash(row);
        let known = self.find(hash, row);
        if !self.clock.admits(bytes_of(row, value)) {
            if let Some(place) = known {
                self.remove(place);
            }
            return;
        }
        match known {
            Some(place) => self.clock.change(place, |entry| {
                entry.value = value.clone();
                entry.last_use.note(used.max(entry.last_use.get()));
            }),
            None => {
                let (row, value) = (row.clone(), value.clone());
                let place = self.clock.add(Entry { hash, last_use: LastUse::at(used), row, value });
                let hash_at = |place| self.clock.get(place).map_or(0, |entry| entry.hash);
                self.index.insert(hash, place, hash_at);
            }
        }
        self.evict();
    }

    /// Removes the rows in `ranges` among the `count` places from `place` on. Returns the next
    /// place to look at, or `None` at the end.
    pub fn remove_ranges(&mut self, ranges: &Ranges, place: usize, count: usize) -> Option<usize> {
        let end = self.clock.places().min(place.saturating_add(count));
        for place in place..end {
            if self.clock.get(place).is_some_and(|entry| ranges.contain(&entry.row)) {
                self.remove(place);
            }
        }
        (end < self.clock.places()).then_some(end)
    }

    /// Returns a row's hash, which the filter of rows uses, too.
    pub fn hash(&self, row: &[u8]) -> u64 {
        xxh3_64_with_seed(row, self.hash_seed)
    }

    fn find(&self, hash: u64, row: &[u8]) -> Option<usize> {
        self.index.find(hash, |place| self.clock.get(place).is_some_and(|entry| entry.row[..] == *row))
    }

    fn remove(&mut self, place: usize) {
        if let Some(entry) = self.clock.remove(place) {
            self.index.remove(entry.hash, place);
        }
    }

    /// Evicts a few rows if the cache exceeds its budget.
    fn evict(&mut self) {
        let RowCache { index, clock, .. } = self;
        clock.evict(|place, entry| index.remove(entry.hash, place));
    }
}
