//! The wall clock that this store uses: its own, unless that is too far ahead of the other stores'
//! clocks.
//!
//! Code that stamps, or reads at a time, must use [`WallClock::millis`] and not
//! `clock::unix_millis`. The heartbeat compares the clocks ([`cluster::Clocks`]) and publishes a
//! limit for the own clock. The limit applies at every use. So a clock that jumps between two
//! heartbeats stamps nothing.
//!
//! A store whose clock is off reports that in its heartbeats, and placement moves its leaders to
//! other stores. Until then, or if no other store can take them, the store continues to lead and
//! stamps with the median.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cluster::{ClockLimit, ClockLook, Clocks};
use parking_lot::Mutex;
use types::{BootNanos, RegionId, StoreId, UnixMillis};

use crate::clock;
use crate::regions::Regions;

/// Time in nanoseconds for which a starting store waits for other clocks before it stamps anything.
const LISTEN_NANOS: u64 = 1_000_000_000;
/// Minimum number of clocks for a median. Smaller clusters do not wait.
const CLOCKS_MIN: usize = 3;

pub struct WallClock {
    began: BootNanos,
    clocks: Mutex<Clocks>,
    /// A `ClockLimit` in two halves. A reader that sees halves of two different limits still gets
    /// no time later than its clock.
    latest: AtomicI64,
    instead: AtomicI64,
    has_listened: AtomicBool,
    is_off: AtomicBool,
    clocks_heard: AtomicUsize,
    /// The offset in milliseconds, or `NO_OFFSET` if there is no clock to compare with.
    offset_ms: AtomicI64,
    /// Maximum time by which a region that is led here is ahead of the clock.
    region_ahead_ms: AtomicI64,
}

const NO_OFFSET: i64 = i64::MIN;

impl WallClock {
    pub fn new(max_offset_ms: u64) -> WallClock {
        WallClock {
            began: clock::boot_nanos(),
            clocks: Mutex::new(Clocks::new(max_offset_ms)),
            latest: AtomicI64::new(ClockLimit::NONE.latest),
            instead: AtomicI64::new(ClockLimit::NONE.instead),
            has_listened: AtomicBool::new(false),
            is_off: AtomicBool::new(false),
            clocks_heard: AtomicUsize::new(1),
            offset_ms: AtomicI64::new(NO_OFFSET),
            region_ahead_ms: AtomicI64::new(0),
        }
    }

    /// Returns the time to stamp with and to read at.
    pub fn millis(&self) -> UnixMillis {
        // The wall clock is read first. If the thread is delayed in between, the clock then seems
        // behind, not ahead.
        let wall_ms = clock::unix_millis();
        self.allowed(wall_ms, clock::boot_nanos())
    }

    /// Returns the same time in microseconds, for clients that ask for the time.
    pub fn micros(&self) -> u64 {
        let micros = clock::unix_micros();
        match (micros / 1000, self.allowed(micros / 1000, clock::boot_nanos())) {
            (own, allowed) if own == allowed => micros,
            (_, allowed) => allowed * 1000,
        }
    }

    fn allowed(&self, wall_ms: UnixMillis, boot: BootNanos) -> UnixMillis {
        let latest = self.latest.load(Ordering::Acquire);
        let limit = ClockLimit { latest, instead: self.instead.load(Ordering::Acquire) };
        limit.apply(wall_ms, boot)
    }

    /// Returns true if stamping is allowed. It is not allowed after a start until the clocks were
    /// compared.
    pub fn may_stamp(&self) -> bool {
        self.has_listened.load(Ordering::Acquire)
    }

    /// Records another store's wall clock from its heartbeat.
    pub fn hear(&self, store: StoreId, wall_ms: UnixMillis) {
        self.clocks.lock().hear(store, wall_ms, clock::boot_nanos());
    }

    pub fn forget(&self, store: StoreId) {
        self.clocks.lock().forget(store);
    }

