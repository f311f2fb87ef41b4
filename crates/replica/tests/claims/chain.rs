//! Claims about chained replication: one follower passes entries on to the next.

use super::*;
use steelyard_replica::Replication;

const VALUE: &[u8] = &[7; 200];

fn chained(stores: u64) -> Trio {
    let mut trio = Trio::led_of(stores);
    set(&mut trio, Replication::Chained);
    trio
}

fn set(trio: &mut Trio, replication: Replication) {
    (0..trio.nodes.len()).for_each(|store| trio.step(store, Input::SetReplication(replication)));
}

fn has_entries(message: &Message) -> bool {
    kind(message) == MessageType::MsgAppend && !message.entries.is_empty()
}

/// Returns the links over which messages with entries are under way.
fn links(trio: &Trio) -> Vec<(StoreId, StoreId)> {
    trio.wire
        .iter()
        .filter(|(_, _, message)| has_entries(message))
        .map(|(from, to, _)| (*from, *to))
        .collect()
}

fn last(trio: &Trio, store: usize) -> u64 {
    trio.last_and_term(store).0
}

/// Ticks all stores at once and delivers the messages that pass, until the condition holds.
fn run_until(
    trio: &mut Trio,
    ticks: u32,
    passes: impl Fn(StoreId, StoreId, &Message) -> bool,
    is_over: impl Fn(&Trio) -> bool,
) -> u32 {
    for tick in 0..ticks {
        if is_over(trio) {
            return tick;
        }
        trio.now += TICK;
        (0..trio.nodes.len()).for_each(|store| trio.step(store, Input::Tick));
        settle(trio, &passes);
    }
    panic!("not within {ticks} ticks");
}

fn settle(trio: &mut Trio, passes: &impl Fn(StoreId, StoreId, &Message) -> bool) {
    while !trio.wire.is_empty() {
        let (from, to, message) = trio.wire.remove(0);
        if passes(from, to, &message) {
            trio.deliver(from, to, message);
        }
    }
}

/// Proposes a value whose append store 1 has, but has not passed on yet.
fn caught_between(trio: &mut Trio) -> (StoreId, StoreId, Message) {
    trio.propose(0, 1, VALUE);
    trio.settle_only(|to, _| to == 1);
    trio.wire.clear();
    trio.propose(0, 2, VALUE);
    let (from, to, append) = trio.wire.remove(0);
    trio.deliver(from, to, append);
    let at = trio.wire.iter().position(|(_, to, message)| *to == 2 && has_entries(message));
    trio.wire.remove(at.expect("store 1 passes the append on"))
}

#[test]
fn entries_leave_the_leader_once_and_every_follower_answers_it() {
    let mut trio = chained(5);
    let before = last(&trio, 0);
    for token in 1..4 {
        trio.propose(0, token, VALUE);
        let mut seen = links(&trio);
        assert_eq!(seen, [(0, 1)], "one message with entries leaves the leader");
        while !trio.wire.is_empty() {
            let (from, to, message) = trio.wire.remove(0);
            let is_answer = kind(&message) == MessageType::MsgAppendResponse;
            assert!(!is_answer || to == 0, "the followers answer the leader");
            let known = links(&trio).len();
            trio.deliver(from, to, message);
            seen.extend(&links(&trio)[known..]);
        }
        assert_eq!(seen, [(0, 1), (1, 2), (2, 3), (3, 4)]);
    }
    let status = trio.nodes[0].worker.status(REGION, trio.now).unwrap();
    assert!(status.peers.values().all(|peer| peer.matched == before + 3));
    assert!((0..5).all(|store| last(&trio, store) == before + 3));
    let counts: Vec<_> = trio.nodes.iter().map(|node| node.worker.relay_counts()).collect();
    let bytes = VALUE.len() as u64;
    // Appends that only tell of commits are passed on, too.
    assert!(counts[0].chained >= 9 && counts[0].chained_bytes == 9 * bytes, "{:?}", counts[0]);
    assert!(counts[1..4].iter().all(|count| count.relayed >= 3 && count.relayed_bytes == 3 * bytes));
    assert_eq!((counts[4].relayed, counts[0].fallbacks), (0, 0));
}

#[test]
fn an_append_is_passed_on_before_it_is_written() {
    let mut trio = chained(3);
    trio.nodes[1].holds_writes = true;
    let before = last(&trio, 0);
    trio.propose(0, 1, VALUE);
    trio.settle();
    assert!(!trio.nodes[1].writing.is_empty());
    assert_eq!(last(&trio, 2), before + 1);
    let status = trio.nodes[0].worker.status(REGION, trio.now).unwrap();
    assert_eq!(status.peers[&1].matched, before);
    assert_eq!(status.peers[&2].matched, before + 1, "the follower behind acknowledges");
    let is_applied =
        |action: &Action| matches!(action, Action::Apply { entries, .. } if entries[0].token == Some(1));
    assert!(trio.saw(0, is_applied), "with its acknowledgement the entry is committed");
}

