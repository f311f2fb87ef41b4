//! Detects whether the device still performs as measured, from the store's own use of it.
//!
//! Writes and syncs of the log are on the same device as flushes and compactions. On a healthy
//! device this takes at most
//!
//! ```text
//! expected = syncs * sync latency + all bytes written / write bandwidth
//! ```
//!
//! because a sync waits for everything that was written before it. `blocked` is the time for which
//! the log thread waited for the device. On a device that is only busy, even with constant
//! compactions, `blocked / expected` is near 1. On a device that has become ten times slower it is
//! near 10. All bytes of a window count, not only those written during syncs. So the estimate
//! favours the device: one that is half as fast as before may stay below 1. That case is detected
//! by comparison with the store's own past ([`past`]), the earlier time of a sync at the same load.
//!
//! A few windows never decide. A verdict requires that enough of the last windows are above a
//! limit: three quarters of 40 for a small change, seven of eight for a large one. Under noise a
//! window is above or below by chance, and a burst fills only a few windows. A comparison with the
//! past yields only a suspicion, because the load may have changed. The device is then touched
//! deliberately, about ten times, and the touches decide.
//!
//! A window with little demand on the device is not judged, because the few syncs of an idle store
//! wait for other work of the machine. So an idle store is never corrected down.
//!
//! Each of n stores that share a device is expected to get an n-th of it, so the expected time is n
//! times as long.
//!
//! The module has no clock and no file: time and counts come in as arguments.

use std::collections::VecDeque;
use std::time::Duration;

use evidence::*;
use past::{median, Lesson, Past};

mod evidence;
mod past;

/// The measured speed of the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    pub sync_latency: Duration,
    pub write_bytes_per_s: f64,
}

/// Counts since the start of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// The time for which writes of the log waited for the device.
    pub blocked: Duration,
    /// Syncs of the log.
    pub syncs: u64,
    /// Bytes written by all threads.
    pub bytes: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
}

/// The result of a deliberate use of the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    pub blocked: Duration,
    pub syncs: u64,
    pub bytes: u64,
    /// The approximate bytes that others wrote during the touch.
    pub others_bytes: u64,
}

/// A change of the correction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Changed {
    pub before: f64,
    pub correction: f64,
    /// The slowness of the device on which the decision is based.
    pub ratio: f64,
}

const WINDOW: Duration = Duration::from_secs(1);
/// Minimum syncs of a window. A window with fewer continues, unless the log was blocked for half of
/// its time.
const SYNCS_MIN: u64 = 4;
/// Time after which a window with too few syncs is dropped.
const WINDOW_MAX: Duration = Duration::from_secs(15);
/// Minimum assumed time of a sync. Shorter syncs are indistinguishable from the noise of waking a
/// thread.
const SYNC_FLOOR: Duration = Duration::from_micros(50);
/// Minimum share of a window for which a healthy device would be busy, or ([`BLOCKED_MIN`]) for
/// which the log waited. Other windows are not judged.
const DEMAND_MIN: f64 = 0.05;
const BLOCKED_MIN: f64 = 0.5;

pub const SLOW: f64 = 2.0;
const HEALTHY: f64 = 1.4;

const WINDOWS: usize = ABOVE_USUAL.among;
const WINDOW_AGE_MAX: Duration = Duration::from_secs(600);
const TOUCHES_MIN: usize = 5;
const TOUCH_AGE_MAX: Duration = Duration::from_secs(90);
/// Number of the latest windows that show the present speed of the device.
const LATEST: usize = 7;
const LATEST_MIN: usize = 4;
const LATEST_AGE_MAX: Duration = Duration::from_secs(60);

/// A correction changes only if it falls by at least a third or rises by at least a half.
const LOWER_BY: f64 = 1.0 / 1.5;
const HIGHER_BY: f64 = 1.5;
const HIGHER_AFTER: Duration = Duration::from_secs(20);
const HIGHER_AGAIN_AFTER: Duration = Duration::from_secs(10);
const HIGHER_STEP: f64 = 2.0;
pub const CORRECTION_MIN: f64 = 0.001;

