//! The reads of single rows that wait for flash at this moment, so that a device that does not
//! answer is detected.
//!
//! Threads read concurrently and often, so a read costs one compare-and-swap on a slot that its
//! thread nearly always finds free. If a thread finds no free slot, its read is not counted,
//! because a read that holds a slot is at least as old.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Number of slots. It exceeds the number of threads that read at once.
const SLOTS: usize = 64;
/// Number of slots that a read tries.
const TRIES: usize = 4;

/// The start times of the pending reads, in nanoseconds since `base`.
pub struct ReadsUnderWay {
    base: Instant,
    /// The time at which the read of each slot began; 0 if the slot is free.
    slots: [AtomicU64; SLOTS],
}

/// A pending read. The read ends when the value is dropped.
pub(crate) struct OneRead<'a>(Option<&'a AtomicU64>);

thread_local! {
    static FIRST_SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn first_slot() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    FIRST_SLOT.with(|slot| {
        if slot.get() == usize::MAX {
            slot.set(NEXT.fetch_add(1, Relaxed) % SLOTS);
        }
        slot.get()
    })
}

impl ReadsUnderWay {
    pub(crate) fn new() -> ReadsUnderWay {
        ReadsUnderWay { base: Instant::now(), slots: [const { AtomicU64::new(0) }; SLOTS] }
    }

    /// Returns the present time, by the clock of [`oldest`](Self::oldest).
    pub fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the time at which the oldest pending read began.
    pub fn oldest(&self) -> Option<u64> {
        self.slots.iter().map(|slot| slot.load(Relaxed)).filter(|&began| began > 0).min()
    }

    pub(crate) fn begin(&self) -> OneRead<'_> {
        let began = self.now().max(1);
        let first = first_slot();
        let mut slots = (first..first + TRIES).map(|at| &self.slots[at % SLOTS]);
        OneRead(slots.find(|slot| slot.compare_exchange(0, began, Relaxed, Relaxed).is_ok()))
    }
}

impl Drop for OneRead<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_read_is_told_until_it_ends() {
        let reads = ReadsUnderWay::new();
        assert_eq!(reads.oldest(), None);
        let first = reads.begin();
        let began = reads.oldest().expect("one is under way");
        assert!(began <= reads.now());
        let later: Vec<OneRead<'_>> = (0..2 * TRIES).map(|_| reads.begin()).collect();
        assert_eq!(reads.oldest(), Some(began));
        assert!(later.iter().any(|read| read.0.is_none()), "a read without a slot does no harm");
        drop(first);
        assert!(reads.oldest().is_some_and(|next| next >= began));
        drop(later);
        assert_eq!(reads.oldest(), None);
    }
}
