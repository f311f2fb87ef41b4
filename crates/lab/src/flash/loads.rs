//! The loads: write-only, read-only over a tenth of the rows, and 50:50.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context};
use bytes::Bytes;
use hdrhistogram::Histogram;
use rocks::bare::Bare;
use serde::{Deserialize, Serialize};
use types::Draw;

use super::knobs::{Running, WritePath};
use super::places::{Meter, Work};
use super::scale::Scale;
use crate::measure::cpu_time;

/// One load under one configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    pub seconds: f64,
    pub operations: u64,
    /// Operations per second in each tick.
    pub series: Vec<f64>,
    /// Microseconds of a look-up: median and 99th percentile. 0 if there was none.
    pub read_us: [f64; 2],
    /// Seconds for which writers waited for compaction, summed over the writers.
    pub stalled_s: f64,
    pub work: Work,
    /// CPU seconds of the process.
    pub cpu_s: f64,
}

impl Phase {
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }
}

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Loads by name.
    pub phases: std::collections::BTreeMap<String, Phase>,
    /// Bytes written to and read from the device by the loads and the compaction after them, and
    /// bytes of the files at the end, each for one byte of rows.
    pub write_amplification: f64,
    pub read_amplification: f64,
    pub space_amplification: f64,
    /// Seconds of compaction after the loads.
    pub settled_s: f64,
    pub files_per_level: Vec<u64>,
    /// Bytes of indexes and filters in memory.
    pub table_reader_bytes: u64,
    /// All options of RocksDB, from its OPTIONS file.
    pub options: std::collections::BTreeMap<String, String>,
    /// Options that RocksDB does not use as they were set: name, set and used.
    pub replaced: Vec<[String; 3]>,
}

pub const WRITE_ONLY: &str = "write-only";
pub const READ_ONLY: &str = "read-only";
pub const MIXED: &str = "50:50";
pub const REPLICATION: &str = "replication";
pub const ABSENT: &str = "absent keys";

/// Share of the rows that the read-only load reads.
const HOT_SHARE: u64 = 10;
/// Maximum number of operations by which one kind of the 50:50 load is ahead of the other. It is
/// larger than the number of threads, so that threads that do both never wait for each other.
const AHEAD_MAX: u64 = 256;
const AHEAD_PAUSE: Duration = Duration::from_micros(50);
/// Maximum time to wait for compaction after the loads.
const SETTLE_MAX: Duration = Duration::from_secs(120);
const SETTLE_POLL: Duration = Duration::from_millis(20);
const SETTLE_LOOKS: u32 = 3;

pub fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let digits = b"0123456789abcdef";
    let mixed = types::mix(number);
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = digits[(mixed >> (60 - 4 * at) & 15) as usize];
    }
    key
}

/// Returns a value that does not compress and begins with the row's number.
pub fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut draw = Draw::new(number ^ 0x5eed);
    let mut value = Vec::with_capacity(bytes + 8);
    value.extend_from_slice(&number.to_be_bytes());
    while value.len() < bytes {
        value.extend_from_slice(&draw.number().to_le_bytes());
    }
    value.truncate(bytes.max(8));
    value
}

/// The database under load, and the measurements of it.
pub struct Stage<'a> {
    pub bare: &'a Bare,
    pub scale: &'a Scale,
    pub path: WritePath,
    pub running: &'a Running,
    pub run_bytes: u64,
    pub meter: &'a Meter,
}

/// The numbers that threads of a load add to.
#[derive(Default)]
pub struct Counters {
    pub done: AtomicU64,
    times: Mutex<Vec<Histogram<u64>>>,
}