    /// Compares this store's clock with the others. The cluster has `members` stores, this one
    /// included.
    fn look(&self, max_offset_ms: u64, members: usize, wall_ms: UnixMillis, boot: BootNanos) -> ClockLook {
        let look = {
            let mut clocks = self.clocks.lock();
            clocks.allow(max_offset_ms);
            clocks.look(wall_ms, boot)
        };
        if look.limit != ClockLimit::NONE {
            self.instead.store(look.limit.instead, Ordering::Release);
        }
        self.latest.store(look.limit.latest, Ordering::Release);
        self.is_off.store(look.is_off, Ordering::Relaxed);
        self.clocks_heard.store(look.clocks, Ordering::Relaxed);
        self.offset_ms.store(look.offset_ms.unwrap_or(NO_OFFSET), Ordering::Relaxed);
        let has_heard = look.clocks >= CLOCKS_MIN || members < CLOCKS_MIN;
        if has_heard || boot.saturating_sub(self.began) >= LISTEN_NANOS {
            self.has_listened.store(true, Ordering::Release);
        }
        look
    }

    pub fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }

    /// Returns the number of clocks compared at the last look, the own one included.
    pub fn clocks_heard(&self) -> usize {
        self.clocks_heard.load(Ordering::Relaxed)
    }

    /// Returns this store's clock minus the median, or minus the lower of two clocks.
    pub fn offset_ms(&self) -> Option<i64> {
        Some(self.offset_ms.load(Ordering::Relaxed)).filter(|offset| *offset != NO_OFFSET)
    }

    /// Returns the same for another store with a recent heartbeat.
    pub fn offset_of(&self, store: StoreId) -> Option<i64> {
        self.clocks.lock().offset_of(store)
    }

    pub fn region_ahead_ms(&self) -> i64 {
        self.region_ahead_ms.load(Ordering::Relaxed)
    }
}

/// The interval at which a lasting state is logged again.
const SAID_AGAIN: Duration = Duration::from_secs(60);
/// The interval at which the times of regions are checked.
const REGIONS_PERIOD: Duration = Duration::from_secs(10);
/// Interval at which a region whose time is ahead is logged. This state may last for days.
const REGION_SAID_AGAIN: Duration = Duration::from_secs(600);

/// The part of the heartbeat's task that compares the clocks and logs the results.
#[derive(Default)]
pub struct ClockKeeper {
    was_off: bool,
    off_said: Option<Instant>,
    differs_said: Option<Instant>,
    regions_seen: Option<Instant>,
    ahead_said: Option<(RegionId, Instant)>,
}

impl ClockKeeper {
    /// Compares the clocks. Must be called before each heartbeat, which reports the result. The
    /// cluster has `members` stores, this one included.
    pub fn look(&mut self, wall: &WallClock, regions: &Regions, max_offset_ms: u64, members: usize) {
        let now = Instant::now();
        let wall_ms = clock::unix_millis();
        let look = wall.look(max_offset_ms, members, wall_ms, clock::boot_nanos());
        self.tell(&look, max_offset_ms, now);
        if is_due(self.regions_seen, REGIONS_PERIOD, now) {
            self.regions_seen = Some(now);
            self.look_at_regions(wall, regions, max_offset_ms, now);
        }
    }

