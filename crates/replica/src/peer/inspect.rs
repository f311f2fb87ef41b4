//! Checks of another store's messages before the consensus code sees them.
//!
//! The sender is authenticated as a store of the cluster; nothing else about it is trusted. The
//! consensus library trusts its input: it panics on messages that no correct peer sends, and it
//! runs in the one thread that drives all regions. This list gives the text of each panic, the
//! message that causes it, and the reason with which that message is dropped:
//!
//! - `to_commit .. is out of range`: a heartbeat that commits beyond the log;
//!   [`DropReason::CommitBeyondLog`].
//! - The same, and `slice .. out of bound`: an append beyond the log's end with log term 0, which
//!   the library takes for a match; [`DropReason::Entries`].
//! - `after .. is out of range`, and holes in the log: an append whose entries do not follow each
//!   other; [`DropReason::Entries`].
//! - `attempt to add with overflow`: an index or a term near `u64::MAX`; [`DropReason::Index`],
//!   [`DropReason::Term`].
//! - `term should be set when sending`: the term `u64::MAX`, which is followed by 0;
//!   [`DropReason::Term`].
//! - `unable to restore config`: a snapshot of a configuration without voters;
//!   [`DropReason::Snapshot`].
//! - `left == right` in `become_leader`: a vote granted before this peer had written its log and
//!   asked for the vote; [`DropReason::UnaskedVote`].
//! - `stepped empty MsgProp`, and an index out of bounds: a proposal or a read without entries;
//!   [`DropReason::Kind`].
//!
//! [`DropReason::BeyondLog`] and [`DropReason::SecondLeader`] stand for false statements that do
//! not make the library panic, but that it would believe.
//!
//! A correct peer that lags, is late or repeats itself sends nothing that is dropped here; the
//! simulations verify that. The library ignores late messages itself. Appends that the library
//! joins wrongly are ignored without a reason ([`is_misjoined`]).

use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use raft::StateRole;
use types::{
    LogIndex, PeerId, PeerRole, RegionChange, RegionDescriptor, RegionId, StoreId, Term, META_REGION,
};

use crate::action::DropReason;
use crate::chain::{Route, ROUTE_BYTES_MAX};
use crate::change_entry::{self, EntryChange};
use crate::conf::conf_state_of;

/// Maximum index and term accepted, so that additions cannot overflow. No region reaches it: at a
/// million entries per second it would take 100,000 years.
const INDEX_MAX: LogIndex = u64::MAX / 4;
const TERM_MAX: Term = u64::MAX / 4;
/// Maximum number of terms by which a message may be ahead of this peer. Each term takes an
/// election, so a peer would need a century to fall behind by this many.
const TERM_LEAD_MAX: Term = 1 << 32;
/// Maximum length of a message's context, in bytes. The context of a read round and the mark of a
/// leader transfer have 16 bytes each.
const CONTEXT_BYTES_MAX: usize = 64;

/// The state of a peer that a message is checked against.
pub(super) struct Stance {
    pub term: Term,
    pub role: StateRole,
    /// The leader of that term; 0 if unknown.
    pub leader: PeerId,
    pub last: LogIndex,
    /// True if every entry is written.
    pub is_persisted: bool,
}

/// Checks the form of a message for the region, without the state of its peer.
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
    let (context, is_append) = (message.get_context(), kind == MessageType::MsgAppend);
    let context_bytes_max = if is_append { ROUTE_BYTES_MAX } else { CONTEXT_BYTES_MAX };
    if context.len() > context_bytes_max || message.request_snapshot != 0 {
        return Err(DropReason::Shape);
    }
    match kind {
        MessageType::MsgAppend if message.has_snapshot() => Err(DropReason::Shape),
        MessageType::MsgAppend if !context.is_empty() && Route::decode(context).is_none() => {
            Err(DropReason::Shape)
        }
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
        // Peers never forward proposals, reads or transfers, and all other kinds are internal to a
        // peer.
        _ => Err(DropReason::Kind),
    }
}

/// Checks a well-formed message against the state of its receiver.
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
        // A peer asks for votes only once its log is written, so no peer can have answered before.
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

/// Checks an announcement: it must describe a valid region in which its sender has a peer.
pub(crate) fn announcement(from: StoreId, descriptor: &RegionDescriptor) -> Result<(), DropReason> {
    let is_meta = descriptor.id == META_REGION;
    let is_region = descriptor.slots.is_none() == is_meta && descriptor.voters().next().is_some();
    (is_region && descriptor.has_peer_on(from)).then_some(()).ok_or(DropReason::Announcement)
}

/// Returns true if an append's entries do not directly follow the entry that it names. The library
/// panics on such appends but occasionally sends them: when it adds entries to an append that waits
/// to be sent, the added entries may not follow it.
pub(super) fn is_misjoined(message: &Message) -> bool {
    message.get_entries().first().is_some_and(|first| first.index != message.index + 1)
}

/// Checks that an append's entries follow each other.
fn entries(message: &Message) -> Result<(), DropReason> {
    // Every log begins after an entry with a term. For an index beyond its log the library assumes
    // term 0.
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

/// Returns true if the entry is a command, or a change that this version can execute. Once
/// committed, a change that this version cannot execute would stop every store that has it. The
/// entry's type must show whether the entry changes the configuration, because the library refuses
/// an election while an entry of that type is unapplied.
fn is_readable(entry: &Entry) -> bool {
    let kind = entry.get_entry_type();
    if entry.context.is_empty() {
        return kind == EntryType::EntryNormal;
    }
    match change_entry::decode(&entry.context) {
        Some(
            EntryChange::Recover(_)
            | EntryChange::Proposed { change: RegionChange::Peers(_) | RegionChange::LeaveJoint, .. },
        ) => kind == EntryType::EntryConfChangeV2,
        Some(_) => kind == EntryType::EntryNormal,
        None => false,
    }
}

/// Checks that a snapshot belongs to the region and that the library can start from its
/// configuration.
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
