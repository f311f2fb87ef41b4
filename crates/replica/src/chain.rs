//! Chained replication: the leader sends entries to one follower, which passes them on to the next.
//!
//! ```text
//!             append + hops [C, D]         append + hop [D]          append
//!   leader ───────────────────────▶ B ──────────────────────▶ C ──────────────▶ D
//!     ▲                             │                          │                │
//!     └───────── acknowledgement ───┴──────────────────────────┴────────────────┘
//! ```
//!
//! The chain is only another path for appends that Raft has made for each follower. A passed-on
//! append is an append that arrives late, twice or never. Acknowledgements, heartbeats, votes and
//! snapshots go directly.
//!
//! This module decides which followers form the chain and in which order, and joins the appends of
//! a turn. Invariants: as long as a follower is in the chain, all its appends take the same path,
//! because an append that overtakes another is rejected and makes the leader send again. A follower
//! leaves the chain together with those behind it, whose path went through it.

use std::collections::{BTreeMap, VecDeque};

use raft::eraftpb::{Message, MessageType};
use types::{LogIndex, PeerId, StoreId, Term};

/// The way in which a leader sends entries to its followers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    /// To each follower itself.
    #[default]
    Direct,
    /// To one follower, which passes them on. Falls back to direct sending.
    Chained,
}

/// Numbers of a worker's relayed appends since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// Appends that this store, as a leader, left to another one to pass on.
    pub chained: u64,
    /// Bytes of the entries in these appends that this store did not have to send.
    pub chained_bytes: u64,
    /// Appends that this store passed on for a leader.
    pub relayed: u64,
    /// Bytes of the entries in these appends.
    pub relayed_bytes: u64,
    /// Times that a follower of this store's leaders left a chain because an append did not reach
    /// it in time, or did not fit its log.
    pub fallbacks: u64,
}

/// Maximum number of followers to which an append is passed on.
const HOPS_MAX: usize = 8;
/// Maximum size in bytes of an entry in a relayed append. A store passes on an append after it has
/// all of it, so a larger entry would be late by the time that it takes to transfer.
pub(crate) const RELAYED_ENTRY_BYTES_MAX: u64 = 4 << 20;
/// Number of bytes of an entry for which a follower behind others gets one tick more to
/// acknowledge it.
const BYTES_PER_TICK: u64 = 256 << 10;
/// Heartbeat intervals without progress after which relayed appends count as lost. The intact path
/// of a small append takes less than one interval, or no follower could answer heartbeats in time.
/// One interval more covers a slow log write.
const PATIENCE_HEARTBEATS: u32 = 2;
/// Maximum length of a pause, as a multiple of the election timeout.
const PAUSE_ELECTIONS_MAX: u32 = 64;

const TAKES: u8 = 1;
const RELAYED: u8 = 2;
const HOP_BYTES: usize = 24;
/// The encoding of `None` in a hop; no log reaches this index.
const PASSES_ON: u64 = u64::MAX;
/// Maximum length of an encoded route in bytes.
pub(crate) const ROUTE_BYTES_MAX: usize = 1 + HOPS_MAX * HOP_BYTES;

/// A station of a relayed append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub peer: PeerId,
    pub store: StoreId,
    /// The commit index that the leader tells this peer; `None` if the peer only passes the append
    /// on.
    pub commit: Option<LogIndex>,
}

/// The remaining way of an append, in the context of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// False if the receiver only passes the append on.
    pub takes: bool,
    /// True if another store than the leader's sends the append.
    pub is_relayed: bool,
    pub hops: VecDeque<Hop>,
}