const TOUCH_CORRECTED: Duration = Duration::from_secs(5);
/// Interval of touches while the store serves and its log is idle, for example under a read load.
const TOUCH_SERVING: Duration = Duration::from_secs(10);
const TOUCH_SUSPECT: Duration = Duration::from_secs(2);
const TOUCH_HURRIED: Duration = Duration::from_secs(1);
/// Maximum share of time that touches take: 1/`TOUCH_SHARE_SUSPECT` on a suspected device, and
/// 1/`TOUCH_SHARE` on any other.
const TOUCH_SHARE_SUSPECT: u32 = 2;
const TOUCH_SHARE: u32 = 6;
/// Time without a new suspicion after touches have cleared one. It doubles each time.
const CLEARED_FOR: Duration = Duration::from_secs(15);
const CLEARED_FOR_MAX: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
struct Window {
    at: Duration,
    /// True if a healthy device would have been busy for a while.
    is_asked: bool,
    /// Blocked time over expected time.
    ratio: f64,
    /// The slowness relative to the usual time or the expected time, whichever is larger.
    above_usual: f64,
    lesson: Option<Lesson>,
}

/// A device that seems slower than it was. Touches decide.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    touches: usize,
    is_hurried: bool,
}

#[derive(Debug)]
pub struct Watch {
    reference: Reference,
    past: Past,
    now: Duration,
    /// Number of stores on the device.
    sharers: usize,
    window: Option<(Duration, Totals)>,
    /// Seconds that a healthy device needs for the touches within the window.
    touching: f64,
    /// The share of the last window for which the log waited for the device.
    used: f64,
    windows: VecDeque<Window>,
    /// The time of each touch, and its duration relative to the expected one.
    touches: VecDeque<(Duration, f64)>,
    touch_took: Duration,
    suspicion: Option<Suspicion>,
    unsuspected_until: Duration,
    cleared: u32,
    /// Nothing is learned from windows before this time.
    healthy_since: Duration,
    corrected_at: Duration,
    correction: f64,
    /// The time since which a higher correction is justified.
    better_since: Option<Duration>,
    raised_at: Option<Duration>,
    touched_at: Option<Duration>,
}

impl Watch {
    pub fn new(reference: Reference) -> Watch {
        Watch {
            reference,
            past: Past::default(),
            now: Duration::ZERO,
            sharers: 1,
            window: None,
            touching: 0.0,
            used: 0.0,
            windows: VecDeque::new(),
            touches: VecDeque::new(),
            touch_took: Duration::ZERO,
            suspicion: None,
            unsuspected_until: Duration::ZERO,
            cleared: 0,
            healthy_since: Duration::ZERO,
            corrected_at: Duration::ZERO,
            correction: 1.0,
            better_since: None,
            raised_at: None,
            touched_at: None,
        }
    }

    /// Returns the factor of the measured capability, from [`CORRECTION_MIN`] to 1.
    pub fn correction(&self) -> f64 {
        self.correction
    }

    /// Returns the recent time of the device relative to the expected time; `None` without enough
    /// observations.
    pub fn ratio(&self) -> Option<f64> {
        let windows = self.by_windows();
        match self.correction < 1.0 {
            true => self.slowness(),
            false => windows.or_else(|| self.by_touches(LATEST_MIN)),
        }
    }

