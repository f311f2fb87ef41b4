//! The wall clocks: their comparison through heartbeats, and the time with which a store may stamp
//! entries and read.

use types::{StoreId, UnixMillis};

use crate::world::World;

impl World {
    /// Compares this store's wall clock with those of other stores. Returns the clock, and whether
    /// it is off.
    pub(super) fn look_at_clocks(&mut self, id: StoreId) -> (UnixMillis, bool) {
        let (boot, now) = (self.boot(id), self.now);
        let wall = self.stores[&id].clock.wall_ms(now);
        let Some(process) = self.process(id) else { return (wall, false) };
        let look = process.clocks.look(wall, boot);
        process.limit = look.limit;
        if std::mem::replace(&mut process.is_clock_off, look.is_off) != look.is_off {
            self.tally.clocks_judged += 1;
            self.say(&format!("store {id}: clock off: {}, by {:?} ms", look.is_off, look.offset_ms));
        }
        (wall, look.is_off)
    }

    /// Returns the time with which the store may stamp entries and read.
    pub(super) fn usable_ms(&self, id: StoreId) -> UnixMillis {
        let store = &self.stores[&id];
        let wall = store.clock.wall_ms(self.now);
        store.process.as_ref().map_or(wall, |process| process.limit.apply(wall, store.clock.boot(self.now)))
    }
}

#[cfg(test)]
mod tests {
    use node::Item;
    use resp::Reply;

    use crate::clock::{true_wall_ms, MILLISECOND, SECOND};
    use crate::faults::Plan;
    use crate::model::{slot_of, Command, Group, Key};
    use crate::observation::Op;
    use crate::rng::Rng;
    use crate::run::found;
    use crate::world::{Event, World};

    const DAY_MS: i64 = 86_400_000;
    const HOUR_MS: u64 = 3_600_000;
    const GROUPS: Group = 12;

    /// Starts three stores that share three regions under `even`, without faults. Its keys expire
    /// in an hour.
    fn three() -> World {
        let mut world = found(4, Rng::new(4), Plan::none(), (3, 0, 3));
        world.groups = GROUPS;
        world.clients.push(Default::default());
        run(&mut world, 5 * SECOND);
        for store in 0..3 {
            assert_eq!(led(&world, store), 1, "store {store}");
        }
        for group in 0..GROUPS {
            ask(&mut world, group, Command::SetFor { key: Key::First, value: group, ms: HOUR_MS });
        }
        // Wait until every store has applied them.
        run(&mut world, SECOND);
        world
    }

    fn run(world: &mut World, nanos: u64) {
        let end = world.now + nanos;
        world.run_until(end);
        assert_eq!(world.violation, None);
    }

    /// Makes the client repeat a command until it is answered.
    fn ask(world: &mut World, group: Group, command: Command) {
        world.last_op += 1;
        let op = Op { id: world.last_op, group, command };
        world.clients[0].wishes = Some(vec![op]);
        world.schedule(0, Event::Client { client: 0 });
        for _ in 0..500 {
            run(world, 10 * MILLISECOND);
            if world.clients[0].is_content() {
                return;
            }
        }
        panic!("the client got no answer");
    }

    /// Returns the number of user regions that a store leads.
    fn led(world: &World, store: u64) -> usize {
        world.stores[&store].led().into_iter().filter(|region| *region != types::META_REGION).count()
    }

    /// Reads from a store's own rows. `None` if the store treats the key as expired.
    fn read(world: &mut World, store: u64, group: Group, key: Key) -> Option<Reply> {
        let process = world.stores[&store].process.as_ref().expect("it runs");
        let region = process.region_of(slot_of(group)).expect("it has the slot");
        let item = Item::new(Command::Get { key }.args(group), 0, false).expect("a command");
        world.view(store, region, &item).map(|(reply, _)| reply)
    }

    /// Asserts that every store has the keys that expire in an hour, and that no region's time is
    /// ahead.
    fn assert_sane(world: &mut World) {
        let now_ms = true_wall_ms(world.now);
        for store in 0..3 {
            for group in 0..GROUPS {
                let value = Reply::bulk(group.to_string());
                assert_eq!(
                    read(world, store, group, Key::First),
                    Some(value),
                    "store {store}, group {group}"
                );
            }
            for (region, shared) in &world.stores[&store].process.as_ref().expect("it runs").regions {
                assert!(shared.last_stamp_ms <= now_ms, "region {region} is stamped ahead of time");
            }
        }
    }

    fn assert_time_goes_on(world: &mut World) {
        for group in 0..GROUPS {
            ask(world, group, Command::SetFor { key: Key::Second, value: 7, ms: 300 });
        }
        run(world, 400 * MILLISECOND);
        for group in 0..GROUPS {
            ask(world, group, Command::Get { key: Key::Second });
            for store in 0..3 {
                let read = read(world, store, group, Key::Second);
                assert!(matches!(read, None | Some(Reply::Nil)), "store {store}, group {group}: {read:?}");
            }
        }
    }

    #[test]
    fn a_leaders_clock_that_jumps_a_day_ahead_deletes_nothing_and_takes_its_leads_away_until_it_is_mended() {
        let mut world = three();
        assert_sane(&mut world);
        world.store_mut(1).clock.set_wall(DAY_MS);
        let mut waited = 0;
        while led(&world, 1) > 0 {
            // Writes continue. If the store with the wrong clock still leads, it stamps them.
            ask(&mut world, waited % GROUPS, Command::Append { key: Key::Second, value: 1 });
            run(&mut world, 50 * MILLISECOND);
            assert_sane(&mut world);
            waited += 1;
            assert!(waited < 100, "the store still leads");
        }
        assert_time_goes_on(&mut world);
        assert_sane(&mut world);

        world.store_mut(1).clock.set_wall(0);
        let mended = world.now;
        while led(&world, 1) == 0 {
            run(&mut world, 100 * MILLISECOND);
            assert!(world.now < mended + 20 * SECOND, "it does not lead again");
        }
        assert!(world.now >= mended + 5 * SECOND, "a clock that was wrong stays off for a while");
        assert_time_goes_on(&mut world);
        assert_sane(&mut world);
    }

    #[test]
    fn a_store_that_restarts_with_a_wrong_clock_and_with_a_mended_one_is_heard_again() {
        let mut world = three();
        for offset in [DAY_MS, 0] {
            world.store_mut(1).clock.set_wall(offset);
            world.crash(1, false);
            world.start(1);
            let started = world.now;
            let since = [0, 2].map(|store| (store, world.boot(store)));
            let is_heard = |world: &World| {
                since.iter().all(|(store, since)| {
                    let process = world.stores[store].process.as_ref().expect("it runs");
                    process.ledger.heard(1).is_some_and(|heard| heard.at > *since)
                })
            };
            while !is_heard(&world) {
                run(&mut world, 100 * MILLISECOND);
                assert!(world.now < started + 5 * SECOND, "{offset}: the store's clock is not accepted");
            }
        }
        run(&mut world, 10 * SECOND);
        assert_eq!(led(&world, 1), 1);
        assert_sane(&mut world);
    }
}
