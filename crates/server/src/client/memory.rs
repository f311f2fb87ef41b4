//! What clients' requests and replies take, within one budget.
//!
//! Whoever would pass it waits before it reads, and so the client's socket fills. A request may be larger than the
//! budget, and many that have begun to arrive may together be: so one connection at a time, in the order in which they
//! came to wait, goes on regardless until there is room for all. Only replies, whose size nobody knows before they are there,
//! are counted without being asked for.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use tokio::sync::{Mutex, Notify, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Smaller replies are not worth a guess.
const SMALL_REPLY_BYTES: usize = 4096;
/// What a reply is taken for before there was any.
const REPLY_BYTES_FIRST: usize = 64 << 10;

pub struct ClientMemory {
    budget: u64,
    used: AtomicU64,
    waiting: AtomicUsize,
    freed: Notify,
    turn: Arc<Mutex<()>>,
    /// A reply's size, of the batch with the largest ones of late.
    reply_bytes: AtomicUsize,
    /// For reads whose replies nobody holds yet, in KiB.
    reads: Arc<Semaphore>,
    reads_kib: usize,
}

impl ClientMemory {
    pub fn new(budget: u64) -> Arc<ClientMemory> {
        let reads_kib = ((budget / 4) >> 10).clamp(1, 1 << 20) as usize;
        Arc::new(ClientMemory {
            budget,
            used: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            turn: Arc::default(),
            reply_bytes: AtomicUsize::new(REPLY_BYTES_FIRST),
            reads: Arc::new(Semaphore::new(reads_kib)),
            reads_kib,
        })
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether somebody waits for what others hold, or will.
    pub fn is_short(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 || self.used() > self.budget
    }

    /// Leave to read for so many commands rows of whatever size: as much of it as they are likely to take.
    pub async fn reading(&self, commands: usize) -> Option<OwnedSemaphorePermit> {
        let likely = commands.saturating_mul(self.reply_bytes.load(Ordering::Relaxed).max(SMALL_REPLY_BYTES));
        let weight = (likely >> 10).min(self.reads_kib) as u32;
        self.reads.clone().acquire_many_owned(weight).await.ok()
    }

    /// What replies have taken.
    pub fn replied(&self, replies: usize, bytes: usize) {
        let reply_bytes = bytes / replies.max(1);
        let largest = self.reply_bytes.load(Ordering::Relaxed);
        if reply_bytes.max(largest) >= SMALL_REPLY_BYTES {
            self.reply_bytes.store(reply_bytes.max(largest - largest / 64), Ordering::Relaxed);
        }
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.budget);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, taken).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_one();
        }
    }
}

/// What one connection holds.
pub struct Held {
    memory: Arc<ClientMemory>,
    bytes: u64,
    turn: Option<OwnedMutexGuard<()>>,
    /// Of the last batch.
    reply_bytes: Option<usize>,
}

impl Held {
    pub fn new(memory: Arc<ClientMemory>) -> Held {
        Held { memory, bytes: 0, turn: None, reply_bytes: None }
    }

    /// Holds so much in all, once there is room for it.
    pub async fn hold(&mut self, bytes: u64) {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|_| self.turn.is_none()) else {
            return self.count(bytes);
        };
        if self.memory.take(more) {
            self.bytes = bytes;
            return;
        }
        let memory = self.memory.clone();
        let _waiting = Waiting::new(&memory.waiting);
        let mut turn = pin!(memory.turn.clone().lock_owned());
        loop {
            let mut freed = pin!(memory.freed.notified());
            freed.as_mut().enable();
            if memory.take(more) {
                self.bytes = bytes;
                // There may be enough for another one, too.
                return memory.freed.notify_one();
            }
            tokio::select! {
                turn = &mut turn => {
                    self.turn = Some(turn);
                    return self.count(bytes);
                }
                () = freed => {}
            }
        }
    }

    /// Holds so much in all, because that is what is there.
    pub fn count(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => drop(self.memory.used.fetch_add(more, Ordering::SeqCst)),
            None => self.memory.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        if bytes == 0 || self.memory.used() <= self.memory.budget {
            self.turn = None;
        }
    }

    /// Whether others wait, and this connection holds something that they could use.
    pub fn is_in_the_way(&self) -> bool {
        self.bytes > 0 && self.memory.is_short()
    }

    /// What one reply is likely to take: as in the last batch or, before there was one, as others' replies of late.
    pub fn reply_bytes(&self) -> usize {
        self.reply_bytes.unwrap_or_else(|| self.memory.reply_bytes.load(Ordering::Relaxed))
    }

    /// What the replies of a batch took.
    pub fn replied(&mut self, requests: usize, bytes: usize) {
        let reply_bytes = bytes / requests.max(1);
        self.reply_bytes = Some(reply_bytes);
        self.memory.replied(requests, bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count(0);
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize) -> Waiting<'a> {
        waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_ready(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn those_who_find_no_room_wait_but_for_one() {
        let memory = ClientMemory::new(100);
        let [mut first, mut second, mut third] = [(); 3].map(|()| Held::new(memory.clone()));
        assert!(is_ready(pin!(first.hold(60))));
        // It has waited longest, and nothing says that the others will end before it.
        assert!(is_ready(pin!(second.hold(70))));
        assert_eq!(memory.used(), 130);
        {
            let mut waits = pin!(third.hold(30));
            assert!(!is_ready(waits.as_mut()) && memory.is_short());
            // Who has the turn may ask for more.
            assert!(is_ready(pin!(second.hold(90))));
            assert!(!is_ready(waits.as_mut()));
            second.count(0);
            assert!(is_ready(waits));
        }
        assert_eq!((memory.used(), memory.is_short()), (90, false));
        first.count(10);
        drop(third);
        assert_eq!(memory.used(), 10);
    }

    #[test]
    fn room_that_comes_free_is_taken_though_another_one_has_the_turn() {
        let memory = ClientMemory::new(100);
        let [mut first, mut large, mut small] = [(); 3].map(|()| Held::new(memory.clone()));
        assert!(is_ready(pin!(first.hold(50))) && is_ready(pin!(large.hold(60))));
        let mut waits = pin!(small.hold(40));
        assert!(!is_ready(waits.as_mut()));
        first.count(0);
        assert!(is_ready(waits));
        assert_eq!(memory.used(), 100);
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
