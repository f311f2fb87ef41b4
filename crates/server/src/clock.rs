//! The machine's two clocks. Lower crates get time as an argument. Code that stamps, or reads at a
//! time, uses [`WallClock`](crate::wall_clock::WallClock).

use std::time::{Duration, Instant};

use rustix::time::{clock_gettime, ClockId};
use types::{BootNanos, UnixMillis};

/// Returns CLOCK_BOOTTIME in nanoseconds. It is monotonic and continues while the machine is
/// suspended, which leases rely on.
pub fn boot_nanos() -> BootNanos {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the CPU time that the calling thread has used. It does not advance while other threads
/// have the CPU.
pub fn thread_cpu_time() -> Duration {
    duration(ClockId::ThreadCPUTime)
}

/// Wall time below which a turn's CPU time is not read: reading it is a system call, and the wall
/// time bounds it.
const SHORT_TURN: Duration = Duration::from_millis(1);

/// Measures the CPU time of a thread's turns.
pub struct TurnTime {
    began: Instant,
    read_at: Instant,
    /// The thread's CPU time at `read_at`.
    cpu: Duration,
}

impl TurnTime {
    pub fn new() -> TurnTime {
        let now = Instant::now();
        TurnTime { began: now, read_at: now, cpu: thread_cpu_time() }
    }

    pub fn begin(&mut self, now: Instant) {
        if now.saturating_duration_since(self.read_at) >= SHORT_TURN {
            (self.read_at, self.cpu) = (now, thread_cpu_time());
        }
        self.began = now;
    }

    /// Returns the turn's CPU time, at most a millisecond too much; the wall time of a short turn.
    pub fn spent(&self) -> Duration {
        let wall = self.began.elapsed();
        if wall < SHORT_TURN {
            wall
        } else {
            wall.min(thread_cpu_time().saturating_sub(self.cpu))
        }
    }
}

/// Returns the CPU time that this process has used in all threads.
pub fn process_cpu_time() -> Duration {
    duration(ClockId::ProcessCPUTime)
}

fn duration(clock: ClockId) -> Duration {
    let used = clock_gettime(clock);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// Returns the value of CLOCK_BOOTTIME at `moment`. For a moment in the past, returns about the
/// present value.
pub fn boot_nanos_at(moment: std::time::Instant) -> BootNanos {
    let left = moment.saturating_duration_since(std::time::Instant::now());
    boot_nanos().saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the machine's uncorrected wall clock in Unix milliseconds.
pub fn unix_millis() -> UnixMillis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map(|d| d.as_millis() as u64).unwrap_or(0)
}

pub fn unix_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map(|d| d.as_micros() as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use super::*;

    /// Files that need the machine's clock directly: for heartbeats, unique numbers, the time of a
    /// measurement, and the times of events that operators are shown. All other code that stamps or
    /// reads at a time uses `WallClock`.
    const USERS: [&str; 13] = [
        "clock.rs",
        "wall_clock.rs",
        "heartbeat.rs",
        "capability/persisted.rs",
        "capability.rs",
        "capability/measurements.rs",
        "capability/turn.rs",
        "transport/join_token.rs",
        "checkpoints.rs",
        "slow_moments.rs",
        "statistics/slow_log.rs",
        "client/statistics_commands.rs",
        "client/info.rs",
    ];

    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false => found.push(path),
            }
        }
    }

    #[test]
    fn the_machines_wall_clock_is_read_only_where_it_is_not_stamped_with() {
        let source = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("src");
        let mut files = Vec::new();
        sources(&source, &mut files);
        let calls = ["unix_millis()", "unix_micros()", "SystemTime::now()"];
        let reads = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).unwrap();
            calls.iter().any(|call| text.contains(call))
        };
        let mut found: Vec<_> = files.iter().filter(|path| reads(path)).collect();
        found.retain(|path| !USERS.iter().any(|user| **path == source.join(user)));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_turn_that_sleeps_has_little_cpu_time_and_one_that_works_has_much() {
        let mut turn = TurnTime::new();
        turn.begin(Instant::now());
        std::thread::sleep(Duration::from_millis(200));
        assert!(turn.spent() < Duration::from_millis(150), "{:?}", turn.spent());
        turn.begin(Instant::now());
        let began = thread_cpu_time();
        while thread_cpu_time() - began < Duration::from_millis(20) {}
        assert!(turn.spent() >= Duration::from_millis(20), "{:?}", turn.spent());
    }
}
