//! Compares the stores' wall clocks, as one store sees them, and limits the time that this store
//! may use.
//!
//! A leader's wall clock decides when keys expire. So a clock that is a day ahead would delete
//! every key that expires within a day. No store knows the right time, but most clocks agree. So a
//! store compares its clock with the *median* of the clocks in recent heartbeats and its own clock.
//!
//! Heartbeats carry their sender's wall clock. A store computes each clock's *epoch*: the time in
//! the heartbeat minus this store's CLOCK_BOOTTIME on arrival. An epoch stays the same until a
//! clock jumps. The other stores' epochs do not depend on this store's wall clock, so its own jump
//! shows at once.
//!
//! - A heartbeat's delay makes its sender's clock look older, never newer. So the newest epoch of
//!   the last [`RECENT_NANOS`] counts. The remaining error is the smallest delay among those
//!   heartbeats, and appears as offset.
//! - With an even number of clocks the median is the lower of the two in the middle. So if half of
//!   the clocks are ahead, they delete nothing.
//! - A clock is *off* when it is further than the allowed offset from the median, ahead or behind.
//!   It stays off until it has been within half of the offset for [`STEADY_NANOS`], so a clock that
//!   jumps back and forth does not move leaders back and forth.
//! - Fewer than three clocks cannot show which one is wrong. The last known median then counts as
//!   one more clock, because CLOCK_BOOTTIME continues from it. Without it, the restart of one store
//!   of three would let a wrong clock count. A store that receives no heartbeats uses that median
//!   for a limited time. Without a known median no clock is off, and the store only reports a
//!   difference.
//! - A store that was paused reads old heartbeats from its sockets, and their epochs look old. So
//!   while a median is known, another store's clock counts only after its heartbeats have arrived
//!   without a gap for [`SETTLE_NANOS`].

use std::collections::{BTreeMap, VecDeque};

use types::{BootNanos, StoreId, UnixMillis};

const SECOND: u64 = 1_000_000_000;

/// Age in nanoseconds at which the clock in a heartbeat no longer counts.
pub const RECENT_NANOS: u64 = 3 * SECOND;
/// Gap in nanoseconds after which the next heartbeats of a store may be old ones. Also the time in
/// nanoseconds after which only new heartbeats arrive.
pub const SETTLE_NANOS: u64 = SECOND;
/// The time in nanoseconds for which a clock that was off must stay near the median before it
/// counts as right.
pub const STEADY_NANOS: u64 = 5 * SECOND;
/// Time for which the last median is used without a new one, in multiples of the allowed offset. In
/// that time a CLOCK_BOOTTIME that runs 1000 ppm fast or slow, the maximum that leases allow,
/// drifts by half of the offset.
const MEDIAN_STANDS_OFFSETS: u64 = 500;
/// Minimum number of clocks whose median shows which clock is wrong.
const CLOCKS_MIN: usize = 3;

/// The time that a wall clock showed when CLOCK_BOOTTIME was 0, in Unix milliseconds.
type Epoch = i64;

/// The limit on the time that a store uses to stamp writes and to read. The time is the store's own
/// wall clock, unless that clock is too far ahead.
///
/// The result is never later than the own clock, so a limit never makes a store delete anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLimit {
    /// The latest epoch of the own clock that is used as it is.
    pub latest: Epoch,
    /// The epoch that replaces a later one: the median. With `latest` in its place, the next
    /// leader, whose clock is right, would find the region's time ahead by the allowed offset. Keys
    /// set there would then live longer by that offset.
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

/// The result of a comparison of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLook {
    /// The number of clocks compared, the own one included.
    pub clocks: usize,
    /// The own clock minus the median, in milliseconds; `None` if there is no other clock to
    /// compare with.
    pub offset_ms: Option<i64>,
    /// True if the own clock is further from the median than allowed, or was recently. The store
    /// should not lead.
    pub is_off: bool,
    /// The only other store whose heartbeats arrive, and the own clock minus that store's, in
    /// milliseconds. Set only if the two differ by more than allowed and no median is known.
    pub differs: Option<(StoreId, i64)>,
    /// The jump of the own wall clock since the last look, in milliseconds, if it exceeds the
    /// allowed offset.
    pub jumped_ms: Option<i64>,
    pub limit: ClockLimit,
}

#[derive(Clone, Debug)]
struct Heard {
    /// Start of the period in which the store's heartbeats arrived without a gap.
    since: BootNanos,
    /// Ascending by time and descending by epoch. A new epoch removes all earlier ones that are not
    /// larger, because they can never be the newest again.
    epochs: VecDeque<(BootNanos, Epoch)>,
    last: BootNanos,
}

#[derive(Clone, Debug)]
pub struct Clocks {
    max_offset_ms: i64,
    others: BTreeMap<StoreId, Heard>,
    /// The last computed median, and the time of its computation.
    median: Option<(Epoch, BootNanos)>,
    /// The epoch from which offsets are measured: the median, or the lower one of two clocks.
    base: Option<Epoch>,
    own: Option<Epoch>,
    is_off: bool,
    /// The time at which a clock that is off came near the median.
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

    /// Records another store's wall clock from a heartbeat that arrived at `boot`.
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

    /// Removes a store that left the cluster.
    pub fn forget(&mut self, store: StoreId) {
        self.others.remove(&store);
    }

    /// Compares this store's wall clock with those of the other stores.
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

    /// Returns another store's wall clock minus the median of the last look, in milliseconds.
    /// Returns `None` if no recent heartbeat of the store arrived or no offset can be measured.
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

    /// Returns the newest epoch of the recent ones.
    fn epoch(&self) -> Option<Epoch> {
        self.epochs.front().map(|(_, epoch)| *epoch)
    }
}

/// Returns the epoch of a wall clock. Saturates, because another store may send any number.
fn epoch(wall_ms: UnixMillis, boot: BootNanos) -> Epoch {
    let wall = i64::try_from(wall_ms).unwrap_or(i64::MAX);
    wall.saturating_sub(millis(boot))
}

fn millis(boot: BootNanos) -> i64 {
    (boot / 1_000_000) as i64
}

#[cfg(test)]
mod tests;
