//! The request decoder: reads multibulk and inline requests from a growing receive buffer.
//!
//! The bytes of a request that has arrived in part stay in the caller's buffer, and the decoder
//! remembers the position of each complete argument. When the last argument is complete, the
//! request is split off the buffer as one piece, and each argument is a slice of it, not a copy.
//! Splitting off each argument separately would let a peer that sends byte by byte pin far more
//! memory. This way it pins only a small multiple of the bytes it has sent.
//!
//! As in Redis, the two bytes after an argument are not checked, nor is the byte after the CR of a
//! line.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::inline::split_words;
use crate::length::parse_integer;
use crate::limits::{UNAUTHENTICATED_ARGS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX};
use crate::receive_buffer::make_room;
use crate::{Limits, ProtocolError};

/// Size in bytes from which a request takes its memory with it, so that an idle connection does not
/// keep the memory.
const LARGE_REQUEST_BYTES: usize = 256 << 10;
/// Maximum number of argument positions whose memory a decoder keeps between requests.
const KEPT_ARGS_MAX: usize = 1024;

/// One request with at least one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The arguments. The first is the command's name.
    pub args: Vec<Bytes>,
}

impl Request {
    /// Returns the same request in separate memory of exactly its size. Arguments are slices of the
    /// receive buffer and keep all of it alive, so code that holds a request for long must call
    /// this.
    pub fn compact(&self) -> Request {
        let mut all = BytesMut::with_capacity(self.args.iter().map(Bytes::len).sum());
        let args = self.args.iter().map(|arg| {
            all.extend_from_slice(arg);
            all.split().freeze()
        });
        Request { args: args.collect() }
    }
}

/// Returns the same bytes in separate memory, for an argument that outlives its request (see
/// [`Request::compact`]).
pub fn compact(arg: &Bytes) -> Bytes {
    Bytes::copy_from_slice(arg)
}

/// Decodes the requests of one connection.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// The number of arguments missing from the multibulk request in progress; 0 between requests.
    args_left: usize,
    /// The position in the buffer of the next length line or argument; 0 between requests.
    position: usize,
    /// The number of bytes from `position` on that are known not to contain the end of a line.
    searched: usize,
    /// The length of the argument in progress, once its length line has arrived.
    arg_bytes: Option<usize>,
    /// The (start, end) positions in the buffer of the complete arguments.
    arrived: Vec<(usize, usize)>,
    failed: Option<ProtocolError>,
}

