//! RocksDB alone, without a RAM tier: for measurements of its knobs.
//!
//! There are two ways to write. Puts go through RocksDB's own memtable, without its WAL. Sorted
//! runs become files that are ingested, as flushes of a [`Keyspace`](crate::Keyspace) do. A run
//! waits where a flush waits: while RocksDB has stopped or delayed its writers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rocksdb::{properties, ReadOptions, WriteBatch, WriteOptions, DB};
use storage::{Result, StorageError};

use crate::error::{classify, classify_sst};
use crate::flush::{clear, flush_memtables, int_property, write};
use crate::ingest;
use crate::options::{Options, LEVELS};
use crate::stats::{self, Stats};

/// Interval at which a delayed ingest looks whether compaction has caught up.
const DELAY_POLL: Duration = Duration::from_millis(5);

/// Options of a bare database. Those outside of `options` are not options of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub options: Options,
    /// Maximum number of compactions at a time, instead of a part of `max_background_jobs`.
    pub max_background_compactions: Option<u64>,
    /// Maximum number of memtables, and the number of full ones that are flushed together.
    pub memtables: Option<[u64; 2]>,
    /// RocksDB's `PrepareForBulkLoad`, which turns compaction off.
    pub bulk_load: bool,
}

/// A database without a RAM tier. Any number of threads may use it, but one at a time may ingest.
pub struct Bare {
    db: DB,
    options: rocksdb::Options,
    format: sst::Format,
    dir: PathBuf,
    write: WriteOptions,
    files: AtomicU64,
    waited_micros: AtomicU64,
}

impl Bare {
    /// Opens the database in `dir`, which is created if it is missing.
    pub fn open(dir: &Path, setup: &Setup) -> Result<Bare> {
        let capacity = usize::try_from(setup.options.block_cache_size).unwrap_or(usize::MAX);
        let cache = rocksdb::Cache::new_lru_cache(capacity).map_err(classify)?;
        let mut options = setup.options.to_rocksdb(&cache);
        options.enable_statistics();
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        if let Some(compactions) = setup.max_background_compactions {
            // RocksDB uses both numbers or none of them.
            #[allow(deprecated)]
            options.set_max_background_flushes(1);
            #[allow(deprecated)]
            options.set_max_background_compactions(i32::try_from(compactions).unwrap_or(i32::MAX));
        }
        if let Some([count, together]) = setup.memtables {
            options.set_max_write_buffer_number(i32::try_from(count).unwrap_or(i32::MAX));
            options.set_min_write_buffer_number_to_merge(i32::try_from(together).unwrap_or(i32::MAX));
        }
        if setup.bulk_load {
            options.prepare_for_bulk_load();
        }
        clear(&dir.join("runs"))?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        Ok(Bare {
            db: DB::open(&options, dir.join("rows")).map_err(classify)?,
            options,
            format: setup.options.flush_format(),
            dir: dir.to_owned(),
            write,
            files: AtomicU64::new(0),
            waited_micros: AtomicU64::new(0),
        })
    }

