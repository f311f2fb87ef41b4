use super::*;

const MS: u64 = 1_000_000;
const MAX: i64 = 10_000;
const DAY: i64 = 86_400_000;
/// The time that correct clocks show at boot time 0.
const EPOCH: i64 = 1_700_000_000_000;

/// This store, number 0, and others whose clocks can be set. Heartbeats come every 200 ms.
struct World {
    clocks: Clocks,
    now: BootNanos,
    own: i64,
    others: BTreeMap<StoreId, i64>,
    delay_ms: i64,
}

impl World {
    fn new(others: StoreId) -> World {
        World {
            clocks: Clocks::new(MAX as u64),
            now: 1000 * SECOND,
            own: 0,
            others: (1..=others).map(|store| (store, 0)).collect(),
            delay_ms: 0,
        }
    }

    fn wall(&self, offset: i64) -> UnixMillis {
        (EPOCH + offset + (self.now / MS) as i64) as UnixMillis
    }

    fn look(&mut self) -> ClockLook {
        self.clocks.look(self.wall(self.own), self.now)
    }

    /// Runs one period: the heartbeats of all others arrive, then this store looks.
    fn period(&mut self) -> ClockLook {
        self.now += 200 * MS;
        for (&store, &offset) in &self.others.clone() {
            self.clocks.hear(store, self.wall(offset - self.delay_ms), self.now);
        }
        self.look()
    }

    fn run(&mut self, nanos: u64) -> ClockLook {
        for _ in 1..nanos / (200 * MS) {
            self.period();
        }
        self.period()
    }

    /// Returns the time that this store may use, minus the true time.
    fn usable(&mut self) -> i64 {
        let (wall, now) = (self.wall(self.own), self.now);
        self.look().limit.apply(wall, now) as i64 - self.wall(0) as i64
    }
}

#[test]
fn a_clock_a_day_ahead_is_off_at_the_first_look_and_the_median_stands_in_for_it() {
    let mut world = World::new(2);
    let look = world.run(2 * SECOND);
    assert_eq!((look.clocks, look.offset_ms, look.is_off), (3, Some(0), false));
    // The last limit holds until the next look.
    world.own = DAY;
    assert_eq!(look.limit.apply(world.wall(DAY), world.now), world.wall(0));
    let look = world.look();
    assert_eq!((look.offset_ms, look.is_off, look.jumped_ms), (Some(DAY), true, Some(DAY)));
    assert_eq!(
        world.usable(),
        0,
        "the median itself, because the next leader would have to wait out an offset"
    );
    assert_eq!(world.run(60 * SECOND).jumped_ms, None, "a jump is reported once");
    assert_eq!(world.usable(), 0);
}

#[test]
fn a_clock_within_the_allowed_offset_is_used_as_it_is() {
    let mut world = World::new(2);
    for own in [-MAX, -1, 0, 1, MAX] {
        world.own = own;
        assert!(!world.run(2 * SECOND).is_off, "{own}");
        assert_eq!(world.usable(), own);
    }
    world.own = MAX + 1;
    assert!(world.look().is_off);
    assert_eq!(world.usable(), 0);
}

#[test]
fn a_clock_behind_is_off_and_is_not_set_forward() {
    let mut world = World::new(2);
    world.run(2 * SECOND);
    world.own = -DAY;
    assert!(world.look().is_off);
    assert_eq!(world.usable(), -DAY, "another store's clock never makes this store delete anything");
}

#[test]
fn a_clock_is_right_again_when_it_has_been_near_for_a_while() {
    let mut world = World::new(2);
    world.run(2 * SECOND);
    world.own = DAY;
    world.run(SECOND);
    world.own = MAX / 2 + 1;
    assert!(world.run(2 * STEADY_NANOS).is_off, "not near enough");
    assert_eq!(world.usable(), 0, "a clock that is off is not used");
    world.own = MAX / 2;
    assert!(world.run(STEADY_NANOS).is_off, "the first look counts from itself");
    assert!(!world.period().is_off);
    assert_eq!(world.usable(), MAX / 2);
    // A clock that jumps back and forth stays off.
    for _ in 0..20 {
        world.own = DAY;
        assert!(world.run(SECOND).is_off);
        world.own = 0;
        assert!(world.run(STEADY_NANOS - SECOND).is_off);
    }
}

