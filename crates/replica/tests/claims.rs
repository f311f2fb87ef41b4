//! One test per guarantee. Each runs a cluster whose messages, writes and clock the test controls.

mod alone;

use std::collections::BTreeMap;

use alone::disk::Disk;
use alone::{config, descriptor, MILLISECOND};
use bytes::Bytes;
use steelyard_replica::eraftpb::{Entry, EntryType, Message, MessageType};
use steelyard_replica::{
    Action, Asked, DropReason, Fatal, HardState, Input, LogBatch, LogError, LogStore, PeerSeed,
    RecoveryRefusal, Refusal, RegionWrite, Role, Unclean, Worker,
};
use types::{BootNanos, PeerChange, PeerRole, RegionChange, RegionId, StoreId};

const REGION: u64 = 1;
const TICK: u64 = 100 * MILLISECOND;

struct Node {
    worker: Worker<Disk>,
    disk: Disk,
    /// Batches that were handed out and are not written, while `holds_writes`.
    writing: Vec<LogBatch>,
    holds_writes: bool,
    seen: Vec<Action>,
}

/// A cluster that applies immediately. It also writes immediately unless told to hold writes.
struct Trio {
    now: BootNanos,
    nodes: Vec<Node>,
    wire: Vec<(StoreId, StoreId, Message)>,
}

fn seed(stores: u64) -> Vec<PeerSeed> {
    vec![PeerSeed {
        descriptor: descriptor(REGION, stores),
        applied: Some((5, 5)),
        parent: None,
        unclean: Unclean::No,
    }]
}

fn kind(message: &Message) -> MessageType {
    message.get_msg_type()
}

impl Trio {
    fn new(stores: u64) -> Trio {
        Trio::with_draws(stores, 5)
    }

    /// Returns a cluster whose random timeouts are drawn from this number.
    fn with_draws(stores: u64, draws: u64) -> Trio {
        let now = 1_000_000 * MILLISECOND;
        let node = |store| {
            let disk = Disk::default();
            disk.found(&descriptor(REGION, stores));
            let worker =
                Worker::new(config(store, draws), disk.clone(), seed(stores), BTreeMap::new(), now).unwrap();
            Node { worker, disk, writing: Vec::new(), holds_writes: false, seen: Vec::new() }
        };
        Trio { now, nodes: (0..stores).map(node).collect(), wire: Vec::new() }
    }

    /// Returns a cluster of three that store 0 leads, with every message delivered.
    fn led() -> Trio {
        Trio::led_of(3)
    }

    fn led_of(stores: u64) -> Trio {
        Trio::new(stores).with_leader()
    }

    fn with_leader(mut self) -> Trio {
        while self.role(0) != Role::Leader {
            self.now += TICK;
            self.step(0, Input::Tick);
            self.settle();
        }
        self.clear();
        self
    }

    fn role(&self, store: usize) -> Role {
        self.nodes[store].worker.status(REGION, self.now).unwrap().role
    }

    fn step(&mut self, store: usize, input: Input) {
        self.nodes[store].worker.step(input, self.now);
        self.turn(store);
    }

    fn turn(&mut self, store: usize) {
        loop {
            let node = &mut self.nodes[store];
            for action in node.worker.turn(self.now).expect("no store fails") {
                node.seen.push(action.clone());
                match action {
                    Action::Send { to, message, .. } => self.wire.push((store as u64, to, message)),
                    Action::Persist(batch) if node.holds_writes => node.writing.push(batch),
                    Action::Persist(batch) => {
                        node.disk.write(&batch);
                        node.worker.step(Input::Persisted { batch: batch.number }, self.now);
                    }
                    Action::Apply { region, entries } => {
                        let index = entries.last().unwrap().index;
                        node.worker.step(Input::Applied { region, index }, self.now);
                    }
                    Action::ReadLog { region, number, low, high, max_bytes } => {
                        let entries = node.disk.entries(region, low, high, max_bytes);
                        node.worker.step(Input::LogRead { region, number, entries }, self.now);
                    }
                    _ => {}
                }
            }
            if !node.worker.has_work() {
                return;
            }
        }
    }

    fn finish_write(&mut self, store: usize) {
        let batch = self.nodes[store].writing.remove(0);
        self.nodes[store].disk.write(&batch);
        self.step(store, Input::Persisted { batch: batch.number });
    }

    fn deliver(&mut self, from: StoreId, to: StoreId, message: Message) {
        self.step(to as usize, Input::Message { from, region: REGION, message });
    }

    fn settle(&mut self) {
        self.settle_only(|_, _| true);
    }

    /// Delivers the messages that pass, and loses the others.
    fn settle_only(&mut self, passes: impl Fn(StoreId, &Message) -> bool) {
        while !self.wire.is_empty() {
            let (from, to, message) = self.wire.remove(0);
            if passes(to, &message) {
                self.deliver(from, to, message);
            }
        }
    }

    fn clear(&mut self) {
        self.wire.clear();
        self.nodes.iter_mut().for_each(|node| node.seen.clear());
    }

    fn tick(&mut self, store: usize, times: u32) {
        for _ in 0..times {
            self.now += TICK;
            self.step(store, Input::Tick);
        }
    }

    fn propose(&mut self, store: usize, token: u64, payload: &'static [u8]) {
        let payload = Bytes::from_static(payload);
        self.step(store, Input::Propose { region: REGION, token, payload });
    }

