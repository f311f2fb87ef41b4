//! Claims about entries that fail their checksum while a peer runs.

use super::*;

const PAYLOAD: &[u8] = &[7; 200];

fn damaged(trio: &Trio, store: usize) -> Option<(u64, bool)> {
    trio.nodes[store].seen.iter().find_map(|action| match action {
        Action::Damaged { region: REGION, first, executed, .. } => Some((*first, *executed)),
        _ => None,
    })
}

/// Writes enough data to evict the first entries from the caches. Returns the first one's index.
fn fill(trio: &mut Trio, passes: impl Fn(StoreId) -> bool) -> u64 {
    let first = trio.last_and_term(0).0 + 1;
    for token in 1..40 {
        trio.propose(0, token, PAYLOAD);
        trio.settle_only(|to, _| passes(to));
    }
    first
}

#[test]
fn damaged_entries_that_are_executed_cost_a_flush_and_nothing_else() {
    let mut trio = Trio::led();
    let first = fill(&mut trio, |to| to != 2);
    trio.nodes[0].disk.damaged.borrow_mut().insert((REGION, first));
    trio.clear();
    for _ in 0..8 {
        trio.tick(0, 1);
        trio.settle();
    }
    assert_eq!(damaged(&trio, 0), Some((first, true)), "the follower needs the entry");
    assert!(trio.saw(0, |action| *action == Action::FlushSoon));
    assert_eq!(trio.role(0), Role::Leader);
    trio.propose(0, 100, b"one");
    trio.settle();
    let last = trio.last_and_term(0).0;
    trio.step(0, Input::Flushed { region: REGION, index: last });
    assert!(trio.saw(0, |action| matches!(action, Action::Truncate { index, .. } if *index >= first)));
    // The follower gets a snapshot.
    for _ in 0..8 {
        trio.tick(0, 1);
        trio.settle();
    }
    assert!(trio.saw(0, |action| matches!(action, Action::MakeSnapshot { .. })));
    assert!(trio.nodes[0].worker.unclean().is_empty());
}

#[test]
fn a_leader_that_cannot_execute_damaged_entries_hands_over_and_is_then_silent() {
    let mut trio = Trio::led();
    trio.nodes[0].worker.make_room(0);
    let first = fill(&mut trio, |_| true);
    trio.nodes[0].disk.damaged.borrow_mut().insert((REGION, first));
    trio.clear();
    trio.nodes[0].worker.make_room(u64::MAX);
    trio.turn(0);
    assert_eq!(damaged(&trio, 0), Some((first, false)));
    assert_eq!(trio.role(0), Role::Leader, "the damage is not recorded yet");
    assert!(trio.nodes[0].worker.unclean().is_empty());
    trio.step(0, Input::Damaged { region: REGION });
    trio.settle();
    let leads = |trio: &Trio| (1..3).any(|store| trio.role(store) == Role::Leader);
    for _ in 0..60 {
        (0..3).for_each(|store| trio.tick(store, 1));
        trio.settle();
    }
    assert!(leads(&trio), "another voter leads");
    assert_eq!(trio.nodes[0].worker.unclean(), BTreeMap::from([(REGION, 1)]));
    let leader = (1..3).find(|store| trio.role(*store) == Role::Leader).unwrap();
    let before = trio.last_and_term(0);
    trio.propose(leader, 200, b"two");
    trio.settle();
    assert_eq!(trio.last_and_term(0), before, "it acknowledges nothing");
    let committed = |trio: &Trio| trio.nodes[leader].worker.status(REGION, trio.now).unwrap().commit;
    assert_eq!(committed(&trio), trio.last_and_term(leader).0, "the others continue");
    // The log may drop entries that cannot be read.
    let error = trio.nodes[0].disk.entries(REGION, first, first + 1, 1).unwrap_err();
    trio.step(0, Input::DamageFound(error));
    assert!(trio.saw(0, |action| *action == Action::GiveUpLog { region: REGION, first }));
}

#[test]
fn a_follower_with_damage_that_is_not_recorded_yet_votes_but_does_not_stand() {
    let mut trio = Trio::led();
    let first = fill(&mut trio, |_| true);
    trio.nodes[1].disk.damaged.borrow_mut().insert((REGION, first));
    let disk = trio.nodes[1].disk.clone();
    trio.nodes[1].worker = Worker::new(config(1, 5), disk, seed(3), BTreeMap::new(), trio.now).unwrap();
    trio.clear();
    trio.turn(1);
    assert_eq!(damaged(&trio, 1), Some((first, false)), "it executes its log again");
    trio.tick(1, 60);
    assert_eq!(trio.sent(MessageType::MsgRequestPreVote), 0);
    trio.step(1, Input::Damaged { region: REGION });
    assert_eq!(trio.nodes[1].worker.unclean(), BTreeMap::from([(REGION, 2)]));
    // A failed read for another reason stops the store.
    let error = LogError { region: REGION, reason: "EIO".into(), damaged: None };
    trio.nodes[0].worker.step(Input::DamageFound(error), trio.now);
    assert!(trio.nodes[0].worker.turn(trio.now).is_err());
}

/// A commit index is often written with the next entries, and is lost with them.
#[test]
fn an_only_voter_executes_the_entries_before_the_damage_although_their_commit_index_is_lost() {
    let restarted = |stores: u64, unclean| {
        let mut trio = Trio::led_of(stores);
        trio.propose(0, 1, b"one");
        trio.settle();
        let disk = trio.nodes[0].disk.clone();
        let last = disk.regions.borrow()[&REGION].last();
        if let Some(log) = disk.regions.borrow_mut().get_mut(&REGION) {
            log.hard_state = log.hard_state.map(|state| HardState { commit: last - 1, ..state });
        }
        let mut seeds = seed(stores);
        seeds[0].unclean = unclean;
        trio.nodes[0].worker = Worker::new(config(0, 5), disk, seeds, BTreeMap::new(), trio.now).unwrap();
        trio.clear();
        trio.tick(0, 60);
        let executed = trio.nodes[0].seen.iter().filter_map(|action| match action {
            Action::Apply { entries, .. } => entries.last().map(|entry| entry.index),
            _ => None,
        });
        (executed.max() >= Some(last), trio.role(0))
    };
    assert_eq!(restarted(1, Unclean::Damage), (true, Role::Follower));
    assert_eq!(restarted(1, Unclean::No), (true, Role::Leader));
    assert_eq!(restarted(3, Unclean::Damage), (false, Role::Follower), "the other voters know more");
}
