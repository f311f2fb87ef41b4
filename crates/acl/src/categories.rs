//! The categories of commands, in Redis's order.

pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Returns the category of this name in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static str> {
    CATEGORIES.iter().copied().find(|known| known.as_bytes().eq_ignore_ascii_case(name))
}