    fn saw(&self, store: usize, test: impl Fn(&Action) -> bool) -> bool {
        self.nodes[store].seen.iter().any(test)
    }

    fn refusal(&self, store: usize, token: u64) -> Option<Refusal> {
        self.nodes[store].seen.iter().find_map(|action| match action {
            Action::Refused { token: refused, reason, .. } if *refused == token => Some(*reason),
            _ => None,
        })
    }

    fn sent(&self, wanted: MessageType) -> usize {
        self.wire.iter().filter(|(_, _, message)| kind(message) == wanted).count()
    }

    fn last_and_term(&self, store: usize) -> (u64, u64) {
        let status = self.nodes[store].worker.status(REGION, self.now).unwrap();
        (status.last, status.term)
    }
}

fn message(from: u64, to: u64, term: u64, wanted: MessageType) -> Message {
    let mut message = Message { from: from + 1, to: to + 1, term, ..Message::default() };
    message.set_msg_type(wanted);
    message
}

fn vote_request(trio: &Trio, from: u64, to: u64, term: u64, wanted: MessageType) -> Message {
    let (index, log_term) = trio.last_and_term(to as usize);
    Message { index: index + 10, log_term, ..message(from, to, term, wanted) }
}

#[test]
fn a_leader_sends_entries_before_and_beside_its_own_write() {
    let mut trio = Trio::led();
    trio.nodes[0].holds_writes = true;
    trio.propose(0, 1, b"one");
    let seen = &trio.nodes[0].seen;
    let sent = seen.iter().position(|action| matches!(action, Action::Send { .. })).unwrap();
    let written = seen.iter().position(|action| matches!(action, Action::Persist(_))).unwrap();
    assert!(sent < written && trio.sent(MessageType::MsgAppend) == 2);
    // No second batch starts while one is in flight. The next entry is sent nevertheless.
    trio.clear();
    assert!(trio.nodes[0].worker.persist_in_flight());
    trio.propose(0, 2, b"two");
    assert_eq!(trio.sent(MessageType::MsgAppend), 2);
    assert!(!trio.saw(0, |action| matches!(action, Action::Persist(_))));
    trio.finish_write(0);
    let is_second =
        |action: &Action| matches!(action, Action::Persist(batch) if batch.writes[0].entries.len() == 1);
    assert!(trio.saw(0, is_second));
}

#[test]
fn who_answers_is_active_at_every_moment_and_who_falls_silent_is_not_for_long() {
    let mut trio = Trio::led();
    let active = |trio: &Trio| -> Vec<bool> {
        let status = trio.nodes[0].worker.status(REGION, trio.now).unwrap();
        assert_eq!(status.role, Role::Leader);
        status.peers.values().map(|peer| peer.is_active).collect()
    };
    // A proposal every tick keeps the region awake. The activity is read between a tick and its
    // responses.
    let tick = |trio: &mut Trio, hears: fn(StoreId) -> bool| {
        trio.propose(0, 1, b"one");
        trio.settle_only(|to, _| hears(to));
        trio.tick(0, 1);
        let seen = active(trio);
        trio.settle_only(|to, _| hears(to));
        seen
    };
    let timeout = config(0, 5).election_ticks;
    for _ in 0..5 * timeout {
        assert_eq!(tick(&mut trio, |_| true), [true; 3]);
    }
    let not_all = |to| to != 2;
    let ticks = (1..=2 * timeout).find(|_| tick(&mut trio, not_all) == [true, true, false]);
    assert!(ticks.expect("store 2 falls silent") >= timeout);
    for _ in 0..3 * timeout {
        assert_eq!(tick(&mut trio, not_all), [true, true, false]);
    }
}

#[test]
fn a_follower_acknowledges_only_what_is_written() {
    let mut trio = Trio::led();
    trio.nodes[1].holds_writes = true;
    trio.propose(0, 1, b"one");
    let appends: Vec<_> = trio.wire.drain(..).filter(|(_, to, _)| *to == 1).collect();
    for (from, to, append) in appends.clone() {
        trio.deliver(from, to, append);
    }
    // The repeated appends add nothing to write, but their responses must wait for the same write.
    for (from, to, append) in appends {
        trio.deliver(from, to, append);
    }
    assert_eq!(trio.sent(MessageType::MsgAppendResponse), 0);
    trio.finish_write(1);
    assert_eq!(trio.sent(MessageType::MsgAppendResponse), 2);
}

#[test]
fn followers_that_write_for_long_answer_heartbeats_and_keep_their_leader() {
    let mut trio = Trio::led();
    (trio.nodes[1].holds_writes, trio.nodes[2].holds_writes) = (true, true);
    trio.propose(0, 1, b"large");
    trio.settle();
    assert!(!trio.nodes[1].writing.is_empty() && !trio.nodes[2].writing.is_empty());
    let term = trio.last_and_term(0).1;
    for _ in 0..5 * config(0, 5).election_ticks {
        trio.tick(0, 1);
        trio.settle();
    }
    assert_eq!((trio.role(0), trio.last_and_term(0).1), (Role::Leader, term));
    trio.finish_write(1);
    trio.settle();
    assert!(trio.saw(0, |action| matches!(action, Action::Apply { .. })));
}

