//! Flushes: frozen memtables become SST files that RocksDB ingests.
//!
//! An ingest is atomic, so a frozen memtable is on flash as a whole or not at all. It needs no
//! second copy of the rows in memory, as a batch into RocksDB's own memtable would. That memtable
//! stays empty but for the range deletions before a snapshot's ingest and during a repair.
//!
//! RocksDB delays writers while compaction is behind, but it delays no ingest. So a flush observes
//! RocksDB's limits itself, and slows down [evenly](crate::pace) between them.

use std::cell::Cell;
use std::ffi::CStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rocksdb::{properties, WriteBatch, WriteOptions, DB};
use storage::tier::Memtable;
use storage::{Result, StorageError};

use crate::error::{classify, classify_sst};
use crate::ingest;
use crate::options::Options;
use crate::pace::{Debt, Pace};

/// Interval at which a delayed flush looks whether compaction has caught up.
const DELAY_POLL: Duration = Duration::from_millis(10);
const FLUSH_POLL: Duration = Duration::from_millis(1);
/// A row that does not exist, before all rows.
const NO_ROW: &[u8] = b"\0";

/// The files of flushes, and what must happen before each flush.
pub(crate) struct Flusher {
    /// The directory of files that are not ingested yet.
    dir: PathBuf,
    format: Mutex<sst::Format>,
    /// True if RocksDB can link a file, so that the rows are not written twice.
    links: bool,
    /// Every change of RocksDB holds this lock.
    changing: Mutex<()>,
    before_flush: Option<BeforeFlush>,
    files: AtomicU64,
    /// Microseconds that flushes slept because compaction was behind.
    delayed_micros: AtomicU64,
    /// Bytes that flushes wrote to the device.
    written_bytes: AtomicU64,
}

type BeforeFlush = Box<dyn Fn() -> Result<()> + Send + Sync>;

impl Flusher {
    /// Removes files that a crash left in `dir` and creates the directory if it is missing.
    pub(crate) fn new(dir: PathBuf, format: sst::Format) -> Result<Flusher> {
        clear(&dir)?;
        let links = ingest::has_hard_links(&dir).map_err(|error| io(&dir, &error))?;
        Ok(Flusher {
            dir,
            format: Mutex::new(format),
            links,
            changing: Mutex::new(()),
            before_flush: None,
            files: AtomicU64::new(0),
            delayed_micros: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        })
    }

    /// Returns true if the database can link the files that it ingests.
    pub(crate) fn links(&self) -> bool {
        self.links
    }

    pub(crate) fn delayed_micros(&self) -> u64 {
        self.delayed_micros.load(Ordering::Relaxed)
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Sets the format of files that are written from now on.
    pub(crate) fn set_format(&self, format: sst::Format) {
        *self.format.lock() = format;
    }

    pub(crate) fn before_flush(&mut self, first: impl Fn() -> Result<()> + Send + Sync + 'static) {
        self.before_flush = Some(Box::new(first));
    }

    /// Blocks every change of RocksDB by others while the guard is held.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Must be called between the freeze of the memtables of a flush and their ingest.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.before_flush.as_ref().map_or(Ok(()), |first| first())
    }

