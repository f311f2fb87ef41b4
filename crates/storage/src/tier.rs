//! The RAM tier of a store: the active memtable, frozen memtables that are being flushed, a cache
//! of rows that are on flash, [ranges](known_ranges) whose rows on flash are all known, and a
//! [filter](row_filter) that knows which rows flash lacks.
//!
//! ```text
//! write ──▶ active memtable ──freeze──▶ frozen memtables ──flushed──▶ settled: row cache
//! read  ──▶ active, then frozen newest first, then row cache, then filter, then flash
//!                                                                     flash ──fill──▶ row cache
//! ```
//!
//! Overwrites of a row collapse in the active memtable. It is frozen only between two write sets,
//! so the frozen memtables hold a prefix of the executed writes. The owner flushes each frozen
//! memtable in one atomic step, oldest first, and then [settles](RamTier::settle) it: its rows move
//! to the row cache and it is dropped.
//!
//! A row that is deleted before it was ever flushed leaves no trace: the active memtable forgets it
//! if the filter knows that flash lacks it and no frozen memtable determines it. So what comes and
//! goes, such as the elements of a queue, costs no deleted rows in scans and none on flash. The
//! filter never forgets a row, so one that was flushed before leaves its deletion behind.
//!
//! A memtable *determines* a row if it holds the row's value or deletes the row, by itself or as
//! part of a range. Invariant: the row cache may have a stale value of a row only while a memtable
//! determines the row. Memtables are read first, so the stale value is never seen. Two rules
//! maintain this:
//!
//! * A memtable is dropped only after all of its rows and deletions were applied to the row cache.
//! * A [fill](RamTier::fill) carries the [epoch](RamTier::epoch) from before flash was read. It is
//!   accepted only if no memtable was dropped since and no memtable determines the row.
//!
//! Rows that are replaced on flash directly are barred from the row cache
//! [meanwhile](RamTier::begin_replacing).
//!
//! The known ranges hold what flash has, whatever the memtables say, and scans merge the memtables
//! over them. They are accepted only if flash was read after the last step of settling, because
//! each step tells them what a flush has changed on flash.
//!
//! Nothing here blocks, reads flash or takes a lock. Threads that share a tier must protect it with
//! one lock.

mod known_ranges;
mod last_use;
mod memtable;
mod ranges;
mod row_cache;
mod row_filter;
mod row_index;
mod row_map;

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use bytes::Bytes;

use crate::failpoints::Failpoint;
use crate::{Result, StorageError, Visit, WriteSet};
use known_ranges::KnownRanges;
pub use known_ranges::{KNOWN_ROW_BYTES, RANGE_BYTES_MAX, RANGE_ROWS_MAX};
pub use last_use::Seconds;
pub use memtable::Memtable;
use ranges::Ranges;
use row_cache::RowCache;
pub use row_cache::CACHE_ENTRY_OVERHEAD_BYTES;
use row_filter::RowFilter;
pub use row_filter::{RowFilterUse, RowHash, Unlearnt};

/// Number of rows from which a memtable is not all in the processor's cache.
const TOUCHED_ROWS_MIN: usize = 2048;
/// Maximum number of row cache places that one step examines for deleted or replaced ranges.
const CACHE_PLACES_PER_STEP: usize = 4096;
/// Maximum number of known ranges from which one settling step deletes rows.
const KNOWN_RANGES_PER_STEP: usize = 32;
/// Maximum number of known ranges that one scan visits.
const KNOWN_SCAN_RANGES_MAX: usize = 64;
/// Number of rows as which a known range counts that a scan visits.
const RANGE_AS_ROWS: usize = 4;
/// Divisor of the row cache's budget for the part of it that known ranges may take.
const KNOWN_PART: u64 = 8;

#[derive(Debug)]
pub struct RamTier {
    active: Memtable,
    /// The frozen memtables, oldest first.
    frozen: VecDeque<Arc<Memtable>>,
    cache: RowCache,
    cache_bytes: u64,
    known: KnownRanges,
    /// The number of steps that have changed what is known of flash.
    flash_version: u64,
    filter: RowFilter,
    /// Maximum bytes of memtables, row cache, known ranges and filter together.
    bytes_max: u64,
    epoch: u64,
    /// The present time.
    now: AtomicU32,
    /// The progress of settling the oldest frozen memtable.
    settled: Settled,
    /// The ranges that are being replaced on flash. Nothing of them is cached meanwhile.
    replaced: Option<Removal>,
}