impl Decoder {
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            limits,
            args_left: 0,
            position: 0,
            searched: 0,
            arg_bytes: None,
            arrived: Vec::new(),
            failed: None,
        }
    }

    /// Sets the limits that apply from the next length line on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns how many bytes are missing from the argument in progress, if its length has arrived.
    /// `arrived` is the number of bytes in the buffer.
    pub fn missing(&self, arrived: usize) -> Option<usize> {
        Some((self.position + self.arg_bytes? + 2).saturating_sub(arrived))
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes the next request off the front of `buf`. Returns `None` if more bytes are needed.
    ///
    /// Between two calls the caller may only append to `buf`. A call may enlarge `buf` for a long
    /// argument, or move its remaining bytes. Empty requests (`*0`, blank lines) are skipped.
    ///
    /// # Errors
    /// If the peer violates the protocol or exceeds a limit. Every later call returns the same
    /// error.
    ///
    /// # Panics
    /// If `buf` has lost bytes since the last call.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.decode_next(buf);
        if let Err(error) = result {
            self.failed = Some(error);
            self.arrived = Vec::new();
        }
        result
    }

    fn decode_next(&mut self, buf: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
        assert!(buf.len() >= self.position + self.searched, "the receive buffer only grows between calls");
        while self.args_left == 0 {
            match buf.first() {
                None => return Ok(None),
                Some(b'*') => {
                    if !self.begin_multibulk(buf)? {
                        return Ok(None);
                    }
                }
                Some(_) => match self.read_inline(buf)? {
                    None => return Ok(None),
                    Some(args) if args.is_empty() => {}
                    Some(args) => return Ok(Some(Request { args })),
                },
            }
        }
        if self.read_arguments(buf)? {
            Ok(Some(self.finish(buf)))
        } else {
            if let Some(arg_bytes) = self.arg_bytes {
                make_room(buf, (self.position + arg_bytes + 2).saturating_sub(buf.len()));
            }
            Ok(None)
        }
    }

    /// Reads `*<count>`. Returns false if it has not arrived yet. Takes an empty request off the
    /// buffer.
    fn begin_multibulk(&mut self, buf: &mut BytesMut) -> Result<bool, ProtocolError> {
        let Some((count, next)) = self.read_length(buf, ProtocolError::TooBigMultibulkCount)? else {
            return Ok(false);
        };
        let Some(count) = count else { return Err(ProtocolError::InvalidMultibulkLength) };
        if count <= 0 {
            buf.advance(next);
            return Ok(true);
        }
        self.args_left = usize::try_from(count)
            .ok()
            .filter(|&count| count <= self.limits.args_max)
            .ok_or(ProtocolError::InvalidMultibulkLength)?;
        if !self.limits.authenticated && self.args_left > UNAUTHENTICATED_ARGS_MAX {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        self.position = next;
        Ok(true)
    }

    /// Reads the arguments in progress as far as they have arrived. Returns true if all are
    /// complete.
    fn read_arguments(&mut self, buf: &BytesMut) -> Result<bool, ProtocolError> {
        while self.args_left > 0 {
            let arg_bytes = match self.arg_bytes {
                Some(arg_bytes) => arg_bytes,
                None => match self.read_argument_length(buf)? {
                    Some(arg_bytes) => arg_bytes,
                    None => return Ok(false),
                },
            };
            let end = self.position + arg_bytes;
            if buf.len() < end + 2 {
                self.arg_bytes = Some(arg_bytes);
                return Ok(false);
            }
            self.arrived.push((self.position, end));
            self.arg_bytes = None;
            self.args_left -= 1;
            self.position = end + 2;
        }
        Ok(true)
    }

    /// Reads `$<length>` and moves past it.
    fn read_argument_length(&mut self, buf: &BytesMut) -> Result<Option<usize>, ProtocolError> {
        let Some((length, next)) = self.read_length(buf, ProtocolError::TooBigBulkCount)? else {
            return Ok(None);
        };
        let kind = buf[self.position];
        if kind != b'$' {
            return Err(ProtocolError::ExpectedBulk(kind));
        }
        let length = length
            .and_then(|length| usize::try_from(length).ok())
            .filter(|&length| length <= self.limits.bulk_bytes_max)
            .ok_or(ProtocolError::InvalidBulkLength)?;
        if !self.limits.authenticated && length > UNAUTHENTICATED_BULK_BYTES_MAX {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        // This check also makes `position + arg_bytes + 2` safe from overflow everywhere else.
        match next.checked_add(length).and_then(|end| end.checked_add(2)) {
            Some(end) if end <= self.limits.request_bytes_max => {}
            _ => return Err(ProtocolError::TooBigRequest),
        }
        self.position = next;
        Ok(Some(length))
    }

    /// Reads the line at `position`. Returns its number (`None` if invalid) and the position of the
    /// next line, or `None` while the line is incomplete. The caller checks the line's first byte,
    /// its type.
    #[allow(clippy::type_complexity)]
    fn read_length(
        &mut self,
        buf: &BytesMut,
        too_long: ProtocolError,
    ) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
        let line = &buf[self.position..];
        // Nearly every line has two to five bytes. Setting up a search takes longer than examining
        // them.
        let cr = match line.iter().take(8).position(|&byte| byte == b'\r') {
            Some(cr) => Some(cr),
            None => memchr(b'\r', &line[self.searched..]).map(|offset| self.searched + offset),
        };
        let length = cr.unwrap_or(line.len());
        if length > self.limits.line_bytes_max {
            return Err(too_long);
        }
        if length + 2 > line.len() {
            self.searched = length;
            return Ok(None);
        }
        self.searched = 0;
        // An empty line has no type and no number. Its first byte is its CR.
        let number = line[..length].get(1..).and_then(parse_integer);
        Ok(Some((number, self.position + length + 2)))
    }

    fn read_inline(&mut self, buf: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        let end = memchr(b'\n', &buf[self.searched..]).map(|offset| self.searched + offset);
        if end.unwrap_or(buf.len()) > self.limits.line_bytes_max {
            return Err(ProtocolError::TooBigInline);
        }
        let Some(end) = end else {
            self.searched = buf.len();
            return Ok(None);
        };
        self.searched = 0;
        let line = &buf[..end];
        let args = split_words(line.strip_suffix(b"\r").unwrap_or(line))?;
        buf.advance(end + 1);
        Ok(Some(args))
    }

    /// Splits a complete request off the buffer.
    fn finish(&mut self, buf: &mut BytesMut) -> Request {
        let whole = buf.split_to(self.position).freeze();
        let args = self.arrived.iter().map(|&(start, end)| whole.slice(start..end)).collect();
        self.arrived.clear();
        self.arrived.shrink_to(KEPT_ARGS_MAX);
        // `buf` still shares the request's allocation. The remainder is usually small, and the copy
        // is never larger than the request.
        if self.position >= LARGE_REQUEST_BYTES && buf.len() <= self.position {
            *buf = BytesMut::from(&buf[..]);
        }
        self.position = 0;
        Request { args }
    }
}

#[cfg(test)]
mod tests;
