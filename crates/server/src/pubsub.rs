//! Publish and subscribe: the subscriptions of this store's clients, and the delivery of messages.
//!
//! The threads that publish put a message into the mailbox of each receiver (`mailbox`), under one
//! lock, so all receivers get the messages in the same order. The loop that serves a receiver moves
//! them into the socket. `spread` has the messages for the clients of other stores.

pub mod mailbox;
pub mod monitors;
pub mod notices;
pub mod spread;
pub mod tracking;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use command::{glob_matches, ChannelKind};
use parking_lot::Mutex;
use resp::Protocol;
use types::Slot;

use mailbox::{Message, MessageMemory, Subscriber};
use monitors::Monitors;
use tracking::Tracking;

type Subscribers = BTreeMap<u64, Arc<Subscriber>>;

#[derive(Default)]
struct State {
    channels: HashMap<Bytes, Subscribers>,
    patterns: BTreeMap<Bytes, Subscribers>,
    shard_channels: HashMap<Bytes, Subscribers>,
    /// The subscriptions of each subscriber.
    of_clients: HashMap<u64, BTreeSet<(ChannelKind, Bytes)>>,
    /// The memory that all subscriptions take, in bytes.
    bytes: u64,
}

/// Memory of a subscription in addition to its name, in bytes.
const SUBSCRIPTION_BYTES: u64 = 256;

fn bytes_of(name: &[u8]) -> u64 {
    name.len() as u64 + SUBSCRIPTION_BYTES
}

impl State {
    fn of(&self, kind: ChannelKind, name: &[u8]) -> Option<&Subscribers> {
        match kind {
            ChannelKind::Channel => self.channels.get(name),
            ChannelKind::Pattern => self.patterns.get(name),
            ChannelKind::Shard => self.shard_channels.get(name),
        }
    }

    fn add(&mut self, kind: ChannelKind, name: Bytes, subscriber: &Arc<Subscriber>) {
        let subscribers = match kind {
            ChannelKind::Channel => self.channels.entry(name).or_default(),
            ChannelKind::Pattern => self.patterns.entry(name).or_default(),
            ChannelKind::Shard => self.shard_channels.entry(name).or_default(),
        };
        subscribers.insert(subscriber.id, subscriber.clone());
    }

    fn remove(&mut self, kind: ChannelKind, name: &Bytes, subscriber: u64) {
        let is_last = |subscribers: &mut Subscribers| {
            subscribers.remove(&subscriber);
            subscribers.is_empty()
        };
        match kind {
            ChannelKind::Channel if self.channels.get_mut(name).is_some_and(is_last) => {
                drop(self.channels.remove(name));
            }
            ChannelKind::Pattern if self.patterns.get_mut(name).is_some_and(is_last) => {
                drop(self.patterns.remove(name));
            }
            ChannelKind::Shard if self.shard_channels.get_mut(name).is_some_and(is_last) => {
                drop(self.shard_channels.remove(name));
            }
            ChannelKind::Channel | ChannelKind::Pattern | ChannelKind::Shard => {}
        }
    }

    fn names_of(&self, kind: ChannelKind, subscriber: u64) -> Vec<Bytes> {
        let all = self.of_clients.get(&subscriber).into_iter().flatten();
        all.filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect()
    }
}

/// The end of a subscription, or its absence.
#[derive(Debug, PartialEq, Eq)]
pub struct Unsubscribed {
    /// The channel or pattern; `None` if the client had none.
    pub name: Option<Bytes>,
    /// The number of subscriptions that the client still has, as Redis counts them for this kind.
    pub left: u32,
}

pub struct PubSub {
    state: Mutex<State>,
    /// Number of channels, patterns and shard channels with subscribers. Without any, publishing
    /// takes no lock.
    names: AtomicUsize,
    memory: Arc<MessageMemory>,
    /// The clients that are told of all commands.
    pub monitors: Monitors,
    /// The clients that cache keys.
    pub tracking: Tracking,
    /// Number of subscribers that were ended because they did not read.
    pub ended: AtomicU64,
}

/// Returns the number that confirmations state: Redis counts shard channels apart.
fn counted(subscriber: &Subscriber, kind: ChannelKind) -> u32 {
    match kind {
        ChannelKind::Shard => subscriber.count(ChannelKind::Shard),
        ChannelKind::Channel | ChannelKind::Pattern => {
            subscriber.count(ChannelKind::Channel) + subscriber.count(ChannelKind::Pattern)
        }
    }
}

