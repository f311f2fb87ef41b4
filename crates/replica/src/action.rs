//! The inputs and actions of a worker.

use std::collections::BTreeMap;

use bytes::Bytes;
use raft::eraftpb::{Entry, Message};
use types::{
    BootNanos, ChangeError, Changed, LogIndex, PeerId, RegionChange, RegionDescriptor, RegionEpoch, RegionId,
    StoreId, Term,
};

use crate::chain::Replication;
use crate::config::Elections;
use crate::log_store::{HardState, LogError};
use crate::log_view::size_of;
use crate::reads::Asked;

/// The result of recovery for one region of this store.
#[derive(Clone, Debug)]
pub struct PeerSeed {
    /// The descriptor as of `applied`; if the engine holds nothing of the region, its first
    /// descriptor.
    pub descriptor: RegionDescriptor,
    /// Index and term of the last entry that the engine holds durably.
    ///
    /// `None` means that a split created the peer, and that the engine lost the peer's rows with
    /// its memtable. The peer waits until its parent has applied the split again.
    pub applied: Option<(LogIndex, Term)>,
    /// The region whose split created this one, and the index of the split's entry, which is known
    /// to be committed.
    pub parent: Option<(RegionId, LogIndex)>,
    /// The reason why the peer may have lost entries, a term or a vote that it had acknowledged. An
    /// unclean peer takes no part in consensus until its number is removed from the region or
    /// `Input::AcceptLoss` arrives.
    pub unclean: Unclean,
}