#[derive(Debug, Default)]
struct Settled {
    has_begun: bool,
    /// The number of deleted ranges whose rows the known ranges no longer have.
    ranges: usize,
    /// The place in the next deleted range up to which they no longer have its rows.
    known: Option<Bytes>,
    /// The removal of the deleted ranges from the row cache.
    removal: Option<Removal>,
    row: Option<Bytes>,
}

/// The removal of ranges from the row cache in steps.
#[derive(Debug)]
struct Removal {
    ranges: Ranges,
    /// The next place to examine; `None` at the end.
    place: Option<usize>,
}

impl Removal {
    fn of(ranges: &[(Bytes, Bytes)]) -> Removal {
        let ranges = Ranges::of(ranges);
        let place = (!ranges.is_empty()).then_some(0);
        Removal { ranges, place }
    }

    /// Takes a step. Returns true if there was nothing left to do.
    fn step(&mut self, cache: &mut RowCache) -> bool {
        let Some(place) = self.place else { return true };
        self.place = cache.remove_ranges(&self.ranges, place, CACHE_PLACES_PER_STEP);
        false
    }

    /// Begins again, after rows got other places. What was removed is not added again.
    fn begin_again(&mut self) {
        if self.place.is_some() {
            self.place = Some(0);
        }
    }
}

/// An immutable view of the memtables at one moment.
#[derive(Clone, Debug, Default)]
pub struct MemtableView {
    /// Ordered newest first.
    tables: Vec<Arc<Memtable>>,
}

/// The result of a look-up in RAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The row's value, or `None` if the row does not exist.
    Row(Option<Bytes>),
    /// RAM does not have the row. A fill with the value read from flash must carry this epoch.
    OnFlash { epoch: u64 },
}

impl RamTier {
    /// Creates a tier without a filter. The row cache takes at most `cache_bytes`, and at most the
    /// part of `bytes_max` that the memtables and the filter leave. Clients choose keys, so they
    /// must not know the seed.
    pub fn new(cache_bytes: u64, bytes_max: u64, hash_seed: u64) -> RamTier {
        let mut tier = RamTier {
            active: Memtable::first(hash_seed),
            frozen: VecDeque::new(),
            cache: RowCache::new(cache_bytes.min(bytes_max), hash_seed),
            cache_bytes,
            known: KnownRanges::new(),
            flash_version: 0,
            filter: RowFilter::new(0, 0, hash_seed),
            bytes_max,
            epoch: 0,
            now: AtomicU32::new(0),
            settled: Settled::default(),
            replaced: None,
        };
        tier.share();
        tier
    }

    /// Gives a new tier a filter of at most `bytes_max`, for about `rows` rows on flash. All of
    /// them are still to be [learnt](Self::unlearnt).
    pub fn with_row_filter(mut self, bytes_max: u64, rows: u64) -> RamTier {
        self.filter = RowFilter::new(bytes_max, rows, self.cache.hash_seed());
        self.share();
        self
    }

    /// Sets the maximum number of rows in a known range of a new tier, for tests of divisions.
    pub fn with_range_rows_max(mut self, rows_max: usize) -> RamTier {
        self.known.set_rows_max(rows_max);
        self
    }

    /// Applies the write set atomically: its range deletions first, then its rows.
    pub fn write(&mut self, writes: WriteSet) {
        let now = self.now();
        let RamTier { active, frozen, filter, .. } = self;
        let is_frozen = |row: &[u8]| frozen.iter().any(|table| table.get(row).is_some());
        active.write(writes, now, |row| {
            filter.excludes(row) && (Failpoint::FrozenForgotten.is_on() || !is_frozen(row))
        });
        self.share();
    }

    /// Sets the maximum of the row cache with the known ranges, and of both and the memtables
    /// together, in bytes.
    pub fn set_bytes_max(&mut self, cache_bytes: u64, bytes_max: u64) {
        (self.cache_bytes, self.bytes_max) = (cache_bytes, bytes_max);
        self.share();
    }

    /// Sets the maximum of the filter of rows. A filter that takes more, or that may at last be
    /// large enough for the rows that it knows, is made again for about `rows` rows, which must be
    /// learnt.
    pub fn set_filter_bytes_max(&mut self, bytes_max: u64, rows: u64) {
        let may_grow = self.filter.set_bytes_max(bytes_max);
        if self.filter.is_too_large() || may_grow && self.filter.is_crowded() {
            self.filter.renew(rows);
            self.share();
        }
    }