impl Route {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![if self.takes { TAKES } else { 0 } | if self.is_relayed { RELAYED } else { 0 }];
        for hop in &self.hops {
            for number in [hop.peer, hop.store, hop.commit.unwrap_or(PASSES_ON)] {
                bytes.extend(number.to_le_bytes());
            }
        }
        bytes
    }

    /// Returns `None` if the bytes are no route.
    pub fn decode(bytes: &[u8]) -> Option<Route> {
        let (&flags, hops) = bytes.split_first()?;
        let is_route = flags & !(TAKES | RELAYED) == 0
            && bytes.len() <= ROUTE_BYTES_MAX
            && hops.len() % HOP_BYTES == 0
            // Some peer takes each append that is sent.
            && (flags & TAKES != 0 || !hops.is_empty());
        if !is_route {
            return None;
        }
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(*bytes.first_chunk()?));
        let hops = hops.chunks_exact(HOP_BYTES).map(|hop| {
            let (peer, store, commit) = (number(hop)?, number(&hop[8..])?, number(&hop[16..])?);
            let commit = (commit != PASSES_ON).then_some(commit);
            (peer != 0).then_some(Hop { peer, store, commit })
        });
        let hops = hops.collect::<Option<VecDeque<Hop>>>()?;
        Some(Route { takes: flags & TAKES != 0, is_relayed: flags & RELAYED != 0, hops })
    }
}

/// The leader's view of a follower.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follower {
    pub peer: PeerId,
    pub store: StoreId,
    pub is_learner: bool,
    /// The index through which it has acknowledged the log.
    pub matched: LogIndex,
    /// True if it answers, and its log is known to continue with the leader's.
    pub is_ready: bool,
}

/// Order of followers in a chain: first those that acknowledged most. Learners come last, because
/// no commit waits for them.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_learner: bool,
    lag: u64,
    store: StoreId,
}

/// Returns the ready followers in the order in which they would form a chain.
pub(crate) fn ranked(followers: &[Follower]) -> Vec<Follower> {
    let best = followers.iter().map(|follower| follower.matched).max().unwrap_or(0);
    let mut ready: Vec<Follower> = followers.iter().filter(|follower| follower.is_ready).copied().collect();
    ready.sort_by_key(|follower| Rank {
        is_learner: follower.is_learner,
        lag: best - follower.matched,
        store: follower.store,
    });
    ready
}

/// A follower's place in the chain.
#[derive(Debug)]
struct Link {
    peer: PeerId,
    store: StoreId,
    is_learner: bool,
    /// The last entry that was sent to it through the chain.
    sent: LogIndex,
    matched: LogIndex,
    /// The number of ticks in which it acknowledged nothing although entries are on the way.
    waited: u32,
    /// Bytes of the largest entry on the way.
    largest: u64,
    /// True if nothing was on its direct way when it joined. Otherwise its first relayed append may
    /// have overtaken a direct one.
    joined_clean: bool,
    /// The number of ticks for which nothing was late.
    good_ticks: u32,
}

impl Link {
    fn new(follower: &Follower, joined_clean: bool) -> Link {
        Link {
            peer: follower.peer,
            store: follower.store,
            is_learner: follower.is_learner,
            sent: 0,
            matched: follower.matched,
            waited: 0,
            largest: 0,
            joined_clean,
            good_ticks: 0,
        }
    }
}

/// A time during which a follower is sent everything directly.
#[derive(Clone, Copy, Debug)]
struct Pause {
    left: u32,
    /// The length of the next pause, in ticks.
    next: u32,
}

/// The chain of one region's leader.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    term: Term,
    /// The members in order. The first one is sent to directly.
    members: Vec<Link>,
    pauses: BTreeMap<PeerId, Pause>,
    /// The number of ticks for which a ready follower has been outside of the chain.
    outside: BTreeMap<PeerId, u32>,
    /// Length of the first pause, and of the wait for a clean moment to join, in ticks.
    election_ticks: u32,
}

/// An append on its way along the chain. `takers` has the commit index of each member that takes
/// it, by position.
struct Bundle {
    message: Message,
    takers: Vec<Option<LogIndex>>,
}

impl Chain {
    pub fn clear(&mut self) {
        self.members.clear();
        self.pauses.clear();
        self.outside.clear();
    }

    pub fn stores(&self) -> Vec<StoreId> {
        self.members.iter().map(|link| link.store).collect()
    }

    /// Begins a chain for a leader of this term, unless that has been done.
    pub fn lead(&mut self, term: Term, election_ticks: u32) {
        if self.term != term {
            self.clear();
            self.term = term;
        }
        self.election_ticks = election_ticks;
    }

