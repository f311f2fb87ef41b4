//! Ways to write a sorted run of rows to flash, as a RAM tier does with its frozen rows.
//!
//! Every way makes the run durable before it returns, writes no WAL, and leaves the same rows. The
//! ways differ in CPU time, in how they disturb reads, and in which thread waits while compaction
//! is behind. `steelyard bench freeze` measures them.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rocksdb::perf::{set_perf_stats, PerfContext, PerfMetric, PerfStatsLevel};
use rocksdb::{properties, Env, MemtableFactory, WriteBatch, DB};
use storage::{Result, StorageError};

use crate::error::{classify, classify_sst};
use crate::flush::{clear, flush_memtables, int_property, write};
use crate::ingest;
use crate::options::{Options, LEVELS};
use crate::stats::{self, Stats};

/// Number of rows in one batch into a memtable.
const BATCH_ROWS: usize = 1000;
/// Interval at which an ingest that waits for compaction checks level 0.
const COMPACTION_POLL: Duration = Duration::from_millis(5);
const LEVEL0_FILES: &CStr = c"rocksdb.num-files-at-level0";

/// A row of a run: its key and its value. A row without a value is a deletion.
pub type Row = (Bytes, Option<Bytes>);

/// A way in which a run reaches level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Batches into a skip-list memtable, then a flush.
    Memtable,
    /// Batches into a vector memtable, then a flush, which sorts it.
    ///
    /// A read that passes the memtable's filter sorts a copy of the vector. rust-rocksdb 0.20.1
    /// does not expose the read tier that skips memtables, so the caller must not read rows of the
    /// run until the freeze returns.
    Vector,
    /// A sorted file, then its ingest.
    SortedFile {
        /// Number of level 0 files at which an ingest waits. RocksDB itself never delays an ingest.
        level0_files_max: u64,
        /// The builder's pause after each MiB of rows, which leaves the CPU to other threads.
        /// `None` builds without pauses.
        rest: Option<Duration>,
        /// True if the pages of the file stay in the page cache. Otherwise they are dropped, as by
        /// RocksDB's own writer, and reads and compaction fetch them from the device again.
        stays_in_page_cache: bool,
    },
}

/// The CPU priority of compaction threads. RocksDB shares these threads among all databases of the
/// process, so a lowered priority applies to all databases and stays in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionPriority {
    Normal,
    Low,
}

/// A step of a freeze; the steps happen in this order. Only a sorted file has [`Step::Waits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waits until compaction has made room in level 0.
    Waits,
    /// Writes rows into the memtable or the file.
    Writes,
    /// Flushes the memtable or ingests the file. Afterwards the run is durable and readable.
    Publishes,
}

/// A RocksDB database that accepts runs in one of the ways. One thread freezes at a time; any
/// number of threads may read.
pub struct Freezer {
    db: DB,
    way: Way,
    /// Directory of the files that are not ingested yet.
    runs: PathBuf,
    options: rocksdb::Options,
    format: sst::Format,
    pending_compaction_bytes_max: u64,
    files: AtomicU64,
}

impl Freezer {
    /// Opens the database in `dir`, which is created if it is missing.
    ///
    /// # Errors
    /// If RocksDB cannot open the database, or if level 0's bound is below the number of files at
    /// which compaction begins, so that an ingest would wait forever.
    pub fn open(dir: &Path, way: Way, options: &Options, priority: CompactionPriority) -> Result<Freezer> {
        if let Way::SortedFile { level0_files_max, .. } = way {
            let trigger = options.level0_file_num_compaction_trigger;
            if level0_files_max < trigger || options.disable_auto_compactions {
                let text = format!(
                    "no compaction would make room below {level0_files_max} files (it begins at {trigger})"
                );
                return Err(StorageError::Engine(text));
            }
        }
        let pending_compaction_bytes_max = options.soft_pending_compaction_bytes_limit;
        let format = options.flush_format();
        let capacity = usize::try_from(options.block_cache_size).unwrap_or(usize::MAX);
        let cache = rocksdb::Cache::new_lru_cache(capacity).map_err(classify)?;
        let mut options = options.to_rocksdb(&cache);
        options.enable_statistics();
        if way == Way::Vector {
            options.set_memtable_factory(MemtableFactory::Vector);
            options.set_allow_concurrent_memtable_write(false);
        }
        if priority == CompactionPriority::Low {
            let mut env = Env::new().map_err(classify)?;
            env.lower_thread_pool_cpu_priority();
            options.set_env(&env);
        }
        let runs = dir.join("runs");
        clear(&runs)?;
        let db = DB::open(&options, dir.join("rows")).map_err(classify)?;
        let files = AtomicU64::new(0);
        Ok(Freezer { db, way, runs, options, format, pending_compaction_bytes_max, files })
    }