#[test]
fn another_stores_wrong_clock_moves_nothing() {
    for (others, wrong) in [(2, DAY), (2, -DAY), (3, DAY), (3, -DAY), (4, DAY)] {
        let mut world = World::new(others);
        world.others.insert(1, wrong);
        let look = world.run(5 * SECOND);
        assert_eq!((look.offset_ms, look.is_off), (Some(0), false), "{wrong} of {others}");
        assert_eq!(world.usable(), 0);
        assert_eq!(world.clocks.offset_of(1), Some(wrong));
        assert_eq!((world.clocks.offset_of(2), world.clocks.offset_of(9)), (Some(0), None));
    }
}

#[test]
fn of_an_even_number_the_lower_half_is_believed() {
    let mut world = World::new(3);
    (world.own, world.others) = (DAY, BTreeMap::from([(1, DAY), (2, 0), (3, 0)]));
    assert!(world.run(2 * SECOND).is_off);
    assert_eq!(world.usable(), 0);
    world.own = 0;
    world.others = BTreeMap::from([(1, DAY), (2, DAY), (3, 0)]);
    assert!(!world.run(2 * STEADY_NANOS).is_off);
}

#[test]
fn with_two_clocks_both_stores_are_told_and_none_is_off() {
    let mut world = World::new(1);
    world.own = MAX;
    let look = world.run(2 * SECOND);
    assert_eq!((look.clocks, look.offset_ms, look.differs), (2, Some(MAX), None));
    world.own = DAY;
    let look = world.run(2 * SECOND);
    assert_eq!((look.offset_ms, look.differs, look.is_off), (Some(DAY), Some((1, DAY)), false));
    assert_eq!((look.limit, world.usable()), (ClockLimit::NONE, DAY));
    world.own = -DAY;
    let look = world.run(4 * SECOND);
    assert_eq!((look.offset_ms, look.differs, look.is_off), (Some(0), Some((1, -DAY)), false));
    assert_eq!(world.clocks.offset_of(1), Some(DAY), "offsets are measured from the lower clock");
}

#[test]
fn a_store_alone_has_only_its_own_jumps_to_tell() {
    let mut world = World::new(0);
    assert_eq!(world.run(SECOND).offset_ms, None);
    world.own = -DAY;
    let look = world.look();
    assert_eq!((look.clocks, look.offset_ms, look.jumped_ms), (1, None, Some(-DAY)));
    assert_eq!((look.differs, look.is_off, look.limit), (None, false, ClockLimit::NONE));
    world.own += MAX;
    assert_eq!(world.look().jumped_ms, None, "not far enough");
}

#[test]
fn the_last_median_counts_while_too_few_are_heard_but_not_for_ever() {
    let mut world = World::new(2);
    world.own = DAY;
    assert!(world.run(2 * SECOND).is_off);
    // One store of three restarts, then the other one falls silent, too.
    world.others.remove(&1);
    let look = world.run(60 * SECOND);
    assert_eq!((look.clocks, look.is_off, look.differs), (2, true, None));
    world.others.clear();
    let look = world.run(60 * SECOND);
    assert_eq!((look.clocks, look.offset_ms, look.is_off), (1, Some(DAY), true));
    assert_eq!(world.usable(), 0);
    world.now += MAX as u64 * MS * MEDIAN_STANDS_OFFSETS;
    let look = world.look();
    assert_eq!((look.is_off, look.offset_ms, look.limit), (false, None, ClockLimit::NONE));
}

#[test]
fn two_stores_of_three_whose_clocks_are_set_together_outvote_the_last_median() {
    const HOUR: i64 = 3_600_000;
    let mut world = World::new(2);
    world.run(2 * SECOND);
    world.others.remove(&2);
    world.run(60 * SECOND);
    world.own = HOUR;
    assert!(world.look().is_off, "the third store still has the old time");
    world.others.insert(1, HOUR);
    let look = world.run(SECOND);
    assert_eq!((look.clocks, look.offset_ms), (2, Some(0)));
    assert!(!world.run(STEADY_NANOS).is_off);
    assert_eq!(world.usable(), HOUR);
    // After the last median has expired, the new time counts.
    world.own = 0;
    assert!(world.look().is_off);
}

