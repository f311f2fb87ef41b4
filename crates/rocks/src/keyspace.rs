//! The rows of a store: the RAM tier over one RocksDB with one column family and no WAL.
//!
//! The Raft log is the only log. Writes go to the RAM tier's memtable ([`storage::tier`]) and nowhere else. A
//! [flush](Keyspace::flush) freezes it and brings what is frozen to RocksDB, oldest first, each memtable as one batch: RocksDB
//! keeps a batch together, so what a crash leaves is always a prefix of the write sets. Each write set carries the applied
//! index of its region, so the rows that survive say where replay starts.
//!
//! RocksDB may flush its own memtable before it is asked to. That makes durable a longer prefix than
//! [`Keyspace::flush`] has reported, which replay, being idempotent by applied index, does not mind.

use std::ffi::CStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use rocksdb::{properties, Cache, ReadOptions, WriteBatch, WriteOptions, DB};
use storage::tier::{Found, Memtable, MemtableView, RamTier};
use storage::{Reader, Result, StorageError, Visit, WriteSet};

use crate::error::classify;
use crate::options::{Options, LEVELS};
use crate::size;
use crate::stats::{self, Stats};

/// A scan that has visited this much is a large one: from there on it reads ahead and leaves the block
/// cache to those that come back for the same rows.
const LARGE_SCAN_BYTES: usize = 256 << 10;
const LARGE_SCAN_READAHEAD_BYTES: usize = 2 << 20;

/// A view copies the active memtable if it has no more rows than this, and freezes it otherwise.
const VIEW_ROWS_MAX: usize = 4096;
/// Rows of the active memtable that a scan of the present copies at first, for it may end soon; each time it goes on
/// it copies as many times more.
const SCAN_ROWS_FIRST: usize = 64;
const SCAN_ROWS_GROWTH: usize = 4;
/// Rows that go to the row cache under one lock.
const SETTLED_ROWS: usize = 256;
/// Number of frozen memtables at which a flush is due, however small they are: each look-up asks all of them.
const FROZEN_MAX: usize = 4;

const FLUSH_POLL: Duration = Duration::from_millis(1);

pub struct Keyspace {
    pub(crate) db: DB,
    pub(crate) rocksdb_options: rocksdb::Options,
    tier: RwLock<RamTier>,
    /// Bytes of the active memtable at which a flush is due. As many may be frozen.
    memtable_bytes: u64,
    /// The number of the first memtable that RocksDB does not have. Every change of RocksDB holds this lock.
    flushing: Mutex<u64>,
    /// Signals change under this lock.
    signals: Mutex<()>,
    flush_due: Condvar,
    room: Condvar,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The keyspace at one moment.
pub struct View<'a> {
    memtables: MemtableView,
    /// Rows outside of `from..to` are not in it. `None`: all are.
    bounds: Option<(Bytes, Bytes)>,
    snapshot: rocksdb::Snapshot<'a>,
}

/// What RAM knows, at one moment: nothing is written as long as this is held.
pub struct InRam<'a> {
    tier: RwLockReadGuard<'a, RamTier>,
    hits: &'a AtomicU64,
}

impl InRam<'_> {
    /// The row's value; `Some(None)` if there is no such row, `None` if only flash knows.
    pub fn get(&self, row: &[u8]) -> Option<Option<Bytes>> {
        match self.tier.get(row) {
            Found::Row(value) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                Some(value)
            }
            Found::OnFlash { .. } => None,
        }
    }
}

