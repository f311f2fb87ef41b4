//! The memory of clients' requests and replies, within one budget.
//!
//! A connection that would exceed the budget waits before it reads, so the client's socket fills. A
//! single request may be larger than the budget, and so may the sum of many partly received
//! requests. Therefore one connection at a time continues without room until there is room for all;
//! the connection that has waited longest is first. Only replies are counted without a reservation,
//! because their size is unknown before they exist.
//!
//! A client that neither sends nor reads for `request-timeout` while others wait for memory is
//! closed (`close_stalled_clients` in `reactor`), and one beyond `client-output-buffer-limit`
//! always.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_socket::HANDSHAKE_MEMORY;
use crate::output_limits::OutputLimits;

/// Reply size below which no estimate is kept, in bytes.
const SMALL_REPLY_BYTES: usize = 4096;
/// Assumed size of a reply before any was seen, in bytes.
const REPLY_BYTES_FIRST: usize = 64 << 10;

pub struct ClientMemory {
    budget: AtomicU64,
    used: AtomicU64,
    waiting: AtomicUsize,
    /// True while one connection continues although there is no room.
    turn: AtomicBool,
    /// The bytes per reply in the recent batch with the largest replies.
    reply_bytes: AtomicUsize,
    reads: ArcSwap<Reads>,
    /// The limits of what waits for one client.
    limits: ArcSwap<OutputLimits>,
}

/// Permits for reads whose replies do not exist yet, in KiB.
struct Reads {
    permits: Arc<Semaphore>,
    kib: usize,
}

impl Reads {
    fn of(budget: u64) -> Reads {
        let kib = ((budget / 4) >> 10).clamp(1, 1 << 20) as usize;
        Reads { permits: Arc::new(Semaphore::new(kib)), kib }
    }
}

impl ClientMemory {
    pub fn new(budget: u64) -> Arc<ClientMemory> {
        Arc::new(ClientMemory {
            budget: AtomicU64::new(budget),
            used: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            turn: AtomicBool::new(false),
            reply_bytes: AtomicUsize::new(REPLY_BYTES_FIRST),
            reads: ArcSwap::from_pointee(Reads::of(budget)),
            limits: ArcSwap::default(),
        })
    }

    fn budget(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// Changes the budget. Connections that hold more keep it until they need less; reads under way
    /// count towards the budget that they began with.
    pub fn set_budget(&self, budget: u64) {
        self.budget.store(budget, Ordering::Relaxed);
        self.reads.store(Arc::new(Reads::of(budget)));
    }

    pub fn limits(&self) -> OutputLimits {
        **self.limits.load()
    }

    pub fn set_limits(&self, limits: OutputLimits) {
        self.limits.store(Arc::new(limits));
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns true if clients hold so much that no connection with TLS begins, and none goes on
    /// that sends much in its handshake. Without other connections there is room for all handshakes
    /// that are not long.
    pub fn has_no_room_for_tls(&self) -> bool {
        self.used() + HANDSHAKE_MEMORY as u64 > self.budget() / 8 * 5
    }

    /// Returns true if a connection waits for memory that other connections hold or will soon hold.
    pub fn is_short(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 || self.used() > self.budget()
    }

    /// Acquires a permit to read rows of unknown size for this many commands. Its weight is their
    /// likely size.
    pub async fn reading(&self, commands: usize) -> Option<OwnedSemaphorePermit> {
        let likely = commands.saturating_mul(self.reply_bytes.load(Ordering::Relaxed).max(SMALL_REPLY_BYTES));
        let reads = self.reads.load_full();
        let weight = (likely >> 10).min(reads.kib) as u32;
        reads.permits.clone().acquire_many_owned(weight).await.ok()
    }

    /// Records the size of replies.
    pub fn replied(&self, replies: usize, bytes: usize) {
        let reply_bytes = bytes / replies.max(1);
        let largest = self.reply_bytes.load(Ordering::Relaxed);
        if reply_bytes.max(largest) >= SMALL_REPLY_BYTES {
            self.reply_bytes.store(reply_bytes.max(largest - largest / 64), Ordering::Relaxed);
        }
    }

    /// Counts memory that no connection reserves: messages for subscribers.
    pub fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::SeqCst);
    }

    pub fn remove(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.budget());
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, taken).is_ok()
    }
}

/// The memory that one connection holds.
pub struct Held {
    memory: Arc<ClientMemory>,
    bytes: u64,
    /// True if the connection continues although there is no room.
    has_turn: bool,
    /// The bytes of a reply in the last batch.
    reply_bytes: Option<usize>,
    /// True if the connection waits for memory.
    in_line: bool,
}

impl Held {
    pub fn new(memory: Arc<ClientMemory>) -> Held {
        Held { memory, bytes: 0, has_turn: false, reply_bytes: None, in_line: false }
    }

