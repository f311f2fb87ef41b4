//! The answer to one command, as a value or as bytes.

use bytes::{Bytes, BytesMut};
use resp::{Protocol, Reply};

/// A reply of this store, or the encoded reply of another store, in the client's protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Reply(Reply),
    Encoded(Bytes),
}

impl Answer {
    pub fn encode(&self, protocol: Protocol, out: &mut BytesMut) {
        match self {
            Answer::Reply(reply) => resp::encode(reply, protocol, out),
            Answer::Encoded(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Returns the approximate size of the answer in bytes: its strings plus a small overhead for
    /// each reply.
    pub fn bytes(&self) -> usize {
        match self {
            Answer::Reply(reply) => reply.bytes(),
            Answer::Encoded(bytes) => bytes.len(),
        }
    }

    /// Returns the answer as a value. The decoder reads both RESP2 and RESP3.
    pub fn into_reply(self) -> Reply {
        match self {
            Answer::Reply(reply) => reply,
            Answer::Encoded(bytes) => {
                let mut buffer = BytesMut::from(&bytes[..]);
                match resp::ReplyDecoder::default().decode(&mut buffer) {
                    Ok(Some(reply)) => reply,
                    _ => Reply::error("ERR a store sent a reply that cannot be read"),
                }
            }
        }
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer::Reply(reply)
    }
}
