//! Frames between stores. Every frame is a little-endian u32 length and that many bytes, the first
//! of which is the kind:
//!
//! ```text
//! 0 hello      magic "SYLD", wire version u16, from u64, to u64, lane u8, layout digest u64,
//!              cluster id u64, key [u8; 32], nonce [u8; 32]
//! 1 raft       (region u64, length u32, eraftpb::Message)*
//! 2 heartbeat  the ledger's encoding of one store's report
//! 3 request    id u64, kind u8, body
//! 4 response   id u64, status u8, body
//! 5 order      an encoded cluster::Order of the meta region's leader for a region's leader
//! 6 refused    reason u8, text: in answer to a hello or a proof, before the connection is closed
//! 7 announce   the newest descriptor of a region that the sender has applied
//! 8 challenge  key [u8; 32], nonce [u8; 32], signature [u8; 64]: in answer to a hello
//! 9 proof      signature [u8; 64], password's proof [u8; 32] or zeros: in answer to a challenge
//! 10 token     signature [u8; 64], token's proof [u8; 32], its expiry u64, its id [u8; 16]: the
//!              proof of a store that joins with a token
//! ```
//!
//! A connection begins with hello, challenge and proof; `handshake` describes what they prove.
//!
//! Decoding checks every length against the available bytes, and allocates nothing for a declared
//! length.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use cluster::StoreKey;
use types::{Output, RegionId, StoreId};

use super::join_token::TokenName;

pub const WIRE_VERSION: u16 = 3;
const MAGIC: &[u8; 4] = b"SYLD";

/// Maximum bytes of a frame that is written or read: the largest value and its overhead.
pub const FRAME_BYTES_MAX: usize = 600 << 20;

/// Size at which a batch of Raft messages is closed, in bytes. A frame holds at most this plus one
/// message.
pub const RAFT_BATCH_BYTES_MAX: usize = 4 << 20;

/// Maximum bytes of a Raft message. Larger ones are not sent. The largest one holds a single log
/// entry (see `append`).
pub const RAFT_MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - RAFT_BATCH_BYTES_MAX - 64;

/// The kinds of frames with parts that may be very large.
pub const RAFT: u8 = 1;
const REQUEST: u8 = 3;
const RESPONSE: u8 = 4;

/// Bytes of a response's frame in addition to the body.
pub const RESPONSE_OVERHEAD: usize = 1 + 8 + 1;

const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);

/// The kinds of connections between stores. They are separate, so that entries never delay a
/// heartbeat or a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Control = 0,
    Log = 1,
    /// Clients' commands that are passed to the leader's store.
    Request = 2,
    /// One snapshot. After the hello it has frames of its own (`snapshot::wire`).
    Snapshot = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub from: StoreId,
    pub to: StoreId,
    pub lane: Lane,
    pub layout_digest: u64,
    /// The cluster's id; 0 while the sender does not know it.
    pub cluster_id: u64,
    /// The sender's key. It is trusted only after the sender has proved that it has the private
    /// half.
    pub key: StoreKey,
    /// A random number for this connection, which the receiver must sign.
    pub nonce: Nonce,
}

/// A random number for one connection.
pub type Nonce = [u8; 32];

/// The receiver's answer to a hello: it proves its own identity and requests a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    pub key: StoreKey,
    pub nonce: Nonce,
    pub signature: [u8; 64],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub signature: [u8; 64],
    /// A proof that the sender knows the cluster's password; zeros if it gives none.
    pub password: [u8; 32],
    /// The name of a token, if the proof is that of the token and not of the password.
    pub token: Option<TokenName>,
}

/// The refusal of a store after its hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: RefusalReason,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The store should not be at this address, or belongs to another cluster. The error may be on
    /// this side.
    Wrong = 0,
    /// The cluster knows a store with this number and another key, so this one has lost its data.
    OtherKey = 1,
    /// The store was removed from the cluster.
    Removed = 2,
    /// The receiver does not know a store with this number yet, and asks other stores about it.
    NotYetKnown = 3,
    /// The store was removed after an operator had declared it lost, and regions continued without
    /// it.
    DeclaredLost = 4,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Hello(Hello),
    Raft(Vec<(RegionId, Bytes)>),
    Heartbeat(Bytes),
    Request { id: u64, kind: u8, body: Bytes },
    Response { id: u64, status: u8, body: Bytes },
    Order(Bytes),
    Announce(Bytes),
    Refused(Refusal),
    Challenge(Challenge),
    Proof(Proof),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error(
        "a frame of {0} bytes is longer than allowed: the other end may be no peer port of a store, or only one \
         end uses TLS"
    )]
    TooLong(usize),
    #[error("frame ends inside {0}")]
    Truncated(&'static str),
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    #[error("not a steelyard store")]
    BadMagic,
    #[error("wire version {0}, this program speaks {WIRE_VERSION}")]
    WrongVersion(u16),
    #[error("unknown lane {0}")]
    UnknownLane(u8),
    #[error("unknown refusal {0}")]
    UnknownRefusal(u8),
    #[error("a text is not UTF-8")]
    NoText,
    #[error("{0} bytes after the end of the frame's content")]
    TrailingBytes(usize),
}