#[test]
fn the_answer_to_a_later_terms_heartbeat_waits_until_the_term_is_synced() {
    let mut trio = Trio::led();
    trio.nodes[1].holds_writes = true;
    let term = trio.last_and_term(0).1 + 1;
    trio.deliver(2, 1, Message { commit: 5, ..message(2, 1, term, MessageType::MsgHeartbeat) });
    assert_eq!(trio.sent(MessageType::MsgHeartbeatResponse), 0);
    trio.finish_write(1);
    assert_eq!(trio.sent(MessageType::MsgHeartbeatResponse), 1);
}

#[test]
fn a_leader_whose_log_hangs_hands_over_without_it_and_takes_no_lead() {
    let mut trio = Trio::led();
    trio.nodes[0].holds_writes = true;
    trio.propose(0, 1, b"one");
    trio.settle();
    trio.step(0, Input::DeviceHangs { hangs: true });
    trio.step(0, Input::TransferLeader { region: REGION, to: 1 });
    trio.settle();
    assert_eq!((trio.role(0), trio.role(1)), (Role::Follower, Role::Leader));
    // Its own stickiness period would allow it now.
    trio.nodes[0].holds_writes = false;
    while !trio.nodes[0].writing.is_empty() {
        trio.finish_write(0);
    }
    trio.settle();
    trio.step(1, Input::TransferLeader { region: REGION, to: 0 });
    trio.settle();
    assert_eq!(trio.role(0), Role::Follower, "it took over leadership");
    trio.tick(0, 40);
    assert_eq!(trio.role(0), Role::Follower, "it campaigned");
    trio.wire.clear();
    trio.step(0, Input::DeviceHangs { hangs: false });
    // The transfer that was refused may still be open at the leader.
    for _ in 0..100 {
        trio.now += TICK;
        (0..3).for_each(|store| trio.step(store, Input::Tick));
        trio.settle();
        if let Some(leader) = (1..3).find(|store| trio.role(*store) == Role::Leader) {
            trio.step(leader, Input::TransferLeader { region: REGION, to: 0 });
            trio.settle();
        }
    }
    assert_eq!(trio.role(0), Role::Leader, "it takes over leadership again");
}

#[test]
fn a_leader_that_steps_down_has_no_lease_and_sends_nothing_and_the_others_elect() {
    let mut trio = Trio::led();
    trio.step(0, Input::WantLease { region: REGION });
    trio.settle();
    assert!(lease_of(&trio, 0).is_some());
    trio.step(0, Input::DeviceHangs { hangs: true });
    trio.step(0, Input::StepDown { region: REGION });
    assert!(trio.saw(0, |action| matches!(action, Action::Lease { until: None, .. })));
    assert_eq!((trio.role(0), lease_of(&trio, 0)), (Role::Follower, None));
    trio.clear();
    trio.tick(0, 5);
    assert!(trio.wire.is_empty(), "{:?}", trio.wire);
    while trio.role(1) != Role::Leader && trio.role(2) != Role::Leader {
        trio.now += TICK;
        (1..3).for_each(|store| trio.step(store, Input::Tick));
        trio.settle();
    }
    let mut alone = Trio::new(1);
    alone.tick(0, 1);
    alone.step(0, Input::StepDown { region: REGION });
    assert_eq!(alone.role(0), Role::Leader, "no other store could lead");
}

#[test]
fn a_vote_leaves_only_after_it_is_synced() {
    let mut trio = Trio::new(3);
    trio.nodes[1].holds_writes = true;
    let request = vote_request(&trio, 0, 1, 6, MessageType::MsgRequestVote);
    trio.deliver(0, 1, request);
    assert!(trio.wire.is_empty());
    let batch = &trio.nodes[1].writing[0];
    assert!(batch.must_sync);
    assert_eq!(batch.writes[0].hard_state, Some(HardState { term: 6, vote: Some(1), commit: 5 }));
    trio.finish_write(1);
    assert_eq!(trio.sent(MessageType::MsgRequestVoteResponse), 1);
}

#[test]
fn an_idle_cluster_writes_nothing_and_a_commit_index_alone_waits_for_a_batch() {
    let mut trio = Trio::led();
    trio.propose(0, 1, b"one");
    trio.settle();
    trio.clear();
    for _ in 0..30 {
        trio.tick(0, 1);
        trio.settle();
    }
    assert!(trio.saw(0, |action| matches!(action, Action::Send { .. })));
    assert!(!(0..3).any(|store| trio.saw(store, |action| matches!(action, Action::Persist(_)))));
    trio.propose(0, 2, b"two");
    let commit = |action: &Action| match action {
        Action::Persist(batch) => batch.writes[0].hard_state.map(|state| state.commit),
        _ => None,
    };
    assert_eq!(trio.nodes[0].seen.iter().find_map(commit), Some(7));
    // The batch has no term and no vote, so the fsync policy alone decides whether it is synced.
    assert!(trio.saw(0, |action| matches!(action, Action::Persist(batch) if !batch.must_sync)));
}