impl Keyspace {
    /// Opens the keyspace in `dir`, which is made if need be. One process at a time: RocksDB's lock on the
    /// directory refuses a second.
    pub fn open(dir: &Path, options: &Options) -> Result<Keyspace> {
        let capacity = usize::try_from(options.block_cache_size).unwrap_or(usize::MAX);
        let cache = Cache::new_lru_cache(capacity).map_err(classify)?;
        let mut rocksdb_options = options.to_rocksdb(&cache);
        rocksdb_options.enable_statistics();
        let db = DB::open(&rocksdb_options, dir).map_err(classify)?;
        let hash_seed = RandomState::new().build_hasher().finish();
        Ok(Keyspace {
            db,
            rocksdb_options,
            tier: RwLock::new(RamTier::new(options.row_cache_bytes, options.ram_bytes, hash_seed)),
            memtable_bytes: options.write_buffer_size,
            flushing: Mutex::new(0),
            signals: Mutex::new(()),
            flush_due: Condvar::new(),
            room: Condvar::new(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }

    /// All rows at one moment. Freezes the active memtable if it is large.
    pub fn view(&self) -> View<'_> {
        let mut tier = self.tier.write();
        let memtables = tier.view(VIEW_ROWS_MAX);
        // The snapshot is taken under the tier's lock, so it holds every memtable dropped so far and no newer row.
        View { memtables, bounds: None, snapshot: self.db.snapshot() }
    }

    /// The rows in `from..to` at one moment.
    pub fn view_of(&self, from: &[u8], to: &[u8]) -> View<'_> {
        match self.part(from, to, VIEW_ROWS_MAX) {
            (view, None) => view,
            _ => self.view(),
        }
    }

    /// A view of the rows in `from..to`, or up to the row that is returned if that is too much to copy.
    fn part(&self, from: &[u8], to: &[u8], rows_max: usize) -> (View<'_>, Option<Bytes>) {
        let tier = self.tier.read();
        let (memtables, end) = tier.view_of(from, to, rows_max);
        let bounds = (Bytes::copy_from_slice(from), end.clone().unwrap_or(Bytes::copy_from_slice(to)));
        (View { memtables, bounds: Some(bounds), snapshot: self.db.snapshot() }, end)
    }

    /// What RAM knows at this moment. Held for a command's look-ups, they are of one moment.
    pub fn in_ram(&self) -> InRam<'_> {
        InRam { tier: self.tier.read(), hits: &self.hits }
    }

    /// Writes the set as a whole: ranges go first, then rows are written. Visible at once, durable after the
    /// next [`flush`](Self::flush). Whoever writes much looks for [room](Self::has_room) before.
    pub fn write(&self, writes: &WriteSet) {
        if writes.is_empty() {
            return;
        }
        let is_full = {
            let mut tier = self.tier.write();
            tier.write(writes);
            tier.active_bytes() >= self.memtable_bytes
        };
        if is_full {
            self.signal(&self.flush_due);
        }
    }

    fn signal(&self, changed: &Condvar) {
        let _between_look_and_wait = self.signals.lock();
        changed.notify_all();
    }

    /// Whether the memtables may take more: they are not full, or are on their way to flash.
    pub fn has_room(&self) -> bool {
        self.tier.read().dirty_bytes() < 2 * self.memtable_bytes
    }

    /// Waits until there is room, at most so long. Returns whether there is.
    pub fn wait_for_room(&self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut signals = self.signals.lock();
        while !self.has_room() {
            if self.room.wait_until(&mut signals, until).timed_out() {
                return self.has_room();
            }
        }
        true
    }

    pub fn is_flush_due(&self) -> bool {
        let tier = self.tier.read();
        tier.active_bytes() >= self.memtable_bytes || tier.frozen().count() >= FROZEN_MAX
    }

    /// Waits until a flush is due, at most so long.
    pub fn wait_for_flush(&self, at_most: Duration) {
        let mut signals = self.signals.lock();
        if !self.is_flush_due() {
            self.flush_due.wait_for(&mut signals, at_most);
        }
    }

    /// Makes everything durable that was written before the call, and blocks until it is.
    ///
    /// A caller that wants to know how far its regions' logs may be truncated reads their applied indexes
    /// *before* it calls: all of those rows are then in memtables that this flush brings to flash.
    ///
    /// After [`NoSpace`](storage::StorageError::NoSpace) nothing is lost: the memtables stay as they are, and RocksDB
    /// looks for room every few seconds and resumes by itself.
    pub fn flush(&self) -> Result<()> {
        self.flush_holding(&mut self.flushing.lock())
    }

    /// The same for whoever changes RocksDB; `next` is what [`Self::flushing`] guards.
    pub(crate) fn flush_holding(&self, next: &mut u64) -> Result<()> {
        let frozen: Vec<_> = {
            let mut tier = self.tier.write();
            tier.freeze();
            tier.frozen().cloned().collect()
        };
        for memtable in &frozen {
            if memtable.number() >= *next {
                self.write_to_rocksdb(batch_of(memtable))?;
                *next = memtable.number() + 1;
            }
        }
        flush_memtables(&self.db)?;
        for _ in frozen {
            while !self.tier.write().settle(SETTLED_ROWS) {}
            self.signal(&self.room);
        }
        Ok(())
    }

