//! A connection of Raft messages, for a thread that reads it without waiting.

use bytes::{Bytes, BytesMut};
use types::RegionId;

use super::frame::{self, Frame, RAFT_BATCH_BYTES_MAX};
use super::inbound::Remote;
use super::raft_message;
use super::stream::PeerSocket;

/// Minimum size of a frame that is left to a task, in bytes. Growing a buffer for it would delay
/// the thread's other work. A frame of several messages is smaller.
const LARGE_FRAME_BYTES: usize = 2 * RAFT_BATCH_BYTES_MAX;

pub use node::Messages;

/// A lane that its reader gives back, with a part of a very large frame, or the reason for its end.
pub type Returned = Result<RaftLane, String>;

/// A connection from an admitted store.
pub struct RaftLane {
    /// The socket, which does not block.
    pub stream: PeerSocket,
    pub remote: Remote,
    /// Bytes that were read and are not taken yet.
    pub bytes: BytesMut,
}

/// The beginning of a lane's bytes.
#[derive(Debug, PartialEq)]
pub enum Next {
    Messages(Messages),
    /// A part of a frame, or nothing.
    Part,
    /// A part of a very large frame.
    PartOfLarge,
}

impl RaftLane {
    /// Takes the messages of the next frame.
    ///
    /// # Errors
    /// A frame that cannot be decoded or does not belong on this lane. The connection must end.
    pub fn take(&mut self) -> Result<Next, String> {
        match frame::take(&mut self.bytes).map_err(|error| error.to_string())? {
            Some(Frame::Raft(messages)) => decode_messages(messages).map(Next::Messages),
            Some(_) => Err("a frame out of place".into()),
            None => Ok(match frame::length(&self.bytes) {
                Some(length) if length >= LARGE_FRAME_BYTES => Next::PartOfLarge,
                _ => Next::Part,
            }),
        }
    }
}

/// Decodes the messages of a frame.
pub fn decode_messages(messages: Vec<(RegionId, Bytes)>) -> Result<Messages, String> {
    let frame_bytes: usize = messages.iter().map(|(_, bytes)| bytes.len()).sum();
    let decode = |(region, bytes): (RegionId, Bytes)| {
        let mut message = raft_message::decode(&bytes)?;
        for entry in message.mut_entries().iter_mut().filter(|entry| entry.data.len() < frame_bytes / 2) {
            // The data is copied, because an entry that is kept would otherwise keep the whole
            // frame in memory.
            entry.data = Bytes::copy_from_slice(&entry.data);
        }
        Ok((region, message))
    };
    messages.into_iter().map(decode).collect()
}
