//! The reply decoder for clients, for RESP2 and RESP3 alike.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::length::parse_integer;
use crate::receive_buffer::make_room;
use crate::{ProtocolError, Reply, ReplyLimits};

/// Maximum bytes of a string that is copied. A slice that short would keep a receive buffer of many
/// times its size alive.
const COPIED_BYTES_MAX: usize = 1024;
/// Maximum number of elements for which an aggregate reserves room before they arrive.
const RESERVED_ELEMENTS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Array,
    Map,
    Set,
    Push,
    /// Metadata about the value that follows it. It is skipped.
    Attribute,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Bulk,
    Error,
    Verbatim,
}

/// An aggregate whose elements are arriving.
#[derive(Debug)]
struct Open {
    kind: Aggregate,
    /// The number of elements missing, at least one. A pair counts as two.
    left: usize,
    elements: Vec<Reply>,
}

/// One step of decoding a reply.
enum Token {
    Value(Reply),
    Open(Aggregate, usize),
    /// A string's length was read. The string comes next.
    Text,
}

/// Decodes the replies of one connection.
///
/// Attributes are skipped. A big number is returned as a bulk string of its digits, as in RESP2.
/// Where [`Reply`] holds text, invalid UTF-8 is replaced with replacement characters. The streamed
/// types (`$?`, `*?`), which no server sends, are refused.
#[derive(Debug, Default)]
pub struct ReplyDecoder {
    limits: ReplyLimits,
    /// The open aggregates, outermost first.
    open: Vec<Open>,
    /// The string in progress, once its length line has arrived.
    text: Option<(Text, usize)>,
    /// The number of bytes in the buffer that are known not to contain the end of a line.
    searched: usize,
    /// The number of bytes of the reply in progress already taken off the buffer.
    taken_bytes: usize,
    /// The number of elements that the reply in progress has announced so far.
    announced: usize,
    failed: Option<ProtocolError>,
}

impl ReplyDecoder {
    pub fn new(limits: ReplyLimits) -> ReplyDecoder {
        ReplyDecoder { limits, ..ReplyDecoder::default() }
    }

