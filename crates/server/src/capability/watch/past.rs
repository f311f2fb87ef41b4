//! What a sync of the log usually takes on this store, by how much else is written to the device.
//!
//! ```text
//! per sync = own cost + wait(load)       own cost = sync latency + bytes of the log per sync / write bandwidth
//! ```
//!
//! A sync waits for what others have queued before it, so the wait depends on their load, which is the share of the
//! device's write bandwidth that they take. How many syncs there are and how large they are is in the own cost. The
//! table has one wait for each level of load: 56 bytes for each of its 7 levels and, until a level is known, up to
//! [`KNOWN`] samples.

/// From here on a level of load is the next: shares of the write bandwidth.
const LEVELS: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];
/// Windows from which a level is known.
const KNOWN: usize = 30;
/// What one more window moves, of the logarithm of its difference.
const STEP: f64 = 1.0 / 64.0;
/// A single window counts for no more than this.
const DIFFERENCE_MAX: f64 = 0.5;
/// The usual time rises to this times what it was when it was last confirmed, and no further.
const RISE_MAX: f64 = 1.25;
/// Windows of one level that confirm another usual time.
const CONFIRMING: usize = 8;
/// A sync that is faster than measured takes this part of its own cost at least.
const COST_MIN: f64 = 0.05;

/// One window under load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lesson {
    /// Written by others, in shares of the device's write bandwidth.
    pub load: f64,
    /// Seconds a sync, as it would be with nothing else on the device,
    pub cost: f64,
    /// and as it was.
    pub took: f64,
}

#[derive(Clone, Debug, Default)]
struct Level {
    /// Seconds; empty once the level is known.
    samples: Vec<f64>,
    known: Option<Wait>,
}

/// Seconds a sync beyond its own cost; below 0 on a device that is faster than it was measured.
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
    /// Seconds that a sync of this cost usually takes under this load; `None`: not known. A level of load that is not
    /// known is taken for the next higher one that is, where a sync takes no less.
    pub fn usual(&self, load: f64, cost: f64) -> Option<f64> {
        let wait = self.levels[level(load)..].iter().find_map(|level| level.known)?;
        Some(total(wait.usual, cost))
    }

    /// Takes in a window of a device that is healthy as far as anybody knows.
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

    /// Takes in windows of a device that was found healthy while syncs took longer than usual: the load is another.
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

/// The lower one of two in the middle; 0 of none.
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
        assert!((larger - 12e-3).abs() < 1e-9, "2 ms behind others, whatever the log writes: {larger}");
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
        assert!(usual_ms(&past, 0.3).unwrap() < 3.3, "each counts for little: {past:?}");
        (0..10_000).for_each(|_| past.learn(lesson(0.3, 6.0)));
        assert_eq!(usual_ms(&past, 0.3), Some(3.75));
        (0..10_000).for_each(|_| past.learn(lesson(0.3, 2.0)));
        assert_eq!(usual_ms(&past, 0.3), Some(2.0), "downward it is free");
    }

    #[test]
    fn another_load_on_a_device_found_healthy_is_usual_at_once() {
        let mut past = taught(0.3, 3.0);
        past.confirm(&[lesson(0.3, 9.0); CONFIRMING - 1]);
        assert_eq!(usual_ms(&past, 0.3), Some(3.0), "too few");
        past.confirm(&[lesson(0.3, 9.0); CONFIRMING]);
        assert_eq!(usual_ms(&past, 0.3), Some(9.0));
        past.confirm(&[lesson(0.3, 1.0); CONFIRMING]);
        assert_eq!(usual_ms(&past, 0.3), Some(9.0), "both are usual");
    }
}