    /// Takes a step towards the budget of the row cache. Returns false once the cache is within it.
    pub fn evict(&mut self) -> bool {
        self.share();
        self.is_over()
    }

    /// Returns true if the row cache exceeds its budget.
    pub fn is_over(&self) -> bool {
        self.cache.is_over()
    }

    /// Gives back the memory of an index of the row cache that has become far too large. The result
    /// is to be dropped where that may take long.
    pub fn shrink(&mut self) -> impl Send + use<> {
        let old = self.cache.shrink();
        if old.is_some() {
            let removals = [self.settled.removal.as_mut(), self.replaced.as_mut()];
            removals.into_iter().flatten().for_each(Removal::begin_again);
        }
        old
    }

    /// Drops the rows of the row cache and the known ranges, for measurements of flash.
    pub fn forget_clean(&mut self) {
        let everything = (Bytes::new(), Bytes::from_static(&[0xff; 32]));
        self.cache.remove_ranges(&Ranges::of(&[everything]), 0, usize::MAX);
        self.known.forget(&[], &[0xff; 32]);
    }

    /// Sets the budget of row cache and known ranges to the memory that the memtables and the
    /// filter leave.
    fn share(&mut self) {
        let others = self.dirty_bytes().saturating_add(self.filter.bytes());
        let bytes_max = self.cache_bytes.min(self.bytes_max.saturating_sub(others));
        self.known.set_bytes_max(bytes_max / KNOWN_PART);
        self.cache.set_bytes_max(bytes_max.saturating_sub(self.known.bytes()));
    }

    /// Tells the tier the present time. Without it, rows count as used just now.
    pub fn set_now(&self, now: Seconds) {
        self.now.store(now, Ordering::Relaxed);
    }

    fn now(&self) -> Seconds {
        self.now.load(Ordering::Relaxed)
    }

    /// Looks up a row, which is a use of it.
    pub fn get(&self, row: &[u8]) -> Found {
        let now = self.now();
        let found = self.first_of_memtables(|table| table.get_for_use(row, now));
        self.found_in_ram(row, found.or_else(|| self.cache.get(row, now)))
    }

    /// Same as [`get`](Self::get), but does not end the row's idle time.
    pub fn peek(&self, row: &[u8]) -> Found {
        self.found_in_ram(row, self.in_memtables(row).or_else(|| self.cache.peek(row)))
    }

    /// Returns the value of a row if RAM has it. This has no effect on anything.
    pub fn look(&self, row: &[u8]) -> Option<Bytes> {
        self.in_memtables(row).or_else(|| self.cache.look(row)).flatten()
    }

    /// Returns the time since the tier was created.
    pub fn age(&self) -> Seconds {
        self.now()
    }

    /// Returns the time since the last use of a row; `None` if RAM does not have the row. A row
    /// that was fetched from flash and not used since has the tier's age.
    pub fn idle_time(&self, row: &[u8]) -> Option<Seconds> {
        let in_memtables = self.tables().find_map(|table| table.last_use(row));
        let last_use = in_memtables.or_else(|| self.cache.last_use(row))?;
        Some(self.now().saturating_sub(last_use))
    }

    fn found_in_ram(&self, row: &[u8], found: Option<Option<Bytes>>) -> Found {
        match found {
            Some(value) => Found::Row(value),
            None if self.filter.excludes(row) => Found::Row(None),
            None => Found::OnFlash { epoch: self.epoch },
        }
    }

    /// Returns true if look-ups in the active memtable wait for memory. A small one is in the
    /// processor's cache.
    pub fn is_worth_touching(&self) -> bool {
        self.active.len() >= TOUCHED_ROWS_MIN
    }

    /// Brings the rows that the active memtable has into the processor's cache, for look-ups that
    /// follow.
    pub fn touch(&self, rows: &[&[u8]]) {
        self.active.touch(rows);
    }

    /// Same as [`get`](Self::get) for a caller that has read the row from flash in the given epoch.
    /// Returns `None` if that value is the present one. For the row cache the look-up does not
    /// count as a use: otherwise a row that is read once would be used twice.
    pub fn get_fetched(&self, row: &[u8], epoch: u64) -> Option<Found> {
        let now = self.now();
        match self.first_of_memtables(|table| table.get_for_use(row, now)) {
            Some(value) => Some(Found::Row(value)),
            None if epoch == self.epoch => {
                self.note_use(row);
                None
            }
            None => Some(self.get(row)),
        }
    }

