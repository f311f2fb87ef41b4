//! Detects afterwards that the whole process was paused: it was stopped, its machine was suspended,
//! or it got no CPU.
//!
//! The store only logs and counts a pause: by then the other stores have elected leaders, and
//! leases have ended by CLOCK_BOOTTIME. The clock of a virtual machine that is paused from outside
//! does not count the pause. Such a pause appears as a wall clock that is behind.

use types::BootNanos;

use crate::clock;
use crate::metrics::Metrics;

/// Minimum time in nanoseconds between two heartbeats that counts as a pause of the store.
/// Heartbeats are 0.2 s apart. The limit is an election timeout, after which other stores may lead
/// the regions.
const STOOD_STILL_NANOS: u64 = 1_000_000_000;

/// The part of the heartbeat's task that detects pauses.
#[derive(Default)]
pub struct PauseKeeper {
    looked_at: Option<BootNanos>,
}

impl PauseKeeper {
    /// Checks for a pause. Must be called with each heartbeat.
    pub fn look(&mut self, metrics: &Metrics) {
        let Some(nanos) = self.stood_still(clock::boot_nanos()) else { return };
        metrics.pauses.inc();
        tracing::warn!(
            "this store stood still for {:.1} s: the process was stopped, its machine was suspended, or it got no CPU. \
             Other stores may lead its regions by now; it goes on by itself",
            nanos as f64 / 1e9
        );
    }

    /// Returns the length of a pause since the last look, if there was one.
    fn stood_still(&mut self, now: BootNanos) -> Option<u64> {
        let since = now.saturating_sub(self.looked_at.replace(now)?);
        (since >= STOOD_STILL_NANOS).then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_stood_still_if_its_heartbeats_are_far_apart() {
        let mut keeper = PauseKeeper::default();
        assert_eq!(keeper.stood_still(5 * STOOD_STILL_NANOS), None, "it has just started");
        assert_eq!(keeper.stood_still(6 * STOOD_STILL_NANOS - 1), None);
        assert_eq!(keeper.stood_still(9 * STOOD_STILL_NANOS), Some(3 * STOOD_STILL_NANOS + 1));
        assert_eq!(keeper.stood_still(9 * STOOD_STILL_NANOS), None);
    }
}
