//! The account of one thread with the device, in virtual time.
//!
//! Even the shortest sleep costs tens of microseconds, and a busy machine wakes a thread late. So a
//! thread may run ahead of the device by a little before it sleeps, and time that it overslept is
//! subtracted from its next waits. Single waits below 100 us are inexact, but the average is right.

/// Minimum nanoseconds of a sleep. Shorter debts are carried over.
const SLEEP_MIN_NS: u64 = 50_000;
/// Maximum nanoseconds of lateness that later waits make up for. The machine is responsible for the
/// rest.
const CREDIT_MAX_NS: u64 = 10_000_000;
/// Nanoseconds without device access after which a thread's account is reset.
const FORGET_NS: u64 = 50_000_000;

/// A thread's account. It is pure: the caller reads the clock and sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The device time of this thread at the moment at which the real clock showed `real`.
    device: u64,
    real: u64,
}

impl Pace {
    pub const fn new() -> Pace {
        Pace { device: 0, real: 0 }
    }

    /// Returns the device time at which an operation begins that the thread starts at `now`.
    pub fn start(&self, now: u64) -> u64 {
        let idle = now.saturating_sub(self.real);
        if idle > FORGET_NS {
            return now;
        }
        self.device.saturating_add(idle)
    }

    /// Accounts for an operation that entered at `entered` and that the device ends at `end`, after
    /// the real call returned. Returns the time until which to sleep, if that is worthwhile.
    pub fn finish(&mut self, entered: u64, now: u64, end: u64) -> Option<u64> {
        let passed = self.start(entered).saturating_add(now.saturating_sub(entered));
        self.device = passed.max(end).max(now.saturating_sub(CREDIT_MAX_NS));
        self.real = now;
        (end > now.saturating_add(SLEEP_MIN_NS)).then_some(end)
    }

    /// Accounts for the end of a sleep, which is probably late.
    pub fn woke(&mut self, now: u64) {
        self.device = self.device.max(now.saturating_sub(CREDIT_MAX_NS));
        self.real = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    #[test]
    fn tiny_waits_add_up_to_one_sleep() {
        let (mut pace, now) = (Pace::new(), 1_000_000_000);
        let mut slept = Vec::new();
        for _ in 0..6 {
            let end = pace.start(now) + 10 * US;
            slept.extend(pace.finish(now, now, end));
        }
        assert_eq!(slept, [now + 60 * US]);
    }

    #[test]
    fn oversleeping_is_repaid_by_the_next_wait() {
        let (mut pace, now) = (Pace::new(), 1_000_000_000);
        assert_eq!(pace.finish(now, now, now + 1_000 * US), Some(now + 1_000 * US));
        let late = now + 1_300 * US;
        pace.woke(late);
        assert_eq!(pace.start(late), now + 1_000 * US);
        let end = pace.start(late) + 1_000 * US;
        assert_eq!(pace.finish(late, late, end), Some(now + 2_000 * US));
    }

    #[test]
    fn neither_a_slow_call_nor_idling_nor_a_stopped_machine_earns_credit() {
        let (mut pace, now) = (Pace::new(), 1_000_000_000);
        let slow_call = now + 500 * US;
        assert_eq!(pace.finish(now, slow_call, now + 100 * US), None);
        assert_eq!(pace.start(slow_call), slow_call);
        pace.woke(slow_call + 1_000_000 * US);
        assert!(pace.start(slow_call + 1_000_000 * US) >= slow_call + 990_000 * US);
        assert_eq!(pace.start(now + 10_000_000 * US), now + 10_000_000 * US);
    }
}