/// The reason why a peer may have lost state that it had acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unclean {
    #[default]
    No,
    /// The machine crashed while log writes were acknowledged without a sync. The only voter of a
    /// region still takes part, because no other store has the lost entries. It knows that it is
    /// the only voter, because changes of a region are always synced.
    Crash,
    /// The log is damaged. The lost entries may include any change of the region, so the peer
    /// cannot know whether it is the only voter.
    Damage,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// A tick is due. Early and missed ticks do not count.
    Tick,
    Message {
        from: StoreId,
        region: RegionId,
        message: Message,
    },
    /// Proposes an entry. Tokens name proposals and reads. The caller keeps them unique within the
    /// worker's lifetime.
    Propose {
        region: RegionId,
        token: u64,
        payload: Bytes,
    },
    /// Requests a strong read. `ReadReady` answers it once two conditions hold: a round that was
    /// sent after this input is confirmed, and everything committed before is applied. Otherwise
    /// `Refused` answers it.
    ReadIndex {
        region: RegionId,
        token: u64,
        asked: Asked,
    },
    /// A reader found the lease missing or near its end. The lease is renewed while this input, or
    /// `ReadIndex`, keeps coming.
    WantLease {
        region: RegionId,
    },
    /// The batch of this number, and every batch before it, is written. It is also synced if it
    /// required a sync.
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
    /// A leader of the region reports that every peer's log holds everything through `index`.
    TruncateHint {
        region: RegionId,
        index: LogIndex,
    },
    TransferLeader {
        region: RegionId,
        to: StoreId,
    },
    /// The store is about to stop. Its peers no longer campaign or take over leadership. They still
    /// vote. A leader leads until its leadership is transferred. The only voter of a region is
    /// exempt.
    StopLeading,
    /// The region's peer applies neither the entry at `index` nor any later one until `Release`. It
    /// transfers its leadership to another voter. It still appends and votes, because its log is
    /// sound and the majority needs it.
    ///
    /// With `may_lead`, the peer leads if no other voter has led for a long time, so that orders
    /// can be committed. It then accepts no commands and confirms no reads.
    Quarantine {
        region: RegionId,
        index: LogIndex,
        may_lead: bool,
    },
    /// The peer applies again, beginning after its last applied entry.
    Release {
        region: RegionId,
    },
    /// Allows a quarantined peer to accept a snapshot from the leader. The snapshot ends the
    /// quarantine.
    AdmitSnapshot {
        region: RegionId,
    },
    /// Proposes an order, as `Propose` does, for a region whose leader is quarantined.
    ProposeOrder {
        region: RegionId,
        token: u64,
        payload: Bytes,
    },
    /// The store's device has stopped answering (`hangs`), or answers again. While the device
    /// hangs, the store's peers neither campaign nor take over leadership, except the only voter of
    /// a region. A leader leads until its leadership is transferred or it steps down.
    DeviceHangs {
        hangs: bool,
    },
    /// The leader steps down without naming a successor: its lease ends, it sends no more
    /// heartbeats, and the other voters elect a leader. The only voter of a region continues to
    /// lead.
    StepDown {
        region: RegionId,
    },
    /// Proposes a change of the region. The answer is `Refused`, `Lost`, or the `Committed` that
    /// carries the token. The `change` of `Committed` is the result; `None` means that the change
    /// came too late. The leader leaves a joint configuration without a further request.
    ChangeRegion {
        region: RegionId,
        token: u64,
        /// The epoch for which the change is meant. It has no effect in any other epoch.
        expect: RegionEpoch,
        change: RegionChange,
    },
    /// The newest descriptor of a region that another store has applied.
    Announced {
        from: StoreId,
        descriptor: RegionDescriptor,
    },
    /// The meta region records that the region has merged into another. `heirs` are the regions
    /// that have its slots now. Their descriptors may no longer list it among the regions that they
    /// absorbed.
    MergedAway {
        region: RegionId,
        heirs: Vec<RegionDescriptor>,
    },
    /// `MakeSnapshot` is done: a view of the rows as of this entry is ready to send.
    SnapshotMade {
        region: RegionId,
        index: LogIndex,
        term: Term,
        descriptor: RegionDescriptor,
    },
    SnapshotFailed {
        region: RegionId,
    },
    /// `SendSnapshot` ended: the message was delivered to the other store's worker, or the transfer
    /// was abandoned.
    SnapshotSent {
        region: RegionId,
        to: StoreId,
        delivered: bool,
    },
    /// `ApplySnapshot` is done, and its result is durable.
    SnapshotApplied {
        region: RegionId,
    },
    /// `Destroy` is done: neither rows nor log of the peer are left.
    Destroyed {
        region: RegionId,
    },
    /// The store's log is too large, and these regions hold most of it. They must drop all entries
    /// that they do not need. Lagging followers then get a snapshot instead.
    LogPinned {
        regions: Vec<RegionId>,
    },
    /// `ReadLog` is done. Every request is answered exactly once.
    LogRead {
        region: RegionId,
        number: u64,
        entries: Result<Vec<Entry>, LogError>,
    },
    /// The store has sent no heartbeat for a while, or has restarted, so the regions that it led
    /// must wake.
    StoreSilent {
        store: StoreId,
    },
    /// Changes the way in which candidates are chosen.
    SetElections(Elections),
    /// Changes the way in which leaders send entries. No store of the cluster may be unable to pass
    /// appends on.
    SetReplication(Replication),
    /// The coordinator has chosen the region's peer to campaign. The input has no effect unless the
    /// peer seeks a leader and may campaign.
    Stand {
        region: RegionId,
    },
    /// The store's session with the coordinator has ended. Regions that it led need another leader,
    /// once no lease of that store can be valid any more.
    SessionEnded {
        store: StoreId,
    },
    /// An operator accepts the loss of the entries that an unclean peer may have lost. The peer
    /// takes part again.
    AcceptLoss {
        region: RegionId,
    },
    /// Another reader of the log found entries of the region's log that fail their checksum.
    DamageFound(LogError),
    /// The damage of the region's peer is recorded durably: the peer is unclean, because entries of
    /// its log fail their checksum. A leader transfers its leadership first.
    Damaged {
        region: RegionId,
    },
    /// Messages that were sent to this store recently may be lost.
    StoreUnreachable {
        store: StoreId,
    },
}

