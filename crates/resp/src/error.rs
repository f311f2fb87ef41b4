//! Protocol errors: reasons why a byte stream is not valid RESP. Any of them ends the connection.

use thiserror::Error;

/// A protocol error. `Display` gives the whole text after `-ERR `. It is Redis's text where Redis
/// has one, and in the same style otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    // Requests, in Redis's words (`networking.c`).
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    #[error("Protocol error: too big mbulk count string")]
    TooBigMultibulkCount,
    #[error("Protocol error: expected '$', got '{}'", printable(*.0))]
    ExpectedBulk(u8),
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    #[error("Protocol error: too big bulk count string")]
    TooBigBulkCount,
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// Redis closes such a connection without a reply (`client-query-buffer-limit`).
    #[error("Protocol error: too big request")]
    TooBigRequest,

    // Replies.
    #[error("Protocol error: unknown reply type '{}'", printable(*.0))]
    UnknownReplyType(u8),
    #[error("Protocol error: invalid length in a reply")]
    InvalidReplyLength,
    #[error("Protocol error: invalid value in a reply")]
    InvalidReplyValue,
    #[error("Protocol error: a reply's line or string does not end in CRLF")]
    ExpectedCrlf,
    #[error("Protocol error: too big reply line")]
    TooBigReplyLine,
    #[error("Protocol error: too big reply")]
    TooBigReply,
    #[error("Protocol error: a reply is nested too deeply")]
    TooDeepReply,
}

/// Returns the character that stands for a byte in an error line. CR and LF become spaces, as in
/// Redis. A byte that is not ASCII becomes the replacement character.
fn printable(byte: u8) -> char {
    match byte {
        b'\r' | b'\n' => ' ',
        byte if byte.is_ascii() => char::from(byte),
        _ => char::REPLACEMENT_CHARACTER,
    }
}
