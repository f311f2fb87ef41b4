//! The texts of entries' IDs.

use storage::StreamId;

use crate::exec::{fail, CommandResult};

const INVALID: &str = "ERR Invalid stream ID specified as stream command argument";
const INVALID_START: &str = "ERR invalid start ID for the interval";
const INVALID_END: &str = "ERR invalid end ID for the interval";
/// Maximum bytes of an ID in an argument.
const TEXT_MAX: usize = 127;

pub(crate) fn text(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}

/// The sequence number of an ID in an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sequence {
    Given(u64),
    /// The ID is only a time.
    Missing,
    /// The ID ends with `-*`.
    Automatic,
}

/// Splits an ID into its numbers.
fn parts(text: &[u8]) -> Option<(u64, Sequence)> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let text = c_string(text);
    match text.iter().position(|&byte| byte == b'-') {
        None => Some((unsigned(text)?, Sequence::Missing)),
        Some(at) => {
            let ms = unsigned(&text[..at])?;
            match &text[at + 1..] {
                b"*" => Some((ms, Sequence::Automatic)),
                seq => Some((ms, Sequence::Given(unsigned(seq)?))),
            }
        }
    }
}

/// Parses a complete ID or a time, whose sequence number is then `missing`.
pub(super) fn strict(text: &[u8], missing: u64) -> CommandResult<StreamId> {
    match parts(text) {
        Some((ms, Sequence::Given(seq))) => Ok(StreamId { ms, seq }),
        Some((ms, Sequence::Missing)) => Ok(StreamId { ms, seq: missing }),
        Some((_, Sequence::Automatic)) | None => fail(INVALID),
    }
}

/// Same as [`strict`], but `-` and `+` stand for the smallest and the largest ID.
pub(super) fn relaxed(text: &[u8], missing: u64) -> CommandResult<StreamId> {
    match c_string(text) {
        b"-" if text.len() <= TEXT_MAX => Ok(StreamId::MIN),
        b"+" if text.len() <= TEXT_MAX => Ok(StreamId::MAX),
        _ => strict(text, missing),
    }
}

/// The ID of a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewId {
    Automatic,
    /// Only the time is given.
    At(u64),
    Given(StreamId),
}

impl NewId {
    /// Parses an ID other than `*`.
    pub fn parse(text: &[u8]) -> CommandResult<NewId> {
        match parts(text) {
            Some((ms, Sequence::Given(seq))) => Ok(NewId::Given(StreamId { ms, seq })),
            Some((ms, Sequence::Missing)) => Ok(NewId::Given(StreamId { ms, seq: 0 })),
            Some((ms, Sequence::Automatic)) => Ok(NewId::At(ms)),
            None => fail(INVALID),
        }
    }
}

fn bound(text: &[u8], missing: u64) -> CommandResult<(StreamId, bool)> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => Ok((strict(id, missing)?, true)),
        id => Ok((relaxed(id, missing)?, false)),
    }
}

/// Parses the first ID of a range. `(` excludes it.
pub(super) fn start(text: &[u8]) -> CommandResult<StreamId> {
    match bound(text, 0)? {
        (id, false) => Ok(id),
        (id, true) => id.next().map_or_else(|| fail(INVALID_START), Ok),
    }
}

/// Parses the last ID of a range. `(` excludes it.
pub(super) fn end(text: &[u8]) -> CommandResult<StreamId> {
    match bound(text, u64::MAX)? {
        (id, false) => Ok(id),
        (id, true) => id.previous().map_or_else(|| fail(INVALID_END), Ok),
    }
}

fn c_string(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Parses an unsigned number as Redis does: first as its own integers, then with C's `strtoull`,
/// which permits spaces before it, a sign, and zeros.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(number) = resp::parse_integer(text) {
        return u64::try_from(number).ok();
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let first = text.iter().position(|byte| !is_space(byte))?;
    let (negative, digits) = match &text[first..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    // Rust's own parser would accept a second sign.
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { number.wrapping_neg() } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let id = |ms, seq| Some(StreamId { ms, seq });
        for (text, expected) in [
            ("5-3", id(5, 3)),
            ("5", id(5, 9)),
            ("0-0", id(0, 0)),
            ("18446744073709551615-18446744073709551615", id(u64::MAX, u64::MAX)),
            ("007-+4", id(7, 4)),
            ("1- 2", id(1, 2)),
            ("1--05", id(1, u64::MAX - 4)),
            ("3-4\0x", id(3, 4)),
            ("-", None),
            ("+", None),
            ("", None),
            ("-1", None),
            ("1-", None),
            ("1--5", None),
            ("1-*", None),
            ("1-2-3", None),
            ("18446744073709551616", None),
            ("x", None),
        ] {
            assert_eq!(strict(text.as_bytes(), 9).ok(), expected, "{text:?}");
        }
        assert_eq!(relaxed(b"-", 0).unwrap(), StreamId::MIN);
        assert_eq!(relaxed(b"+", 0).unwrap(), StreamId::MAX);
        assert!(strict(&[b'0'; 128], 0).is_err());
        assert_eq!(NewId::parse(b"7-*").unwrap(), NewId::At(7));
    }

    #[test]
    fn a_range_may_exclude_its_ends() {
        let id = |ms, seq| StreamId { ms, seq };
        assert_eq!(start(b"(5").unwrap(), id(5, 1));
        assert_eq!(end(b"(5").unwrap(), id(5, u64::MAX - 1));
        assert_eq!(end(b"(5-0").unwrap(), id(4, u64::MAX));
        assert!(start(b"(+").is_err() && end(b"(-").is_err() && end(b"(0-0").is_err());
        assert!(start(b"(18446744073709551615-18446744073709551615").is_err());
        assert!(start(b"(").is_err());
    }
}
