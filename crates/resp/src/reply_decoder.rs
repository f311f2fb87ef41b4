//! Replies as a client reads them: RESP2 and RESP3.
//!
//! A first pass finds the end of the reply and keeps its place while bytes arrive; only a whole reply is
//! built. Every byte is thus looked at twice at most, and nothing is allocated from a declared length.

use std::borrow::Cow;

use bytes::{Buf, Bytes, BytesMut};

use crate::request::{parse_length, ProtocolError};
use crate::Reply;

const DEPTH_MAX: usize = 64;
const LINE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub struct ReplyDecoder {
    bulk_bytes_max: usize,
    /// Where the first pass goes on.
    position: usize,
    /// Elements still to come of each open aggregate, outermost first.
    open: Vec<usize>,
    started: bool,
}

impl Default for ReplyDecoder {
    fn default() -> ReplyDecoder {
        ReplyDecoder::new(1 << 30)
    }
}

impl ReplyDecoder {
    pub fn new(bulk_bytes_max: usize) -> ReplyDecoder {
        ReplyDecoder { bulk_bytes_max, position: 0, open: Vec::new(), started: false }
    }

    /// Takes the next whole reply from the front of `buffer`; `None` when more bytes are needed.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Reply>, ProtocolError> {
        if !self.find_end(buffer)? {
            return Ok(None);
        }
        let mut bytes = buffer.split_to(self.position).freeze();
        (self.position, self.started) = (0, false);
        build(&mut bytes).map(Some)
    }

    fn find_end(&mut self, buffer: &[u8]) -> Result<bool, ProtocolError> {
        if !self.started {
            (self.started, self.position) = (true, 0);
            self.open.clear();
            self.open.push(1);
        }
        while let Some(left) = self.open.last_mut() {
            if *left == 0 {
                self.open.pop();
                continue;
            }
            let Some((line, after)) = line_at(buffer, self.position)? else { return Ok(false) };
            let Some((&kind, text)) = line.split_first() else {
                return Err(ProtocolError::BadReply("an empty line"));
            };
            match kind {
                b'$' | b'=' | b'!' => {
                    let end = match length(text)? {
                        None => after,
                        Some(length) if length > self.bulk_bytes_max => {
                            return Err(ProtocolError::InvalidBulkLength)
                        }
                        Some(length) => after + length + 2,
                    };
                    if buffer.len() < end {
                        return Ok(false);
                    }
                    self.position = end;
                    *left -= 1;
                }
                b'*' | b'~' | b'>' | b'%' | b'|' => {
                    let count = length(text)?.unwrap_or(0);
                    // An attribute stands before the reply that it describes.
                    let elements = match kind {
                        b'%' | b'|' => count.checked_mul(2).ok_or(ProtocolError::InvalidMultibulkLength)?,
                        _ => count,
                    };
                    *left -= usize::from(kind != b'|');
                    self.position = after;
                    if self.open.len() > DEPTH_MAX {
                        return Err(ProtocolError::BadReply("nested too deeply"));
                    }
                    self.open.push(elements);
                }
                b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {
                    self.position = after;
                    *left -= 1;
                }
                _ => return Err(ProtocolError::BadReply("an unknown type")),
            }
        }
        Ok(true)
    }
}

/// The line at `from` without its end, and where the next one begins.
fn line_at(buffer: &[u8], from: usize) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let rest = &buffer[from.min(buffer.len())..];
    match memchr::memchr(b'\n', rest) {
        Some(at) if at > 0 && rest[at - 1] == b'\r' => Ok(Some((&rest[..at - 1], from + at + 1))),
        Some(_) => Err(ProtocolError::BadReply("a line without CR")),
        None if rest.len() > LINE_BYTES_MAX => Err(ProtocolError::BadReply("a line too long")),
        None => Ok(None),
    }
}

/// A declared length; -1 is "none".
fn length(text: &[u8]) -> Result<Option<usize>, ProtocolError> {
    match parse_length(text) {
        Some(-1) => Ok(None),
        Some(length) => usize::try_from(length).map(Some).map_err(|_| ProtocolError::InvalidBulkLength),
        None => Err(ProtocolError::InvalidBulkLength),
    }
}

fn text(line: &[u8]) -> Cow<'static, str> {
    Cow::Owned(String::from_utf8_lossy(line).into_owned())
}

/// Builds the reply at the front of `bytes`, which is known to hold it whole.
fn build(bytes: &mut Bytes) -> Result<Reply, ProtocolError> {
    let Some((line, after)) = line_at(bytes, 0)? else { return Err(ProtocolError::BadReply("cut short")) };
    let line = Bytes::copy_from_slice(line);
    bytes.advance(after);
    let rest = &line[1..];
    let number = || parse_length(rest).or_else(|| std::str::from_utf8(rest).ok()?.parse().ok());
    Ok(match line[0] {
        b'+' => Reply::Simple(text(rest)),
        b'-' => Reply::Error(text(rest)),
        b':' => Reply::Int(number().ok_or(ProtocolError::BadReply("not an integer"))?),
        b'_' => Reply::Nil,
        b'#' => Reply::Bool(rest == b"t"),
        b',' => {
            let value = std::str::from_utf8(rest).ok().and_then(|text| text.parse().ok());
            Reply::Double(value.ok_or(ProtocolError::BadReply("not a double"))?)
        }
        b'(' => Reply::Bulk(line.slice(1..)),
        b'$' | b'=' | b'!' => match length(rest)? {
            None => Reply::Nil,
            Some(length) => {
                if bytes.len() < length + 2 {
                    return Err(ProtocolError::BadReply("cut short"));
                }
                let body = bytes.split_to(length);
                bytes.advance(2);
                match line[0] {
                    b'!' => Reply::Error(text(&body)),
                    b'=' if body.starts_with(b"mkd:") => Reply::Verbatim("mkd", body.slice(4..)),
                    b'=' if body.len() >= 4 => Reply::Verbatim("txt", body.slice(4..)),
                    _ => Reply::Bulk(body),
                }
            }
        },
        b'%' => {
            let count = length(rest)?.unwrap_or(0);
            let mut pairs = Vec::new();
            for _ in 0..count {
                pairs.push((build(bytes)?, build(bytes)?));
            }
            Reply::Map(pairs)
        }
        b'|' => {
            for _ in 0..length(rest)?.unwrap_or(0) {
                build(bytes)?;
                build(bytes)?;
            }
            return build(bytes);
        }
        kind => match length(rest)? {
            None => Reply::NilArray,
            Some(count) => {
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(build(bytes)?);
                }
                match kind {
                    b'~' => Reply::Set(items),
                    b'>' => Reply::Push(items),
                    _ => Reply::Array(items),
                }
            }
        },
    })
}
