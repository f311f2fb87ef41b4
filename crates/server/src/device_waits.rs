//! The state of the device, and the time for which the store has waited for its answers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The state of the device, for `INFO`, metrics and heartbeats.
#[derive(Default)]
pub struct Hanging {
    is_hanging: AtomicBool,
    log_waited_nanos: AtomicU64,
    read_waited_nanos: AtomicU64,
}

impl Hanging {
    /// Records the outcome of a look at the device.
    pub fn set(&self, hangs: bool, log_waited_nanos: u64, read_waited_nanos: u64) {
        self.is_hanging.store(hangs, Ordering::Relaxed);
        self.log_waited_nanos.store(log_waited_nanos, Ordering::Relaxed);
        self.read_waited_nanos.store(read_waited_nanos, Ordering::Relaxed);
    }

    pub fn is_hanging(&self) -> bool {
        self.is_hanging.load(Ordering::Relaxed)
    }

    /// Returns how long the oldest write or sync of the log has waited for its answer.
    pub fn log_waited(&self) -> Duration {
        Duration::from_nanos(self.log_waited_nanos.load(Ordering::Relaxed))
    }

    /// Returns how long the oldest read of a row has waited for its answer.
    pub fn read_waited(&self) -> Duration {
        Duration::from_nanos(self.read_waited_nanos.load(Ordering::Relaxed))
    }
}
