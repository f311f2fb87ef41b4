use super::*;
use crate::{LedgerConfig, StoreHeartbeat};

const STEP: u64 = SECOND / 5;

/// A leader with stores that answer every step as real stores do, and the results.
struct World {
    ledger: Ledger,
    turns: Turns,
    now: BootNanos,
    seq: u64,
    stores: BTreeMap<StoreId, Member>,
    /// The stores that began a sitting, in this order.
    begun: Vec<StoreId>,
    most_at_once: usize,
}

#[derive(Clone, Copy)]
struct Member {
    host: u64,
    turn: Turn,
    since: BootNanos,
    /// The length of a sitting.
    sits: u64,
    hears: bool,
    silent: bool,
}

impl World {
    fn new(hosts: &[u64]) -> World {
        let member = |host| Member {
            host,
            turn: Turn::default(),
            since: 0,
            sits: 5 * SECOND,
            hears: true,
            silent: false,
        };
        World {
            ledger: Ledger::new(0, LedgerConfig::default()),
            turns: Turns::default(),
            now: SECOND,
            seq: 0,
            stores: (0..).zip(hosts.iter().map(|&host| member(host))).collect(),
            begun: Vec::new(),
            most_at_once: 0,
        }
    }

    fn member(&mut self, store: StoreId) -> &mut Member {
        self.stores.get_mut(&store).expect("a store")
    }

    fn ask(&mut self, store: StoreId) {
        let now = self.now;
        let member = self.member(store);
        member.turn = Turn { state: TurnState::Waits, number: now, millis: 0 };
        member.since = now;
    }

    /// Runs one round of heartbeats, the leader's answer last.
    fn step(&mut self) -> Vec<TurnGrant> {
        self.now += STEP;
        self.seq += 1;
        let now = self.now;
        for (&store, member) in &mut self.stores {
            if member.turn.state == TurnState::Sits && now - member.since >= member.sits {
                member.turn = Turn::default();
            }
            member.turn.millis =
                if member.turn.state == TurnState::Idle { 0 } else { (now - member.since) / 1_000_000 };
            if member.silent {
                continue;
            }
            let place = Place { host: member.host, device: store + 1 };
            let (seq, turn) = (self.seq, member.turn);
            self.ledger
                .hear(StoreHeartbeat { store, incarnation: 1, seq, place, turn, ..Default::default() }, now);
        }
        let grants = self.turns.step(&self.ledger, now);
        for grant in &grants {
            let member = self.stores.get_mut(&grant.store).expect("a store");
            if member.hears && member.turn.state == TurnState::Waits && member.turn.number == grant.number {
                member.turn.state = TurnState::Sits;
                member.since = now;
                self.begun.push(grant.store);
            }
        }
        let sitting = self.stores.values().filter(|member| member.turn.state == TurnState::Sits).count();
        self.most_at_once = self.most_at_once.max(sitting);
        grants
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 5 {
            self.step();
        }
    }
}

#[test]
fn stores_of_one_host_sit_one_after_the_other_in_the_order_in_which_they_asked() {
    let mut world = World::new(&[7, 7, 7, 7]);
    for store in [2, 0, 3, 1] {
        world.ask(store);
        world.step();
    }
    world.run(30);
    assert_eq!((&world.begun[..], world.most_at_once), (&[2, 0, 3, 1][..], 1));
}

#[test]
fn stores_of_different_hosts_sit_at_once_and_one_of_an_unknown_host_alone() {
    let mut world = World::new(&[1, 2, 3, 3]);
    (0..4).for_each(|store| world.ask(store));
    world.run(4);
    assert_eq!(world.begun, [0, 1, 2]);
    world.run(8);
    assert_eq!(world.begun, [0, 1, 2, 3]);

    let mut world = World::new(&[1, 0, 2]);
    (0..3).for_each(|store| world.ask(store));
    world.run(20);
    assert_eq!((&world.begun[..], world.most_at_once), (&[0, 1, 2][..], 1), "no other store overtakes it");
}