    /// Takes the next reply off the front of `buf`. Returns `None` if more bytes are needed.
    /// Between two calls the caller may only append to `buf`.
    ///
    /// # Errors
    /// If the peer violates the protocol or exceeds a limit. Every later call returns the same
    /// error.
    ///
    /// # Panics
    /// If `buf` has lost bytes since the last call.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Option<Reply>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.decode_next(buf);
        if let Err(error) = result {
            self.failed = Some(error);
            self.open = Vec::new();
        }
        result
    }

    fn decode_next(&mut self, buf: &mut BytesMut) -> Result<Option<Reply>, ProtocolError> {
        assert!(buf.len() >= self.searched, "the receive buffer only grows between calls");
        loop {
            let token = match self.text {
                Some((kind, length)) => self.read_text(kind, length, buf)?,
                None => self.read_line(buf)?,
            };
            let value = match token {
                None => return Ok(None),
                Some(Token::Text) => None,
                Some(Token::Value(value)) => Some(value),
                Some(Token::Open(kind, 0)) => close(kind, Vec::new()),
                Some(Token::Open(kind, left)) => {
                    if self.open.len() >= self.limits.nesting_max {
                        return Err(ProtocolError::TooDeepReply);
                    }
                    let elements = Vec::with_capacity(left.min(RESERVED_ELEMENTS_MAX));
                    self.open.push(Open { kind, left, elements });
                    None
                }
            };
            if let Some(reply) = value.and_then(|value| self.place(value)) {
                self.taken_bytes = 0;
                self.announced = 0;
                return Ok(Some(reply));
            }
        }
    }

    /// Adds a value to the innermost open aggregate. Returns the reply if that completes it.
    fn place(&mut self, mut value: Reply) -> Option<Reply> {
        loop {
            let Some(innermost) = self.open.last_mut() else { return Some(value) };
            innermost.elements.push(value);
            innermost.left -= 1;
            if innermost.left > 0 {
                return None;
            }
            let complete = self.open.pop()?;
            value = close(complete.kind, complete.elements)?;
        }
    }

    /// Reads a line. The length of a string that follows is stored in `self.text`.
    fn read_line(&mut self, buf: &mut BytesMut) -> Result<Option<Token>, ProtocolError> {
        let end = memchr(b'\n', &buf[self.searched..]).map(|offset| self.searched + offset);
        if end.unwrap_or(buf.len()) > self.limits.line_bytes_max {
            return Err(ProtocolError::TooBigReplyLine);
        }
        let Some(end) = end else {
            self.searched = buf.len();
            return Ok(None);
        };
        self.searched = 0;
        let line = buf[..end].strip_suffix(b"\r").ok_or(ProtocolError::ExpectedCrlf)?;
        if memchr(b'\r', line).is_some() {
            return Err(ProtocolError::ExpectedCrlf);
        }
        let Some((&kind, rest)) = line.split_first() else {
            return Err(ProtocolError::UnknownReplyType(b'\r'));
        };
        let token = self.read_token(kind, rest)?;
        self.take(end + 1)?;
        buf.advance(end + 1);
        Ok(Some(token))
    }

    fn read_token(&mut self, kind: u8, rest: &[u8]) -> Result<Token, ProtocolError> {
        let value = match kind {
            b'+' if rest == b"OK" => Reply::OK,
            b'+' => Reply::Simple(lossy(rest).into()),
            b'-' => Reply::Error(lossy(rest).into()),
            b':' => Reply::Int(parse_integer(rest).ok_or(ProtocolError::InvalidReplyValue)?),
            b'_' if rest.is_empty() => Reply::Nil,
            b'#' if rest == b"t" => Reply::Bool(true),
            b'#' if rest == b"f" => Reply::Bool(false),
            b',' => Reply::Double(parse_double(rest).ok_or(ProtocolError::InvalidReplyValue)?),
            b'(' if is_big_number(rest) => Reply::Bulk(Bytes::copy_from_slice(rest)),
            b'_' | b'#' | b'(' => return Err(ProtocolError::InvalidReplyValue),
            b'$' if rest == b"-1" => Reply::Nil,
            b'*' if rest == b"-1" => Reply::NilArray,
            b'$' => return self.begin_text(Text::Bulk, rest),
            b'!' => return self.begin_text(Text::Error, rest),
            b'=' => return self.begin_text(Text::Verbatim, rest),
            b'*' => return self.begin_aggregate(Aggregate::Array, rest),
            b'%' => return self.begin_aggregate(Aggregate::Map, rest),
            b'~' => return self.begin_aggregate(Aggregate::Set, rest),
            b'>' => return self.begin_aggregate(Aggregate::Push, rest),
            b'|' => return self.begin_aggregate(Aggregate::Attribute, rest),
            other => return Err(ProtocolError::UnknownReplyType(other)),
        };
        Ok(Token::Value(value))
    }

    fn begin_text(&mut self, kind: Text, length: &[u8]) -> Result<Token, ProtocolError> {
        let length = parse_length(length)?;
        if length > self.limits.bulk_bytes_max {
            return Err(ProtocolError::InvalidReplyLength);
        }
        self.text = Some((kind, length));
        Ok(Token::Text)
    }

    fn begin_aggregate(&mut self, kind: Aggregate, length: &[u8]) -> Result<Token, ProtocolError> {
        let length = parse_length(length)?;
        let elements = match kind {
            Aggregate::Map | Aggregate::Attribute => length.checked_mul(2),
            _ => Some(length),
        };
        let announced = elements.and_then(|elements| self.announced.checked_add(elements));
        self.announced = announced
            .filter(|&announced| announced <= self.limits.elements_max)
            .ok_or(ProtocolError::TooBigReply)?;
        Ok(Token::Open(kind, elements.unwrap_or_default()))
    }

    /// Reads a string and its CRLF once they have arrived.
    fn read_text(
        &mut self,
        kind: Text,
        length: usize,
        buf: &mut BytesMut,
    ) -> Result<Option<Token>, ProtocolError> {
        let framed = length.checked_add(2).ok_or(ProtocolError::InvalidReplyLength)?;
        if self.taken_bytes.saturating_add(framed) > self.limits.reply_bytes_max {
            return Err(ProtocolError::TooBigReply);
        }
        if buf.len() < framed {
            make_room(buf, framed - buf.len());
            return Ok(None);
        }
        if &buf[length..framed] != b"\r\n" {
            return Err(ProtocolError::ExpectedCrlf);
        }
        self.text = None;
        self.take(framed)?;
        let bytes = if length <= COPIED_BYTES_MAX {
            let bytes = Bytes::copy_from_slice(&buf[..length]);
            buf.advance(framed);
            bytes
        } else {
            let bytes = buf.split_to(length).freeze();
            buf.advance(2);
            bytes
        };
        let value = match kind {
            Text::Bulk => Reply::Bulk(bytes),
            Text::Error => Reply::Error(lossy(&bytes).into()),
            Text::Verbatim => verbatim(bytes).ok_or(ProtocolError::InvalidReplyValue)?,
        };
        Ok(Some(Token::Value(value)))
    }

    fn take(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        self.taken_bytes = self.taken_bytes.saturating_add(bytes);
        if self.taken_bytes > self.limits.reply_bytes_max {
            return Err(ProtocolError::TooBigReply);
        }
        Ok(())
    }
}

/// Returns the value of a complete aggregate, or `None` for an attribute.
fn close(kind: Aggregate, elements: Vec<Reply>) -> Option<Reply> {
    Some(match kind {
        Aggregate::Array => Reply::Array(elements),
        Aggregate::Set => Reply::Set(elements),
        Aggregate::Push => Reply::Push(elements),
        Aggregate::Map => {
            let mut pairs = Vec::with_capacity(elements.len() / 2);
            let mut elements = elements.into_iter();
            while let (Some(key), Some(value)) = (elements.next(), elements.next()) {
                pairs.push((key, value));
            }
            Reply::Map(pairs)
        }
        Aggregate::Attribute => return None,
    })
}

fn parse_length(text: &[u8]) -> Result<usize, ProtocolError> {
    parse_integer(text)
        .and_then(|length| usize::try_from(length).ok())
        .ok_or(ProtocolError::InvalidReplyLength)
}

/// Parses the decimal or exponent form, `inf`, `-inf` or `nan`.
fn parse_double(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn is_big_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn verbatim(bytes: Bytes) -> Option<Reply> {
    let format = match bytes.get(..4)? {
        b"txt:" => "txt",
        b"mkd:" => "mkd",
        _ => return None,
    };
    Some(Reply::Verbatim(format, bytes.slice(4..)))
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests;
