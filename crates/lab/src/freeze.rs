//! Measures how frozen rows reach flash: a writer freezes run after run while a reader asks for
//! rows of the same database.
//!
//! In every variant the reader leaves out the rows of the run that is being frozen, because in a
//! store the RAM tier answers those. Reads are counted in two ways. *From when they were due* is
//! what a client sees: reads that wait behind a slow one count as slow. *By step* is the time of
//! the call alone, by the writer's step when the call began, with the time that the reader waited
//! for RocksDB's mutex.

mod reader;
mod report;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context};
use bytes::Bytes;
use rocks::freeze::{CompactionPriority, Freezer, Row, Step, Way};
use rocks::Compression;
use serde::{Deserialize, Serialize};

pub use reader::{StepReads, QUANTILES};
pub use report::{report, Report};

/// The rows that are written and read, and the duration.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Number of keys. Before the measurement begins, all of them are in the lowest level and in
    /// the page cache.
    pub keys: u64,
    /// Number of rows of a run.
    pub rows: u64,
    pub value_bytes: usize,
    /// Number of rows frozen per second. `None` for full speed.
    pub rows_per_second: Option<u64>,
    pub reads_per_second: u64,
    pub seconds: u64,
}

/// A way to freeze rows, and the conditions under which it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// The variant's name on the command line.
    pub name: &'static str,
    pub way: Way,
    /// The divisor of the load's number of rows that gives the rows of a run.
    pub run_divisor: u64,
    /// True if compaction and the building of files run at the lowest CPU priority.
    pub low_priority: bool,
}

/// Number of files in level 0 at which an ingest waits. RocksDB slows writers into memtables at 20.
const LEVEL0_FILES_MAX: u64 = 12;
/// The pause of the builder after each MiB. A MiB takes about 2 ms of work, so the builder is busy
/// half of the time.
const REST: Duration = Duration::from_millis(2);
const INGEST: Way =
    Way::SortedFile { level0_files_max: LEVEL0_FILES_MAX, rest: None, stays_in_page_cache: false };
const INGEST_SLICES: Way =
    Way::SortedFile { level0_files_max: LEVEL0_FILES_MAX, rest: Some(REST), stays_in_page_cache: false };
const INGEST_CACHED: Way =
    Way::SortedFile { level0_files_max: LEVEL0_FILES_MAX, rest: None, stays_in_page_cache: true };

const PLAIN: Variant = Variant { name: "", way: Way::Memtable, run_divisor: 1, low_priority: false };

/// All variants.
pub const VARIANTS: [Variant; 8] = [
    Variant { name: "memtable", ..PLAIN },
    Variant { name: "vector", way: Way::Vector, ..PLAIN },
    Variant { name: "vector-low", way: Way::Vector, low_priority: true, ..PLAIN },
    Variant { name: "ingest", way: INGEST, ..PLAIN },
    Variant { name: "ingest-cached", way: INGEST_CACHED, ..PLAIN },
    Variant { name: "ingest-slices", way: INGEST_SLICES, ..PLAIN },
    Variant { name: "ingest-small", way: INGEST, run_divisor: 4, ..PLAIN },
    Variant { name: "ingest-low", way: INGEST, low_priority: true, ..PLAIN },
];

/// The results of one variant under one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub variant: String,
    pub load: Load,
    pub rows_per_second: f64,
    /// CPU time of the process per row in microseconds. It includes the flush and all compaction,
    /// also that after the writer has ended. It excludes the reader and the making of the rows.
    pub cpu_us_per_row: f64,
    /// Bytes given to the file system divided by bytes of rows. It includes all compaction.
    pub write_amplification: f64,
    /// Bytes that the process read from the device divided by bytes of rows. It includes all
    /// compaction.
    pub read_amplification: f64,
    pub level0_files_max: u64,
    pub freezes: u64,
    /// Seconds for which the writer was held up, by RocksDB's stalls or by the limit on level 0.
    pub stalled_s: f64,
    /// Seconds of compaction after the writer had ended.
    pub settled_s: f64,
    /// Microseconds of reads from when they were due, at [`QUANTILES`].
    pub read_us: [f64; QUANTILES.len()],
    /// Reads by the step of the writer, in the order of [`STEPS`].
    pub steps: Vec<StepReads>,
    /// Average number of CPUs that other processes used during the measurement.
    pub other_cpus: f64,
}