/// Removes one complete frame from the front of `buffer`. Returns `None` if more bytes are needed.
pub fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    take_within(FRAME_BYTES_MAX, buffer)
}

/// Returns the declared length of the first frame, or `None` if its prefix is incomplete.
pub fn length(buffer: &[u8]) -> Option<usize> {
    buffer.first_chunk::<4>().map(|prefix| u32::from_le_bytes(*prefix) as usize)
}

/// Does the same as [`take`] with a limit of `bytes_max` for a frame.
pub fn take_within(bytes_max: usize, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some(length) = length(buffer) else { return Ok(None) };
    if length > bytes_max {
        return Err(FrameError::TooLong(length));
    }
    if buffer.len() - 4 < length {
        return Ok(None);
    }
    buffer.advance(4);
    decode(buffer.split_to(length).freeze()).map(Some)
}

/// Decodes a frame's content (without its length).
pub fn decode(mut bytes: Bytes) -> Result<Frame, FrameError> {
    let kind = take_u8(&mut bytes, "the kind")?;
    let frame = match kind {
        0 => Frame::Hello(decode_hello(&mut bytes)?),
        RAFT => {
            let mut messages = Vec::new();
            while !bytes.is_empty() {
                let region = take_u64(&mut bytes, "a region")?;
                let length = take_u32(&mut bytes, "a message's length")? as usize;
                messages.push((region, take_bytes(&mut bytes, length, "a message")?));
            }
            Frame::Raft(messages)
        }
        2 => Frame::Heartbeat(std::mem::take(&mut bytes)),
        REQUEST | RESPONSE => {
            let id = take_u64(&mut bytes, "a request's id")?;
            let code = take_u8(&mut bytes, "a request's kind")?;
            let body = std::mem::take(&mut bytes);
            match kind {
                REQUEST => Frame::Request { id, kind: code, body },
                _ => Frame::Response { id, status: code, body },
            }
        }
        5 => Frame::Order(std::mem::take(&mut bytes)),
        6 => Frame::Refused(decode_refusal(&mut bytes)?),
        7 => Frame::Announce(std::mem::take(&mut bytes)),
        8 => Frame::Challenge(Challenge {
            key: StoreKey(take_array(&mut bytes, "a key")?),
            nonce: take_array(&mut bytes, "a nonce")?,
            signature: take_array(&mut bytes, "a signature")?,
        }),
        9 => Frame::Proof(Proof {
            signature: take_array(&mut bytes, "a signature")?,
            password: take_array(&mut bytes, "a password's proof")?,
            token: None,
        }),
        10 => Frame::Proof(Proof {
            signature: take_array(&mut bytes, "a signature")?,
            password: take_array(&mut bytes, "a token's proof")?,
            token: Some(TokenName {
                expires: take_u64(&mut bytes, "a token's expiry")?,
                id: take_array(&mut bytes, "a token's id")?,
            }),
        }),
        other => return Err(FrameError::UnknownKind(other)),
    };
    match bytes.len() {
        0 => Ok(frame),
        left => Err(FrameError::TrailingBytes(left)),
    }
}