    /// Removes members that are not ready any more, with those behind them, and chooses a first
    /// follower if the chain has no other. Returns the number of fallbacks.
    pub fn arrange(&mut self, followers: &[Follower]) -> u64 {
        let find = |peer| followers.iter().find(|follower| follower.peer == peer);
        for link in &mut self.members {
            if let Some(follower) = find(link.peer) {
                (link.is_learner, link.store) = (follower.is_learner, follower.store);
            }
        }
        let lost =
            self.members.iter().position(|link| !find(link.peer).is_some_and(|follower| follower.is_ready));
        let mut fallbacks = 0;
        if let Some(position) = lost {
            let link = &self.members[position];
            if position > 0 && link.joined_clean {
                self.pause(link.peer);
                fallbacks = 1;
            }
            self.members.truncate(position);
        }
        if self.members.len() < 2 {
            let first = ranked(followers).into_iter().next();
            self.members = first.iter().map(|first| Link::new(first, true)).collect();
        }
        fallbacks
    }

    /// Joins appends of the same entries to one message for the chain's first member. Other
    /// messages are returned unchanged. Also returns the number of joined appends and the bytes of
    /// their entries.
    pub fn join(&mut self, sends: Vec<Message>, followers: &[Follower]) -> (Vec<Message>, u64, u64) {
        let Some(head) = self.members.first().map(|link| link.peer) else { return (sends, 0, 0) };
        self.take_in(&sends, followers);
        if self.members.len() < 2 {
            return (sends, 0, 0);
        }
        let mut out = Vec::with_capacity(sends.len());
        let mut at = None;
        let mut behind: BTreeMap<PeerId, Vec<Message>> = BTreeMap::new();
        let mut bundles: Vec<Bundle> = Vec::new();
        for message in sends {
            let is_append = message.get_msg_type() == MessageType::MsgAppend;
            if is_append && message.to == head {
                at.get_or_insert(out.len());
                let commit = message.commit;
                bundles.push(Bundle { message, takers: vec![Some(commit)] });
            } else if is_append && self.members.iter().any(|link| link.peer == message.to) {
                at.get_or_insert(out.len());
                behind.entry(message.to).or_default().push(message);
            } else {
                out.push(message);
            }
        }
        let (mut joined, mut bytes) = (0, 0);
        for (position, link) in self.members.iter_mut().enumerate().skip(1) {
            let mut from = 0;
            for message in behind.remove(&link.peer).unwrap_or_default() {
                if let Some(last) = message.entries.last() {
                    link.sent = link.sent.max(last.index);
                    link.largest = link.largest.max(largest(&message));
                }
                let commit = message.commit;
                let same =
                    bundles[from..].iter().position(|bundle| has_same_entries(&bundle.message, &message));
                let found = match same {
                    Some(offset) => {
                        joined += 1;
                        bytes += bytes_of(&message);
                        from + offset
                    }
                    // The other members only pass it on, so that it does not overtake earlier ones.
                    None => {
                        bundles.insert(from, Bundle { message, takers: Vec::new() });
                        from
                    }
                };
                let takers = &mut bundles[found].takers;
                takers.resize(position + 1, None);
                takers[position] = Some(commit);
                from = found + 1;
            }
        }
        let routed = bundles.into_iter().map(|bundle| self.routed(head, bundle));
        let at = at.unwrap_or(out.len());
        out.splice(at..at, routed);
        (out, joined, bytes)
    }

    fn routed(&self, head: PeerId, bundle: Bundle) -> Message {
        let Bundle { mut message, takers } = bundle;
        message.to = head;
        if takers.len() > 1 {
            let stations = self.members.iter().zip(&takers).skip(1);
            let hops = stations.map(|(link, &commit)| Hop { peer: link.peer, store: link.store, commit });
            let route = Route { takes: takers[0].is_some(), is_relayed: false, hops: hops.collect() };
            message.context = route.encode().into();
        }
        message
    }