    /// Processes the present counts. Called about once a second.
    pub fn observe(&mut self, now: Duration, totals: Totals) -> Option<Changed> {
        let (began, before) = *self.window.get_or_insert((now, totals));
        let span = now.saturating_sub(began);
        let blocked = totals.blocked.saturating_sub(before.blocked);
        let syncs = totals.syncs.saturating_sub(before.syncs);
        let used = blocked.as_secs_f64() / span.as_secs_f64().max(1e-9);
        let is_whole = span >= WINDOW && (syncs >= SYNCS_MIN || used >= BLOCKED_MIN);
        if is_whole {
            let bytes = totals.bytes.saturating_sub(before.bytes);
            let of_log = totals.log_bytes.saturating_sub(before.log_bytes).min(bytes);
            self.judge(now, span, (blocked, syncs), (of_log, bytes - of_log));
        }
        if is_whole || span >= WINDOW_MAX {
            self.window = Some((now, totals));
            self.touching = 0.0;
            self.used = used.min(1.0);
        }
        self.decide(now)
    }

    /// Returns true if the device should be touched, because its normal use shows too little.
    pub fn wants_touch(&self, now: Duration, is_serving: bool) -> bool {
        let since = |at: Option<Duration>| at.map_or(now, |at| now.saturating_sub(at));
        let is_corrected = self.correction < 1.0;
        let pause = match self.suspicion {
            _ if is_corrected => TOUCH_CORRECTED,
            // The touches have decided, but the windows have not yet.
            Some(_) if TOUCHED.is_reached(self.touched_ratios()) => TOUCH_SERVING,
            Some(Suspicion { is_hurried: true, .. }) => TOUCH_HURRIED,
            Some(_) => TOUCH_SUSPECT,
            None if !is_serving => return false,
            None => {
                let is_slow = self.touches.back().is_some_and(|(_, ratio)| *ratio > SLOW);
                let pause = if is_slow { TOUCH_SUSPECT } else { TOUCH_SERVING };
                if since(self.windows.back().map(|window| window.at)) < pause {
                    return false;
                }
                pause
            }
        };
        let share = if self.suspicion.is_some() { TOUCH_SHARE_SUSPECT } else { TOUCH_SHARE };
        since(self.touched_at) >= pause.max(self.touch_took * share)
    }

