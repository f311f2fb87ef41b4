//! What a worker is told, and what it wants done.

use std::collections::BTreeMap;

use bytes::Bytes;
use raft::eraftpb::{Entry, Message};
use types::{
    BootNanos, ChangeError, Changed, LogIndex, PeerId, RegionChange, RegionDescriptor, RegionEpoch, RegionId,
    StoreId, Term,
};

use crate::log_store::{HardState, LogError};

/// What recovery found of one region on this store.
#[derive(Clone, Debug)]
pub struct PeerSeed {
    /// As of `applied`; as it was made where the engine holds nothing of it.
    pub descriptor: RegionDescriptor,
    /// Index and term of the last entry that the engine holds durably.
    ///
    /// `None`: the peer was made by a split, and the engine lost that with its memtable. The peer waits
    /// until its parent has applied the split again.
    pub applied: Option<(LogIndex, Term)>,
    /// The region of which a split made it, and the entry. That entry is known to be committed.
    pub parent: Option<(RegionId, LogIndex)>,
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
    /// The store is about to stop. Its peers no longer campaign or take over a lead. They vote, and a leader leads
    /// until its lead is transferred. The only voter of a region is exempt.
    StopLeading,
    /// The region's peer does not apply the entry at `index`, nor anything behind it, until `Release`. It hands its
    /// lead to another voter. It appends and votes, for the majority needs it: what it holds of the log is sound.
    ///
    /// `may_lead`: where no other voter has led for long, it leads so that orders can be committed; it takes no
    /// commands and gives no proof for reads.
    Quarantine {
        region: RegionId,
        index: LogIndex,
        may_lead: bool,
    },
    /// The peer applies again, from the entry behind its last applied one on.
    Release {
        region: RegionId,
    },
    /// A quarantined peer takes a snapshot, which ends its quarantine, if the leader has one for it.
    AdmitSnapshot {
        region: RegionId,
    },
    /// As `Propose`, of an order for a region whose leader is quarantined.
    ProposeOrder {
        region: RegionId,
        token: u64,
        payload: Bytes,
    },
    /// Answered by `Refused`, `Lost`, or the `Committed` that carries the token: its `change` is what became
    /// of it, `None` that it came too late. A joint configuration is left by the leader itself.
    ChangeRegion {
        region: RegionId,
        token: u64,
        /// The change is meant for this epoch and no other.
        expect: RegionEpoch,
        change: RegionChange,
    },
    /// Another store's word for a region's newest descriptor that it has applied.
    Announced {
        from: StoreId,
        descriptor: RegionDescriptor,
    },
    /// `MakeSnapshot` is done: a view of the rows as of this entry is ready to be sent.
    SnapshotMade {
        region: RegionId,
        index: LogIndex,
        term: Term,
        descriptor: RegionDescriptor,
    },
    SnapshotFailed {
        region: RegionId,
    },
    /// `SendSnapshot` ended: its message was given to the other store's worker, or given up.
    SnapshotSent {
        region: RegionId,
        to: StoreId,
        delivered: bool,
    },
    /// `ApplySnapshot` is done, durably.
    SnapshotApplied {
        region: RegionId,
    },
    /// `Destroy` is done: neither rows nor log of the peer are left.
    Destroyed {
        region: RegionId,
    },
    /// The store's log is too large, and these regions hold most of it: they are to let go of what they can do without.
    /// Followers that lag get a snapshot instead.
    LogPinned {
        regions: Vec<RegionId>,
    },
    /// `ReadLog` is done. Every one is answered, once.
    LogRead {
        region: RegionId,
        number: u64,
        entries: Result<Vec<Entry>, LogError>,
    },
    /// Nothing was heard of this store for a while: the regions that it led do not sleep on.
    StoreSilent {
        store: StoreId,
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
    /// Committed entries that a quarantined peer does not apply: index and payload, each once, in the log's order.
    /// Entries that change the region are left out.
    Withheld {
        region: RegionId,
        entries: Vec<(LogIndex, Bytes)>,
    },
    /// Nothing was proposed or read: safe to retry anywhere.
    Refused {
        region: RegionId,
        token: u64,
        reason: Refusal,
    },
    /// Proposed, then replaced in the log by another leader's entry; or the log began anew, or ended, and what became of
    /// the entry is not known here.
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
    /// A flush is worth its cost soon: it lets a log go, or a snapshot in, that must wait for it.
    FlushSoon,
    /// Drop the entries through `index` and remember `term`, which is that entry's. May be done late, or
    /// be lost in a crash, but never reordered before an earlier `Persist`.
    Truncate {
        region: RegionId,
        index: LogIndex,
        term: Term,
    },
    /// Tell the store, on the control lane, what the region's descriptor is: it may not know that it has a
    /// peer of it, or that it has none any more.
    Announce {
        to: StoreId,
        descriptor: RegionDescriptor,
    },
    /// Read entries for a follower that lags, of `low..high` from `low` on, as many as fit in `max_bytes`, at least one. It
    /// may wait for a device, and other actions need not wait for it. Entries that were dropped
    /// from the log before they are read are an error.
    ReadLog {
        region: RegionId,
        number: u64,
        low: LogIndex,
        high: LogIndex,
        max_bytes: u64,
    },
    /// Take a view of the region's rows as they are applied now, to be sent to whoever needs it.
    MakeSnapshot {
        region: RegionId,
    },
    /// Send what was made at the index that the message names, then the message itself: to be given to the
    /// other store's worker when everything is there, checked and durable.
    SendSnapshot {
        region: RegionId,
        to: StoreId,
        message: Message,
    },
    /// Replace the region's rows by the snapshot that came before the message was delivered. The log
    /// already says that this is under way, and begins after `index`. The region's older entries were handed
    /// out before; later ones will be after `SnapshotApplied`.
    ApplySnapshot {
        region: RegionId,
        index: LogIndex,
        term: Term,
        descriptor: RegionDescriptor,
    },
    /// The peer is no more. First a flush, for its log may be what another region's rows, which a split made,
    /// would have to be made from again; then its tombstone, synced; then its rows go and, once a flush covers
    /// that, its log. A store that finds rows whose descriptor has no peer here does the same at start.
    ///
    /// So it is when the region has merged into another. The rows in slots that are another region's by now, as
    /// the descriptors here have it, stay.
    Destroy {
        region: RegionId,
        peer: PeerId,
    },
    /// A store sent what no correct store sends: it was not taken in, and is to be counted and told of.
    Dropped {
        region: RegionId,
        from: StoreId,
        reason: DropReason,
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
    /// Before the rest of this write: everything the log holds of the region goes, and it begins anew.
    pub restart: Option<Restart>,
    /// Contiguous. They replace whatever the log holds from the first one's index on.
    pub entries: Vec<Entry>,
    pub hard_state: Option<HardState>,
}

/// A log that begins after an entry that is not in it, and the peer's life that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    pub index: LogIndex,
    pub term: Term,
    pub descriptor: RegionDescriptor,
    pub cause: RestartCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartCause {
    /// The entry of that region split this one off.
    Split { parent: RegionId, at: LogIndex },
    /// A snapshot was accepted, and is to be applied: after a crash, again.
    Snapshot,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub index: LogIndex,
    pub term: Term,
    /// Empty for the entry with which a leader begins its term.
    pub payload: Bytes,
    /// This store proposed it, and this is its answer.
    pub token: Option<u64>,
    /// The descriptors that it makes, to be written with it. Of a region that it absorbs, the counts go over
    /// to this one, and state and descriptor are deleted; all that it ever held was applied before.
    pub change: Option<Changed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotLeader {
        leader: Option<StoreId>,
    },
    Transferring,
    /// The leader is quarantined: it takes orders only.
    Quarantined,
    /// Too many bytes proposed and not yet committed.
    Backpressure,
    /// A read whose proof of leadership, or whose turn in applying, did not come in time.
    Unproven,
    /// The region is of another epoch than the change was meant for.
    StaleEpoch {
        epoch: RegionEpoch,
    },
    /// Another change of the region is under way.
    Changing,
    /// The region is about to merge into another: it may take commands again, or another region will.
    Merging,
    /// The leader does not take its own vote away: it is to hand over first.
    IsLeader,
    /// The learner is not known to hold the log: it cannot vote yet.
    Behind {
        store: StoreId,
    },
    Invalid(ChangeError),
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
    /// On the leader only: what is known of each peer, this one included.
    pub peers: BTreeMap<StoreId, PeerProgress>,
    /// On the leader: what it may send as `TruncateHint`.
    pub truncate_to: LogIndex,
    pub lease: Option<BootNanos>,
    /// As applied.
    pub descriptor: RegionDescriptor,
    /// See `Input::Quarantine`.
    pub is_quarantined: bool,
}

/// What a leader knows of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// It holds the log through here.
    pub matched: LogIndex,
    /// It was heard of within the last election timeout or two.
    pub is_active: bool,
    /// What it needs next is not in the log any more: it waits for a snapshot.
    pub needs_snapshot: bool,
}

/// The store must stop: going on could break a promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    #[error("configuration: {0}")]
    Config(String),
    #[error("region {region} has no peer on this store, or is named twice")]
    NotAPeer { region: RegionId },
    #[error("region {region}: entry {index} changes the region in a way that this version cannot read")]
    UnknownChange { region: RegionId, index: LogIndex },
    #[error("region {region} was made by a split of a region that is not here")]
    Orphan { region: RegionId },
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

/// Why a message or an announcement of another store was dropped. A correct store gives no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum DropReason {
    #[error("its sender is no peer of the region on that store")]
    Sender,
    #[error("peers do not send messages of its kind to each other")]
    Kind,
    #[error("it carries what messages of its kind do not")]
    Shape,
    #[error("its term is 0 or out of reach")]
    Term,
    #[error("an index in it is out of reach")]
    Index,
    #[error("its entries do not follow each other")]
    Entries,
    #[error("an entry in it changes the region in a way that cannot be read")]
    Change,
    #[error("its snapshot is none of the region")]
    Snapshot,
    #[error("its term has another leader")]
    SecondLeader,
    #[error("it acknowledges entries that this leader does not have")]
    BeyondLog,
    #[error("it commits entries that are not in the log here: the sender lies, or this store lost them")]
    CommitBeyondLog,
    #[error("it grants a vote that was not asked for")]
    UnaskedVote,
    #[error("its descriptor is no region's, or not one with a peer of the sender's")]
    Announcement,
    #[error("too many peers wait for their first snapshot here")]
    TooManyBlank,
}
