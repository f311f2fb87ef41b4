//! The RAM tier of a store: a memtable that is written, memtables on their way to flash, and a cache of rows that
//! are on flash.
//!
//! ```text
//!           write ──▶ active memtable ──freeze──▶ frozen memtables ──flushed──▶ settled: row cache
//!           read  ──▶ active, then frozen from the newest down, then the row cache, then flash ──fill──▶ row cache
//! ```
//!
//! Overwrites of a row collapse in the active memtable. It is frozen between two write sets, so a frozen memtable is
//! a prefix of what was executed: its owner brings it to flash in one atomic step, oldest first, and then
//! [settles](RamTier::settle) it.
//!
//! The row cache alone may be wrong about a row, but only while a memtable says what the row is: memtables
//! are asked first. Two rules keep it so:
//!
//! * A memtable is dropped only after the row cache was told all that it says.
//! * A [fill](RamTier::fill) carries the [epoch](RamTier::epoch) of before flash was read. It is taken only if no memtable was
//!   dropped since, and none says what the row is.
//!
//! Nothing here waits, reads flash or takes a lock: whoever shares a tier between threads puts one lock around it.

mod memtable;
mod row_cache;
mod row_map;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::planted::{self, Bug};
use crate::{Result, Visit, WriteSet};
pub use memtable::Memtable;
use row_cache::RowCache;

/// Places of the row cache that one step of settling looks at for rows of a deleted range.
const CACHE_PLACES_PER_STEP: usize = 4096;

/// A memtable on its way to flash exists as often: here, as a batch, and in the flash tier's memory.
pub const COPIES_OF_FROZEN: u64 = 3;

#[derive(Debug)]
pub struct RamTier {
    active: Memtable,
    /// Oldest first.
    frozen: VecDeque<Arc<Memtable>>,
    cache: RowCache,
    cache_bytes: u64,
    /// What memtables and row cache may take together.
    bytes_max: u64,
    epoch: u64,
    /// How far the oldest frozen memtable is settled.
    settled: Settled,
}

#[derive(Debug, Default)]
struct Settled {
    ranges: usize,
    /// The next place of the row cache to look at for the next range.
    place: usize,
    row: Option<Bytes>,
}

/// The memtables of one moment.
#[derive(Clone, Debug, Default)]
pub struct MemtableView {
    /// From the newest down.
    tables: Vec<Arc<Memtable>>,
}

/// What a look into RAM finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The row's value; `None` if there is no such row.
    Row(Option<Bytes>),
    /// Only flash knows. A fill of what it says must carry this epoch.
    OnFlash { epoch: u64 },
}

impl RamTier {
    /// A tier whose row cache takes at most `cache_bytes`, and no more than memtables leave of `bytes_max`. Clients choose
    /// keys: the seed must not be known to them.
    pub fn new(cache_bytes: u64, bytes_max: u64, hash_seed: u64) -> RamTier {
        RamTier {
            active: Memtable::first(hash_seed),
            frozen: VecDeque::new(),
            cache: RowCache::new(cache_bytes.min(bytes_max), hash_seed),
            cache_bytes,
            bytes_max,
            epoch: 0,
            settled: Settled::default(),
        }
    }

    /// Writes the set as a whole: ranges are deleted first.
    pub fn write(&mut self, writes: &WriteSet) {
        self.active.write(writes);
        self.share();
    }

    /// Gives the row cache what the memtables leave.
    fn share(&mut self) {
        let frozen: u64 = self.frozen.iter().map(|table| table.bytes()).sum();
        let dirty = self.active.bytes().saturating_add(frozen.saturating_mul(COPIES_OF_FROZEN));
        self.cache.set_bytes_max(self.cache_bytes.min(self.bytes_max.saturating_sub(dirty)));
    }

    pub fn get(&self, row: &[u8]) -> Found {
        match self.in_memtables(row).or_else(|| self.cache.get(row)) {
            Some(value) => Found::Row(value),
            None => Found::OnFlash { epoch: self.epoch },
        }
    }

    fn in_memtables(&self, row: &[u8]) -> Option<Option<Bytes>> {
        if planted::is(Bug::OldestFirst) {
            let tables = self.frozen.iter().map(|table| &**table);
            return memtable::get(tables.chain([&self.active]), row);
        }
        memtable::get(self.tables(), row)
    }

    fn tables(&self) -> impl Iterator<Item = &Memtable> {
        std::iter::once(&self.active).chain(self.frozen.iter().rev().map(|table| &**table))
    }

