//! The space of deleted rows that is still to be reclaimed.
//!
//! Reclaiming compacts the range of the rows, which reads and writes more than a copy of their
//! region. So it waits while this store sends or receives snapshots. A store that leaves its
//! cluster stops before it is its turn. Heartbeats count the space as room in the meantime.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use types::SlotRange;

/// Time without snapshots after which space is reclaimed. Between two regions that move one after
/// the other there is less.
const QUIET: Duration = Duration::from_secs(5);
/// Maximum time for which snapshots delay it.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// The factor for the space by which the free space must exceed it. Otherwise it does not wait.
const ROOM_FACTOR: u64 = 2;

/// Rows that were deleted by range, and their bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deleted {
    pub slots: SlotRange,
    pub bytes: u64,
}

#[derive(Default)]
pub struct Reclaims {
    waiting: VecDeque<(Deleted, Instant)>,
    /// The time since which no snapshot was sent or received.
    quiet_since: Option<Instant>,
}

impl Reclaims {
    pub fn add(&mut self, deleted: Deleted, now: Instant) {
        if self.waiting.is_empty() {
            // Nobody has looked since.
            self.quiet_since = None;
        }
        self.waiting.push_back((deleted, now));
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the rows whose space must be reclaimed now. `is_busy` is true while snapshots are
    /// sent or received, and `room` is the device's free space.
    pub fn next(&mut self, now: Instant, is_busy: bool, room: u64) -> Option<Deleted> {
        self.quiet_since = if is_busy { None } else { self.quiet_since.or(Some(now)) };
        let (_, since) = self.waiting.front()?;
        let is_quiet = self.quiet_since.is_some_and(|since| now.duration_since(since) >= QUIET);
        let is_late = now.duration_since(*since) >= WAIT_MAX;
        let bytes = self.waiting.iter().fold(0u64, |sum, (deleted, _)| sum.saturating_add(deleted.bytes));
        let is_short = room < bytes.saturating_mul(ROOM_FACTOR);
        (is_quiet || is_late || is_short).then(|| self.waiting.pop_front())?.map(|(deleted, _)| deleted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 1 << 40;

    fn one() -> Deleted {
        Deleted { slots: SlotRange::ALL, bytes: 100 }
    }

    #[test]
    fn space_is_reclaimed_after_a_quiet_time() {
        let (mut reclaims, start) = (Reclaims::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        reclaims.add(one(), start);
        reclaims.add(one(), start);
        assert_eq!(reclaims.next(at(0), false, ROOM), None);
        assert_eq!(reclaims.next(at(4_000), true, ROOM), None);
        assert_eq!(reclaims.next(at(6_000), false, ROOM), None, "it was busy two seconds ago");
        assert_eq!(reclaims.next(at(10_999), false, ROOM), None);
        assert_eq!(reclaims.next(at(11_000), false, ROOM), Some(one()));
        assert_eq!(reclaims.next(at(11_001), true, ROOM), None);
        assert!(!reclaims.is_empty());
    }

    #[test]
    fn a_store_that_is_short_of_room_or_never_quiet_reclaims_all_the_same() {
        let (mut reclaims, start) = (Reclaims::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        reclaims.add(one(), start);
        assert_eq!(reclaims.next(at(1), true, 200), None);
        assert_eq!(reclaims.next(at(1), true, 199), Some(one()));
        reclaims.add(one(), at(10));
        assert_eq!(reclaims.next(at(609), true, ROOM), None);
        assert_eq!(reclaims.next(at(610), true, ROOM), Some(one()));
        assert_eq!(reclaims.next(at(620), false, 0), None, "nothing waits");
    }
}