/// The position of a peer that hears from no leader, for the choice of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeker {
    /// Term and index of the last entry in its log.
    pub last: (Term, LogIndex),
    /// False if the peer only votes: it lacks rows or entries, is quarantined, or its store must
    /// not lead.
    pub may_stand: bool,
    pub descriptor: RegionDescriptor,
}

/// An action to execute in order. The order matters: a lease ends before the message that lets
/// another store lead.
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
    /// Committed entries that a quarantined peer does not apply, as pairs of index and payload.
    /// Each entry is listed once, in log order. Entries that change the region are omitted.
    Withheld {
        region: RegionId,
        entries: Vec<(LogIndex, Bytes)>,
    },
    /// Nothing was proposed or read, so a retry is safe anywhere.
    Refused {
        region: RegionId,
        token: u64,
        reason: Refusal,
    },
    /// The entry was proposed, but its outcome is unknown to this store. Either another leader's
    /// entry replaced it in the log, or the log was restarted or removed.
    Lost {
        region: RegionId,
        token: u64,
    },
    ReadReady {
        region: RegionId,
        token: u64,
    },
    /// With `Elections::ByCoordinator`: the peer hears from no leader, or its position has changed
    /// since. `None` means that it has a leader again, leads itself, or is gone.
    Seeking {
        region: RegionId,
        seeker: Option<Seeker>,
    },
    Leadership {
        region: RegionId,
        term: Term,
        leader: Option<StoreId>,
        is_self: bool,
    },
    /// Local reads are current while the clock, read *after* the snapshot was taken, is below
    /// `until`. `None` ends the lease immediately.
    Lease {
        region: RegionId,
        term: Term,
        until: Option<BootNanos>,
    },
    /// A flush should run soon, because a log truncation or a snapshot installation waits for it.
    FlushSoon,
    /// Drop the entries through `index` and remember `term`, the term of the entry at `index`. The
    /// truncation may be late or be lost in a crash, but it must not overtake an earlier `Persist`.
    Truncate {
        region: RegionId,
        index: LogIndex,
        term: Term,
    },
    /// Send the region's descriptor to the store, on the control lane. The store may not know that
    /// it has a peer of the region, or that it no longer has one.
    Announce {
        to: StoreId,
        descriptor: RegionDescriptor,
    },
    /// Read the entries of `low..high` for a lagging follower or for execution. The result holds as
    /// many entries from `low` on as fit in `max_bytes`, and at least one. The read may wait for a
    /// device; other actions need not wait for it. If an entry was dropped from the log before it
    /// was read, the result is an error.
    ReadLog {
        region: RegionId,
        number: u64,
        low: LogIndex,
        high: LogIndex,
        max_bytes: u64,
    },
    /// Take a view of the region's applied rows, to be sent to the followers that need it.
    MakeSnapshot {
        region: RegionId,
    },
    /// Send the snapshot that was made at the message's index, then the message. The receiving
    /// store's worker must get the message only when every file of the snapshot is present, checked
    /// and durable.
    SendSnapshot {
        region: RegionId,
        to: StoreId,
        message: Message,
    },
    /// Replace the region's rows with the snapshot that was received before the message. The log
    /// already begins after `index` and records that the replacement is in progress. Earlier
    /// entries of the region were handed out before. Later ones follow `SnapshotApplied`.
    ApplySnapshot {
        region: RegionId,
        index: LogIndex,
        term: Term,
        descriptor: RegionDescriptor,
    },
    /// Remove the peer in these steps. First flush, because the rows of a region that a split
    /// created may still depend on this peer's log. Then write and sync the tombstone. Then delete
    /// the rows and, once a flush covers the deletion, the log. A store that finds at its start
    /// rows whose descriptor has no peer here does the same.
    ///
    /// Do the same when the region has merged into another. Rows in slots that now belong to
    /// another region, according to the descriptors here, stay.
    Destroy {
        region: RegionId,
        peer: PeerId,
    },
    /// Entries of the region's log fail their checksum. If they are `executed`, a flush of the rows
    /// makes them unnecessary, and nothing is lost. Otherwise the caller must record durably that
    /// the peer is unclean and then send `Input::Damaged`.
    Damaged {
        region: RegionId,
        peer: PeerId,
        first: LogIndex,
        executed: bool,
        reason: String,
    },
    /// Drop the region's log entries from `first` on, which are damaged, and append no more of
    /// them. The peer is unclean and sends nothing. This must be done before any later action.
    GiveUpLog {
        region: RegionId,
        first: LogIndex,
    },
    /// A store sent a message that a correct store never sends. The message was dropped. The caller
    /// must count and log it.
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

