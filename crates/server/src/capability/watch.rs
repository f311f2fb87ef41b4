//! Whether the device still does what it was measured to do, judged from what it did anyway.
//!
//! The log thread writes and syncs on the one device that flushes and compactions also write to. What a
//! healthy device needs for it is at most
//!
//! ```text
//! expected = syncs * sync latency + bytes written by anybody / write bandwidth
//! ```
//!
//! for a sync waits for what was written before it. A device that is merely busy, even one that compactions
//! keep busy all the time, is therefore near `blocked / expected = 1`, where `blocked` is how long the log
//! thread waited for the device; one that has become ten times slower is near 10. All bytes of the time are
//! counted and not those of the syncs' moments alone, so a healthy device is rather taken for too good.
//!
//! The factor by which the measured capability counts follows slowly up and fast down, and both by a median of
//! several windows: one hiccup says nothing. A window in which the device was used for less than a quarter of the time
//! can clear it but not blame it: a sync after a long rest also waits for a drive that wakes up, and that of an idle store
//! for whatever else the machine does. So an idle store is never corrected down.
//!
//! No clock, no file: time and counts come in as arguments.

use std::collections::VecDeque;
use std::time::Duration;

/// What the device was measured to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    pub sync_latency: Duration,
    pub write_bytes_per_s: f64,
}

/// Counted since the store has started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// How long the log thread waited for the device.
    pub blocked: Duration,
    /// Of the log.
    pub syncs: u64,
    /// Written by all threads.
    pub bytes: u64,
}

/// What was done to the device on purpose, to see what it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    pub blocked: Duration,
    pub syncs: u64,
    /// Its own, and about what others wrote meanwhile.
    pub bytes: u64,
}

/// The factor is another than before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Changed {
    pub before: f64,
    pub correction: f64,
    /// The median by which it was decided.
    pub ratio: f64,
}

const WINDOW: Duration = Duration::from_secs(1);
/// A window lasts until it has so many syncs, or was blocked for half of its time.
const SYNCS_MIN: u64 = 4;
/// A window with less is dropped.
const WINDOW_MAX: Duration = Duration::from_secs(15);
/// Faster syncs are not told apart from the noise of a thread that is woken.
const SYNC_FLOOR: Duration = Duration::from_micros(50);
/// The part of a window for which the log must have waited for the device, or it blames nobody: an idle store syncs now
/// and then, and what each of these few waits is what else happens on the machine.
const USED_MIN: f64 = 0.25;

/// The last judgements, of which the median counts.
const JUDGED_MAX: usize = 7;
const JUDGED_MIN: usize = 4;
const JUDGED_AGE_MAX: Duration = Duration::from_secs(60);

pub const SLOW: f64 = 2.0;
const HEALTHY: f64 = 1.5;
/// A factor that would be lower by no more than this stays.
const LOWER_BY: f64 = 0.8;
/// And one that would be higher by less than this.
const HIGHER_BY: f64 = 1.5;
const HIGHER_AFTER: Duration = Duration::from_secs(30);
const HIGHER_AGAIN_AFTER: Duration = Duration::from_secs(10);
const HIGHER_STEP: f64 = 2.0;
pub const CORRECTION_MIN: f64 = 0.001;

const TOUCH_CORRECTED: Duration = Duration::from_secs(5);
/// While the store serves and its log says nothing, as under a load of reads.
const TOUCH_SERVING: Duration = Duration::from_secs(10);
const TOUCH_SUSPECT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Watch {
    reference: Reference,
    window: Option<(Duration, Totals)>,
    /// When, and blocked time over expected time.
    judged: VecDeque<(Duration, f64)>,
    correction: f64,
    /// Since when it would be higher.
    better_since: Option<Duration>,
    raised_at: Option<Duration>,
    touched_at: Option<Duration>,
}

impl Watch {
    pub fn new(reference: Reference) -> Watch {
        Watch {
            reference,
            window: None,
            judged: VecDeque::new(),
            correction: 1.0,
            better_since: None,
            raised_at: None,
            touched_at: None,
        }
    }

    /// By which the measured capability counts, from [`CORRECTION_MIN`] to 1.
    pub fn correction(&self) -> f64 {
        self.correction
    }

