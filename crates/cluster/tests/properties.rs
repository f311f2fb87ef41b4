//! Random events in random order. [`World`] checks its invariants after every moment. Once all
//! faults have ended, every operator that began must end.

mod support;

use placement::PlanLimits;
use proptest::prelude::*;
use proptest::test_runner::Config;
use steelyard_cluster::{may_drain, MemberState, MetaCommand, Outcome};
use support::*;

#[derive(Clone, Debug)]
enum Happening {
    Ask(u8, [u64; 3]),
    Run(u8),
    /// The fates of the orders and proposals in the next moments.
    Weather(Vec<u8>),
    Kill(u64),
    Revive,
    Stick(u64),
    Unstick,
    Elect(u64),
    NextDriver,
    Join,
    Drain(u64),
    Replan(bool),
    Late(u64),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let number = || 0..8u64;
    prop_oneof![
        6 => (0..6u8, [number(), number(), number()]).prop_map(|(kind, numbers)| Happening::Ask(kind, numbers)),
        4 => (1..20u8).prop_map(Happening::Run),
        4 => prop::collection::vec(0..6u8, 1..12).prop_map(Happening::Weather),
        1 => number().prop_map(Happening::Kill),
        2 => Just(Happening::Revive),
        1 => number().prop_map(Happening::Stick),
        1 => Just(Happening::Unstick),
        1 => number().prop_map(Happening::Elect),
        1 => Just(Happening::NextDriver),
        1 => Just(Happening::Join),
        1 => number().prop_map(Happening::Drain),
        1 => any::<bool>().prop_map(Happening::Replan),
        1 => number().prop_map(Happening::Late),
    ]
}

fn happen(world: &mut World, happening: Happening) {
    let stores = world.meta.next_store;
    match happening {
        Happening::Ask(kind, [region, from, to]) => {
            let kind = ["transfer", "add", "remove", "move", "split", "merge"][usize::from(kind)];
            let numbers = match kind {
                "transfer" | "move" => vec![region, from % stores, to % stores],
                "add" | "remove" => vec![region, to % stores],
                "split" => vec![region],
                _ => vec![region, from],
            };
            // Most requests are invalid and are refused.
            let _ = world.request(operator(kind, &numbers).expect("a known kind"));
        }
        Happening::Run(moments) => (0..moments).for_each(|_| world.tick(|_| Fate::Arrives)),
        Happening::Weather(fates) => {
            let mut fates = fates.into_iter().cycle();
            for _ in 0..8 {
                world.tick(|_| match fates.next() {
                    Some(0 | 1) => Fate::Lost,
                    Some(2) => Fate::Late(1),
                    Some(3) => Fate::Late(9),
                    _ => Fate::Arrives,
                });
            }
        }
        // At most one store is dead at a time. Otherwise the later events would have no effect.
        Happening::Kill(store) if world.dead.is_empty() => drop(world.dead.insert(store % stores)),
        Happening::Kill(_) => {}
        Happening::Revive => world.dead.clear(),
        Happening::Stick(store) => drop(world.stuck.insert(store % stores)),
        Happening::Unstick => world.stuck.clear(),
        Happening::Elect(region) => {
            let Some(region) = world.regions.get_mut(&region) else { return };
            region.leader = None;
        }
        Happening::NextDriver => world.new_driver(),
        Happening::Join => {
            if stores < 7 {
                world.join();
            }
        }
        Happening::Drain(store) => {
            let store = store % stores;
            if may_drain(&world.meta, &world.ledger, store, world.now).is_ok() {
                let _ = world.apply(&MetaCommand::SetStoreState { store, state: MemberState::Draining });
            }
        }
        Happening::Replan(on) => {
            world.limits = PlanLimits::default();
            world.limits.in_flight_max *= usize::from(on);
        }
        Happening::Late(region) => {
            if let Some(into) = neighbour(world, region) {
                world.freeze(region, into);
            }
        }
    }
}

/// Returns a region into which `region` could be merged, if neither takes part in an operator.
fn neighbour(world: &World, region: u64) -> Option<u64> {
    let source = &world.regions.get(&region)?.descriptor;
    let target = world.regions.values().find(|other| other.descriptor.joined(source).is_some())?;
    let into = target.descriptor.id;
    let idle = |region| {
        world.meta.operator_on(region).is_none() && world.regions[&region].descriptor.merging.is_none()
    };
    (idle(region) && idle(into)).then_some(into)
}

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn what_must_hold_holds_and_all_that_was_begun_ends(
        happenings in prop::collection::vec(any_happening(), 1..40),
        stores in 3..6u64,
        regions in 1..5u16,
    ) {
        let mut world = World::new(stores, regions, 3);
        world.run(1);
        for happening in happenings {
            happen(&mut world, happening);
        }
        // A new driver compares the rows again.
        world.new_driver();
        world.dead.clear();
        world.stuck.clear();
        world.limits.in_flight_max = 0;
        for _ in 0..400 {
            if world.is_at_rest() {
                break;
            }
            world.run(1);
        }
        prop_assert!(world.is_at_rest(), "{:?}\n{}", world.meta.operators, world.events.join("\n"));
    }

    /// After stores joined and left and the events stop, the cluster reaches the layout that
    /// placement wants and keeps it.
    #[test]
    fn placement_comes_to_rest(
        stores in 4..7u64,
        regions in 1..8u16,
        joined in 0..2u64,
        leaver in 0..4u64,
        dies in any::<bool>(),
    ) {
        let mut world = World::new(stores, regions, 3);
        world.limits = PlanLimits::default();
        world.run(2);
        for _ in 0..joined {
            world.join();
        }
        if dies {
            world.dead.insert(leaver);
        } else {
            let drain = MetaCommand::SetStoreState { store: leaver, state: MemberState::Draining };
            prop_assert!(world.apply(&drain).is_ok());
        }
        world.run(300);
        world.events.clear();
        world.run(60);
        prop_assert!(world.events.is_empty(), "{}", world.events.join("\n"));
        for region in world.regions.values() {
            let wanted = if region.descriptor.slots.is_some() { 3..=3 } else { 3..=5 };
            prop_assert!(wanted.contains(&region.descriptor.peers.len()), "{}", show_region(&region.descriptor));
            prop_assert!(!region.descriptor.has_peer_on(leaver), "{}", show_region(&region.descriptor));
        }
        let gone = world.meta.stores[&leaver].state == MemberState::Removed;
        prop_assert_eq!(gone, !dies, "a drained store is let go, a dead one is not forgotten");
        prop_assert!(world.outcomes().iter().all(|(_, outcome)| *outcome != Outcome::Overtaken));
    }
}