impl PubSub {
    pub fn new(memory: Arc<MessageMemory>) -> PubSub {
        PubSub {
            state: Mutex::default(),
            names: AtomicUsize::new(0),
            tracking: Tracking::new(memory.clone()),
            monitors: Monitors::new(memory.clone()),
            memory,
            ended: AtomicU64::new(0),
        }
    }

    /// Returns one for tests, whose messages may take any memory.
    #[cfg(test)]
    pub fn unlimited() -> Arc<PubSub> {
        let clients = crate::client_memory::ClientMemory::new(u64::MAX);
        Arc::new(PubSub::new(MessageMemory::new(clients, u64::MAX / 4)))
    }

    pub fn memory(&self) -> &Arc<MessageMemory> {
        &self.memory
    }

    /// Changes the memory of messages, and of what clients cache and subscribe to.
    pub fn set_message_budget(&self, bytes: u64) {
        self.memory.set_most(bytes);
    }

    /// Returns true if a client has a subscription of any kind.
    pub fn has_subscribers(&self) -> bool {
        self.names.load(Ordering::Relaxed) > 0
    }

    fn recount(&self, state: &State) {
        let names = state.channels.len() + state.patterns.len() + state.shard_channels.len();
        self.names.store(names, Ordering::SeqCst);
    }

    /// Adds a subscription. Returns the number of subscriptions that the confirmation states, or
    /// `None` if those of all clients take too much memory.
    pub fn subscribe(&self, subscriber: &Arc<Subscriber>, kind: ChannelKind, name: &Bytes) -> Option<u32> {
        let state = &mut *self.state.lock();
        let bytes = state.bytes.saturating_add(bytes_of(name));
        let own = state.of_clients.get(&subscriber.id);
        if own.is_none_or(|own| !own.contains(&(kind, name.clone()))) {
            if bytes > self.memory.most() {
                return None;
            }
            let name = resp::compact(name);
            state.bytes = bytes;
            state.of_clients.entry(subscriber.id).or_default().insert((kind, name.clone()));
            subscriber.set_count(kind, subscriber.count(kind) as usize + 1);
            state.add(kind, name, subscriber);
            self.recount(state);
        }
        Some(counted(subscriber, kind))
    }

    /// Ends subscriptions of a client: those with these names, or all of a kind if there are none.
    pub fn unsubscribe(
        &self,
        subscriber: &Subscriber,
        kind: ChannelKind,
        names: &[Bytes],
    ) -> Vec<Unsubscribed> {
        let state = &mut *self.state.lock();
        let all;
        let names = match names {
            [] => {
                all = state.names_of(kind, subscriber.id);
                &all[..]
            }
            names => names,
        };
        if names.is_empty() {
            return vec![Unsubscribed { name: None, left: counted(subscriber, kind) }];
        }
        let ended = names
            .iter()
            .map(|name| {
                self.end_one(state, subscriber, kind, name);
                Unsubscribed { name: Some(name.clone()), left: counted(subscriber, kind) }
            })
            .collect();
        self.recount(state);
        ended
    }

    fn end_one(&self, state: &mut State, subscriber: &Subscriber, kind: ChannelKind, name: &Bytes) {
        let Some(own) = state.of_clients.get_mut(&subscriber.id) else { return };
        if !own.remove(&(kind, name.clone())) {
            return;
        }
        if own.is_empty() {
            state.of_clients.remove(&subscriber.id);
        }
        state.bytes -= bytes_of(name);
        subscriber.set_count(kind, (subscriber.count(kind) as usize).saturating_sub(1));
        state.remove(kind, name, subscriber.id);
    }

    /// Ends all subscriptions of a client, and the notices of keys that it caches.
    pub fn leave(&self, subscriber: &Subscriber) {
        self.tracking.end(subscriber.id);
        self.monitors.remove(subscriber);
        if subscriber.is_subscribed() {
            for kind in [ChannelKind::Channel, ChannelKind::Pattern, ChannelKind::Shard] {
                self.unsubscribe(subscriber, kind, &[]);
            }
        }
    }

