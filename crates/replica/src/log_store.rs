//! Read access to the log. Writes are returned as actions.

use raft::eraftpb::Entry;
use types::{LogIndex, PeerId, RegionId, Term, FIRST_INDEX, FIRST_TERM};

/// The state besides the entries that Raft must keep durably.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    pub term: Term,
    pub vote: Option<PeerId>,
    /// A lower bound of the commit index: the actual one may be higher, never lower.
    pub commit: LogIndex,
}

impl HardState {
    /// Returns the initial hard state of a region's log. It preserves a term and a vote that a
    /// blank peer of the region recorded before.
    pub fn begun(recorded: Option<HardState>) -> HardState {
        let first = HardState { term: FIRST_TERM, ..HardState::default() };
        let kept = recorded.filter(|recorded| recorded.term >= FIRST_TERM).unwrap_or(first);
        HardState { commit: FIRST_INDEX, ..kept }
    }
}

/// The bounds of a region's log. `first` is the index after the last truncated entry, and `last ==
/// first - 1` if the log is empty. A log that was never written is `{first: 1, last: 0}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    pub first: LogIndex,
    pub last: LogIndex,
}

/// A failure to read the log: damaged entries of one region, other corruption, an I/O error or a
/// missing entry. Unless the region's entries are damaged, the store stops.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("log of region {region}: {reason}")]
pub struct LogError {
    pub region: RegionId,
    pub reason: String,
    /// The first and the last of the entries that fail their checksum.
    pub damaged: Option<(LogIndex, LogIndex)>,
}

/// A store's log as the worker reads it: synchronous, local, and cheap to clone, because each peer
/// holds a clone. The worker requests only entries whose batch was reported as `Persisted` and that
/// no later batch replaces.
pub trait LogStore: Clone {
    fn hard_state(&self, region: RegionId) -> Result<Option<HardState>, LogError>;

    fn bounds(&self, region: RegionId) -> Result<LogBounds, LogError>;

    /// Returns the term of an index in `first - 1 ..= last`; the term of index 0 is 0. The term of
    /// the last truncated entry is kept durably beside the log.
    fn term(&self, region: RegionId, index: LogIndex) -> Result<Term, LogError>;

    /// Returns the entries of `low..high` that fit in `max_bytes`, from `low` on, and at least one
    /// of them.
    fn entries(
        &self,
        region: RegionId,
        low: LogIndex,
        high: LogIndex,
        max_bytes: u64,
    ) -> Result<Vec<Entry>, LogError>;
}
