//! How frozen rows reach flash, measured: a writer freezes run after run, and a reader asks for rows on the same database.
//!
//! The reader leaves out rows of the run that is being written, in all ways alike: in a store the RAM tier answers those.

mod report;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context};
use bytes::Bytes;
use hdrhistogram::Histogram;
use rocks::freeze::{Freezer, Row, Way};
use serde::{Deserialize, Serialize};

pub use report::{report, Report};

/// What is written and read, and for how long.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Rows are drawn from so many keys, all of which are there before the measurement begins.
    pub keys: u64,
    /// Of a run.
    pub rows: u64,
    pub value_bytes: usize,
    /// Rows that are frozen per second; none: as fast as it goes.
    pub rows_per_second: Option<u64>,
    pub reads_per_second: u64,
    pub seconds: u64,
}

/// The ways that are compared, by their names on the command line.
pub const WAYS: [(&str, Way); 4] = [
    ("memtable", Way::Memtable),
    ("vector", Way::Vector),
    ("ingest", Way::SortedFile { level0_files_max: 12, rest: None }),
    ("ingest-slices", Way::SortedFile { level0_files_max: 12, rest: Some(Duration::from_millis(2)) }),
];

/// What one way did under one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub way: String,
    pub load: Load,
    pub rows_per_second: f64,
    /// Of the whole process, flush and compaction included; without the reader, and without making the rows.
    pub cpu_us_per_row: f64,
    /// Bytes given to the file system over bytes of rows.
    pub write_amplification: f64,
    pub level0_files_max: u64,
    /// Seconds that freezes waited for room in level 0, wrote, and flushed or ingested.
    pub waited_s: f64,
    pub wrote_s: f64,
    pub published_s: f64,
    pub reads: u64,
    /// Microseconds.
    pub read_us: [f64; 5],
}

/// Of `Measured::read_us`.
pub const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];

/// Writes and reads in `dir`, which is empty, in this process alone.
pub fn measure(dir: &Path, name: &str, load: Load) -> anyhow::Result<Measured> {
    let (_, way) = WAYS.iter().find(|(known, _)| *known == name).context("a way that is not known")?;
    ensure!(load.rows > 0 && load.rows <= load.keys, "a run has rows, and no more than there are keys");
    ensure!(load.value_bytes >= 8, "a value has 8 bytes at least");
    // A run fits into one memtable, in all ways.
    let run_bytes = load.rows * (load.value_bytes as u64 + 64);
    let write_buffer_size = (2 * run_bytes).max(64 << 20);
    let options = rocks::Options { write_buffer_size, ..rocks::Options::default() };
    let freezer = Freezer::open(dir, *way, &options)?;
    for from in (0..load.keys).step_by(load.rows as usize) {
        let rows: Vec<Row> =
            (from..load.keys.min(from + load.rows)).map(|key| row(key, load.value_bytes)).collect();
        freezer.freeze(&rows)?;
    }
    let hidden: Vec<AtomicBool> = (0..load.keys).map(|_| AtomicBool::new(false)).collect();
    let over = AtomicBool::new(false);
    let written_before = bytes_written()?;
    let cpu_before = process_cpu()?;
    let started = Instant::now();
    let (frozen, reader) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&freezer, load, &hidden, &over));
        let frozen = freeze(&freezer, load, &hidden);
        over.store(true, Ordering::Release);
        (frozen, reading.join().expect("the reader does not panic"))
    });
    let (frozen, reader) = (frozen?, reader?);
    let elapsed = started.elapsed().as_secs_f64();
    let cpu = process_cpu()? - cpu_before - frozen.making - reader.cpu;
    let row_bytes = frozen.rows as f64 * (load.value_bytes as f64 + KEY_BYTES as f64);
    Ok(Measured {
        way: name.to_owned(),
        load,
        rows_per_second: frozen.rows as f64 / elapsed,
        cpu_us_per_row: cpu.as_secs_f64() * 1e6 / frozen.rows as f64,
        write_amplification: (bytes_written()? - written_before) as f64 / row_bytes,
        level0_files_max: frozen.level0_files_max,
        waited_s: frozen.waited.as_secs_f64(),
        wrote_s: frozen.wrote.as_secs_f64(),
        published_s: frozen.published.as_secs_f64(),
        reads: reader.times.len(),
        read_us: QUANTILES.map(|(_, quantile)| reader.times.value_at_quantile(quantile) as f64 / 1000.0),
    })
}

const KEY_BYTES: usize = 16;

/// Keys are in the order of their numbers.
fn key(number: u64) -> Bytes {
    Bytes::from(format!("{number:0KEY_BYTES$}"))
}

