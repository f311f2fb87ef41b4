//! Exact decimal numbers for `INCRBYFLOAT` and `HINCRBYFLOAT`.
//!
//! Redis adds in the platform's `long double` and prints 17 decimal places. Replicas must agree to
//! the last digit on any hardware, so this module computes the exact sum and rounds it to 17
//! places, half to even. `docs/COMPATIBILITY.md` lists the differences from Redis.

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, RoundingMode, Signed, Zero};

/// Number of decimal places that a result keeps.
const PLACES: i64 = 17;
/// Bytes from which a number's text is refused, as in Redis.
const TEXT_MAX: usize = 5 * 1024;
/// Decimal exponents of the largest and the smallest `long double`.
const EXPONENT_MAX: i64 = 4932;
const EXPONENT_MIN: i64 = -4951;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    Finite(Decimal),
    Infinite,
}

/// A finite number that a `long double` could hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal(BigDecimal);

impl Number {
    /// Parses all that `strtold` accepts, except for hexadecimal numbers and NaN.
    pub fn parse(text: &[u8]) -> Option<Number> {
        if text.is_empty() || text.len() >= TEXT_MAX {
            return None;
        }
        let (negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            return Some(Number::Infinite);
        }
        let (mantissa, exponent) = match rest.iter().position(|b| b.eq_ignore_ascii_case(&b'e')) {
            Some(at) => (&rest[..at], parse_exponent(&rest[at + 1..])?),
            None => (rest, 0),
        };
        let (whole, fraction) = match mantissa.iter().position(|&b| b == b'.') {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &[][..]),
        };
        let digits = [whole, fraction].concat();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let digits = BigInt::parse_bytes(&digits, 10)?;
        if digits.is_zero() {
            return Some(Number::Finite(Decimal(BigDecimal::zero())));
        }
        let digits = if negative { -digits } else { digits };
        let number = BigDecimal::new(digits, fraction.len() as i64 - exponent);
        (EXPONENT_MIN..=EXPONENT_MAX)
            .contains(&leading_exponent(&number))
            .then_some(Number::Finite(Decimal(number)))
    }
}

/// Returns the power of ten of the first digit, which decides if a `long double` could hold the
/// number.
fn leading_exponent(number: &BigDecimal) -> i64 {
    number.digits() as i64 - 1 - number.fractional_digit_count()
}

/// Parses an exponent, clamped far outside of the accepted range so that it cannot overflow.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, b| (value * 10 + i64::from(b - b'0')).min(1_000_000));
    Some(if negative { -value } else { value })
}

impl Decimal {
    /// Returns the sum, or `None` if a `long double` could not hold it.
    pub fn add(&self, other: &Decimal) -> Option<Decimal> {
        let sum = &self.0 + &other.0;
        (leading_exponent(&sum) <= EXPONENT_MAX).then_some(Decimal(sum))
    }

    /// Returns the number in Redis's form: rounded to 17 places, without trailing zeros.
    pub fn to_text(&self) -> String {
        let rounded = self.0.with_scale_round(PLACES, RoundingMode::HalfEven);
        // Without an exponent in the number, the text has none either.
        let (digits, _) = rounded.abs().into_bigint_and_exponent();
        let digits = format!("{digits:0>width$}", width = PLACES as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - PLACES as usize);
        let sign = if rounded.is_negative() { "-" } else { "" };
        match fraction.trim_end_matches('0') {
            "" => format!("{sign}{whole}"),
            fraction => format!("{sign}{whole}.{fraction}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        match Number::parse(text.as_bytes()) {
            Some(Number::Finite(decimal)) => decimal,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn sum(a: &str, b: &str) -> String {
        number(a).add(&number(b)).unwrap().to_text()
    }

    #[test]
    fn sums_are_those_of_redis_for_ordinary_numbers() {
        for (a, b, expected) in [
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3.0", "0", "3"),
            ("0", "-0", "0"),
            ("1", "-1", "0"),
            ("0.1", "0.2", "0.3"),
            ("-0.5", "0.25", "-0.25"),
            ("99.99", "0.01", "100"),
            ("100", "-0.01", "99.99"),
            ("1e-20", "0", "0"),
            ("-1e-20", "0", "0"),
            ("0.00001", "0", "0.00001"),
            (".5", "5.", "5.5"),
            ("+7", "1E1", "17"),
            ("9007199254740993", "1", "9007199254740994"),
            ("0.000000000000000005", "0", "0"),
            ("0.000000000000000015", "0", "0.00000000000000002"),
            ("0.999999999999999999", "0", "1"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
            assert_eq!(sum(b, a), expected, "{b} + {a}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", " 1", "1 ", "abc", "1.2.3", "1e", "e5", ".", "-", "+-1", "nan", "0x10", "1e5000", "1e-6000",
            "--1",
        ] {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Number::parse(&[b'1'; 5120]), None);
        assert_eq!(Number::parse(b"-Infinity"), Some(Number::Infinite));
        assert_eq!(sum("0e999999999999999999999", "1"), "1");
    }

    #[test]
    fn a_sum_beyond_a_long_double_is_refused() {
        let big = number("9e4932");
        assert_eq!(big.add(&big), None);
        assert_eq!(sum("1e4932", "-1e4932"), "0");
    }

    proptest::proptest! {
        #[test]
        fn sums_of_integers_are_exact(a in -(1i128 << 100)..(1i128 << 100), b in -(1i128 << 100)..(1i128 << 100)) {
            proptest::prop_assert_eq!(sum(&a.to_string(), &b.to_string()), (a + b).to_string());
        }

        #[test]
        fn results_read_back_as_themselves(a in -1e15f64..1e15, b in -1e3f64..1e3) {
            let text = sum(&a.to_string(), &b.to_string());
            proptest::prop_assert_eq!(sum(&text, "0"), text);
        }
    }
}