    /// Processes the result of a touch.
    pub fn touched(&mut self, now: Duration, touch: Touch) -> Option<Changed> {
        (self.touched_at, self.touch_took) = (Some(now), touch.blocked);
        // A sync that arrives during a flush of the log waits for it, half a flush on average.
        let sync = self.sync_latency() * (1.0 + self.used / 2.0);
        let own = touch.syncs as f64 * sync + self.transfer(touch.bytes);
        let expected = own + self.transfer(touch.others_bytes);
        self.touching += own;
        self.touches.push_back((now, touch.blocked.as_secs_f64() / expected.max(1e-9)));
        while self.touches.len() > TOUCHES {
            self.touches.pop_front();
        }
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.touches += 1;
        }
        self.decide(now)
    }

    /// Sets the number of stores on the device, this one included.
    pub fn share(&mut self, sharers: usize) {
        self.sharers = sharers.max(1);
    }

    /// Drops the present window, because its load does not come from the store alone.
    pub fn skip(&mut self) {
        self.window = None;
    }

    /// Returns the sync time of a healthy device, for this store's share of it.
    fn sync_latency(&self) -> f64 {
        self.reference.sync_latency.max(SYNC_FLOOR).as_secs_f64() * self.sharers as f64
    }

    fn transfer(&self, bytes: u64) -> f64 {
        bytes as f64 / self.reference.write_bytes_per_s.max(1.0) * self.sharers as f64
    }

    fn judge(
        &mut self,
        now: Duration,
        span: Duration,
        (blocked, syncs): (Duration, u64),
        (of_log, of_others): (u64, u64),
    ) {
        let (blocked, span) = (blocked.as_secs_f64(), span.as_secs_f64());
        // A sync that has not returned counts, too.
        let cost = self.sync_latency() * syncs.max(1) as f64 + self.transfer(of_log);
        let others = self.transfer(of_others);
        let is_asked = cost + others >= DEMAND_MIN * span * self.sharers as f64;
        if !is_asked && blocked < BLOCKED_MIN * span {
            // Windows that count only because the log waited long are dropped, because the log did
            // not wait long in this one.
            self.windows.retain(|window| window.is_asked);
            return;
        }
        let ratio = blocked / (cost + others + self.touching).max(1e-9);
        let mut window = Window { at: now, is_asked, ratio, above_usual: ratio, lesson: None };
        if syncs >= SYNCS_MIN {
            let syncs = syncs as f64;
            let took = (blocked - self.touching).max(0.0) / syncs;
            let lesson = Lesson { load: others / span, cost: cost / syncs, took };
            window.lesson = Some(lesson).filter(|lesson| lesson.took > 0.0);
            if let Some(usual) = self.past.usual(lesson.load, lesson.cost) {
                window.above_usual = ratio.max(blocked / (syncs * usual + self.touching));
            }
        }
        self.windows.push_back(window);
        if self.windows.len() > WINDOWS {
            if let Some(oldest) = self.windows.pop_front() {
                self.learn(oldest);
            }
        }
    }

    /// Learns from a window. A window that was judged and not found slow was healthy.
    fn learn(&mut self, window: Window) {
        let is_healthy =
            self.correction == 1.0 && self.suspicion.is_none() && window.at >= self.healthy_since;
        if let Some(lesson) = window.lesson.filter(|_| is_healthy) {
            self.past.learn(lesson);
        }
    }

    fn decide(&mut self, now: Duration) -> Option<Changed> {
        self.now = now;
        let is_old = |at: Duration, age: Duration| now.saturating_sub(at) > age;
        while self.windows.front().is_some_and(|window| is_old(window.at, WINDOW_AGE_MAX)) {
            self.windows.pop_front();
        }
        let is_corrected = self.correction < 1.0;
        // The touches of a corrected or suspected device are evidence and stay.
        let is_case = is_corrected || self.suspicion.is_some();
        while !is_case && self.touches.front().is_some_and(|(at, _)| is_old(*at, TOUCH_AGE_MAX)) {
            self.touches.pop_front();
        }
        let before = self.correction;
        let slowness = if is_corrected { self.follow(now) } else { self.believe(now) }?;
        (self.correction != before).then_some(Changed {
            before,
            correction: self.correction,
            ratio: slowness,
        })
    }

    /// Corrects a device that is judged slow. Returns its slowness.
    fn believe(&mut self, now: Duration) -> Option<f64> {
        self.suspect(now);
        let slowness = self.conviction(now)?;
        self.correction = (1.0 / slowness).clamp(CORRECTION_MIN, 1.0);
        (self.better_since, self.raised_at) = (None, None);
        (self.suspicion, self.cleared, self.corrected_at) = (None, 0, now);
        Some(slowness)
    }

    fn suspect(&mut self, now: Duration) {
        let is_hurried = FAR_ABOVE_USUAL.is_reached(self.above_usual());
        let is_suspect = is_hurried || ABOVE_USUAL_LATELY.is_reached(self.above_usual());
        match &mut self.suspicion {
            Some(suspicion) if is_suspect => suspicion.is_hurried |= is_hurried,
            None if is_suspect && now >= self.unsuspected_until => {
                self.suspicion = Some(Suspicion { touches: 0, is_hurried });
                self.touches.clear();
            }
            _ => self.suspicion = None,
        }
        let Some(suspicion) = self.suspicion else { return };
        let guilty = TOUCHED.count(self.touched_ratios());
        let is_cleared = suspicion.touches >= TOUCHES && guilty <= CLEARED;
        let is_undecided = suspicion.touches >= TOUCHES_MAX && guilty < TOUCHED.votes;
        if is_cleared || is_undecided {
            let lessons: Vec<Lesson> = self.windows.iter().filter_map(|window| window.lesson).collect();
            if is_cleared {
                self.past.confirm(&lessons);
            }
            self.suspicion = None;
            self.unsuspected_until = now + (CLEARED_FOR * (1 << self.cleared.min(3))).min(CLEARED_FOR_MAX);
            self.cleared += 1;
            self.windows.clear();
            self.touches.clear();
        }
    }

    /// Returns the slowness of the device if the evidence is enough.
    fn conviction(&self, now: Duration) -> Option<f64> {
        let ratios = || self.windows.iter().rev().map(|window| window.ratio);
        if FAR_ABOVE_MOST.is_reached(ratios()) {
            return Some(median(ratios().take(FAR_ABOVE_MOST.votes).collect()));
        }
        if ABOVE_MOST.is_reached(ratios()) {
            return Some(median(ratios().take(ABOVE_MOST.votes).collect()));
        }
        let touched = || median(self.touched_ratios().collect());
        if self.suspicion.is_some() {
            let windows = |quorum: Quorum| median(self.above_usual().take(quorum.votes).collect());
            if FAR_ABOVE_USUAL.is_reached(self.above_usual()) && TOUCHED_FAR.is_reached(self.touched_ratios())
            {
                return Some(windows(FAR_ABOVE_USUAL).min(touched()));
            }
            if ABOVE_USUAL.is_reached(self.above_usual()) && TOUCHED.is_reached(self.touched_ratios()) {
                return Some(windows(ABOVE_USUAL).min(touched()));
            }
            return None;
        }
        let is_log_at_rest =
            self.windows.back().is_none_or(|window| now.saturating_sub(window.at) > TOUCH_SERVING);
        let is_slow = TOUCHED_ALONE_FAR.is_reached(self.touched_ratios())
            || TOUCHED_ALONE.is_reached(self.touched_ratios());
        (is_log_at_rest && is_slow).then(touched)
    }

    /// Tracks a corrected device. Returns its slowness.
    fn follow(&mut self, now: Duration) -> Option<f64> {
        let Some(slowness) = self.slowness() else {
            self.better_since = None;
            return None;
        };
        let before = self.correction;
        let wanted = if slowness < HEALTHY { 1.0 } else { (1.0 / slowness).max(CORRECTION_MIN) };
        // Under load, windows alone cannot distinguish a slow device from a healthy one. They must
        // suffice if the device cannot be touched.
        let last_tried = self.touched_at.unwrap_or(Duration::ZERO).max(self.corrected_at);
        let is_known = self.touches.len() >= TOUCHES_MIN || now.saturating_sub(last_tried) > TOUCH_AGE_MAX;
        if wanted < before * LOWER_BY {
            self.correction = wanted;
            (self.better_since, self.raised_at) = (None, None);
        } else if is_known && (wanted == 1.0 || wanted >= before * HIGHER_BY) {
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
        if self.correction == 1.0 {
            self.healthy_since = now;
            self.windows.clear();
            self.touches.clear();
        }
        Some(slowness)
    }

    /// Returns the present slowness of a corrected device. Windows never overstate it.
    fn slowness(&self) -> Option<f64> {
        match (self.by_touches(TOUCHES_MIN), self.by_windows()) {
            (Some(touches), Some(windows)) => Some(touches.max(windows)),
            (touches, windows) => touches.or(windows),
        }
    }

    fn by_touches(&self, least: usize) -> Option<f64> {
        (self.touches.len() >= least).then(|| median(self.touched_ratios().collect()))
    }

    fn by_windows(&self) -> Option<f64> {
        let is_new = |window: &&Window| self.now.saturating_sub(window.at) <= LATEST_AGE_MAX;
        let ratios = self.windows.iter().rev().take(LATEST).filter(is_new).map(|window| window.ratio);
        let ratios: Vec<f64> = ratios.collect();
        (ratios.len() >= LATEST_MIN).then(|| median(ratios))
    }

    fn above_usual(&self) -> impl Iterator<Item = f64> + '_ {
        self.windows.iter().rev().map(|window| window.above_usual)
    }

    fn touched_ratios(&self) -> impl Iterator<Item = f64> + '_ {
        self.touches.iter().rev().map(|(_, ratio)| *ratio)
    }
}

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verdicts;
