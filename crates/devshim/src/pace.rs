//! A thread's own account with the device, in virtual time.
//!
//! Sleeping costs tens of microseconds however short the sleep, and a busy machine wakes a thread late. So a
//! thread may run ahead of the device by a little before it sleeps, and what it overslept is taken off its
//! next waits: single waits are rough below 100 us, the average is right.

/// Shorter debts are carried, not slept.
const SLEEP_MIN_NS: u64 = 50_000;
/// Lateness beyond this is the machine's fault and is not made up for.
const CREDIT_MAX_NS: u64 = 10_000_000;
/// A thread that left the device alone for so long starts with a clean account.
const FORGET_NS: u64 = 50_000_000;

/// Pure: the caller reads the clock and sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Where the device's time stood for this thread when the real clock showed `real`.
    device: u64,
    real: u64,
}

impl Pace {
    pub const fn new() -> Pace {
        Pace { device: 0, real: 0 }
    }

    /// When, in the device's time, an operation begins that the thread makes at `now`.
    pub fn start(&self, now: u64) -> u64 {
        let idle = now.saturating_sub(self.real);
        if idle > FORGET_NS {
            return now;
        }
        self.device.saturating_add(idle)
    }

    /// Closes an operation made at `entered` that the device ends at `end`, now that the real call returned.
    /// Gives the time to sleep until, if it is worth sleeping.
    pub fn finish(&mut self, entered: u64, now: u64, end: u64) -> Option<u64> {
        let passed = self.start(entered).saturating_add(now.saturating_sub(entered));
        self.device = passed.max(end).max(now.saturating_sub(CREDIT_MAX_NS));
        self.real = now;
        (end > now.saturating_add(SLEEP_MIN_NS)).then_some(end)
    }

    /// The sleep is over, probably late.
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
