//! What is checked of another store's message before the consensus code sees it.
//!
//! The sender is known to be a store of the cluster, and that is all that is known. The consensus library trusts
//! its input: it panics on messages that no correct peer sends, in all regions' only thread. These are the ones,
//! by the library's own words, and what keeps each out:
//!
//! | panic | message | kept out by |
//! |---|---|---|
//! | `to_commit .. is out of range` | heartbeat that commits beyond the log | [`DropReason::CommitBeyondLog`] |
//! | the same, `slice .. out of bound` | append behind the log's end with log term 0, which is taken for a match | [`DropReason::Entries`] |
//! | `after .. is out of range`, holes | append whose entries do not follow each other | [`DropReason::Entries`] |
//! | `attempt to add with overflow` | any with an index or a term near the end of 64 bits | [`DropReason::Index`], [`DropReason::Term`] |
//! | `term should be set when sending` | one whose term is followed by 0 | [`DropReason::Term`] |
//! | `unable to restore config` | snapshot of a configuration without voters | [`DropReason::Snapshot`] |
//! | `left == right` in `become_leader` | vote granted before this peer's log was written and it asked | [`DropReason::UnaskedVote`] |
//! | `stepped empty MsgProp`, index out of bounds | proposal or read without entries | [`DropReason::Kind`] |
//!
//! [`DropReason::BeyondLog`] and [`DropReason::SecondLeader`] are lies that the library would believe.
//!
//! A peer that merely lags, is late or repeats itself sends nothing that is dropped here: the simulations see to
//! that. What is late is left to the library, which ignores it; and what the library itself misjoins is passed over
//! without a reason ([`is_misjoined`]).

use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use raft::StateRole;
use types::{
    LogIndex, PeerId, PeerRole, RegionChange, RegionDescriptor, RegionId, StoreId, Term, META_REGION,
};

use crate::action::DropReason;
use crate::change_entry;
use crate::conf::conf_state_of;

/// No region comes near: a million entries a second would take 100,000 years. What is below may be counted up.
const INDEX_MAX: LogIndex = u64::MAX / 4;
const TERM_MAX: Term = u64::MAX / 4;
/// How far a message's term may be ahead: a term takes an election, and so many take a century.
const TERM_LEAD_MAX: Term = 1 << 32;
/// Rounds of reads have 16 bytes, and so has the mark of a transfer.
const CONTEXT_BYTES_MAX: usize = 64;

/// A peer as a message finds it.
pub(super) struct Stance {
    pub term: Term,
    pub role: StateRole,
    /// Of that term; 0: not known.
    pub leader: PeerId,
    pub last: LogIndex,
    /// Every entry is written.
    pub is_persisted: bool,
}

/// What can be said of a message for the region without its peer.
pub(crate) fn form(region: RegionId, message: &Message) -> Result<(), DropReason> {
    let kind = message.get_msg_type();
    if message.from == 0 || message.from == message.to {
        return Err(DropReason::Sender);
    }
    if message.term == 0 || message.term > TERM_MAX {
        return Err(DropReason::Term);
    }
    if message.index.max(message.commit).max(message.reject_hint) > INDEX_MAX {
        return Err(DropReason::Index);
    }
    if message.get_context().len() > CONTEXT_BYTES_MAX || message.request_snapshot != 0 {
        return Err(DropReason::Shape);
    }
    match kind {
        MessageType::MsgAppend if message.has_snapshot() => Err(DropReason::Shape),
        MessageType::MsgAppend => entries(message),
        MessageType::MsgSnapshot if !message.get_entries().is_empty() => Err(DropReason::Shape),
        MessageType::MsgSnapshot => snapshot(region, message),
        MessageType::MsgAppendResponse
        | MessageType::MsgHeartbeat
        | MessageType::MsgHeartbeatResponse
        | MessageType::MsgRequestVote
        | MessageType::MsgRequestVoteResponse
        | MessageType::MsgRequestPreVote
        | MessageType::MsgRequestPreVoteResponse
        | MessageType::MsgTimeoutNow => {
            let is_bare = message.get_entries().is_empty() && !message.has_snapshot();
            is_bare.then_some(()).ok_or(DropReason::Shape)
        }
        // Proposals, reads and transfers are never forwarded between peers; the rest are a peer's own.
        _ => Err(DropReason::Kind),
    }
}

