//! The queue of log batches from the loop that owns the groups to the thread that writes them.
//!
//! The receiver of a channel spins before it sleeps, which is worthwhile only if messages follow
//! each other quickly. Here a sync follows each batch, and nothing arrives during it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use replica::LogBatch;

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<LogBatch>,
    /// The receiver must look at its time limit again.
    is_woken: bool,
    is_closed: bool,
}

/// The only sender. After it is dropped, the receiver ends after the last batch.
pub struct BatchSender(Arc<Shared>);

pub struct BatchReceiver(Arc<Shared>);

/// The result of a wait for a batch.
#[derive(Debug)]
pub enum Next {
    Batch(LogBatch),
    /// The time limit has passed or has changed.
    Late,
    /// No batch follows.
    Closed,
}

pub fn channel() -> (BatchSender, BatchReceiver) {
    let shared = Arc::new(Shared::default());
    (BatchSender(shared.clone()), BatchReceiver(shared))
}

impl BatchSender {
    pub fn send(&self, batch: LogBatch) {
        self.0.queue.lock().batches.push_back(batch);
        self.0.changed.notify_one();
    }

    /// Ends a wait of the receiver, whose time limit has changed.
    pub fn wake(&self) {
        self.0.queue.lock().is_woken = true;
        self.0.changed.notify_one();
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl BatchReceiver {
    /// Waits for the next batch until `until` at most.
    pub fn next(&self, until: Option<Instant>) -> Next {
        let mut queue = self.0.queue.lock();
        loop {
            if let Some(batch) = queue.batches.pop_front() {
                return Next::Batch(batch);
            }
            if queue.is_closed {
                return Next::Closed;
            }
            if std::mem::take(&mut queue.is_woken) {
                return Next::Late;
            }
            match until {
                None => self.0.changed.wait(&mut queue),
                Some(until) if Instant::now() >= until => return Next::Late,
                Some(until) => drop(self.0.changed.wait_until(&mut queue, until)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn batch(number: u64) -> LogBatch {
        LogBatch { number, writes: Vec::new(), must_sync: false }
    }

    #[test]
    fn batches_come_in_order_and_the_end_behind_them() {
        let (sender, receiver) = channel();
        assert!(matches!(receiver.next(Some(Instant::now())), Next::Late));
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(matches!(receiver.next(Some(soon)), Next::Late));
        let receiving = std::thread::spawn(move || {
            let mut numbers = Vec::new();
            while let Next::Batch(batch) = receiver.next(None) {
                numbers.push(batch.number);
            }
            numbers
        });
        (1..=1000).for_each(|number| sender.send(batch(number)));
        drop(sender);
        assert_eq!(receiving.join().unwrap(), (1..=1000).collect::<Vec<_>>());
    }
}