#[test]
fn a_restarted_store_holds_back_its_vote_even_from_a_transfer() {
    let mut trio = Trio::led();
    trio.propose(0, 1, b"one");
    trio.settle();
    let disk = trio.nodes[1].disk.clone();
    trio.nodes[1].worker = Worker::new(config(1, 5), disk, seed(3), BTreeMap::new(), trio.now).unwrap();
    trio.turn(1);
    trio.clear();
    let term = trio.last_and_term(1).1;
    let mut request = vote_request(&trio, 2, 1, term + 1, MessageType::MsgRequestVote);
    request.context = Bytes::from_static(b"CampaignTransfer");
    let hold = config(1, 5).stickiness_nanos();
    trio.now += hold - 1;
    trio.deliver(2, 1, request.clone());
    assert!(trio.wire.is_empty());
    trio.now += 1;
    trio.deliver(2, 1, request);
    assert_eq!(trio.sent(MessageType::MsgRequestVoteResponse), 1);
}

#[test]
fn a_follower_of_a_live_leader_grants_no_vote_though_it_was_told_of_a_later_term() {
    let mut trio = Trio::led();
    trio.tick(0, 2);
    trio.settle();
    let term = trio.last_and_term(1).1;
    // The consensus library forgets its leader on such a message, and would vote at once.
    trio.deliver(2, 1, message(2, 1, term + 1, MessageType::MsgAppendResponse));
    assert_eq!(trio.last_and_term(1).1, term + 1);
    trio.clear();
    let request = vote_request(&trio, 2, 1, term + 2, MessageType::MsgRequestVote);
    trio.deliver(2, 1, request.clone());
    assert!(trio.wire.is_empty());
    trio.now += config(1, 5).stickiness_nanos();
    trio.deliver(2, 1, request);
    assert_eq!(trio.sent(MessageType::MsgRequestVoteResponse), 1);
}

fn lease_of(trio: &Trio, store: usize) -> Option<BootNanos> {
    trio.nodes[store].worker.status(REGION, trio.now).unwrap().lease
}

#[test]
fn a_lease_counts_from_the_sending_of_its_round() {
    let mut trio = Trio::led();
    trio.step(0, Input::WantLease { region: REGION });
    let sent = trio.now;
    assert_eq!(lease_of(&trio, 0), None);
    trio.now += 300 * MILLISECOND;
    trio.settle();
    let until = sent + config(0, 5).lease_nanos;
    assert_eq!(lease_of(&trio, 0), Some(until));
    trio.now = until;
    assert_eq!(lease_of(&trio, 0), None);
}

#[test]
fn a_lease_is_renewed_while_it_is_wanted_and_only_then() {
    let mut trio = Trio::led();
    trio.step(0, Input::WantLease { region: REGION });
    trio.settle();
    for _ in 0..8 {
        trio.tick(0, 1);
        trio.settle();
        assert!(lease_of(&trio, 0).is_some());
    }
    for _ in 0..20 {
        trio.tick(0, 1);
        trio.settle();
    }
    assert_eq!(lease_of(&trio, 0), None);
}

#[test]
fn a_transfer_ends_the_lease_before_the_target_is_told() {
    let mut trio = Trio::led();
    trio.step(0, Input::WantLease { region: REGION });
    trio.settle();
    trio.clear();
    trio.step(0, Input::TransferLeader { region: REGION, to: 1 });
    let seen = &trio.nodes[0].seen;
    let ended = seen.iter().position(|action| matches!(action, Action::Lease { until: None, .. })).unwrap();
    let is_word = |action: &Action| matches!(action, Action::Send { message, .. } if kind(message) == MessageType::MsgTimeoutNow);
    assert!(ended < seen.iter().position(is_word).unwrap());
    trio.propose(0, 7, b"late");
    assert_eq!(trio.refusal(0, 7), Some(Refusal::Transferring));
    trio.settle();
    assert_eq!(trio.role(1), Role::Leader);
    assert!(trio.saw(0, |action| matches!(action, Action::TransferDone { to: 1, .. })));
}

#[test]
fn after_an_aborted_transfer_no_lease_begins_until_the_unread_word_is_void() {
    let mut trio = Trio::led();
    trio.step(0, Input::TransferLeader { region: REGION, to: 1 });
    let (_, _, word) =
        trio.wire.iter().find(|(_, _, m)| kind(m) == MessageType::MsgTimeoutNow).cloned().unwrap();
    trio.wire.clear();
    // Store 1 is stopped. Store 2's responses keep the leader in office.
    let mut unread = Vec::new();
    let mut run = |trio: &mut Trio, ticks: u32| {
        for _ in 0..ticks {
            trio.step(0, Input::WantLease { region: REGION });
            trio.tick(0, 1);
            while let Some(at) = trio.wire.iter().position(|(_, to, _)| *to != 1) {
                let (from, to, message) = trio.wire.remove(at);
                trio.deliver(from, to, message);
            }
            unread.append(&mut trio.wire);
        }
    };
    run(&mut trio, 40);
    assert!(trio.saw(0, |action| matches!(action, Action::TransferAborted { to: 1, .. })));
    assert_eq!((trio.role(0), lease_of(&trio, 0)), (Role::Leader, None));
    // Store 1 continues and receives the entry that voids the message.
    trio.wire = unread;
    trio.settle();
    trio.step(0, Input::WantLease { region: REGION });
    trio.settle();
    trio.tick(0, 4);
    trio.settle();
    assert!(lease_of(&trio, 0).is_some());
    trio.deliver(0, 1, word);
    trio.settle();
    assert_eq!((trio.role(0), trio.role(1)), (Role::Leader, Role::Follower));
}

