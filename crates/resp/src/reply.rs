//! A reply, independent of the protocol version in which it will be written.

use std::borrow::Cow;

use bytes::Bytes;

/// The reply to a command. The encoder writes it as RESP2 or RESP3.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A simple string such as `+OK`. Must not contain CR or LF.
    Simple(Cow<'static, str>),
    /// An error line such as `-ERR ...`: the whole text after the dash, code first. The encoder
    /// replaces CR and LF with spaces.
    Error(Cow<'static, str>),
    Int(i64),
    Bulk(Bytes),
    /// RESP2 `$-1`, RESP3 `_`.
    Nil,
    /// RESP2 `*-1`, RESP3 `_`.
    NilArray,
    Array(Vec<Reply>),
    /// RESP2: a flat array of twice the length.
    Map(Vec<(Reply, Reply)>),
    /// RESP2: an array.
    Set(Vec<Reply>),
    /// RESP2: a bulk string.
    Double(f64),
    /// RESP2: `:1` or `:0`.
    Bool(bool),
    /// A decimal integer of any size. RESP2: a bulk string.
    BigNumber(Cow<'static, str>),
    /// RESP2: a bulk string. The format has three letters, `txt` or `mkd`.
    Verbatim(&'static str, Bytes),
    /// RESP2: an array.
    Push(Vec<Reply>),
}

impl Reply {
    /// Returns the estimated bytes of memory: those of the strings, plus a constant per reply.
    pub fn bytes(&self) -> usize {
        const EACH: usize = 16;
        let all = |replies: &[Reply]| replies.iter().map(Reply::bytes).sum::<usize>();
        EACH + match self {
            Reply::Simple(text) | Reply::Error(text) | Reply::BigNumber(text) => text.len(),
            Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => bytes.len(),
            Reply::Array(replies) | Reply::Set(replies) | Reply::Push(replies) => all(replies),
            Reply::Map(pairs) => pairs.iter().map(|(name, value)| name.bytes() + value.bytes()).sum(),
            Reply::Int(_) | Reply::Nil | Reply::NilArray | Reply::Double(_) | Reply::Bool(_) => 0,
        }
    }

    pub const OK: Reply = Reply::Simple(Cow::Borrowed("OK"));

    pub fn error(text: impl Into<Cow<'static, str>>) -> Reply {
        Reply::Error(text.into())
    }

    pub fn bulk(bytes: impl Into<Bytes>) -> Reply {
        Reply::Bulk(bytes.into())
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }
}
