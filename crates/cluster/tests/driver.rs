//! Tests of the driver other than the lifecycles of operators, which `scripts.rs` shows.

mod support;

use placement::{Cpu, Operator, PlanLimits, Policy, Reason};
use steelyard_cluster::{
    may_drain, Cause, DrainError, Driver, DriverConfig, Ledger, LedgerConfig, MemberState, MetaCommand,
    MetaError, MetaState, Outcome, Phase, Quarantine, StartError, Step, CONFIG_REPLICAS,
};
use support::*;

fn planning(mut world: World) -> World {
    world.limits = PlanLimits { data_moves_max: 0, ..PlanLimits::default() };
    world
}

fn step(world: &mut World) -> Step {
    let World { meta, ledger, limits, term, now, .. } = world;
    world.driver.step(meta, ledger, limits, *term, *now)
}

fn begins(world: &World) -> Vec<u64> {
    let begins = world.events.iter().filter(|event| event.contains(": begin "));
    begins.map(|event| event.split('.').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn leaders_move_succeed_and_then_all_is_quiet() {
    let mut world = planning(World::new(3, 6, 3));
    world.run(20);
    assert_eq!(begins(&world).len(), 4, "from 6, 0 and 0 to 2, 2 and 2");
    assert!(world.outcomes().iter().all(|(_, outcome)| *outcome == Outcome::Succeeded));
    for store in 0..3 {
        let leads = |region: &&Region| region.descriptor.slots.is_some() && region.leader == Some(store);
        assert_eq!(world.regions.values().filter(leads).count(), 2);
    }
    world.events.clear();
    world.run(60);
    assert_eq!(world.events, [""; 0]);
}

#[test]
fn a_peer_that_its_store_names_as_unclean_is_made_anew_under_another_number() {
    let mut world = World::new(3, 1, 3);
    world.limits = PlanLimits::default();
    world.run(5);
    let peer_on = |world: &World| world.regions[&1].descriptor.peer_on(2).copied();
    let before = peer_on(&world).expect("three stores share the region");
    world.unclean.insert(2, vec![(1, before.id)]);
    world.run(60);
    let after = peer_on(&world).expect("it has a peer again");
    assert!(after.id > before.id && after.role == types::PeerRole::Voter, "{after:?}");
    world.events.clear();
    world.run(60);
    assert_eq!(world.events, [""; 0], "the named number is no longer in use");
}

#[test]
fn a_removal_that_an_unclean_peer_stands_in_the_way_of_ends_at_once_so_that_the_peer_is_replaced() {
    let mut world = World::new(3, 1, 3);
    world.limits = PlanLimits { in_flight_max: 0, ..PlanLimits::default() };
    world.run(5);
    let peer_on = |world: &World, store| world.regions[&1].descriptor.peer_on(store).copied();
    let leader = world.regions[&1].leader.expect("a leader");
    let others: Vec<u64> = (0..3).filter(|&store| store != leader).collect();
    let before = others.iter().map(|&store| peer_on(&world, store).expect("a peer")).collect::<Vec<_>>();
    let remove = || operator("remove", &[1, others[1]]).unwrap();
    world.request(remove()).unwrap();
    world.unclean.insert(others[0], vec![(1, before[0].id)]);
    world.limits = PlanLimits::default();
    world.run(5);
    let awaits_repair = StartError::AwaitsRepair { region: 1, store: others[1], unclean: others[0] };
    assert_eq!(world.request(remove()), Err(awaits_repair));
    world.run(10);
    assert_eq!(world.outcomes().first().map(|(_, outcome)| *outcome), Some(Outcome::Aborted));
    let after = peer_on(&world, others[0]);
    assert!(after.is_none_or(|peer| peer.id > before[0].id), "{after:?}");
    world.run(60);
    assert!(peer_on(&world, others[0]).is_some_and(|peer| peer.role == types::PeerRole::Voter));
    assert_eq!(peer_on(&world, others[1]), Some(before[1]));
}

#[test]
fn an_unclean_peer_is_made_anew_although_others_are_quarantined_unless_the_leader_is() {
    let held = || vec![(1, Quarantine::new(9, Cause::Entry, "SET foo", "a bug"))];
    let mut world = World::new(3, 1, 3);
    world.limits = PlanLimits::default();
    world.run(5);
    let peer_on = |world: &World, store| world.regions[&1].descriptor.peer_on(store).copied();
    let leader = world.regions[&1].leader.expect("a leader");
    let others: Vec<u64> = (0..3).filter(|&store| store != leader).collect();
    let before = others.iter().map(|&store| peer_on(&world, store).expect("a peer")).collect::<Vec<_>>();
    world.unclean.insert(others[0], vec![(1, before[0].id)]);
    for store in [leader, others[0], others[1]] {
        world.quarantined.insert(store, held());
    }
    world.run(60);
    assert_eq!(peer_on(&world, others[0]), Some(before[0]), "the leader applies no change");
    world.quarantined.remove(&leader);
    world.run(60);
    let after = peer_on(&world, others[0]).expect("a peer");
    assert!(after.id > before[0].id && after.role == types::PeerRole::Voter, "{after:?}");
    assert_eq!(peer_on(&world, others[1]), Some(before[1]), "a person decides about its rows");
}

#[test]
fn a_failed_region_is_left_alone_for_a_pause_that_grows_until_it_succeeds() {
    let mut world = planning(World::new(3, 1, 3));
    world.speeds.insert(2, 9e6);
    world.apply(&MetaCommand::SetPolicy { policy: Policy::LeaderOnly }).unwrap();
    let lose_orders = |cargo| if cargo == Cargo::Order { Fate::Lost } else { Fate::Arrives };
    for _ in 0..2 * 60 {
        world.tick(lose_orders);
    }
    world.events.retain(|event| event.contains("region 1 "));
    // An operator is overdue after more than 5 s. Agreement takes another second. Then follow the
    // pause and up to a second until the next survey.
    let pauses: Vec<u64> = begins(&world).windows(2).map(|pair| pair[1] - pair[0] - 6).collect();
    assert_eq!(pauses.len(), 4);
    assert!(pauses.iter().zip([2, 4, 8, 16]).all(|(pause, least)| pause - least <= 1), "{pauses:?}");
    assert!(world.outcomes().iter().all(|(_, outcome)| *outcome == Outcome::TimedOut));
    world.run(60);
    assert_eq!(world.outcomes().last().unwrap().1, Outcome::Succeeded);
}

fn leads_user(region: &Region, store: u64) -> bool {
    region.descriptor.slots.is_some() && region.leader == Some(store)
}

#[test]
fn a_store_whose_cpu_was_too_busy_is_brought_leads_only_up_to_the_lower_mark() {
    let mut world = planning(World::new(3, 6, 3));
    world.speeds.insert(2, 9e6);
    world.apply(&MetaCommand::SetPolicy { policy: Policy::LeaderOnly }).unwrap();
    let cpu = |busy| Cpu { cores: 4.0, busy, own: 0.2, machine: 0 };
    for (store, busy) in [(0, 0.1), (1, 0.1), (2, 0.9)] {
        world.cpus.insert(store, cpu(busy));
    }
    let leads = |world: &World| world.regions.values().filter(|region| leads_user(region, 2)).count();
    world.run(30);
    assert_eq!(leads(&world), 0, "90% is above the limit");
    world.cpus.insert(2, cpu(0.7));
    world.run(900);
    assert_eq!(leads(&world), 0, "70% is not below the lower mark");
    let mut fresh = world;
    fresh.new_driver();
    fresh.run(30);
    assert_eq!(leads(&fresh), 6, "a new driver has no memory");
}

#[test]
fn a_store_whose_cpu_has_been_calm_for_ten_minutes_is_brought_leads_up_to_the_limit() {
    let mut world = planning(World::new(3, 6, 3));
    world.speeds.insert(2, 9e6);
    // Leaders do not move until then.
    world.limits.in_flight_max = 0;
    world.apply(&MetaCommand::SetPolicy { policy: Policy::LeaderOnly }).unwrap();
    let cpu = |busy| Cpu { cores: 4.0, busy, own: 0.2, machine: 0 };
    let leads = |world: &World| world.regions.values().filter(|region| leads_user(region, 2)).count();
    for (calm_s, expected) in [(500, 0), (200, 6)] {
        world.cpus.insert(2, cpu(0.5));
        world.limits.in_flight_max = 0;
        if calm_s == 500 {
            world.cpus.insert(2, cpu(0.9));
            world.run(5);
            world.cpus.insert(2, cpu(0.5));
        }
        world.run(calm_s);
        // The load is now above the lower mark, but far from the limit.
        world.cpus.insert(2, cpu(0.65));
        world.limits.in_flight_max = 32;
        world.run(5);
        assert_eq!(leads(&world), expected, "after {calm_s} s more");
    }
}

#[test]
fn nothing_is_planned_before_bootstrap_or_before_all_were_heard() {
    let mut world = planning(World::new(3, 3, 3));
    let nothing = MetaState::default();
    let idle = world.driver.step(&nothing, &world.ledger, &world.limits, world.term, world.now);
    assert_eq!(idle, Step::default());
    world.apply(&MetaCommand::TakeOver { term: world.term }).unwrap();
    assert_eq!(step(&mut world), Step::default(), "no store was heard");
    world.run(2);
    assert!(!begins(&world).is_empty());
}

#[test]
fn a_driver_takes_over_before_it_does_anything_and_does_nothing_once_another_has() {
    let mut world = World::new(4, 1, 3);
    world.run(1);
    world.request(operator("add", &[1, 3]).unwrap()).unwrap();
    let mut old = world.driver.clone();
    world.new_driver();
    world.now += SECOND;
    assert_eq!(step(&mut world).commands, [MetaCommand::TakeOver { term: 6 }]);
    assert_eq!(step(&mut world), Step::default(), "the proposal is under way");
    world.apply(&MetaCommand::TakeOver { term: 6 }).unwrap();
    assert_eq!(step(&mut world).orders.len(), 1);
    let late = old.step(&world.meta, &world.ledger, &world.limits, 5, world.now);
    assert_eq!(late, Step::default());
}

#[test]
fn a_proposal_is_not_repeated_while_it_may_be_under_way() {
    let mut world = World::new(3, 1, 3);
    world.run(1);
    let region = &world.regions[&1].descriptor;
    let grown = types::RegionChange::Peers(vec![types::PeerChange::Demote(2)]);
    let grown = region.after(&grown).unwrap().region;
    world.ledger.learn_descriptor(&grown);
    let report = MetaCommand::ReportRegions { regions: vec![grown] };
    let mut proposed = Vec::new();
    for _ in 0..10 {
        world.now += SECOND / 2;
        proposed.push(step(&mut world).commands.contains(&report));
    }
    // The driver checks each second whether a repetition is due. It is due after more than two
    // seconds.
    let once_in_a_while = [true, false, false, false, false, false, true, false, false, false];
    assert_eq!(proposed, once_in_a_while);
}

#[test]
fn two_planned_at_once_get_ids_one_after_the_other() {
    let mut world = planning(World::new(3, 6, 3));
    world.run(1);
    world.driver.forget();
    world.limits = PlanLimits::default();
    let ids: Vec<u64> = world.meta.history.keys().chain(world.meta.operators.keys()).copied().collect();
    assert!(ids.len() > 1 && ids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{ids:?}");
}

#[test]
fn what_its_leader_gives_up_is_taken_back() {
    let mut world = World::new(4, 2, 3);
    world.run(1);
    assert_eq!(world.driver.aborted(&world.meta, 1, world.now), None, "nothing is in flight");
    world.request(operator("add", &[1, 3]).unwrap()).unwrap();
    world.request(operator("split", &[2]).unwrap()).unwrap();
    let World { meta, driver, now, .. } = &mut world;
    let undo = driver.aborted(meta, 1, *now).unwrap();
    let phase = Phase::Undoing { because: Outcome::Aborted };
    assert_eq!(undo, MetaCommand::AdvanceOperator { id: 1, phase });
    let finish = driver.aborted(meta, 2, *now).unwrap();
    assert_eq!(finish, MetaCommand::FinishOperator { id: 2, outcome: Outcome::Aborted });
    assert!(driver.is_cooling(1, *now) && driver.is_cooling(2, *now));
    world.apply(&undo).unwrap();
    world.apply(&finish).unwrap();
    assert_eq!(world.driver.aborted(&world.meta, 1, world.now), None, "the first call undid the operator");
    world.run(2);
    assert_eq!(world.outcomes(), [(1, Outcome::Aborted), (2, Outcome::Aborted)]);
    assert!(world.is_at_rest());
}

#[test]
fn a_request_is_refused_to_and_from_the_dead_unless_it_takes_away_from_them() {
    let mut world = World::new(5, 1, 3);
    world.run(1);
    let of_peers: Vec<u64> = world.regions[&1].descriptor.peers.iter().map(|peer| peer.store).collect();
    let [leader, dead, other] = of_peers[..] else { panic!("{of_peers:?}") };
    let free = (0..5).find(|store| !of_peers.contains(store)).unwrap();
    world.dead.insert(dead);
    world.run(5);
    let to_the_dead = world.request(operator("transfer", &[1, leader, dead]).unwrap());
    assert_eq!(to_the_dead, Err(StartError::Down(dead)));
    world.request(operator("move", &[1, dead, free]).unwrap()).unwrap();
    world.run(5);
    assert_eq!(world.outcomes(), [(1, Outcome::Succeeded)]);
    let left: Vec<u64> = world.regions[&1].descriptor.peers.iter().map(|peer| peer.store).collect();
    let mut expected = vec![leader, other, free];
    expected.sort_unstable();
    assert_eq!(left, expected);
}

#[test]
fn a_store_may_not_drain_where_its_regions_would_lose_their_quorum() {
    let mut world = World::new(6, 8, 3);
    world.run(1);
    let may = |world: &World, store| may_drain(&world.meta, &world.ledger, store, world.now);
    assert_eq!(may(&world, 0), Ok(()));
    assert_eq!(may(&world, 9), Err(DrainError::Refused(MetaError::UnknownStore(9))));
    // The meta region is on stores 0, 1 and 2. Without store 1 it needs both others.
    world.dead.insert(1);
    world.run(5);
    assert_eq!(may(&world, 0), Err(DrainError::NoQuorum { store: 0, region: 0 }));
    world.dead.extend([2, 3]);
    world.run(5);
    assert_eq!(may(&world, 0), Err(DrainError::TooFewLive { live: 2, replicas: 3 }));
    let fewer = MetaCommand::SetConfig { name: CONFIG_REPLICAS.into(), value: Some("2".into()) };
    world.apply(&fewer).unwrap();
    assert_eq!(may(&world, 0), Err(DrainError::NoQuorum { store: 0, region: 0 }));
}

#[test]
fn an_empty_store_is_only_let_go_when_it_drains() {
    let mut world = World::new(4, 1, 3);
    let joined = world.join();
    world.run(5);
    assert_eq!(world.meta.stores[&joined].state, MemberState::Up);
    world.apply(&MetaCommand::SetStoreState { store: joined, state: MemberState::Draining }).unwrap();
    world.run(2);
    assert_eq!(world.meta.stores[&joined].state, MemberState::Removed);
}

#[test]
fn an_idle_cluster_is_surveyed_now_and_then_and_a_changed_one_at_once() {
    let mut world = World::new(3, 6, 3);
    world.run(3);
    world.limits = PlanLimits { data_moves_max: 0, ..PlanLimits::default() };
    // The last survey was less than a second ago and found that nothing may be planned.
    let planned = |step: &Step| !step.commands.is_empty();
    world.now += 1;
    assert!(!planned(&step(&mut world)));
    let policy = MetaCommand::SetPolicy { policy: Policy::LeaderOnly };
    world.apply(&policy).unwrap();
    world.apply(&MetaCommand::SetPolicy { policy: Policy::Even }).unwrap();
    world.now += 1;
    assert!(planned(&step(&mut world)), "{:?}", world.events);
}

#[test]
fn a_planned_operator_counts_as_in_flight_until_its_proposal_is_given_up() {
    let ledger = Ledger::new(0, LedgerConfig::default());
    let mut driver = Driver::new(DriverConfig::default());
    let mut world = World::new(3, 1, 3);
    world.run(1);
    let transfer = Operator::TransferLeader { region: 1, from: 0, to: 1, reason: Reason::Requested };
    let World { meta, ledger: heard, .. } = &world;
    assert_eq!(driver.request(meta, &ledger, transfer.clone(), 0), Err(StartError::NoLeader(1)));
    let begun = driver.request(meta, heard, transfer.clone(), world.now).unwrap();
    assert_eq!(begun, MetaCommand::BeginOperator { id: 1, operator: transfer.clone() });
    assert_eq!(driver.beginning().collect::<Vec<_>>(), [&transfer]);
    let again = driver.request(meta, heard, transfer.clone(), world.now);
    assert_eq!(again, Err(StartError::Refused(MetaError::RegionBusy(1))));
    let later = world.now + DriverConfig::default().proposal_nanos + 1;
    let lost = driver.request(meta, heard, transfer, later);
    assert!(lost.is_ok(), "the first proposal was lost");
}

#[test]
fn peers_are_spread_over_the_values_of_a_label_once_it_is_set() {
    let mut world = World::new(4, 2, 3);
    world.run(1);
    // Two of region 1's peers share a zone, and the store without a label is in a zone of its own.
    let of_region: Vec<u64> = world.regions[&1].descriptor.peers.iter().map(|peer| peer.store).collect();
    let zone = |store: u64| match of_region.iter().position(|&peer| peer == store) {
        Some(0 | 1) => "a",
        Some(_) => "b",
        None => "c",
    };
    for store in 0..4 {
        let mut facts = world.meta.stores[&store].facts.clone();
        facts.labels.insert("zone".into(), zone(store).into());
        world.apply(&MetaCommand::SetStore { store, facts }).unwrap();
    }
    let zones = |world: &World, region: u64| {
        let peers = world.regions[&region].descriptor.peers.iter();
        let mut zones: Vec<&str> = peers.map(|peer| zone(peer.store)).collect();
        zones.sort_unstable();
        zones
    };
    world.limits = PlanLimits::default();
    world.run(30);
    assert_eq!(zones(&world, 0)[..2], ["a", "a"], "nobody minds");
    let command = world.meta.set("domain-label", "zone").unwrap();
    world.apply(&command).unwrap();
    let view = |world: &World| steelyard_cluster::view(&world.meta, &world.ledger, &world.driver, world.now);
    assert_eq!(view(&world).domain_label.as_deref(), Some("zone"));
    world.run(60);
    assert!(world.events.iter().any(|event| event.contains("failure domain")), "{:?}", world.events);
    assert!(world.is_at_rest(), "{:?}", world.events);
    for region in world.regions.keys() {
        assert_eq!(zones(&world, *region), ["a", "b", "c"], "region {region}");
    }
    let command = world.meta.set("domain-label", "none").unwrap();
    world.apply(&command).unwrap();
    assert_eq!(view(&world).domain_label, None);
}

/// The halves of a split report no size until they have been measured. With the old size, one half
/// would be split again and the other merged back.
#[test]
fn what_was_split_is_left_alone_until_it_has_been_measured() {
    const MB: u64 = 1 << 20;
    let mut world = World::new(3, 1, 3);
    world.run(2);
    world.limits = PlanLimits {
        split_bytes: 10 * MB,
        merge_bytes: 5 * MB,
        regions_per_store_min: 0,
        ..PlanLimits::default()
    };
    world.regions.get_mut(&1).unwrap().bytes = 16 * MB;
    while world.regions.len() < 3 {
        world.tick(|_| Fate::Arrives);
    }
    let halves: Vec<u64> = world.regions.keys().copied().filter(|id| *id != 0).collect();
    for half in &halves {
        world.regions.get_mut(half).unwrap().bytes = 8 * MB;
        world.unsized_regions.insert(*half);
    }
    world.events.clear();
    world.run(20);
    assert!(begins(&world).is_empty(), "{:?}", world.events);
    let view = steelyard_cluster::view(&world.meta, &world.ledger, &world.driver, world.now);
    assert!(view.regions.iter().all(|region| region.cooldown == (region.id != 0)));
    world.unsized_regions.clear();
    world.run(60);
    let of_slots = |event: &&String| event.contains("split") || event.contains("merge");
    assert_eq!(world.events.iter().filter(of_slots).count(), 0, "8 MB are neither too much nor too little");
    assert_eq!(world.regions.len(), 3);
}

#[test]
fn a_merge_is_given_up_while_a_peer_of_either_region_is_quarantined() {
    let held = |region| vec![(region, Quarantine::new(9, Cause::Entry, "SET foo", "a bug"))];
    let mut world = planning(World::new(3, 2, 3));
    world.run(5);
    let merge = || operator("merge", &[1, 2]).unwrap();
    for region in [1, 2] {
        world.quarantined.insert(0, held(region));
        world.run(2);
        world.request(merge()).unwrap();
        world.run(10);
        assert_eq!(world.outcomes().last().map(|(_, outcome)| *outcome), Some(Outcome::Aborted));
        assert!(world.regions[&1].descriptor.merging.is_none(), "it was not sealed");
        world.quarantined.clear();
        world.run(10);
    }
    // The peer is quarantined between the seal and the binding.
    world.request(merge()).unwrap();
    while world.regions[&1].descriptor.merging.is_none() {
        world.tick(|_| Fate::Arrives);
    }
    world.quarantined.insert(1, held(1));
    world.run(20);
    assert_eq!(world.outcomes().last().map(|(_, outcome)| *outcome), Some(Outcome::Aborted));
    assert!(world.regions[&1].descriptor.merging.is_none(), "it takes commands again");
    world.quarantined.clear();
    world.run(10);
    world.request(merge()).unwrap();
    world.run(20);
    assert_eq!(world.regions.len(), 2, "the meta region and the one that is left");
}

/// A store that missed the split between two regions has no peer of the new one, which may need
/// that store to elect a leader.
#[test]
fn a_merge_whose_source_has_no_leader_does_not_keep_its_target_from_being_repaired() {
    let mut world = World::new(3, 2, 3);
    world.limits = PlanLimits::default();
    world.run(5);
    let leader = world.regions[&2].leader.expect("a leader");
    let other = (0..3).find(|&store| store != leader).expect("three stores");
    let peer = |world: &World| world.regions[&2].descriptor.peer_on(other).copied();
    let before = peer(&world).expect("a peer");
    world.events.clear();
    world.request(operator("merge", &[1, 2]).unwrap()).unwrap();
    // The source is sealed, or not. Only its leader could tell.
    while world.regions[&1].descriptor.merging.is_none() {
        world.tick(|_| Fate::Arrives);
    }
    world.leaderless.insert(1);
    world.unclean.insert(other, vec![(2, before.id)]);
    world.run(60);
    assert!(world.outcomes().iter().any(|(_, outcome)| *outcome == Outcome::TimedOut), "{:?}", world.events);
    let after = peer(&world).expect("it has a peer again");
    assert!(after.id > before.id && after.role == types::PeerRole::Voter, "{after:?}");
    // The source has a leader again, and is freed.
    world.leaderless.clear();
    world.run(60);
    assert!(world.regions[&1].descriptor.merging.is_none(), "{:?}", world.regions[&1].descriptor);
}

#[test]
fn stores_that_counted_as_different_do_so_until_they_are_closer() {
    let mut world = planning(World::new(3, 6, 3));
    let leads = |world: &World| {
        [0, 1, 2].map(|store| {
            let leads = |region: &&Region| region.descriptor.slots.is_some() && region.leader == Some(store);
            world.regions.values().filter(leads).count()
        })
    };
    world.spread = 1.1;
    world.speeds.extend([(0, 1e6), (1, 1e6), (2, 1.65e6)]);
    world.apply(&MetaCommand::SetPolicy { policy: Policy::LeaderOnly }).unwrap();
    world.run(20);
    assert_eq!(leads(&world), [0, 0, 6]);
    world.events.clear();
    // The store is certainly 1.17 times as fast as the others: not close enough to rejoin their
    // class.
    world.speeds.insert(2, 1.42e6);
    world.run(20);
    assert_eq!(begins(&world), [0; 0]);
    // A driver without recorded classes puts the store into the others' class.
    world.new_driver();
    world.run(40);
    assert_eq!(leads(&world), [2; 3]);
}

#[test]
fn a_store_leads_nothing_while_it_alone_has_no_session_and_zookeeper_chooses() {
    let mut world = planning(World::new(3, 6, 3));
    world.meta.version = types::THIRD_VERSION;
    world.sessions.extend([1, 2]);
    world.run(40);
    let leads =
        |world: &World, store| world.regions.values().filter(|region| region.leader == Some(store)).count();
    assert_eq!(leads(&world, 0), 3, "its session does not matter to elections by Raft");
    let set = |world: &mut World, value| {
        let command = world.meta.set("election", value).unwrap();
        world.apply(&command).unwrap();
    };
    set(&mut world, "zookeeper");
    world.sessions.insert(0);
    world.run(5);
    // ZooKeeper goes away, and comes back: the stores notice at different times.
    for stores in [&[1, 2][..], &[2], &[], &[0], &[0, 1, 2]] {
        world.sessions = stores.iter().copied().collect();
        world.run(6);
    }
    world.sessions.clear();
    world.run(60);
    assert_eq!(leads(&world, 0), 3, "without ZooKeeper the leaders stay");
    // It comes back after longer than the grace, and store 0 gets its session last.
    world.sessions.extend([1, 2]);
    world.run(6);
    assert_eq!(leads(&world, 0), 3, "ZooKeeper's return moves no lead");
    world.sessions.extend([0, 1, 2]);
    world.run(5);
    world.sessions.remove(&0);
    world.run(60);
    assert_eq!(leads(&world, 0), 0);
    let reason = "store 0 has no session with ZooKeeper";
    assert!(world.events.iter().any(|event| event.contains(reason)), "{:?}", world.events);
    world.sessions.insert(0);
    world.run(60);
    assert!(leads(&world, 0) > 0, "it leads again");
}