    /// Holds off flushes and whatever else changes RocksDB.
    pub(crate) fn hold_flushes(&self) -> parking_lot::MutexGuard<'_, u64> {
        self.flushing.lock()
    }

    pub(crate) fn delete_in_rocksdb(&self, deletion: &WriteSet) -> Result<()> {
        let mut batch = WriteBatch::default();
        deletion.ranges_deleted.iter().for_each(|range| delete_range(&mut batch, range));
        assert!(deletion.rows.is_empty(), "only ranges are deleted past the RAM tier");
        self.write_to_rocksdb(batch)
    }

    fn write_to_rocksdb(&self, batch: WriteBatch) -> Result<()> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.db.write_opt(batch, &options).map_err(classify)
    }

    /// The rows in these ranges were replaced in RocksDB.
    pub(crate) fn replaced(&self, ranges: &[(Bytes, Bytes)]) {
        self.tier.write().replaced(ranges);
    }

    /// Bytes of rows that a crash would lose here, and that the log has.
    pub fn unflushed_bytes(&self) -> u64 {
        self.tier.read().dirty_bytes()
    }

    /// The present value of a row if RAM knows it: `Some(None)` if there is no such row. RocksDB is not touched.
    pub fn get_if_in_ram(&self, row: &[u8]) -> Option<Option<Bytes>> {
        self.in_ram().get(row)
    }

    /// The same for whoever only asks whether to read the row: no hit is counted.
    pub fn peek(&self, row: &[u8]) -> Option<Option<Bytes>> {
        match self.tier.read().get(row) {
            Found::Row(value) => Some(value),
            Found::OnFlash { .. } => None,
        }
    }

    /// A point read of the present state. What flash says is kept in RAM.
    pub fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let found = self.tier.read().get(row);
        let epoch = match found {
            Found::Row(value) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(value);
            }
            Found::OnFlash { epoch } => epoch,
        };
        self.misses.fetch_add(1, Ordering::Relaxed);
        let value = self.db.get_pinned(row).map_err(classify)?;
        let value = value.map(|value| Bytes::copy_from_slice(&value));
        self.tier.write().fill(&Bytes::copy_from_slice(row), &value, epoch);
        Ok(value)
    }

    /// The same without waiting for a device: `None` if flash has the row, or may have it. A row that is nowhere is
    /// known by filters that are in RAM.
    pub fn get_without_io(&self, row: &[u8]) -> Option<Option<Bytes>> {
        // RocksDB answers from its block cache alone, and yes where it lacks a block. What is nowhere is about to be
        // written as a rule, and not worth a place in the row cache.
        self.get_if_in_ram(row).or_else(|| (!self.db.key_may_exist(row)).then_some(None))
    }

    /// Estimates, for each range `from..to`, the bytes of SST files that hold it. Memtables do not count.
    /// Costs a walk over all files, so ask for many ranges at once.
    pub fn approximate_sizes(&self, ranges: &[(Bytes, Bytes)]) -> Result<Vec<u64>> {
        let files = self.db.live_files().map_err(classify)?;
        Ok(ranges.iter().map(|(from, to)| size::of_range(&files, from, to)).collect())
    }

    pub fn stats(&self) -> Result<Stats> {
        let mut stats = stats::read(&self.db, &self.rocksdb_options, LEVELS)?;
        let ram = self.ram_use();
        stats.memtable_bytes += ram.dirty_bytes;
        stats.row_cache_bytes = ram.clean_bytes;
        stats.row_cache_hits = ram.hits;
        stats.row_cache_misses = ram.misses;
        Ok(stats)
    }

    /// What the RAM tier holds, and how often it had what was looked for.
    pub fn ram_use(&self) -> RamUse {
        let tier = self.tier.read();
        RamUse {
            dirty_bytes: tier.dirty_bytes(),
            clean_bytes: tier.clean_bytes(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RamUse {
    /// Of rows that flash does not have yet.
    pub dirty_bytes: u64,
    /// Of rows that flash has, too.
    pub clean_bytes: u64,
    /// Rows that were looked for, and were there or not.
    pub hits: u64,
    pub misses: u64,
}

fn delete_range(batch: &mut WriteBatch, (from, to): &(Bytes, Bytes)) {
    // RocksDB refuses an inverted range, and with it the batch.
    if from < to {
        batch.delete_range(&from[..], &to[..]);
    }
}

/// All of a memtable in one batch, which RocksDB never divides.
fn batch_of(memtable: &Memtable) -> WriteBatch {
    let mut batch = WriteBatch::default();
    memtable.ranges().iter().for_each(|range| delete_range(&mut batch, range));
    for (row, value) in memtable.rows() {
        match value {
            Some(value) => batch.put(row, value),
            None => batch.delete(row),
        }
    }
    batch
}

/// Makes all memtables of `db` durable, and blocks until they are.
///
/// RocksDB's own flush seals the memtable and waits for it, but once it has recovered from a background
/// error it returns before the memtable is written, and calls that success (7.8: the wait ends early
/// for as long as the error of the last recovery is remembered). So after any background error we wait
/// ourselves, until no sealed memtable is left. They are written oldest first and leave the list once the
/// manifest names their file.
pub(crate) fn flush_memtables(db: &DB) -> Result<()> {
    loop {
        db.flush().map_err(classify)?;
        let errors = int_property(db, properties::BACKGROUND_ERRORS)?;
        if errors == 0 {
            return Ok(());
        }
        loop {
            if int_property(db, properties::NUM_IMMUTABLE_MEM_TABLE)? == 0 {
                return Ok(());
            }
            std::thread::sleep(FLUSH_POLL);
            if int_property(db, properties::BACKGROUND_ERRORS)? != errors {
                break;
            }
        }
    }
}

/// The value of an integer property of RocksDB, by its name.
pub(crate) fn int_property(db: &DB, name: &CStr) -> Result<u64> {
    let value = db.property_int_value(name).map_err(classify)?;
    value.ok_or_else(|| StorageError::Engine(format!("RocksDB does not know its property {name:?}")))
}

/// The present state. A scan goes part by part, each of one moment: for whoever writes nothing meanwhile and
/// knows that nobody else does, or does not mind. Others take a [view](Keyspace::view_of).
impl Reader for Keyspace {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        Keyspace::get(self, row)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut from = Bytes::copy_from_slice(from);
        let (mut stopped, mut rows_max) = (false, SCAN_ROWS_FIRST);
        while from[..] < *to {
            let (view, end) = self.part(&from, to, rows_max);
            rows_max = (rows_max * SCAN_ROWS_GROWTH).min(VIEW_ROWS_MAX);
            let visit = &mut |row: &[u8], value: &[u8]| {
                let flow = visit(row, value);
                stopped = flow.is_break();
                flow
            };
            view.scan(&from, end.as_deref().unwrap_or(to), visit)?;
            match end.filter(|_| !stopped) {
                Some(end) => from = end,
                None => break,
            }
        }
        Ok(())
    }
}

/// # Panics
/// When it is asked for rows that are not in it.
impl Reader for View<'_> {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let is_in = self.bounds.as_ref().is_none_or(|(from, to)| from[..] <= *row && *row < to[..]);
        assert!(is_in, "a row outside of the view's bounds");
        if let Some(value) = self.memtables.get(row) {
            return Ok(value);
        }
        let value = self.snapshot.get_pinned(row).map_err(classify)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let is_in = self.bounds.as_ref().is_none_or(|(f, t)| f[..] <= *from && *to <= t[..] || from >= to);
        assert!(is_in, "a scan beyond the view's bounds");
        let flash = |visit: &mut Visit<'_>| match self.scan_part(
            from,
            to,
            LARGE_SCAN_BYTES,
            ReadOptions::default(),
            visit,
        )? {
            None => Ok(()),
            Some(resume) => self.scan_flash_ahead(&resume, to, visit),
        };
        self.memtables.scan(from, to, flash, visit)
    }
}

