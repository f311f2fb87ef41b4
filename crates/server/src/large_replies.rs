//! Replies that take much memory.
//!
//! A collection may be larger than RAM, and a client may ask for all of it. So a read may hold a
//! part of `maxmemory`, beyond which it is refused, and reads that hold much are executed one at a
//! time. They are encoded on the reader's thread, so that no loop does it.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::BytesMut;
use command::Outcome;
use node::{Answer, Item};
use parking_lot::Mutex;
use resp::{Protocol, Reply};
use storage::{HeldLimit, KeyCounts};

use crate::budget::LiveBudget;
use crate::engine::Counted;

/// Divisor of `maxmemory` for what one read may hold.
const HELD_PART: u64 = 4;
/// Divisor of that for what a read may hold beside others.
const BESIDE_OTHERS_PART: u64 = 16;
/// Size of the replies that are encoded by the reader.
const ENCODED_BYTES_MIN: usize = 64 << 10;

/// The answer to a read, or `None` if the read must be proposed, and the keys that it looked up.
pub type Answered = (Option<Answer>, KeyCounts);

pub struct LargeReplies {
    budget: Arc<LiveBudget>,
    turn: Mutex<()>,
}

impl LargeReplies {
    pub fn new(budget: Arc<LiveBudget>) -> LargeReplies {
        LargeReplies { budget, turn: Mutex::new(()) }
    }

    /// Answers `item` by `read`, which is told what it may hold. It may wait for other reads.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn answer<E>(
        &self,
        item: &Item,
        read: impl FnOnce(HeldLimit<'_>) -> Result<Counted, E>,
    ) -> Result<Answered, E> {
        let turn = RefCell::new(None);
        // A script's commands, and a second attempt, may tell it again.
        let wait = || {
            turn.borrow_mut().get_or_insert_with(|| self.turn.lock());
        };
        let bytes = self.budget.maxmemory() / HELD_PART;
        let outcome = read(HeldLimit { bytes, large: Some((bytes / BESIDE_OTHERS_PART, &wait)) })?;
        // The turn ends when the reply is only its bytes.
        // Replies of several regions are joined before they are encoded.
        let is_part = item.spec.spanning().is_some();
        Ok(answered(outcome, |reply| match is_part {
            true => reply.into(),
            false => encoded_if_large(reply, item.resp3),
        }))
    }
}

/// Returns the answer with a reply, which is encoded if it is large. So no loop encodes it, or
/// frees its parts.
pub fn encoded_if_large(reply: Reply, resp3: bool) -> Answer {
    let bytes = reply.bytes();
    if bytes < ENCODED_BYTES_MIN {
        return reply.into();
    }
    let protocol = if resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
    let mut encoded = BytesMut::with_capacity(bytes);
    resp::encode(&reply, protocol, &mut encoded);
    Answer::Encoded(encoded.freeze())
}

/// Returns the answer to a read whose reply `make` turns into one.
pub fn answered((outcome, counts): Counted, make: impl FnOnce(Reply) -> Answer) -> Answered {
    match outcome {
        Outcome::Reply(reply) => (Some(make(reply)), counts),
        Outcome::NeedsApply => (None, KeyCounts::default()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;

    use super::*;

    fn item(resp3: bool) -> Item {
        Item::new(vec![Bytes::from_static(b"HGETALL"), Bytes::from_static(b"k")], 0, resp3).unwrap()
    }

    fn replies() -> LargeReplies {
        LargeReplies::new(Arc::new(LiveBudget::new(64 << 20)))
    }

    #[test]
    fn a_large_reply_is_encoded_for_the_client_and_a_small_one_is_not() {
        let value = Bytes::from(vec![b'x'; ENCODED_BYTES_MIN]);
        let large = Reply::Map(vec![(Reply::bulk("f"), Reply::Bulk(value))]);
        for resp3 in [false, true] {
            let reply = |reply: &Reply| {
                let outcome = Outcome::Reply(reply.clone());
                let read = |_: HeldLimit<'_>| Ok::<_, ()>((outcome, KeyCounts::default()));
                replies().answer(&item(resp3), read).unwrap().0.unwrap()
            };
            let Answer::Encoded(bytes) = reply(&large) else { panic!("it is a value") };
            let mut expected = BytesMut::new();
            resp::encode(&large, if resp3 { Protocol::Resp3 } else { Protocol::Resp2 }, &mut expected);
            assert!(bytes == expected);
            assert_eq!(reply(&Reply::Int(1)), Reply::Int(1).into());
        }
    }

    #[test]
    fn reads_that_hold_much_take_turns_and_others_do_not_wait() {
        let replies = replies();
        let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let read = |limit: HeldLimit<'_>| {
            let (large, wait) = limit.large.unwrap();
            assert!(large < limit.bytes);
            wait();
            wait();
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(5));
            // A small read is answered meanwhile.
            let small = |_: HeldLimit<'_>| Ok::<_, ()>((Outcome::NeedsApply, KeyCounts::default()));
            assert_eq!(replies.answer(&item(false), small).unwrap().0, None);
            at_once.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, ()>((Outcome::Reply(Reply::Nil), KeyCounts::default()))
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| replies.answer(&item(false), read).unwrap());
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }
}
