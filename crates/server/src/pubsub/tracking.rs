//! Client-side caching: the keys that clients may have cached, and the notices of their changes.
//!
//! A client's keys are noted before a read is executed, and settled after its reply is encoded. A
//! change between the two tells the client at once, and again behind the reply, because the reply
//! may hold the value before the change or the one after it. Outside of this time the first change
//! tells the client and forgets the key, as in Redis.
//!
//! Every store with a copy of a region executes its changes, so a client is told by the store that
//! it is connected to. Keys of regions without a copy here cannot be cached: their clients are told
//! behind each reply. When a region's leader changes, or its copy here is replaced or goes, its
//! keys are forgotten and their clients told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use resp::{Protocol, Reply};
use storage::record::Record;
use types::{slot_of_key, Slot};

use super::mailbox::{Message, MessageMemory, Subscriber};

/// The channel on which a client of RESP2 gets notices for another one.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// `tracking-table-max-keys` at first.
pub const KEYS_MAX: usize = 1_000_000;
/// Memory of a key in addition to its name, and of each of its clients, in bytes.
const KEY_BYTES: usize = 112;
const ITEM_BYTES: usize = 48;
/// Number of keys that are forgotten together when there are too many.
const EVICTED_AT_ONCE: usize = 16;

/// The way in which a client is told of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Every change of a key with one of the prefixes is told.
    pub broadcasts: bool,
    pub prefixes: BTreeSet<Bytes>,
    pub opt_in: bool,
    pub opt_out: bool,
    pub no_loop: bool,
    /// The connection that gets the notices instead.
    pub redirect: Option<u64>,
}

struct Tracker {
    subscriber: Arc<Subscriber>,
    mode: Mode,
    target: Option<Arc<Subscriber>>,
    is_broken: bool,
}

/// The reads of one client that concern a key.
#[derive(Default)]
struct Reads {
    /// Number of reads whose replies are not encoded.
    in_flight: u32,
    /// True if the key has changed during these reads.
    is_stale: bool,
}

#[derive(Default)]
struct State {
    clients: HashMap<u64, Tracker>,
    keys: HashMap<Bytes, BTreeMap<u64, Reads>>,
    /// Bytes of the keys, and number of clients of all keys.
    key_bytes: usize,
    items: usize,
}

impl State {
    /// Returns the approximate bytes of the table.
    fn bytes(&self) -> u64 {
        (self.key_bytes + self.keys.len() * KEY_BYTES + self.items * ITEM_BYTES) as u64
    }

    /// Drops the reads of each key for which `keep` is false.
    fn retain(&mut self, mut keep: impl FnMut(&Bytes, u64, &mut Reads) -> bool) {
        let (mut key_bytes, mut items) = (0, 0);
        self.keys.retain(|key, readers| {
            readers.retain(|client, reads| keep(key, *client, reads));
            items += readers.len();
            key_bytes += if readers.is_empty() { 0 } else { key.len() };
            !readers.is_empty()
        });
        (self.key_bytes, self.items) = (key_bytes, items);
    }

    /// Drops reads of one key.
    fn retain_of(&mut self, key: &Bytes, mut keep: impl FnMut(u64, &mut Reads) -> bool) {
        let Some(readers) = self.keys.get_mut(key) else { return };
        let before = readers.len();
        readers.retain(|client, reads| keep(*client, reads));
        self.items -= before - readers.len();
        if readers.is_empty() {
            self.keys.remove(key);
            self.key_bytes -= key.len();
        }
    }
}

pub struct Tracking {
    state: Mutex<State>,
    /// True if a client is to be told of changes.
    is_active: AtomicBool,
    keys_max: AtomicUsize,
    memory: Arc<MessageMemory>,
}

/// The keys of a notice; `None` stands for all keys.
type Keys<'a> = Option<&'a [Bytes]>;

impl Tracking {
    pub fn new(memory: Arc<MessageMemory>) -> Tracking {
        Tracking {
            state: Mutex::default(),
            is_active: AtomicBool::new(false),
            keys_max: AtomicUsize::new(KEYS_MAX),
            memory,
        }
    }

    /// Sets the maximum number of keys that clients may cache.
    pub fn set_keys_max(&self, keys_max: usize) {
        self.keys_max.store(keys_max, Ordering::Relaxed);
    }

    /// Returns true if changes must be told.
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Begins or changes the tracking of a client. Its notices go to `target`, if there is one.
    pub fn begin(&self, subscriber: &Arc<Subscriber>, mode: Mode, target: Option<Arc<Subscriber>>) {
        let mut state = self.state.lock();
        let subscriber = subscriber.clone();
        state.clients.insert(subscriber.id, Tracker { subscriber, mode, target, is_broken: false });
        self.is_active.store(true, Ordering::SeqCst);
    }

