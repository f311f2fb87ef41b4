//! `CLIENT PAUSE`: a time in which this store executes no commands of its clients, or no writes.

use std::time::{Duration, Instant};

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    until: Instant,
    /// False if only commands that may write are paused.
    is_of_all: bool,
}

#[derive(Default)]
pub struct ClientPause {
    /// True if there may be a pause. Without one, nothing is locked.
    is_there: AtomicBool,
    pause: Mutex<Option<Pause>>,
}

impl ClientPause {
    /// Begins a pause, or prolongs the present one. As in Redis, a pause never ends earlier because
    /// of a later one, and one of all commands stays one.
    pub fn begin(&self, now: Instant, time: Duration, is_of_all: bool) {
        let mut pause = self.pause.lock();
        let until = now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()));
        let present = pause.filter(|pause| pause.until > now);
        *pause = Some(Pause {
            until: present.map_or(until, |present| present.until.max(until)),
            is_of_all: is_of_all || present.is_some_and(|present| present.is_of_all),
        });
        self.is_there.store(true, Ordering::SeqCst);
    }

    pub fn end(&self) {
        *self.pause.lock() = None;
        self.is_there.store(false, Ordering::SeqCst);
    }

    /// Returns the end of the pause, if one holds a command now.
    pub fn holds(&self, may_write: bool) -> Option<Instant> {
        if !self.is_there.load(Ordering::Relaxed) {
            return None;
        }
        let mut pause = self.pause.lock();
        let now = Instant::now();
        match *pause {
            Some(Pause { until, is_of_all }) if until > now => (is_of_all || may_write).then_some(until),
            _ => {
                *pause = None;
                self.is_there.store(false, Ordering::SeqCst);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_pause_neither_shortens_nor_weakens_the_present_one() {
        let pause = ClientPause::default();
        let now = Instant::now();
        assert_eq!(pause.holds(true), None);
        pause.begin(now, Duration::from_secs(60), false);
        assert_eq!((pause.holds(true), pause.holds(false)), (Some(now + Duration::from_secs(60)), None));
        pause.begin(now, Duration::from_secs(1), true);
        assert_eq!(pause.holds(false), Some(now + Duration::from_secs(60)));
        pause.end();
        assert_eq!(pause.holds(true), None);
        pause.begin(now, Duration::ZERO, true);
        assert_eq!(pause.holds(true), None, "it has ended");
        pause.begin(now, Duration::MAX, true);
        assert!(pause.holds(false).is_some());
    }
}
