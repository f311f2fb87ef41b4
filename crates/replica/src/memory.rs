//! How much of their logs the peers of a store keep in memory: what waits for the log, which stays, and what is
//! written, which may go.

use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by all peers of a store, and readable beside them.
#[derive(Debug)]
pub struct EntryMemory {
    budget: u64,
    held: AtomicU64,
    refused: AtomicU64,
}

impl EntryMemory {
    pub(crate) fn new(budget: u64) -> EntryMemory {
        EntryMemory { budget, held: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// Bytes of entries that are held, above the budget only while they wait for the log.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Appends of other stores that were not taken in, for what was there already waited for the log. Their leaders
    /// send them again.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.held() > self.budget
    }

    /// Through where written entries go once the budget is crossed, so that it is not crossed by the next entry again.
    pub(crate) fn is_above_rest(&self) -> bool {
        self.held() > self.budget - self.budget / 16
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}