    /// Ends the tracking of a client.
    pub fn end(&self, client: u64) {
        if !self.is_active() {
            return;
        }
        let mut state = self.state.lock();
        if state.clients.remove(&client).is_some_and(|tracker| !tracker.mode.broadcasts) {
            state.retain(|_, reader, _| reader != client);
        }
        self.is_active.store(!state.clients.is_empty(), Ordering::SeqCst);
    }

    /// Returns the mode of a client that is told of changes. The flag is true if its notices go to
    /// a connection that has ended.
    pub fn mode_of(&self, client: u64) -> Option<(Mode, bool)> {
        let state = self.state.lock();
        let tracker = state.clients.get(&client)?;
        Some((tracker.mode.clone(), tracker.is_broken))
    }

    /// Returns the numbers of clients, of keys, of pairs of both, and of prefixes.
    pub fn counts(&self) -> (usize, usize, usize, usize) {
        let state = self.state.lock();
        let prefixes: BTreeSet<&Bytes> =
            state.clients.values().flat_map(|tracker| &tracker.mode.prefixes).collect();
        (state.clients.len(), state.keys.len(), state.items, prefixes.len())
    }

    /// Notes keys before a read of a client.
    pub fn reads(&self, client: u64, keys: &[Bytes]) {
        let state = &mut *self.state.lock();
        if state.clients.get(&client).is_none_or(|tracker| tracker.mode.broadcasts) {
            return;
        }
        for key in keys {
            let readers = match state.keys.get_mut(key) {
                Some(readers) => readers,
                None => {
                    state.key_bytes += key.len();
                    state.keys.entry(resp::compact(key)).or_default()
                }
            };
            let before = readers.len();
            readers.entry(client).or_default().in_flight += 1;
            state.items += readers.len() - before;
        }
        self.evict(state);
    }

    /// Forgets keys while there are too many, and tells their clients.
    fn evict(&self, state: &mut State) {
        let most = self.keys_max.load(Ordering::Relaxed);
        while most > 0 && state.keys.len() > most || state.bytes() > self.memory.most() {
            // A key that is being read would be noted again.
            let is_idle = |readers: &BTreeMap<u64, Reads>| readers.values().all(|reads| reads.in_flight == 0);
            let idle = state.keys.iter().filter(|(_, readers)| is_idle(readers));
            let evicted: Vec<Bytes> = idle.take(EVICTED_AT_ONCE).map(|(key, _)| key.clone()).collect();
            if evicted.is_empty() {
                return;
            }
            evicted.iter().for_each(|key| self.key_changed(state, key, 0));
        }
    }

    /// Settles the keys of a read whose reply is encoded. `is_told` is false if this store does not
    /// learn of the changes of a slot's keys.
    pub fn settle(&self, client: u64, keys: &[Bytes], is_told: impl Fn(Slot) -> bool) {
        let state = &mut *self.state.lock();
        let mut stale = Vec::new();
        for key in keys {
            let is_told = is_told(slot_of_key(key));
            state.retain_of(key, |reader, reads| {
                if reader != client {
                    return true;
                }
                reads.in_flight = reads.in_flight.saturating_sub(1);
                reads.is_stale |= !is_told;
                let is_over = reads.in_flight == 0 && reads.is_stale;
                if is_over {
                    stale.push(key.clone());
                }
                !is_over
            });
        }
        for key in stale {
            self.tell(state, client, Some(&[key]));
        }
    }

    /// Tells clients of executed changes.
    pub fn changed(&self, record: &Record) {
        let state = &mut *self.state.lock();
        if record.is_flushed {
            state.retain(|_, _, reads| {
                reads.is_stale = true;
                reads.in_flight > 0
            });
            let all: Vec<u64> = state.clients.keys().copied().collect();
            all.into_iter().for_each(|client| self.tell(state, client, None));
        }
        // A key that has changed twice is forgotten after the first time.
        for (at, key) in record.keys.iter().enumerate() {
            self.key_changed(state, key, record.author_of(at));
        }
        if !state.clients.values().any(|tracker| tracker.mode.broadcasts) {
            return;
        }
        let keys: BTreeSet<&Bytes> = record.keys.iter().collect();
        let mut told: Vec<(u64, Vec<Bytes>)> = Vec::new();
        for (client, tracker) in state.clients.iter().filter(|(_, tracker)| tracker.mode.broadcasts) {
            let others: BTreeSet<&Bytes>;
            let keys = match tracker.mode.no_loop {
                true => {
                    let is_others = |(at, _): &(usize, &Bytes)| record.author_of(*at) != *client;
                    others = record.keys.iter().enumerate().filter(is_others).map(|(_, key)| key).collect();
                    &others
                }
                false => &keys,
            };
            for prefix in &tracker.mode.prefixes {
                let of: Vec<Bytes> =
                    keys.iter().filter(|key| key.starts_with(prefix)).map(|key| (*key).clone()).collect();
                if !of.is_empty() {
                    told.push((*client, of));
                }
            }
        }
        told.into_iter().for_each(|(client, keys)| self.tell(state, client, Some(&keys)));
    }

