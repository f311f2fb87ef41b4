//! Sizes in Redis's notation: `k`, `m`, `g` are powers of 1000, and `kb`, `mb`, `gb` are powers of
//! 1024.

use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 10] = [
    ("tb", 1 << 40),
    ("gb", 1 << 30),
    ("mb", 1 << 20),
    ("kb", 1 << 10),
    ("t", 1_000_000_000_000),
    ("g", 1_000_000_000),
    ("m", 1_000_000),
    ("k", 1_000),
    ("b", 1),
    ("", 1),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || format!("'{text}' is not a size: write a number of bytes, or for example 64mb or 2gb");
        let lower = text.trim().to_ascii_lowercase();
        let (unit, factor) = UNITS.iter().find(|(unit, _)| lower.ends_with(unit)).ok_or_else(wrong)?;
        let digits = &lower[..lower.len() - unit.len()];
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let bytes = digits.parse::<u64>().ok().and_then(|value| value.checked_mul(*factor));
        bytes.map(Size).ok_or_else(|| format!("the size '{text}' is too large"))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bytes or a size such as \"256mb\"")]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Size(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_redis_reads_them() {
        let of = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(of("256mb"), Ok(256 << 20));
        assert_eq!(of("1M"), Ok(1_000_000));
        assert_eq!(of("1GB"), Ok(1 << 30));
        assert_eq!(of("17"), Ok(17));
        assert_eq!(of("17b"), Ok(17));
        for bad in ["", "mb", "-1", "1.5gb", "1xb", "99999999999tb", "1 mb"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
