//! What other stores sent that no correct store sends, told of in the log now and then.

use std::time::{Duration, Instant};

use replica::DropReason;
use types::{RegionId, StoreId};

/// Whoever floods a store with nonsense does not flood its log.
const TOLD_EVERY: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Dropped {
    told_at: Option<Instant>,
    untold: u64,
}

impl Dropped {
    pub fn note(&mut self, region: RegionId, from: StoreId, reason: DropReason, now: Instant) {
        if let Some(others) = self.take_due(now) {
            tracing::warn!(region, from, %reason, others, "a store's message is not taken in");
        }
    }

    /// The number of messages since one was last told of, if it is time for another.
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
