//! The rate limit of joins.

use std::time::{Duration, Instant};

/// Maximum number of joins at once. One more is allowed after each [`JOIN_EVERY`]. Each join is an
/// entry of the meta region's log and makes every store connect to another address.
const JOINS_AT_ONCE: u32 = 30;
const JOIN_EVERY: Duration = Duration::from_secs(1);

/// A bucket of joins that fills with time.
pub struct JoinRate {
    left: u32,
    filled_at: Instant,
}

impl JoinRate {
    pub fn new(now: Instant) -> JoinRate {
        JoinRate { left: JOINS_AT_ONCE, filled_at: now }
    }

    /// Makes room again for a join that did not happen.
    pub fn give_back(&mut self) {
        self.left = (self.left + 1).min(JOINS_AT_ONCE);
    }

    pub fn take(&mut self, now: Instant) -> bool {
        while self.left < JOINS_AT_ONCE && now.duration_since(self.filled_at) >= JOIN_EVERY {
            self.left += 1;
            self.filled_at += JOIN_EVERY;
        }
        if self.left == JOINS_AT_ONCE {
            self.filled_at = now;
        }
        self.left = match self.left.checked_sub(1) {
            Some(left) => left,
            None => return false,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_that_did_not_happen_makes_room_for_another() {
        let start = Instant::now();
        let mut rate = JoinRate::new(start);
        rate.give_back();
        assert_eq!((0..100).filter(|_| rate.take(start)).count(), JOINS_AT_ONCE as usize);
        rate.give_back();
        assert_eq!((0..100).filter(|_| rate.take(start)).count(), 1);
    }

    #[test]
    fn joins_are_as_many_as_time_allows() {
        let start = Instant::now();
        let mut rate = JoinRate::new(start);
        let takes = |rate: &mut JoinRate, at| (0..1000).filter(|_| rate.take(start + at)).count();
        assert_eq!(takes(&mut rate, Duration::ZERO), 30);
        assert_eq!(takes(&mut rate, JOIN_EVERY / 2), 0);
        assert_eq!(takes(&mut rate, JOIN_EVERY), 1);
        assert_eq!(takes(&mut rate, JOIN_EVERY * 5), 4);
        assert_eq!(takes(&mut rate, JOIN_EVERY * 3600), 30);
    }
}
