//! Ways in which a sorted run of rows can reach flash: what a RAM tier does with rows that it has frozen.
//!
//! All ways are durable on return and leave the same rows. None uses RocksDB's own log. They differ in CPU, in how long
//! they hold up reads, and in who waits when compaction is behind: see `steelyard bench freeze`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rocksdb::{IngestExternalFileOptions, MemtableFactory, SstFileWriter, WriteBatch, WriteOptions, DB};
use storage::{Result, StorageError};

use crate::error::classify;
use crate::options::Options;

/// Rows of one batch into a memtable.
const BATCH_ROWS: usize = 1000;
/// Level 0 is looked at so often while it is full.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A row of a run; without a value it is deleted.
pub type Row = (Bytes, Option<Bytes>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Batches into a memtable that is a skip list, which is then flushed.
    Memtable,
    /// Batches into a memtable that is a vector, sorted as it is flushed. Reads that its filter does not spare sort it,
    /// too: whoever reads must not ask for rows of the run.
    Vector,
    /// A sorted file that is ingested, once level 0 has fewer files than that.
    SortedFile {
        level0_files_max: u64,
        /// A rest after every MiB that is written to the file, so that others get the CPU.
        rest: Option<Duration>,
    },
}

/// How long a freeze took, by what it did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// For room in level 0.
    pub waited: Duration,
    /// Into the memtable or the file.
    pub wrote: Duration,
    /// The flush or the ingest.
    pub published: Duration,
}

/// A database that is written in one of the ways.
pub struct Freezer {
    db: DB,
    way: Way,
    dir: PathBuf,
    options: rocksdb::Options,
    files: AtomicU64,
}

impl Freezer {
    /// `dir` is made, if it is not there.
    pub fn open(dir: &Path, way: Way, options: &Options) -> Result<Freezer> {
        let cache = rocksdb::Cache::new_lru_cache(options.block_cache_size as usize).map_err(classify)?;
        let mut options = options.to_rocksdb(&cache);
        if way == Way::Vector {
            options.set_memtable_factory(MemtableFactory::Vector);
            options.set_allow_concurrent_memtable_write(false);
        }
        let db = DB::open(&options, dir.join("rows")).map_err(classify)?;
        Ok(Freezer { db, way, dir: dir.to_owned(), options, files: AtomicU64::new(0) })
    }

    /// Writes a run: rows in ascending order, none twice, one at least. Durable on return.
    pub fn freeze(&self, run: &[Row]) -> Result<Times> {
        match self.way {
            Way::Memtable | Way::Vector => self.write(run),
            Way::SortedFile { level0_files_max, rest } => self.ingest(run, level0_files_max, rest),
        }
    }

    pub fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let found = self.db.get_pinned(row).map_err(classify)?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// Files in level 0.
    pub fn level0_files(&self) -> Result<u64> {
        let files = self.db.property_int_value("rocksdb.num-files-at-level0").map_err(classify)?;
        files.ok_or_else(|| StorageError::Engine("RocksDB does not count its files".into()))
    }

    fn write(&self, run: &[Row]) -> Result<Times> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        let started = Instant::now();
        for rows in run.chunks(BATCH_ROWS) {
            let mut batch = WriteBatch::default();
            for (row, value) in rows {
                match value {
                    Some(value) => batch.put(row, value),
                    None => batch.delete(row),
                }
            }
            self.db.write_opt(batch, &options).map_err(classify)?;
        }
        let wrote = started.elapsed();
        self.db.flush().map_err(classify)?;
        Ok(Times { waited: Duration::ZERO, wrote, published: started.elapsed() - wrote })
    }

    fn ingest(&self, run: &[Row], level0_files_max: u64, rest: Option<Duration>) -> Result<Times> {
        let started = Instant::now();
        while self.level0_files()? >= level0_files_max {
            std::thread::sleep(LOOK_EVERY);
        }
        let waited = started.elapsed();
        let path = self.dir.join(format!("run-{}.sst", self.files.fetch_add(1, Ordering::Relaxed)));
        let mut file = SstFileWriter::create(&self.options);
        file.open(&path).map_err(classify)?;
        let mut bytes = 0;
        for (row, value) in run {
            match value {
                Some(value) => file.put(row, value),
                None => file.delete(row),
            }
            .map_err(classify)?;
            bytes += row.len() + value.as_ref().map_or(0, Bytes::len);
            if let Some(rest) = rest.filter(|_| bytes >= 1 << 20) {
                bytes = 0;
                std::thread::sleep(rest);
            }
        }
        file.finish().map_err(classify)?;
        let wrote = started.elapsed() - waited;
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        self.db.ingest_external_file_opts(&options, vec![&path]).map_err(classify)?;
        Ok(Times { waited, wrote, published: started.elapsed() - waited - wrote })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const WAYS: [Way; 4] = [
        Way::Memtable,
        Way::Vector,
        Way::SortedFile { level0_files_max: 3, rest: None },
        Way::SortedFile { level0_files_max: 3, rest: Some(Duration::from_micros(1)) },
    ];

    fn row(key: u64) -> Bytes {
        Bytes::from(format!("row:{key:05}"))
    }

    /// Runs that overlap, with deletions in them; the same for every way.
    fn run(number: u64) -> Vec<Row> {
        let value = |key: u64| match (key + number) % 5 {
            0 => None,
            _ => Some(Bytes::from(vec![b'a' + (number % 26) as u8; 300 + (key % 100) as usize])),
        };
        (0..2000u64)
            .filter(|key| (key * 7 + number * 13) % 3 != 0)
            .map(|key| (row(key), value(key)))
            .collect()
    }

    #[test]
    fn every_way_leaves_the_same_rows_and_they_are_there_after_it_is_opened_again() {
        for way in WAYS {
            let dir = tempfile::tempdir().expect("a directory");
            let options = Options { write_buffer_size: 1 << 20, ..Options::default() };
            let mut model: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
            let freezer = Freezer::open(dir.path(), way, &options).expect("it opens");
            for number in 0..12 {
                let run = run(number);
                freezer.freeze(&run).expect("it is written");
                model.extend(run);
                for (row, value) in model.iter().step_by(97) {
                    assert_eq!(
                        freezer.get(row).expect("it is read"),
                        *value,
                        "{way:?}, run {number}, {row:?}"
                    );
                }
            }
            drop(freezer);
            let again = Freezer::open(dir.path(), way, &options).expect("it opens again");
            for (row, value) in &model {
                assert_eq!(again.get(row).expect("it is read"), *value, "{way:?}, {row:?}");
            }
        }
    }

    #[test]
    fn an_ingest_waits_for_room_in_level_0() {
        let dir = tempfile::tempdir().expect("a directory");
        let way = Way::SortedFile { level0_files_max: 2, rest: None };
        // With so small levels each file is compacted soon.
        let options = Options { level0_file_num_compaction_trigger: 1, ..Options::default() };
        let freezer = Freezer::open(dir.path(), way, &options).expect("it opens");
        for number in 0..20 {
            freezer.freeze(&run(number)).expect("it is written");
            assert!(freezer.level0_files().expect("it is counted") <= 2, "after run {number}");
        }
    }

    #[test]
    fn rows_out_of_order_are_refused_by_a_sorted_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let way = Way::SortedFile { level0_files_max: 2, rest: None };
        let freezer = Freezer::open(dir.path(), way, &Options::default()).expect("it opens");
        let value = Some(Bytes::from_static(b"value"));
        assert!(freezer.freeze(&[(row(2), value.clone()), (row(1), value)]).is_err());
    }
}
