//! Accounting of the log entries that a store's peers hold in memory. Entries that wait for their
//! log write must stay; written entries may be evicted.

use std::sync::atomic::{AtomicU64, Ordering};

/// A rule that selects the written entries to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trim {
    /// All written entries, except the last entry of a log if it has not been handed out for
    /// execution. Otherwise an entry larger than the budget would be evicted and immediately read
    /// back.
    NotNext,
    All,
}

/// Memory used by entries. It is shared by all peers of a store and may be read from other threads.
#[derive(Debug)]
pub struct EntryMemory {
    budget: AtomicU64,
    held: AtomicU64,
    refused: AtomicU64,
}

impl EntryMemory {
    pub(crate) fn new(budget: u64) -> EntryMemory {
        EntryMemory { budget: AtomicU64::new(budget), held: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    fn budget(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// Changes the budget. Entries beyond it are evicted when the next ones come.
    pub fn set_budget(&self, budget: u64) {
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// Returns the memory held by entries, in bytes. It exceeds the budget only while the excess
    /// entries wait for their log write.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the number of appends from other stores that were refused because the entries
    /// waiting for their log write exceeded the budget. Their leaders send them again.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.held() > self.budget()
    }

    /// Returns whether written entries should still be evicted after the budget was exceeded.
    /// Eviction continues to 15/16 of the budget, so that the next entry does not exceed it again.
    pub(crate) fn is_above_rest(&self) -> bool {
        let budget = self.budget();
        self.held() > budget - budget / 16
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}
