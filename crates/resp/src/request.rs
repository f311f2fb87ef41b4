//! Requests as clients send them: arrays of bulk strings, or inline lines.
//!
//! The decoder keeps its place in a request that has not arrived whole, so that no byte is looked at
//! twice, and never allocates from a length that the client declares.

use bytes::{Buf, Bytes, BytesMut};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one argument (Redis: proto-max-bulk-len).
    pub bulk_bytes_max: usize,
    pub arguments_max: usize,
    /// Bytes of an inline request, or of a header line.
    pub line_bytes_max: usize,
    /// Bytes of all arguments of one request.
    pub request_bytes_max: usize,
    pub authenticated: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bulk_bytes_max: 512 << 20,
            arguments_max: 1 << 20,
            line_bytes_max: 64 << 10,
            request_bytes_max: 576 << 20,
            authenticated: true,
        }
    }
}

impl Limits {
    /// For someone who has not logged in yet.
    pub fn unauthenticated() -> Limits {
        Limits {
            bulk_bytes_max: 16 << 10,
            arguments_max: 10,
            request_bytes_max: 160 << 10,
            authenticated: false,
            ..Limits::default()
        }
    }
}

/// What is wrong with the bytes, in Redis's words. The connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    InvalidMultibulkLength,
    UnauthenticatedMultibulkLength,
    InvalidBulkLength,
    UnauthenticatedBulkLength,
    ExpectedDollar(u8),
    TooBigMultibulkCount,
    TooBigBulkCount,
    TooBigInline,
    UnbalancedQuotes,
    TooBigRequest,
    BadReply(&'static str),
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use ProtocolError::*;
        match self {
            InvalidMultibulkLength => f.write_str("Protocol error: invalid multibulk length"),
            UnauthenticatedMultibulkLength => f.write_str("Protocol error: unauthenticated multibulk length"),
            InvalidBulkLength => f.write_str("Protocol error: invalid bulk length"),
            UnauthenticatedBulkLength => f.write_str("Protocol error: unauthenticated bulk length"),
            ExpectedDollar(got) => write!(f, "Protocol error: expected '$', got '{}'", char::from(*got)),
            TooBigMultibulkCount => f.write_str("Protocol error: too big mbulk count string"),
            TooBigBulkCount => f.write_str("Protocol error: too big bulk count string"),
            TooBigInline => f.write_str("Protocol error: too big inline request"),
            UnbalancedQuotes => f.write_str("Protocol error: unbalanced quotes in request"),
            TooBigRequest => f.write_str("Protocol error: too big request"),
            BadReply(what) => write!(f, "Protocol error: {what}"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// One command: its name and arguments. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub args: Vec<Bytes>,
}

/// Where the decoder stands in the request at the front of the buffer.
#[derive(Debug, Default)]
struct Partial {
    /// Arguments still to come; `None` before the header is read.
    missing: Option<usize>,
    /// Length of the argument that is arriving.
    bulk: Option<usize>,
    args: Vec<Bytes>,
    bytes: usize,
    /// Bytes at the front that are known to hold no line end.
    scanned: usize,
}

#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    partial: Partial,
}

/// Arguments at least this long are cut out of the receive buffer; shorter ones are copied, lest one of
/// them keep the whole buffer alive.
const SHARE_BYTES_MIN: usize = 512;

impl Decoder {
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits, partial: Partial::default() }
    }

    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes the next whole request from the front of `buffer`; `None` when more bytes are needed.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
        loop {
            let Some(missing) = self.partial.missing else {
                match buffer.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        if !self.header(buffer)? {
                            return Ok(None);
                        }
                    }
                    Some(_) => match self.inline(buffer)? {
                        None => return Ok(None),
                        Some(args) if args.is_empty() => {}
                        Some(args) => return Ok(Some(Request { args })),
                    },
                }
                continue;
            };
            if missing == 0 {
                let args = std::mem::take(&mut self.partial).args;
                return Ok(Some(Request { args }));
            }
            if !self.argument(buffer, missing)? {
                return Ok(None);
            }
        }
    }

    /// `*count\r\n`. An empty array is passed over.
    fn header(&mut self, buffer: &mut BytesMut) -> Result<bool, ProtocolError> {
        let Some(end) = self.line_end(buffer, ProtocolError::TooBigMultibulkCount)? else { return Ok(false) };
        let count = parse_length(&buffer[1..end]).ok_or(ProtocolError::InvalidMultibulkLength)?;
        buffer.advance(end + 2);
        if count > self.limits.arguments_max as i64 {
            return Err(match self.limits.authenticated {
                true => ProtocolError::InvalidMultibulkLength,
                false => ProtocolError::UnauthenticatedMultibulkLength,
            });
        }
        if count > 0 {
            let count = count as usize;
            self.partial = Partial { missing: Some(count), ..Partial::default() };
            self.partial.args.reserve(count.min(16));
        }
        Ok(true)
    }

    /// `$length\r\n` and that many bytes and `\r\n`.
    fn argument(&mut self, buffer: &mut BytesMut, missing: usize) -> Result<bool, ProtocolError> {
        let length = match self.partial.bulk {
            Some(length) => length,
            None => {
                match buffer.first() {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => return Err(ProtocolError::ExpectedDollar(*other)),
                }
                let Some(end) = self.line_end(buffer, ProtocolError::TooBigBulkCount)? else {
                    return Ok(false);
                };
                let length = self.bulk_length(&buffer[1..end])?;
                buffer.advance(end + 2);
                self.partial.bulk = Some(length);
                length
            }
        };
        if buffer.len() < length + 2 {
            return Ok(false);
        }
        let argument = match length < SHARE_BYTES_MIN {
            true => Bytes::copy_from_slice(&buffer[..length]),
            false => buffer.split_to(length).freeze(),
        };
        buffer.advance(if length < SHARE_BYTES_MIN { length + 2 } else { 2 });
        self.partial.bytes += length;
        self.partial.args.push(argument);
        self.partial.bulk = None;
        self.partial.missing = Some(missing - 1);
        Ok(true)
    }

    fn bulk_length(&self, digits: &[u8]) -> Result<usize, ProtocolError> {
        let length = parse_length(digits).and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or(ProtocolError::InvalidBulkLength)?;
        if length > self.limits.bulk_bytes_max {
            return Err(match self.limits.authenticated {
                true => ProtocolError::InvalidBulkLength,
                false => ProtocolError::UnauthenticatedBulkLength,
            });
        }
        match self.partial.bytes.checked_add(length) {
            Some(total) if total <= self.limits.request_bytes_max => Ok(length),
            _ => Err(ProtocolError::TooBigRequest),
        }
    }

    fn inline(&mut self, buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        let from = self.partial.scanned;
        let Some(end) = memchr::memchr(b'\n', &buffer[from..]) else {
            if buffer.len() > self.limits.line_bytes_max {
                return Err(ProtocolError::TooBigInline);
            }
            self.partial.scanned = buffer.len();
            return Ok(None);
        };
        self.partial.scanned = 0;
        let line = buffer.split_to(from + end + 1);
        let line = &line[..from + end];
        if line.len() > self.limits.line_bytes_max {
            return Err(ProtocolError::TooBigInline);
        }
        crate::inline::split(line.strip_suffix(b"\r").unwrap_or(line)).map(Some)
    }

    /// Where the `\r` of a header line stands, once the byte after it has arrived, too.
    fn line_end(&mut self, buffer: &[u8], too_long: ProtocolError) -> Result<Option<usize>, ProtocolError> {
        let from = self.partial.scanned;
        match memchr::memchr(b'\r', &buffer[from..]) {
            Some(at) if from + at + 1 < buffer.len() => {
                self.partial.scanned = 0;
                Ok(Some(from + at))
            }
            Some(at) => {
                self.partial.scanned = from + at;
                Ok(None)
            }
            None if buffer.len() > self.limits.line_bytes_max => Err(too_long),
            None => {
                self.partial.scanned = buffer.len();
                Ok(None)
            }
        }
    }
}

/// A decimal number with an optional minus, and nothing else.
pub(crate) fn parse_length(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, digit| value * 10 + i64::from(digit - b'0'));
    Some(if negative { -value } else { value })
}

/// Appends a request as a client sends it.
pub fn encode_request<A: AsRef<[u8]>>(args: &[A], out: &mut BytesMut) {
    crate::encode::put_header(out, b'*', args.len() as i64);
    for arg in args {
        crate::encode::put_bulk(out, arg.as_ref());
    }
}
