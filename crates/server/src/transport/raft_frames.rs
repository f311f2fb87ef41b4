//! Writes Raft messages into frames.
//!
//! Small messages share a frame. A message with a very large entry has a frame of its own, and the
//! entry's data is written without a copy.

use bytes::{BufMut, Bytes};
use protobuf::Message as _;
use raft::eraftpb::{Entry, Message};
use types::{Output, RegionId, SHARED_BYTES_MIN};

use super::append;
use super::frame::{FrameError, FRAME_BYTES_MAX, RAFT, RAFT_BATCH_BYTES_MAX, RAFT_MESSAGE_BYTES_MAX};

/// The tags of two fields with a length: `Message.entries` and `Entry.data`.
const ENTRIES_TAG: u8 = 7 << 3 | 2;
const DATA_TAG: u8 = 4 << 3 | 2;

/// Writes Raft messages into frames in order, without an intermediate copy.
#[derive(Default)]
pub struct RaftFrameWriter {
    /// The position of the open frame in the output's buffer.
    start: Option<usize>,
}

impl RaftFrameWriter {
    /// # Errors
    /// [`FrameError::TooLong`] if the message does not fit into a frame beside a batch. Nothing was
    /// appended.
    pub fn push(&mut self, out: &mut Output, region: RegionId, message: &Message) -> Result<(), FrameError> {
        // The protobuf library adds sizes in 32 bits, so it is never asked for the size of a very
        // large message.
        let estimate = append::bytes_of(message);
        if estimate > RAFT_MESSAGE_BYTES_MAX {
            return Err(FrameError::TooLong(estimate));
        }
        if message.get_entries().iter().any(|entry| entry.data.len() >= SHARED_BYTES_MIN) {
            self.finish(out);
            put_alone(out, region, message);
            return Ok(());
        }
        let length = message.compute_size();
        let buffer = out.buffer();
        let start = *self.start.get_or_insert_with(|| {
            let start = buffer.len();
            buffer.put_u32_le(0);
            buffer.put_u8(RAFT);
            start
        });
        buffer.reserve(8 + 4 + length as usize);
        buffer.put_u64_le(region);
        buffer.put_u32_le(length);
        message.write_to_writer(&mut buffer.writer()).expect("a buffer in memory takes every message");
        if buffer.len() - start > RAFT_BATCH_BYTES_MAX {
            self.finish(out);
        }
        Ok(())
    }

    /// Ends the open frame. Must be called before any other output.
    pub fn finish(&mut self, out: &mut Output) {
        if let Some(start) = self.start.take() {
            let buffer = out.buffer();
            let length = buffer.len() - start - 4;
            assert!(length <= FRAME_BYTES_MAX, "every message was measured before it was pushed");
            buffer[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
        }
    }
}

/// Appends a frame of one message. Its entries come last; the fields of a message may come in any
/// order.
fn put_alone(out: &mut Output, region: RegionId, message: &Message) {
    let mut head = message.clone();
    let entries: Vec<(Vec<u8>, Bytes)> = head.take_entries().into_iter().map(encode_entry).collect();
    let head = encoded(&head);
    let length = head.len() + entries.iter().map(|(head, data)| head.len() + data.len()).sum::<usize>();
    let buffer = out.buffer();
    buffer.put_u32_le((1 + 8 + 4 + length) as u32);
    buffer.put_u8(RAFT);
    buffer.put_u64_le(region);
    buffer.put_u32_le(length as u32);
    buffer.put_slice(&head);
    for (head, data) in entries {
        out.buffer().put_slice(&head);
        out.put(&data);
    }
}

/// Returns the bytes that precede the entry's data in a message, and the data.
fn encode_entry(mut entry: Entry) -> (Vec<u8>, Bytes) {
    let data = std::mem::take(&mut entry.data);
    let mut inner = encoded(&entry);
    inner.push(DATA_TAG);
    put_varint(&mut inner, data.len());
    let mut head = vec![ENTRIES_TAG];
    put_varint(&mut head, inner.len() + data.len());
    head.extend(inner);
    (head, data)
}

fn encoded(message: &impl protobuf::Message) -> Vec<u8> {
    message.write_to_bytes().expect("a buffer in memory takes every message")
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use raft::eraftpb;

    use super::super::frame::{take, Frame};
    use super::super::output;
    use super::*;

    #[test]
    fn raft_messages_are_cut_into_frames_and_one_that_no_frame_holds_is_refused() {
        let entry = |bytes: usize| {
            let entry =
                eraftpb::Entry { index: 5, term: 2, data: vec![7u8; bytes].into(), ..Default::default() };
            eraftpb::Message { term: 2, index: 4, entries: vec![entry].into(), ..Default::default() }
        };
        let (mut writer, mut wire) = (RaftFrameWriter::default(), Output::default());
        let messages = [entry(10), entry(RAFT_BATCH_BYTES_MAX), entry(20)];
        for (region, message) in messages.iter().enumerate() {
            writer.push(&mut wire, region as RegionId, message).unwrap();
        }
        let before = wire.len();
        let long = entry(RAFT_MESSAGE_BYTES_MAX);
        assert!(matches!(writer.push(&mut wire, 9, &long), Err(FrameError::TooLong(_))));
        assert_eq!(wire.len(), before);
        writer.finish(&mut wire);
        let ((mut wire, _), mut seen) = (output::joined(wire), Vec::new());
        while let Some(frame) = take(&mut wire).unwrap() {
            let Frame::Raft(batch) = frame else { panic!("unexpected kind of frame") };
            seen.push(batch);
        }
        assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
        for (region, bytes) in seen.into_iter().flatten() {
            let message = eraftpb::Message::parse_from_carllerche_bytes(&bytes).unwrap();
            assert_eq!(message, messages[region as usize]);
        }
    }

    #[test]
    fn large_entries_are_written_from_where_they_are() {
        let sizes = [5, SHARED_BYTES_MIN, 0, SHARED_BYTES_MIN + 300];
        let entries = sizes.iter().zip(8u64..).map(|(&size, index)| {
            let mut entry = Entry { index, term: 1 << 40, data: vec![9; size].into(), ..Default::default() };
            entry.set_entry_type(eraftpb::EntryType::EntryConfChangeV2);
            entry.context = vec![3; size / 1000].into();
            entry
        });
        let mut message = Message { from: 1, to: 2, term: 3, index: 7, commit: 300, ..Default::default() };
        message.context = vec![6; 200].into();
        message.set_msg_type(eraftpb::MessageType::MsgAppend);
        message.set_entries(entries.collect::<Vec<_>>().into());
        let small = Message { term: 4, ..Default::default() };
        let (mut writer, mut wire) = (RaftFrameWriter::default(), Output::default());
        for message in [&small, &message, &small] {
            writer.push(&mut wire, 5, message).unwrap();
        }
        writer.finish(&mut wire);
        let ((mut wire, shared), mut seen) = (output::joined(wire), Vec::new());
        for entry in message.get_entries() {
            let is_shared = shared.iter().any(|part| part.as_ptr_range() == entry.data.as_ptr_range());
            assert_eq!(is_shared, entry.data.len() >= SHARED_BYTES_MIN);
        }
        while let Some(frame) = take(&mut wire).unwrap() {
            let Frame::Raft(batch) = frame else { panic!("unexpected kind of frame") };
            seen.extend(batch.iter().map(|(_, bytes)| Message::parse_from_carllerche_bytes(bytes).unwrap()));
        }
        assert_eq!(seen, [small.clone(), message, small]);
    }
}