/// Whether a message of good form fits the peer that it is for.
pub(super) fn inspect(message: &Message, peer: &Stance) -> Result<(), DropReason> {
    if message.term > peer.term.saturating_add(TERM_LEAD_MAX) {
        return Err(DropReason::Term);
    }
    let is_of_this_term = message.term == peer.term;
    let leads = is_of_this_term && peer.role == StateRole::Leader;
    let is_second = leads || is_of_this_term && peer.leader != 0 && peer.leader != message.from;
    match message.get_msg_type() {
        MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot if is_second => {
            Err(DropReason::SecondLeader)
        }
        MessageType::MsgHeartbeat if message.term >= peer.term && message.commit > peer.last => {
            Err(DropReason::CommitBeyondLog)
        }
        MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse
            if leads && message.index.max(message.commit).max(message.reject_hint) > peer.last =>
        {
            Err(DropReason::BeyondLog)
        }
        // A peer asks for votes once its log is written: nobody can have answered before.
        MessageType::MsgRequestVoteResponse
            if is_of_this_term
                && !message.reject
                && peer.role == StateRole::Candidate
                && !peer.is_persisted =>
        {
            Err(DropReason::UnaskedVote)
        }
        _ => Ok(()),
    }
}

/// What a store says of a region in which it has a peer.
pub(crate) fn announcement(from: StoreId, descriptor: &RegionDescriptor) -> Result<(), DropReason> {
    let is_meta = descriptor.id == META_REGION;
    let is_region = descriptor.slots.is_none() == is_meta && descriptor.voters().next().is_some();
    (is_region && descriptor.has_peer_on(from)).then_some(()).ok_or(DropReason::Announcement)
}

/// Whether an append's entries do not begin behind the entry that it names, on which the library would panic. It
/// makes such appends itself, now and then: what it adds to an append that waits to be sent need not follow it.
pub(super) fn is_misjoined(message: &Message) -> bool {
    message.get_entries().first().is_some_and(|first| first.index != message.index + 1)
}

/// An append's entries follow each other.
fn entries(message: &Message) -> Result<(), DropReason> {
    // Every log begins behind an entry that has a term. The library takes an index beyond the log for one whose
    // term is 0.
    if message.index == 0 || message.log_term == 0 || message.log_term > message.term {
        return Err(DropReason::Entries);
    }
    let Some(first) = message.get_entries().first() else { return Ok(()) };
    let least = if is_misjoined(message) { 1 } else { message.log_term };
    let (mut index, mut term) = (first.index, least);
    for entry in message.get_entries() {
        if entry.index != index || entry.index > INDEX_MAX || entry.term < term || entry.term > message.term {
            return Err(DropReason::Entries);
        }
        if !is_readable(entry) {
            return Err(DropReason::Change);
        }
        (index, term) = (entry.index + 1, entry.term);
    }
    Ok(())
}

/// Whether the entry is a payload, or a change that can be carried out once it is committed: one that cannot would
/// stop every store that has it. The library stands for no election over an entry that it knows by its kind to
/// change the configuration.
fn is_readable(entry: &Entry) -> bool {
    let kind = entry.get_entry_type();
    if entry.context.is_empty() {
        return kind == EntryType::EntryNormal;
    }
    match change_entry::decode(&entry.context) {
        Some((_, RegionChange::Peers(_) | RegionChange::LeaveJoint)) => kind == EntryType::EntryConfChangeV2,
        Some(_) => kind == EntryType::EntryNormal,
        None => false,
    }
}

/// A snapshot is of the region, and of a configuration that the library can begin with.
fn snapshot(region: RegionId, message: &Message) -> Result<(), DropReason> {
    let metadata = message.get_snapshot().get_metadata();
    if metadata.index > INDEX_MAX {
        return Err(DropReason::Index);
    }
    let Ok(descriptor) = RegionDescriptor::decode(message.get_snapshot().get_data()) else {
        return Err(DropReason::Snapshot);
    };
    let votes_before = |role| matches!(role, PeerRole::Voter | PeerRole::Outgoing);
    let has_voters =
        descriptor.voters().next().is_some() && descriptor.peers.iter().any(|peer| votes_before(peer.role));
    let fits = metadata.index > 0
        && (1..=message.term).contains(&metadata.term)
        && descriptor.id == region
        && descriptor.slots.is_none() == (region == META_REGION)
        && has_voters
        && *metadata.get_conf_state() == conf_state_of(&descriptor);
    fits.then_some(()).ok_or(DropReason::Snapshot)
}
