//! A store's rows: the RAM tier over one RocksDB with one column family and no WAL.
//!
//! The Raft log is the only log. Writes go only to the RAM tier's memtable ([`storage::tier`]). A
//! [flush](Keyspace::flush) freezes the memtable and brings the frozen memtables to RocksDB, oldest
//! first, each in one atomic step ([`flush`](crate::flush)). So a crash always leaves a prefix of
//! the write sets. Each write set contains its region's applied index, so the surviving rows show
//! where replay starts.
//!
//! If a flush fails or the process is killed, a longer prefix may be durable than
//! [`Keyspace::flush`] has reported. That is harmless, because replay is idempotent by applied
//! index.

mod learning;
mod read_ahead;

use std::cell::Cell;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use rocksdb::{
    properties, Cache, ColumnFamilyDescriptor, ReadOptions, WriteBatch, DB,
    DEFAULT_COLUMN_FAMILY_NAME as DEFAULT_FAMILY,
};
use rustix::process::{getpriority_process, setpriority_process};
use storage::tier::{Found, MemtableView, RamTier, RowFilterUse, Seconds, Unlearnt};
use storage::{Reader, Result, StorageError, Visit, WriteSet};

use crate::error::classify;
use crate::flush::{self, Flusher};
use crate::in_ram::{found_in_ram, Fetched, InRam};
use crate::options::{OptionError, Options, LEVELS};
use crate::pace::{Debt, Pace};
use crate::size;
use crate::stats::{self, Stats};
use crate::steps::{self, Pause};
use crate::under_way::ReadsUnderWay;
use crate::view::View;
use read_ahead::ReadAhead;

/// Maximum number of the active memtable's rows that a view copies. If there are more,
/// [`Keyspace::view`] freezes the memtable instead.
const VIEW_ROWS_MAX: usize = 4096;
/// Number of the active memtable's rows that a scan without a view copies for its first part,
/// because it may end soon. Each further part copies `SCAN_ROWS_GROWTH` times as many.
const SCAN_ROWS_FIRST: usize = 24;
const SCAN_ROWS_GROWTH: usize = 4;
/// Bytes of known rows after which a part of a scan ends. They are copied under the tier's lock.
const SCAN_PART_BYTES: usize = 64 << 10;
/// Maximum number of ranges that one scan learns. A scan that needs more is long.
const SCAN_LEARNS_MAX: usize = 2;
/// Number of rows that move to the row cache under one lock. Each may evict some rows and ranges.
const SETTLED_ROWS: usize = 64;
/// The same while new writes take up the room that this frees.
const SETTLED_ROWS_HASTY: usize = 256;
/// Number of evictions of a few rows each in a step towards a lower budget.
const EVICTIONS_PER_STEP: usize = 4;
/// The part of a memtable that new writes may fill before steps become urgent.
const HASTE_PART: u64 = 4;
/// Number of rows that the filter of rows learns under one lock.
const LEARNT_ROWS: usize = 1024;
/// Bytes of rows after which a pass for the filter may pause.
const PASS_SLICE_BYTES: usize = 1 << 20;
/// Number of frozen memtables at which a flush is due even if they are small, because each look-up
/// searches all of them.
const FROZEN_MAX: usize = 4;

/// The directory of files that are not ingested yet, inside of RocksDB's. RocksDB ignores it.
const UNFINISHED: &str = "flushing";

/// Time that a change of the memory waits for flushes at most, and the time between two looks.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(10);
const FLUSH_LOOK_PERIOD: Duration = Duration::from_millis(10);

pub struct Keyspace {
    pub(crate) db: DB,
    pub(crate) rocksdb_options: rocksdb::Options,
    tier: RwLock<RamTier>,
    /// The beginning of the tier's time.
    opened: Instant,
    /// The options as they are now.
    options: RwLock<Arc<Options>>,
    /// Held during a change of the options.
    changing_options: Mutex<()>,
    cache: Mutex<Cache>,
    /// Size of the active memtable at which a flush is due, in bytes. Frozen memtables may take as
    /// much again.
    memtable_bytes: AtomicU64,
    pace: Pace,
    /// True once no other thread needs rows.
    is_stopping: AtomicBool,
    flusher: Flusher,
    pub(crate) snapshot_format: sst::Format,
    /// Held while the condition variables below are signalled or their conditions are checked
    /// before a wait.
    signals: Mutex<()>,
    flush_due: Condvar,
    room: Condvar,
    hits: AtomicU64,
    misses: AtomicU64,
    reads: ReadsUnderWay,
    read_ahead: Mutex<ReadAhead>,
    /// Bytes of snapshots' files that were ingested.
    pub(crate) ingested_bytes: AtomicU64,
}

