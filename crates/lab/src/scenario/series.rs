//! Throughput over time: means over intervals, and the time of recovery after an event.

use serde::{Deserialize, Serialize};

use crate::ycsb::Second;

/// The length in seconds over which throughput is averaged. A single second depends more on a
/// compaction than on the layout.
pub const WINDOW_S: f64 = 10.0;

/// Returns the mean operations per second over `(from_s, to_s]`. A second that crosses an edge
/// counts by its share. `None` if the series has nothing there.
pub fn mean_between(series: &[Second], from_s: f64, to_s: f64) -> Option<f64> {
    let (mut operations, mut covered) = (0.0, 0.0);
    let mut began = 0.0;
    for second in series {
        let length = second.at_s - began;
        let inside = second.at_s.min(to_s) - began.max(from_s);
        if inside > 0.0 && length > 0.0 {
            operations += second.operations as f64 * inside / length;
            covered += inside;
        }
        began = second.at_s;
    }
    (covered > 0.0).then(|| operations / covered)
}

/// The recovery of throughput after an event.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Recovery {
    /// Throughput never fell below the threshold.
    NeverFell,
    /// Throughput was back at the threshold this many seconds after the event. Both the mean of the
    /// next [`WINDOW_S`] and the mean of all the rest reached the threshold.
    After {
        seconds: f64,
    },
    Never,
}

impl Recovery {
    /// Returns the seconds until recovery. `None` if throughput never recovered.
    pub fn seconds(self) -> Option<f64> {
        match self {
            Recovery::NeverFell => Some(0.0),
            Recovery::After { seconds } => Some(seconds),
            Recovery::Never => None,
        }
    }

    pub fn text(self) -> String {
        match self {
            Recovery::NeverFell => "it never fell below".to_owned(),
            Recovery::After { seconds } => format!("{seconds:.0} s"),
            Recovery::Never => "never".to_owned(),
        }
    }
}

/// Returns when throughput was back at `threshold` operations per second after an event at
/// `event_s`, and stayed there until `end_s`. It checks the windows between the two that begin at
/// every full second after the event.
pub fn recovery(series: &[Second], event_s: f64, end_s: f64, threshold: f64) -> Recovery {
    let windows = ((end_s - WINDOW_S - event_s).floor().max(0.0)) as usize;
    let at = |index: usize| event_s + index as f64;
    let holds = |from_s: f64, to_s: f64| mean_between(series, from_s, to_s).unwrap_or(0.0) >= threshold;
    let Some(fell) = (0..=windows).find(|index| !holds(at(*index), at(*index) + WINDOW_S)) else {
        return Recovery::NeverFell;
    };
    let back = (fell..=windows)
        .find(|index| holds(at(*index), at(*index) + WINDOW_S) && holds(at(*index), end_s))
        .map(|index| Recovery::After { seconds: index as f64 });
    back.unwrap_or(Recovery::Never)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a series. Each part is a number of seconds and the operations in each of them.
    pub fn series(parts: &[(usize, u64)]) -> Vec<Second> {
        let rates = parts.iter().flat_map(|(seconds, rate)| std::iter::repeat_n(*rate, *seconds));
        let second = |(index, operations)| Second {
            at_s: index as f64 + 1.0,
            operations,
            mean_us: 1000.0,
            p99_us: 5000,
        };
        rates.enumerate().map(second).collect()
    }

    #[test]
    fn a_mean_counts_seconds_by_their_share() {
        let series = series(&[(10, 100), (10, 200)]);
        assert_eq!(mean_between(&series, 0.0, 20.0), Some(150.0));
        assert_eq!(mean_between(&series, 9.5, 10.5), Some(150.0));
        assert_eq!(mean_between(&series, 15.0, 99.0), Some(200.0));
        assert_eq!(mean_between(&series, 20.0, 99.0), None);
        assert_eq!(mean_between(&[], 0.0, 1.0), None);
    }

    #[test]
    fn recovery_is_the_first_window_that_is_back_and_stays() {
        let fell = series(&[(60, 1000), (45, 100), (75, 900)]);
        // The window that begins 43 s after the event has two slow seconds: (2 x 100 + 8 x 900) /
        // 10 = 740.
        assert_eq!(recovery(&fell, 60.0, 180.0, 800.0), Recovery::After { seconds: 44.0 });
        assert_eq!(recovery(&fell, 60.0, 180.0, 950.0), Recovery::Never);
        assert_eq!(recovery(&series(&[(180, 1000)]), 60.0, 180.0, 800.0), Recovery::NeverFell);
    }

    /// The first seconds after an event complete operations that began before it. A burst is no
    /// recovery.
    #[test]
    fn what_comes_before_the_fall_and_what_does_not_last_is_no_recovery() {
        let late = series(&[(60, 1000), (15, 1000), (30, 100), (75, 900)]);
        assert_eq!(recovery(&late, 60.0, 180.0, 800.0), Recovery::After { seconds: 44.0 });
        let burst = series(&[(60, 1000), (20, 100), (12, 900), (88, 100)]);
        assert_eq!(recovery(&burst, 60.0, 180.0, 800.0), Recovery::Never);
    }

    #[test]
    fn a_phase_without_operations_did_not_recover() {
        assert_eq!(recovery(&[], 60.0, 180.0, 800.0), Recovery::Never);
        assert_eq!(Recovery::Never.seconds(), None);
        assert_eq!(Recovery::After { seconds: 44.4 }.text(), "44 s");
    }
}
