//! Parsing of integers, as strict as Redis's.

use std::borrow::Cow;

use bytes::Bytes;
use resp::parse_integer;

use crate::error_messages;
use crate::exec::{fail, CommandResult};

pub(crate) fn integer(text: &[u8]) -> CommandResult<i64> {
    integer_or(text, error_messages::NOT_AN_INTEGER)
}

pub(crate) fn integer_or(text: &[u8], error: impl Into<Cow<'static, str>>) -> CommandResult<i64> {
    match parse_integer(text) {
        Some(value) => Ok(value),
        None => fail(error),
    }
}

/// Parses a count of random elements. A negative one permits repetition.
pub(crate) fn random_count(text: &[u8]) -> CommandResult<i64> {
    match integer(text)? {
        // It has no absolute value.
        i64::MIN => fail(error_messages::BEYOND_LONG),
        count => Ok(count),
    }
}

/// Parses the number of a database from a client's argument.
///
/// # Errors
/// The text of the error reply.
pub fn database_index(text: &[u8], databases: u16) -> Result<u16, &'static str> {
    database_index_in(text, databases, false)
}

/// Same as [`database_index`] for `SELECT`. In cluster mode it allows no database but 0.
pub fn database_index_in(text: &[u8], databases: u16, is_clustered: bool) -> Result<u16, &'static str> {
    let number = parse_integer(text).ok_or(error_messages::NOT_AN_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err(error_messages::BEYOND_INT);
    }
    if is_clustered && number != 0 {
        return Err(error_messages::SELECT_IN_CLUSTER);
    }
    u16::try_from(number).ok().filter(|db| *db < databases).ok_or(error_messages::DB_OUT_OF_RANGE)
}

pub(crate) fn decimal_bytes(value: i64) -> Bytes {
    Bytes::from(value.to_string())
}

/// Parses an integer that is at least 1.
pub(crate) fn positive_or(text: &[u8], error: &'static str) -> CommandResult<u64> {
    match u64::try_from(integer_or(text, error)?) {
        Ok(number) if number > 0 => Ok(number),
        _ => fail(error),
    }
}

/// Parses the number of elements that a pop removes at most; `None` without one.
pub(crate) fn popped_number(args: &[Bytes]) -> CommandResult<Option<u64>> {
    match args {
        [] => Ok(None),
        [count] => match u64::try_from(integer_or(count, error_messages::NOT_POSITIVE)?) {
            Ok(count) => Ok(Some(count)),
            Err(_) => fail(error_messages::NOT_POSITIVE),
        },
        _ => fail(error_messages::SYNTAX),
    }
}
