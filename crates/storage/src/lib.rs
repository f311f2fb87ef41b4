//! Rows: the encoding of keys as rows, the interface for reading rows, and the overlay in which an
//! apply batch sees its own writes.
//!
//! A keyspace is a sorted map of rows, which are byte strings. This crate has the [`Reader`] trait
//! for it, the [`Txn`] overlay in which commands execute, the RAM tier ([`tier`]), and the
//! in-memory engine for tests. The RocksDB engine is in the crate `rocks`.

#![forbid(unsafe_code)]

pub mod checksum;
mod chunked;
pub mod clock_cache;
mod content;
mod count;
pub mod extent;
pub mod failpoints;
mod held;
mod memory;
mod merge;
pub mod meta;
pub mod packed;
pub mod record;
pub mod rows;
mod state;
pub mod tier;
mod txn;
pub mod watches;

use std::ops::ControlFlow;

use bytes::Bytes;

pub use checksum::{Checked, Checksum, RowsChecksum};
pub use content::{Stored, Unencoded};
pub use count::count_keys;
pub use held::{HeldLimit, HELD_BYTES_MAX};
pub use memory::MemoryKeyspace;
pub use meta::{Meta, Stream, StreamId, Value};
pub use rows::KeyRef;
pub use state::{Counted, DbCounts, RegionState};
pub use txn::{load_state, KeyCounts, Txn, WriteSet};

/// A failure of this store alone, such as a disk error or corruption. It must never become a reply;
/// it stalls or stops the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    #[error("no space left on the data device: {0}")]
    NoSpace(String),
    #[error("corrupt row: {0}")]
    Corrupt(String),
    /// A file of rows cannot be read correctly. Other files are not affected.
    #[error("damaged rows: {0}")]
    Damaged(String),
    #[error("storage engine: {0}")]
    Engine(String),
    /// Returned only by readers that do not wait for a device.
    #[error("a row is not in RAM")]
    NotInRam,
}

pub type Result<T> = std::result::Result<T, StorageError>;

/// A callback that receives a row's key and value. `Break` ends the scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A consistent view of a sorted map of rows.
pub trait Reader {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>>;

    /// Visits the rows in `from..to` in ascending order until `visit` breaks.
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()>;

    /// Hints that these rows are about to be read. A reader in memory looks them up together, so
    /// that its look-ups wait for memory at the same time.
    fn touch(&self, rows: &[&[u8]]) {
        let _ = rows;
    }

    /// Returns true if such hints pay.
    fn is_worth_touching(&self) -> bool {
        false
    }

    /// Returns the value of a row if it is in memory. This has no effect on anything.
    fn look(&self, row: &[u8]) -> Option<Bytes> {
        let _ = row;
        None
    }

    /// Same as [`get`](Reader::get), but does not end the row's idle time.
    fn peek(&self, row: &[u8]) -> Result<Option<Bytes>> {
        self.get(row)
    }

    /// Returns the seconds since the last use of a row, or `None` if they are not known.
    fn idle_time(&self, row: &[u8]) -> Option<u32> {
        let _ = row;
        None
    }

    /// Returns true if a command over these rows must not take long, because a thread that has
    /// other work executes it. The command fails with [`StorageError::NotInRam`] instead.
    fn is_hasty(&self) -> bool {
        false
    }
}