#[test]
fn a_hundred_stores_of_twenty_hosts_take_as_long_as_the_five_of_one() {
    let hosts: Vec<u64> = (0..100).map(|store| 1 + store % 20).collect();
    let mut world = World::new(&hosts);
    (0..100).for_each(|store| world.ask(store));
    world.run(3 + 5 * 6);
    assert_eq!(world.begun.len(), 100);
    assert_eq!(world.most_at_once, 20);
}

#[test]
fn a_store_that_asks_again_and_again_does_not_keep_others_waiting() {
    let mut world = World::new(&[7, 7, 7]);
    (0..3).for_each(|store| world.ask(store));
    for _ in 0..5 * 60 {
        world.step();
        if world.stores[&0].turn.state == TurnState::Idle {
            world.ask(0);
        }
    }
    assert_eq!(world.begun[..4], [0, 1, 2, 0]);
}

#[test]
fn a_holder_that_falls_silent_or_never_ends_loses_the_turn() {
    let mut world = World::new(&[7, 7, 7]);
    world.ask(0);
    world.run(4);
    assert_eq!(world.begun, [0]);
    world.ask(1);
    world.member(0).silent = true;
    world.run(3);
    assert_eq!(world.begun, [0], "it may still sit");
    world.run(2);
    assert_eq!(world.begun, [0, 1]);

    world.member(1).sits = u64::MAX;
    world.ask(2);
    world.run(SITTING_MAX_NANOS / SECOND - 5);
    assert_eq!(world.begun, [0, 1]);
    world.run(10);
    assert_eq!(world.begun, [0, 1, 2]);
}

#[test]
fn a_grant_that_is_not_taken_goes_to_the_next_and_its_store_is_behind() {
    let mut world = World::new(&[7, 7, 7]);
    world.member(0).hears = false;
    (0..3).for_each(|store| world.ask(store));
    world.run(20);
    assert_eq!(world.begun, [1, 2]);
    world.member(0).hears = true;
    world.run(5);
    assert_eq!(world.begun, [1, 2, 0], "the store is served when it answers");
}

#[test]
fn a_new_leader_knows_who_sits_and_who_has_waited_longest() {
    let mut world = World::new(&[7, 7, 7]);
    world.member(2).sits = 9 * SECOND;
    world.ask(2);
    world.run(4);
    world.ask(1);
    world.run(1);
    world.ask(0);
    world.step();
    assert_eq!(world.begun, [2]);
    // The new leader has received no heartbeat yet.
    world.turns = Turns::default();
    world.ledger = Ledger::new(world.now, LedgerConfig::default());
    world.run(2);
    assert_eq!(world.begun, [2], "a turn is not granted again before its end was seen");
    world.run(15);
    assert_eq!((&world.begun[..], world.most_at_once), (&[2, 1, 0][..], 1));
}

#[test]
fn a_leader_waits_before_its_first_grant_and_one_that_leads_no_more_grants_nothing() {
    let mut world = World::new(&[7]);
    world.ask(0);
    world.member(0).hears = false;
    let mut steps = 0;
    while world.step().is_empty() {
        steps += 1;
    }
    assert_eq!(steps, SETTLE_NANOS / STEP);
    world.turns.stop();
    assert!(world.step().is_empty());
}

#[test]
fn a_grant_names_its_request() {
    let mut world = World::new(&[7]);
    world.member(0).hears = false;
    world.ask(0);
    world.run(4);
    let first = world.step();
    world.ask(0);
    let second = world.step();
    assert!(first[0].number != second.first().map_or(0, |grant| grant.number), "{first:?} {second:?}");
}

#[test]
fn without_a_leader_a_store_sits_down_after_a_while() {
    let mut waiting = Waiting::default();
    assert!(!waiting.may_sit(false, true, 0));
    assert!(waiting.may_sit(true, true, 0));
    assert!(!waiting.may_sit(false, false, SECOND));
    assert!(!waiting.may_sit(false, true, 15 * SECOND), "the leader was heard in between");
    assert!(!waiting.may_sit(false, false, 16 * SECOND));
    assert!(!waiting.may_sit(false, false, 35 * SECOND));
    assert!(waiting.may_sit(false, false, 36 * SECOND));
}
