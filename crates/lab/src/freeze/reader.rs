//! The thread that reads at a given rate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context};
use hdrhistogram::Histogram;
use rocks::freeze::{Freezer, MutexWait};
use serde::{Deserialize, Serialize};

use types::Draw;

use super::{key, thread_cpu, Load, Now, STEPS};

/// The reported quantiles of reads.
pub const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// The reads during one step of the writer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepReads {
    /// Seconds that the writer spent in the step.
    pub seconds: f64,
    pub reads: u64,
    /// Microseconds of the call alone, at [`QUANTILES`].
    pub call_us: [f64; QUANTILES.len()],
    /// Milliseconds for which the reader waited for RocksDB's mutex: the sum and the longest wait.
    pub mutex_ms: [f64; 2],
}

pub(super) struct Reader {
    /// Nanoseconds from when a read was due until it ended.
    due: Histogram<u64>,
    /// Times of calls by the step in which the call began.
    steps: [CallTimes; STEPS.len()],
    pub(super) cpu: Duration,
}

struct CallTimes {
    /// Nanoseconds.
    calls: Histogram<u64>,
    mutex: Duration,
    mutex_max: Duration,
}

impl Reader {
    pub(super) fn due_us(&self) -> [f64; QUANTILES.len()] {
        quantiles_us(&self.due)
    }

    pub(super) fn steps(&self, in_step: &[Duration; STEPS.len()]) -> Vec<StepReads> {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let step = |(times, spent): (&CallTimes, &Duration)| StepReads {
            seconds: spent.as_secs_f64(),
            reads: times.calls.len(),
            call_us: quantiles_us(&times.calls),
            mutex_ms: [ms(times.mutex), ms(times.mutex_max)],
        };
        self.steps.iter().zip(in_step).map(step).collect()
    }
}

fn quantiles_us(times: &Histogram<u64>) -> [f64; QUANTILES.len()] {
    QUANTILES.map(|(_, quantile)| times.value_at_quantile(quantile) as f64 / 1e3)
}

/// Returns a histogram of nanoseconds up to 100 s.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid")
}

/// Reads random keys that are not hidden until the writer has ended.
pub(super) fn read(
    freezer: &Freezer,
    load: Load,
    hidden: &[AtomicBool],
    now: &Now,
    over: &AtomicBool,
) -> anyhow::Result<Reader> {
    let call_times = |_| CallTimes { calls: histogram(), mutex: Duration::ZERO, mutex_max: Duration::ZERO };
    let mut reader = Reader { due: histogram(), steps: std::array::from_fn(call_times), cpu: Duration::ZERO };
    let mut mutex = MutexWait::measure();
    let (mut draw, started, mut asked) = (Draw::new(2), Instant::now(), 0u64);
    let cpu_before = thread_cpu()?;
    while !over.load(Ordering::Acquire) {
        // Reads that became due during a slow read follow at once. They count from when they were
        // due.
        let due = Duration::from_secs_f64(asked as f64 / load.reads_per_second as f64);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        asked += 1;
        let number = draw.below(load.keys);
        if hidden[number as usize].load(Ordering::Acquire) {
            continue;
        }
        let step = &mut reader.steps[now.get()];
        let called = Instant::now();
        let value = freezer.get(&key(number))?.with_context(|| format!("row {number} is missing"))?;
        step.calls.saturating_record(called.elapsed().as_nanos() as u64);
        reader.due.saturating_record(started.elapsed().saturating_sub(due).as_nanos() as u64);
        let waited = mutex.take();
        step.mutex += waited;
        step.mutex_max = step.mutex_max.max(waited);
        ensure!(value[..8] == number.to_be_bytes(), "row {number} has the value of another one");
    }
    reader.cpu = thread_cpu()? - cpu_before;
    Ok(reader)
}
