//! Messages between peers: what is let in, and on which lane each goes out.

use raft::eraftpb::{Message, MessageType};
use types::{PeerId, RegionDescriptor, RegionId};

use crate::action::Lane;
use crate::conf::conf_state_of;

pub(crate) fn lane(message: &Message) -> Lane {
    match message.get_msg_type() {
        MessageType::MsgAppend | MessageType::MsgAppendResponse | MessageType::MsgSnapshot => Lane::Log,
        _ => Lane::Control,
    }
}

/// A vote asked for by a peer whom the leader told to take over, which need not wait for the leader's
/// silence. The mark is the consensus library's own.
pub(crate) fn is_transfer_vote(message: &Message) -> bool {
    message.get_context() == b"CampaignTransfer"
}

/// Whether a message from `from` to `to` is one that peers send and has a shape that the consensus code
/// may trust: it panics on some that a damaged or foreign sender could make up.
///
/// Proposals, reads and transfers are never forwarded between peers. A snapshot's message is looked at by
/// `snapshot_of`, too.
pub(crate) fn is_admissible(message: &Message, to: PeerId) -> bool {
    if message.from == 0 || message.from == to || message.to != to || message.term == 0 {
        return false;
    }
    match message.get_msg_type() {
        MessageType::MsgAppend => {
            let (mut index, mut term) = (message.index, message.log_term);
            message.get_entries().iter().all(|entry| {
                let follows = index.checked_add(1) == Some(entry.index);
                let ordered = term <= entry.term && entry.term <= message.term;
                (index, term) = (entry.index, entry.term);
                follows && ordered
            })
        }
        MessageType::MsgAppendResponse => message.request_snapshot == 0,
        MessageType::MsgSnapshot => {
            let metadata = message.get_snapshot().get_metadata();
            metadata.index > 0 && metadata.term > 0 && metadata.term <= message.term
        }
        MessageType::MsgHeartbeat
        | MessageType::MsgHeartbeatResponse
        | MessageType::MsgRequestVote
        | MessageType::MsgRequestVoteResponse
        | MessageType::MsgRequestPreVote
        | MessageType::MsgRequestPreVoteResponse
        | MessageType::MsgTimeoutNow => message.get_entries().is_empty(),
        _ => false,
    }
}

/// The descriptor that a snapshot's message carries, if it is the region's, has the peer `to`, and is what
/// the message's configuration says.
pub(crate) fn snapshot_of(message: &Message, region: RegionId, to: PeerId) -> Option<RegionDescriptor> {
    let snapshot = message.get_snapshot();
    let descriptor = RegionDescriptor::decode(snapshot.get_data()).ok()?;
    let fits = descriptor.id == region
        && descriptor.peer(to).is_some()
        && *snapshot.get_metadata().get_conf_state() == conf_state_of(&descriptor);
    fits.then_some(descriptor)
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::Entry;

    use super::*;

    fn append(indexes: &[u64]) -> Message {
        let entries = indexes.iter().map(|&index| Entry { index, term: 2, ..Entry::default() });
        let mut message = Message { from: 1, to: 2, term: 2, index: 4, log_term: 1, ..Message::default() };
        message.set_msg_type(MessageType::MsgAppend);
        message.set_entries(entries.collect::<Vec<_>>().into());
        message
    }

    #[test]
    fn only_well_formed_messages_to_this_peer_are_let_in() {
        assert!(is_admissible(&append(&[5, 6]), 2));
        assert!(!is_admissible(&append(&[5, 7]), 2));
        assert!(!is_admissible(&append(&[6]), 2));
        assert!(!is_admissible(&append(&[5]), 1));
        let mut late = append(&[5]);
        late.term = 1;
        assert!(!is_admissible(&late, 2));
        let mut proposal = append(&[]);
        proposal.set_msg_type(MessageType::MsgPropose);
        assert!(!is_admissible(&proposal, 2));
    }
}
