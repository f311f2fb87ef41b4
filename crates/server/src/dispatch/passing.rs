//! The encoding of commands that one store passes to another, and of their answers.
//!
//! ```text
//! request   region u64, version of its range u64, patience ms u32, then per command: db u16,
//!           flags u8 (1: RESP3 shapes), argument count u32, (length u32, bytes)*
//! answer    per command: length u32, the encoded reply in the protocol of the flags; empty if
//!           the command was not executed, because the region no longer owns its slot
//! ```
//!
//! A request is bounded by the replication limit. An answer is bounded only by the frame that
//! carries it: a reply without room is replaced by an error.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use resp::{Protocol, Reply};
use types::{copy_in_pieces, RegionId};

use super::{Item, REQUEST_BYTES_MAX};
use crate::transport::frame::{
    take_bytes, take_u32, take_u64, take_u8, FrameError, FRAME_BYTES_MAX, RAFT_MESSAGE_BYTES_MAX,
    RESPONSE_OVERHEAD,
};

const FLAG_RESP3: u8 = 1;

/// Maximum bytes that gathering adds to the largest command: other commands in its group or entry,
/// and their encoding.
const GATHERED_BYTES_MAX: usize = 4 << 20;

// Every admitted command fits into one frame, both when it is passed on and when it is replicated.
const _: () = assert!(REQUEST_BYTES_MAX + GATHERED_BYTES_MAX <= FRAME_BYTES_MAX);
const _: () = assert!(REQUEST_BYTES_MAX + GATHERED_BYTES_MAX <= RAFT_MESSAGE_BYTES_MAX);

/// Maximum bytes of the encoded replies of one answer, their lengths included.
const ANSWER_BYTES_MAX: usize = FRAME_BYTES_MAX - RESPONSE_OVERHEAD;
/// Maximum bytes of the result of `answer_too_long`.
const REFUSAL_BYTES_MAX: usize = 160;

#[derive(Debug, thiserror::Error)]
pub enum PassingError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a passed command is unknown here")]
    UnknownCommand,
}

/// Commands for the leader of a region.
pub struct Request {
    pub region: RegionId,
    /// The region's version that the sender assumes. It matters to commands about all slots of the
    /// region.
    pub version: u64,
    pub patience: Duration,
    pub items: Vec<Item>,
}

/// Encodes a request in pieces, so that a very large one does not delay other tasks.
pub async fn encode_request(region: RegionId, version: u64, patience: Duration, items: &[Item]) -> Bytes {
    let size = items.iter().flat_map(|item| &item.args).map(|arg| arg.len() + 4).sum::<usize>();
    let mut out = BytesMut::with_capacity(size + items.len() * 16 + 24);
    out.put_u64_le(region);
    out.put_u64_le(version);
    out.put_u32_le(u32::try_from(patience.as_millis()).unwrap_or(u32::MAX));
    for item in items {
        out.put_u8(item.db as u8);
        out.put_u8((item.db >> 8) as u8);
        out.put_u8(if item.resp3 { FLAG_RESP3 } else { 0 });
        out.put_u32_le(item.args.len() as u32);
        for arg in &item.args {
            out.put_u32_le(u32::try_from(arg.len()).expect("arguments are below 4 GiB"));
            copy_in_pieces(arg, &mut out, tokio::task::yield_now).await;
        }
    }
    out.freeze()
}

pub fn decode_request(mut body: Bytes) -> Result<Request, PassingError> {
    let region = take_u64(&mut body, "the region")?;
    let version = take_u64(&mut body, "the version")?;
    let patience = Duration::from_millis(u64::from(take_u32(&mut body, "the patience")?));
    let mut items = Vec::new();
    while !body.is_empty() {
        let db =
            u16::from(take_u8(&mut body, "a database")?) | u16::from(take_u8(&mut body, "a database")?) << 8;
        let flags = take_u8(&mut body, "a command's flags")?;
        let count = take_u32(&mut body, "an argument count")?;
        let mut args = Vec::new();
        for _ in 0..count {
            let length = take_u32(&mut body, "an argument's length")? as usize;
            args.push(take_bytes(&mut body, length, "an argument")?);
        }
        let item = Item::new(args, db, flags & FLAG_RESP3 != 0).ok_or(PassingError::UnknownCommand)?;
        items.push(item);
    }
    Ok(Request { region, version, patience, items })
}

pub fn encode_answer(replies: &[Bytes]) -> Bytes {
    encode_answer_within(ANSWER_BYTES_MAX, replies)
}