    /// Forgets the keys of slots whose changes this store may have missed, and tells their clients,
    /// and those that are told of all changes, that all keys may have changed.
    pub fn lost(&self, is_lost: impl Fn(Slot) -> bool) {
        let state = &mut *self.state.lock();
        let broadcast = state.clients.iter().filter(|(_, tracker)| tracker.mode.broadcasts);
        let mut told: BTreeSet<u64> = broadcast.map(|(client, _)| *client).collect();
        state.retain(|key, client, reads| {
            if !is_lost(slot_of_key(key)) {
                return true;
            }
            told.insert(client);
            reads.is_stale = true;
            reads.in_flight > 0
        });
        // One notice for each client: those for each key could be more than a client may be behind.
        told.into_iter().for_each(|client| self.tell(state, client, None));
    }

    /// Tells the clients that may have cached a key of its change by the client `author`, or 0.
    fn key_changed(&self, state: &mut State, key: &Bytes, author: u64) {
        let has_no_loop = state.clients.get(&author).is_some_and(|tracker| tracker.mode.no_loop);
        let mut told = Vec::new();
        state.retain_of(key, |client, reads| {
            if has_no_loop && client == author {
                // Its replies come in the order of its commands, so it knows which of them are
                // older than its change.
                return reads.in_flight > 0;
            }
            told.push(client);
            reads.is_stale = true;
            reads.in_flight > 0
        });
        told.into_iter().for_each(|client| self.tell(state, client, Some(std::slice::from_ref(key))));
    }

    /// Sends a notice to a client, or to the connection that gets its notices.
    fn tell(&self, state: &mut State, client: u64, keys: Keys<'_>) {
        let Some(tracker) = state.clients.get_mut(&client) else { return };
        let receiver = match &tracker.target {
            None => &tracker.subscriber,
            Some(target) if !target.has_ended() => target,
            Some(target) => {
                tracker.is_broken = true;
                if tracker.subscriber.uses_resp3() {
                    let id = i64::try_from(target.id).unwrap_or(i64::MAX);
                    let broken = vec![Reply::bulk("tracking-redir-broken"), Reply::Int(id)];
                    tracker.subscriber.give(&self.encode(Protocol::Resp3, broken));
                }
                return;
            }
        };
        let keys = match keys {
            Some(keys) => Reply::Array(keys.iter().cloned().map(Reply::Bulk).collect()),
            None => Reply::Nil,
        };
        let message = if receiver.uses_resp3() {
            self.encode(Protocol::Resp3, vec![Reply::bulk("invalidate"), keys])
        } else if tracker.target.is_some() && receiver.is_subscribed() {
            let channel = Reply::bulk(CHANNEL);
            self.encode(Protocol::Resp2, vec![Reply::bulk("message"), channel, keys])
        } else {
            // Without pushes there is no way to tell.
            return;
        };
        receiver.give(&message);
    }