#[test]
fn a_replaced_proposal_is_lost_and_one_that_survives_its_leader_is_answered() {
    let mut trio = Trio::led();
    trio.propose(0, 1, b"survives");
    trio.settle();
    assert!(
        trio.saw(0, |action| matches!(action, Action::Apply { entries, .. } if entries[0].token == Some(1)))
    );
    trio.propose(0, 2, b"alone");
    trio.clear();
    trio.now += config(0, 5).stickiness_nanos();
    for _ in 0..100 {
        if trio.role(1) == Role::Leader {
            break;
        }
        trio.now += TICK;
        trio.step(2, Input::Tick);
        trio.wire.clear();
        trio.step(1, Input::Tick);
        trio.settle_only(|to, _| to != 0);
    }
    assert!(!trio.saw(0, |action| matches!(action, Action::Lost { .. })));
    for _ in 0..4 {
        trio.tick(1, 1);
        trio.settle();
    }
    assert!(trio.saw(0, |action| *action == Action::Lost { region: REGION, token: 2 }));
    assert_eq!(trio.last_and_term(0), trio.last_and_term(1));
}

#[test]
fn proposals_beyond_the_uncommitted_bytes_are_refused() {
    let mut trio = Trio::led();
    trio.propose(0, 1, &[1; 4000]);
    trio.propose(0, 2, &[2; 4000]);
    assert_eq!((trio.refusal(0, 1), trio.refusal(0, 2)), (None, Some(Refusal::Backpressure)));
    trio.settle();
    trio.propose(0, 3, &[3; 4000]);
    assert_eq!(trio.refusal(0, 3), None);
}

#[test]
fn the_only_store_of_a_region_leads_and_leases_at_once_after_a_restart_too() {
    let mut trio = Trio::new(1);
    trio.turn(0);
    trio.propose(0, 1, b"one");
    assert!(
        trio.saw(0, |action| matches!(action, Action::Apply { entries, .. } if entries[0].token == Some(1)))
    );
    let disk = trio.nodes[0].disk.clone();
    trio.nodes[0].worker = Worker::new(config(0, 5), disk, seed(1), BTreeMap::new(), trio.now).unwrap();
    trio.nodes[0].seen.clear();
    trio.turn(0);
    let replayed = trio.nodes[0].seen.iter().flat_map(|action| match action {
        Action::Apply { entries, .. } => entries.clone(),
        _ => Vec::new(),
    });
    assert!(replayed.filter(|entry| entry.payload == b"one"[..] && entry.token.is_none()).count() == 1);
    trio.step(0, Input::WantLease { region: REGION });
    assert_eq!(lease_of(&trio, 0), Some(trio.now + config(0, 5).lease_nanos));
}

/// The flushed descriptor names one voter. The log adds two more, and one of those may lead and
/// hold a lease.
#[test]
fn a_store_whose_log_holds_a_change_of_peers_holds_back_though_it_was_the_only_voter() {
    let alone = |kind: EntryType| {
        let mut trio = Trio::new(1);
        let mut entries: Vec<Entry> =
            (6..200).map(|index| Entry { index, term: 5, ..Entry::default() }).collect();
        entries[150].set_entry_type(kind);
        let write = RegionWrite { region: REGION, restart: None, entries, hard_state: None };
        let node = &mut trio.nodes[0];
        node.disk.write(&LogBatch { number: 1, writes: vec![write], must_sync: true });
        node.worker =
            Worker::new(config(0, 5), node.disk.clone(), seed(1), BTreeMap::new(), trio.now).unwrap();
        trio
    };
    let mut trio = alone(EntryType::EntryNormal);
    trio.tick(0, 1);
    assert_eq!(trio.role(0), Role::Leader, "it is the only voter");

    let mut trio = alone(EntryType::EntryConfChangeV2);
    let until = trio.now + config(0, 5).stickiness_nanos();
    while trio.now + TICK < until {
        trio.tick(0, 1);
        assert_eq!(trio.role(0), Role::Follower, "{} ns before the hold ends", until - trio.now);
    }
    assert_eq!(trio.sent(MessageType::MsgRequestVote), 0);
}

/// A candidate may ask a learner for its vote if the candidate knows of a promotion that the
/// learner does not know of. In that case the learner's responses count for leases. A peer of a
/// joint configuration may be the only voter of the new one.
#[test]
fn a_restarted_peer_of_a_region_with_one_voter_holds_back_unless_it_is_that_voter_and_no_other() {
    let granted = |roles: [PeerRole; 3]| {
        let mut trio = Trio::new(3);
        let mut seeds = seed(3);
        seeds[0].descriptor.peers.iter_mut().zip(roles).for_each(|(peer, role)| peer.role = role);
        let entries = vec![Entry { index: 6, term: 5, ..Entry::default() }];
        let write = RegionWrite { region: REGION, restart: None, entries, hard_state: None };
        let node = &mut trio.nodes[0];
        node.disk.write(&LogBatch { number: 1, writes: vec![write], must_sync: true });
        node.worker = Worker::new(config(0, 5), node.disk.clone(), seeds, BTreeMap::new(), trio.now).unwrap();
        trio.turn(0);
        let leads = trio.role(0) == Role::Leader;
        let mut request = vote_request(&trio, 2, 0, 7, MessageType::MsgRequestVote);
        (request.index, request.log_term) = (6, 5);
        trio.deliver(2, 0, request);
        leads || trio.sent(MessageType::MsgRequestVoteResponse) > 0
    };
    use PeerRole::{Learner, Outgoing, Voter};
    assert!(granted([Voter, Learner, Learner]), "it is the only voter, and leads");
    assert!(!granted([Learner, Voter, Learner]));
    assert!(!granted([Voter, Outgoing, Outgoing]));
}