    /// Same as [`get_fetched`](Self::get_fetched), but does not end the row's idle time.
    pub fn peek_fetched(&self, row: &[u8], epoch: u64) -> Option<Found> {
        match self.in_memtables(row) {
            Some(value) => Some(Found::Row(value)),
            None if epoch == self.epoch => None,
            None => Some(self.peek(row)),
        }
    }

    /// Ends the idle time of a row that was fetched from flash and is used now.
    pub fn note_use(&self, row: &[u8]) {
        self.cache.note_use(row, self.now());
    }

    fn in_memtables(&self, row: &[u8]) -> Option<Option<Bytes>> {
        self.first_of_memtables(|table| table.get(row))
    }

    /// Returns the first result of a look at the memtables, from the newest down.
    fn first_of_memtables<T>(&self, look: impl Fn(&Memtable) -> Option<T>) -> Option<T> {
        if Failpoint::OldestFirst.is_on() {
            return self.frozen.iter().map(|table| &**table).chain([&self.active]).find_map(look);
        }
        self.tables().find_map(look)
    }

    fn tables(&self) -> impl Iterator<Item = &Memtable> {
        std::iter::once(&self.active).chain(self.frozen.iter().rev().map(|table| &**table))
    }

    /// Returns the epoch, which increases when a memtable is dropped or rows on flash are replaced.
    /// A value read from flash may be cached as long as the epoch is unchanged.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Caches a value read from flash in the given epoch, if it is certain to be current. Returns
    /// true if it was cached. The row counts as not used, until it is looked up.
    pub fn fill(&mut self, row: &Bytes, value: &Option<Bytes>, epoch: u64) -> bool {
        let is_of_now = epoch == self.epoch || Failpoint::StaleFill.is_on();
        let is_replaced = self.replaced.as_ref().is_some_and(|removal| removal.ranges.contain(row));
        let holds = is_of_now && !is_replaced && self.in_memtables(row).is_none();
        if holds {
            self.cache.put(row, value, 0);
        }
        holds
    }

    /// Returns a number that changes whenever a range that was read from flash before may have
    /// become stale.
    pub fn flash_version(&self) -> u64 {
        self.flash_version
    }

    /// Returns the first part of `from..to` whose rows on flash are not known. Returns `None` if
    /// there is no such part near the beginning, or if nothing can be learnt.
    pub fn unknown_range(&self, from: &[u8], to: &[u8]) -> Option<(Bytes, Bytes)> {
        self.known.gap(from, to, KNOWN_SCAN_RANGES_MAX).filter(|_| self.known.is_on())
    }

    /// Returns the bytes of ranges that can be learnt without the eviction of others.
    pub fn room_for_ranges(&self) -> u64 {
        self.known.room()
    }

    /// Remembers that flash has these rows in `from..to`, and no other. They were read when the
    /// [version](Self::flash_version) was this one. Returns false if that is no longer the version,
    /// or if there is no room.
    pub fn learn_range(&mut self, from: Bytes, to: Bytes, rows: Vec<(Bytes, Bytes)>, version: u64) -> bool {
        let is_of_now = version == self.flash_version || Failpoint::StaleRange.is_on();
        let is_learnt = is_of_now && self.known.learn(from, to, rows);
        self.share();
        is_learnt
    }

