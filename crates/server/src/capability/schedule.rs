//! The schedule of repeated measurements.
//!
//! ```text
//! after the first sitting      half a minute
//! after the second and later   never if the spread is at most SPREAD_WIDE;
//!                              else 10 min, 20 min, 40 min, … 6 h
//! ```
//!
//! and at most [`DAY_MAX`] times in 24 hours.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Number of sittings that every device gets.
pub const SITTINGS: u32 = 2;
const FIRST_REST: Duration = Duration::from_secs(30);
/// Spread above which a capability is measured again. With a wider spread, stores that differ by
/// the smallest relevant factor could not be distinguished.
const SPREAD_WIDE: f64 = placement::APART;
const REST: Duration = Duration::from_secs(600);
const REST_MAX: Duration = Duration::from_secs(6 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const DAY_MAX: usize = 8;
/// Maximum number of sittings in the history.
pub const HISTORY_MAX: usize = 16;

const _: () = assert!(HISTORY_MAX >= DAY_MAX);

/// A time at which the device was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sitting {
    pub began_unix_ms: u64,
    pub ended_unix_ms: u64,
}

/// Returns the time until the next sitting; `None` if the result is good enough. `sittings` is the
/// number of sittings behind the present result, and `history` lists the last ones in order.
pub fn rest(sittings: u32, spread: f64, history: &[Sitting], now_unix_ms: u64) -> Option<Duration> {
    let rest = match sittings.checked_sub(SITTINGS) {
        None => FIRST_REST,
        Some(_) if spread <= SPREAD_WIDE => return None,
        Some(more) => REST.saturating_mul(1 << more.min(16)).min(REST_MAX),
    };
    // If the clock was set back, the rest counts from now.
    let since = |sitting: &Sitting| Duration::from_millis(now_unix_ms.saturating_sub(sitting.ended_unix_ms));
    let left = history.last().map_or(Duration::ZERO, |last| rest.saturating_sub(since(last)));
    let eighth = history.len().checked_sub(DAY_MAX).map(|at| &history[at]);
    Some(left.max(eighth.map_or(Duration::ZERO, |eighth| DAY.saturating_sub(since(eighth)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn at(minutes: &[u64]) -> Vec<Sitting> {
        let sitting =
            |minute: &u64| Sitting { began_unix_ms: minute * MINUTE - 1000, ended_unix_ms: minute * MINUTE };
        minutes.iter().map(sitting).collect()
    }

    fn minutes(sittings: u32, spread: f64, history: &[u64], now: u64) -> Option<f64> {
        let rest = rest(sittings, spread, &at(history), now * MINUTE)?;
        Some(rest.as_secs_f64() / 60.0)
    }

    #[test]
    fn a_second_sitting_comes_soon_and_a_third_only_where_the_result_is_not_sure() {
        assert_eq!(minutes(1, 1.0, &[100], 100), Some(0.5));
        assert_eq!(minutes(1, 3.0, &[100], 101), Some(0.0), "it is due");
        assert_eq!(minutes(2, 1.25, &[99, 100], 100), None);
        assert_eq!(minutes(2, 1.3, &[99, 100], 103), Some(7.0));
        assert_eq!(minutes(2, 1.3, &[99, 100], 90), Some(10.0), "the clock was set back");
    }

    #[test]
    fn rests_grow_to_a_quarter_of_a_day() {
        let rests: Vec<_> = (2..9).map(|sittings| minutes(sittings, 2.0, &[100], 100).unwrap()).collect();
        assert_eq!(rests, [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 360.0]);
        assert_eq!(minutes(u32::MAX, 2.0, &[100], 100), Some(360.0));
    }

    #[test]
    fn a_day_has_no_more_than_eight() {
        let eight: Vec<u64> = (0..8).map(|n| 1000 + n).collect();
        assert_eq!(minutes(1, 2.0, &eight, 1008), Some(24.0 * 60.0 - 8.0));
        assert_eq!(minutes(1, 2.0, &eight[1..], 1008), Some(0.0));
        assert_eq!(minutes(1, 2.0, &eight, 1000 + 24 * 60), Some(0.0));
    }
}
