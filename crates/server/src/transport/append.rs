//! Splits appends of any size into pieces that fit into frames.
//!
//! The raft crate merges new entries into an append that already waits for the same store, one
//! entry after the other, up to the whole window of messages in flight. For the receiver an append
//! and its pieces are equivalent: each piece begins where the previous one ends, as appends do
//! anyway. A piece holds several entries up to [`PIECE_BYTES_MAX`], or a single larger one.

use std::iter::Peekable;
use std::vec::IntoIter;

use raft::eraftpb::{Entry, Message, MessageType};

/// Maximum bytes of entries in one piece, unless it is a single entry.
pub const PIECE_BYTES_MAX: usize = 4 << 20;

/// The assumed overhead of a message and of an entry, in bytes; an upper bound.
const MESSAGE_OVERHEAD: usize = 160;
const ENTRY_OVERHEAD: usize = 48;

/// Returns an upper bound of the bytes that a message takes on the wire, slightly above the exact
/// size.
pub fn bytes_of(message: &Message) -> usize {
    let entries = message.get_entries().iter().map(entry_bytes).fold(0, usize::saturating_add);
    MESSAGE_OVERHEAD + message.get_context().len() + message.get_snapshot().get_data().len() + entries
}

fn entry_bytes(entry: &Entry) -> usize {
    ENTRY_OVERHEAD + entry.get_data().len() + entry.get_context().len()
}

/// Returns the message, or the pieces to send instead, in order.
pub fn pieces(mut message: Message) -> Pieces {
    let is_cut = message.get_msg_type() == MessageType::MsgAppend && bytes_of(&message) > PIECE_BYTES_MAX;
    let later = if is_cut { message.take_entries().into_vec() } else { Vec::new() };
    Pieces { next: Some(message), later: later.into_iter().peekable() }
}

pub struct Pieces {
    /// The next piece. If the message is split, its entries are in `later`.
    next: Option<Message>,
    later: Peekable<IntoIter<Entry>>,
}

impl Iterator for Pieces {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let mut piece = self.next.take()?;
        let Some(first) = self.later.next() else { return Some(piece) };
        let mut bytes = entry_bytes(&first);
        let mut entries = vec![first];
        while let Some(entry) = self.later.next_if(|entry| bytes + entry_bytes(entry) <= PIECE_BYTES_MAX) {
            bytes += entry_bytes(&entry);
            entries.push(entry);
        }
        if self.later.peek().is_some() {
            let mut next = piece.clone();
            if let Some(last) = entries.last() {
                (next.index, next.log_term) = (last.index, last.term);
            }
            self.next = Some(next);
        }
        piece.set_entries(entries.into());
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use protobuf::Message as _;

    use super::*;

    fn append(sizes: &[usize]) -> Message {
        let entries = sizes.iter().zip(11u64..).map(|(&size, index)| Entry {
            index,
            term: 1 + index / 13,
            data: vec![index as u8; size].into(),
            ..Entry::default()
        });
        let mut message =
            Message { from: 1, to: 2, term: 3, index: 10, log_term: 1, commit: 12, ..Message::default() };
        message.set_msg_type(MessageType::MsgAppend);
        message.set_entries(entries.collect::<Vec<_>>().into());
        message
    }

    #[test]
    fn pieces_join_to_the_append_that_was_cut() {
        let half = PIECE_BYTES_MAX / 2;
        let sizes = [10, 20, half, half, PIECE_BYTES_MAX * 2, 5, PIECE_BYTES_MAX - ENTRY_OVERHEAD, 0];
        let whole = append(&sizes);
        let cut: Vec<Message> = pieces(whole.clone()).collect();
        let counts: Vec<usize> = cut.iter().map(|piece| piece.get_entries().len()).collect();
        assert_eq!(counts, [3, 1, 1, 1, 1, 1]);
        let (mut index, mut log_term) = (whole.index, whole.log_term);
        let mut joined = Vec::new();
        for piece in cut {
            assert_eq!((piece.index, piece.log_term), (index, log_term));
            let last = piece.get_entries().last().unwrap();
            (index, log_term) = (last.index, last.term);
            let mut head = piece.clone();
            joined.extend(head.take_entries().into_vec());
            (head.index, head.log_term) = (whole.index, whole.log_term);
            let mut expected = whole.clone();
            expected.clear_entries();
            assert_eq!(head, expected);
        }
        assert_eq!(joined, whole.get_entries());
    }

    #[test]
    fn what_is_small_or_no_append_goes_as_it_is() {
        for message in [append(&[]), append(&[1, 2, 3]), append(&[PIECE_BYTES_MAX * 3])] {
            assert_eq!(pieces(message.clone()).collect::<Vec<_>>(), [message]);
        }
        let mut vote = append(&[]);
        vote.set_msg_type(MessageType::MsgRequestVote);
        assert_eq!(pieces(vote.clone()).collect::<Vec<_>>(), [vote]);
    }

    #[test]
    fn the_estimate_is_never_below_the_size_on_the_wire() {
        let mut all = Message {
            to: u64::MAX,
            from: u64::MAX,
            term: u64::MAX,
            log_term: u64::MAX,
            index: u64::MAX,
            commit: u64::MAX,
            commit_term: u64::MAX,
            request_snapshot: u64::MAX,
            reject: true,
            reject_hint: u64::MAX,
            deprecated_priority: u64::MAX,
            priority: i64::MIN,
            context: vec![1; 300].into(),
            ..Message::default()
        };
        all.set_msg_type(MessageType::MsgReadIndexResp);
        let mut entry = Entry {
            term: u64::MAX,
            index: u64::MAX,
            data: vec![1; 70_000].into(),
            context: vec![1; 300].into(),
            ..Entry::default()
        };
        entry.set_entry_type(raft::eraftpb::EntryType::EntryConfChangeV2);
        all.set_entries(vec![entry.clone(), entry].into());
        assert!(bytes_of(&all) >= all.compute_size() as usize);
        assert!(bytes_of(&Message::default()) >= Message::default().compute_size() as usize);
        assert!(bytes_of(&append(&[0; 100])) >= append(&[0; 100]).compute_size() as usize);
    }
}
