//! Messages between peers: what is let in, and on which lane each goes out.

use raft::eraftpb::{Message, MessageType};
use types::StoreId;

use crate::action::Lane;

/// Raft keeps 0 for "nobody".
pub(crate) fn raft_id(store: StoreId) -> u64 {
    store + 1
}

pub(crate) fn store_of(raft_id: u64) -> Option<StoreId> {
    raft_id.checked_sub(1)
}

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
/// Proposals, reads and transfers are never forwarded between peers, and there are no snapshots.
pub(crate) fn is_admissible(message: &Message, from: StoreId, to: StoreId) -> bool {
    if from == u64::MAX || message.from != raft_id(from) || message.to != raft_id(to) || message.term == 0 {
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
    fn only_well_formed_messages_between_the_two_stores_are_let_in() {
        assert!(is_admissible(&append(&[5, 6]), 0, 1));
        assert!(!is_admissible(&append(&[5, 7]), 0, 1));
        assert!(!is_admissible(&append(&[6]), 0, 1));
        assert!(!is_admissible(&append(&[5]), 2, 1));
        assert!(!is_admissible(&append(&[5]), 0, 0));
        let mut late = append(&[5]);
        late.term = 1;
        assert!(!is_admissible(&late, 0, 1));
        let mut proposal = append(&[]);
        proposal.set_msg_type(MessageType::MsgPropose);
        assert!(!is_admissible(&proposal, 0, 1));
    }
}
