//! The text of key patterns.

use command::permission::{Access, KeyPattern};

/// Appends the rule of a pattern.
pub(crate) fn describe(pattern: &KeyPattern, out: &mut Vec<u8>) {
    out.extend_from_slice(match pattern.access {
        Access { read: true, write: false } => b"%R~",
        Access { read: false, write: true } => b"%W~",
        Access { .. } => b"~",
    });
    out.extend_from_slice(&pattern.glob);
}