    /// Sets the connection's memory to `bytes` and returns true, if there is room. One connection
    /// at a time, the one that has waited longest, needs no room.
    pub fn try_hold(&mut self, bytes: u64, has_waited_longest: bool) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|_| !self.has_turn) else {
            self.count(bytes);
            return true;
        };
        if self.memory.take(more) {
            self.bytes = bytes;
            return true;
        }
        if has_waited_longest && !self.memory.turn.swap(true, Ordering::SeqCst) {
            self.has_turn = true;
            self.count(bytes);
            return true;
        }
        false
    }

    /// Sets the connection's memory to `bytes`, even without room.
    pub fn count(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(0) => {}
            Some(more) => drop(self.memory.used.fetch_add(more, Ordering::SeqCst)),
            None => drop(self.memory.used.fetch_sub(self.bytes - bytes, Ordering::SeqCst)),
        }
        self.bytes = bytes;
        if self.has_turn && (bytes == 0 || self.memory.used() <= self.memory.budget()) {
            self.has_turn = false;
            self.memory.turn.store(false, Ordering::SeqCst);
        }
    }

    /// Records whether the connection waits for memory.
    pub fn set_in_line(&mut self, waits: bool) {
        if waits != std::mem::replace(&mut self.in_line, waits) {
            match waits {
                true => self.memory.waiting.fetch_add(1, Ordering::SeqCst),
                false => self.memory.waiting.fetch_sub(1, Ordering::SeqCst),
            };
        }
    }

    pub fn is_in_line(&self) -> bool {
        self.in_line
    }

    /// Returns true if others wait, and this connection holds memory that they could use.
    pub fn holds_contended_memory(&self) -> bool {
        self.bytes > 0 && self.memory.is_short()
    }

    /// Returns the likely size of one reply: the size in the last batch or, before the first batch,
    /// the size of other connections' recent replies.
    pub fn reply_bytes(&self) -> usize {
        self.reply_bytes.unwrap_or_else(|| self.memory.reply_bytes.load(Ordering::Relaxed))
    }

    /// Records the size of a batch's replies.
    pub fn replied(&mut self, replies: usize, bytes: usize) {
        self.reply_bytes = Some(bytes / replies.max(1));
        self.memory.replied(replies, bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set_in_line(false);
        self.count(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_find_no_room_wait_but_for_one() {
        let memory = ClientMemory::new(100);
        let [mut first, mut second, mut third] = [(); 3].map(|()| Held::new(memory.clone()));
        assert!(first.try_hold(60, false));
        assert!(!second.try_hold(70, false));
        // The connection has waited longest, and it need not wait for the others to end.
        assert!(second.try_hold(70, true));
        assert_eq!(memory.used(), 130);
        assert!(memory.is_short());
        // The connection that has the turn may ask for more. No other connection gets a turn.
        assert!(second.try_hold(90, false));
        assert!(!third.try_hold(30, true));
        second.count(0);
        assert!(third.try_hold(30, false));
        assert_eq!((memory.used(), memory.is_short()), (90, false));
        first.count(10);
        drop(third);
        assert_eq!(memory.used(), 10);
    }

    #[tokio::test]
    async fn a_changed_budget_counts_from_then_on() {
        let memory = ClientMemory::new(8 << 20);
        let [mut first, mut second] = [(); 2].map(|()| Held::new(memory.clone()));
        assert!(first.try_hold(6 << 20, false));
        let read = memory.reading(1).await;
        memory.set_budget(4 << 20);
        assert!(memory.is_short());
        assert!(!second.try_hold(1, false));
        // It asks for all permits of the new budget, while a read of the old one is under way.
        assert!(memory.reading(1 << 20).await.is_some());
        drop(read);
        first.count(1 << 20);
        assert!(second.try_hold(3 << 20, false));
        memory.set_budget(16 << 20);
        assert!(first.try_hold(12 << 20, false));
    }

    #[test]
    fn a_turn_ends_with_its_connection() {
        let memory = ClientMemory::new(100);
        let [mut first, mut second] = [(); 2].map(|()| Held::new(memory.clone()));
        assert!(first.try_hold(200, true));
        assert!(!second.try_hold(200, true));
        drop(first);
        assert!(second.try_hold(200, true));
    }

    #[test]
    fn who_asks_for_the_first_time_is_taken_to_ask_for_what_others_do() {
        let memory = ClientMemory::new(1 << 20);
        let mut held = Held::new(memory.clone());
        assert_eq!(held.reply_bytes(), REPLY_BYTES_FIRST);
        held.replied(4, 4 << 20);
        assert_eq!((held.reply_bytes(), Held::new(memory.clone()).reply_bytes()), (1 << 20, 1 << 20));
        held.replied(10, 50);
        assert_eq!(held.reply_bytes(), 5);
        assert!(Held::new(memory.clone()).reply_bytes() > 1_000_000);
        (0..400).for_each(|_| held.replied(10, 50));
        assert!(Held::new(memory).reply_bytes() < SMALL_REPLY_BYTES);
    }
}
