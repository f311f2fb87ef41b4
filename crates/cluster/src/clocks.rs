//! How far the stores' wall clocks are apart, as one store sees it, and by which time this store may go.
//!
//! A leader's wall clock decides when keys are over, so one that is a day ahead would delete what is due within a day.
//! No store can tell the right time, but most of them agree: a store compares its clock with the *median* of the clocks
//! that it heard of lately, its own included.
//!
//! Heartbeats carry their senders' wall clocks. What is kept is each clock's *epoch*: what it showed, less this store's
//! CLOCK_BOOTTIME at the receipt. Epochs stand still while nothing jumps, and this store's own wall clock has no part
//! in those of others, so that its own jump shows at once.
//!
//! - A heartbeat takes time, which makes its sender's clock look older by as much, and never newer. So of what a store
//!   sent within [`RECENT_NANOS`] the newest epoch counts. What is left of the error is the least delay of those, and is
//!   part of the allowed offset.
//! - Of an even number of clocks the lower of the two in the middle is the median: if a wrong half is ahead, nothing is
//!   deleted for it.
//! - A clock further than the allowed offset from the median, on either side, is *off*, until it has been within half
//!   of that for [`STEADY_NANOS`]: a clock that jumps to and fro does not take the leads with it.
//! - With fewer than three clocks nobody can say which is wrong. A median that was found before counts as one more,
//!   since CLOCK_BOOTTIME goes on from it: else the restart of one store of three would let a wrong clock count. A
//!   store alone goes by it for a while. Without one nothing is off, and a difference is told and nothing else.
//! - A store that stood still finds heartbeats that waited for it, whose epochs look old. So while there is a median to
//!   go by, a store counts only when it has been heard without a gap for [`SETTLE_NANOS`].

use std::collections::{BTreeMap, VecDeque};

use types::{BootNanos, StoreId, UnixMillis};

const SECOND: u64 = 1_000_000_000;

/// A store that was not heard of for this long has no clock to compare with.
pub const RECENT_NANOS: u64 = 3 * SECOND;
/// After a gap of this length what a store sends may have waited somewhere, for this long at most.
pub const SETTLE_NANOS: u64 = SECOND;
/// A clock that was off counts as right when it has been near the median for this long.
pub const STEADY_NANOS: u64 = 5 * SECOND;
/// A store alone goes by the last median for this many times the allowed offset: by then a CLOCK_BOOTTIME that runs
/// 1000 ppm fast or slow, which is the most that leases allow, is wrong by half of the offset.
const MEDIAN_STANDS_OFFSETS: u64 = 500;
/// Fewer clocks do not say which one is wrong.
const CLOCKS_MIN: usize = 3;

/// Milliseconds that a wall clock shows when CLOCK_BOOTTIME is 0.
type Epoch = i64;

/// The time that a store may stamp with and read at: its own wall clock, unless that is too far ahead.
///
/// Never later than the own clock: a limit takes time away and never adds any, so it deletes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLimit {
    /// An own epoch above this one is not used, …
    pub latest: Epoch,
    /// … and this one is in its place: the median. Not the limit itself, or another leader, whose clock is right, would
    /// find the region's time ahead by the allowed offset, and keys set there would live on for as long.
    pub instead: Epoch,
}

impl ClockLimit {
    pub const NONE: ClockLimit = ClockLimit { latest: Epoch::MAX, instead: Epoch::MIN };

    pub fn apply(self, wall_ms: UnixMillis, boot: BootNanos) -> UnixMillis {
        match epoch(wall_ms, boot) {
            own if own > self.latest => {
                let instead = self.instead.saturating_add(millis(boot));
                wall_ms.min(instead.max(0) as UnixMillis)
            }
            _ => wall_ms,
        }
    }
}

/// What a store finds when it looks at the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLook {
    /// Clocks that were heard of lately, the own one included.
    pub clocks: usize,
    /// The own clock less the median; `None`: there is nothing to compare with.
    pub offset_ms: Option<i64>,
    /// The own clock is further from the median than is allowed, or was lately: the store is not to lead.
    pub is_off: bool,
    /// The one other clock, and the own one less it, where nobody can say which is wrong and they are further apart
    /// than is allowed.
    pub differs: Option<(StoreId, i64)>,
    /// Since the last look the own wall clock has jumped by this much, which is more than is allowed.
    pub jumped_ms: Option<i64>,
    pub limit: ClockLimit,
}

#[derive(Clone, Debug)]
struct Heard {
    /// Without a gap.
    since: BootNanos,
    /// Ascending by time, and by epoch descending: what came before a newer epoch no longer counts.
    epochs: VecDeque<(BootNanos, Epoch)>,
    last: BootNanos,
}

#[derive(Clone, Debug)]
pub struct Clocks {
    max_offset_ms: i64,
    others: BTreeMap<StoreId, Heard>,
    /// With the time of the last look that found it among enough clocks.
    median: Option<(Epoch, BootNanos)>,
    /// What offsets are told from: the median, or the lower of two clocks.
    base: Option<Epoch>,
    own: Option<Epoch>,
    is_off: bool,
    /// Since when a clock that is off has been near the median.
    near_since: Option<BootNanos>,
}

impl Clocks {
    pub fn new(max_offset_ms: u64) -> Clocks {
        let mut clocks = Clocks {
            max_offset_ms: 0,
            others: BTreeMap::new(),
            median: None,
            base: None,
            own: None,
            is_off: false,
            near_since: None,
        };
        clocks.allow(max_offset_ms);
        clocks
    }

