//! Scores and bounds as clients write them, read as C's `strtod` reads decimal numbers.

use std::borrow::Cow;

use crate::exec::{fail, CommandResult};

/// A number at the beginning of a text.
struct Number {
    value: f64,
    /// Bytes of the text up to the end of the number.
    end: usize,
    /// True if the number is too large for a double, or so small that it became 0.
    is_out_of_range: bool,
}

/// Parses a score or a weight.
pub(crate) fn score(text: &[u8], error: impl Into<Cow<'static, str>>) -> CommandResult<f64> {
    let is_padded = text.first().is_none_or(|byte| is_space(*byte));
    match strtod(text) {
        Some(number)
            if !is_padded
                && number.end == text.len()
                && !number.is_out_of_range
                && !number.value.is_nan() =>
        {
            Ok(number.value)
        }
        _ => fail(error),
    }
}

/// Parses a text by which `SORT` orders. As in Redis, it may follow white space, an empty text is
/// 0, and a NUL ends the text.
pub(crate) fn weight(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    match strtod(text) {
        _ if text.is_empty() => Some(0.0),
        Some(number) => {
            let is_number = !number.is_out_of_range && !number.value.is_nan();
            (is_number && number.end == text.len()).then_some(number.value)
        }
        None => None,
    }
}

/// Parses the number of a bound. As in Redis, it may follow white space, an empty text is 0, and a
/// NUL ends the text.
pub(super) fn bound(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let number = strtod(text)?;
    (number.end == text.len() && !number.value.is_nan()).then_some(number.value)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn sign(text: &[u8]) -> usize {
    usize::from(matches!(text.first(), Some(b'+' | b'-')))
}

fn strtod(text: &[u8]) -> Option<Number> {
    let start = text.iter().take_while(|byte| is_space(**byte)).count();
    let unsigned = start + sign(&text[start..]);
    let is_negative = text[start..].first() == Some(&b'-');
    let rest = &text[unsigned..];
    for name in [&b"infinity"[..], b"inf"] {
        if rest.len() >= name.len() && rest[..name.len()].eq_ignore_ascii_case(name) {
            let value = if is_negative { f64::NEG_INFINITY } else { f64::INFINITY };
            return Some(Number { value, end: unsigned + name.len(), is_out_of_range: false });
        }
    }
    let whole = digits(rest);
    let fraction = match rest.get(whole) {
        Some(b'.') => digits(&rest[whole + 1..]),
        _ => 0,
    };
    if whole + fraction == 0 {
        return None;
    }
    let mut mantissa = whole + fraction;
    if rest.get(whole) == Some(&b'.') {
        mantissa += 1;
    }
    let mut length = mantissa;
    if let Some(b'e' | b'E') = rest.get(length) {
        let exponent = length + 1 + sign(&rest[length + 1..]);
        let exponent_digits = digits(&rest[exponent..]);
        if exponent_digits > 0 {
            length = exponent + exponent_digits;
        }
    }
    let value: f64 = std::str::from_utf8(&rest[..length]).ok()?.parse().ok()?;
    let is_zero = rest[..mantissa].iter().all(|byte| matches!(byte, b'0' | b'.'));
    Some(Number {
        value: if is_negative { -value } else { value },
        end: unsigned + length,
        is_out_of_range: value.is_infinite() || value == 0.0 && !is_zero,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_as_c_reads_doubles() {
        for (text, expected) in [
            ("1", 1.0),
            ("-1.5", -1.5),
            ("+.5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1E-2", 0.01),
            ("0e999999", 0.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("5e-324", 5e-324),
            ("179769313486231570000e288", 1.7976931348623157e308),
        ] {
            assert_eq!(score(text.as_bytes(), "").unwrap(), expected, "{text}");
            assert_eq!(bound(text.as_bytes()), Some(expected), "{text}");
        }
        assert!(score(b"-0", "").unwrap().is_sign_negative());
        for text in
            ["", " 1", "1 ", "1e", "e5", ".", "+", "1.2.3", "nan", "infi", "1\0", "1e400", "1e-400", "--1"]
        {
            assert!(score(text.as_bytes(), "").is_err(), "{text:?}");
        }
    }

    #[test]
    fn bounds_are_more_lenient_than_scores() {
        for (text, expected) in
            [("", 0.0), (" 1", 1.0), ("\t\n2", 2.0), ("1\0x", 1.0), ("1e400", f64::INFINITY), ("1e-400", 0.0)]
        {
            assert_eq!(bound(text.as_bytes()), Some(expected), "{text:?}");
        }
        for text in ["1 ", "1e", "x", "nan", "(1", " ", "inf1"] {
            assert_eq!(bound(text.as_bytes()), None, "{text:?}");
        }
    }
}