#[test]
fn a_log_that_lost_its_tail_or_its_head_stops_the_store() {
    let mut trio = Trio::led();
    trio.propose(0, 1, b"one");
    trio.settle();
    let open = |trio: &Trio, applied| {
        let seed = PeerSeed {
            descriptor: descriptor(REGION, 3),
            applied: Some(applied),
            parent: None,
            unclean: Unclean::No,
        };
        let disk = trio.nodes[0].disk.clone();
        Worker::new(config(0, 5), disk, vec![seed], BTreeMap::new(), trio.now).err()
    };
    assert_eq!(open(&trio, (7, 6)), None);
    let lost = Fatal::LostTail { region: REGION, last: 7, needed: 8 };
    assert_eq!(open(&trio, (8, 6)), Some(lost));
    let diverged = Fatal::Diverged { region: REGION, index: 7, in_log: 6, in_engine: 7 };
    assert_eq!(open(&trio, (7, 7)), Some(diverged));
    trio.nodes[0].disk.truncate(REGION, 7, 6);
    assert_eq!(open(&trio, (7, 6)), None);
    assert_eq!(open(&trio, (6, 6)), Some(Fatal::Gap { region: REGION, first: 8, applied: 6 }));
}

#[test]
fn a_store_that_forgot_what_it_acknowledged_helps_nobody_to_lead_until_a_later_leader_has_filled_its_log() {
    let mut trio = Trio::led();
    let (last, term) = trio.last_and_term(1);
    // The heartbeat commits an entry that this store does not hold. This is the state after the
    // store acknowledged the entry and lost it.
    let heartbeat = Message { commit: last + 1, ..message(0, 1, term, MessageType::MsgHeartbeat) };
    trio.deliver(0, 1, heartbeat);
    let reason = DropReason::CommitBeyondLog;
    assert!(trio.saw(1, |action| *action == Action::Dropped { region: REGION, from: 0, reason }));
    trio.clear();
    let ask = |trio: &mut Trio, term| {
        let mut request = vote_request(trio, 2, 1, term, MessageType::MsgRequestVote);
        // The mark of a transfer lets the request pass the stickiness period.
        request.context = Bytes::from_static(b"CampaignTransfer");
        trio.deliver(2, 1, request);
        let is_granted = trio.sent(MessageType::MsgRequestVoteResponse) == 1;
        trio.clear();
        is_granted
    };
    assert!(!ask(&mut trio, term + 1), "the candidate may lack what is lost here");
    assert_eq!(trio.last_and_term(1), (last, term), "it does not even follow the candidate's term");
    trio.tick(1, 40);
    assert_eq!((trio.sent(MessageType::MsgRequestPreVote), trio.role(1)), (0, Role::Follower));
    // A later leader fills the log, and commits an entry of its own after the entries it found.
    let later = term + 2;
    let entry = Entry { index: last + 1, term: later, ..Entry::default() };
    let append = |commit, entries: Vec<Entry>| {
        let log_term = if entries.is_empty() { later } else { term };
        let index = last + u64::from(entries.is_empty());
        let append = message(2, 1, later, MessageType::MsgAppend);
        Message { index, log_term, commit, entries: entries.into(), ..append }
    };
    trio.deliver(2, 1, append(last, vec![entry]));
    assert!(!ask(&mut trio, later), "earlier leaders may have committed more than is committed here");
    trio.deliver(2, 1, append(last + 1, Vec::new()));
    assert!(ask(&mut trio, later + 1));
}

/// Restarts a store whose machine crashed while it acknowledged without a sync.
fn restart_unclean(trio: &mut Trio, store: usize) {
    let mut seeds = seed(trio.nodes.len() as u64);
    seeds[0].unclean = Unclean::Crash;
    let disk = trio.nodes[store].disk.clone();
    let config = config(store as u64, 5);
    trio.nodes[store].worker = Worker::new(config, disk, seeds, BTreeMap::new(), trio.now).unwrap();
    trio.turn(store);
    trio.clear();
}

/// Two stores have an entry that is committed. After a crash the one is unclean, and the other no
/// longer knows that the entry is committed. Returns whether store 0 then knows it, and its role.
/// Messages to store 2 pass if their kind is among `passing`.
fn commit_after_a_crash(passing: &[MessageType], hears_unclean: bool) -> (bool, Role) {
    let mut trio = Trio::led();
    trio.propose(0, 1, b"one");
    for _ in 0..8 {
        trio.settle_only(|to, _| to != 2);
        trio.tick(0, 1);
    }
    let last = trio.last_and_term(0).0;
    let commit =
        |trio: &Trio, store: usize| trio.nodes[store].worker.status(REGION, trio.now).unwrap().commit;
    assert_eq!((commit(&trio, 0), commit(&trio, 1)), (last, last));
    let record_commit = |trio: &Trio, store: usize, commit| {
        let disk = &trio.nodes[store].disk;
        let mut regions = disk.regions.borrow_mut();
        let log = regions.get_mut(&REGION).expect("the region's log");
        log.hard_state = log.hard_state.map(|state| HardState { commit, ..state });
    };
    record_commit(&trio, 0, last - 1);
    record_commit(&trio, 1, last);
    let disk = trio.nodes[0].disk.clone();
    trio.nodes[0].worker = Worker::new(config(0, 5), disk, seed(3), BTreeMap::new(), trio.now).unwrap();
    restart_unclean(&mut trio, 1);
    for _ in 0..60 {
        trio.tick(0, 1);
        // This store forgets its leader.
        trio.step(2, Input::Tick);
        let reaches = |to: StoreId, message: &Message| match to {
            0 => hears_unclean || message.from != 2,
            1 => true,
            _ => passing.contains(&kind(message)),
        };
        trio.settle_only(reaches);
    }
    (commit(&trio, 0) >= last, trio.role(0))
}