    /// Changes the allowed offset.
    pub fn allow(&mut self, max_offset_ms: u64) {
        self.max_offset_ms = i64::try_from(max_offset_ms).unwrap_or(i64::MAX);
    }

    /// Another store's wall clock, as a heartbeat told it that came at `boot`.
    pub fn hear(&mut self, store: StoreId, wall_ms: UnixMillis, boot: BootNanos) {
        let fresh = || Heard { since: boot, epochs: VecDeque::new(), last: boot };
        let heard = self.others.entry(store).or_insert_with(fresh);
        if boot.saturating_sub(heard.last) > SETTLE_NANOS {
            *heard = fresh();
        }
        heard.last = boot;
        let epoch = epoch(wall_ms, boot);
        while heard.epochs.back().is_some_and(|&(_, earlier)| earlier <= epoch) {
            heard.epochs.pop_back();
        }
        heard.epochs.push_back((boot, epoch));
        heard.drop_old(boot);
    }

    /// A store that is no member any more.
    pub fn forget(&mut self, store: StoreId) {
        self.others.remove(&store);
    }

    /// Compares this store's wall clock with the others'.
    pub fn look(&mut self, wall_ms: UnixMillis, boot: BootNanos) -> ClockLook {
        let own = epoch(wall_ms, boot);
        let jumped = self.own.replace(own).map(|before| own.saturating_sub(before));
        self.others.values_mut().for_each(|heard| heard.drop_old(boot));
        self.others.retain(|_, heard| !heard.epochs.is_empty());
        let may_wait = self.median.is_some();
        let counts = |heard: &Heard| !may_wait || boot.saturating_sub(heard.since) >= SETTLE_NANOS;
        let others: Vec<(StoreId, Epoch)> = self
            .others
            .iter()
            .filter(|(_, heard)| counts(heard))
            .filter_map(|(&store, heard)| Some((store, heard.epoch()?)))
            .collect();
        let clocks = others.len() + 1;
        let stands = (self.max_offset_ms as u64).saturating_mul(1_000_000 * MEDIAN_STANDS_OFFSETS);
        let known = self.median.filter(|(_, found)| boot.saturating_sub(*found) <= stands);
        let known_clock = known.filter(|_| clocks < CLOCKS_MIN).map(|(epoch, _)| epoch);
        let mut all: Vec<Epoch> =
            others.iter().map(|(_, epoch)| *epoch).chain([own]).chain(known_clock).collect();
        all.sort_unstable();
        let lower_median = all[(all.len() - 1) / 2];
        self.median = if all.len() >= CLOCKS_MIN { Some((lower_median, boot)) } else { known };
        let median = self.median.map(|(epoch, _)| epoch);
        self.base = median.or((clocks > 1).then_some(lower_median));
        let offset = median.map(|median| own.saturating_sub(median));
        self.judge(offset, boot);
        let is_far = |offset: &i64| offset.saturating_abs() > self.max_offset_ms;
        let differs = match (median, &others[..]) {
            (None, &[(store, epoch)]) => Some((store, own.saturating_sub(epoch))),
            _ => None,
        };
        ClockLook {
            clocks,
            offset_ms: self.base.map(|base| own.saturating_sub(base)),
            is_off: self.is_off,
            differs: differs.filter(|(_, offset)| is_far(offset)),
            jumped_ms: jumped.filter(is_far),
            limit: match median {
                None => ClockLimit::NONE,
                Some(median) if self.is_off => ClockLimit { latest: median, instead: median },
                Some(median) => {
                    ClockLimit { latest: median.saturating_add(self.max_offset_ms), instead: median }
                }
            },
        }
    }

    fn judge(&mut self, offset: Option<i64>, boot: BootNanos) {
        let distance = offset.map(i64::saturating_abs);
        match distance {
            Some(far) if far > self.max_offset_ms => {
                self.is_off = true;
                self.near_since = None;
            }
            Some(near) if self.is_off && near <= self.max_offset_ms / 2 => {
                let since = *self.near_since.get_or_insert(boot);
                self.is_off = boot.saturating_sub(since) < STEADY_NANOS;
            }
            Some(_) => self.near_since = None,
            None => self.is_off = false,
        }
    }

    /// Another store's wall clock less the median, as of the last look; `None`: it was not heard of lately, or there is
    /// nothing to compare with.
    pub fn offset_of(&self, store: StoreId) -> Option<i64> {
        Some(self.others.get(&store)?.epoch()?.saturating_sub(self.base?))
    }
}

impl Heard {
    fn drop_old(&mut self, boot: BootNanos) {
        while self.epochs.front().is_some_and(|&(at, _)| boot.saturating_sub(at) > RECENT_NANOS) {
            self.epochs.pop_front();
        }
    }

    /// The newest of those that count.
    fn epoch(&self) -> Option<Epoch> {
        self.epochs.front().map(|(_, epoch)| *epoch)
    }
}

/// What another store says may be any number.
fn epoch(wall_ms: UnixMillis, boot: BootNanos) -> Epoch {
    let wall = i64::try_from(wall_ms).unwrap_or(i64::MAX);
    wall.saturating_sub(millis(boot))
}

fn millis(boot: BootNanos) -> i64 {
    (boot / 1_000_000) as i64
}

#[cfg(test)]
mod tests;