/// The steps of the writer. It is between freezes while it makes a run or waits for its pace.
pub const STEPS: [&str; 4] = ["between", "waits", "writes", "publishes"];

/// The writer's step, as the reader sees it.
#[derive(Default)]
struct Now(AtomicU8);

impl Now {
    fn set(&self, step: Option<Step>) {
        let at = match step {
            None => 0,
            Some(Step::Waits) => 1,
            Some(Step::Writes) => 2,
            Some(Step::Publishes) => 3,
        };
        self.0.store(at, Ordering::Release);
    }

    /// Returns an index into [`STEPS`].
    fn get(&self) -> usize {
        usize::from(self.0.load(Ordering::Acquire))
    }
}

/// Minimum size of a memtable in bytes: that of the stores that freeze rows. RocksDB unpins filters
/// of files larger than 1.5 times this size.
const WRITE_BUFFER_BYTES_MIN: u64 = 256 << 20;
/// Maximum time to wait for compaction at the end.
const SETTLE_MAX: Duration = Duration::from_secs(300);
const SETTLE_POLL: Duration = Duration::from_millis(50);
/// Number of times in a row that RocksDB must report no work before it counts as settled.
const SETTLE_LOOKS: u32 = 4;

/// Measures one variant in this process, which should do nothing else. `dir` must be empty.
///
/// # Errors
/// The load is impossible, the database cannot be written, or a row is missing or wrong.
pub fn measure(dir: &Path, name: &str, load: Load) -> anyhow::Result<Measured> {
    let variant = variant(name)?;
    let fill_rows = load.rows;
    let load = Load { rows: load.rows / variant.run_divisor, ..load };
    ensure!(
        load.rows > 0 && load.rows <= load.keys,
        "a run must have at least one row and at most as many rows as there are keys"
    );
    ensure!(load.value_bytes >= 8, "a value must have at least 8 bytes");
    let priority = if variant.low_priority { CompactionPriority::Low } else { CompactionPriority::Normal };
    let freezer = Freezer::open(dir, variant.way, &options(load), priority)?;
    for from in (0..load.keys).step_by(fill_rows as usize) {
        let to = load.keys.min(from + fill_rows);
        freezer.fill(&(from..to).map(|key| row(key, load.value_bytes)).collect::<Vec<Row>>())?;
    }
    settle(&freezer)?;
    warm(dir)?;

    let hidden: Vec<AtomicBool> = (0..load.keys).map(|_| AtomicBool::new(false)).collect();
    let (now, over) = (Now::default(), AtomicBool::new(false));
    let stalled_before = freezer.stats()?.stall_micros;
    let (bytes_before, cpu_before, busy_before) = (bytes_written_and_read()?, process_cpu()?, machine_cpu()?);
    let started = Instant::now();
    let (writer, reader) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| reader::read(&freezer, load, &hidden, &now, &over));
        let writing = scope.spawn(|| {
            let written = writer::write(&freezer, variant, load, &hidden, &now);
            over.store(true, Ordering::Release);
            written
        });
        let written = writing.join().expect("the writer does not panic");
        (written, reading.join().expect("the reader does not panic"))
    });
    let (writer, reader) = (writer?, reader?);
    let elapsed = started.elapsed();
    let other = (machine_cpu()? - busy_before).saturating_sub(process_cpu()? - cpu_before);
    let settling = Instant::now();
    settle(&freezer)?;
    let settled_s = settling.elapsed().as_secs_f64();

    let cpu = (process_cpu()? - cpu_before).saturating_sub(writer.making).saturating_sub(reader.cpu);
    let stalled = Duration::from_micros(freezer.stats()?.stall_micros - stalled_before);
    let row_bytes = writer.rows as f64 * (load.value_bytes + KEY_BYTES) as f64;
    let bytes_after = bytes_written_and_read()?;
    let [written, read] = [0, 1].map(|at| (bytes_after[at] - bytes_before[at]) as f64);
    Ok(Measured {
        variant: name.to_owned(),
        load,
        rows_per_second: writer.rows as f64 / elapsed.as_secs_f64(),
        cpu_us_per_row: cpu.as_secs_f64() * 1e6 / writer.rows as f64,
        write_amplification: written / row_bytes,
        read_amplification: read / row_bytes,
        level0_files_max: writer.level0_files_max,
        freezes: writer.freezes,
        stalled_s: (stalled + writer.in_step[1]).as_secs_f64(),
        settled_s,
        read_us: reader.due_us(),
        steps: reader.steps(&writer.in_step),
        other_cpus: other.as_secs_f64() / elapsed.as_secs_f64(),
    })
}

