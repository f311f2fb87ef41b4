//! Flushes that clients ask for (`SAVE`, `BGSAVE`), and the time of the last flush.
//!
//! Every acknowledged write is in the log, so a flush is not needed for durability. After it, a
//! start replays less of the log.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock;

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    Done,
    /// The device had no room.
    NoRoom,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// The number of the last flush that ended, and its result.
    ended: Option<(u64, Flushed)>,
    is_running: bool,
}

#[derive(Default)]
pub struct Checkpoints {
    state: Mutex<State>,
    /// The end of the last successful flush in seconds since 1970, or the start of the store.
    last: AtomicU64,
    changed: Notify,
}

impl Checkpoints {
    pub fn new() -> Checkpoints {
        Checkpoints { last: AtomicU64::new(now()), ..Checkpoints::default() }
    }

    /// Notes that a flush begins.
    pub fn begin(&self) {
        let mut state = self.state.lock();
        state.begun += 1;
        state.is_running = true;
    }

    /// Notes that the flush has ended.
    pub fn end(&self, flushed: Flushed) {
        {
            let mut state = self.state.lock();
            state.is_running = false;
            state.ended = Some((state.begun, flushed));
        }
        if flushed == Flushed::Done {
            self.last.store(now(), Ordering::Relaxed);
        }
        self.changed.notify_waiters();
    }

    pub fn is_running(&self) -> bool {
        self.state.lock().is_running
    }

    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Waits for the end of a flush that begins after this call. `ask` asks for it.
    pub async fn next(&self, ask: impl FnOnce()) -> Flushed {
        let begun = self.state.lock().begun;
        ask();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.state.lock().ended {
                Some((number, flushed)) if number > begun => return flushed,
                _ => {}
            }
            changed.await;
        }
    }
}

fn now() -> u64 {
    clock::unix_millis() / 1000
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_flush_that_has_begun_before_the_question_is_no_answer() {
        let checkpoints = Arc::new(Checkpoints::new());
        checkpoints.begin();
        let (asked, is_asked) = tokio::sync::oneshot::channel();
        let waiting = {
            let checkpoints = checkpoints.clone();
            tokio::spawn(async move { checkpoints.next(move || asked.send(()).unwrap()).await })
        };
        is_asked.await.unwrap();
        checkpoints.end(Flushed::Done);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "rows written since that flush began may be in RAM only");
        checkpoints.begin();
        assert!(checkpoints.is_running());
        checkpoints.end(Flushed::NoRoom);
        assert_eq!(waiting.await.unwrap(), Flushed::NoRoom);
    }
}