    /// The number of memtables that were dropped. What flash says of a row holds as long as it stays the same.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Keeps what flash said of a row, which was asked in the epoch given, if it is still known to be true.
    pub fn fill(&mut self, row: &Bytes, value: &Option<Bytes>, epoch: u64) -> bool {
        let is_of_now = epoch == self.epoch || planted::is(Bug::StaleFill);
        let holds = is_of_now && self.in_memtables(row).is_none();
        if holds {
            self.cache.put(row, value);
        }
        holds
    }

    /// Freezes the active memtable, if anything was written to it.
    pub fn freeze(&mut self) {
        if !self.active.is_empty() {
            let next = self.active.next();
            self.frozen.push_back(Arc::new(std::mem::replace(&mut self.active, next)));
        }
    }

    /// Frozen memtables, oldest first: the order in which they must reach flash.
    pub fn frozen(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.frozen.iter()
    }

    /// Takes one step of settling the oldest frozen memtable, which must be on flash, durably: at most about `rows_max` of
    /// its rows go to the row cache. Returns true once it is dropped.
    pub fn settle(&mut self, rows_max: usize) -> bool {
        let Some(oldest) = self.frozen.front().cloned() else { return true };
        if let Some((from, to)) = oldest.ranges().get(self.settled.ranges) {
            let (place, count) = (self.settled.place, CACHE_PLACES_PER_STEP);
            match self.cache.remove_range((from, to), place, count) {
                Some(next) => self.settled.place = next,
                None => (self.settled.ranges, self.settled.place) = (self.settled.ranges + 1, 0),
            }
            return false;
        }
        let mut last = None;
        for (count, (row, value)) in oldest.rows_behind(self.settled.row.as_ref()).enumerate() {
            if count == rows_max && !planted::is(Bug::DroppedUnsettled) {
                self.settled.row = last;
                return false;
            }
            if count < rows_max {
                self.cache.put(row, value);
            }
            last = Some(row.clone());
        }
        self.frozen.pop_front();
        self.share();
        self.settled = Settled::default();
        self.epoch += 1;
        true
    }

    /// The rows in these ranges were replaced on flash, past the tier.
    ///
    /// # Panics
    /// If a memtable has a row of theirs: it would hide what is on flash now.
    pub fn replaced(&mut self, ranges: &[(Bytes, Bytes)]) {
        self.epoch += 1;
        for (from, to) in ranges {
            let is_free = self.tables().all(|table| !table.speaks_of(from, to));
            assert!(is_free, "rows are replaced on flash that are also in RAM");
            if !planted::is(Bug::ReplacedStays) {
                self.cache.remove_range((from, to), 0, usize::MAX);
            }
        }
    }

    /// The memtables as they are now. The active one is copied if it has at most `rows_max` rows, and frozen if not.
    pub fn view(&mut self, rows_max: usize) -> MemtableView {
        if self.active.len() > rows_max {
            self.freeze();
        }
        self.view_of(&[], &[0xff; 32], rows_max).0
    }

    /// The memtables as they are now, for the rows in `from..to` alone, and where the view ends if the active memtable
    /// has more than `rows_max` rows of that range.
    pub fn view_of(&self, from: &[u8], to: &[u8], rows_max: usize) -> (MemtableView, Option<Bytes>) {
        let frozen = self.frozen.iter().rev().cloned();
        if self.active.is_empty() {
            return (MemtableView { tables: frozen.collect() }, None);
        }
        let (part, end) = self.active.part(from, to, rows_max);
        (MemtableView { tables: std::iter::once(Arc::new(part)).chain(frozen).collect() }, end)
    }

    /// Visits the rows in `from..to` of the memtables over those of flash, which `flash` visits.
    pub fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        flash: impl FnOnce(&mut Visit<'_>) -> Result<()>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let tables: Vec<&Memtable> = self.tables().collect();
        memtable::scan(&tables, (from, to), flash, visit)
    }

    /// Bytes of the active memtable.
    pub fn active_bytes(&self) -> u64 {
        self.active.bytes()
    }

    /// Bytes of all memtables.
    pub fn dirty_bytes(&self) -> u64 {
        self.tables().map(Memtable::bytes).sum()
    }

    /// Bytes of the row cache.
    pub fn clean_bytes(&self) -> u64 {
        self.cache.bytes()
    }
}

impl MemtableView {
    /// The row as the memtables have it: `None` if flash has to be asked.
    pub fn get(&self, row: &[u8]) -> Option<Option<Bytes>> {
        memtable::get(self.tables.iter().map(|table| &**table), row)
    }

    /// Visits the rows in `from..to` of the memtables over those of flash, which `flash` visits.
    pub fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        flash: impl FnOnce(&mut Visit<'_>) -> Result<()>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let tables: Vec<&Memtable> = self.tables.iter().map(|table| &**table).collect();
        memtable::scan(&tables, (from, to), flash, visit)
    }
}

#[cfg(test)]
mod tests;