    /// The median of what was judged lately; `None`: too little to say.
    pub fn ratio(&self) -> Option<f64> {
        if self.judged.len() < JUDGED_MIN {
            return None;
        }
        let mut ratios: Vec<f64> = self.judged.iter().map(|(_, ratio)| *ratio).collect();
        ratios.sort_by(f64::total_cmp);
        Some(ratios[(ratios.len() - 1) / 2])
    }

    /// Takes in how things stand, about once a second.
    pub fn observe(&mut self, now: Duration, totals: Totals) -> Option<Changed> {
        let (began, before) = *self.window.get_or_insert((now, totals));
        let span = now.saturating_sub(began);
        let blocked = totals.blocked.saturating_sub(before.blocked);
        let syncs = totals.syncs.saturating_sub(before.syncs);
        let used = blocked.as_secs_f64() / span.as_secs_f64().max(1e-9);
        let is_whole = span >= WINDOW && (syncs >= SYNCS_MIN || used >= 0.5);
        if is_whole {
            let bytes = totals.bytes.saturating_sub(before.bytes);
            // A sync that has not come back is one, too.
            let ratio = self.ratio_of(blocked, syncs.max(1), bytes);
            if used >= USED_MIN || ratio < HEALTHY {
                self.judge(now, ratio);
            }
        }
        if is_whole || span >= WINDOW_MAX {
            self.window = Some((now, totals));
        }
        self.decide(now)
    }

    /// Whether the device should be touched on purpose, for what happens anyway says too little.
    pub fn wants_touch(&self, now: Duration, is_serving: bool) -> bool {
        let since = |at: Option<Duration>| at.map_or(now, |at| now.saturating_sub(at));
        let (last, suspect) = match self.judged.back() {
            Some((at, ratio)) => (Some(*at), *ratio > SLOW),
            None => (None, false),
        };
        let pause = match (self.correction < 1.0, is_serving) {
            (true, _) => TOUCH_CORRECTED,
            (false, true) if suspect => TOUCH_SUSPECT,
            (false, true) => TOUCH_SERVING,
            (false, false) => return false,
        };
        since(last) >= pause && since(self.touched_at) >= pause
    }

    /// Takes in what a touch that was wanted has shown.
    pub fn touched(&mut self, now: Duration, touch: Touch) -> Option<Changed> {
        self.touched_at = Some(now);
        let ratio = self.ratio_of(touch.blocked, touch.syncs, touch.bytes);
        self.judge(now, ratio);
        self.decide(now)
    }

    /// What happens now is not what the store does otherwise: it is not judged.
    pub fn skip(&mut self) {
        self.window = None;
    }

    fn ratio_of(&self, blocked: Duration, syncs: u64, bytes: u64) -> f64 {
        let sync = self.reference.sync_latency.max(SYNC_FLOOR).as_secs_f64();
        let expected = syncs as f64 * sync + bytes as f64 / self.reference.write_bytes_per_s.max(1.0);
        blocked.as_secs_f64() / expected.max(1e-9)
    }

    fn judge(&mut self, now: Duration, ratio: f64) {
        self.judged.push_back((now, ratio));
        while self.judged.len() > JUDGED_MAX {
            self.judged.pop_front();
        }
    }

    fn decide(&mut self, now: Duration) -> Option<Changed> {
        while self.judged.front().is_some_and(|(at, _)| now.saturating_sub(*at) > JUDGED_AGE_MAX) {
            self.judged.pop_front();
        }
        let Some(ratio) = self.ratio() else {
            self.better_since = None;
            return None;
        };
        let before = self.correction;
        let wanted = match ratio {
            slow if slow > SLOW || before < 1.0 && slow >= HEALTHY => (1.0 / slow).max(CORRECTION_MIN),
            _ => 1.0,
        };
        if wanted < before * LOWER_BY {
            self.correction = wanted;
            (self.better_since, self.raised_at) = (None, None);
        } else if before < 1.0 && (wanted == 1.0 || wanted >= before * HIGHER_BY) {
            let since = *self.better_since.get_or_insert(now);
            let is_time = match self.raised_at {
                Some(at) => now.saturating_sub(at) >= HIGHER_AGAIN_AFTER,
                None => now.saturating_sub(since) >= HIGHER_AFTER,
            };
            if is_time {
                self.correction = wanted.min(before * HIGHER_STEP);
                self.raised_at = Some(now);
            }
        } else {
            (self.better_since, self.raised_at) = (None, None);
        }
        (self.correction != before).then_some(Changed { before, correction: self.correction, ratio })
    }
}

#[cfg(test)]
mod tests;