    /// Writes a run of at least one row, with ascending and distinct keys. The run is durable on
    /// return.
    ///
    /// `observe` is called at the beginning of each step. A crash during a freeze may leave a
    /// prefix of the run if the run is larger than a memtable. A sorted file is either there as a
    /// whole or not at all.
    ///
    /// # Errors
    /// If RocksDB refuses the write, or a sorted file gets rows out of order. The run may be frozen
    /// again.
    pub fn freeze(&self, run: &[Row], observe: &mut dyn FnMut(Step)) -> Result<()> {
        match self.way {
            Way::Memtable | Way::Vector => {
                observe(Step::Writes);
                self.write(run)?;
                observe(Step::Publishes);
                flush_memtables(&self.db)
            }
            Way::SortedFile { level0_files_max, rest, stays_in_page_cache } => {
                observe(Step::Waits);
                self.wait_for_compaction(level0_files_max)?;
                let format = sst::Format { stays_in_page_cache, ..self.format };
                self.freeze_into_file(run, &format, rest, observe)
            }
        }
    }

    /// Ingests a run as a sorted file, whatever the database's way is. Used to fill a database: if
    /// nothing overlaps the run, it goes to the lowest level at once.
    ///
    /// # Errors
    /// Same as [`freeze`](Self::freeze).
    pub fn fill(&self, run: &[Row]) -> Result<()> {
        self.freeze_into_file(run, &self.format, None, &mut |_| ())
    }

    /// Returns the row's value, or `None` if there is no such row.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.db.get_pinned(key).map_err(classify)?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// Returns the number of files in level 0.
    pub fn level0_files(&self) -> Result<u64> {
        int_property(&self.db, LEVEL0_FILES)
    }

    /// Returns RocksDB's statistics. The fields of the row cache are 0.
    pub fn stats(&self) -> Result<Stats> {
        stats::read(&self.db, &self.options, LEVELS)
    }

    fn write(&self, run: &[Row]) -> Result<()> {
        for rows in run.chunks(BATCH_ROWS) {
            let mut batch = WriteBatch::default();
            for (key, value) in rows {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                }
            }
            write(&self.db, batch)?;
        }
        Ok(())
    }

    fn wait_for_compaction(&self, level0_files_max: u64) -> Result<()> {
        let pending = || int_property(&self.db, properties::ESTIMATE_PENDING_COMPACTION_BYTES);
        while self.level0_files()? >= level0_files_max || pending()? > self.pending_compaction_bytes_max {
            std::thread::sleep(COMPACTION_POLL);
        }
        Ok(())
    }

    fn freeze_into_file(
        &self,
        run: &[Row],
        format: &sst::Format,
        rest: Option<Duration>,
        observe: &mut dyn FnMut(Step),
    ) -> Result<()> {
        let path = self.runs.join(format!("{}.sst", self.files.fetch_add(1, Ordering::Relaxed)));
        observe(Step::Writes);
        let frozen = build(&path, format, run, rest).and_then(|()| {
            observe(Step::Publishes);
            ingest::ingest(&self.db, vec![path.clone()], true)
        });
        // The database has its own link or copy by now, or none. If the file cannot be removed
        // here, the next start removes it.
        let _ = fs::remove_file(&path);
        frozen
    }
}

fn build(path: &Path, format: &sst::Format, run: &[Row], rest: Option<Duration>) -> Result<()> {
    let mut file = sst::Writer::create(path, format).map_err(classify_sst)?;
    let rows = run.iter().map(|(key, value)| (key, value));
    ingest::write_rows(&mut file, rows, |_| {
        rest.into_iter().for_each(std::thread::sleep);
        Ok(())
    })?;
    file.finish().map_err(classify_sst)
}

/// Measurement of the time for which the calling thread waits for the mutex of any RocksDB
/// database. It cannot be sent to another thread.
pub struct MutexWait(PerfContext);

impl MutexWait {
    /// Starts a measurement. From then on RocksDB reads the clock more often on this thread.
    pub fn measure() -> MutexWait {
        set_perf_stats(PerfStatsLevel::EnableTime);
        let mut context = PerfContext::default();
        context.reset();
        MutexWait(context)
    }

    /// Returns the time that the thread has waited since the last call.
    pub fn take(&mut self) -> Duration {
        let waited = Duration::from_nanos(self.0.metric(PerfMetric::DbMutexLockNanos));
        self.0.reset();
        waited
    }
}

impl Drop for MutexWait {
    fn drop(&mut self) {
        set_perf_stats(PerfStatsLevel::Disable);
    }
}
