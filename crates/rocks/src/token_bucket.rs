//! A rate limit without a clock: it returns how long to wait, and the caller waits.

use std::time::Duration;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Time for which unused rate accumulates.
const SAVED: Duration = Duration::from_millis(50);

/// A token bucket in bytes per second. Its times count from any fixed moment and never decrease.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// The rate; 0 means no limit.
    bytes_per_sec: u64,
    /// Time at which all bytes taken so far are within the rate.
    paid_at: Duration,
}

impl TokenBucket {
    pub fn new(bytes_per_sec: u64) -> TokenBucket {
        TokenBucket { bytes_per_sec, paid_at: Duration::ZERO }
    }

    pub fn set_rate(&mut self, bytes_per_sec: u64) {
        self.bytes_per_sec = bytes_per_sec;
    }

    /// Takes `bytes` and returns the time that the caller must wait, before or after it moves them.
    /// The next caller waits for both. In any time `t`, at most `rate * (t + 50 ms)` bytes plus one
    /// call's bytes pass.
    pub fn take(&mut self, bytes: u64, now: Duration) -> Duration {
        if self.bytes_per_sec == 0 {
            return Duration::ZERO;
        }
        let nanos = u128::from(bytes) * NANOS_PER_SEC / u128::from(self.bytes_per_sec);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let begin = self.paid_at.max(now.saturating_sub(SAVED));
        self.paid_at = begin.saturating_add(cost);
        self.paid_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_takers_together_stay_below_the_rate() {
        const RATE: u64 = 1_000_000;
        let mut bucket = TokenBucket::new(RATE);
        let mut now = [Duration::ZERO; 3];
        let mut taken = 0;
        let end = Duration::from_secs(10);
        for step in 0.. {
            let taker = (0..3).min_by_key(|&taker| now[taker]).unwrap();
            if now[taker] >= end {
                break;
            }
            let bytes = 1 + step * 7919 % 100_000;
            let at = now[taker];
            now[taker] += bucket.take(bytes, at);
            taken += bytes;
        }
        // Each caller may exceed the limit by the one call that it waits for.
        assert!(taken <= RATE * 10 + RATE / 20 + 3 * 100_000, "{taken}");
        assert!(taken >= RATE * 10 - 100_000, "{taken}");
    }

    #[test]
    fn what_was_not_used_is_saved_up_for_a_moment_only() {
        let mut bucket = TokenBucket::new(1_000);
        let now = Duration::from_secs(100);
        assert_eq!(bucket.take(50, now), Duration::ZERO);
        assert_eq!(bucket.take(1_000, now), Duration::from_secs(1));
        assert_eq!(TokenBucket::new(0).take(u64::MAX, now), Duration::ZERO);
        bucket.set_rate(1);
        assert!(bucket.take(u64::MAX, now) > Duration::from_secs(1 << 30));
    }
}