impl Stage<'_> {
    /// Measures a load. `work` runs on this thread and starts its own.
    pub fn measure(&self, work: impl FnOnce(&Counters) -> anyhow::Result<()>) -> anyhow::Result<Phase> {
        let (counters, over) = (Counters::default(), AtomicBool::new(false));
        let stalled = || -> anyhow::Result<f64> {
            let puts = Duration::from_micros(self.bare.stats()?.stall_micros);
            Ok((puts + self.bare.ingest_waited()).as_secs_f64())
        };
        let cpu = || cpu_time(std::process::id()).unwrap_or_default().as_secs_f64();
        let (work_before, stalled_before, cpu_before) = (self.meter.work()?, stalled()?, cpu());
        let started = Instant::now();
        let (result, series) = std::thread::scope(|scope| {
            let sampling = scope.spawn(|| sample(&counters.done, &over, self.scale.tick_ms));
            let result = work(&counters);
            over.store(true, Relaxed);
            (result, sampling.join().expect("the sampler does not panic"))
        });
        let seconds = started.elapsed().as_secs_f64();
        result?;
        let mut times = histogram();
        for part in counters.times.lock().expect("no thread panics").iter() {
            times.add(part)?;
        }
        let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Phase {
            seconds,
            operations: counters.done.load(Relaxed),
            series,
            read_us: if times.is_empty() { [0.0; 2] } else { [at(0.5), at(0.99)] },
            stalled_s: stalled()? - stalled_before,
            work: self.meter.work()?.since(&work_before),
            cpu_s: cpu() - cpu_before,
        })
    }

    /// Writes every row once, in random order of the keys.
    pub fn write_only(&self) -> anyhow::Result<Phase> {
        let next = AtomicU64::new(0);
        self.measure(|counters| {
            self.write_all(counters, &|| {
                let number = next.fetch_add(1, Relaxed);
                (number < self.scale.rows).then_some(number)
            })?;
            Ok(self.bare.flush()?)
        })
    }

    /// Writes the rows that `next` gives: by all I/O threads, by one, or as sorted runs.
    pub fn write_all(
        &self,
        counters: &Counters,
        next: &(dyn Fn() -> Option<u64> + Sync),
    ) -> anyhow::Result<()> {
        if self.path == WritePath::Ingest {
            let mut runs = Runs::new(self);
            while let Some(number) = next() {
                runs.add(number, counters)?;
            }
            return runs.end(counters);
        }
        let writers = if self.running.one_writer { 1 } else { self.running.io_threads };
        in_threads(writers, |_| {
            while let Some(number) = next() {
                self.bare.put(&key(number), &value(number, self.scale.value_bytes))?;
                counters.done.fetch_add(1, Relaxed);
            }
            Ok(())
        })
    }

    /// Reads random rows among a tenth of all.
    pub fn read_only(&self) -> anyhow::Result<Phase> {
        let hot = (self.scale.rows / HOT_SHARE).max(1);
        let readers = self.running.io_threads;
        self.measure(|counters| {
            let left = AtomicU64::new(self.scale.reads);
            in_threads(readers, |thread| {
                let (mut draw, mut times) = (Draw::new(thread as u64 + 1), histogram());
                while take(&left) {
                    self.read(draw.below(hot), &mut times)?;
                    counters.done.fetch_add(1, Relaxed);
                }
                counters.times.lock().expect("no thread panics").push(times);
                Ok(())
            })
        })
    }

    /// Looks up keys that do not exist.
    pub fn read_absent(&self) -> anyhow::Result<Phase> {
        self.measure(|counters| {
            let left = AtomicU64::new(self.scale.reads);
            in_threads(self.running.io_threads, |thread| {
                let mut draw = Draw::new(thread as u64 + 101);
                while take(&left) {
                    let absent = self.scale.rows + draw.below(self.scale.rows);
                    ensure!(self.bare.get(&key(absent))?.is_none(), "row {absent} was never written");
                    counters.done.fetch_add(1, Relaxed);
                }
                Ok(())
            })
        })
    }

    /// Reads and overwrites random rows, as many of one as of the other.
    pub fn mixed(&self) -> anyhow::Result<Phase> {
        let (rows, each) = (self.scale.rows, self.scale.mixed / 2);
        let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
        // Clients wait for their answers, so that neither kind is far ahead of the other.
        let turn = |own: &AtomicU64, other: &AtomicU64| loop {
            let done = own.load(Relaxed);
            if done >= each {
                return false;
            }
            if done < other.load(Relaxed) + AHEAD_MAX {
                return own.fetch_add(1, Relaxed) < each;
            }
            std::thread::sleep(AHEAD_PAUSE);
        };
        let one_writer = self.running.one_writer || self.path == WritePath::Ingest;
        let threads = self.running.io_threads.max(2);
        self.measure(|counters| {
            in_threads(threads, |thread| {
                let (mut draw, mut times) = (Draw::new(thread as u64 + 201), histogram());
                let mut runs = Runs::new(self);
                let [mut may_read, mut may_write] =
                    if one_writer { [thread > 0, thread == 0] } else { [true, true] };
                while may_read || may_write {
                    may_write = may_write && turn(&writes, &reads);
                    if may_write {
                        let number = draw.below(rows);
                        match self.path {
                            WritePath::Ingest => runs.add(number, counters)?,
                            WritePath::Puts => {
                                self.bare.put(&key(number), &value(number, self.scale.value_bytes))?;
                                counters.done.fetch_add(1, Relaxed);
                            }
                        }
                    }
                    may_read = may_read && turn(&reads, &writes);
                    if may_read {
                        self.read(draw.below(rows), &mut times)?;
                        counters.done.fetch_add(1, Relaxed);
                    }
                }
                counters.times.lock().expect("no thread panics").push(times);
                runs.end(counters)
            })?;
            Ok(self.bare.flush()?)
        })
    }

    pub fn read(&self, number: u64, times: &mut Histogram<u64>) -> anyhow::Result<()> {
        let started = Instant::now();
        let found = self.bare.get(&key(number))?;
        times.saturating_record(started.elapsed().as_nanos() as u64);
        let found = found.with_context(|| format!("row {number} is missing"))?;
        check(number, &found)
    }

    /// Waits until compaction has nothing left to do. Returns the seconds.
    pub fn settle(&self) -> anyhow::Result<f64> {
        let (started, mut quiet) = (Instant::now(), 0);
        while quiet < SETTLE_LOOKS && started.elapsed() < SETTLE_MAX {
            let stats = self.bare.stats()?;
            let is_busy = stats.running_compactions + stats.running_flushes > 0;
            quiet = if is_busy { 0 } else { quiet + 1 };
            std::thread::sleep(SETTLE_POLL);
        }
        Ok(started.elapsed().as_secs_f64())
    }
}

