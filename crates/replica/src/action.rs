//! What a worker is told, and what it wants done.

use std::collections::BTreeMap;

use bytes::Bytes;
use raft::eraftpb::{Entry, Message};
use types::{BootNanos, LogIndex, RegionDescriptor, RegionId, StoreId, Term};

use crate::log_store::{HardState, LogError};

/// What recovery found of one region on this store.
#[derive(Clone, Debug)]
pub struct PeerSeed {
    pub descriptor: RegionDescriptor,
    /// Index and term of the last entry that the engine holds durably; (0, 0) for none.
    pub applied: (LogIndex, Term),
}

#[derive(Clone, Debug)]
pub enum Input {
    /// A tick's time has come. Ticks that come too early, or that were missed, do not count.
    Tick,
    Message {
        from: StoreId,
        region: RegionId,
        message: Message,
    },
    /// Tokens name proposals and reads; the caller keeps them unique within the worker's life.
    Propose {
        region: RegionId,
        token: u64,
        payload: Bytes,
    },
    /// A strong read: answered by `ReadReady` once a round sent after this input was confirmed and
    /// everything committed before it is applied, or by `Refused`.
    ReadIndex {
        region: RegionId,
        token: u64,
    },
    /// A reader found the lease missing or near its end. The lease is renewed while this, or
    /// `ReadIndex`, keeps coming.
    WantLease {
        region: RegionId,
    },
    /// The batch of this number, and so every batch before it, is written (and synced if it said so).
    Persisted {
        batch: u64,
    },
    Applied {
        region: RegionId,
        index: LogIndex,
    },
    /// A completed flush of the engine covers everything applied through `index`.
    Flushed {
        region: RegionId,
        index: LogIndex,
    },
    /// A leader of the region says that every peer's log holds everything through `index`.
    TruncateHint {
        region: RegionId,
        index: LogIndex,
    },
    TransferLeader {
        region: RegionId,
        to: StoreId,
    },
    /// What was sent to this store lately may be lost.
    StoreUnreachable {
        store: StoreId,
    },
}

/// Execute in order. The order matters: a lease ends before the message that lets another store lead.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Send {
        to: StoreId,
        region: RegionId,
        lane: Lane,
        message: Message,
    },
    Persist(LogBatch),
    Apply {
        region: RegionId,
        entries: Vec<Committed>,
    },
    /// Nothing was proposed or read: safe to retry anywhere.
    Refused {
        region: RegionId,
        token: u64,
        reason: Refusal,
    },
    /// Proposed, then replaced in the log by another leader's entry.
    Lost {
        region: RegionId,
        token: u64,
    },
    ReadReady {
        region: RegionId,
        token: u64,
    },
    Leadership {
        region: RegionId,
        term: Term,
        leader: Option<StoreId>,
        is_self: bool,
    },
    /// Local reads are current while the clock, read *after* the snapshot was taken, is below `until`.
    /// `None` ends the lease at once.
    Lease {
        region: RegionId,
        term: Term,
        until: Option<BootNanos>,
    },
    /// Drop the entries through `index` and remember `term`, which is that entry's. May be done late, or
    /// be lost in a crash, but never reordered before an earlier `Persist`.
    Truncate {
        region: RegionId,
        index: LogIndex,
        term: Term,
    },
    TransferDone {
        region: RegionId,
        to: StoreId,
    },
    TransferAborted {
        region: RegionId,
        to: StoreId,
    },
}

/// Between two stores, log entries must not delay what elections and leases wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    Control,
    Log,
}

/// One atomic write to the log engine.
#[derive(Clone, Debug, PartialEq)]
pub struct LogBatch {
    /// From 1, without gaps.
    pub number: u64,
    /// Sorted by region, no region twice.
    pub writes: Vec<RegionWrite>,
    /// Under `fsync = everysec` and `no` too: a term or a vote is in it.
    pub must_sync: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RegionWrite {
    pub region: RegionId,
    /// Contiguous. They replace whatever the log holds from the first one's index on.
    pub entries: Vec<Entry>,
    pub hard_state: Option<HardState>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub index: LogIndex,
    pub term: Term,
    /// Empty for the entry with which a leader begins its term.
    pub payload: Bytes,
    /// This store proposed it, and this is its answer.
    pub token: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotLeader {
        leader: Option<StoreId>,
    },
    Transferring,
    /// Too many bytes proposed and not yet committed.
    Backpressure,
    /// A read whose proof of leadership, or whose turn in applying, did not come in time.
    Unproven,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Follower,
    Candidate,
    Leader,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionStatus {
    pub term: Term,
    pub leader: Option<StoreId>,
    pub role: Role,
    pub commit: LogIndex,
    pub applied: LogIndex,
    /// The first entry that is kept.
    pub first: LogIndex,
    pub last: LogIndex,
    /// On the leader only: through where each peer, this one included, is known to hold the log.
    pub matched: BTreeMap<StoreId, LogIndex>,
    pub lease: Option<BootNanos>,
}

impl RegionStatus {
    /// What the leader may send as `TruncateHint`.
    pub fn min_matched(&self) -> Option<LogIndex> {
        self.matched.values().copied().min()
    }
}

/// The store must stop: going on could break a promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    #[error("configuration: {0}")]
    Config(String),
    #[error("region {region} has no peer on this store, or is named twice")]
    NotAPeer { region: RegionId },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("region {region}: the log ends at {last} but {needed} was already acknowledged or applied")]
    LostTail { region: RegionId, last: LogIndex, needed: LogIndex },
    #[error("region {region}: the log begins at {first} but only {applied} is applied")]
    Gap { region: RegionId, first: LogIndex, applied: LogIndex },
    #[error("region {region}: entry {index} has term {in_log} in the log and {in_engine} in the engine")]
    Diverged { region: RegionId, index: LogIndex, in_log: Term, in_engine: Term },
    #[error("region {region}: consensus: {reason}")]
    Consensus { region: RegionId, reason: String },
}
