//! Decides whether the loop that owns the groups waits for a write of the log.
//!
//! A batch that goes to the log thread costs two wake-ups of threads. On a device that syncs within
//! 100 us they take longer than the sync, and cost more CPU time than everything else that is done
//! for the batch. If the loop writes the batch itself, its clients wait for the sync, as they would
//! anyway if all of them write.

use std::time::Duration;

/// Maximum mean duration of the last writes for which the loop waits.
const WAIT_MAX: Duration = Duration::from_micros(500);
/// Maximum bytes of a batch that the loop writes.
const BYTES_MAX: u64 = 1 << 20;
/// The share of the last write in the mean: 1/`SHARE`.
const SHARE: u32 = 8;

/// The durations of the last writes, or the expectation of a slow device before there was one.
#[derive(Debug)]
pub(super) struct Waits {
    mean: Duration,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { mean: 2 * WAIT_MAX }
    }
}

impl Waits {
    /// Records the duration of a write of a batch with entries of `bytes` bytes.
    pub(super) fn note(&mut self, bytes: u64, took: Duration) {
        if bytes <= BYTES_MAX {
            self.mean = (self.mean * (SHARE - 1) + took) / SHARE;
        }
    }

    pub(super) fn are_short(&self, bytes: u64) -> bool {
        bytes <= BYTES_MAX && self.mean <= WAIT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(100);

    fn after(takes: &[(usize, Duration)]) -> Waits {
        let mut waits = Waits::default();
        for &(times, took) in takes {
            (0..times).for_each(|_| waits.note(100, took));
        }
        waits
    }

    #[test]
    fn a_loop_waits_for_small_writes_on_a_device_that_has_been_fast() {
        assert!(!after(&[]).are_short(100), "nothing is known of the device");
        assert!(after(&[(20, SHORT)]).are_short(100));
        assert!(after(&[(20, SHORT)]).are_short(BYTES_MAX));
        assert!(!after(&[(20, SHORT)]).are_short(BYTES_MAX + 1));
        assert!(!after(&[(20, 2 * WAIT_MAX)]).are_short(100));
    }

    #[test]
    fn one_long_write_ends_the_waits_until_others_were_short() {
        assert!(!after(&[(20, SHORT), (1, Duration::from_millis(5))]).are_short(100));
        assert!(after(&[(20, SHORT), (1, Duration::from_millis(5)), (10, SHORT)]).are_short(100));
        // A device that hung for a minute counts as fast again after less than a hundred writes.
        let hung = Duration::from_secs(60);
        assert!(!after(&[(1, hung), (50, SHORT)]).are_short(100));
        assert!(after(&[(1, hung), (100, SHORT)]).are_short(100));
        // A large batch says nothing about small ones.
        let mut waits = after(&[(20, SHORT)]);
        waits.note(BYTES_MAX + 1, hung);
        assert!(waits.are_short(100));
    }
}
