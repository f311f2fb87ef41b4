//! Limits on the memory that a peer can make a receiver hold. Each is checked against the declared
//! number, before anything is allocated.

/// Maximum number of arguments of a request before authentication (Redis:
/// `processMultibulkBuffer`).
pub(crate) const UNAUTHENTICATED_ARGS_MAX: usize = 10;
/// Maximum bytes of one argument before authentication (Redis: `processMultibulkBuffer`).
pub(crate) const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 << 10;

const _: () = assert!(
    UNAUTHENTICATED_ARGS_MAX * UNAUTHENTICATED_BULK_BYTES_MAX < UNAUTHENTICATED_REQUEST_BYTES_MAX,
    "Redis's own limits before authentication answer first"
);
const UNAUTHENTICATED_REQUEST_BYTES_MAX: usize = 1 << 20;

/// Limits on requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of an argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Maximum number of arguments of one request.
    pub args_max: usize,
    /// Maximum bytes of an inline request, and of a line that holds a length, without its line
    /// feed.
    pub line_bytes_max: usize,
    /// Maximum bytes of a request as sent, framing included (its share of
    /// `client-query-buffer-limit`).
    pub request_bytes_max: usize,
    /// True if the peer has authenticated or need not. If false, Redis's stricter limits also
    /// apply: 10 arguments of 16384 bytes.
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
    /// Returns the limits for a peer that has not yet authenticated.
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
    /// Maximum bytes of a bulk string.
    pub bulk_bytes_max: usize,
    /// Maximum bytes of a line: a simple string, an error, a number or a length.
    pub line_bytes_max: usize,
    /// Maximum depth of nested aggregates.
    pub nesting_max: usize,
    /// Maximum number of values in one reply, at all depths, including attributes.
    pub elements_max: usize,
    /// Maximum bytes of a reply as sent, framing included.
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