#[test]
fn heartbeats_and_votes_take_no_detour() {
    let mut trio = chained(3);
    trio.propose(0, 1, VALUE);
    trio.settle();
    for _ in 0..40 {
        trio.tick(0, 1);
        assert!(trio.wire.iter().all(|(from, _, message)| *from == 0 && message.from == 1));
        let heartbeats = trio.wire.iter().filter(|(_, _, m)| kind(m) == MessageType::MsgHeartbeat);
        let to: Vec<StoreId> = heartbeats.map(|(_, to, _)| *to).collect();
        assert!(to.is_empty() || to.contains(&1) && to.contains(&2));
        trio.settle_only(|_, message| !has_entries(message));
    }
}

#[test]
fn a_dead_first_follower_does_not_keep_entries_from_the_next() {
    let mut trio = chained(3);
    trio.propose(0, 1, VALUE);
    trio.settle();
    let lives = |from, to, _: &Message| from != 1 && to != 1;
    trio.propose(0, 2, VALUE);
    assert_eq!(links(&trio), [(0, 1)]);
    settle(&mut trio, &lives);
    let end = last(&trio, 0);
    assert_eq!(last(&trio, 2), end - 1, "the append was lost with store 1");
    let config = config(0, 5);
    let ticks = run_until(&mut trio, 40, lives, |trio| last(trio, 2) == end);
    assert!(ticks > 2 * config.heartbeat_ticks && ticks <= 4 * config.heartbeat_ticks, "{ticks} ticks");
    assert_eq!(trio.nodes[0].worker.relay_counts().fallbacks, 1);
    // Now store 2 is sent to directly.
    trio.propose(0, 3, VALUE);
    assert!(links(&trio).contains(&(0, 2)));
    settle(&mut trio, &lives);
    assert_eq!(last(&trio, 2), end + 1);
    // Once store 1 is back and the pause is over, there is a chain again.
    run_until(&mut trio, 60, |_, _, _| true, |trio| last(trio, 1) == end + 1);
    trio.tick(0, config.election_ticks);
    trio.settle();
    trio.propose(0, 4, VALUE);
    assert_eq!(links(&trio).len(), 1);
    trio.settle();
    assert!((0..3).all(|store| last(&trio, store) == end + 2));
}

#[test]
fn a_connection_that_breaks_ends_the_chain_at_once() {
    let mut trio = chained(3);
    trio.propose(0, 1, VALUE);
    trio.settle();
    trio.propose(0, 2, VALUE);
    trio.wire.clear();
    trio.step(0, Input::StoreUnreachable { store: 1 });
    trio.propose(0, 3, VALUE);
    let end = last(&trio, 0);
    trio.settle_only(|to, _| to != 1);
    assert_eq!(last(&trio, 2), end, "store 2 got both entries without a tick");
}

#[test]
fn a_link_between_followers_that_loses_everything_costs_a_pause_each_time() {
    let mut trio = chained(3);
    let passes = |from, to, _: &Message| (from, to) != (1, 2) && (from, to) != (2, 1);
    let mut direct = 0;
    for token in 0..600 {
        trio.propose(0, token, VALUE);
        direct += usize::from(links(&trio).len() == 2);
        settle(&mut trio, &passes);
        trio.now += TICK;
        (0..3).for_each(|store| trio.step(store, Input::Tick));
        settle(&mut trio, &passes);
    }
    let end = last(&trio, 0);
    assert!(last(&trio, 2) >= end - 10, "the follower is a few entries behind: {}", end - last(&trio, 2));
    let fallbacks = trio.nodes[0].worker.relay_counts().fallbacks;
    assert!((3..=8).contains(&fallbacks) && direct > 500, "{fallbacks} fallbacks, {direct} sent directly");
}

#[test]
fn a_relayed_append_of_an_earlier_term_has_no_effect() {
    let mut trio = chained(3);
    let (from, to, late) = caught_between(&mut trio);
    assert_eq!((from, to, late.from, late.to), (1, 2, 1, 3));
    // Store 1 leads a later term.
    trio.wire.clear();
    let is_cut = |from, to, _: &Message| from != 0 && to != 0;
    run_until(&mut trio, 100, is_cut, |trio| (1..3).any(|store| trio.role(store) == Role::Leader));
    settle(&mut trio, &is_cut);
    let before = trio.last_and_term(2);
    trio.clear();
    trio.deliver(from, to, late);
    assert_eq!(trio.last_and_term(2), before);
    assert!(trio.nodes[2].seen.is_empty(), "it is not answered: {:?}", trio.nodes[2].seen);
}