    /// Lets ready followers join the chain whose next append has the same entries as one for the
    /// first member. If possible, a follower joins at a moment at which it has acknowledged
    /// everything that was sent directly.
    fn take_in(&mut self, sends: &[Message], followers: &[Follower]) {
        let is_late = |message: &Message| largest(message) > RELAYED_ENTRY_BYTES_MAX;
        let appends = |peer: PeerId| {
            sends.iter().filter(move |m| m.to == peer && m.get_msg_type() == MessageType::MsgAppend)
        };
        let large = self.members.iter().skip(1).position(|link| appends(link.peer).any(is_late));
        if let Some(position) = large {
            self.members.truncate(position + 1);
        }
        for follower in ranked(followers) {
            let is_member = self.members.iter().any(|link| link.peer == follower.peer);
            if is_member || self.pauses.get(&follower.peer).is_some_and(|pause| pause.left > 0) {
                continue;
            }
            let Some(first) = appends(follower.peer).next() else { continue };
            let fits = first.entries.first().is_some_and(|entry| entry.index == first.index + 1)
                && !appends(follower.peer).any(is_late)
                && appends(self.members[0].peer).any(|message| has_same_entries(message, first));
            let is_clean = first.index == follower.matched;
            let waited = self.outside.get(&follower.peer).copied().unwrap_or(0);
            if !fits || !is_clean && waited < self.election_ticks {
                continue;
            }
            if !follower.is_learner {
                // Learners stay at the end.
                let voters = self.members.iter().position(|link| link.is_learner).unwrap_or(usize::MAX);
                self.members.truncate(voters.max(1));
            }
            if self.members.len() <= HOPS_MAX {
                self.members.push(Link::new(&follower, is_clean));
                self.outside.remove(&follower.peer);
            }
        }
    }

    /// Counts a tick. Returns the members whose appends count as lost. They leave the chain.
    pub fn tick(&mut self, followers: &[Follower], heartbeat_ticks: u32) -> Vec<PeerId> {
        for pause in self.pauses.values_mut() {
            pause.left = pause.left.saturating_sub(1);
        }
        for follower in followers {
            let is_member = self.members.iter().any(|link| link.peer == follower.peer);
            if is_member || !follower.is_ready {
                self.outside.remove(&follower.peer);
            } else {
                *self.outside.entry(follower.peer).or_default() += 1;
            }
        }
        let mut late = None;
        for (position, link) in self.members.iter_mut().enumerate().skip(1) {
            let matched = followers.iter().find(|follower| follower.peer == link.peer);
            let matched = matched.map_or(0, |follower| follower.matched);
            let is_waiting = matched < link.sent;
            if !is_waiting {
                link.largest = 0;
            }
            link.waited = if is_waiting && matched <= link.matched { link.waited + 1 } else { 0 };
            link.matched = matched;
            link.good_ticks = link.good_ticks.saturating_add(1);
            let allowance = u32::try_from(link.largest / BYTES_PER_TICK).unwrap_or(u32::MAX);
            // An append travels each link of the chain one after the other.
            let allowance = allowance.saturating_mul(1 + position as u32);
            if link.waited > PATIENCE_HEARTBEATS.saturating_mul(heartbeat_ticks).saturating_add(allowance) {
                late.get_or_insert(position);
            }
            if self.pauses.get(&link.peer).is_some_and(|pause| link.good_ticks >= pause.next) {
                self.pauses.remove(&link.peer);
            }
        }
        let Some(position) = late else { return Vec::new() };
        self.pause(self.members[position].peer);
        self.cut(position)
    }

    /// Removes the peer and the members behind it from the chain. Returns those whose appends may
    /// be lost.
    pub fn broke_at(&mut self, peer: PeerId) -> Vec<PeerId> {
        match self.members.iter().position(|link| link.peer == peer) {
            Some(position) => self.cut(position),
            None => Vec::new(),
        }
    }

    fn cut(&mut self, position: usize) -> Vec<PeerId> {
        let cut = self.members.drain(position..);
        cut.filter(|link| link.sent > link.matched).map(|link| link.peer).collect()
    }

    fn pause(&mut self, peer: PeerId) {
        let first = self.election_ticks.max(1);
        let pause = self.pauses.entry(peer).or_insert(Pause { left: 0, next: first });
        pause.left = pause.next;
        pause.next = pause.next.saturating_mul(2).min(first.saturating_mul(PAUSE_ELECTIONS_MAX));
    }