fn decode_hello(bytes: &mut Bytes) -> Result<Hello, FrameError> {
    if take_bytes(bytes, MAGIC.len(), "the magic")? != MAGIC[..] {
        return Err(FrameError::BadMagic);
    }
    let version = take_u8(bytes, "the version")? as u16 | (take_u8(bytes, "the version")? as u16) << 8;
    if version != WIRE_VERSION {
        return Err(FrameError::WrongVersion(version));
    }
    let (from, to) = (take_u64(bytes, "a store")?, take_u64(bytes, "a store")?);
    let lane = match take_u8(bytes, "the lane")? {
        0 => Lane::Control,
        1 => Lane::Log,
        2 => Lane::Request,
        3 => Lane::Snapshot,
        other => return Err(FrameError::UnknownLane(other)),
    };
    Ok(Hello {
        from,
        to,
        lane,
        layout_digest: take_u64(bytes, "the layout digest")?,
        cluster_id: take_u64(bytes, "the cluster's id")?,
        key: StoreKey(take_array(bytes, "the key")?),
        nonce: take_array(bytes, "the nonce")?,
    })
}

fn decode_refusal(bytes: &mut Bytes) -> Result<Refusal, FrameError> {
    let reason = match take_u8(bytes, "a refusal")? {
        0 => RefusalReason::Wrong,
        1 => RefusalReason::OtherKey,
        2 => RefusalReason::Removed,
        3 => RefusalReason::NotYetKnown,
        4 => RefusalReason::DeclaredLost,
        other => return Err(FrameError::UnknownRefusal(other)),
    };
    let text = std::str::from_utf8(bytes).map_err(|_| FrameError::NoText)?.to_owned();
    bytes.clear();
    Ok(Refusal { reason, text })
}

/// Appends the frame, with its length first.
///
/// # Errors
/// [`FrameError::TooLong`]: nothing was appended.
pub fn encode(frame: &Frame, out: &mut BytesMut) -> Result<(), FrameError> {
    // The length is checked before any copy, because a frame that is too long may have gigabytes.
    let length = content_length(frame);
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    out.reserve(4 + length);
    out.put_u32_le(length as u32);
    let start = out.len();
    match frame {
        Frame::Hello(hello) => {
            out.put_u8(0);
            out.put_slice(MAGIC);
            out.put_u16_le(WIRE_VERSION);
            out.put_u64_le(hello.from);
            out.put_u64_le(hello.to);
            out.put_u8(hello.lane as u8);
            out.put_u64_le(hello.layout_digest);
            out.put_u64_le(hello.cluster_id);
            out.put_slice(&hello.key.0);
            out.put_slice(&hello.nonce);
        }
        Frame::Raft(messages) => {
            out.put_u8(RAFT);
            for (region, message) in messages {
                out.put_u64_le(*region);
                out.put_u32_le(message.len() as u32);
                out.put_slice(message);
            }
        }
        Frame::Heartbeat(report) => {
            out.put_u8(2);
            out.put_slice(report);
        }
        Frame::Request { id, kind, body } => put_numbered(out, REQUEST, *id, *kind, body),
        Frame::Response { id, status, body } => put_numbered(out, RESPONSE, *id, *status, body),
        Frame::Order(order) => {
            out.put_u8(5);
            out.put_slice(order);
        }
        Frame::Announce(descriptor) => {
            out.put_u8(7);
            out.put_slice(descriptor);
        }
        Frame::Refused(refusal) => {
            out.put_u8(6);
            out.put_u8(refusal.reason as u8);
            out.put_slice(refusal.text.as_bytes());
        }
        Frame::Challenge(challenge) => {
            out.put_u8(8);
            out.put_slice(&challenge.key.0);
            out.put_slice(&challenge.nonce);
            out.put_slice(&challenge.signature);
        }
        Frame::Proof(proof) => {
            out.put_u8(if proof.token.is_some() { 10 } else { 9 });
            out.put_slice(&proof.signature);
            out.put_slice(&proof.password);
            if let Some(TokenName { expires, id }) = &proof.token {
                out.put_u64_le(*expires);
                out.put_slice(id);
            }
        }
    }
    debug_assert_eq!(out.len() - start, length);
    Ok(())
}

/// Does the same for an output, without a copy of a very large body.
///
/// # Errors
/// Those of [`encode`].
pub fn put(frame: &Frame, out: &mut Output) -> Result<(), FrameError> {
    let (kind, id, code, body) = match frame {
        Frame::Request { id, kind, body } => (REQUEST, id, kind, body),
        Frame::Response { id, status, body } => (RESPONSE, id, status, body),
        small => return encode(small, out.buffer()),
    };
    let length = content_length(frame);
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    out.buffer().put_u32_le(length as u32);
    put_numbered(out.buffer(), kind, *id, *code, &[]);
    out.put(body);
    Ok(())
}