/// The kinds of messages between stores. Log entries must not delay messages for elections and
/// leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    Control,
    Log,
}

/// One atomic write to the log engine.
#[derive(Clone, Debug, PartialEq)]
pub struct LogBatch {
    /// The batch's number, from 1 without gaps.
    pub number: u64,
    /// The writes, sorted by region, at most one for each region.
    pub writes: Vec<RegionWrite>,
    /// True if the batch must be synced even under `fsync = everysec` and `no`. Such a batch holds
    /// a term, a vote, the beginning of a log, a change of a region, or an entry of the meta
    /// region.
    pub must_sync: bool,
}

impl LogBatch {
    /// Returns the size of all entries and of the largest entry, in bytes.
    pub fn entry_sizes(&self) -> (u64, u64) {
        let sizes = self.writes.iter().flat_map(|write| &write.entries).map(size_of);
        sizes.fold((0, 0), |(sum, largest), size| (sum + size, largest.max(size)))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RegionWrite {
    pub region: RegionId,
    /// Executed before the rest of this write: drops all log data of the region and restarts the
    /// region's log.
    pub restart: Option<Restart>,
    /// Contiguous entries. They replace all log entries from the first one's index on.
    pub entries: Vec<Entry>,
    pub hard_state: Option<HardState>,
}

/// The beginning of a log after an entry that is not in it, with the peer's lifecycle record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    pub index: LogIndex,
    pub term: Term,
    pub descriptor: RegionDescriptor,
    pub cause: RestartCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartCause {
    /// The entry `at` of region `parent` split this region off.
    Split { parent: RegionId, at: LogIndex },
    /// A snapshot was accepted and must be applied, even after a crash.
    Snapshot,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub index: LogIndex,
    pub term: Term,
    /// The entry's payload. Empty for the first entry of a leader's term.
    pub payload: Bytes,
    /// The token, if this store proposed the entry.
    pub token: Option<u64>,
    /// The change of descriptors, which must be written with the entry. If the region absorbs
    /// another, the other region's counts are added to this one, and its state and descriptor are
    /// deleted. Everything in the other region's log was applied before.
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
    /// The proposed bytes that are not committed yet exceed their limit.
    Backpressure,
    /// The confirmation of leadership for a read, or the read's turn in applying, did not come in
    /// time.
    Unproven,
    /// The region's epoch is not the one for which the change is meant.
    StaleEpoch {
        epoch: RegionEpoch,
    },
    /// Another change of the region is in progress.
    Changing,
    /// The region is about to merge into another. Commands are accepted again later, by this region
    /// or by the other one.
    Merging,
    /// The change would remove the leader's own vote. The leader must transfer its leadership
    /// first.
    IsLeader,
    /// The learner is not known to hold the log, so it cannot vote yet.
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
    /// The first entry in the log.
    pub first: LogIndex,
    pub last: LogIndex,
    /// The progress of each peer, this one included. On the leader only.
    pub peers: BTreeMap<StoreId, PeerProgress>,
    /// The value that a leader may send as `TruncateHint`.
    pub truncate_to: LogIndex,
    pub lease: Option<BootNanos>,
    /// The descriptor, as applied.
    pub descriptor: RegionDescriptor,
    /// See `Input::Quarantine`.
    pub is_quarantined: bool,
}

/// The leader's view of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// The index through which the peer holds the log.
    pub matched: LogIndex,
    /// True if a message from the peer arrived within the last one or two election timeouts.
    pub is_active: bool,
    /// True if the log no longer holds the entries that the peer needs next, so that it waits for a
    /// snapshot.
    pub needs_snapshot: bool,
}

/// The facts about one peer that an order to recover its region needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    pub region: RegionId,
    pub peer: PeerId,
    /// The descriptor as of the applied index.
    pub descriptor: RegionDescriptor,
    /// The descriptor as it will be when the whole log is applied.
    pub ends_as: RegionDescriptor,
    pub term: Term,
    /// The peer that it voted for in that term.
    pub vote: Option<PeerId>,
    /// True if the log has the term, the vote and every entry, durably.
    pub is_saved: bool,
    pub leads: bool,
    /// The reason why the region cannot go on from this peer's log.
    pub unfit: Option<Unfit>,
    pub commit: LogIndex,
    pub commit_term: Term,
    pub applied: LogIndex,
    pub last: LogIndex,
    /// The first index and the term of each run of entries of one term, newest first. Old runs are
    /// left out. The oldest run may begin with the last entry that the log has dropped.
    pub runs: Vec<(LogIndex, Term)>,
}

