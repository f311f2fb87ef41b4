//! Sizes in Redis's notation.

use thiserror::Error;

/// The units and their bytes.
const UNITS: [(&str, u64); 10] = [
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("k", 1_000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("b", 1),
    ("", 1),
];

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    #[error("'{0}' is not a size: write a number of bytes, or for example 64mb or 2gb")]
    NoSize(String),
    #[error("the size '{0}' is too large")]
    TooLarge(String),
}

/// Parses a number of bytes, which may have a unit in upper or lower case: `k m g t` are powers of
/// 1000, and `kb mb gb tb` powers of 1024.
///
/// # Errors
/// If the text is something else, or the number exceeds 64 bits.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).filter(|_| digits > 0);
    let (_, unit) = unit.ok_or_else(|| SizeError::NoSize(text.to_owned()))?;
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit));
    bytes.ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_redis_reads_them() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17b", 17),
            ("7B", 7),
            ("2k", 2000),
            ("2Kb", 2048),
            ("1M", 1_000_000),
            ("1mb", 1 << 20),
            ("256mb", 256 << 20),
            ("1g", 1_000_000_000),
            ("1GB", 1 << 30),
            ("3t", 3_000_000_000_000),
            ("1tb", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "mb", "-1", "+1", "1.5mb", "1.5gb", "1 mb", " 1mb", "1xb", "12x", "1é", "é"] {
            assert_eq!(parse_size(text), Err(SizeError::NoSize(text.to_owned())));
        }
        for text in ["99999999999999999999", "18446744073709551615kb", "99999999999gb", "99999999999tb"] {
            assert_eq!(parse_size(text), Err(SizeError::TooLarge(text.to_owned())));
        }
    }
}
