//! Messages between peers: on which lane each goes out, and what its marks mean.

use raft::eraftpb::{Message, MessageType};

use crate::action::Lane;

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
