//! Slow moments by event, as `LATENCY` shows them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock;

/// A command that is not flagged as fast took long.
pub const COMMAND: &str = "command";
/// A command that is flagged as fast took long.
pub const FAST_COMMAND: &str = "fast-command";
/// A sync of the log took long.
pub const LOG_SYNC: &str = "log-sync";

/// Number of moments that are kept for each event, as in Redis.
const MOMENTS_MAX: usize = 160;

/// The slow moments of one event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// Seconds since 1970 with the longest time in that second in milliseconds, oldest first.
    pub history: VecDeque<(u64, u64)>,
    /// The longest time ever, in milliseconds.
    pub longest: u64,
}

#[derive(Default)]
pub struct SlowMoments {
    /// The shortest time of a moment in milliseconds; 0 for none.
    threshold_ms: AtomicU64,
    events: Mutex<BTreeMap<&'static str, Moments>>,
}

impl SlowMoments {
    pub fn set_threshold(&self, ms: u64) {
        self.threshold_ms.store(ms, Ordering::Relaxed);
    }

    pub fn limit(&self) -> Option<Duration> {
        match self.threshold_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// Notes how long an event took, if it took long.
    pub fn note(&self, event: &'static str, took: Duration) {
        if self.limit().is_some_and(|limit| took >= limit) {
            self.note_at(event, clock::unix_millis() / 1000, took.as_millis() as u64);
        }
    }

    fn note_at(&self, event: &'static str, second: u64, ms: u64) {
        let mut events = self.events.lock();
        let of = events.entry(event).or_default();
        of.longest = of.longest.max(ms);
        match of.history.back_mut() {
            Some((last, longest)) if *last == second => *longest = (*longest).max(ms),
            _ => {
                if of.history.len() == MOMENTS_MAX {
                    of.history.pop_front();
                }
                of.history.push_back((second, ms));
            }
        }
    }

    pub fn all(&self) -> BTreeMap<&'static str, Moments> {
        self.events.lock().clone()
    }

    /// Forgets events: those with these names, or all if there are none. Returns their number.
    pub fn reset(&self, names: &[&str]) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|event, _| {
            !names.is_empty() && !names.iter().any(|name| name.eq_ignore_ascii_case(event))
        });
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_moments_are_kept_one_for_each_second() {
        let events = SlowMoments::default();
        events.note(COMMAND, Duration::from_secs(5));
        assert!(events.all().is_empty(), "nothing is noted without a threshold");
        for second in 0..200 {
            events.note_at(COMMAND, second, 300 - second);
            events.note_at(COMMAND, second, 7);
        }
        let all = events.all();
        let of = &all[COMMAND];
        assert_eq!((of.history.len(), of.longest), (MOMENTS_MAX, 300));
        assert_eq!((of.history.front(), of.history.back()), (Some(&(40, 260)), Some(&(199, 101))));
        events.note_at(LOG_SYNC, 1, 1);
        assert_eq!(events.reset(&["LOG-SYNC", "none"]), 1);
        assert_eq!((events.reset(&[]), events.reset(&[])), (1, 0));
    }

    #[test]
    fn a_threshold_is_in_milliseconds() {
        let events = SlowMoments::default();
        events.set_threshold(3);
        events.note(COMMAND, Duration::from_micros(2_999));
        assert!(events.all().is_empty());
        events.note(COMMAND, Duration::from_millis(3));
        assert_eq!(events.all()[COMMAND].longest, 3);
    }
}