/// A file of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub path: PathBuf,
    pub level: i32,
    pub bytes: u64,
    /// The first and the last row.
    pub from: Vec<u8>,
    pub to: Vec<u8>,
}

/// Removes the logs of earlier opens. RocksDB makes one at each open, writes nothing to it, because
/// all writes are without a log, and deletes it only when it flushes a memtable itself.
///
/// # Errors
/// If `CURRENT` is missing and tables are there: RocksDB would begin a new database and delete
/// them.
fn prepare(dir: &Path) -> io::Result<()> {
    let paths = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?,
    };
    let has_extension = |path: &&PathBuf, wanted: &str| path.extension().is_some_and(|found| found == wanted);
    if !dir.join("CURRENT").try_exists()? {
        return match paths.iter().find(|path| has_extension(path, "sst")) {
            Some(table) => {
                Err(io::Error::other(format!("CURRENT is missing, and {} is there", table.display())))
            }
            None => Ok(()),
        };
    }
    for path in paths.iter().filter(|path| has_extension(path, "log")) {
        if atrest::len(path).ok() == Some(0) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// The niceness of RocksDB's threads above that of the store.
const BACKGROUND_NICENESS: i32 = 10;

/// Runs `open` so that the threads that it starts yield to the store's other threads. RocksDB's
/// threads flush and compact. Writers wait for them only if there is no room. They inherit the
/// niceness of the thread that starts them, and a thread cannot take its own back.
fn behind_others<T: Send>(open: impl FnOnce() -> T + Send) -> T {
    let with_niceness = || {
        let niceness = getpriority_process(None).unwrap_or(0);
        // Without it compactions only compete with clients.
        let _ = setpriority_process(None, niceness + BACKGROUND_NICENESS);
        open()
    };
    std::thread::scope(|scope| match scope.spawn(with_niceness).join() {
        Ok(opened) => opened,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

impl Keyspace {
    /// Opens the keyspace in `dir`, which is created if it is missing. RocksDB's lock on the
    /// directory refuses a second process.
    pub fn open(dir: &Path, options: &Options) -> Result<Keyspace> {
        Keyspace::open_as(dir, options, |_| {})
    }

    /// Opens a keyspace with missing or unreadable files. Compaction is disabled.
    pub(crate) fn open_damaged(dir: &Path, options: &Options) -> Result<Keyspace> {
        Keyspace::open_as(dir, options, |rocksdb_options| {
            rocksdb_options.create_if_missing(false);
            rocksdb_options.set_paranoid_checks(false);
            rocksdb_options.set_disable_auto_compactions(true);
        })
    }

    fn open_as(dir: &Path, options: &Options, adapt: fn(&mut rocksdb::Options)) -> Result<Keyspace> {
        prepare(dir).map_err(|error| StorageError::Engine(format!("{}: {error}", dir.display())))?;
        let capacity = usize::try_from(options.block_cache_size).unwrap_or(usize::MAX);
        let cache = Cache::new_lru_cache(capacity).map_err(classify)?;
        let mut rocksdb_options = options.to_rocksdb(&cache);
        rocksdb_options.enable_statistics();
        adapt(&mut rocksdb_options);
        // Only a family that is named here has the handle that batched look-ups need.
        let family = ColumnFamilyDescriptor::new(DEFAULT_FAMILY, rocksdb_options.clone());
        let db =
            behind_others(|| DB::open_cf_descriptors(&rocksdb_options, dir, [family])).map_err(classify)?;
        flush::leave_first_sequence_number(&db)?;
        let hash_seed = RandomState::new().build_hasher().finish();
        // Some rows come before the next layer is made.
        let rows_expected = keys_on_flash(&db)? / 4 * 5;
        let tier = RamTier::new(options.row_cache_bytes, options.ram_bytes, hash_seed)
            .with_row_filter(options.row_filter_bytes, rows_expected);
        Ok(Keyspace {
            db,
            rocksdb_options,
            tier: RwLock::new(tier),
            opened: Instant::now(),
            options: RwLock::new(Arc::new(options.clone())),
            changing_options: Mutex::new(()),
            cache: Mutex::new(cache),
            memtable_bytes: AtomicU64::new(options.write_buffer_size),
            pace: Pace::new(),
            is_stopping: AtomicBool::new(false),
            flusher: Flusher::new(dir.join(UNFINISHED), options.flush_format())?,
            snapshot_format: options.snapshot_format(),
            signals: Mutex::new(()),
            flush_due: Condvar::new(),
            room: Condvar::new(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            reads: ReadsUnderWay::new(),
            read_ahead: Mutex::default(),
            ingested_bytes: AtomicU64::new(0),
        })
    }

    /// Returns a view of all rows. Freezes the active memtable if it is large.
    pub fn view(&self) -> View<'_> {
        let mut tier = self.tier.write();
        let memtables = tier.view(VIEW_ROWS_MAX);
        // The snapshot is taken under the tier's lock, so it contains every memtable dropped so far
        // and no newer row.
        View::new(memtables, None, self.db.snapshot(), &self.reads)
    }

    /// Returns a view of the rows in `from..to`.
    pub fn view_of(&self, from: &[u8], to: &[u8]) -> View<'_> {
        match self.part(from, to, VIEW_ROWS_MAX) {
            (view, None) => view,
            _ => self.view(),
        }
    }

    /// Returns a view of the rows in `from..to`. If the active memtable has more than `rows_max`
    /// rows there, the view ends before the row that is returned with it.
    fn part(&self, from: &[u8], to: &[u8], rows_max: usize) -> (View<'_>, Option<Bytes>) {
        let tier = self.tier.read();
        let (memtables, end) = tier.view_of(from, to, rows_max);
        let bounds = (Bytes::copy_from_slice(from), end.clone().unwrap_or(Bytes::copy_from_slice(to)));
        let (snapshot, reads) = (self.db.snapshot(), &self.reads);
        (View::new(memtables, Some(bounds), snapshot, reads), end)
    }

    /// Tells the RAM tier the present time, from which the idle times of rows are counted.
    pub fn note_time(&self, now: Instant) {
        let age = now.saturating_duration_since(self.opened).as_secs();
        self.tier.read().set_now(Seconds::try_from(age).unwrap_or(Seconds::MAX));
    }

    /// Returns the rows in RAM at this moment. A command that holds this for all its look-ups sees
    /// one state.
    pub fn in_ram(&self) -> InRam<'_> {
        InRam::new(self.tier.read(), &self.hits)
    }

    /// Same as [`in_ram`](Self::in_ram), for a thread that holds the rows in RAM already. It does
    /// not wait for a writer that waits for this thread.
    pub fn in_ram_again(&self) -> InRam<'_> {
        InRam::new(self.tier.read_recursive(), &self.hits)
    }

    /// Writes the set atomically: first its ranges are deleted, then its rows are written. The set
    /// is visible at once and durable after the next [`flush`](Self::flush). Callers that write
    /// much should check for [room](Self::has_room) first.
    pub fn write(&self, writes: WriteSet) {
        if writes.is_empty() {
            return;
        }
        let memtable_bytes = self.memtable_bytes();
        let is_full = {
            let mut tier = self.tier.write();
            let before = tier.active_bytes();
            tier.write(writes);
            let (active, dirty) = (tier.active_bytes(), tier.dirty_bytes());
            self.pace.wrote(active.saturating_sub(before), dirty, dirty - active, memtable_bytes);
            active >= memtable_bytes
        };
        if is_full {
            self.signal(&self.flush_due);
        }
    }

    fn signal(&self, changed: &Condvar) {
        let _between_look_and_wait = self.signals.lock();
        changed.notify_all();
    }

    fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    /// Returns the options as they are now.
    pub fn options(&self) -> Arc<Options> {
        self.options.read().clone()
    }

    /// Changes options by their RocksDB names, all or none. Blocks while RocksDB writes its options
    /// file.
    pub fn set_options(&self, pairs: &[(String, String)]) -> std::result::Result<(), OptionError> {
        let changing = self.changing_options.lock();
        let options = self.options();
        self.apply_options(&options, options.changed(pairs)?)?;
        drop(changing);
        Ok(())
    }

    /// Changes the memory of rows and of blocks, in bytes. Blocks until the rows have given back
    /// what is too much. Options for which `is_configured` is true keep their values. The sizes of
    /// levels and files stay as they are.
    pub fn set_memory(
        &self,
        ram_bytes: u64,
        block_cache_bytes: u64,
        is_configured: &dyn Fn(&str) -> bool,
    ) -> std::result::Result<(), OptionError> {
        let changing = self.changing_options.lock();
        let options = self.options();
        let fitted = (*options).clone().with_ram(ram_bytes);
        let mut pairs = vec![
            ("write_buffer_size", fitted.write_buffer_size),
            ("row_cache_bytes", fitted.row_cache_bytes),
            ("block_cache_size", block_cache_bytes),
        ];
        pairs.retain(|(name, _)| !is_configured(name));
        let pairs: Vec<(String, String)> =
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
        let mut changed = options.changed(&pairs)?;
        changed.ram_bytes = fitted.ram_bytes;
        if !is_configured("row_filter_bytes") {
            changed.row_filter_bytes = fitted.row_filter_bytes;
        }
        self.apply_options(&options, changed)?;
        drop(changing);
        // The rows of a memtable that is flushed move to the row cache.
        let give_up = Instant::now() + FLUSH_WAIT_MAX;
        while self.is_flushing() && Instant::now() < give_up {
            std::thread::sleep(FLUSH_LOOK_PERIOD);
        }
        self.in_steps(|tier, _| (0..EVICTIONS_PER_STEP).any(|_| !tier.evict()));
        let old_index = self.tier.write().shrink();
        drop(old_index);
        Ok(())
    }

    fn apply_options(&self, options: &Options, changed: Options) -> std::result::Result<(), OptionError> {
        let rows = keys_on_flash(&self.db).map_err(|error| OptionError::Refused(error.to_string()))?;
        let for_rocksdb = changed.set_options_since(options);
        let for_rocksdb: Vec<(&str, &str)> =
            for_rocksdb.iter().map(|(name, value)| (*name, value.as_str())).collect();
        if !for_rocksdb.is_empty() {
            let refused = |error: rocksdb::Error| OptionError::Refused(error.into_string());
            self.db.set_options(&for_rocksdb).map_err(refused)?;
        }
        self.memtable_bytes.store(changed.write_buffer_size, Ordering::Relaxed);
        self.flusher.set_format(changed.flush_format());
        self.cache.lock().set_capacity(usize::try_from(changed.block_cache_size).unwrap_or(usize::MAX));
        {
            let mut tier = self.tier.write();
            tier.set_bytes_max(changed.row_cache_bytes, changed.ram_bytes);
            tier.set_filter_bytes_max(changed.row_filter_bytes, rows);
        }
        *self.options.write() = Arc::new(changed);
        // A smaller memtable may be full.
        self.signal(&self.flush_due);
        self.signal(&self.room);
        Ok(())
    }

    /// Returns RocksDB's files of rows.
    pub fn tables(&self) -> Result<Vec<Table>> {
        let dir = self.db.path();
        let table = |file: rocksdb::LiveFile| Table {
            path: dir.join(file.name.trim_start_matches('/')),
            level: file.level,
            bytes: file.size as u64,
            from: file.start_key.unwrap_or_default(),
            to: file.end_key.unwrap_or_default(),
        };
        Ok(self.db.live_files().map_err(classify)?.into_iter().map(table).collect())
    }

    /// Rewrites the files with rows of `from..=to`. Blocks until they are written.
    pub fn compact(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut options = rocksdb::CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::Force);
        self.db.compact_range_opt(Some(from), Some(to), &options);
        // The call reports no error, but the next write does.
        flush::write(&self.db, WriteBatch::default())
    }

    /// Returns the compaction that RocksDB owes.
    pub fn debt(&self) -> Result<Debt> {
        flush::debt(&self.db, &self.options())
    }

    /// Returns the time for which the next write should wait, so that the memtables do not fill up
    /// before the flush under way has ended.
    pub fn write_wait(&self) -> Duration {
        self.pace.wait()
    }

    /// Records that writes waited for this time.
    pub fn waited(&self, time: Duration) {
        self.pace.waited(time);
    }

    /// Returns true if the memtables take less than twice a memtable's size, so that more may be
    /// written.
    pub fn has_room(&self) -> bool {
        self.tier.read().dirty_bytes() < 2 * self.memtable_bytes()
    }

    /// Waits for room, at most for `at_most`. Returns true if there is room.
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
        tier.dirty_bytes() >= self.memtable_bytes() || tier.frozen().count() >= FROZEN_MAX
    }

    /// Returns true if a flush is due or under way.
    fn is_flushing(&self) -> bool {
        self.is_flush_due() || self.tier.read().frozen().next().is_some()
    }

    /// Waits until a flush is due, at most for `at_most`.
    pub fn wait_for_flush(&self, at_most: Duration) {
        let mut signals = self.signals.lock();
        if !self.is_flush_due() {
            self.flush_due.wait_for(&mut signals, at_most);
        }
    }

    /// Sets the action that every flush performs after it freezes the memtable and before it
    /// changes RocksDB. If the action fails, the flush fails and RocksDB does not change. The store
    /// uses it to sync the Raft log: otherwise rows could be durable before their entries and be
    /// ahead of the log after a loss of power.
    pub fn before_flush(&mut self, first: impl Fn() -> Result<()> + Send + Sync + 'static) {
        self.flusher.before_flush(first);
    }

    /// Makes all writes before the call durable, and blocks until they are. While compaction is far
    /// behind, it waits for compaction.
    ///
    /// To learn how far its regions' logs may be truncated, a caller reads their applied indexes
    /// *before* the call. The rows as of these indexes are in memtables that this flush writes to
    /// flash.
    ///
    /// After an error nothing is lost: memtables that are not on flash stay in RAM. The call may be
    /// repeated after [`NoSpace`](storage::StorageError::NoSpace). RocksDB itself checks for free
    /// space every few seconds and resumes compaction automatically.
    pub fn flush(&self) -> Result<()> {
        self.flush_holding(&self.hold_flushes())
    }

    /// Lets long work take no more pauses, because the store stops and no other thread needs rows.
    pub fn end_pauses(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Flushes on behalf of a caller that [holds flushes](Self::hold_flushes).
    pub(crate) fn flush_holding(&self, _held: &MutexGuard<'_, ()>) -> Result<()> {
        let frozen: Vec<_> = {
            let mut tier = self.tier.write();
            tier.freeze();
            tier.frozen().cloned().collect()
        };
        self.flusher.prepare()?;
        for memtable in frozen {
            self.pace.flush_begins(memtable.bytes());
            let ingested = self.flusher.ingest(&self.db, &memtable, &|| self.debt(), &self.pace);
            let mut paused = Duration::ZERO;
            if ingested.is_ok() {
                self.pace.flushed(1.0, 0.0);
                let (row_count, mut settled) = (memtable.len().max(1) as f64, 0);
                paused = self.in_steps(|tier, is_hasty| {
                    let rows = if is_hasty { SETTLED_ROWS_HASTY } else { SETTLED_ROWS };
                    settled += rows;
                    self.pace.flushed(1.0, settled as f64 / row_count);
                    tier.settle(rows)
                });
            }
            // Unless a view has another reference, this frees a million rows. No thread waits for
            // the tier meanwhile.
            drop(memtable);
            self.pace.flush_ends(ingested.is_ok(), paused);
            ingested?;
            self.signal(&self.room);
        }
        Ok(())
    }

    /// Blocks flushes and every other change of RocksDB while the guard is held.
    pub(crate) fn hold_flushes(&self) -> MutexGuard<'_, ()> {
        self.flusher.hold()
    }

    /// Returns true if files that are ingested are linked, not copied.
    pub(crate) fn links_files(&self) -> bool {
        self.flusher.links()
    }

    pub(crate) fn delete_in_rocksdb(&self, deletion: &WriteSet) -> Result<()> {
        assert!(deletion.rows.is_empty(), "only ranges are deleted past the RAM tier");
        let mut batch = WriteBatch::default();
        flush::delete_ranges(&mut batch, &deletion.ranges_deleted);
        flush::write(&self.db, batch)
    }

    /// Scans RocksDB's present rows, without those in the RAM tier.
    pub(crate) fn scan_flash(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let view = View::new(MemtableView::default(), None, self.db.snapshot(), &self.reads);
        // RocksDB reads ahead by itself once a scan has read some blocks. Many of these scans are
        // short.
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        view.scan_part(from, to, usize::MAX, options, visit).map(drop)
    }

    /// Returns up to `rows_max` rows from `from` on that RAM has, or fewer if they are large, and
    /// the place behind them. Returns `None` if RAM cannot tell whether there is one.
    fn known_rows(
        &self,
        from: &Bytes,
        to: &[u8],
        rows_max: usize,
        rows_left: &Cell<usize>,
    ) -> Option<(Vec<(Bytes, Bytes)>, Bytes)> {
        let mut rows: Vec<(Bytes, Bytes)> = Vec::new();
        let (mut bytes, mut is_full) = (0usize, false);
        let known = self.in_ram().scan(from, to, rows_left, &mut |row, value| {
            bytes = bytes.saturating_add(row.len() + value.len());
            rows.push((Bytes::copy_from_slice(row), Bytes::copy_from_slice(value)));
            is_full = rows.len() == rows_max || bytes >= SCAN_PART_BYTES;
            match is_full {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let behind = |rows: &[(Bytes, Bytes)]| rows.last().map(|(row, _)| storage::rows::row_behind(row));
        match known {
            Ok(()) if !is_full => Some((rows, Bytes::copy_from_slice(to))),
            _ => behind(&rows).map(|end| (rows, end)),
        }
    }

    /// Repeats a step until it returns true, with [pauses](crate::steps). The step is told if it
    /// should be a long one, because writes take up the room that the steps are to free, or there
    /// is too much in RAM. Returns the time for which the tier was left to others.
    pub(crate) fn in_steps(&self, mut step: impl FnMut(&mut RamTier, bool) -> bool) -> Duration {
        steps::in_steps(&self.tier, |tier| {
            let is_hasty = tier.is_over() || tier.active_bytes() > self.memtable_bytes() / HASTE_PART;
            let pause = match is_hasty {
                _ if self.is_stopping.load(Ordering::Relaxed) => Pause::No,
                true => Pause::Short,
                false => Pause::Equal,
            };
            (!step(tier, is_hasty)).then_some(pause)
        })
    }

    /// Teaches the filter of rows a part of the rows that are on flash, and blocks meanwhile.
    /// Returns false if nothing is left to learn. `after_slice` is called after about each MiB. It
    /// may pause, and ends the call by returning false.
    pub fn learn_rows(&self, after_slice: &mut dyn FnMut() -> bool) -> Result<bool> {
        let Some(part) = self.unlearnt()? else { return Ok(false) };
        let (from, to) = storage::rows::slots_range(part.slots());
        let mut hashes = Vec::with_capacity(LEARNT_ROWS);
        let (mut slice_bytes, mut goes_on) = (0, true);
        self.scan_flash(&from, &to, &mut |row, value| {
            hashes.extend(part.hash(row));
            if hashes.len() == LEARNT_ROWS {
                self.tier.write().learn(hashes.drain(..));
            }
            slice_bytes += row.len() + value.len();
            if slice_bytes >= PASS_SLICE_BYTES {
                slice_bytes = 0;
                goes_on = after_slice();
            }
            if goes_on {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        let mut tier = self.tier.write();
        tier.learn(hashes);
        if goes_on {
            tier.complete(&part);
        }
        Ok(true)
    }

    fn unlearnt(&self) -> Result<Option<Unlearnt>> {
        {
            let tier = self.tier.read();
            let part = tier.unlearnt();
            if part.is_some() || !tier.is_filter_crowded() {
                return Ok(part);
            }
        }
        let rows = keys_on_flash(&self.db)?;
        let mut tier = self.tier.write();
        Ok(if tier.renew_filter(rows) { tier.unlearnt() } else { None })
    }

    /// Returns the size of the filter of rows and what it knows.
    pub fn filter_use(&self) -> RowFilterUse {
        self.tier.read().filter_use()
    }

    /// Returns the bytes of rows that are only in RAM. After a crash they are replayed from the
    /// log.
    pub fn unflushed_bytes(&self) -> u64 {
        self.tier.read().dirty_bytes()
    }

    /// Returns the current value of a row if RAM has it; `Some(None)` means that there is no such
    /// row. RocksDB is not accessed.
    pub fn get_if_in_ram(&self, row: &[u8]) -> Option<Option<Bytes>> {
        self.in_ram().get(row)
    }

    /// Same as [`get_if_in_ram`](Self::get_if_in_ram) but counts no hit, for callers that only
    /// decide whether to read the row.
    pub fn peek(&self, row: &[u8]) -> Option<Option<Bytes>> {
        found_in_ram(self.tier.read().peek(row))
    }

    /// Reads the current value of a row. A value from flash is kept in the row cache.
    pub fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let found = self.tier.read().get(row);
        self.get_found(row, found, true)
    }

    /// Same as [`get`](Self::get), but does not end the row's idle time.
    pub fn get_peeking(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let found = self.tier.read().peek(row);
        self.get_found(row, found, false)
    }

    fn get_found(&self, row: &[u8], found: Found, counts: bool) -> Result<Option<Bytes>> {
        let epoch = match found {
            Found::Row(value) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(value);
            }
            Found::OnFlash { epoch } => epoch,
        };
        self.misses.fetch_add(1, Ordering::Relaxed);
        let value = {
            let _read = self.reads.begin();
            self.db.get_pinned(row).map_err(classify)?.map(|value| Bytes::copy_from_slice(&value))
        };
        let mut tier = self.tier.write();
        tier.fill(&Bytes::copy_from_slice(row), &value, epoch);
        if counts {
            tier.note_use(row);
        }
        Ok(value)
    }

    /// Reads the present values of several rows with one look-up in RocksDB, in the order of the
    /// rows. Values from flash are kept in the row cache.
    ///
    /// RocksDB searches each table once for all rows of the look-up, so it needs less CPU time than
    /// as many look-ups of one row. But one thread waits for the device for all of them.
    pub fn fetch(&self, rows: &[Bytes]) -> Vec<Result<Fetched>> {
        let mut results: Vec<Option<Result<Fetched>>> = vec![None; rows.len()];
        let (mut missing, epoch) = (Vec::with_capacity(rows.len()), {
            let tier = self.tier.read();
            // Another read may have brought the row into RAM since the caller looked.
            for (row, result) in rows.iter().zip(&mut results) {
                if let Found::Row(value) = tier.get(row) {
                    *result = Some(Ok(Fetched { value, epoch: tier.epoch() }));
                }
            }
            tier.epoch()
        });
        missing.extend((0..rows.len()).filter(|&at| results[at].is_none()));
        if missing.is_empty() {
            return results.into_iter().flatten().collect();
        }
        self.misses.fetch_add(missing.len() as u64, Ordering::Relaxed);
        let found = {
            let _read = self.reads.begin();
            self.look_up(missing.iter().map(|&at| &rows[at]))
        };
        let mut tier = self.tier.write();
        for (at, found) in missing.into_iter().zip(found) {
            results[at] = Some(found.map(|value| {
                tier.fill(&Bytes::copy_from_slice(&rows[at]), &value, epoch);
                Fetched { value, epoch }
            }));
        }
        drop(tier);
        results.into_iter().flatten().collect()
    }

    fn look_up<'a>(&self, mut rows: impl ExactSizeIterator<Item = &'a Bytes>) -> Vec<Result<Option<Bytes>>> {
        let copied = |found: std::result::Result<Option<rocksdb::DBPinnableSlice<'_>>, rocksdb::Error>| {
            Ok(found.map_err(classify)?.map(|value| Bytes::copy_from_slice(&value)))
        };
        match (rows.len(), self.db.cf_handle(DEFAULT_FAMILY)) {
            (1, _) | (_, None) => rows.by_ref().map(|row| copied(self.db.get_pinned(row))).collect(),
            (_, Some(family)) => {
                self.db.batched_multi_get_cf(family, rows, false).into_iter().map(copied).collect()
            }
        }
    }

    /// Reads a row without waiting for a device. Returns `None` if flash has the row or may have
    /// it. `in_ram` is the rows in RAM of this keyspace. Until the filter of rows has learnt the
    /// row's slot, RocksDB's filters show that a row does not exist.
    pub fn get_without_io(&self, in_ram: InRam<'_>, row: &[u8]) -> Option<Option<Bytes>> {
        let found = in_ram.get(row);
        self.found_without_io(in_ram, row, found)
    }

    /// Same as [`get_without_io`](Self::get_without_io), but does not end the row's idle time.
    pub fn peek_without_io(&self, in_ram: InRam<'_>, row: &[u8]) -> Option<Option<Bytes>> {
        let found = in_ram.peek(row);
        self.found_without_io(in_ram, row, found)
    }

    fn found_without_io(
        &self,
        in_ram: InRam<'_>,
        row: &[u8],
        found: Option<Option<Bytes>>,
    ) -> Option<Option<Bytes>> {
        // Writers need not wait for RocksDB.
        drop(in_ram);
        // RocksDB answers only from its block cache. Without the block it answers that the row may
        // exist. A row that does not exist is usually about to be written, so it gets no place in
        // the row cache.
        found.or_else(|| (!self.db.key_may_exist(row)).then_some(None))
    }

    /// Estimates the bytes of SST files that hold each range `from..to`. Memtables do not count.
    /// Every call walks all files, so callers should ask for many ranges at once.
    pub fn approximate_sizes(&self, ranges: &[(Bytes, Bytes)]) -> Result<Vec<u64>> {
        let files = self.db.live_files().map_err(classify)?;
        Ok(ranges.iter().map(|(from, to)| size::of_range(&files, from, to)).collect())
    }

    /// Drops the rows in RAM that flash has, too, for measurements of flash.
    pub fn forget_clean_rows(&self) {
        self.tier.write().forget_clean();
    }

    /// Returns the reads of single rows that wait for flash.
    pub fn reads_under_way(&self) -> &ReadsUnderWay {
        &self.reads
    }

    pub fn stats(&self) -> Result<Stats> {
        let mut stats = stats::read(&self.db, &self.rocksdb_options, LEVELS)?;
        let ram = self.ram_use();
        stats.memtable_bytes += ram.dirty_bytes;
        stats.stall_micros += self.flusher.delayed_micros();
        stats.write_delay_micros = u64::try_from(self.pace.delayed().as_micros()).unwrap_or(u64::MAX);
        stats.debt_share = self.debt()?.share;
        stats.flush_bytes += self.flusher.written_bytes();
        stats.ingested_bytes = self.ingested_bytes.load(Ordering::Relaxed);
        stats.row_cache_bytes = ram.clean_bytes;
        stats.row_cache_hits = ram.hits;
        stats.row_cache_misses = ram.misses;
        let filter = self.filter_use();
        stats.row_filter_bytes = filter.bytes;
        stats.row_filter_rows = filter.rows;
        stats.row_filter_slots = filter.slots;
        Ok(stats)
    }

    /// Returns the size of the RAM tier and its hit counts.
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

/// Returns RocksDB's estimate of the number of rows.
fn keys_on_flash(db: &DB) -> Result<u64> {
    flush::int_property(db, properties::ESTIMATE_NUM_KEYS)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RamUse {
    /// Bytes of rows that are not on flash yet.
    pub dirty_bytes: u64,
    /// Bytes of rows that are on flash, too.
    pub clean_bytes: u64,
    /// Number of reads that found their row in RAM. `misses` counts those that went to flash.
    pub hits: u64,
    pub misses: u64,
}

/// Reads of the current state. A scan proceeds in parts, and each part sees one moment. It suits a
/// caller that knows that nothing is written during the scan, or that tolerates it. Other callers
/// use a [view](Keyspace::view_of).
impl Reader for Keyspace {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        Keyspace::get(self, row)
    }

    fn peek(&self, row: &[u8]) -> Result<Option<Bytes>> {
        self.get_peeking(row)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut from = Bytes::copy_from_slice(from);
        let (mut rows_max, mut learns) = (SCAN_ROWS_FIRST, SCAN_LEARNS_MAX);
        while from[..] < *to {
            // A part with many deleted rows is left to a view. More ranges would not help it.
            let rows_left = Cell::new(SCAN_ROWS_GROWTH * rows_max);
            if let Some((rows, end)) = self.known_rows(&from, to, rows_max, &rows_left) {
                if rows.iter().any(|(row, value)| visit(row, value).is_break()) {
                    return Ok(());
                }
                (from, rows_max) = (end, (rows_max * SCAN_ROWS_GROWTH).min(VIEW_ROWS_MAX));
                continue;
            }
            if learns > 0 && rows_left.get() > 0 && self.learn_range(&from, to)? {
                learns -= 1;
                continue;
            }
            learns = 0;
            let mut stopped = false;
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
