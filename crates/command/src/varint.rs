//! Numbers and byte strings in the values of rows.
//!
//! A varint has 7 bits per byte, least significant first; all bytes but the last have bit 7. A byte
//! string follows its length.

use std::ops::Range;

/// Maximum bytes of a 64-bit varint.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

pub(crate) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns the bytes that a number takes.
pub(crate) fn varint_len(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The part of a row that is not decoded yet.
pub(crate) struct Rest<'r> {
    pub row: &'r [u8],
    pub at: usize,
}

impl Rest<'_> {
    /// Returns the next number, or `None` if there is none that can be read.
    #[inline(always)]
    pub fn varint(&mut self) -> Option<u64> {
        match self.row.get(self.at..)? {
            [first, ..] if *first < 0x80 => {
                self.at += 1;
                Some((*first).into())
            }
            [first, second, ..] if (1..0x80).contains(second) => {
                self.at += 2;
                Some(u64::from(first & 0x7f) | u64::from(*second) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for (at, byte) in self.row.get(self.at..)?.iter().take(VARINT_BYTES_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * at);
            if shifted >> (7 * at) != bits {
                return None;
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                self.at += at + 1;
                return Some(number);
            }
        }
        None
    }

    /// Returns the range of bytes that follow their length.
    #[inline(always)]
    pub fn bytes(&mut self) -> Option<Range<usize>> {
        let length = usize::try_from(self.varint()?).ok()?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.row.len())?;
        let range = self.at..end;
        self.at = end;
        Some(range)
    }
}