    /// Visits the rows in `from..to` without flash. Subtracts the rows that it examines from
    /// `rows_left`, those of memtables and of known ranges, deleted ones included: a range may have
    /// any number of deleted rows.
    ///
    /// # Errors
    /// [`NotInRam`](StorageError::NotInRam) once the rows that flash has are not known, `rows_left`
    /// is 0, or the scan has visited many known ranges. Rows before that place have been visited.
    pub fn scan_known(
        &self,
        from: &[u8],
        to: &[u8],
        rows_left: &Cell<usize>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let tables: Vec<&Memtable> = self.tables().collect();
        let mut from = from;
        for _ in 0..KNOWN_SCAN_RANGES_MAX {
            if from >= to {
                return Ok(());
            }
            let Some(known) = self.known.at(from) else { break };
            rows_left.set(rows_left.get().saturating_sub(RANGE_AS_ROWS));
            let end = to.min(known.to());
            let mut is_over = false;
            let flash = |visit: &mut Visit<'_>| {
                for (row, value) in known.rows_from(from).iter().take_while(|(row, _)| row[..] < *end) {
                    if !memtable::examine(rows_left) || visit(row, value).is_break() {
                        break;
                    }
                }
                Ok(())
            };
            memtable::scan_some(&tables, (from, end), rows_left, flash, &mut |row, value| {
                // Deleted rows behind the last one examined must not appear.
                if rows_left.get() == 0 {
                    return ControlFlow::Break(());
                }
                let flow = visit(row, value);
                is_over = flow.is_break();
                flow
            })?;
            if rows_left.get() == 0 {
                break;
            }
            if is_over {
                return Ok(());
            }
            from = end;
        }
        match from >= to {
            true => Ok(()),
            false => Err(StorageError::NotInRam),
        }
    }

    /// Freezes the active memtable unless it is empty.
    pub fn freeze(&mut self) {
        if !self.active.is_empty() {
            let next = self.active.next();
            self.frozen.push_back(Arc::new(std::mem::replace(&mut self.active, next)));
        }
    }

    /// Returns the frozen memtables, oldest first: the order in which they must be flushed.
    pub fn frozen(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.frozen.iter()
    }

    /// Takes one step of settling the oldest frozen memtable, which must be durable on flash. Moves
    /// at most about `rows_max` of its rows to the row cache. Returns true once the memtable is
    /// dropped.
    pub fn settle(&mut self, rows_max: usize) -> bool {
        let Some(oldest) = self.frozen.front().cloned() else { return true };
        // A range that was read from now on has the memtable's rows, and further steps write them
        // once more.
        if !std::mem::replace(&mut self.settled.has_begun, true) {
            self.flash_version += 1;
        }
        if let Some((from, to)) = oldest.ranges().get(self.settled.ranges) {
            if !Failpoint::DeletedStaysKnown.is_on() {
                let place = self.settled.known.as_ref().unwrap_or(from);
                self.settled.known = self.known.delete_rows(place, to, KNOWN_RANGES_PER_STEP);
            }
            self.settled.ranges += usize::from(self.settled.known.is_none());
            return false;
        }
        // One pass over the cache for all ranges: there may be as many as regions.
        let removal = self.settled.removal.get_or_insert_with(|| Removal::of(oldest.ranges()));
        if !removal.step(&mut self.cache) {
            return false;
        }
        let rows: Vec<_> = oldest.uses_behind(self.settled.row.as_ref()).take(rows_max).collect();
        // Each row waits for memory several times, so what all of them need is read first.
        let hashes: Vec<u64> = rows.iter().map(|((row, _), _)| self.cache.hash(row)).collect();
        self.cache.touch(&hashes);
        self.filter.touch(&hashes);
        for ((row, value), used) in &rows {
            self.cache.put(row, value, *used);
            if !Failpoint::FlushUnknown.is_on() {
                self.known.write(row, value);
            }
            if value.is_some() && !Failpoint::FlushUnlearnt.is_on() {
                self.filter.learn_row(row);
            }
        }
        if rows.len() == rows_max && !Failpoint::DroppedUnsettled.is_on() {
            self.settled.row = rows.last().map(|((row, _), _)| (*row).clone());
            return false;
        }
        self.frozen.pop_front();
        self.share();
        self.settled = Settled::default();
        self.epoch += 1;
        true
    }

    /// Returns a part of the slots whose rows on flash the filter must learn before it answers for
    /// them; `None` if there is none. The caller reads flash after this call,
    /// [learns](Self::learn) each row of the part, and then [completes](Self::complete) it.
    /// Meanwhile memtables may be flushed and rows replaced.
    pub fn unlearnt(&self) -> Option<Unlearnt> {
        self.filter.unlearnt()
    }

    /// Informs the filter of rows on flash.
    pub fn learn(&mut self, rows: impl IntoIterator<Item = RowHash>) {
        rows.into_iter().for_each(|row| self.filter.learn(row));
        self.share();
    }

    /// Completes a part after all its rows on flash were learnt.
    pub fn complete(&mut self, part: &Unlearnt) {
        self.filter.complete(part);
    }

    /// Returns true if the filter is so full of rows that it errs often.
    pub fn is_filter_crowded(&self) -> bool {
        self.filter.is_crowded()
    }

    /// Forgets which rows are on flash, if the filter is crowded although flash has only about
    /// `rows` rows. Returns true if they must be learnt again.
    pub fn renew_filter(&mut self, rows: u64) -> bool {
        let is_garbage = self.filter.is_crowded() && rows < self.filter.used().rows / 2;
        if is_garbage {
            self.filter.renew(rows);
        }
        is_garbage
    }

    pub fn filter_use(&self) -> RowFilterUse {
        self.filter.used()
    }

    /// Begins to replace the rows in these ranges on flash directly. They must not change before
    /// [`replace_step`](Self::replace_step) has returned true, and not after
    /// [`end_replacing`](Self::end_replacing), which must follow also if nothing was replaced.
    ///
    /// # Panics
    /// If a memtable has a row in a range, or deletes any of it, because that would hide the new
    /// rows on flash. If other ranges are being replaced.
    pub fn begin_replacing(&mut self, ranges: &[(Bytes, Bytes)]) {
        assert!(self.replaced.is_none(), "ranges are replaced one after the other");
        let mut removal = Removal::of(ranges);
        if Failpoint::ReplacedStays.is_on() {
            removal.place = None;
        }
        self.invalidate(&removal.ranges);
        self.replaced = Some(removal);
    }

    /// Takes a step of removing the rows that are being replaced from the row cache. Returns true
    /// once there are none.
    pub fn replace_step(&mut self) -> bool {
        self.replaced.as_mut().is_none_or(|removal| removal.step(&mut self.cache))
    }

    /// Ends what [`begin_replacing`](Self::begin_replacing) began.
    ///
    /// # Panics
    /// Same as `begin_replacing`. If steps of it are left, for then the old rows would stay.
    pub fn end_replacing(&mut self) {
        let removal = self.replaced.take().filter(|removal| removal.place.is_none());
        let removal = removal.expect("the row cache has none of the rows that were replaced on flash");
        self.invalidate(&removal.ranges);
    }

    /// Makes the known ranges and the filter forget these ranges. The row cache is left to the
    /// caller. What a read of flash that has begun returns is not cached.
    fn invalidate(&mut self, ranges: &Ranges) {
        self.epoch += 1;
        self.flash_version += 1;
        for (from, to) in ranges.all() {
            let is_free = self.tables().all(|table| !table.speaks_of(from, to));
            assert!(is_free, "rows are replaced on flash that are also in RAM");
            if !Failpoint::ReplacedStaysKnown.is_on() {
                self.known.forget(from, to);
            }
            if !Failpoint::ReplacedLearnt.is_on() {
                self.filter.unlearn(from, to);
            }
        }
    }

    /// Returns a view of all memtables. The active one is copied if it has at most `rows_max` rows,
    /// and frozen first if it has more.
    pub fn view(&mut self, rows_max: usize) -> MemtableView {
        if self.active.len() > rows_max {
            self.freeze();
        }
        self.view_of(&[], &[0xff; 32], rows_max).0
    }

    /// Returns a view of the memtables for the rows in `from..to`. If the active memtable has more
    /// than `rows_max` rows in that range, also returns the row at which the view ends.
    pub fn view_of(&self, from: &[u8], to: &[u8], rows_max: usize) -> (MemtableView, Option<Bytes>) {
        let frozen = self.frozen.iter().rev().cloned();
        if self.active.is_empty() {
            return (MemtableView { tables: frozen.collect() }, None);
        }
        let (part, end) = self.active.part(from, to, rows_max);
        (MemtableView { tables: std::iter::once(Arc::new(part)).chain(frozen).collect() }, end)
    }

    /// Visits the rows in `from..to`: those of the memtables merged over those of flash, which
    /// `flash` visits.
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

    /// Returns the bytes of the active memtable.
    pub fn active_bytes(&self) -> u64 {
        self.active.bytes()
    }

    /// Returns the bytes of all memtables.
    pub fn dirty_bytes(&self) -> u64 {
        self.tables().map(Memtable::bytes).sum()
    }

    /// Returns the bytes of the row cache and the known ranges.
    pub fn clean_bytes(&self) -> u64 {
        self.cache.bytes() + self.known.bytes()
    }
}

impl MemtableView {
    /// Returns the row's value in the memtables, or `None` if flash must be read.
    pub fn get(&self, row: &[u8]) -> Option<Option<Bytes>> {
        memtable::get(self.tables.iter().map(|table| &**table), row)
    }

    /// Visits the rows in `from..to`: those of the memtables merged over those of flash, which
    /// `flash` visits.
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
