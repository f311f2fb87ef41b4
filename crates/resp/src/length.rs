//! Parsing of decimal integers, in RESP lines and in arguments.

/// Parses exactly the numbers that Redis's `string2ll` accepts: no sign but `-`, no leading zero,
/// no `-0`, no blanks.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        b"0" => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // 19 digits hold every i64 and cannot overflow a u64.
    if digits.len() > 19 || !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    let mut value = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    if negative {
        0i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::parse_integer;

    #[test]
    fn every_canonical_integer_is_read() {
        for value in [
            0,
            1,
            -1,
            9,
            10,
            -10,
            1 << 20,
            1_000_000_000_000_000_000,
            i64::MAX,
            i64::MIN,
            i64::MAX - 1,
            i64::MIN + 1,
        ] {
            assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "00",
            " 1",
            "1 ",
            "1a",
            "1e3",
            "a",
            "-01",
            "-1a",
            "--1",
            "0x1",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "10000000000000000000",
            "99999999999999999999",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