/// Returns the variant with a name.
///
/// # Errors
/// There is no such variant. The error lists all names.
pub fn variant(name: &str) -> anyhow::Result<&'static Variant> {
    VARIANTS.iter().find(|variant| variant.name == name).with_context(|| {
        let names = VARIANTS.map(|variant| variant.name).join(", ");
        format!("there is no variant '{name}'; the variants are {names}")
    })
}

/// Returns the options of every variant. A run fits into one memtable, and nothing is compressed.
fn options(load: Load) -> rocks::Options {
    let run_bytes = load.rows * (load.value_bytes as u64 + 64);
    rocks::Options {
        write_buffer_size: (2 * run_bytes).max(WRITE_BUFFER_BYTES_MIN),
        compression_per_level: vec![Compression::None],
        ..rocks::Options::default()
    }
}

/// Reads all files once, so that every variant begins with the same pages in the page cache, as far
/// as they fit.
fn warm(dir: &Path) -> anyhow::Result<()> {
    let database = dir.join("rows");
    let entries = std::fs::read_dir(&database).with_context(|| database.display().to_string())?;
    for entry in entries {
        let mut file = std::fs::File::open(entry?.path())?;
        std::io::copy(&mut file, &mut std::io::sink())?;
    }
    Ok(())
}

/// Waits until RocksDB has no compaction left to do, for at most [`SETTLE_MAX`].
pub fn settle(freezer: &Freezer) -> anyhow::Result<()> {
    let (started, mut quiet) = (Instant::now(), 0);
    while quiet < SETTLE_LOOKS && started.elapsed() < SETTLE_MAX {
        let stats = freezer.stats()?;
        let is_busy = stats.running_compactions + stats.running_flushes + stats.compaction_pending_bytes > 0;
        quiet = if is_busy { 0 } else { quiet + 1 };
        std::thread::sleep(SETTLE_POLL);
    }
    Ok(())
}

const KEY_BYTES: usize = 16;

/// Returns a key. Keys sort in the order of their numbers.
fn key(number: u64) -> Bytes {
    Bytes::from(format!("{number:0KEY_BYTES$}"))
}

fn row(number: u64, value_bytes: usize) -> Row {
    let mut value = vec![b'.'; value_bytes];
    value[..8].copy_from_slice(&number.to_be_bytes());
    (key(number), Some(Bytes::from(value)))
}

/// Returns the CPU time of the calling thread.
fn thread_cpu() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").context("the thread's CPU time")?;
    let nanos = stat.split_ascii_whitespace().next().and_then(|field| field.parse().ok());
    Ok(Duration::from_nanos(nanos.context("the thread's CPU time is a number")?))
}

/// Returns the CPU time of all threads of this process, including those that have ended.
fn process_cpu() -> anyhow::Result<Duration> {
    crate::measure::cpu_time(std::process::id()).context("the process's CPU time")
}

fn machine_cpu() -> anyhow::Result<Duration> {
    crate::measure::machine_busy_time().context("the machine's CPU time")
}

/// Returns the bytes that this process has given to the file system by write calls, and the bytes
/// that it has read from a device. The kernel's own count of written bytes is not used, because it
/// counts whole large folios.
fn bytes_written_and_read() -> anyhow::Result<[u64; 2]> {
    let io = std::fs::read_to_string("/proc/self/io").context("the process's bytes")?;
    let count = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name)).context("bytes are counted")?;
        anyhow::Ok(line.trim().parse::<u64>()?)
    };
    Ok([count("wchar: ")?, count("read_bytes: ")?])
}

#[cfg(test)]
mod tests;
