//! Classification of messages between peers: the lane that each is sent on, and the mark of a
//! leader transfer.

use raft::eraftpb::{Message, MessageType};

use crate::action::Lane;

pub(crate) fn lane(message: &Message) -> Lane {
    match message.get_msg_type() {
        MessageType::MsgAppend | MessageType::MsgAppendResponse | MessageType::MsgSnapshot => Lane::Log,
        _ => Lane::Control,
    }
}

/// Returns true if the vote is requested because the leader told the candidate to take over. Such a
/// vote need not wait for the leader to fall silent. The consensus library sets this context.
pub(crate) fn is_transfer_vote(message: &Message) -> bool {
    message.get_context() == b"CampaignTransfer"
}
