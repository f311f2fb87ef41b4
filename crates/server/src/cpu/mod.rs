//! How busy the CPU of this store's machine is, and how much of that is this process.
//!
//! The kernel counts time; [`read`] reads its counters, and [`Average`] makes of two readings a share, averaged over
//! [`CPU_WINDOW_S`]. Where the kernel does not tell, the CPU is not known.

use std::time::Instant;

use cluster::CPU_WINDOW_S;
use placement::Cpu;

mod read;

use read::Source;

/// The counters are read this often: `/proc/stat` has a line for each CPU.
const PERIOD_S: f64 = 1.0;
/// Nothing is told before so much time was averaged: a process that starts is busy.
const KNOWN_AFTER_S: f64 = 5.0;

/// The kernel's counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counters {
    /// What they are of: the cores that this process may use, and where.
    cores: f64,
    machine: u64,
    /// Since some beginning: time that those cores were used, time that there was to use, and what this process used.
    used_nanos: u64,
    available_nanos: u64,
    own_nanos: u64,
}

/// Decaying averages of what differs between readings.
#[derive(Default)]
struct Average {
    last: Option<(f64, Counters)>,
    busy: f64,
    own: f64,
    seconds: f64,
}

impl Average {
    /// Takes in a reading made at `at_s`. Without one, and when other cores are counted than before, it begins anew.
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
        // A plain mean until there is a whole window.
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

/// Reads the counters when it is time to.
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

    /// As of the last second; `None`: not known (yet).
    pub fn look(&mut self) -> Option<Cpu> {
        let now = self.began.elapsed().as_secs_f64();
        if now - self.read_at_s >= PERIOD_S {
            self.read_at_s = now;
            let counters = self.source.read();
            // Time goes on while files are read.
            self.average.note(self.began.elapsed().as_secs_f64(), counters);
        }
        self.average.cpu()
    }
}

#[cfg(test)]
mod tests;