fn row(number: u64, value_bytes: usize) -> Row {
    let mut value = vec![b'.'; value_bytes];
    value[..8].copy_from_slice(&number.to_be_bytes());
    (key(number), Some(Bytes::from(value)))
}

/// Keys that are evenly spread and look random: Steele, Lea and Flood's SplitMix.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[derive(Default)]
struct Frozen {
    rows: u64,
    waited: Duration,
    wrote: Duration,
    published: Duration,
    /// CPU time for making the runs, which a RAM tier has at hand.
    making: Duration,
    level0_files_max: u64,
}

fn freeze(freezer: &Freezer, load: Load, hidden: &[AtomicBool]) -> anyhow::Result<Frozen> {
    let (mut frozen, mut draw) = (Frozen::default(), Draw(1));
    let started = Instant::now();
    while started.elapsed().as_secs() < load.seconds {
        let before = thread_cpu()?;
        let mut keys: Vec<u64> = (0..load.rows).map(|_| draw.below(load.keys)).collect();
        keys.sort_unstable();
        keys.dedup();
        let run: Vec<Row> = keys.iter().map(|key| row(*key, load.value_bytes)).collect();
        frozen.making += thread_cpu()? - before;
        keys.iter().for_each(|key| hidden[*key as usize].store(true, Ordering::Release));
        let times = freezer.freeze(&run)?;
        keys.iter().for_each(|key| hidden[*key as usize].store(false, Ordering::Release));
        frozen.rows += run.len() as u64;
        frozen.waited += times.waited;
        frozen.wrote += times.wrote;
        frozen.published += times.published;
        frozen.level0_files_max = frozen.level0_files_max.max(freezer.level0_files()?);
        if let Some(rate) = load.rows_per_second {
            let due = Duration::from_secs_f64(frozen.rows as f64 / rate as f64);
            std::thread::sleep(due.saturating_sub(started.elapsed()));
        }
    }
    Ok(frozen)
}

struct Reads {
    /// Nanoseconds.
    times: Histogram<u64>,
    cpu: Duration,
}

fn read(freezer: &Freezer, load: Load, hidden: &[AtomicBool], over: &AtomicBool) -> anyhow::Result<Reads> {
    let mut times = Histogram::new_with_bounds(1, 100_000_000_000, 3)?;
    let (mut draw, started, mut asked) = (Draw(2), Instant::now(), 0u64);
    let before = thread_cpu()?;
    while !over.load(Ordering::Acquire) {
        // A read that is late does not make the next one late: what waited behind it is asked at once, and counts from
        // when it should have been.
        let due = Duration::from_secs_f64(asked as f64 / load.reads_per_second as f64);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        asked += 1;
        let number = draw.below(load.keys);
        if hidden[number as usize].load(Ordering::Acquire) {
            continue;
        }
        let value = freezer.get(&key(number))?.with_context(|| format!("row {number} is not there"))?;
        ensure!(value[..8] == number.to_be_bytes(), "row {number} has another one's value");
        times.saturating_record((started.elapsed().saturating_sub(due)).as_nanos() as u64);
    }
    Ok(Reads { times, cpu: thread_cpu()? - before })
}

/// CPU time of the calling thread.
fn thread_cpu() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").context("the thread's CPU time")?;
    let nanos = stat.split_ascii_whitespace().next().and_then(|field| field.parse().ok());
    Ok(Duration::from_nanos(nanos.context("the thread's CPU time is a number")?))
}

/// CPU time of all threads that run.
fn process_cpu() -> anyhow::Result<Duration> {
    crate::measure::cpu_time(std::process::id()).context("the process's CPU time")
}

/// Bytes that the process has given to the file system.
fn bytes_written() -> anyhow::Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io").context("the process's bytes")?;
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: ")).context("bytes are counted")?;
    Ok(line.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_measured_and_every_row_is_found() {
        let load = Load {
            keys: 3000,
            rows: 500,
            value_bytes: 100,
            rows_per_second: Some(4000),
            reads_per_second: 2000,
            seconds: 1,
        };
        let mut all = Vec::new();
        for (name, _) in WAYS {
            let dir = tempfile::tempdir().expect("a directory");
            let measured = measure(dir.path(), name, load).expect("every row is found");
            assert!(measured.reads > 0 && measured.rows_per_second > 0.0, "{measured:?}");
            assert!(measured.write_amplification > 0.5, "what is durable was written: {measured:?}");
            all.push(measured);
        }
        let dir = tempfile::tempdir().expect("a directory");
        let text = report(&Report {
            measured: all,
            file_system: "ext4".into(),
            sync_us: [1.0, 2.0],
            dir: dir.path().into(),
        });
        WAYS.iter().for_each(|(name, _)| assert!(text.contains(&format!("| {name} |")), "{text}"));
    }
}