#[test]
fn a_store_takes_and_passes_on_appends_of_a_leader_that_it_knows_only() {
    let mut trio = chained(4);
    trio.propose(0, 1, VALUE);
    let append = trio.wire.remove(0).2;
    assert!(!append.context.is_empty() && append.to == 2);
    trio.clear();
    let (end, term) = trio.last_and_term(1);
    // Another peer's name, another term, or a relayed append that does not come from a member.
    let of_another = Message { from: 4, ..append.clone() };
    let of_later = Message { term: term + 1, ..append.clone() };
    trio.deliver(3, 1, Message { context: relayed(&append), ..of_another });
    trio.deliver(3, 1, Message { context: relayed(&append), ..of_later });
    trio.deliver(9, 1, Message { context: relayed(&append), ..append.clone() });
    assert_eq!((trio.last_and_term(1), trio.wire.len()), ((end, term), 0));
    assert!(!trio.saw(1, |action| matches!(action, Action::Dropped { .. })), "it may be late");
    // A direct append needs its leader's store as the sender.
    trio.deliver(3, 1, append.clone());
    assert_eq!((trio.last_and_term(1), trio.wire.len()), ((end, term), 0));
    assert!(trio.saw(1, |action| matches!(action, Action::Dropped { reason: DropReason::Sender, .. })));
    trio.deliver(3, 1, Message { context: relayed(&append), ..append });
    assert_eq!((last(&trio, 1), links(&trio)), (end + 1, vec![(1, 2)]));
}

/// Returns the route of an append as a store that passes it on would write it.
fn relayed(append: &Message) -> Bytes {
    let mut context = append.context.to_vec();
    context[0] |= 2;
    context.into()
}

#[test]
fn a_context_that_is_no_route_is_dropped() {
    let mut trio = chained(3);
    trio.propose(0, 1, VALUE);
    let (from, to, append) = trio.wire.remove(0);
    let before = last(&trio, 1);
    for context in [&b"x"[..], &[1; 20], &[0], &[1; 400]] {
        trio.deliver(from, to, Message { context: Bytes::from_static(context), ..append.clone() });
        assert!(trio.saw(1, |action| matches!(action, Action::Dropped { reason: DropReason::Shape, .. })));
        trio.nodes[1].seen.clear();
    }
    assert_eq!(last(&trio, 1), before);
}

#[test]
fn a_learner_is_at_the_end_and_a_removed_peer_is_sent_nothing() {
    let mut trio = Trio::led_of(4);
    // Store 1 becomes a learner.
    let demote = RegionChange::Peers(vec![PeerChange::Demote(1)]);
    let epoch = trio.nodes[0].worker.status(REGION, trio.now).unwrap().descriptor.epoch;
    trio.step(0, Input::ChangeRegion { region: REGION, token: 1, expect: epoch, change: demote });
    trio.settle();
    run_until(
        &mut trio,
        20,
        |_, _, _| true,
        |trio| {
            let descriptor = trio.nodes[0].worker.status(REGION, trio.now).unwrap().descriptor;
            descriptor.peer_on(1).is_some_and(|peer| peer.role == PeerRole::Learner) && !descriptor.is_joint()
        },
    );
    set(&mut trio, Replication::Chained);
    trio.propose(0, 2, VALUE);
    trio.settle();
    trio.propose(0, 3, VALUE);
    let path = |trio: &mut Trio| {
        let mut seen = links(trio);
        while !trio.wire.is_empty() {
            let (from, to, message) = trio.wire.remove(0);
            let known = links(trio).len();
            trio.deliver(from, to, message);
            seen.extend(&links(trio)[known..]);
        }
        seen
    };
    assert_eq!(path(&mut trio), [(0, 2), (2, 3), (3, 1)]);
    let epoch = trio.nodes[0].worker.status(REGION, trio.now).unwrap().descriptor.epoch;
    let remove = RegionChange::Peers(vec![PeerChange::Remove(1)]);
    trio.step(0, Input::ChangeRegion { region: REGION, token: 4, expect: epoch, change: remove });
    trio.settle();
    trio.propose(0, 5, VALUE);
    assert_eq!(path(&mut trio), [(0, 2), (2, 3)]);
}

#[test]
fn the_setting_takes_effect_with_the_next_append() {
    let mut trio = chained(3);
    trio.propose(0, 1, VALUE);
    assert_eq!(links(&trio), [(0, 1)]);
    set(&mut trio, Replication::Direct);
    trio.propose(0, 2, VALUE);
    assert_eq!(links(&trio), [(0, 1), (0, 1), (0, 2)]);
    trio.settle();
    run_until(&mut trio, 20, |_, _, _| true, |trio| (1..3).all(|store| last(trio, store) == last(trio, 0)));
}
