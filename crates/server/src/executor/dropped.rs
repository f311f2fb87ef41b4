//! Log lines about messages that a correct store never sends, at a limited rate.

use std::time::{Duration, Instant};

use replica::DropReason;
use types::{RegionId, StoreId};

/// Minimum interval between log lines, so that a flood of bad messages does not flood the log.
const TOLD_EVERY: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Dropped {
    told_at: Option<Instant>,
    untold: u64,
}

impl Dropped {
    pub fn note(&mut self, region: RegionId, from: StoreId, reason: DropReason, now: Instant) {
        if let Some(others) = self.take_due(now) {
            tracing::warn!(region, from, %reason, others, "a message from another store was dropped");
        }
    }

    /// Returns the number of messages since the last log line, if the next one is due.
    fn take_due(&mut self, now: Instant) -> Option<u64> {
        if self.told_at.is_some_and(|at| now.duration_since(at) < TOLD_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_of_now_and_then_with_its_size() {
        let (mut dropped, start) = (Dropped::default(), Instant::now());
        assert_eq!(dropped.take_due(start), Some(0));
        for _ in 0..1000 {
            assert_eq!(dropped.take_due(start + TOLD_EVERY / 2), None);
        }
        assert_eq!(dropped.take_due(start + TOLD_EVERY), Some(1000));
        assert_eq!(dropped.take_due(start + 2 * TOLD_EVERY), Some(0));
    }
}