    /// Returns the members behind this one to which entries through this index were sent.
    pub fn behind(&self, peer: PeerId, index: LogIndex) -> Vec<PeerId> {
        let position = self.members.iter().position(|link| link.peer == peer).unwrap_or(usize::MAX);
        let behind = self.members.iter().enumerate().filter(|(other, _)| *other > position);
        behind.filter(|(_, link)| link.sent >= index).map(|(_, link)| link.peer).collect()
    }
}

/// Returns true if two appends of one leader have the same entries. Entries of the same index in
/// one leader's log are the same.
fn has_same_entries(one: &Message, other: &Message) -> bool {
    let range = |message: &Message| {
        let entries = message.get_entries();
        (entries.len(), entries.first().map(|entry| entry.index), entries.last().map(|entry| entry.index))
    };
    (one.term, one.index, one.log_term) == (other.term, other.index, other.log_term)
        && range(one) == range(other)
}

fn largest(message: &Message) -> u64 {
    message.get_entries().iter().map(|entry| entry.data.len() as u64).max().unwrap_or(0)
}

/// Returns the largest commit index that a message of a leader announces to those who get it.
pub fn announced_commit(message: &Message) -> LogIndex {
    let is_append = message.get_msg_type() == MessageType::MsgAppend;
    let route = Some(&message.context).filter(|_| is_append).and_then(|context| Route::decode(context));
    let hops = route.into_iter().flat_map(|route| route.hops).filter_map(|hop| hop.commit);
    hops.fold(message.commit, LogIndex::max)
}