    /// Makes a frozen memtable that is not empty durable in RocksDB, in one atomic step.
    pub(crate) fn ingest(
        &self,
        db: &DB,
        memtable: &Memtable,
        debt: &dyn Fn() -> Result<Debt>,
        pace: &Pace,
    ) -> Result<()> {
        // RocksDB handles an empty batch as any other: it waits while writers are stopped, and
        // returns the error that a background thread has met.
        write(db, WriteBatch::default())?;
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("{number}.sst"));
        let built = self.build(&path, memtable, debt, pace);
        let bytes = fs::metadata(&path).map_or(0, |file| file.len());
        // Without links RocksDB writes the file again.
        let copies = if self.links { 1 } else { 2 };
        self.written_bytes.fetch_add(bytes * copies, Ordering::Relaxed);
        let ingested = built.and_then(|()| ingest::ingest(db, vec![path.clone()], self.links));
        // RocksDB has its own link or copy by now, or none. A file that cannot be removed here is
        // removed at the next start.
        let _ = fs::remove_file(&path);
        ingested
    }

    fn build(
        &self,
        path: &Path,
        memtable: &Memtable,
        debt: &dyn Fn() -> Result<Debt>,
        pace: &Pace,
    ) -> Result<()> {
        let format = *self.format.lock();
        let mut file = sst::Writer::create(path, &format).map_err(classify_sst)?;
        for (from, to) in memtable.ranges() {
            file.delete_range(from, to).map_err(classify_sst)?;
        }
        let (row_count, done) = (memtable.len().max(1) as f64, Cell::new(0u64));
        let rows = memtable.rows().inspect(|_| done.set(done.get() + 1));
        ingest::write_rows(&mut file, rows, |bytes| {
            pace.flushed(done.get() as f64 / row_count, 0.0);
            self.delay(bytes, debt)
        })?;
        file.finish().map_err(classify_sst)
    }

    /// Waits as long as the [debt](Debt) demands after so many bytes.
    fn delay(&self, bytes: u64, debt: &dyn Fn() -> Result<Debt>) -> Result<()> {
        let mut left = bytes as f64;
        while left > 0.0 {
            let Some(rate) = debt()?.flush_rate() else { break };
            let delay = Duration::from_secs_f64(left / rate).min(DELAY_POLL);
            std::thread::sleep(delay);
            left -= delay.as_secs_f64() * rate;
            self.delayed_micros.fetch_add(delay.as_micros() as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Returns the compaction that RocksDB owes.
pub(crate) fn debt(db: &DB, options: &Options) -> Result<Debt> {
    let files = db.property_value(properties::num_files_at_level(0)).map_err(classify)?;
    let level0_files = files.and_then(|text| text.parse().ok()).unwrap_or(0);
    let pending_bytes = int_property(db, properties::ESTIMATE_PENDING_COMPACTION_BYTES)?;
    Ok(Debt::new(level0_files, pending_bytes, options))
}

/// Writes a batch into RocksDB's own memtable.
pub(crate) fn write(db: &DB, batch: WriteBatch) -> Result<()> {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    db.write_opt(batch, &options).map_err(classify)
}

/// Makes sure that no snapshot gets the sequence number 0 in a database whose rows may have it,
/// because an older program ingested them.
pub(crate) fn leave_first_sequence_number(db: &DB) -> Result<()> {
    if db.latest_sequence_number() > 0 || db.live_files().map_err(classify)?.is_empty() {
        return Ok(());
    }
    let mut batch = WriteBatch::default();
    batch.delete(NO_ROW);
    write(db, batch)
}

pub(crate) fn delete_ranges(batch: &mut WriteBatch, ranges: &[(Bytes, Bytes)]) {
    // RocksDB refuses an inverted range, and with it the whole batch.
    for (from, to) in ranges.iter().filter(|(from, to)| from < to) {
        batch.delete_range(&from[..], &to[..]);
    }
}

/// Makes RocksDB's own memtables durable, and blocks until they are.
///
/// RocksDB's own flush seals the memtable and waits for it. But after it has recovered from a
/// background error, it returns before the memtable is written and reports success (7.8: the wait
/// ends early for as long as the error of the last recovery is remembered). So after any background
/// error this function itself waits until no sealed memtable is left. Sealed memtables are written
/// oldest first, and leave the list once the manifest names their file.
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

/// Returns the value of an integer property of RocksDB, by its name.
pub(crate) fn int_property(db: &DB, name: &CStr) -> Result<u64> {
    let value = db.property_int_value(name).map_err(classify)?;
    value.ok_or_else(|| StorageError::Engine(format!("RocksDB does not know its property {name:?}")))
}

/// Empties or creates a directory. A file that a crash left there may be a hard link to a table of
/// the database, so it must not be overwritten.
pub(crate) fn clear(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io(dir, &error)),
        _ => fs::create_dir_all(dir).map_err(|error| io(dir, &error)),
    }
}

fn io(path: &Path, error: &std::io::Error) -> StorageError {
    match error.kind() {
        ErrorKind::StorageFull => StorageError::NoSpace(format!("{}: {error}", path.display())),
        _ => StorageError::Engine(format!("{}: {error}", path.display())),
    }
}
