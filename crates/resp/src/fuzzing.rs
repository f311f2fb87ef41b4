//! The bodies of the fuzz targets. `fuzz/` calls them, and `tests/fuzz_short.rs` runs them over
//! seeded mutations.
//!
//! An input is two bytes that choose how the stream is received, followed by the stream itself.

use bytes::BytesMut;

use crate::{
    encode, encode_request, Decoder, Limits, Protocol, ProtocolError, Reply, ReplyDecoder, ReplyLimits,
    Request,
};

/// Bytes that a decoder may hold beyond a small multiple of the bytes received.
const SLACK_BYTES: usize = 256 << 10;

/// A fuzz input, with the way in which its stream is received.
struct Reception<'a> {
    /// Selects the limits.
    variant: u8,
    /// Selects the cuts.
    cuts: u8,
    stream: &'a [u8],
}

impl<'a> Reception<'a> {
    fn new(input: &'a [u8]) -> Option<Reception<'a>> {
        let (&[variant, cuts], stream) = input.split_first_chunk()?;
        Some(Reception { variant, cuts, stream })
    }

    /// Returns the stream in pieces of one byte, or of lengths from 1 to 64.
    fn pieces(&self) -> Vec<&'a [u8]> {
        let (mut pieces, mut rest, mut state) = (Vec::new(), self.stream, u32::from(self.cuts));
        while !rest.is_empty() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = if self.cuts == 0 { 1 } else { (state >> 24) as usize % 64 + 1 };
            let (piece, after) = rest.split_at(length.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces
    }
}

/// Feeds `pieces` to `decode` and collects the decoded items, up to the first error.
fn receive<T>(
    pieces: &[&[u8]],
    mut decode: impl FnMut(&mut BytesMut) -> Result<Option<T>, ProtocolError>,
) -> (Vec<T>, Option<ProtocolError>) {
    let (mut buf, mut decoded, mut received) = (BytesMut::new(), Vec::new(), 0);
    for piece in pieces {
        buf.extend_from_slice(piece);
        received += piece.len();
        loop {
            match decode(&mut buf) {
                Ok(Some(item)) => decoded.push(item),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decode(&mut buf).err(), Some(error), "a failed decoder stays failed");
                    return (decoded, Some(error));
                }
            }
        }
        assert!(buf.capacity() <= 4 * received + SLACK_BYTES, "memory follows what has arrived");
    }
    (decoded, None)
}

/// Checks that decoded requests do not depend on the cuts, respect the limits, and survive being
/// written and read again.
pub fn resp_request(input: &[u8]) {
    let Some(reception) = Reception::new(input) else { return };
    let limits = match reception.variant % 3 {
        0 => Limits::default(),
        1 => Limits::unauthenticated(),
        _ => Limits {
            bulk_bytes_max: 24,
            args_max: 4,
            line_bytes_max: 32,
            request_bytes_max: 72,
            authenticated: true,
        },
    };
    let decode = |pieces: &[&[u8]]| {
        let mut decoder = Decoder::new(limits.clone());
        receive(pieces, |buf| decoder.decode(buf))
    };
    let (requests, error) = decode(&[reception.stream]);
    assert_eq!(decode(&reception.pieces()), (requests.clone(), error), "the cuts do not matter");

    let bytes: usize = requests.iter().flat_map(|request| &request.args).map(|arg| arg.len()).sum();
    assert!(bytes <= reception.stream.len(), "arguments come from the stream");
    let mut written = BytesMut::new();
    for Request { args } in &requests {
        assert!(
            !args.is_empty()
                && args.iter().all(|arg| arg.len() <= limits.bulk_bytes_max.max(limits.line_bytes_max))
        );
        encode_request(args, &mut written);
    }
    let mut decoder = Decoder::new(Limits::default());
    let again = receive(&[&written], |buf| decoder.decode(buf));
    assert_eq!(again, (requests, None), "a request that was read can be written and read again");
}

/// Checks that decoded replies do not depend on the cuts, and give the same bytes after being
/// written and read again.
pub fn resp_reply(input: &[u8]) {
    let Some(reception) = Reception::new(input) else { return };
    let limits = match reception.variant % 2 {
        0 => ReplyLimits::default(),
        _ => ReplyLimits {
            bulk_bytes_max: 24,
            line_bytes_max: 32,
            nesting_max: 3,
            elements_max: 12,
            reply_bytes_max: 96,
        },
    };
    let decode = |limits: &ReplyLimits, pieces: &[&[u8]]| {
        let mut decoder = ReplyDecoder::new(limits.clone());
        receive(pieces, |buf| decoder.decode(buf))
    };
    let (replies, error) = decode(&limits, &[reception.stream]);
    let (in_pieces, error_in_pieces) = decode(&limits, &reception.pieces());
    // Compares the encoded bytes, because a NaN does not equal itself.
    let written = |replies: &[Reply], protocol| {
        let mut out = BytesMut::new();
        replies.iter().for_each(|reply| encode(reply, protocol, &mut out));
        out
    };
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let first = written(&replies, protocol);
        assert_eq!(written(&in_pieces, protocol), first, "the cuts do not matter");
        // A long error may arrive as a string but is written as a line.
        let wide = ReplyLimits { line_bytes_max: usize::MAX, ..ReplyLimits::default() };
        let (again, error) = decode(&wide, &[&first]);
        assert_eq!(
            (again.len(), error),
            (replies.len(), None),
            "what was read can be written and read again"
        );
        assert_eq!(written(&again, protocol), first);
    }
    assert_eq!(error_in_pieces, error);
}
