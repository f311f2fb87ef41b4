//! What a peer may make us hold. Every limit is checked on the declared number, before anything is allocated.

/// Arguments of a request before authentication (Redis: `processMultibulkBuffer`).
pub(crate) const UNAUTHENTICATED_ARGS_MAX: usize = 10;
/// Length of one argument before authentication (same place).
pub(crate) const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 << 10;

const _: () = assert!(
    UNAUTHENTICATED_ARGS_MAX * UNAUTHENTICATED_BULK_BYTES_MAX < UNAUTHENTICATED_REQUEST_BYTES_MAX,
    "Redis's own limits before authentication answer first"
);
const UNAUTHENTICATED_REQUEST_BYTES_MAX: usize = 1 << 20;

/// Limits on requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Arguments of one request.
    pub args_max: usize,
    /// Longest inline request, and longest line that holds a length, without its line feed.
    pub line_bytes_max: usize,
    /// Longest request as sent, framing included (the part of `client-query-buffer-limit`).
    pub request_bytes_max: usize,
    /// Whether the peer has authenticated, or need not. If not, Redis's stricter limits hold as well: 10 arguments of
    /// 16384 bytes.
    pub authenticated: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bulk_bytes_max: 512 << 20,
            args_max: 1 << 20,
            line_bytes_max: 64 << 10,
            request_bytes_max: 1 << 30,
            authenticated: true,
        }
    }
}

impl Limits {
    /// For a peer that has yet to authenticate.
    pub fn unauthenticated() -> Limits {
        Limits {
            request_bytes_max: UNAUTHENTICATED_REQUEST_BYTES_MAX,
            authenticated: false,
            ..Limits::default()
        }
    }
}

/// Limits on replies, for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Longest bulk string.
    pub bulk_bytes_max: usize,
    /// Longest line: simple strings, errors, numbers, lengths.
    pub line_bytes_max: usize,
    /// Aggregates inside each other.
    pub nesting_max: usize,
    /// Values in one reply, at all depths, attributes included.
    pub elements_max: usize,
    /// Longest reply as sent, framing included.
    pub reply_bytes_max: usize,
}

impl Default for ReplyLimits {
    fn default() -> ReplyLimits {
        ReplyLimits {
            bulk_bytes_max: 512 << 20,
            line_bytes_max: 64 << 10,
            nesting_max: 32,
            elements_max: 1 << 25,
            reply_bytes_max: 1 << 30,
        }
    }
}