    /// Writes a row through the memtable.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put_opt(key, value, &self.write).map_err(classify)
    }

    /// Makes a sorted run of rows with distinct keys part of the database.
    pub fn ingest(&self, run: &[(Bytes, Option<Bytes>)]) -> Result<()> {
        // An empty batch waits while writers are stopped.
        let started = Instant::now();
        write(&self.db, WriteBatch::default())?;
        self.waited(started.elapsed());
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join("runs").join(format!("{number}.sst"));
        let mut file = sst::Writer::create(&path, &self.format).map_err(classify_sst)?;
        let rows = run.iter().map(|(key, value)| (key, value));
        ingest::write_rows(&mut file, rows, |bytes| self.delay(bytes))?;
        file.finish().map_err(classify_sst)?;
        let ingested = ingest::ingest(&self.db, vec![path.clone()], true);
        // The database has its own link by now.
        let _ = fs::remove_file(&path);
        ingested
    }

    /// Waits for as long as RocksDB would delay a writer of as many bytes.
    fn delay(&self, bytes: u64) -> Result<()> {
        let mut left = bytes as f64;
        while left > 0.0 {
            let rate = int_property(&self.db, properties::ACTUAL_DELAYED_WRITE_RATE)? as f64;
            if rate == 0.0 {
                break;
            }
            let delay = Duration::from_secs_f64(left / rate).min(DELAY_POLL);
            std::thread::sleep(delay);
            left -= delay.as_secs_f64() * rate;
            self.waited(delay);
        }
        Ok(())
    }

    fn waited(&self, time: Duration) {
        self.waited_micros.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Returns the time for which ingests waited. Puts count in [`Stats::stall_micros`].
    pub fn ingest_waited(&self) -> Duration {
        Duration::from_micros(self.waited_micros.load(Ordering::Relaxed))
    }

    /// Makes all puts durable.
    pub fn flush(&self) -> Result<()> {
        flush_memtables(&self.db)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.db.get_pinned(key).map_err(classify)?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// Visits all rows in the order of their keys, until `visit` returns false.
    pub fn scan(&self, readahead_bytes: usize, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut read = ReadOptions::default();
        read.fill_cache(false);
        read.set_readahead_size(readahead_bytes);
        let mut rows = self.db.raw_iterator_opt(read);
        rows.seek_to_first();
        while let Some((key, value)) = rows.item() {
            if !visit(key, value) {
                break;
            }
            rows.next();
        }
        rows.status().map_err(classify)
    }

    /// Returns RocksDB's statistics. The fields of the row cache are 0.
    pub fn stats(&self) -> Result<Stats> {
        stats::read(&self.db, &self.options, LEVELS)
    }

    /// Returns the bytes of indexes and filters in memory.
    pub fn table_reader_bytes(&self) -> Result<u64> {
        int_property(&self.db, properties::ESTIMATE_TABLE_READERS_MEM)
    }

    /// Returns all options that RocksDB uses, as it has written them to its OPTIONS file.
    pub fn options_in_use(&self) -> Result<BTreeMap<String, String>> {
        let rows = self.dir.join("rows");
        let failed = |error: std::io::Error| StorageError::Engine(format!("{}: {error}", rows.display()));
        let mut files = Vec::new();
        for entry in fs::read_dir(&rows).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let number = name.strip_prefix("OPTIONS-").and_then(|number| number.parse::<u64>().ok());
            files.extend(number.map(|number| (number, path.clone())));
        }
        let (_, newest) =
            files.into_iter().max().ok_or_else(|| StorageError::Engine("there is no OPTIONS file".into()))?;
        Ok(parse(&fs::read_to_string(newest).map_err(failed)?))
    }
}

/// Reads the lines `name=value` of an OPTIONS file.
fn parse(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.trim().split_once('='));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        let options = Options { write_buffer_size: 64 << 10, ..Options::default() };
        Setup { options, max_background_compactions: Some(3), memtables: Some([6, 2]), bulk_load: false }
    }

    fn rows(numbers: std::ops::Range<u32>, value: &'static str) -> Vec<(Bytes, Option<Bytes>)> {
        numbers.map(|n| (Bytes::from(format!("{n:08}")), Some(Bytes::from(value)))).collect()
    }

    #[test]
    fn both_ways_of_writing_leave_the_same_rows() {
        let dir = tempfile::tempdir().unwrap();
        let bare = Bare::open(dir.path(), &setup()).unwrap();
        for (key, value) in rows(0..100, "put") {
            bare.put(&key, &value.unwrap()).unwrap();
        }
        bare.flush().unwrap();
        bare.ingest(&rows(50..150, "ingested")).unwrap();
        let mut found = Vec::new();
        bare.scan(0, |key, value| {
            found.push((Bytes::copy_from_slice(key), Some(Bytes::copy_from_slice(value))));
            true
        })
        .unwrap();
        let mut wanted = rows(0..50, "put");
        wanted.extend(rows(50..150, "ingested"));
        assert_eq!(found, wanted);
        assert_eq!(bare.get(b"00000049").unwrap().unwrap(), "put");
        assert_eq!(bare.get(b"00000150").unwrap(), None);
        assert!(bare.table_reader_bytes().unwrap() > 0);
        // A flushed row needs no log.
        drop(bare);
        let again = Bare::open(dir.path(), &setup()).unwrap();
        assert_eq!(again.get(b"00000007").unwrap().unwrap(), "put");
    }

    #[test]
    fn options_are_read_back_as_rocksdb_uses_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut setup = setup();
        setup.options.use_direct_reads = true;
        setup.options.compaction_readahead_size = 0;
        setup.options.level0_slowdown_writes_trigger = 33;
        let bare = Bare::open(dir.path(), &setup).unwrap();
        let used = bare.options_in_use().unwrap();
        assert_eq!(used["level0_slowdown_writes_trigger"], "33");
        assert_eq!(used["max_background_compactions"], "3");
        assert_eq!(used["min_write_buffer_number_to_merge"], "2");
        // RocksDB replaces this value, which is why it is read back.
        assert_eq!(used["compaction_readahead_size"], "2097152");
    }

    #[test]
    fn bulk_load_turns_compaction_off() {
        let dir = tempfile::tempdir().unwrap();
        let bare = Bare::open(dir.path(), &Setup { bulk_load: true, ..setup() }).unwrap();
        assert_eq!(bare.options_in_use().unwrap()["disable_auto_compactions"], "true");
    }
}
