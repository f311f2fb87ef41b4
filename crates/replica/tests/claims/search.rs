//! Claims about peers whose candidates a coordinator chooses.

use super::*;
use steelyard_replica::{Elections, Seeker};

const NEVER: Elections = Elections::ByCoordinator { fallback_nanos: None };

fn set(trio: &mut Trio, elections: Elections) {
    (0..3).for_each(|store| trio.step(store, Input::SetElections(elections)));
}

/// Lets the stores 1 and 2 miss store 0 for this many ticks.
fn without_first(trio: &mut Trio, ticks: usize) {
    for _ in 0..ticks {
        tick(trio, 1..3);
        trio.settle_only(|to, _| to != 0);
    }
}

/// One tick of these stores at the same time.
fn tick(trio: &mut Trio, stores: std::ops::Range<usize>) {
    trio.now += TICK;
    stores.for_each(|store| trio.step(store, Input::Tick));
}

fn seeks(trio: &Trio, store: usize) -> Option<Seeker> {
    let reports = trio.nodes[store].seen.iter().filter_map(|action| match action {
        Action::Seeking { seeker, .. } => Some(seeker.clone()),
        _ => None,
    });
    reports.last().flatten()
}

#[test]
fn a_peer_seeks_and_stands_only_when_it_is_chosen() {
    let mut trio = Trio::led();
    set(&mut trio, NEVER);
    assert_eq!(seeks(&trio, 1), None);
    without_first(&mut trio, 300);
    assert!((1..3).all(|store| trio.role(store) == Role::Follower), "no peer campaigns by itself");
    let seeker = seeks(&trio, 1).expect("it hears from no leader");
    let (index, term) = trio.last_and_term(1);
    assert_eq!((seeker.last, seeker.may_stand), ((term, index), true));
    trio.step(1, Input::Stand { region: REGION });
    trio.settle_only(|to, _| to != 0);
    assert_eq!(trio.role(1), Role::Leader, "the other voter's timeout has passed, too");
    without_first(&mut trio, 3);
    assert_eq!((seeks(&trio, 1), seeks(&trio, 2)), (None, None), "there is a leader");
}

#[test]
fn a_chosen_peer_that_hears_from_its_leader_does_not_stand() {
    let mut trio = Trio::led();
    set(&mut trio, NEVER);
    trio.step(1, Input::SessionEnded { store: 0 });
    for _ in 0..40 {
        tick(&mut trio, 0..3);
        trio.settle();
        trio.step(1, Input::Stand { region: REGION });
        trio.settle();
    }
    assert_eq!((trio.role(0), trio.role(1), seeks(&trio, 1)), (Role::Leader, Role::Follower, None));
}

#[test]
fn the_end_of_the_leaders_session_begins_the_search_once_the_stickiness_period_has_passed() {
    let mut trio = Trio::led();
    set(&mut trio, NEVER);
    (1..3).for_each(|store| trio.step(store, Input::SessionEnded { store: 0 }));
    let stickiness = config(0, 5).stickiness_nanos() / TICK;
    without_first(&mut trio, stickiness as usize - 1);
    assert_eq!(seeks(&trio, 1), None, "the leader may have a lease");
    without_first(&mut trio, 2);
    assert!(seeks(&trio, 1).is_some(), "an election timeout is longer");
    trio.step(1, Input::Stand { region: REGION });
    trio.settle_only(|to, _| to != 0);
    assert_eq!(trio.role(1), Role::Leader);
}

#[test]
fn after_the_fallback_peers_elect_by_their_timeouts() {
    let mut trio = Trio::led();
    set(&mut trio, Elections::ByCoordinator { fallback_nanos: Some(30 * TICK) });
    let leads = |trio: &Trio| (1..3).any(|store| trio.role(store) == Role::Leader);
    without_first(&mut trio, 35);
    assert!(!leads(&trio), "the fallback counts from the begin of the search");
    without_first(&mut trio, 60);
    assert!(leads(&trio));
}

#[test]
fn a_change_to_elections_by_timeout_ends_the_search() {
    let mut trio = Trio::led();
    set(&mut trio, NEVER);
    without_first(&mut trio, 50);
    assert!(seeks(&trio, 1).is_some());
    set(&mut trio, Elections::ByTimeout);
    without_first(&mut trio, 30);
    assert!(seeks(&trio, 1).is_none() && (1..3).any(|store| trio.role(store) == Role::Leader));
}

/// A voter whose random timeout is the shortest possible stopped counting one tick before the
/// consensus code accepts other candidates. Some of these numbers draw it.
#[test]
fn a_peer_that_must_not_lead_votes_once_its_election_timeout_has_passed() {
    for draws in 0..60 {
        let mut trio = Trio::with_draws(3, draws).with_leader();
        trio.step(2, Input::StopLeading);
        without_first(&mut trio, 45);
        assert_eq!(trio.role(1), Role::Leader, "draws {draws}: store 2 does not vote");
    }
}