fn encode_answer_within(bytes_max: usize, replies: &[Bytes]) -> Bytes {
    // Every command has room for an error. The remaining room goes to longer replies, in order.
    let mut room = bytes_max.saturating_sub(replies.len().saturating_mul(4 + REFUSAL_BYTES_MAX));
    let fits = |reply: &Bytes| {
        let more = reply.len().saturating_sub(REFUSAL_BYTES_MAX);
        let fits = more <= room;
        room -= if fits { more } else { 0 };
        fits
    };
    let fitting: Vec<bool> = replies.iter().map(fits).collect();
    let length = |(reply, fits): (&Bytes, &bool)| 4 + if *fits { reply.len() } else { REFUSAL_BYTES_MAX };
    let mut out = BytesMut::with_capacity(replies.iter().zip(&fitting).map(length).sum());
    for (reply, fits) in replies.iter().zip(&fitting) {
        let refusal;
        let bytes = match fits {
            true => reply,
            false => {
                refusal = answer_too_long(reply.len());
                &refusal
            }
        };
        out.put_u32_le(u32::try_from(bytes.len()).expect("what fits is below the frame limit"));
        out.put_slice(bytes);
    }
    out.freeze()
}

/// Returns the reply that replaces a reply of `bytes` bytes, which is too large to be passed on. It
/// is valid in both protocols. The command itself was executed.
pub fn answer_too_long(bytes: usize) -> Bytes {
    let text = format!(
        "ERR the command was carried out, but its reply of {bytes} bytes is larger than a store passes on, {ANSWER_BYTES_MAX}"
    );
    let mut out = BytesMut::new();
    resp::encode(&Reply::error(text), Protocol::Resp2, &mut out);
    out.freeze()
}

pub fn decode_answer(mut body: Bytes) -> Result<Vec<Bytes>, FrameError> {
    let mut replies = Vec::new();
    while !body.is_empty() {
        let length = take_u32(&mut body, "a reply's length")? as usize;
        replies.push(take_bytes(&mut body, length, "a reply")?);
    }
    Ok(replies)
}

#[cfg(test)]
mod tests {
    use types::PIECE_BYTES;

    use super::*;

    fn item(args: &[&str], db: u16, resp3: bool) -> Item {
        Item::new(args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect(), db, resp3).unwrap()
    }

    #[tokio::test]
    async fn requests_survive_the_way() {
        let items = [item(&["SET", "k", "v"], 3, false), item(&["hgetall", ""], 700, true)];
        let body = encode_request(9, 4, Duration::from_millis(1500), &items).await;
        let Request { region, version, patience, items: decoded } = decode_request(body.clone()).unwrap();
        assert_eq!((region, version, patience), (9, 4, Duration::from_millis(1500)));
        let plain = |item: &Item| (item.spec.name, item.args.clone(), item.db, item.resp3);
        assert_eq!(
            decoded.iter().map(plain).collect::<Vec<_>>(),
            items.iter().map(plain).collect::<Vec<_>>()
        );
        // The first command ends where the second begins. No other cut is a valid request.
        let one = encode_request(9, 4, Duration::from_millis(1500), &items[..1]).await.len();
        for end in (0..body.len()).filter(|end| ![20, one].contains(end)) {
            assert!(decode_request(body.slice(..end)).is_err(), "cut at {end}");
        }
        let large = item(&["SET", "k", &"v".repeat(2 * PIECE_BYTES + 1)], 0, false);
        let body = encode_request(9, 4, Duration::ZERO, std::slice::from_ref(&large)).await;
        assert_eq!(decode_request(body).unwrap().items[0].args, large.args);
    }

    #[test]
    fn answers_survive_the_way() {
        let replies: Vec<Bytes> = ["+OK\r\n", "", "$1\r\nx\r\n"].map(Bytes::from).to_vec();
        assert_eq!(decode_answer(encode_answer(&replies)).unwrap(), replies);
    }

    #[test]
    fn replies_without_room_become_errors_and_the_others_arrive() {
        let refused =
            |bytes: &Bytes| bytes.starts_with(b"-ERR the command was carried out, but its reply of ");
        let big = |n: usize| Bytes::from(vec![b'x'; n]);
        let (bytes_max, short) = (10_000, Bytes::from("+OK\r\n"));
        let replies = [short.clone(), big(8000), big(8000), short.clone(), big(700)];
        let answer = encode_answer_within(bytes_max, &replies);
        assert!(answer.len() <= bytes_max);
        let decoded = decode_answer(answer).unwrap();
        assert_eq!(decoded.iter().map(refused).collect::<Vec<_>>(), [false, false, true, false, false]);
        for (reply, original) in decoded.iter().zip(&replies).filter(|(reply, _)| !refused(reply)) {
            assert_eq!(reply, original);
        }
    }

    #[test]
    fn a_refusal_is_as_short_as_it_is_counted() {
        assert!(answer_too_long(usize::MAX).len() <= REFUSAL_BYTES_MAX);
    }
}
