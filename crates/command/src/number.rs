//! Parsing of integers, as strict as Redis's.

use std::borrow::Cow;

use bytes::Bytes;

use crate::error_messages;
use crate::exec::{fail, CommandResult};

/// Parses what Redis's `string2ll` accepts: no spaces, no `+`, no leading zeros, no `-0`.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 digits stay below 2^64.
        value = value * 10 + u64::from(digit - b'0');
    }
    if negative {
        0i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

pub(crate) fn integer(text: &[u8]) -> CommandResult<i64> {
    integer_or(text, error_messages::NOT_AN_INTEGER)
}

pub(crate) fn integer_or(text: &[u8], error: impl Into<Cow<'static, str>>) -> CommandResult<i64> {
    match parse_integer(text) {
        Some(value) => Ok(value),
        None => fail(error),
    }
}

/// Parses the number of a database from a client's argument.
///
/// # Errors
/// The text of the error reply.
pub fn database_index(text: &[u8], databases: u16) -> Result<u16, &'static str> {
    let number = parse_integer(text).ok_or(error_messages::NOT_AN_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err(error_messages::BEYOND_INT);
    }
    u16::try_from(number).ok().filter(|db| *db < databases).ok_or(error_messages::DB_OUT_OF_RANGE)
}

pub(crate) fn decimal_bytes(value: i64) -> Bytes {
    Bytes::from(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for value in [0, 1, -1, 10, i64::MAX, i64::MIN, 1_000_000_000_000_000_000] {
            assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }
        for text in ["", "-", "+1", " 1", "1 ", "01", "-0", "-01", "1.0", "9223372036854775808", "1e3", "a"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_integer(b"-9223372036854775809"), None);
        assert_eq!(parse_integer(b"99999999999999999999"), None);
    }
}