/// The reason why a region cannot be recovered from a peer's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it has no data yet")]
    Blank,
    #[error("a snapshot is replacing its rows")]
    Applying,
    #[error("its log has lost entries that it vouched for")]
    MissingEntries,
    #[error("its region has merged into another")]
    Merged,
    #[error("its store is about to stop, or its device hangs")]
    Stopping,
    #[error("its machine crashed, and it may have forgotten writes: `ctl accept-loss` comes first")]
    Unclean,
    #[error("it is quarantined at entry {index}: `ctl quarantine retry`, with a program that executes the entry, comes first")]
    Quarantined { index: LogIndex },
    #[error("it is quarantined, because its rows are not those of the majority")]
    RowsDiffer,
    #[error("its log ends with its own removal from the region")]
    Removed,
}

/// The reason why a peer did not take part in a recovery. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryRefusal {
    #[error("the store has no peer of the region")]
    NoPeer,
    #[error("it leads the region")]
    Leads,
    #[error("it is in term {term} already")]
    Promised { term: Term },
    #[error("it has not promised, or its promise is not on its device yet")]
    NotPromised,
    #[error("its log ends at {last} by now")]
    Moved { last: LogIndex },
    #[error("{0}")]
    Unfit(Unfit),
}

/// An error after which the store must stop, because continuing could break a promise.
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

/// The reason why a message or an announcement of another store was dropped. A correct store never
/// causes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum DropReason {
    #[error("its sender is no peer of the region on that store")]
    Sender,
    #[error("peers do not send messages of its kind to each other")]
    Kind,
    #[error("it has fields that messages of its kind do not have")]
    Shape,
    #[error("its term is 0 or out of reach")]
    Term,
    #[error("an index in it is out of reach")]
    Index,
    #[error("its entries do not follow each other")]
    Entries,
    #[error("an entry in it changes the region in a way that cannot be read")]
    Change,
    #[error("its snapshot is not of the region")]
    Snapshot,
    #[error("its term has another leader")]
    SecondLeader,
    #[error("it acknowledges entries that this leader does not have")]
    BeyondLog,
    #[error("it commits entries that are not in the log here: the sender lies, or this store lost them")]
    CommitBeyondLog,
    #[error("it grants a vote that was not requested")]
    UnaskedVote,
    #[error("its descriptor is invalid, or has no peer of the sender")]
    Announcement,
    #[error("too many peers wait for their first snapshot here")]
    TooManyBlank,
}
