//! The request decoder: multibulk and inline requests out of a growing receive buffer.
//!
//! The bytes of a request that has only partly arrived stay in the caller's buffer; the decoder remembers where in it
//! every complete argument lies. When the last one is there, the request is split off as one piece and each argument
//! is a slice of it, not a copy. Keeping the bytes in one place (rather than splitting off argument by argument)
//! bounds what a peer that sends byte by byte can pin: a small multiple of what it has sent.
//!
//! Like Redis, the decoder does not look at the two bytes that end a line after its CR, or an argument.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::inline::split_words;
use crate::length::parse_integer;
use crate::limits::{UNAUTHENTICATED_ARGS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX};
use crate::receive_buffer::make_room;
use crate::{Limits, ProtocolError};

/// A request of this size takes its memory away with it, so that an idle connection does not keep it.
const LARGE_REQUEST_BYTES: usize = 256 << 10;
/// Argument positions that a decoder keeps room for between requests.
const KEPT_ARGS_MAX: usize = 1024;

/// One request; never without arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command's name first.
    pub args: Vec<Bytes>,
}

impl Request {
    /// The same request in memory of its own, of exactly its size. Arguments are slices of the receive buffer and keep
    /// all of it alive; whoever keeps them for long calls this first.
    pub fn compact(&self) -> Request {
        let mut all = BytesMut::with_capacity(self.args.iter().map(Bytes::len).sum());
        let args = self.args.iter().map(|arg| {
            all.extend_from_slice(arg);
            all.split().freeze()
        });
        Request { args: args.collect() }
    }
}

/// The same bytes in memory of their own: for an argument that outlives its request (see [`Request::compact`]).
pub fn compact(arg: &Bytes) -> Bytes {
    Bytes::copy_from_slice(arg)
}

/// Decodes the requests of one connection.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// Arguments still to come of the multibulk request in progress; 0 between requests.
    args_left: usize,
    /// Where in the buffer the next length line or argument starts; 0 between requests.
    position: usize,
    /// How many bytes from `position` on have been searched in vain for the end of a line.
    searched: usize,
    /// Length of the argument in progress, once its length line has arrived.
    arg_bytes: Option<usize>,
    /// (start, end) in the buffer of the arguments that have arrived.
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

    /// From the next length line on, these limits hold.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes the next request off the front of `buf`; `None` when more bytes are needed first.
    ///
    /// Between two calls the caller only appends to `buf`. The call may enlarge `buf`, when the argument in progress is
    /// long, or move what is left of it. Empty requests (`*0`, blank lines) are skipped.
    ///
    /// # Errors
    /// The peer does not speak the protocol or exceeds a limit; every later call answers the same.
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

    /// Reads `*<count>`; false when it has not arrived yet. An empty request is taken off the buffer.
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

    /// Reads the arguments in progress as far as they have arrived; true when all have.
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

    /// Reads `$<length>` and moves behind it.
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
        // Also what makes `position + arg_bytes + 2` safe from overflow everywhere else.
        match next.checked_add(length).and_then(|end| end.checked_add(2)) {
            Some(end) if end <= self.limits.request_bytes_max => {}
            _ => return Err(ProtocolError::TooBigRequest),
        }
        self.position = next;
        Ok(Some(length))
    }

    /// The number on the line at `position` (`None` when it is none) and where the next line starts; `None` while the
    /// line has not arrived whole. The line's first byte, its type, is left to the caller.
    #[allow(clippy::type_complexity)]
    fn read_length(
        &mut self,
        buf: &BytesMut,
        too_long: ProtocolError,
    ) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
        let line = &buf[self.position..];
        // Nearly every line is two to five bytes; to set up a search takes longer than to look at them.
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
        // An empty line has no type either: it holds no number, and its first byte is its CR.
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

    /// All arguments are there: splits them off the buffer.
    fn finish(&mut self, buf: &mut BytesMut) -> Request {
        let whole = buf.split_to(self.position).freeze();
        let args = self.arrived.iter().map(|&(start, end)| whole.slice(start..end)).collect();
        self.arrived.clear();
        self.arrived.shrink_to(KEPT_ARGS_MAX);
        // `buf` still shares the request's allocation. What is left is usually little; the copy is never larger than
        // the request was.
        if self.position >= LARGE_REQUEST_BYTES && buf.len() <= self.position {
            *buf = BytesMut::from(&buf[..]);
        }
        self.position = 0;
        Request { args }
    }
}

#[cfg(test)]
mod tests;
