//! A store's two clocks. Both differ from the true time, which no store sees. One clock counts from
//! the machine's start and runs fast or slow. The other is the wall clock, which people can set.

use types::{BootNanos, UnixMillis};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// The wall-clock time at which a run begins.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// Returns the time of a correct wall clock.
pub fn true_wall_ms(now: u64) -> UnixMillis {
    EPOCH_MS + now / MILLISECOND
}

#[derive(Clone, Debug)]
pub struct Clock {
    /// The true time at which `boot` was correct.
    since: u64,
    boot: BootNanos,
    drift_ppm: i64,
    wall_offset_ms: i64,
}

impl Clock {
    pub fn new(now: u64, boot: BootNanos, drift_ppm: i64) -> Clock {
        Clock { since: now, boot, drift_ppm, wall_offset_ms: 0 }
    }

    pub fn boot(&self, now: u64) -> BootNanos {
        let passed = i128::from(now - self.since);
        let drifted = passed + passed * i128::from(self.drift_ppm) / 1_000_000;
        self.boot + u64::try_from(drifted).expect("the clock never runs backwards")
    }

    /// Sets how fast or slow the clock runs from now on, in parts per million.
    pub fn drift(&mut self, now: u64, ppm: i64) {
        (self.boot, self.since, self.drift_ppm) = (self.boot(now), now, ppm);
    }

    /// Restarts the machine, which resets the count.
    pub fn reboot(&mut self, now: u64) {
        (self.boot, self.since) = (20 * SECOND, now);
    }

    pub fn wall_ms(&self, now: u64) -> UnixMillis {
        true_wall_ms(now).saturating_add_signed(self.wall_offset_ms)
    }

    pub fn set_wall(&mut self, offset_ms: i64) {
        self.wall_offset_ms = offset_ms;
    }
}