#[test]
fn a_peer_that_may_have_forgotten_still_tells_leaders_and_candidates_what_is_committed() {
    use MessageType::{MsgHeartbeat, MsgRequestPreVote, MsgRequestVote};
    let others = [MsgRequestPreVote, MsgRequestVote, MsgHeartbeat];
    assert_eq!(
        commit_after_a_crash(&others, true),
        (true, Role::Leader),
        "no further peer has acknowledged it"
    );
    assert_eq!(commit_after_a_crash(&others, false), (false, Role::Leader));
    let (is_known, role) = commit_after_a_crash(&[], true);
    assert!(is_known && role != Role::Leader, "it gives no vote");
    assert!(!commit_after_a_crash(&[], false).0);
}

#[test]
fn a_peer_that_may_have_forgotten_takes_no_part_until_an_operator_accepts_the_loss() {
    let mut trio = Trio::led();
    trio.propose(0, 1, b"one");
    trio.settle();
    restart_unclean(&mut trio, 1);
    assert_eq!(trio.nodes[1].worker.unclean(), BTreeMap::from([(REGION, 2)]));
    let (last, term) = trio.last_and_term(1);
    let ask = |trio: &mut Trio| {
        // This is longer than any stickiness period.
        trio.now += 100 * TICK;
        let mut request = vote_request(trio, 2, 1, term + 1, MessageType::MsgRequestVote);
        request.context = Bytes::from_static(b"CampaignTransfer");
        trio.deliver(2, 1, request);
        let grants = |(_, _, message): &&(StoreId, StoreId, Message)| {
            kind(message) == MessageType::MsgRequestVoteResponse && !message.reject
        };
        let is_granted = trio.wire.iter().filter(grants).count() == 1;
        trio.clear();
        is_granted
    };
    assert!(!ask(&mut trio));
    trio.tick(1, 60);
    assert_eq!(trio.sent(MessageType::MsgRequestPreVote), 0, "it does not campaign");
    trio.clear();
    trio.propose(0, 2, b"two");
    trio.settle();
    assert_eq!(trio.last_and_term(1), (last, term), "it acknowledges nothing");
    trio.step(1, Input::AcceptLoss { region: REGION });
    assert!(trio.nodes[1].worker.unclean().is_empty());
    trio.clear();
    assert!(ask(&mut trio));
}

#[test]
fn an_unclean_peer_goes_when_another_number_takes_its_place() {
    let mut trio = Trio::led();
    restart_unclean(&mut trio, 1);
    let mut descriptor = descriptor(REGION, 3);
    descriptor.peers[1].id = descriptor.next_peer;
    descriptor.next_peer += 1;
    descriptor.epoch.conf_version += 2;
    trio.step(1, Input::Announced { from: 0, descriptor });
    assert!(trio.saw(1, |action| *action == Action::Destroy { region: REGION, peer: 2 }));
    assert!(trio.nodes[1].worker.unclean().is_empty());
}

#[test]
fn the_only_voter_of_a_region_serves_whatever_it_has_forgotten() {
    let mut trio = Trio::new(1);
    restart_unclean(&mut trio, 0);
    assert!(trio.nodes[0].worker.unclean().is_empty());
    assert_eq!(trio.role(0), Role::Leader);
}

#[test]
fn a_change_of_the_region_is_synced_in_every_mode_and_a_command_need_not_be() {
    let mut trio = Trio::led();
    let synced = |trio: &Trio| -> Vec<bool> {
        let batch = |action: &Action| match action {
            Action::Persist(batch) => Some(batch.must_sync),
            _ => None,
        };
        trio.nodes[0].seen.iter().filter_map(batch).collect()
    };
    trio.propose(0, 1, b"one");
    trio.settle();
    assert!(!synced(&trio).contains(&true));
    trio.clear();
    let expect = trio.nodes[0].worker.status(REGION, trio.now).unwrap().descriptor.epoch;
    let change = RegionChange::Peers(vec![PeerChange::Demote(2)]);
    trio.step(0, Input::ChangeRegion { region: REGION, token: 2, expect, change });
    assert!(synced(&trio).contains(&true));
}

#[test]
fn an_absent_peer_holds_the_log_within_its_budget_and_its_return_releases_it() {
    let mut trio = Trio::led();
    for token in 0..20 {
        trio.propose(0, token, b"entry");
        trio.settle_only(|to, _| to != 2);
    }
    let applied = trio.nodes[0].worker.status(REGION, trio.now).unwrap().applied;
    trio.step(0, Input::Flushed { region: REGION, index: applied });
    let is_truncation = |action: &Action| matches!(action, Action::Truncate { .. });
    assert!(applied >= 20 && !trio.saw(0, is_truncation));
    for _ in 0..20 {
        trio.tick(0, 1);
        trio.settle();
    }
    assert!(trio.saw(0, is_truncation));
    let status = trio.nodes[0].worker.status(REGION, trio.now).unwrap();
    assert_eq!((status.first - 1, status.truncate_to), (applied - 6, applied));
}

