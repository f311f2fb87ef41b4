//! The messages that wait for one subscriber, and their bounds.
//!
//! All receivers of a message share it. A subscriber that does not read is ended when its messages
//! exceed `client-output-buffer-limit pubsub`, or when the messages of all subscribers exceed their
//! share of the memory for clients: then those end that are behind.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use command::ChannelKind;
use parking_lot::Mutex;

use crate::client_memory::ClientMemory;
use crate::output_limits::OutputLimit;

/// Payloads with fewer bytes are copied next to what precedes them, so that they do not hold the
/// larger buffer in which they arrived.
const COPIED_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes that a subscriber may be behind while the memory for messages is short.
const BEHIND_BYTES_MAX: usize = 64 << 10;
/// Memory of a message in addition to its text, in bytes.
const MESSAGE_BYTES: usize = 96;

/// The memory of the messages that are not delivered.
pub struct MessageMemory {
    clients: Arc<ClientMemory>,
    used: AtomicU64,
    /// The bytes above which subscribers that are behind are ended. At twice as many, no subscriber
    /// may have more than one message.
    most: AtomicU64,
}

impl MessageMemory {
    pub fn new(clients: Arc<ClientMemory>, most: u64) -> Arc<MessageMemory> {
        Arc::new(MessageMemory { clients, used: AtomicU64::new(0), most: AtomicU64::new(most) })
    }

    #[cfg(test)]
    pub fn clients(&self) -> &ClientMemory {
        &self.clients
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Returns true if publishers should wait until subscribers have taken messages.
    pub fn is_short(&self) -> bool {
        self.used() > self.most()
    }
}

/// An encoded message, shared by its receivers.
pub struct Message {
    /// The message up to its last argument, or all of a small one.
    head: Bytes,
    /// The last argument of a large message.
    payload: Option<Bytes>,
    memory: Arc<MessageMemory>,
}

impl Message {
    /// Creates a message from its encoding. If `payload` is there, it ends the message.
    pub fn new(head: Bytes, payload: Option<Bytes>, memory: &Arc<MessageMemory>) -> Arc<Message> {
        let message = Message { head, payload, memory: memory.clone() };
        memory.used.fetch_add(message.bytes() as u64, Ordering::Relaxed);
        memory.clients.add(message.bytes() as u64);
        Arc::new(message)
    }

    /// Returns true if a payload of this length is shared instead of copied.
    pub fn shares(payload: usize) -> bool {
        payload >= COPIED_BYTES_MAX
    }

    fn bytes(&self) -> usize {
        self.head.len() + self.payload.as_ref().map_or(0, Bytes::len) + MESSAGE_BYTES
    }

    /// Calls `take` with each part of the message.
    pub fn parts(&self, mut take: impl FnMut(&Bytes)) {
        take(&self.head);
        if let Some(payload) = &self.payload {
            take(payload);
            take(&Bytes::from_static(b"\r\n"));
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes() as u64, Ordering::Relaxed);
        self.memory.clients.remove(self.bytes() as u64);
    }
}

type Wake = Box<dyn Fn() + Send>;

#[derive(Default)]
struct Mailbox {
    messages: VecDeque<Arc<Message>>,
    bytes: usize,
    /// The time since when the messages have exceeded the soft limit.
    over_soft_since: Option<Instant>,
    /// True if the subscriber must end. It gets no more messages.
    is_overfull: bool,
    /// True if the serving loop knows that there are messages.
    is_announced: bool,
    wake: Option<Wake>,
}

/// A connection, as seen by those that send it messages.
pub struct Subscriber {
    /// The number of the connection.
    pub id: u64,
    uses_resp3: AtomicBool,
    /// Numbers of subscriptions, by their kinds.
    counts: [AtomicU32; 3],
    /// The connection to which notices of changed keys go: -1 without such notices, 0 for this one.
    redirect: AtomicI64,
    /// True if it is told of all changes of keys.
    is_told_all: AtomicBool,
    is_monitor: AtomicBool,
    has_ended: AtomicBool,
    has_mail: AtomicBool,
    mailbox: Mutex<Mailbox>,
}

/// The subscriber must end, because it does not read its messages.
#[derive(Debug)]
pub struct Overfull;

impl Subscriber {
    pub fn new(id: u64) -> Arc<Subscriber> {
        Arc::new(Subscriber {
            id,
            uses_resp3: AtomicBool::new(false),
            counts: Default::default(),
            redirect: AtomicI64::new(-1),
            is_told_all: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            has_mail: AtomicBool::new(false),
            mailbox: Mutex::default(),
        })
    }

