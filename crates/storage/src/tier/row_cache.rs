//! A cache in RAM of rows that are also on flash.
//!
//! Eviction is by a clock algorithm. Its hand spares rows that were looked up since it last passed.
//! Rows that were read or written only once are evicted first, so a scan or a bulk load does not
//! displace rows in use.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Estimated bytes that an entry takes beside its key and value.
const ENTRY_OVERHEAD_BYTES: u64 = 192;
/// Maximum number of places that the clock's hand passes per change. It bounds the time of one call
/// after the budget has shrunk by much.
const STEPS_PER_CHANGE: usize = 64;
/// A row larger than the budget divided by this number is not cached.
const BUDGET_PART_MAX: u64 = 64;

#[derive(Debug)]
struct Entry {
    hash: u64,
    row: Bytes,
    /// The row's value, or `None` if the row does not exist.
    value: Option<Bytes>,
    is_used: AtomicBool,
}

#[derive(Debug)]
pub(super) struct RowCache {
    hash_seed: u64,
    table: HashTable<usize>,
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    hand: usize,
    bytes: u64,
    bytes_max: u64,
}

impl Entry {
    fn bytes(&self) -> u64 {
        bytes_of(&self.row, &self.value)
    }
}

fn bytes_of(row: &[u8], value: &Option<Bytes>) -> u64 {
    (row.len() + value.as_ref().map_or(0, Bytes::len)) as u64 + ENTRY_OVERHEAD_BYTES
}

impl RowCache {
    pub fn new(bytes_max: u64, hash_seed: u64) -> RowCache {
        RowCache {
            hash_seed,
            table: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            hand: 0,
            bytes: 0,
            bytes_max,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the budget in bytes. Rows beyond it are evicted step by step, by this call and later
    /// ones.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        self.evict();
    }

    /// Returns the row's value: `None` if the row is not cached, `Some(None)` if it is known not to
    /// exist.
    pub fn get(&self, row: &[u8]) -> Option<Option<Bytes>> {
        let entry = self.entry(self.find(self.hash(row), row)?);
        // Most entries are marked already, and a write would take the cache line from other
        // readers.
        if !entry.is_used.load(Ordering::Relaxed) {
            entry.is_used.store(true, Ordering::Relaxed);
        }
        Some(entry.value.clone())
    }

    pub fn put(&mut self, row: &Bytes, value: &Option<Bytes>) {
        let hash = self.hash(row);
        let known = self.find(hash, row);
        if bytes_of(row, value) > self.bytes_max / BUDGET_PART_MAX {
            if let Some(at) = known {
                self.remove(at);
            }
            return;
        }
        match known {
            Some(at) => {
                let bytes = bytes_of(row, value);
                let entry = self.entries[at].as_mut().expect("the table names entries");
                self.bytes = self.bytes - entry.bytes() + bytes;
                entry.value = value.clone();
            }
            None => self.add(Entry {
                hash,
                row: row.clone(),
                value: value.clone(),
                is_used: AtomicBool::new(false),
            }),
        }
        self.evict();
    }

    /// Removes the rows in `from..to` among the `count` places from `at` on. Returns the next place
    /// to look at, or `None` at the end.
    pub fn remove_range(&mut self, (from, to): (&[u8], &[u8]), at: usize, count: usize) -> Option<usize> {
        let end = self.entries.len().min(at.saturating_add(count));
        for at in at..end {
            if self.entries[at].as_ref().is_some_and(|entry| *from <= entry.row[..] && entry.row[..] < *to) {
                self.remove(at);
            }
        }
        (end < self.entries.len()).then_some(end)
    }

    fn hash(&self, row: &[u8]) -> u64 {
        xxh3_64_with_seed(row, self.hash_seed)
    }

    fn find(&self, hash: u64, row: &[u8]) -> Option<usize> {
        self.table.find(hash, |at| self.entry(*at).row[..] == *row).copied()
    }

    fn entry(&self, at: usize) -> &Entry {
        self.entries[at].as_ref().expect("the table names entries")
    }

    fn add(&mut self, entry: Entry) {
        let hash = entry.hash;
        self.bytes += entry.bytes();
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at] = Some(entry);
                at
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() - 1
            }
        };
        let entries = &self.entries;
        let hash_at = |at: &usize| entries[*at].as_ref().map_or(0, |entry| entry.hash);
        self.table.insert_unique(hash, at, hash_at);
    }

    fn remove(&mut self, at: usize) {
        let Some(entry) = self.entries[at].take() else { return };
        self.bytes -= entry.bytes();
        if let Ok(found) = self.table.find_entry(entry.hash, |other| *other == at) {
            found.remove();
        }
        self.free.push(at);
    }

    /// Evicts a few rows if the cache exceeds its budget.
    fn evict(&mut self) {
        let mut steps = STEPS_PER_CHANGE;
        while self.bytes > self.bytes_max && steps > 0 {
            steps -= 1;
            self.hand = if self.hand + 1 < self.entries.len() { self.hand + 1 } else { 0 };
            let spare = |entry: &mut Entry| std::mem::take(entry.is_used.get_mut());
            if self.entries[self.hand].as_mut().is_some_and(|entry| !spare(entry)) {
                self.remove(self.hand);
            }
        }
    }
}
