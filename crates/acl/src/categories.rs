//! The categories of commands, in Redis's order.

use crate::commands::all;

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

/// Returns the names of the commands and subcommands of a category; `None` if there is no such
/// category.
pub fn category_members(name: &[u8]) -> Option<Vec<&'static str>> {
    let category = find(name)?;
    Some(all().iter().filter(|entry| entry.is_in(category)).map(|entry| entry.spec.name).collect())
}
