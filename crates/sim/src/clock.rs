//! A store's two clocks over the true time, which no store sees: one that counts from the machine's start and
//! runs fast or slow, and one that people set.

use types::{BootNanos, UnixMillis};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// The wall's time when a run begins.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// What a wall clock shows that is right.
pub fn true_wall_ms(now: u64) -> UnixMillis {
    EPOCH_MS + now / MILLISECOND
}

#[derive(Clone, Debug)]
pub struct Clock {
    /// The true time at which `boot` was right.
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
        self.boot + u64::try_from(drifted).expect("time goes on")
    }

    /// From now on it runs this much fast or slow.
    pub fn drift(&mut self, now: u64, ppm: i64) {
        (self.boot, self.since, self.drift_ppm) = (self.boot(now), now, ppm);
    }

    /// The machine starts anew, and its count with it.
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