fn content_length(frame: &Frame) -> usize {
    1 + match frame {
        Frame::Hello(_) => MAGIC.len() + 2 + 8 + 8 + 1 + 8 + 8 + 32 + 32,
        Frame::Raft(messages) => {
            let lengths = messages.iter().map(|(_, message)| 8 + 4 + message.len());
            lengths.fold(0, usize::saturating_add)
        }
        Frame::Heartbeat(report) => report.len(),
        Frame::Request { body, .. } | Frame::Response { body, .. } => 8 + 1 + body.len(),
        Frame::Order(body) | Frame::Announce(body) => body.len(),
        Frame::Refused(refusal) => 1 + refusal.text.len(),
        Frame::Challenge(_) => 32 + 32 + 64,
        Frame::Proof(proof) => 64 + 32 + if proof.token.is_some() { 8 + 16 } else { 0 },
    }
}

fn put_numbered(out: &mut BytesMut, kind: u8, id: u64, code: u8, body: &[u8]) {
    out.put_u8(kind);
    out.put_u64_le(id);
    out.put_u8(code);
    out.put_slice(body);
}

pub fn take_u8(bytes: &mut Bytes, what: &'static str) -> Result<u8, FrameError> {
    if bytes.is_empty() {
        return Err(FrameError::Truncated(what));
    }
    Ok(bytes.get_u8())
}

pub fn take_u32(bytes: &mut Bytes, what: &'static str) -> Result<u32, FrameError> {
    if bytes.len() < 4 {
        return Err(FrameError::Truncated(what));
    }
    Ok(bytes.get_u32_le())
}

pub fn take_u64(bytes: &mut Bytes, what: &'static str) -> Result<u64, FrameError> {
    if bytes.len() < 8 {
        return Err(FrameError::Truncated(what));
    }
    Ok(bytes.get_u64_le())
}

fn take_array<const N: usize>(bytes: &mut Bytes, what: &'static str) -> Result<[u8; N], FrameError> {
    let array = *bytes.first_chunk::<N>().ok_or(FrameError::Truncated(what))?;
    bytes.advance(N);
    Ok(array)
}

pub fn take_bytes(bytes: &mut Bytes, length: usize, what: &'static str) -> Result<Bytes, FrameError> {
    if bytes.len() < length {
        return Err(FrameError::Truncated(what));
    }
    Ok(bytes.split_to(length))
}