/// Returns the bytes of the message's entries.
pub(crate) fn bytes_of(message: &Message) -> u64 {
    message.get_entries().iter().map(|entry| entry.data.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::Entry;

    use super::*;

    const ELECTION: u32 = 10;
    const HEARTBEAT: u32 = 2;

    fn follower(peer: PeerId, matched: LogIndex) -> Follower {
        Follower { peer, store: peer + 100, is_learner: false, matched, is_ready: true }
    }

    fn append(to: PeerId, index: LogIndex, entries: u64, commit: LogIndex) -> Message {
        let mut message = Message { from: 1, to, term: 3, index, log_term: 2, commit, ..Message::default() };
        message.set_msg_type(MessageType::MsgAppend);
        let entry = |offset| Entry {
            index: index + 1 + offset,
            term: 3,
            data: vec![0; 100].into(),
            ..Entry::default()
        };
        message.set_entries((0..entries).map(entry).collect::<Vec<_>>().into());
        message
    }

    #[test]
    fn a_message_announces_the_largest_commit_index_of_its_way() {
        let route = |commits: &[Option<LogIndex>]| {
            let hops = commits.iter().map(|&commit| Hop { peer: 3, store: 103, commit });
            Route { takes: true, is_relayed: false, hops: hops.collect() }.encode()
        };
        let mut message = append(2, 7, 1, 5);
        assert_eq!(announced_commit(&message), 5);
        for (commits, expected) in [(&[Some(4), None][..], 5), (&[None, Some(6)], 6)] {
            message.context = route(commits).into();
            assert_eq!(announced_commit(&message), expected);
        }
        // The context of other messages is no route.
        message.set_msg_type(MessageType::MsgHeartbeat);
        assert_eq!(announced_commit(&message), 5);
    }

    fn chain() -> Chain {
        let mut chain = Chain::default();
        chain.lead(3, ELECTION);
        chain
    }

    fn join(chain: &mut Chain, sends: Vec<Message>, followers: &[Follower]) -> Vec<Message> {
        chain.arrange(followers);
        chain.join(sends, followers).0
    }

    fn order(chain: &Chain) -> Vec<PeerId> {
        chain.members.iter().map(|link| link.peer).collect()
    }

    fn hop(peer: PeerId, commit: Option<LogIndex>) -> Hop {
        Hop { peer, store: peer + 100, commit }
    }

    fn route(message: &Message) -> Route {
        Route::decode(&message.context).unwrap()
    }

    #[test]
    fn the_follower_that_acknowledged_most_is_first_and_learners_are_last() {
        let learner = Follower { is_learner: true, ..follower(5, 90) };
        let silent = Follower { is_ready: false, ..follower(6, 99) };
        let all = [follower(2, 70), learner, follower(3, 80), silent, follower(4, 80)];
        let order: Vec<PeerId> = ranked(&all).iter().map(|follower| follower.peer).collect();
        assert_eq!(order, [3, 4, 2, 5]);
        assert!(ranked(&[]).is_empty());
    }

    #[test]
    fn a_route_is_read_back_and_other_bytes_are_none() {
        let hops: VecDeque<Hop> = [hop(4, Some(9)), hop(5, None), hop(6, Some(0))].into();
        for (takes, is_relayed) in [(true, false), (false, true), (true, true)] {
            let route = Route { takes, is_relayed, hops: hops.clone() };
            let bytes = route.encode();
            assert_eq!(Route::decode(&bytes), Some(route));
            for end in (0..bytes.len()).filter(|end| end % HOP_BYTES != 1) {
                assert_eq!(Route::decode(&bytes[..end]), None);
            }
        }
        assert_eq!(Route::decode(&[4]), None);
        assert_eq!(Route::decode(&[0]), None, "no peer takes it");
        assert!(Route::decode(&[TAKES | RELAYED]).is_some());
        let longest = Route { takes: true, is_relayed: false, hops: vec![hop(1, None); HOPS_MAX].into() };
        assert!(Route::decode(&longest.encode()).is_some());
        let longer = Route { hops: vec![hop(1, None); HOPS_MAX + 1].into(), ..longest };
        assert_eq!(Route::decode(&longer.encode()), None);
        assert_eq!(Route::decode(&[&[TAKES][..], &[0; HOP_BYTES]].concat()), None, "no peer has number 0");
    }

    #[test]
    fn appends_of_the_same_entries_become_one() {
        let followers = [follower(2, 10), follower(3, 10), follower(4, 10)];
        let mut chain = chain();
        let sends = vec![append(2, 10, 2, 9), append(3, 10, 2, 8), append(4, 10, 2, 7)];
        chain.arrange(&followers);
        let (sent, joined, bytes) = chain.join(sends, &followers);
        assert_eq!((sent.len(), joined, bytes), (1, 2, 400));
        assert_eq!((sent[0].to, sent[0].commit, sent[0].entries.len()), (2, 9, 2));
        let expected =
            Route { takes: true, is_relayed: false, hops: [hop(3, Some(8)), hop(4, Some(7))].into() };
        assert_eq!(route(&sent[0]), expected);
    }

    #[test]
    fn an_append_for_one_member_alone_keeps_to_the_chain() {
        let followers = [follower(2, 10), follower(3, 10), follower(4, 10)];
        let mut chain = chain();
        let sends = (2..5).map(|to| append(to, 10, 1, 9)).collect();
        assert_eq!(join(&mut chain, sends, &followers).len(), 1);
        // The last member has an empty append of its own before the common one.
        let mut heartbeat = append(3, 0, 0, 9);
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        let sends = vec![append(4, 11, 0, 10), append(2, 11, 1, 10), heartbeat.clone(), append(4, 11, 1, 10)];
        let sent = join(&mut chain, sends, &followers);
        assert_eq!(sent.len(), 3);
        let own = Route { takes: false, is_relayed: false, hops: [hop(3, None), hop(4, Some(10))].into() };
        assert_eq!((sent[0].to, route(&sent[0]), sent[0].entries.len()), (2, own, 0));
        let both = Route { takes: true, is_relayed: false, hops: [hop(3, None), hop(4, Some(10))].into() };
        assert_eq!((sent[1].to, route(&sent[1]), sent[1].entries.len()), (2, both, 1));
        assert_eq!(sent[2], heartbeat);
    }

    #[test]
    fn a_follower_joins_once_nothing_is_on_its_direct_way_or_after_a_while() {
        let followers = [follower(2, 10), follower(3, 8)];
        let mut chain = chain();
        let sends = || vec![append(2, 10, 1, 9), append(3, 10, 1, 9)];
        assert_eq!(join(&mut chain, sends(), &followers).len(), 2);
        for _ in 0..ELECTION {
            assert_eq!(order(&chain), [2]);
            assert!(chain.tick(&followers, HEARTBEAT).is_empty());
        }
        assert_eq!(join(&mut chain, sends(), &followers).len(), 1);
        // The rejection of an append that overtook a direct one causes no pause.
        let probed = [follower(2, 11), Follower { is_ready: false, ..follower(3, 9) }];
        assert_eq!(chain.arrange(&probed), 0);
        assert_eq!(order(&chain), [2]);
        let sends = vec![append(2, 11, 1, 9), append(3, 11, 1, 9)];
        assert_eq!(join(&mut chain, sends, &[follower(2, 11), follower(3, 11)]).len(), 1);
    }

    #[test]
    fn a_member_that_acknowledges_nothing_is_sent_to_directly_for_longer_and_longer() {
        let mut chain = chain();
        let mut direct_ticks = Vec::new();
        for index in 10..19 {
            let followers = [follower(2, index), follower(3, index)];
            let sends = || vec![append(2, index, 1, 9), append(3, index, 1, 9)];
            let mut ticks = 0;
            while join(&mut chain, sends(), &followers).len() == 2 {
                assert!(chain.tick(&followers, HEARTBEAT).is_empty());
                ticks += 1;
            }
            direct_ticks.push(ticks);
            let late = [follower(2, index + 1), follower(3, index)];
            for _ in 0..PATIENCE_HEARTBEATS * HEARTBEAT {
                assert!(chain.tick(&late, HEARTBEAT).is_empty());
            }
            assert_eq!(chain.tick(&late, HEARTBEAT), [3]);
        }
        let most = ELECTION * PAUSE_ELECTIONS_MAX;
        assert_eq!(direct_ticks, [0, 10, 20, 40, 80, 160, 320, most, most]);
    }

    #[test]
    fn members_behind_a_broken_one_leave_with_it() {
        let mut followers = [follower(2, 10), follower(3, 10), follower(4, 10)];
        let mut chain = chain();
        join(&mut chain, (2..5).map(|to| append(to, 10, 1, 9)).collect(), &followers);
        assert_eq!(order(&chain), [2, 3, 4]);
        assert_eq!((chain.behind(2, 11), chain.behind(3, 12)), (vec![3, 4], vec![]));
        assert_eq!(chain.broke_at(3), [3, 4]);
        assert_eq!(order(&chain), [2]);
        join(&mut chain, (2..5).map(|to| append(to, 10, 1, 9)).collect(), &followers);
        followers[0].is_ready = false;
        followers[2].matched = 11;
        chain.arrange(&followers);
        assert_eq!(order(&chain), [4], "the best of the others is first");
        assert!(chain.broke_at(2).is_empty());
    }

    #[test]
    fn a_very_large_entry_goes_directly() {
        let followers = [follower(2, 10), follower(3, 10)];
        let mut chain = chain();
        join(&mut chain, vec![append(2, 10, 1, 9), append(3, 10, 1, 9)], &followers);
        assert_eq!(order(&chain), [2, 3]);
        let mut sends = vec![append(2, 11, 1, 9), append(3, 11, 1, 9)];
        for message in &mut sends {
            message.mut_entries()[0].data = vec![0; RELAYED_ENTRY_BYTES_MAX as usize + 1].into();
        }
        let sent = join(&mut chain, sends.clone(), &followers);
        assert_eq!((sent, order(&chain)), (sends, vec![2]));
    }

    #[test]
    fn a_voter_joins_before_the_learners() {
        let learner = Follower { is_learner: true, ..follower(4, 10) };
        let mut chain = chain();
        let sends = |index| (2..5).map(|to| append(to, index, 1, 9)).collect::<Vec<_>>();
        let lagging = [follower(2, 10), follower(3, 4), learner];
        join(&mut chain, sends(10), &lagging);
        assert_eq!(order(&chain), [2, 4]);
        let all = [follower(2, 11), follower(3, 11), Follower { matched: 11, ..learner }];
        join(&mut chain, sends(11), &all);
        assert_eq!(order(&chain), [2, 3, 4]);
    }
}
