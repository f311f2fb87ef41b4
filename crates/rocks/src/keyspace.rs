//! The flash tier: one RocksDB with one column family and no WAL.
//!
//! The Raft log is the only log. What a crash leaves here is what RocksDB had flushed, and that is always
//! a prefix of the write sets: there is one column family, its memtables are flushed whole and in the
//! order in which they were filled, and a write set goes into one memtable. Each write set carries the
//! applied index of its region, so the rows that survive say where replay starts.
//!
//! RocksDB also flushes on its own when a memtable is full. That makes durable a longer prefix than
//! [`FlashKeyspace::flush`] has reported, which replay, being idempotent by applied index, does not mind.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rocksdb::{properties, Cache, ReadOptions, WriteBatch, WriteOptions, DB};
use storage::{Reader, Result, StorageError, Visit, WriteSet};

use crate::error::classify;
use crate::options::{Options, LEVELS};
use crate::row_cache::RowCache;
use crate::size;
use crate::stats::{self, Stats};

/// A scan that has visited this much is a large one: from there on it reads ahead and leaves the block
/// cache to those that come back for the same rows.
const LARGE_SCAN_BYTES: usize = 256 << 10;
const LARGE_SCAN_READAHEAD_BYTES: usize = 2 << 20;

const FLUSH_POLL: Duration = Duration::from_millis(1);

pub struct FlashKeyspace {
    pub(crate) db: DB,
    pub(crate) rocksdb_options: rocksdb::Options,
    pub(crate) rows: Option<RowCache>,
    written_bytes: AtomicU64,
    /// `written_bytes` when the last completed flush began.
    flushed_bytes: AtomicU64,
}

/// The keyspace at one moment. It never looks into the row cache, which knows only the present.
pub struct View<'a> {
    pub(crate) snapshot: rocksdb::Snapshot<'a>,
}

impl FlashKeyspace {
    /// Opens the keyspace in `dir`, which is made if need be. One process at a time: RocksDB's lock on the
    /// directory refuses a second.
    pub fn open(dir: &Path, options: &Options) -> Result<FlashKeyspace> {
        let capacity = usize::try_from(options.block_cache_size).unwrap_or(usize::MAX);
        let cache = Cache::new_lru_cache(capacity).map_err(classify)?;
        let mut rocksdb_options = options.to_rocksdb(&cache);
        rocksdb_options.enable_statistics();
        let db = DB::open(&rocksdb_options, dir).map_err(classify)?;
        let rows = (options.row_cache_bytes > 0).then(|| RowCache::new(options.row_cache_bytes));
        Ok(FlashKeyspace {
            db,
            rocksdb_options,
            rows,
            written_bytes: AtomicU64::new(0),
            flushed_bytes: AtomicU64::new(0),
        })
    }

    pub fn view(&self) -> View<'_> {
        View { snapshot: self.db.snapshot() }
    }

    /// Writes the set as a whole: ranges go first, then rows are written. Visible at once, durable after the
    /// next [`flush`](Self::flush).
    ///
    /// Of a set whose write failed nothing is visible, and the same set may be written again: RocksDB
    /// refuses writes before it touches the memtable. After [`NoSpace`](storage::StorageError::NoSpace) that succeeds
    /// once there is room, without reopening: see [`flush`](Self::flush).
    pub fn write(&self, writes: &WriteSet) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        match &self.rows {
            Some(rows) => rows.write_through(writes, || self.write_uncached(writes)),
            None => self.write_uncached(writes),
        }
    }

    /// Puts the set into RocksDB. The row cache must be kept true around it.
    pub(crate) fn write_uncached(&self, writes: &WriteSet) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (from, to) in &writes.ranges_deleted {
            // RocksDB refuses an inverted range, and with it the batch.
            if from < to {
                batch.delete_range(&from[..], &to[..]);
            }
        }
        for (row, value) in &writes.rows {
            match value {
                Some(value) => batch.put(row, value),
                None => batch.delete(row),
            }
        }
        let bytes = batch.size_in_bytes() as u64;
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.db.write_opt(batch, &options).map_err(classify)?;
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Makes everything durable that was written before the call, and blocks until it is.
    ///
    /// A caller that wants to know how far its regions' logs may be truncated reads their applied indexes
    /// *before* it calls: all of those rows are then in memtables that this flush writes, be it the one that
    /// the call seals or an older one that RocksDB is writing already, for which the call waits too.
    ///
    /// After [`NoSpace`](storage::StorageError::NoSpace) RocksDB looks for room every few seconds and resumes
    /// by itself, with the memtables as they were: nothing is lost, and nothing need be replayed.
    pub fn flush(&self) -> Result<()> {
        let written = self.written_bytes.load(Ordering::Relaxed);
        flush_memtables(&self.db)?;
        self.flushed_bytes.fetch_max(written, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes written since the last completed flush began: what a flush schedule goes by.
    pub fn unflushed_bytes(&self) -> u64 {
        let written = self.written_bytes.load(Ordering::Relaxed);
        written.saturating_sub(self.flushed_bytes.load(Ordering::Relaxed))
    }

    /// The present value of a row that is in the row cache; `None` when it is not, whether it exists or not.
    /// RocksDB is not touched.
    pub fn get_if_cached(&self, row: &[u8]) -> Option<Bytes> {
        self.rows.as_ref()?.get_if_cached(row)
    }

    /// The same for whoever only asks whether to read the row: no hit is counted.
    pub fn peek(&self, row: &[u8]) -> Option<Bytes> {
        self.rows.as_ref()?.peek(row)
    }

    /// A point read of the present state, from the row cache when it holds the row.
    pub fn get_cached(&self, row: &[u8]) -> Result<Option<Bytes>> {
        match &self.rows {
            Some(rows) => rows.get_or_read(row, || self.get_uncached(row)),
            None => self.get_uncached(row),
        }
    }

    fn get_uncached(&self, row: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.db.get_pinned(row).map_err(classify)?.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// Estimates, for each range `from..to`, the bytes of SST files that hold it. Memtables do not count.
    /// Costs a walk over all files, so ask for many ranges at once.
    pub fn approximate_sizes(&self, ranges: &[(Bytes, Bytes)]) -> Result<Vec<u64>> {
        let files = self.db.live_files().map_err(classify)?;
        Ok(ranges.iter().map(|(from, to)| size::of_range(&files, from, to)).collect())
    }

    pub fn stats(&self) -> Result<Stats> {
        let mut stats = stats::read(&self.db, &self.rocksdb_options, LEVELS)?;
        if let Some(rows) = &self.rows {
            (stats.row_cache_bytes, stats.row_cache_hits, stats.row_cache_misses) = rows.usage();
        }
        Ok(stats)
    }
}

/// The present state. Point reads may be served by the row cache; a scan sees one moment.
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

impl Reader for FlashKeyspace {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        self.get_cached(row)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.view().scan(from, to, visit)
    }
}

impl Reader for View<'_> {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let value = self.snapshot.get_pinned(row).map_err(classify)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        match self.scan_part(from, to, LARGE_SCAN_BYTES, ReadOptions::default(), visit)? {
            None => Ok(()),
            Some(resume) => self.scan_ahead(&resume, to, visit),
        }
    }
}

impl View<'_> {
    /// A scan that is known to be a large one.
    pub(crate) fn scan_ahead(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(LARGE_SCAN_READAHEAD_BYTES);
        self.scan_part(from, to, usize::MAX, options, visit).map(|_| ())
    }

    /// Scans until the end, a break, or until `limit_bytes` were visited; then gives where to go on.
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