    pub fn uses_resp3(&self) -> bool {
        self.uses_resp3.load(Ordering::Relaxed)
    }

    pub fn set_resp3(&self, uses_resp3: bool) {
        self.uses_resp3.store(uses_resp3, Ordering::Relaxed);
    }

    /// Returns the number of subscriptions of a kind.
    pub fn count(&self, kind: ChannelKind) -> u32 {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    pub fn set_count(&self, kind: ChannelKind, count: usize) {
        self.counts[kind as usize].store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Notes for `CLIENT LIST` how the client is told of changes of keys.
    pub fn set_tracking(&self, redirect: Option<u64>, is_told_all: bool) {
        self.redirect.store(redirect.map_or(-1, |id| i64::try_from(id).unwrap_or(0)), Ordering::Relaxed);
        self.is_told_all.store(is_told_all, Ordering::Relaxed);
    }

    /// Returns the `redir` of `CLIENT LIST`, and true if the client is told of all changes.
    pub fn tracking(&self) -> (i64, bool) {
        (self.redirect.load(Ordering::Relaxed), self.is_told_all.load(Ordering::Relaxed))
    }

    /// Notes that the client is told of all commands.
    pub fn set_monitor(&self, is_monitor: bool) {
        self.is_monitor.store(is_monitor, Ordering::Relaxed);
    }

    pub fn is_monitor(&self) -> bool {
        self.is_monitor.load(Ordering::Relaxed)
    }

    /// Notes that the connection has ended.
    pub fn set_ended(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Returns true if the connection has subscriptions.
    pub fn is_subscribed(&self) -> bool {
        self.counts.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Returns true if messages may come although the client sends nothing.
    pub fn expects_messages(&self) -> bool {
        self.is_subscribed() || self.is_monitor()
    }

    /// Registers `wake`, which makes the serving loop look for messages. Each loop that takes the
    /// connection calls this, and then looks itself.
    pub fn served_by(&self, wake: impl Fn() + Send + 'static) {
        self.mailbox.lock().wake = Some(Box::new(wake));
    }

    /// Adds a message.
    pub fn give(&self, message: &Arc<Message>) {
        let limit = message.memory.clients.limits().pubsub;
        let mailbox = &mut *self.mailbox.lock();
        if mailbox.is_overfull {
            return;
        }
        let before = mailbox.bytes;
        mailbox.bytes += message.bytes();
        mailbox.messages.push_back(message.clone());
        mailbox.is_overfull = mailbox.exceeds(&limit, before, message);
        if mailbox.is_overfull {
            mailbox.messages = VecDeque::new();
            mailbox.bytes = 0;
        }
        self.has_mail.store(true, Ordering::Release);
        let is_announced = std::mem::replace(&mut mailbox.is_announced, true);
        if let (true, Some(wake)) = (mailbox.is_overfull || !is_announced, &mailbox.wake) {
            wake();
        }
    }

    pub fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// Gives the waiting messages, oldest first, to `take` until it refuses one.
    ///
    /// # Errors
    /// [`Overfull`] if the subscriber must end.
    pub fn take(&self, mut take: impl FnMut(&Message) -> bool) -> Result<(), Overfull> {
        let mailbox = &mut *self.mailbox.lock();
        if mailbox.is_overfull {
            return Err(Overfull);
        }
        while let Some(message) = mailbox.messages.front() {
            if !take(message) {
                return Ok(());
            }
            mailbox.bytes -= message.bytes();
            mailbox.messages.pop_front();
        }
        mailbox.messages = VecDeque::new();
        mailbox.over_soft_since = None;
        mailbox.is_announced = false;
        self.has_mail.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the number of messages that wait, and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        let mailbox = self.mailbox.lock();
        (mailbox.messages.len(), mailbox.bytes)
    }
}

impl Mailbox {
    /// Returns true if the messages exceed a limit. There were `before` bytes before this message.
    fn exceeds(&mut self, limit: &OutputLimit, before: usize, message: &Message) -> bool {
        if limit.is_exceeded(self.bytes as u64, Instant::now, &mut self.over_soft_since) {
            return true;
        }
        let memory = &message.memory;
        let others = memory.used().saturating_sub(message.bytes() as u64);
        others > memory.most() && before > BEHIND_BYTES_MAX || others > 2 * memory.most() && before > 0
    }
}
