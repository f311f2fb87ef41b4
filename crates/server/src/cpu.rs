//! The CPU load of this store's machine, and this process's share of it.
//!
//! The kernel counts time, [`read`] reads its counters, and [`Average`] turns two readings into a
//! share, averaged over [`CPU_WINDOW_S`]. If the kernel does not report them, the load is unknown.

use std::time::Instant;

use cluster::CPU_WINDOW_S;
use placement::Cpu;

mod read;

pub use read::own_times;
use read::Source;

/// Interval at which the counters are read, in seconds. `/proc/stat` has a line for each CPU, so
/// reading it is not free.
const PERIOD_S: f64 = 1.0;
/// Minimum averaged time before a load is reported, in seconds. A starting process is busy.
const KNOWN_AFTER_S: f64 = 5.0;

/// The kernel's counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counters {
    /// The counted cores: those that this process may use, and their machine.
    cores: f64,
    machine: u64,
    /// Nanoseconds since an arbitrary origin: the time used by any process on those cores, the time
    /// available on them, and the time used by this process.
    used_nanos: u64,
    available_nanos: u64,
    own_nanos: u64,
}

/// Decaying averages of the differences between readings.
#[derive(Default)]
struct Average {
    last: Option<(f64, Counters)>,
    busy: f64,
    own: f64,
    seconds: f64,
}

impl Average {
    /// Adds a reading made at `at_s`. Restarts the average if there is no reading, or if other
    /// cores are counted.
    fn note(&mut self, at_s: f64, counters: Option<Counters>) {
        let Some(now) = counters else { return *self = Average::default() };
        let is_same = |last: &Counters| (last.cores, last.machine) == (now.cores, now.machine);
        let Some((before_s, before)) = self.last.filter(|(_, last)| is_same(last)) else {
            *self = Average { last: Some((at_s, now)), ..Average::default() };
            return;
        };
        let seconds = at_s - before_s;
        let available = now.available_nanos.saturating_sub(before.available_nanos);
        if seconds <= 0.0 || available == 0 {
            return;
        }
        self.last = Some((at_s, now));
        self.seconds += seconds;
        let busy = now.used_nanos.saturating_sub(before.used_nanos) as f64 / available as f64;
        let own = now.own_nanos.saturating_sub(before.own_nanos) as f64 / 1e9 / seconds;
        // The average is a plain mean until a whole window has passed.
        let part = (1.0 - (-seconds / CPU_WINDOW_S).exp()).max(seconds / self.seconds);
        self.busy += part * (busy.min(1.0) - self.busy);
        self.own += part * (own - self.own);
    }

    fn cpu(&self) -> Option<Cpu> {
        let (_, Counters { cores, machine, .. }) = self.last?;
        let cpu = Cpu { cores, busy: self.busy, own: self.own, machine };
        (self.seconds >= KNOWN_AFTER_S).then_some(cpu)
    }
}

/// Reads the counters when they are due.
pub struct CpuKeeper {
    source: Source,
    began: Instant,
    read_at_s: f64,
    average: Average,
}

impl CpuKeeper {
    pub fn new() -> CpuKeeper {
        let source = Source::of_this_process();
        CpuKeeper { source, began: Instant::now(), read_at_s: f64::NEG_INFINITY, average: Average::default() }
    }

    /// Returns the load as of the last second; `None` if it is not known yet.
    pub fn look(&mut self) -> Option<Cpu> {
        let now = self.began.elapsed().as_secs_f64();
        if now - self.read_at_s >= PERIOD_S {
            self.read_at_s = now;
            let counters = self.source.read();
            // The time is taken again, because reading the files takes time.
            self.average.note(self.began.elapsed().as_secs_f64(), counters);
        }
        self.average.cpu()
    }
}

/// Measures how many of the CPUs that this process may use are idle.
pub struct IdleMeter {
    source: Source,
    last: Option<(Instant, Counters)>,
}

impl IdleMeter {
    pub fn new() -> IdleMeter {
        IdleMeter { source: Source::of_this_process(), last: None }
    }

    /// Returns the mean number of idle CPUs since the last call; `None` if it is not known.
    pub fn look(&mut self) -> Option<f64> {
        let counters = self.source.read()?;
        let now = Instant::now();
        let (then, last) = self.last.replace((now, counters))?;
        let seconds = now.duration_since(then).as_secs_f64();
        let used = counters.used_nanos.saturating_sub(last.used_nanos) as f64 / 1e9 / seconds.max(0.001);
        Some((counters.cores - used).max(0.0))
    }
}

#[cfg(test)]
mod tests;