#[test]
fn a_peer_that_lags_beyond_the_budget_gets_a_snapshot_and_what_follows_it() {
    let mut trio = Trio::led();
    for token in 0..60 {
        trio.propose(0, token, b"entry");
        trio.settle_only(|to, _| to != 2);
    }
    let status = trio.nodes[0].worker.status(REGION, trio.now).unwrap();
    trio.step(0, Input::Flushed { region: REGION, index: status.applied });
    assert!(status.truncate_to > 20 && trio.saw(0, |action| matches!(action, Action::Truncate { .. })));
    let wanted = |action: &Action| matches!(action, Action::MakeSnapshot { .. });
    for _ in 0..20 {
        trio.tick(0, 1);
        trio.settle();
    }
    assert_eq!(trio.nodes[0].seen.iter().filter(|action| wanted(action)).count(), 1);
    let (index, term, descriptor) = (status.applied, status.term, status.descriptor);
    trio.step(0, Input::SnapshotMade { region: REGION, index, term, descriptor });
    trio.propose(0, 100, b"later");
    let sent = |action: &Action| match action {
        Action::SendSnapshot { to: 2, message, .. } => Some(message.clone()),
        _ => None,
    };
    let mut offer = None;
    while offer.is_none() {
        trio.tick(0, 1);
        trio.settle();
        offer = trio.nodes[0].seen.iter().find_map(sent);
    }
    trio.deliver(0, 2, offer.unwrap());
    // The snapshot is recorded before it is applied, and no later entry is handed out until then.
    let first = trio.nodes[2].seen.iter().position(|action| matches!(action, Action::ApplySnapshot { .. }));
    let record = trio.nodes[2].seen.iter().position(|action| {
        matches!(action, Action::Persist(batch) if batch.must_sync && batch.writes[0].restart.is_some())
    });
    assert!(record.is_some() && record < first);
    trio.step(0, Input::SnapshotSent { region: REGION, to: 2, delivered: true });
    for _ in 0..5 {
        trio.tick(0, 1);
        trio.settle();
    }
    let later = |action: &Action| matches!(action, Action::Apply { entries, .. } if entries.iter().any(|entry| entry.payload == b"later"[..]));
    assert!(!trio.saw(2, later));
    trio.step(2, Input::SnapshotApplied { region: REGION });
    assert!(trio.saw(2, later));
}

#[test]
fn one_batch_holds_every_regions_writes_and_quiet_regions_cost_nothing() {
    let seeds = (1..=2000).map(|id| PeerSeed {
        descriptor: descriptor(id, 1),
        applied: Some((5, 5)),
        parent: None,
        unclean: Unclean::No,
    });
    let disk = Disk::default();
    (1..=2000).for_each(|id| disk.found(&descriptor(id, 1)));
    let mut worker = Worker::new(config(0, 5), disk.clone(), seeds.collect(), BTreeMap::new(), 0).unwrap();
    let batches = |actions: Vec<Action>| {
        let batches: Vec<LogBatch> = actions
            .into_iter()
            .filter_map(|action| if let Action::Persist(batch) = action { Some(batch) } else { None })
            .collect();
        assert!(batches.len() <= 1);
        batches.into_iter().next()
    };
    let first = batches(worker.turn(0).unwrap()).unwrap();
    assert_eq!(first.writes.len(), 2000);
    disk.write(&first);
    worker.step(Input::Persisted { batch: 1 }, 0);
    assert!(batches(worker.turn(0).unwrap()).is_none());
    for region in [7, 900] {
        worker.step(Input::Propose { region, token: region, payload: Bytes::from_static(b"x") }, 0);
    }
    let second = batches(worker.turn(0).unwrap()).unwrap();
    let active = |write: &&RegionWrite| !write.entries.is_empty();
    let regions: Vec<_> = second.writes.iter().filter(active).map(|write| write.region).collect();
    assert_eq!(regions, vec![7, 900]);
}

#[test]
fn what_an_input_causes_where_no_peer_is_needs_no_other_input_to_come_out() {
    let disk = Disk::default();
    let mut worker = Worker::new(config(0, 5), disk, Vec::new(), BTreeMap::new(), TICK).unwrap();
    assert!(!worker.has_work());
    worker.step(Input::ReadIndex { region: 99, token: 1, asked: Asked::All }, TICK);
    assert!(worker.has_work());
    let reason = Refusal::NotLeader { leader: None };
    assert_eq!(worker.turn(TICK).unwrap(), [Action::Refused { region: 99, token: 1, reason }]);
    assert!(!worker.has_work());
}
#[path = "claims/chain.rs"]
mod chain;
#[path = "claims/damage.rs"]
mod damage;

#[path = "claims/merged_away.rs"]
mod merged_away;
#[path = "claims/quarantine.rs"]
mod quarantine;
#[path = "claims/quorum_loss.rs"]
mod quorum_loss;
#[path = "claims/reads.rs"]
mod reads;
#[path = "claims/search.rs"]
mod search;