impl View<'_> {
    /// A scan that is known to be a large one.
    pub(crate) fn scan_ahead(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.memtables.scan(from, to, |visit| self.scan_flash_ahead(from, to, visit), visit)
    }

    fn scan_flash_ahead(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(LARGE_SCAN_READAHEAD_BYTES);
        self.scan_part(from, to, usize::MAX, options, visit).map(|_| ())
    }

    /// Scans flash until the end, a break, or until `limit_bytes` were visited; then gives where to go on.
    fn scan_part(
        &self,
        from: &[u8],
        to: &[u8],
        limit_bytes: usize,
        mut options: ReadOptions,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Vec<u8>>> {
        options.set_iterate_upper_bound(to);
        let mut rows = self.snapshot.raw_iterator_opt(options);
        let mut visited_bytes = 0usize;
        rows.seek(from);
        while let Some((row, value)) = rows.item() {
            if visited_bytes >= limit_bytes {
                return Ok(Some(row.to_vec()));
            }
            visited_bytes = visited_bytes.saturating_add(row.len() + value.len());
            if let ControlFlow::Break(()) = visit(row, value) {
                return Ok(None);
            }
            rows.next();
        }
        // An iterator ends at the end, and at an error.
        rows.status().map_err(classify)?;
        Ok(None)
    }
}