    fn encode(&self, protocol: Protocol, words: Vec<Reply>) -> Arc<Message> {
        let mut head = BytesMut::new();
        resp::encode(&Reply::Push(words), protocol, &mut head);
        Message::new(head.freeze(), None, &self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_memory::ClientMemory;

    struct Here {
        tracking: Tracking,
        client: Arc<Subscriber>,
    }

    impl Here {
        fn new(mode: Mode) -> Here {
            let tracking = Tracking::new(MessageMemory::new(ClientMemory::new(1 << 30), 1 << 20));
            let client = Subscriber::new(1);
            client.set_resp3(true);
            tracking.begin(&client, mode, None);
            Here { tracking, client }
        }

        fn change(&self, keys: &[&'static str]) {
            let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
            let mut record = Record::default();
            record.keys = keys;
            self.tracking.changed(&record);
        }

        /// Returns the keys of the notices that have come.
        fn told(&self) -> Vec<String> {
            let mut told = Vec::new();
            let take = |message: &Message| {
                let mut text = BytesMut::new();
                message.parts(|part| text.extend_from_slice(part));
                let Ok(Some(Reply::Push(parts))) = resp::ReplyDecoder::default().decode(&mut text) else {
                    panic!("no push")
                };
                assert_eq!(parts[0], Reply::bulk("invalidate"));
                told.push(match &parts[1] {
                    Reply::Array(keys) => keys
                        .iter()
                        .map(|key| match key {
                            Reply::Bulk(key) => String::from_utf8_lossy(key).into_owned(),
                            other => panic!("{other:?}"),
                        })
                        .collect::<Vec<_>>()
                        .join(" "),
                    _ => "all".to_owned(),
                });
                true
            };
            self.client.take(take).unwrap();
            told
        }

        fn read(&self, key: &'static str) {
            let keys = [Bytes::from_static(key.as_bytes())];
            self.tracking.reads(1, &keys);
            self.tracking.settle(1, &keys, |_| true);
        }
    }

    #[test]
    fn the_first_change_after_a_read_is_told_once() {
        let here = Here::new(Mode::default());
        here.read("a");
        here.change(&["a", "b"]);
        here.change(&["a"]);
        assert_eq!(here.told(), ["a"]);
        here.read("a");
        let mut record = Record::default();
        record.flush();
        here.tracking.changed(&record);
        here.change(&["a"]);
        assert_eq!(here.told(), ["all"]);
        here.read("a");
        here.tracking.end(1);
        assert!(!here.tracking.is_active());
        assert_eq!(here.tracking.counts(), (0, 0, 0, 0));
    }

    #[test]
    fn a_change_during_a_read_is_told_before_and_behind_the_reply() {
        let here = Here::new(Mode::default());
        let keys = [Bytes::from("a")];
        here.tracking.reads(1, &keys);
        here.tracking.reads(1, &keys);
        here.change(&["a"]);
        assert_eq!(here.told(), ["a"]);
        here.tracking.settle(1, &keys, |_| true);
        assert_eq!(here.told(), Vec::<String>::new());
        here.tracking.settle(1, &keys, |_| true);
        assert_eq!(here.told(), ["a"]);
        here.change(&["a"]);
        assert_eq!(here.told(), Vec::<String>::new());
    }

    #[test]
    fn keys_whose_changes_do_not_come_here_are_told_behind_each_reply() {
        let here = Here::new(Mode::default());
        let keys = [Bytes::from("a")];
        here.tracking.reads(1, &keys);
        here.tracking.settle(1, &keys, |_| false);
        assert_eq!(here.told(), ["a"]);
        here.read("b");
        here.read("c");
        here.tracking.lost(|slot| slot == slot_of_key(b"b"));
        assert_eq!(here.told(), ["all"]);
        here.change(&["b", "c"]);
        assert_eq!(here.told(), ["c"], "the other key is still cached");
    }

    #[test]
    fn the_table_has_at_most_its_number_of_keys_and_evicted_ones_are_told() {
        let here = Here::new(Mode::default());
        here.tracking.set_keys_max(2);
        for key in ["a", "b", "c", "d", "e"] {
            here.read(key);
        }
        assert!(here.tracking.counts().1 <= 2);
        let told = here.told();
        here.change(&["a", "b", "c", "d", "e"]);
        let all: BTreeSet<String> = told.into_iter().chain(here.told()).collect();
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn broadcasts_tell_the_changed_keys_of_each_prefix() {
        let prefixes = BTreeSet::from([Bytes::from("foo"), Bytes::from("bar")]);
        let here = Here::new(Mode { broadcasts: true, prefixes, ..Mode::default() });
        here.read("foo1");
        here.change(&["foo1", "bar1", "x", "foo2", "foo1"]);
        assert_eq!(here.told(), ["bar1", "foo1 foo2"]);
    }

    #[test]
    fn notices_go_to_the_other_connection_while_it_lasts() {
        let here = Here::new(Mode::default());
        let target = Subscriber::new(2);
        here.tracking.begin(
            &here.client,
            Mode { redirect: Some(2), ..Mode::default() },
            Some(target.clone()),
        );
        here.read("a");
        here.change(&["a"]);
        assert!(!target.has_mail(), "it has RESP2 and no subscription");
        target.set_count(command::ChannelKind::Channel, 1);
        here.read("a");
        here.change(&["a"]);
        let mut text = Vec::new();
        let take = |message: &Message| {
            message.parts(|part| text.extend_from_slice(part));
            true
        };
        target.take(take).unwrap();
        assert_eq!(text, b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\na\r\n");
        target.set_ended();
        here.read("a");
        here.change(&["a"]);
        assert!(here.client.has_mail() && here.tracking.mode_of(1).unwrap().1);
    }
}