#[test]
fn heartbeats_that_are_late_make_no_clock_wrong() {
    let mut world = World::new(2);
    world.run(2 * SECOND);
    for _ in 0..10 {
        // Heartbeats are late for a second, by more than the allowed offset. Then one arrives in
        // time.
        world.delay_ms = 2 * MAX;
        assert!(!world.run(SECOND).is_off);
        assert_eq!(world.usable(), 0);
        world.delay_ms = 0;
        assert!(!world.period().is_off);
    }
    // If every heartbeat is late, the clocks look older by that delay. It counts as a part of the
    // offset.
    world.delay_ms = 3000;
    let look = world.run(10 * SECOND);
    assert_eq!((look.offset_ms, look.is_off), (Some(3000), false));
}

#[test]
fn what_waited_while_this_store_stood_still_makes_no_clock_wrong() {
    let mut world = World::new(2);
    world.run(2 * SECOND);
    let asleep = world.now;
    world.now += 60 * SECOND;
    // The heartbeats of the first seconds arrive all at once on new connections, followed by
    // present ones.
    for at in (0..20).map(|number| asleep + number * 200 * MS) {
        let late = -((world.now - at) as i64 / MS as i64);
        for store in [1, 2] {
            world.clocks.hear(store, world.wall(late), world.now);
        }
        let look = world.look();
        assert_eq!((look.clocks, look.offset_ms, look.is_off), (1, Some(0), false));
        assert_eq!(world.usable(), 0);
    }
    for _ in 0..20 {
        let look = world.period();
        assert_eq!((look.offset_ms, look.is_off), (Some(0), false));
    }
    assert_eq!(world.look().clocks, 3);
}

#[test]
fn at_the_first_heartbeats_clocks_are_compared_at_once() {
    let mut world = World::new(2);
    world.own = DAY;
    assert_eq!(world.look().clocks, 1);
    let look = world.period();
    assert_eq!((look.clocks, look.is_off), (3, true));
}

#[test]
fn a_clock_that_jumps_back_is_noticed_when_what_it_said_before_is_old() {
    let mut world = World::new(2);
    world.run(2 * SECOND);
    world.others.insert(1, -DAY);
    world.period();
    assert_eq!(world.clocks.offset_of(1), Some(0));
    world.run(RECENT_NANOS + SECOND);
    assert_eq!(world.clocks.offset_of(1), Some(-DAY));
    world.others.insert(1, DAY);
    world.period();
    assert_eq!(world.clocks.offset_of(1), Some(DAY), "a jump ahead shows at once");
}

#[test]
fn a_member_no_more_is_not_heard_and_another_offset_counts_from_the_next_look_on() {
    let mut world = World::new(3);
    assert_eq!(world.run(2 * SECOND).clocks, 4);
    world.others.remove(&3);
    world.clocks.forget(3);
    assert_eq!(world.look().clocks, 3);
    world.own = 3000;
    assert!(!world.run(SECOND).is_off);
    world.clocks.allow(2000);
    assert!(world.look().is_off);
    world.clocks.allow(8000);
    assert!(world.look().is_off && !world.run(STEADY_NANOS + SECOND).is_off);
}

#[test]
fn no_number_that_a_store_may_send_is_too_large() {
    let mut clocks = Clocks::new(u64::MAX);
    clocks.hear(1, u64::MAX, 0);
    clocks.hear(2, 0, u64::MAX);
    clocks.hear(3, u64::MAX, u64::MAX);
    for (wall, boot) in [(0, 0), (u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
        let look = clocks.look(wall, boot);
        look.limit.apply(wall, boot);
        clocks.offset_of(3);
    }
    let limit = ClockLimit { latest: Epoch::MIN, instead: Epoch::MIN };
    assert_eq!(limit.apply(5, 0), 0);
}