    fn tell(&mut self, look: &ClockLook, max_offset_ms: u64, now: Instant) {
        let bound = seconds(max_offset_ms as i64);
        if let Some(jumped) = look.jumped_ms {
            tracing::warn!(
                "this store's wall clock jumped {}. Keys expire by it: check that NTP runs on this machine",
                ahead_or_back(jumped)
            );
        }
        if look.is_off && (!self.was_off || is_due(self.off_said, SAID_AGAIN, now)) {
            self.off_said = Some(now);
            tracing::warn!(
                "this store's wall clock is {} the median of the stores' clocks ({} heard), and \
                 max-clock-offset is {bound}. {}, and its leaders move to other stores. Fix its clock (NTP): after \
                 a few seconds within half of that offset the store leads again by itself",
                ahead_or_behind(look.offset_ms.unwrap_or(0)),
                look.clocks,
                match look.offset_ms {
                    Some(ahead) if ahead > 0 => "It stamps with the median instead",
                    _ => "Keys expire late in regions that it leads",
                },
            );
        } else if self.was_off && !look.is_off {
            tracing::info!(
                "this store's wall clock is {} the median of the stores' clocks ({} heard). It may lead again",
                ahead_or_behind(look.offset_ms.unwrap_or(0)),
                look.clocks
            );
        }
        self.was_off = look.is_off;
        match look.differs {
            Some((other, offset)) if is_due(self.differs_said, SAID_AGAIN, now) => {
                self.differs_said = Some(now);
                tracing::warn!(
                    "the wall clocks differ: this store's is {} that of store {other}, and max-clock-offset is \
                     {bound}. Two clocks do not tell which one is wrong, so both stores go on with their own, and \
                     keys may expire too early or too late. Fix the clocks (NTP)",
                    ahead_or_behind(offset)
                );
            }
            Some(_) => {}
            None => self.differs_said = None,
        }
    }

    /// Checks the times of regions. A region's time never decreases. After a wrong clock has
    /// stamped in it, the time stands still until the clocks have caught up.
    fn look_at_regions(&mut self, wall: &WallClock, regions: &Regions, max_offset_ms: u64, now: Instant) {
        let time = wall.millis();
        let table = regions.table();
        let led = table.iter().filter(|region| region.is_local() && regions.leads(region));
        let ahead = led.map(|region| (region.last_stamp_ms().saturating_sub(time), region.id()));
        let (ahead_ms, region) = ahead.max().unwrap_or_default();
        let ahead_ms = i64::try_from(ahead_ms).unwrap_or(i64::MAX);
        wall.region_ahead_ms.store(ahead_ms, Ordering::Relaxed);
        if ahead_ms as u64 <= max_offset_ms {
            self.ahead_said = None;
            return;
        }
        let said = self.ahead_said.filter(|(said, _)| *said == region).map(|(_, at)| at);
        if is_due(said, REGION_SAID_AGAIN, now) {
            self.ahead_said = Some((region, now));
            tracing::warn!(
                region,
                "the region's time is {} ahead of the clock: a store with a wrong clock has led it. It stands \
                 still until the clock has caught up, and no key that is set to expire there expires before. No \
                 region led here is further ahead",
                seconds(ahead_ms)
            );
        }
    }
}

fn is_due(last: Option<Instant>, period: Duration, now: Instant) -> bool {
    last.is_none_or(|last| now.duration_since(last) >= period)
}

fn seconds(ms: i64) -> String {
    match ms.unsigned_abs() {
        whole if whole % 1000 == 0 => format!("{} s", whole / 1000),
        ms if ms < 60_000 => format!("{:.2} s", ms as f64 / 1000.0),
        ms => format!("{:.0} s", ms as f64 / 1000.0),
    }
}

fn ahead_or_behind(offset_ms: i64) -> String {
    format!("{} {}", seconds(offset_ms), if offset_ms < 0 { "behind" } else { "ahead of" })
}

