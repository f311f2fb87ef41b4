use super::*;
use types::{Peer, RegionDescriptor};

const TURN: u64 = 1000;
const RETRY: u64 = 100;

fn seeker(last: (Term, LogIndex)) -> Seeker {
    Seeker { last, may_stand: true, descriptor: RegionDescriptor::founded(5, None, &[1, 2, 3]) }
}

fn at(last: (Term, LogIndex)) -> Option<Positions> {
    Some(Positions::from([(5, Position { last, may_stand: true })]))
}

fn coordinator(this: StoreId) -> Coordinator {
    let mut coordinator = Coordinator::new(this, TURN, RETRY);
    coordinator.set_session(true);
    coordinator
}

#[test]
fn the_largest_epoch_then_lsn_stands_once_a_majority_seeks() {
    let mut store = coordinator(1);
    assert!(store.seek(5, Some(seeker((3, 20))), 0));
    assert!(!store.seek(5, Some(seeker((3, 20))), 5), "nothing changed");
    assert_eq!(store.watched(), BTreeSet::from([2, 3]));
    assert!(store.candidates(10).is_empty(), "it is alone");
    store.hear(2, at((4, 1)));
    assert!(store.candidates(20).is_empty(), "store 2 has the larger epoch");
    store.hear(2, at((3, 19)));
    assert_eq!(store.candidates(30), [5]);
    assert!(store.candidates(40).is_empty(), "it campaigns now");
    assert_eq!(store.candidates(130), [5]);
    assert!(store.seek(5, None, 140));
    assert!(store.candidates(500).is_empty() && store.positions().is_empty() && store.watched().is_empty());
}

#[test]
fn each_has_its_turn_while_no_leader_is_found() {
    let mut store = coordinator(1);
    store.seek(5, Some(seeker((3, 20))), 0);
    store.hear(2, at((4, 1)));
    store.hear(3, at((3, 21)));
    let stands: Vec<u64> =
        (0..70).map(|step| step * RETRY).filter(|&now| !store.candidates(now).is_empty()).collect();
    let (first, second) = (2 * TURN, 5 * TURN);
    let expected: Vec<u64> =
        [first, second].into_iter().flat_map(|turn| (0..10).map(move |step| turn + step * RETRY)).collect();
    assert_eq!(stands, expected);
}

#[test]
fn who_has_joined_begins_after_a_turn_though_it_is_no_majority() {
    let mut store = coordinator(1);
    store.seek(5, Some(seeker((3, 20))), 50);
    assert!(store.candidates(49 + TURN).is_empty());
    assert_eq!(store.candidates(50 + TURN), [5]);
}

#[test]
fn an_outgoing_voter_stands_and_a_learner_does_not() {
    for (role, stands) in [(PeerRole::Outgoing, true), (PeerRole::Learner, false)] {
        let mut seeker = seeker((3, 20));
        seeker.descriptor.peers[0].role = role;
        let mut store = coordinator(1);
        store.seek(5, Some(seeker), 0);
        for other in [2, 3] {
            store.hear(other, at((3, 19)));
        }
        assert_eq!(!store.candidates(10).is_empty(), stands, "{role:?}");
    }
}

#[test]
fn without_a_session_nobody_stands_and_nothing_about_others_is_known() {
    let mut store = coordinator(1);
    store.seek(5, Some(seeker((3, 20))), 0);
    store.hear(2, at((3, 1)));
    assert_eq!(store.candidates(10), [5]);
    store.set_session(false);
    assert!(store.candidates(10 * TURN).is_empty());
    store.set_session(true);
    store.seek(5, None, 0);
    store.seek(5, Some(seeker((3, 20))), 11 * TURN);
    assert!(store.candidates(11 * TURN + 1).is_empty(), "store 2 must be heard again");
}

#[test]
fn peers_that_only_vote_make_a_majority_and_do_not_stand() {
    let mut store = coordinator(1);
    store.seek(5, Some(Seeker { may_stand: false, ..seeker((9, 9)) }), 0);
    store.hear(2, at((3, 1)));
    assert!((0..100).all(|step| store.candidates(step * RETRY).is_empty()));
    let mut store = coordinator(2);
    store.seek(5, Some(seeker((3, 1))), 0);
    let voter = Position { last: (9, 9), may_stand: false };
    store.hear(1, Some(Positions::from([(5, voter)])));
    assert_eq!(store.candidates(0), [5]);
}

#[test]
fn a_joint_configuration_needs_a_majority_of_both_sets() {
    let mut descriptor = RegionDescriptor::founded(5, None, &[1, 2, 3]);
    descriptor.peers[2].role = PeerRole::Outgoing;
    descriptor.peers.push(Peer { store: 4, id: 4, role: PeerRole::Incoming });
    let mut store = coordinator(1);
    store.seek(5, Some(Seeker { descriptor, ..seeker((3, 20)) }), 0);
    store.hear(4, at((3, 1)));
    assert!(store.candidates(10).is_empty());
    store.hear(3, at((3, 2)));
    assert_eq!(store.candidates(20), [5], "store 3 has a vote, though it leaves the region");
}

#[test]
fn equal_logs_spread_over_the_stores() {
    let mut stood = BTreeMap::new();
    for region in 0..300 {
        let descriptor = RegionDescriptor::founded(region, None, &[1, 2, 3]);
        let position = Position { last: (3, 9), may_stand: true };
        for this in [1, 2, 3] {
            let mut store = coordinator(this);
            store.seek(
                region,
                Some(Seeker { last: (3, 9), may_stand: true, descriptor: descriptor.clone() }),
                0,
            );
            for other in [1, 2, 3] {
                store.hear(other, Some(Positions::from([(region, position)])));
            }
            *stood.entry(this).or_insert(0) += store.candidates(0).len();
        }
    }
    assert_eq!(stood.values().sum::<usize>(), 300, "one for each region");
    assert!(stood.values().all(|&count| count > 70), "{stood:?}");
}
