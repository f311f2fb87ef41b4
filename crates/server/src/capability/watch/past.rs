//! The usual time of a log sync on this store, by the load that other writes put on the device.
//!
//! ```text
//! per sync = own cost + wait(load)
//! own cost = sync latency + bytes of the log per sync / write bandwidth
//! ```
//!
//! A sync waits for the writes that others have queued before it. So the wait depends on their
//! load, which is the share of the device's write bandwidth that they take. The own cost covers the
//! number and size of the syncs. The table has one wait for each level of load: 56 bytes for each
//! of its 7 levels and, until a level is known, up to [`KNOWN`] samples.

/// The lower bounds of the levels of load after the first, as shares of the write bandwidth.
const LEVELS: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];
/// Minimum number of windows from which a level is known.
const KNOWN: usize = 30;
/// Weight of each new window, on the logarithm of its difference.
const STEP: f64 = 1.0 / 64.0;
/// Maximum difference, as a logarithm, that a single window contributes.
const DIFFERENCE_MAX: f64 = 0.5;
/// Maximum of the usual time, as a multiple of the last confirmed one.
const RISE_MAX: f64 = 1.25;
/// Minimum number of windows of one level that confirm another usual time.
const CONFIRMING: usize = 8;
/// Minimum time of a sync, as a share of its own cost, on a device that is faster than measured.
const COST_MIN: f64 = 0.05;

/// The observation of one window under load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lesson {
    /// Bytes that others wrote, as a share of the device's write bandwidth.
    pub load: f64,
    /// The time of a sync with nothing else on the device, in seconds.
    pub cost: f64,
    /// The observed time of a sync, in seconds.
    pub took: f64,
}

#[derive(Clone, Debug, Default)]
struct Level {
    /// Waits in seconds; empty once the level is known.
    samples: Vec<f64>,
    known: Option<Wait>,
}

/// The time of a sync beyond its own cost, in seconds. It is negative on a device that is faster
/// than measured.
#[derive(Clone, Copy, Debug)]
struct Wait {
    usual: f64,
    confirmed: f64,
}

#[derive(Clone, Debug, Default)]
pub struct Past {
    levels: [Level; LEVELS.len() + 1],
}

impl Past {
    /// Returns the usual time in seconds of a sync with this cost under this load; `None` if it is
    /// not known. An unknown level counts as the next higher known one, where a sync takes no less.
    pub fn usual(&self, load: f64, cost: f64) -> Option<f64> {
        let wait = self.levels[level(load)..].iter().find_map(|level| level.known)?;
        Some(total(wait.usual, cost))
    }

    /// Learns from a window of a device that is healthy as far as is known.
    pub fn learn(&mut self, lesson: Lesson) {
        let level = &mut self.levels[level(lesson.load)];
        let Some(wait) = &mut level.known else {
            level.samples.push(lesson.took - lesson.cost);
            if level.samples.len() >= KNOWN {
                let usual = median(std::mem::take(&mut level.samples));
                level.known = Some(Wait { usual, confirmed: usual });
            }
            return;
        };
        let before = total(wait.usual, lesson.cost);
        let difference = (lesson.took / before).ln().clamp(-DIFFERENCE_MAX, DIFFERENCE_MAX);
        let highest = RISE_MAX * total(wait.confirmed, lesson.cost);
        wait.usual = (before * (STEP * difference).exp()).min(highest) - lesson.cost;
    }

    /// Learns from windows of a device that was found healthy although syncs took longer than
    /// usual: the load has changed.
    pub fn confirm(&mut self, lessons: &[Lesson]) {
        for (number, level) in self.levels.iter_mut().enumerate() {
            let here = lessons.iter().filter(|lesson| self::level(lesson.load) == number);
            let waits: Vec<f64> = here.map(|lesson| lesson.took - lesson.cost).collect();
            if waits.len() < CONFIRMING {
                continue;
            }
            let usual = level.known.map_or(f64::MIN, |wait| wait.usual).max(median(waits));
            level.known = Some(Wait { usual, confirmed: usual });
            level.samples.clear();
        }
    }
}

fn level(load: f64) -> usize {
    LEVELS.iter().take_while(|from| load >= **from).count()
}

fn total(wait: f64, cost: f64) -> f64 {
    (cost + wait).max(cost * COST_MIN).max(1e-9)
}

/// Returns the median, the lower middle one for an even number; 0 for an empty list.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(load: f64, took_ms: f64) -> Lesson {
        Lesson { load, cost: 1e-3, took: took_ms * 1e-3 }
    }

    fn taught(load: f64, took_ms: f64) -> Past {
        let mut past = Past::default();
        (0..KNOWN).for_each(|_| past.learn(lesson(load, took_ms)));
        past
    }

    fn usual_ms(past: &Past, load: f64) -> Option<f64> {
        past.usual(load, 1e-3).map(|usual| (usual * 1e6).round() / 1e3)
    }

    #[test]
    fn a_level_is_known_from_thirty_windows_on_by_their_median() {
        let mut past = Past::default();
        for n in 0..KNOWN {
            assert_eq!(usual_ms(&past, 0.3), None);
            past.learn(lesson(0.3, if n % 4 == 0 { 50.0 } else { 3.0 }));
        }
        assert_eq!(usual_ms(&past, 0.3), Some(3.0));
    }

    #[test]
    fn the_wait_is_kept_apart_from_what_a_sync_costs_itself() {
        let past = taught(0.3, 3.0);
        let larger = past.usual(0.3, 10e-3).unwrap();
        assert!((larger - 12e-3).abs() < 1e-9, "2 ms of waiting, whatever the log writes: {larger}");
        let faster = taught(0.0, 0.1);
        assert_eq!(usual_ms(&faster, 0.0), Some(0.1), "a device may be faster than it was measured");
    }

    #[test]
    fn a_lower_load_that_is_not_known_is_taken_for_a_higher_one_and_never_the_other_way() {
        let past = taught(0.3, 3.0);
        assert_eq!(usual_ms(&past, 0.0), Some(3.0));
        assert_eq!(usual_ms(&past, 0.5), None);
    }

    #[test]
    fn the_usual_time_follows_slowly_and_rises_no_further_than_a_quarter() {
        let mut past = taught(0.3, 3.0);
        (0..10).for_each(|_| past.learn(lesson(0.3, 300.0)));
        assert!(usual_ms(&past, 0.3).unwrap() < 3.3, "each window counts for little: {past:?}");
        (0..10_000).for_each(|_| past.learn(lesson(0.3, 6.0)));
        assert_eq!(usual_ms(&past, 0.3), Some(3.75));
        (0..10_000).for_each(|_| past.learn(lesson(0.3, 2.0)));
        assert_eq!(usual_ms(&past, 0.3), Some(2.0), "the usual time falls without a limit");
    }

    #[test]
    fn another_load_on_a_device_found_healthy_is_usual_at_once() {
        let mut past = taught(0.3, 3.0);
        past.confirm(&[lesson(0.3, 9.0); CONFIRMING - 1]);
        assert_eq!(usual_ms(&past, 0.3), Some(3.0), "too few");
        past.confirm(&[lesson(0.3, 9.0); CONFIRMING]);
        assert_eq!(usual_ms(&past, 0.3), Some(9.0));
        past.confirm(&[lesson(0.3, 1.0); CONFIRMING]);
        assert_eq!(usual_ms(&past, 0.3), Some(9.0), "the higher time is usual");
    }
}
