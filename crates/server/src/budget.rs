//! The parts of `maxmemory`. The limit covers the whole process. Each part limits itself, and no
//! part borrows from another. The resident set stays within five quarters of `maxmemory`.

use std::sync::atomic::{AtomicU64, Ordering};

const MIB: u64 = 1 << 20;

/// Memory of code, threads and tables without any data, in bytes.
const PROCESS_BYTES: u64 = 40 * MIB;

/// Divisor for memory that is free but not returned to the system: partly filled pages, and pages
/// that will be reused soon.
const WASTE_PART: u64 = 6;

/// The memory limits of a store's parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Rows in RAM: memtables, including those that are being flushed, and the row cache.
    pub rows: u64,
    /// Blocks, filters and indexes of RocksDB's files.
    pub block_cache: u64,
    /// Entries of the Raft logs, so that followers and execution seldom read the log's files.
    pub entries: u64,
    /// Entries that are committed and wait for execution.
    pub execution: u64,
    /// Messages that wait for other stores' connections, and requests from other stores.
    pub messages: u64,
    /// Requests and replies of clients.
    pub clients: u64,
}

impl Budget {
    /// The minimum of `maxmemory`. Below it the parts would be empty.
    pub const MAXMEMORY_MIN: u64 = 64 * MIB;

    /// Divides `maxmemory`. In 32nds: block cache 4, clients 4, entries 2, messages 2, execution 1.
    /// The rows get the rest, and the bytes beyond the useful size of the other parts.
    pub fn of(maxmemory: u64) -> Budget {
        let rest = maxmemory.saturating_sub(PROCESS_BYTES);
        let usable = rest - rest / WASTE_PART;
        let part = |of_32: u64, most: u64| (usable / 32 * of_32).min(most);
        let block_cache = part(4, u64::MAX);
        let entries = part(2, 256 * MIB);
        let execution = part(1, 32 * MIB);
        let messages = part(2, 256 * MIB);
        let clients = part(4, 1024 * MIB);
        let others = block_cache + entries + execution + messages + clients;
        Budget { rows: usable - others, block_cache, entries, execution, messages, clients }
    }

    /// Returns the part of the clients' memory that is for TLS handshakes, in bytes.
    pub fn handshakes(&self) -> u64 {
        self.clients / 2
    }

    /// Returns the maximum size of one message of entries, in bytes. Several messages are read and
    /// sent at a time for each lagging follower.
    pub fn message_bytes(&self) -> u64 {
        (self.entries / 32).clamp(64 << 10, MIB)
    }
}

/// The budget of a running store, which `CONFIG SET maxmemory` changes. Parts that need not look at
/// it often are told (`Store::set_maxmemory`).
#[derive(Debug)]
pub struct LiveBudget {
    maxmemory: AtomicU64,
    execution: AtomicU64,
    /// The size of one message of entries, which is fixed at the start.
    message_bytes: u64,
}

impl LiveBudget {
    pub fn new(maxmemory: u64) -> LiveBudget {
        let budget = Budget::of(maxmemory);
        LiveBudget {
            maxmemory: AtomicU64::new(maxmemory),
            execution: AtomicU64::new(budget.execution),
            message_bytes: budget.message_bytes(),
        }
    }

    pub fn maxmemory(&self) -> u64 {
        self.maxmemory.load(Ordering::Relaxed)
    }

    /// Returns the bytes of entries that may wait for execution.
    pub fn execution(&self) -> u64 {
        self.execution.load(Ordering::Relaxed)
    }

    /// Sets the limit and returns its parts. The queue for execution has room for a message.
    pub fn set(&self, maxmemory: u64) -> Budget {
        let budget = Budget::of(maxmemory);
        self.maxmemory.store(maxmemory, Ordering::Relaxed);
        self.execution.store(budget.execution.max(self.message_bytes), Ordering::Relaxed);
        budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_any_size_are_within_it_and_none_is_without() {
        for maxmemory in [Budget::MAXMEMORY_MIN, 100 * MIB, 256 * MIB, 1 << 30, 7 << 30, 1 << 40] {
            let Budget { rows, block_cache, entries, execution, messages, clients } = Budget::of(maxmemory);
            let parts = [rows, block_cache, entries, execution, messages, clients];
            let rest = maxmemory - PROCESS_BYTES;
            assert_eq!(parts.iter().sum::<u64>(), rest - rest / WASTE_PART);
            assert!(parts.iter().all(|&part| part >= MIB / 2), "{parts:?} of {maxmemory}");
            // One message of entries is at most as large as the queue for execution.
            assert!(Budget::of(maxmemory).message_bytes() <= execution);
        }
    }
}