/// Checks the properties that hold for any bytes from another store: decoding returns a frame or an
/// error, and a decoded frame survives encoding and decoding.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some(frame)) = take(&mut buffer) {
        let mut wire = BytesMut::new();
        encode(&frame, &mut wire).expect("a decoded frame fits into a frame");
        assert_eq!(take(&mut wire), Ok(Some(frame)));
        assert!(wire.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::super::output;
    use super::*;

    fn hello() -> Hello {
        let (key, nonce) = (StoreKey([3; 32]), [4; 32]);
        Hello { from: 0, to: 5, lane: Lane::Log, layout_digest: 77, cluster_id: 9, key, nonce }
    }

    fn samples() -> Vec<Frame> {
        vec![
            Frame::Hello(hello()),
            Frame::Raft(vec![(0, Bytes::from_static(b"abc")), (9, Bytes::new())]),
            Frame::Heartbeat(Bytes::from_static(b"report")),
            Frame::Request { id: 3, kind: 1, body: Bytes::from_static(b"GET k") },
            Frame::Response { id: 3, status: 0, body: Bytes::new() },
            Frame::Order(Bytes::from_static(b"order")),
            Frame::Announce(Bytes::from_static(b"descriptor")),
            Frame::Refused(Refusal { reason: RefusalReason::OtherKey, text: "who?".into() }),
            Frame::Challenge(Challenge { key: StoreKey([5; 32]), nonce: [6; 32], signature: [7; 64] }),
            Frame::Proof(Proof { signature: [8; 64], password: [9; 32], token: None }),
            Frame::Proof(Proof {
                signature: [8; 64],
                password: [9; 32],
                token: Some(TokenName { expires: 7, id: [3; 16] }),
            }),
        ]
    }

    #[test]
    fn frames_survive_the_wire_in_any_pieces() {
        let mut wire = BytesMut::new();
        samples().iter().for_each(|frame| encode(frame, &mut wire).unwrap());
        for piece in [1, 2, 3, 7, wire.len()] {
            let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
            for chunk in wire.chunks(piece) {
                buffer.extend_from_slice(chunk);
                while let Some(frame) = take(&mut buffer).unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, samples());
        }
    }

    #[test]
    fn every_cut_and_every_extra_byte_is_an_error() {
        for frame in samples() {
            let mut wire = BytesMut::new();
            encode(&frame, &mut wire).unwrap();
            let content = wire.split_off(4).freeze();
            assert_eq!(decode(content.clone()).unwrap(), frame);
            if matches!(frame, Frame::Hello(_) | Frame::Challenge(_) | Frame::Proof(_)) {
                for end in 0..content.len() {
                    assert!(matches!(decode(content.slice(..end)), Err(FrameError::Truncated(_))));
                }
                let longer = [&content[..], b"x"].concat();
                assert_eq!(decode(longer.into()), Err(FrameError::TrailingBytes(1)));
            }
        }
    }

    #[test]
    fn a_declared_length_allocates_nothing_and_a_huge_one_is_refused() {
        let mut buffer = BytesMut::from(&(FRAME_BYTES_MAX as u32).to_le_bytes()[..]);
        assert_eq!(take(&mut buffer), Ok(None));
        assert!(buffer.capacity() < 1024);
        let mut buffer = BytesMut::from(&u32::MAX.to_le_bytes()[..]);
        assert_eq!(take(&mut buffer), Err(FrameError::TooLong(u32::MAX as usize)));
        let mut buffer = BytesMut::from(&101u32.to_le_bytes()[..]);
        assert_eq!(take_within(100, &mut buffer), Err(FrameError::TooLong(101)));
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_and_leaves_the_buffer_as_it_was() {
        let mut wire = BytesMut::new();
        encode(&samples()[2], &mut wire).unwrap();
        let before = wire.clone();
        let body = Bytes::from(vec![0u8; FRAME_BYTES_MAX - RESPONSE_OVERHEAD + 1]);
        let long = Frame::Response { id: 1, status: 0, body };
        assert_eq!(encode(&long, &mut wire), Err(FrameError::TooLong(FRAME_BYTES_MAX + 1)));
        assert_eq!(wire, before);
    }

    #[test]
    fn an_output_has_the_same_bytes_and_copies_no_large_body() {
        let large = Bytes::from(vec![7u8; 1 << 20]);
        let mut frames = samples();
        frames.push(Frame::Request { id: 3, kind: 1, body: large.clone() });
        frames.push(Frame::Response { id: 4, status: 2, body: large.clone() });
        for frame in frames {
            let (mut output, mut wire) = (Output::default(), BytesMut::new());
            put(&frame, &mut output).unwrap();
            encode(&frame, &mut wire).unwrap();
            let (joined, shared) = output::joined(output);
            assert_eq!(joined, wire);
            let is_large = |part: &Bytes| part.as_ptr_range() == large.as_ptr_range();
            assert_eq!(shared.iter().any(is_large), wire.len() > large.len());
        }
        let body = Bytes::from(vec![0u8; FRAME_BYTES_MAX - RESPONSE_OVERHEAD + 1]);
        let mut output = Output::default();
        let refused = put(&Frame::Response { id: 1, status: 0, body }, &mut output);
        assert_eq!((refused, output.len()), (Err(FrameError::TooLong(FRAME_BYTES_MAX + 1)), 0));
    }

    #[test]
    fn another_version_and_a_stranger_are_named() {
        let mut wire = BytesMut::new();
        encode(&samples()[0], &mut wire).unwrap();
        let mut stranger = wire.split_off(4);
        stranger[1] = b'X';
        assert_eq!(decode(stranger.clone().freeze()), Err(FrameError::BadMagic));
        stranger[1] = b'S';
        stranger[5] = 9;
        assert_eq!(decode(stranger.freeze()), Err(FrameError::WrongVersion(9)));
    }

    #[test]
    fn mutated_frames_never_panic_and_read_back_as_they_were_written() {
        let mut draw = types::Draw::new(1);
        let mut next = move || draw.number();
        let mut corpus = BytesMut::new();
        samples().iter().for_each(|frame| encode(frame, &mut corpus).unwrap());
        for _ in 0..100_000 {
            let mut bytes = corpus[..(next() as usize % corpus.len()) + 1].to_vec();
            for _ in 0..next() % 6 {
                let at = next() as usize % bytes.len();
                bytes[at] = next() as u8;
            }
            fuzz(&bytes);
        }
    }
}