fn ahead_or_back(jump_ms: i64) -> String {
    format!("{} {}", seconds(jump_ms), if jump_ms < 0 { "back" } else { "ahead" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use node::Leadership;

    const DAY_MS: u64 = 86_400_000;

    /// Records two other stores whose clocks are `offset_ms` ahead of the machine's.
    fn hear(wall: &WallClock, offset_ms: i64) {
        let now = clock::unix_millis().saturating_add_signed(offset_ms);
        [1, 2].into_iter().for_each(|store| wall.hear(store, now));
    }

    fn look(wall: &WallClock, members: usize) -> ClockLook {
        wall.look(10_000, members, clock::unix_millis(), clock::boot_nanos())
    }

    fn is_near(time: u64, other: u64) -> bool {
        time.abs_diff(other) < 5000
    }

    #[test]
    fn a_clock_a_day_ahead_of_the_others_is_not_stamped_with_from_the_first_look_on() {
        let wall = WallClock::new(10_000);
        assert!(is_near(wall.millis(), clock::unix_millis()), "no clock is known yet");
        // The other stores are a day behind this store.
        hear(&wall, -(DAY_MS as i64));
        let found = look(&wall, 3);
        assert!(found.is_off && wall.is_off());
        let median = clock::unix_millis() - DAY_MS;
        assert!(is_near(wall.millis(), median) && is_near(wall.micros() / 1000, median));
        assert!(wall.offset_ms().is_some_and(|offset| is_near(offset as u64, DAY_MS)));
        assert_eq!((wall.clocks_heard(), wall.offset_of(1)), (3, Some(0)));
        assert!(
            is_near(wall.allowed(median + 2 * DAY_MS, clock::boot_nanos()), median),
            "wherever it jumps next"
        );
    }

    #[test]
    fn the_limit_holds_for_a_clock_that_jumps_between_two_looks() {
        let wall = WallClock::new(10_000);
        hear(&wall, 0);
        assert!(!look(&wall, 3).is_off);
        let (now, boot) = (clock::unix_millis(), clock::boot_nanos());
        assert_eq!(wall.allowed(now + 9000, boot), now + 9000);
        assert!(is_near(wall.allowed(now + DAY_MS, boot), now));
        assert_eq!(wall.allowed(now - DAY_MS, boot), now - DAY_MS, "a clock is never set forward");
    }

    #[test]
    fn a_store_that_starts_listens_before_it_stamps() {
        let wall = WallClock::new(10_000);
        assert!(!wall.may_stamp());
        look(&wall, 3);
        assert!(!wall.may_stamp());
        hear(&wall, 0);
        look(&wall, 3);
        assert!(wall.may_stamp(), "enough clocks were heard");

        let wall = WallClock::new(10_000);
        wall.look(10_000, 3, clock::unix_millis(), wall.began + LISTEN_NANOS - 1);
        assert!(!wall.may_stamp());
        wall.look(10_000, 3, clock::unix_millis(), wall.began + LISTEN_NANOS);
        assert!(wall.may_stamp(), "nobody speaks");

        let wall = WallClock::new(10_000);
        look(&wall, 2);
        assert!(wall.may_stamp(), "two clocks cannot decide");
    }

    #[test]
    fn a_region_whose_time_is_ahead_is_measured_where_it_is_led() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        store.regions.set_applied(1, 3, store.wall.millis() + DAY_MS);
        let mut keeper = ClockKeeper::default();
        keeper.look(&store.wall, &store.regions, 10_000, 1);
        assert_eq!((store.wall.region_ahead_ms(), keeper.ahead_said), (0, None), "another store leads it");
        store.regions.lead(1, Leadership { term: 1, leader: Some(store.id) });
        keeper.look_at_regions(&store.wall, &store.regions, 10_000, Instant::now());
        assert!(is_near(store.wall.region_ahead_ms() as u64, DAY_MS));
        assert_eq!(keeper.ahead_said.map(|(region, _)| region), Some(1));
        store.regions.set_applied(1, 4, store.wall.millis() + 9000);
        keeper.look_at_regions(&store.wall, &store.regions, 10_000, Instant::now());
        assert_eq!(keeper.ahead_said, None);
    }

    #[test]
    fn offsets_are_told_in_words() {
        assert_eq!(ahead_or_behind(86_400_000), "86400 s ahead of");
        assert_eq!(ahead_or_behind(-12_345), "12.35 s behind");
        assert_eq!(ahead_or_back(-3_600_001), "3600 s back");
        assert_eq!(seconds(i64::MIN), "9223372036854776 s");
    }
}
