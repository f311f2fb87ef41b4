//! What `maxmemory` is divided into. It bounds the process: each part below bounds itself, and none borrows from
//! another. The resident set stays within five quarters of it.

const MIB: u64 = 1 << 20;

/// Code, threads and tables that are there without any data.
const PROCESS_BYTES: u64 = 36 * MIB;

/// One part in so many is free and not given back: pages that are full in part, and those that are about to be reused.
const WASTE_PART: u64 = 6;

/// Bytes for each part of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Rows in RAM: memtables, those on their way to flash included, and the row cache.
    pub rows: u64,
    /// Blocks, filters and indexes of RocksDB's files.
    pub block_cache: u64,
    /// Entries of the Raft logs, so that followers and execution seldom read the log's files.
    pub entries: u64,
    /// Entries that are committed and wait to be executed.
    pub execution: u64,
    /// Messages that wait for other stores' connections, and requests that other stores pass on.
    pub messages: u64,
    /// Requests and replies of clients.
    pub clients: u64,
}

impl Budget {
    /// Below it nothing is left of a part.
    pub const MAXMEMORY_MIN: u64 = 64 * MIB;

    /// In 32nds: block cache 4, clients 4, entries 2, messages 2, execution 1. More than gains anything goes to the rows, as
    /// does the rest.
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

    /// The most in one message of entries: several are read and sent at once, for each follower that lags.
    pub fn message_bytes(&self) -> u64 {
        (self.entries / 32).clamp(64 << 10, MIB)
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
            // What is handed out at once is a part of what may wait.
            assert!(Budget::of(maxmemory).message_bytes() <= execution);
        }
    }
}
