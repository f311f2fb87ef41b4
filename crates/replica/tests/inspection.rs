//! Incorrect messages from other stores: each is dropped with a reason, and nothing panics.
//!
//! The test runs one worker on store 1 and plays the other stores. Each peer's number is its
//! store's plus 1.

mod alone;

use std::collections::BTreeMap;

use alone::disk::Disk;
use alone::{config, descriptor, MILLISECOND};
use bytes::Bytes;
use proptest::prelude::*;
use protobuf::ProtobufEnum;
use steelyard_replica::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};
use steelyard_replica::{Action, DropReason, Input, LogBatch, LogStore, PeerSeed, Role, Unclean, Worker};
use types::{BootNanos, PeerRole, RegionDescriptor, SlotRange, StoreId};

const REGION: u64 = 1;
const TICK: u64 = 100 * MILLISECOND;
/// The last log index and the term of a follower that has received only messages from a leader.
const LAST: u64 = 5;
const TERM: u64 = 6;

struct Victim {
    now: BootNanos,
    worker: Worker<Disk>,
    disk: Disk,
    /// Batches that were handed out and are not written, while `holds_writes`.
    writing: Vec<LogBatch>,
    holds_writes: bool,
    sent: Vec<Message>,
    dropped: Vec<DropReason>,
}

impl Victim {
    fn of(region: RegionDescriptor) -> Victim {
        let disk = Disk::default();
        disk.found(&region);
        let now = 1_000_000 * MILLISECOND;
        let seed = PeerSeed { descriptor: region, applied: Some((5, 5)), parent: None, unclean: Unclean::No };
        let worker = Worker::new(config(1, 5), disk.clone(), vec![seed], BTreeMap::new(), now).unwrap();
        let (sent, dropped) = (Vec::new(), Vec::new());
        let mut victim =
            Victim { now, worker, disk, writing: Vec::new(), holds_writes: false, sent, dropped };
        victim.turn();
        victim
    }

    /// Returns a follower, one of three peers. It has received a message from a leader on store 0.
    fn follower() -> Victim {
        let mut victim = Victim::of(descriptor(REGION, 3));
        victim.hear(0, message(TERM, MessageType::MsgHeartbeat));
        assert_eq!((victim.role(), victim.last()), (Role::Follower, LAST));
        victim
    }

    /// Returns one of three peers, elected leader by store 0's vote.
    fn leader() -> Victim {
        let mut victim = Victim::of(descriptor(REGION, 3));
        while victim.role() != Role::Leader {
            victim.tick();
            for request in std::mem::take(&mut victim.sent).into_iter().filter(|sent| sent.to == 1) {
                let kind = match request.get_msg_type() {
                    MessageType::MsgRequestPreVote => MessageType::MsgRequestPreVoteResponse,
                    MessageType::MsgRequestVote => MessageType::MsgRequestVoteResponse,
                    _ => continue,
                };
                victim.hear(0, message(request.term, kind));
            }
        }
        victim.sent.clear();
        victim
    }

    fn status(&self) -> steelyard_replica::RegionStatus {
        self.worker.status(REGION, self.now).expect("the region is here")
    }

    fn role(&self) -> Role {
        self.status().role
    }

    fn last(&self) -> u64 {
        self.status().last
    }

    fn tick(&mut self) {
        self.now += TICK;
        self.input(Input::Tick);
    }

    fn hear(&mut self, from: StoreId, message: Message) {
        self.input(Input::Message { from, region: REGION, message });
    }

    fn input(&mut self, input: Input) {
        self.worker.step(input, self.now);
        self.turn();
    }

