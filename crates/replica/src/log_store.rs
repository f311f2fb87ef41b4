//! The log as it is read. Writes are actions.

use raft::eraftpb::Entry;
use types::{LogIndex, PeerId, RegionId, Term};

/// What Raft must not forget besides the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    pub term: Term,
    pub vote: Option<PeerId>,
    /// A lower bound: what is committed may be ahead of it, never behind.
    pub commit: LogIndex,
}

/// `first == truncated index + 1`, and `last == first - 1` when the log is empty. A log never written
/// is `{first: 1, last: 0}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    pub first: LogIndex,
    pub last: LogIndex,
}

/// The log cannot be read: corruption, an I/O error, a hole. The store stops.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("log of region {region}: {reason}")]
pub struct LogError {
    pub region: RegionId,
    pub reason: String,
}

/// Synchronous, local, and cheap to clone (each peer holds one). Only entries whose batch was reported
/// `Persisted`, and that no later batch replaces, are ever asked for.
pub trait LogStore: Clone {
    fn hard_state(&self, region: RegionId) -> Result<Option<HardState>, LogError>;

    fn bounds(&self, region: RegionId) -> Result<LogBounds, LogError>;

    /// Of an index in `first - 1 ..= last`; the term of index 0 is 0. That of the last truncated entry is
    /// kept, durably, beside the log.
    fn term(&self, region: RegionId, index: LogIndex) -> Result<Term, LogError>;

    /// Entries of `low..high` from `low` on, as many as fit in `max_bytes`, at least one.
    fn entries(
        &self,
        region: RegionId,
        low: LogIndex,
        high: LogIndex,
        max_bytes: u64,
    ) -> Result<Vec<Entry>, LogError>;
}
