//! The text of doubles as Redis 7.0 prints them: C's `%.17g`.

use std::io::Write;

use bytes::Bytes;

/// Number of significant digits that distinguish every double from its neighbours.
const SIGNIFICANT_DIGITS: i32 = 17;

/// Integers below this have at most 16 digits, so C prints all of them.
const INTEGERS_BELOW: f64 = 1e16;

/// Maximum bytes of the text: sign, 17 digits, point, and four zeros or an exponent.
const TEXT_BYTES_MAX: usize = 32;

/// Returns the text of a double as RESP2 sends it.
pub fn double_text(value: f64) -> Bytes {
    Bytes::copy_from_slice(DoubleText::new(value).as_bytes())
}

pub(crate) struct DoubleText {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl DoubleText {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn new(value: f64) -> DoubleText {
        let mut text = DoubleText { bytes: [0; TEXT_BYTES_MAX], len: 0 };
        if value.is_nan() {
            text.push(b"nan");
            return text;
        }
        if value.is_sign_negative() {
            text.push(b"-");
        }
        if value.is_infinite() {
            text.push(b"inf");
            return text;
        }
        // Most scores are integers, whose digits are cheap.
        if value.abs() < INTEGERS_BELOW && value.trunc() == value {
            text.push(itoa::Buffer::new().format(value.abs() as u64).as_bytes());
            return text;
        }
        // `d.dddddddddddddddde[-]x`: seventeen digits rounded as in C, and the exponent that
        // selects the form.
        let mut scientific = [0u8; TEXT_BYTES_MAX];
        let mut rest = &mut scientific[..];
        write!(rest, "{:.16e}", value.abs()).expect("a double's digits and exponent fit");
        let written = TEXT_BYTES_MAX - rest.len();
        let (mantissa, exponent) = scientific[..written].split_at(18);
        let exponent: i32 =
            std::str::from_utf8(&exponent[1..]).ok().and_then(|text| text.parse().ok()).expect("an exponent");
        let mut digits = [0u8; SIGNIFICANT_DIGITS as usize];
        digits[0] = mantissa[0];
        digits[1..].copy_from_slice(&mantissa[2..]);
        let significant = digits.iter().rposition(|&digit| digit != b'0').map_or(1, |last| last + 1);
        text.push_general(&digits[..significant], exponent);
        text
    }

    /// Appends the `%g` form of d.ddd times ten to the `exponent`. `digits` has no trailing zeros.
    fn push_general(&mut self, digits: &[u8], exponent: i32) {
        if !(-4..SIGNIFICANT_DIGITS).contains(&exponent) {
            self.push(&digits[..1]);
            if digits.len() > 1 {
                self.push(b".");
                self.push(&digits[1..]);
            }
            self.push(if exponent < 0 { b"e-" } else { b"e+" });
            if exponent.unsigned_abs() < 10 {
                self.push(b"0");
            }
            self.push(itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
        } else if exponent < 0 {
            self.push(b"0.");
            self.push(&b"000"[..(-1 - exponent) as usize]);
            self.push(digits);
        } else {
            let whole = exponent as usize + 1;
            if digits.len() <= whole {
                self.push(digits);
                self.push(&[b'0'; SIGNIFICANT_DIGITS as usize][..whole - digits.len()]);
            } else {
                self.push(&digits[..whole]);
                self.push(b".");
                self.push(&digits[whole..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DoubleText;
    use proptest::prelude::*;

    fn text(value: f64) -> String {
        String::from_utf8(DoubleText::new(value).as_bytes().to_vec()).unwrap()
    }

    /// The expected texts are the output of C's `printf("%.17g")`.
    #[test]
    fn doubles_are_printed_as_c_prints_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (3.25, "3.25"),
            (0.1, "0.10000000000000001"),
            (-0.3, "-0.29999999999999999"),
            (100.0, "100"),
            (1e16, "10000000000000000"),
            (9999999999999998.0, "9999999999999998"),
            (-1234567890123456.0, "-1234567890123456"),
            (1000000.5, "1000000.5"),
            (1e17, "1e+17"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.001, "0.001"),
            (0.00001, "1.0000000000000001e-05"),
            (1e-9, "1.0000000000000001e-09"),
            (1e-10, "1e-10"),
            (1e100, "1e+100"),
            (2f64.powi(-25), "2.9802322387695312e-08"),
            (3.0 * 2f64.powi(-25), "8.9406967163085938e-08"),
            (9007199254740993.0, "9007199254740992"),
            (0.99999999999999999, "1"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (-f64::NAN, "nan"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    proptest! {
        #[test]
        fn the_text_of_a_double_reads_back_as_the_same_double(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            let read: f64 = text(value).parse().unwrap();
            prop_assert!(read.to_bits() == bits || value.is_nan() && read.is_nan());
        }
    }
}