    fn turn(&mut self) {
        while self.worker.has_work() {
            for action in self.worker.turn(self.now).expect("no message stops a store") {
                self.carry_out(action);
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Send { message, .. } => self.sent.push(message),
            Action::Persist(batch) => {
                self.writing.push(batch);
                if !self.holds_writes {
                    self.finish_write();
                }
            }
            Action::Apply { region, entries } => {
                let index = entries.last().expect("something is handed out").index;
                self.worker.step(Input::Applied { region, index }, self.now);
            }
            Action::Dropped { reason, .. } => self.dropped.push(reason),
            Action::ApplySnapshot { region, .. } => {
                self.worker.step(Input::SnapshotApplied { region }, self.now);
            }
            Action::Destroy { region, .. } => self.worker.step(Input::Destroyed { region }, self.now),
            Action::MakeSnapshot { region } => self.worker.step(Input::SnapshotFailed { region }, self.now),
            Action::ReadLog { region, number, low, high, max_bytes } => {
                let entries = self.disk.entries(region, low, high, max_bytes);
                self.worker.step(Input::LogRead { region, number, entries }, self.now);
            }
            Action::SendSnapshot { region, to, .. } => {
                self.worker.step(Input::SnapshotSent { region, to, delivered: true }, self.now);
            }
            Action::Truncate { region, index, term } => self.disk.truncate(region, index, term),
            _ => {}
        }
    }

    fn finish_write(&mut self) {
        if self.writing.is_empty() {
            return;
        }
        let batch = self.writing.remove(0);
        self.disk.write(&batch);
        self.worker.step(Input::Persisted { batch: batch.number }, self.now);
    }

    /// Asserts that the message is dropped for this reason and that the region continues.
    fn drops(&mut self, from: StoreId, message: Message, reason: DropReason) {
        self.dropped.clear();
        let before = self.status();
        self.hear(from, message.clone());
        for _ in 0..40 {
            self.tick();
        }
        assert_eq!(self.dropped, [reason], "{message:?}");
        let after = self.status();
        assert_eq!((after.term, after.commit, after.last), (before.term, before.commit, before.last));
    }
}

/// Returns a message from the peer on store 0.
fn message(term: u64, kind: MessageType) -> Message {
    let mut message = Message { from: 1, to: 2, term, ..Message::default() };
    message.set_msg_type(kind);
    message
}

fn append(index: u64, log_term: u64, commit: u64, entries: Vec<Entry>) -> Message {
    let append = message(TERM, MessageType::MsgAppend);
    Message { index, log_term, commit, entries: entries.into(), ..append }
}

fn entry(index: u64) -> Entry {
    Entry { index, term: TERM, ..Entry::default() }
}

#[test]
fn a_heartbeat_that_commits_beyond_the_log_ends_no_store() {
    let beyond = Message { commit: LAST + 1, ..message(TERM, MessageType::MsgHeartbeat) };
    Victim::follower().drops(0, beyond, DropReason::CommitBeyondLog);
}

#[test]
fn an_append_that_begins_behind_the_log_without_a_term_is_no_match() {
    let nothing = append(LAST + 5, 0, LAST + 5, Vec::new());
    Victim::follower().drops(0, nothing, DropReason::Entries);
    let one = append(LAST + 5, 0, LAST, vec![entry(LAST + 6)]);
    Victim::follower().drops(0, one, DropReason::Entries);
}

#[test]
fn entries_that_do_not_follow_each_other_are_none() {
    for indexes in [[LAST + 1, LAST + 3], [LAST + 2, LAST + 1]] {
        let entries = indexes.map(entry).to_vec();
        Victim::follower().drops(0, append(LAST, 5, LAST, entries), DropReason::Entries);
    }
    let of_later = Entry { term: TERM + 1, ..entry(LAST + 1) };
    Victim::follower().drops(0, append(LAST, 5, LAST, vec![of_later]), DropReason::Entries);
    let of_before = Entry { term: 4, ..entry(LAST + 1) };
    Victim::follower().drops(0, append(LAST, 5, LAST, vec![of_before]), DropReason::Entries);
}

#[test]
fn indexes_that_cannot_be_counted_up_are_out_of_reach() {
    let mut leader = Victim::leader();
    let term = leader.status().term;
    let answer = message(term, MessageType::MsgAppendResponse);
    leader.drops(0, Message { index: u64::MAX, ..answer.clone() }, DropReason::Index);
    let rejected = Message { index: LAST, reject: true, reject_hint: u64::MAX, log_term: 5, ..answer };
    Victim::leader().drops(0, rejected, DropReason::Index);
    Victim::follower().drops(0, append(u64::MAX, 5, 0, Vec::new()), DropReason::Index);
}

#[test]
fn a_term_that_cannot_be_counted_up_is_out_of_reach() {
    for kind in [MessageType::MsgHeartbeat, MessageType::MsgRequestVoteResponse, MessageType::MsgTimeoutNow] {
        Victim::follower().drops(0, message(u64::MAX, kind), DropReason::Term);
        // A term 2^33 ahead is out of reach of any sequence of elections.
        Victim::follower().drops(0, message(TERM + (1 << 33), kind), DropReason::Term);
    }
    Victim::follower().drops(0, message(0, MessageType::MsgHeartbeat), DropReason::Term);
}

fn snapshot(index: u64, descriptor: &RegionDescriptor) -> Message {
    let with = |roles: &[PeerRole]| -> Vec<u64> {
        descriptor.peers.iter().filter(|peer| roles.contains(&peer.role)).map(|peer| peer.id).collect()
    };
    let mut snapshot = Snapshot { data: descriptor.encode(), ..Snapshot::default() };
    snapshot.mut_metadata().index = index;
    snapshot.mut_metadata().term = 5;
    let state = snapshot.mut_metadata().mut_conf_state();
    state.voters = with(&[PeerRole::Voter, PeerRole::Incoming]);
    state.learners = with(&[PeerRole::Learner]);
    if descriptor.is_joint() {
        state.voters_outgoing = with(&[PeerRole::Voter, PeerRole::Outgoing]);
        state.learners_next = with(&[PeerRole::Outgoing]);
    }
    let mut message = message(TERM, MessageType::MsgSnapshot);
    message.set_snapshot(snapshot);
    message
}

#[test]
fn a_snapshot_of_a_region_that_cannot_be_is_not_begun_with() {
    let founded = descriptor(REGION, 3);
    for role in [PeerRole::Learner, PeerRole::Outgoing, PeerRole::Incoming] {
        let mut silent = founded.clone();
        silent.peers.iter_mut().for_each(|peer| peer.role = role);
        Victim::follower().drops(0, snapshot(50, &silent), DropReason::Snapshot);
    }
    let of_another = RegionDescriptor { id: 9, ..founded.clone() };
    Victim::follower().drops(0, snapshot(50, &of_another), DropReason::Snapshot);
    Victim::follower().drops(0, snapshot(u64::MAX - 1, &founded), DropReason::Index);
    // The descriptor places the receiver's number on another store. A store that recorded this
    // could never start again.
    let elsewhere = RegionDescriptor::founded(REGION, founded.slots, &[0, 7, 9]);
    let mut victim = Victim::follower();
    victim.hear(0, snapshot(50, &elsewhere));
    assert_eq!((victim.last(), victim.status().descriptor), (LAST, founded.clone()));
    // This snapshot is accepted.
    victim.hear(0, snapshot(50, &founded));
    assert_eq!((victim.last(), victim.dropped), (50, Vec::new()));
}

#[test]
fn a_vote_that_was_not_asked_for_makes_no_leader_of_a_log_that_is_not_written() {
    let mut victim = Victim::follower();
    victim.holds_writes = true;
    victim.hear(0, append(LAST, 5, LAST, vec![entry(LAST + 1)]));
    while victim.status().term == TERM {
        victim.tick();
        victim.hear(0, message(TERM + 1, MessageType::MsgRequestPreVoteResponse));
    }
    assert_eq!(victim.role(), Role::Candidate);
    victim.dropped.clear();
    victim.hear(0, message(TERM + 1, MessageType::MsgRequestVoteResponse));
    assert_eq!(victim.dropped, [DropReason::UnaskedVote]);
    // Once the log is written, the peer asks for the vote, and the vote counts.
    victim.holds_writes = false;
    while !victim.writing.is_empty() {
        victim.finish_write();
        victim.turn();
    }
    assert!(victim.sent.iter().any(|sent| sent.get_msg_type() == MessageType::MsgRequestVote));
    victim.hear(0, message(TERM + 1, MessageType::MsgRequestVoteResponse));
    assert_eq!(victim.role(), Role::Leader);
}

#[test]
fn the_word_to_take_over_waits_for_the_log() {
    let mut victim = Victim::follower();
    victim.holds_writes = true;
    victim.hear(0, append(LAST, 5, LAST, vec![entry(LAST + 1)]));
    victim.hear(0, Message { index: LAST + 1, ..message(TERM, MessageType::MsgTimeoutNow) });
    victim.hear(0, message(TERM + 1, MessageType::MsgRequestVoteResponse));
    assert_eq!(victim.role(), Role::Follower);
}

#[test]
fn the_only_voter_does_not_lead_a_log_that_is_not_written() {
    let slots = descriptor(REGION, 3).slots;
    for told in [true, false] {
        let mut victim = Victim::of(RegionDescriptor::founded(REGION, slots, &[1]));
        let (last, term) = (victim.last(), victim.status().term + 1);
        assert_eq!(victim.role(), Role::Leader);
        victim.holds_writes = true;
        let of = |kind| Message { from: 9, to: 1, term, ..message(term, kind) };
        let entries = vec![Entry { index: last + 1, term, ..Entry::default() }].into();
        let log_term = term - 1;
        victim.hear(7, Message { index: last, log_term, entries, ..of(MessageType::MsgAppend) });
        if told {
            victim.hear(7, Message { index: last + 1, ..of(MessageType::MsgTimeoutNow) });
        }
        for _ in 0..40 {
            victim.tick();
        }
        assert_eq!(victim.role(), Role::Follower);
        victim.holds_writes = false;
        victim.finish_write();
        for _ in 0..40 {
            victim.tick();
        }
        assert_eq!(victim.role(), Role::Leader);
    }
}

/// An encoded region change for epoch (1, 1).
fn change(kind: &[u8]) -> Bytes {
    [&[1][..], &1u64.to_be_bytes(), &1u64.to_be_bytes(), kind].concat().into()
}

fn change_peer(kind: u8, store: u64) -> Bytes {
    change(&[&[1, kind][..], &store.to_be_bytes()].concat())
}

#[test]
fn a_change_that_cannot_be_read_is_not_taken_into_the_log() {
    let of_kind = |kind, context: Bytes| {
        let mut entry = Entry { context, ..entry(LAST + 1) };
        entry.set_entry_type(kind);
        append(LAST, 5, LAST + 1, vec![entry])
    };
    let unreadable = Bytes::from_static(b"\x63 of a later version");
    let demote = change_peer(3, 1);
    for message in [
        of_kind(EntryType::EntryNormal, unreadable.clone()),
        of_kind(EntryType::EntryConfChangeV2, unreadable),
        // With these entry types, the consensus code would campaign before this peer's own demotion
        // is applied.
        of_kind(EntryType::EntryNormal, demote.clone()),
        of_kind(EntryType::EntryConfChange, demote.clone()),
        of_kind(EntryType::EntryConfChangeV2, Bytes::new()),
        of_kind(EntryType::EntryConfChangeV2, change(&[5])),
    ] {
        Victim::follower().drops(0, message, DropReason::Change);
    }
    let mut victim = Victim::follower();
    victim.hear(0, of_kind(EntryType::EntryConfChangeV2, demote));
    assert_eq!(victim.status().descriptor.peer_on(1).map(|peer| peer.role), Some(PeerRole::Learner));
}

#[test]
fn what_peers_do_not_send_to_each_other_is_not_taken_from_them() {
    for kind in [
        MessageType::MsgHup,
        MessageType::MsgBeat,
        MessageType::MsgPropose,
        MessageType::MsgUnreachable,
        MessageType::MsgSnapStatus,
        MessageType::MsgCheckQuorum,
        MessageType::MsgTransferLeader,
        MessageType::MsgReadIndex,
        MessageType::MsgReadIndexResp,
    ] {
        Victim::follower().drops(0, message(TERM, kind), DropReason::Kind);
        let mut leader = Victim::leader();
        let term = leader.status().term;
        leader.drops(0, message(term, kind), DropReason::Kind);
    }
    let bare = message(TERM, MessageType::MsgHeartbeat);
    let mut with_entries = bare.clone();
    with_entries.set_entries(vec![entry(LAST + 1)].into());
    let mut with_snapshot = bare.clone();
    with_snapshot.set_snapshot(Snapshot::default());
    let with_context = Message { context: vec![0; 100].into(), ..bare.clone() };
    let asking = Message { request_snapshot: 3, ..message(TERM, MessageType::MsgAppendResponse) };
    for message in [with_entries, with_snapshot, with_context, asking] {
        Victim::follower().drops(0, message, DropReason::Shape);
    }
}

#[test]
fn a_message_counts_for_the_peer_of_its_sender_alone() {
    let heartbeat = message(TERM + 1, MessageType::MsgHeartbeat);
    // Store 2 claims in turn to be the peer on store 0, no peer, and this peer.
    Victim::follower().drops(2, heartbeat.clone(), DropReason::Sender);
    Victim::follower().drops(2, Message { from: 0, ..heartbeat.clone() }, DropReason::Sender);
    Victim::follower().drops(2, Message { from: 2, ..heartbeat.clone() }, DropReason::Sender);
    // A message from an unknown peer binds that peer to the first store that sends it.
    let mut victim = Victim::follower();
    let newcomer = Message { from: 4, ..heartbeat.clone() };
    victim.hear(7, newcomer.clone());
    assert_eq!((victim.status().leader, victim.dropped.len()), (Some(7), 0));
    victim.drops(8, newcomer, DropReason::Sender);
    // A message for another peer number on this store is late, not incorrect.
    let mut victim = Victim::follower();
    victim.hear(0, Message { to: 9, ..heartbeat });
    assert_eq!((victim.status().term, victim.dropped.len()), (TERM, 0));
}

#[test]
fn a_term_has_one_leader() {
    let append =
        |from: u64, term| Message { from, index: LAST, log_term: 5, ..message(term, MessageType::MsgAppend) };
    Victim::follower().drops(2, append(3, TERM), DropReason::SecondLeader);
    let mut leader = Victim::leader();
    let term = leader.status().term;
    leader.drops(2, append(3, term), DropReason::SecondLeader);
}

#[test]
fn nobody_acknowledges_what_the_leader_does_not_have() {
    for kind in [MessageType::MsgAppendResponse, MessageType::MsgHeartbeatResponse] {
        let mut leader = Victim::leader();
        let (last, term) = (leader.last(), leader.status().term);
        leader.hear(0, Message { index: last, commit: last, ..message(term, kind) });
        assert_eq!(leader.dropped, []);
        let beyond = last + 1;
        leader.drops(0, Message { index: beyond, ..message(term, kind) }, DropReason::BeyondLog);
        let mut leader = Victim::leader();
        leader.drops(0, Message { commit: beyond, ..message(term, kind) }, DropReason::BeyondLog);
    }
}

#[test]
fn announcements_make_no_more_than_some_peers_and_those_of_regions_alone() {
    let mut victim = Victim::follower();
    let slots = Some(SlotRange { first: 16000, last: 16383 });
    let of = |region| RegionDescriptor::founded(region, slots, &[0, 1]);
    let mut silent = of(50);
    silent.peers.iter_mut().for_each(|peer| peer.role = PeerRole::Learner);
    for (from, descriptor) in [
        (0, RegionDescriptor { slots: None, ..of(50) }),
        (0, RegionDescriptor { id: 0, ..of(50) }),
        (0, silent),
        (2, of(50)),
    ] {
        victim.dropped.clear();
        victim.input(Input::Announced { from, descriptor });
        assert_eq!(victim.dropped, [DropReason::Announcement]);
    }
    victim.dropped.clear();
    for region in 100..3100 {
        victim.input(Input::Announced { from: 0, descriptor: of(region) });
    }
    let made = victim.worker.regions().count() - 1;
    assert!((100..=1024).contains(&made), "{made}");
    assert!(victim.dropped.len() == 3000 - made && victim.dropped[0] == DropReason::TooManyBlank);
}

/// The store executes a split after its peer of the region was removed, and reports the new
/// region's rows. A blank peer of the new region is there already.
#[test]
fn rows_of_a_split_do_not_count_as_a_blank_peer_s() {
    let mut victim = Victim::follower();
    let slots = Some(SlotRange { first: 16000, last: 16383 });
    let descriptor = RegionDescriptor::founded(50, slots, &[0, 1]);
    victim.input(Input::Announced { from: 0, descriptor });
    assert!(victim.worker.regions().any(|region| region == 50));
    victim.input(Input::Applied { region: 50, index: 5 });
    let status = victim.worker.status(50, victim.now).unwrap();
    assert_eq!((status.applied, status.last), (0, 0));
}

fn number() -> impl Strategy<Value = u64> {
    let near = prop_oneof![Just(u64::MAX), Just(u64::MAX - 1), Just(1 << 63), Just(1 << 33)];
    prop_oneof![9 => 0..12u64, 1 => near]
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let context = prop_oneof![
        6 => Just(Bytes::new()),
        1 => Just(Bytes::from_static(b"nonsense")),
        1 => (1..=4u8, 0..4u64).prop_map(|(kind, store)| change_peer(kind, store)),
        1 => (0..7u8).prop_map(|kind| change(&[kind])),
        1 => any::<u16>().prop_map(|at| change(&[&[3][..], &at.to_be_bytes(), &8u64.to_be_bytes()].concat())),
    ];
    (number(), number(), context, 0..3i32).prop_map(|(index, term, context, kind)| {
        let mut entry = Entry { index, term, context, ..Entry::default() };
        entry.set_entry_type(match kind {
            0 => EntryType::EntryNormal,
            1 => EntryType::EntryConfChangeV2,
            _ => EntryType::EntryConfChange,
        });
        entry
    })
}

/// Entries, and a flag that renumbers them so that they follow each other.
fn any_entries() -> impl Strategy<Value = (Vec<Entry>, bool)> {
    (prop::collection::vec(any_entry(), 0..4), any::<bool>())
}

fn any_descriptor() -> impl Strategy<Value = RegionDescriptor> {
    let role = prop_oneof![
        5 => Just(PeerRole::Voter),
        1 => Just(PeerRole::Learner),
        1 => Just(PeerRole::Incoming),
        1 => Just(PeerRole::Outgoing)
    ];
    (0..3u64, prop::collection::vec(role, 4), 1..9u64, 0..16384u16, any::<bool>()).prop_map(
        |(region, roles, version, last, is_whole)| {
            let slots = is_whole.then_some(SlotRange { first: 0, last });
            let mut descriptor = RegionDescriptor::founded(region, slots, &[0, 1, 2, 3]);
            descriptor.epoch.conf_version = version;
            descriptor.peers.iter_mut().zip(roles).for_each(|(peer, role)| peer.role = role);
            descriptor
        },
    )
}

fn any_message() -> impl Strategy<Value = Message> {
    let kinds = MessageType::values();
    let numbers = (number(), number(), number(), number(), number(), number());
    let parts = (0..kinds.len(), any::<bool>(), 0..20usize, any_entries(), any_descriptor(), any::<bool>());
    (numbers, parts).prop_map(move |((from, to, term, log_term, index, commit), parts)| {
        let (kind, reject, context, (mut entries, are_joined), descriptor, has_snapshot) = parts;
        if are_joined {
            for (entry, nth) in entries.iter_mut().zip(1..) {
                (entry.index, entry.term) = (index.saturating_add(nth), log_term);
            }
        }
        let mut message = match has_snapshot {
            true => snapshot(index, &descriptor),
            false => Message::default(),
        };
        (message.from, message.to, message.term) = (from.min(5), if to < 8 { 2 } else { to }, term);
        (message.log_term, message.index, message.commit) = (log_term, index, commit);
        (message.reject, message.reject_hint, message.commit_term) = (reject, to, log_term);
        message.context = vec![0; context].into();
        message.set_entries(entries.into());
        message.set_msg_type(kinds[kind]);
        message
    })
}

#[derive(Clone, Debug)]
enum Event {
    Message(StoreId, Message),
    /// A message that is sent by the store of the peer named as its sender.
    Plausible(Message),
    Announced(StoreId, RegionDescriptor),
    Tick,
    Propose,
    HoldWrites(bool),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0..4u64, any_message()).prop_map(|(from, message)| Event::Message(from, message)),
        12 => any_message().prop_map(Event::Plausible),
        1 => (0..4u64, any_descriptor()).prop_map(|(from, descriptor)| Event::Announced(from, descriptor)),
        4 => Just(Event::Tick),
        1 => Just(Event::Propose),
        1 => any::<bool>().prop_map(Event::HoldWrites),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_message_ends_a_store(begins_as_leader: bool, events in prop::collection::vec(any_event(), 1..80)) {
        let mut victim = if begins_as_leader { Victim::leader() } else { Victim::follower() };
        for event in events {
            match event {
                Event::Message(from, message) => victim.hear(from, message),
                Event::Plausible(message) => victim.hear(message.from.saturating_sub(1), message),
                Event::Announced(from, descriptor) => victim.input(Input::Announced { from, descriptor }),
                Event::Tick => victim.tick(),
                Event::Propose => {
                    let payload = Bytes::from_static(b"payload");
                    victim.input(Input::Propose { region: REGION, token: 1, payload });
                }
                Event::HoldWrites(holds) => {
                    victim.holds_writes = holds;
                    while !holds && !victim.writing.is_empty() {
                        victim.finish_write();
                        victim.turn();
                    }
                }
            }
        }
    }
}