    /// Sends a message to the subscribers of a channel or shard channel, and to those of patterns
    /// that match the channel. Returns the number of receivers; a client that gets the message by
    /// several subscriptions counts for each.
    pub fn publish(&self, kind: ChannelKind, channel: &Bytes, payload: &Bytes) -> usize {
        if !self.has_subscribers() {
            return 0;
        }
        let state = self.state.lock();
        let mut receivers = 0;
        let mut give = |subscribers: &Subscribers, words: &[&[u8]]| {
            let mut encoded: [Option<Arc<Message>>; 2] = [None, None];
            for subscriber in subscribers.values() {
                let uses_resp3 = subscriber.uses_resp3();
                let message = encoded[usize::from(uses_resp3)]
                    .get_or_insert_with(|| self.encode(uses_resp3, words, payload));
                subscriber.give(message);
            }
            receivers += subscribers.len();
        };
        if let Some(subscribers) = state.of(kind, channel) {
            let word: &[u8] = if kind == ChannelKind::Shard { b"smessage" } else { b"message" };
            give(subscribers, &[word, channel]);
        }
        if kind == ChannelKind::Channel {
            for (pattern, subscribers) in &state.patterns {
                if glob_matches(pattern, channel) {
                    give(subscribers, &[b"pmessage", pattern, channel]);
                }
            }
        }
        receivers
    }

    fn encode(&self, uses_resp3: bool, words: &[&[u8]], payload: &Bytes) -> Arc<Message> {
        let protocol = if uses_resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        let shares = Message::shares(payload.len());
        let text: usize = words.iter().map(|word| word.len() + 16).sum();
        let mut head = BytesMut::with_capacity(text + 32 + if shares { 0 } else { payload.len() });
        resp::encode_push_length(words.len() + 1, protocol, &mut head);
        words.iter().for_each(|word| resp::encode_bulk(word, &mut head));
        if shares {
            resp::encode_bulk_length(payload.len(), &mut head);
            return Message::new(head.freeze(), Some(payload.clone()), &self.memory);
        }
        resp::encode_bulk(payload, &mut head);
        Message::new(head.freeze(), None, &self.memory)
    }

    /// Ends the subscriptions to shard channels whose slots this store no longer leads, and tells
    /// the subscribers.
    pub fn end_shards(&self, is_gone: impl Fn(Slot) -> bool) {
        if !self.has_subscribers() {
            return;
        }
        let state = &mut *self.state.lock();
        let gone: Vec<Bytes> =
            state.shard_channels.keys().filter(|name| is_gone(types::slot_of_key(name))).cloned().collect();
        if gone.is_empty() {
            return;
        }
        for name in gone {
            let subscribers = state.shard_channels.get(&name).cloned().unwrap_or_default();
            for subscriber in subscribers.values() {
                self.end_one(state, subscriber, ChannelKind::Shard, &name);
                let protocol = if subscriber.uses_resp3() { Protocol::Resp3 } else { Protocol::Resp2 };
                let left = i64::from(counted(subscriber, ChannelKind::Shard));
                let told = [resp::Reply::bulk("sunsubscribe"), resp::Reply::Bulk(name.clone())];
                let told = resp::Reply::Push(told.into_iter().chain([resp::Reply::Int(left)]).collect());
                let mut head = BytesMut::new();
                resp::encode(&told, protocol, &mut head);
                subscriber.give(&Message::new(head.freeze(), None, &self.memory));
            }
        }
        self.recount(state);
    }

    /// Returns the channels or shard channels with subscribers that match a pattern.
    pub fn channels(&self, kind: ChannelKind, pattern: Option<&[u8]>) -> Vec<Bytes> {
        let state = self.state.lock();
        let names = match kind {
            ChannelKind::Shard => &state.shard_channels,
            ChannelKind::Channel | ChannelKind::Pattern => &state.channels,
        };
        let matches = |name: &&Bytes| pattern.is_none_or(|pattern| glob_matches(pattern, name));
        names.keys().filter(matches).cloned().collect()
    }

    /// Returns the number of subscribers of a channel, without those of patterns.
    pub fn count(&self, kind: ChannelKind, name: &[u8]) -> usize {
        self.state.lock().of(kind, name).map_or(0, BTreeMap::len)
    }

    /// Returns the numbers of channels, patterns and shard channels with subscribers.
    pub fn totals(&self) -> (usize, usize, usize) {
        let state = self.state.lock();
        (state.channels.len(), state.patterns.len(), state.shard_channels.len())
    }

    /// Returns true if `permits` is true for each subscription of a client.
    pub fn may_keep(&self, subscriber: &Subscriber, permits: impl Fn(&[u8], bool) -> bool) -> bool {
        let state = self.state.lock();
        let mut own = state.of_clients.get(&subscriber.id).into_iter().flatten();
        own.all(|(kind, name)| permits(name, *kind == ChannelKind::Pattern))
    }
}

#[cfg(test)]
mod tests;
