//! Exact decimal numbers for `INCRBYFLOAT` and `HINCRBYFLOAT`.
//!
//! Redis adds in the platform's `long double` and prints 17 decimal places. Replicas must agree to
//! the last digit on any hardware, so this module computes the exact sum and rounds it to 17
//! places, half to even. `docs/COMPATIBILITY.md` lists the differences from Redis.

use std::cmp::Ordering;

/// Number of decimal places that a result keeps.
const PLACES: usize = 17;
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

/// The number `digits` x 10^-`scale`. Digits are ordered from the most significant one, without
/// leading zeros. Zero has no digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    scale: usize,
}

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
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut digits = Vec::with_capacity(mantissa.len());
        for &byte in whole.iter().chain(fraction) {
            match byte {
                b'0' if digits.is_empty() => {}
                b'0'..=b'9' => digits.push(byte - b'0'),
                _ => return None,
            }
        }
        if digits.is_empty() {
            return Some(Number::Finite(Decimal { negative, digits, scale: 0 }));
        }
        // The power of ten of the leading digit decides if a `long double` could hold the number.
        let scale = fraction.len() as i64 - exponent;
        let leading = digits.len() as i64 - 1 - scale;
        if !(EXPONENT_MIN..=EXPONENT_MAX).contains(&leading) {
            return None;
        }
        if scale < 0 {
            digits.resize(digits.len() + scale.unsigned_abs() as usize, 0);
        }
        Some(Number::Finite(Decimal { negative, digits, scale: scale.max(0) as usize }))
    }
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
        let scale = self.scale.max(other.scale);
        let (a, b) = (self.digits_at(scale), other.digits_at(scale));
        let (negative, digits) = if self.negative == other.negative {
            (self.negative, add_digits(&a, &b))
        } else {
            match compare(&a, &b) {
                Ordering::Equal => (false, Vec::new()),
                Ordering::Greater => (self.negative, subtract_digits(&a, &b)),
                Ordering::Less => (other.negative, subtract_digits(&b, &a)),
            }
        };
        let sum = Decimal { negative, digits, scale };
        (sum.digits.len() as i64 - 1 - scale as i64 <= EXPONENT_MAX).then_some(sum)
    }

    fn digits_at(&self, scale: usize) -> Vec<u8> {
        let mut digits = self.digits.clone();
        if !digits.is_empty() {
            digits.resize(digits.len() + (scale - self.scale), 0);
        }
        digits
    }

    /// Returns the number in Redis's form: rounded to 17 places, without trailing zeros.
    pub fn to_text(&self) -> String {
        let rounded = self.rounded();
        let mut text = String::with_capacity(rounded.digits.len() + 3);
        let whole_len = rounded.digits.len().saturating_sub(rounded.scale);
        let (whole, fraction) = rounded.digits.split_at(whole_len);
        let push = |digits: &[u8], text: &mut String| {
            text.extend(digits.iter().map(|&digit| char::from(b'0' + digit)));
        };
        if rounded.negative && !rounded.digits.is_empty() {
            text.push('-');
        }
        match whole.is_empty() {
            true => text.push('0'),
            false => push(whole, &mut text),
        }
        if rounded.digits.is_empty() {
            return text;
        }
        let kept = fraction.iter().rposition(|&digit| digit != 0).map_or(0, |last| last + 1);
        if kept > 0 {
            text.push('.');
            text.extend(std::iter::repeat_n('0', rounded.scale - fraction.len()));
            push(&fraction[..kept], &mut text);
        }
        text
    }

    fn rounded(&self) -> Decimal {
        if self.scale <= PLACES {
            return self.clone();
        }
        let dropped = self.scale - PLACES;
        let kept = self.digits.len().saturating_sub(dropped);
        let mut digits = self.digits[..kept].to_vec();
        let tail = &self.digits[kept..];
        let half = match tail.len() == dropped {
            // The dropped digits have leading zeros, so they are less than a half.
            false => Ordering::Less,
            true => tail[0].cmp(&5).then_with(|| match tail[1..].iter().any(|&digit| digit != 0) {
                true => Ordering::Greater,
                false => Ordering::Equal,
            }),
        };
        let odd = digits.last().is_some_and(|digit| digit % 2 == 1);
        if half == Ordering::Greater || (half == Ordering::Equal && odd) {
            digits = add_digits(&digits, &[1]);
        }
        Decimal { negative: self.negative, digits, scale: PLACES }
    }
}

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn add_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut sum = Vec::with_capacity(a.len().max(b.len()) + 1);
    let mut carry = 0;
    let (mut a, mut b) = (a.iter().rev(), b.iter().rev());
    loop {
        let (x, y) = (a.next(), b.next());
        if x.is_none() && y.is_none() {
            break;
        }
        let digit = x.unwrap_or(&0) + y.unwrap_or(&0) + carry;
        sum.push(digit % 10);
        carry = digit / 10;
    }
    if carry > 0 {
        sum.push(carry);
    }
    sum.reverse();
    sum
}

/// Returns `a - b` for `a >= b`.
fn subtract_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut difference = Vec::with_capacity(a.len());
    let mut borrow = 0;
    let mut b = b.iter().rev();
    for &x in a.iter().rev() {
        let y = b.next().unwrap_or(&0) + borrow;
        borrow = u8::from(x < y);
        difference.push(x + 10 * borrow - y);
    }
    while difference.last() == Some(&0) {
        difference.pop();
    }
    difference.reverse();
    difference
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