/// Takes one of the operations that are left.
fn take(left: &AtomicU64) -> bool {
    left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
}

pub fn check(number: u64, value: &[u8]) -> anyhow::Result<()> {
    ensure!(value.starts_with(&number.to_be_bytes()), "row {number} has the value of another row");
    Ok(())
}

/// The rows of a run that is not frozen yet.
pub struct Runs<'a, 'b> {
    stage: &'a Stage<'b>,
    rows: std::collections::BTreeMap<[u8; 16], u64>,
}

impl<'a, 'b> Runs<'a, 'b> {
    pub fn new(stage: &'a Stage<'b>) -> Runs<'a, 'b> {
        Runs { stage, rows: std::collections::BTreeMap::new() }
    }

    pub fn add(&mut self, number: u64, counters: &Counters) -> anyhow::Result<()> {
        self.rows.insert(key(number), number);
        counters.done.fetch_add(1, Relaxed);
        if self.rows.len() as u64 * self.stage.scale.row_bytes() >= self.stage.run_bytes {
            self.end(counters)?;
        }
        Ok(())
    }

    /// Freezes the rows.
    pub fn end(&mut self, _counters: &Counters) -> anyhow::Result<()> {
        let bytes = self.stage.scale.value_bytes;
        let row = |(key, number): ([u8; 16], u64)| {
            (Bytes::copy_from_slice(&key), Some(Bytes::from(value(number, bytes))))
        };
        let run: Vec<_> = std::mem::take(&mut self.rows).into_iter().map(row).collect();
        if !run.is_empty() {
            self.stage.bare.ingest(&run)?;
        }
        Ok(())
    }
}

/// Runs `work` in threads, with the number of each. Returns the first error.
pub fn in_threads(threads: usize, work: impl Fn(usize) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let results: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads.max(1)).map(|at| scope.spawn(move || work(at))).collect();
        running.into_iter().map(|one| one.join().expect("a load does not panic")).collect()
    });
    results.into_iter().collect()
}

/// Returns the operations per second of each tick until the load is over. The last tick is left
/// out, unless it is the only one, because it is not whole.
fn sample(done: &AtomicU64, over: &AtomicBool, tick_ms: u64) -> Vec<f64> {
    let (started, mut series, mut before) = (Instant::now(), Vec::new(), 0);
    while !over.load(Relaxed) {
        let due = Duration::from_millis(tick_ms * (series.len() as u64 + 1));
        std::thread::sleep(due.saturating_sub(started.elapsed()).min(Duration::from_millis(10)));
        if started.elapsed() >= due {
            let now = done.load(Relaxed);
            series.push((now - before) as f64 * 1e3 / tick_ms as f64);
            before = now;
        }
    }
    series
}

/// Returns a histogram of nanoseconds up to 100 s.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid")
}

/// Returns the options that RocksDB does not use as they were set.
pub fn replaced(
    wanted: &rocks::bare::Setup,
    used: &std::collections::BTreeMap<String, String>,
) -> anyhow::Result<Vec<[String; 3]>> {
    // Names of our own, and options that the OPTIONS file has under another form.
    // RocksDB computes a maximum for compactions if there is none.
    const ELSEWHERE: [&str; 8] = [
        "bloom_bits",
        "block_cache_size",
        "max_compaction_bytes",
        "rate_limiter_bytes_per_sec",
        "row_cache_bytes",
        "row_filter_bytes",
        "compression_per_level",
        "max_open_files",
    ];
    let mut replaced = Vec::new();
    let mut compare = |name: &str, set: String| -> anyhow::Result<()> {
        let set = match set.as_str() {
            "yes" => "true".to_owned(),
            "no" => "false".to_owned(),
            _ => set,
        };
        let Some(used) = used.get(name) else { bail!("RocksDB's OPTIONS file has no {name}") };
        let is_same = match (set.parse::<f64>(), used.parse::<f64>()) {
            (Ok(set), Ok(used)) => set == used,
            _ => set == *used,
        };
        if !is_same {
            replaced.push([name.to_owned(), set, used.clone()]);
        }
        Ok(())
    };
    for name in rocks::Options::names().filter(|name| !ELSEWHERE.contains(name)) {
        compare(name, wanted.options.get(name)?)?;
    }
    if let Some(compactions) = wanted.max_background_compactions {
        compare("max_background_compactions", compactions.to_string())?;
    }
    Ok(replaced)
}
