//! Listpacks: the packed encoding of small collections since Redis 7.0.
//!
//! ```text
//! 0   4   bytes of the whole, little endian
//! 4   2   number of entries, or 65535 for unknown
//! 6       entries: encoding and data, then the length of these two, written to be read backwards
//! end 1   0xff
//! ```

use bytes::Bytes;

use crate::source::decimal;
use crate::{Error, Result};

const DAMAGED: Error = Error::Damaged("a listpack");
const HEADER_LEN: usize = 6;
const END: u8 = 0xff;
const COUNT_UNKNOWN: u16 = u16::MAX;

/// The entries of a listpack or a ziplist.
pub(crate) trait Entries: Iterator<Item = Result<Bytes>> {}
impl<I: Iterator<Item = Result<Bytes>>> Entries for I {}

pub(crate) struct Listpack {
    bytes: Bytes,
    at: usize,
    seen: u64,
    is_done: bool,
}

impl Listpack {
    pub fn open(bytes: Bytes) -> Result<Listpack> {
        let declared = bytes.get(..4).ok_or(DAMAGED)?;
        let declared = u32::from_le_bytes(declared.try_into().expect("four bytes"));
        match usize::try_from(declared) == Ok(bytes.len()) && bytes.len() > HEADER_LEN {
            true => Ok(Listpack { bytes, at: HEADER_LEN, seen: 0, is_done: false }),
            false => Err(DAMAGED),
        }
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let end = at.checked_add(N).ok_or(DAMAGED)?;
        Ok(self.bytes.get(at..end).ok_or(DAMAGED)?.try_into().expect("a slice of that length"))
    }

    fn slice(&self, at: usize, length: usize) -> Result<Bytes> {
        match at.checked_add(length) {
            Some(end) if end <= self.bytes.len() => Ok(self.bytes.slice(at..end)),
            _ => Err(DAMAGED),
        }
    }

    fn entry(&mut self) -> Result<Option<Bytes>> {
        let at = self.at;
        let [first] = self.array(at)?;
        let (value, length) = match first {
            END => {
                let count = u16::from_le_bytes(self.array(4)?);
                let counted = count == COUNT_UNKNOWN || u64::from(count) == self.seen;
                return if counted && at + 1 == self.bytes.len() { Ok(None) } else { Err(DAMAGED) };
            }
            0..=0x7f => (decimal(first), 1),
            0x80..=0xbf => {
                let length = usize::from(first & 0x3f);
                (self.slice(at + 1, length)?, 1 + length)
            }
            0xc0..=0xdf => {
                let [_, second] = self.array(at)?;
                let number = i16::from(first & 0x1f) << 8 | i16::from(second);
                // 13 bits with a sign.
                (decimal(if number >= 1 << 12 { number - (1 << 13) } else { number }), 2)
            }
            0xe0..=0xef => {
                let [_, second] = self.array(at)?;
                let length = usize::from(first & 0x0f) << 8 | usize::from(second);
                (self.slice(at + 2, length)?, 2 + length)
            }
            0xf0 => {
                let length = u32::from_le_bytes(self.array(at + 1)?);
                let length = usize::try_from(length).map_err(|_| DAMAGED)?;
                (self.slice(at + 5, length)?, length.checked_add(5).ok_or(DAMAGED)?)
            }
            0xf1 => (decimal(i16::from_le_bytes(self.array(at + 1)?)), 3),
            0xf2 => (decimal(signed_24(self.array(at + 1)?)), 4),
            0xf3 => (decimal(i32::from_le_bytes(self.array(at + 1)?)), 5),
            0xf4 => (decimal(i64::from_le_bytes(self.array(at + 1)?)), 9),
            _ => return Err(DAMAGED),
        };
        let end = at.checked_add(length).ok_or(DAMAGED)?;
        let back = back_length(length as u64);
        if self.slice(end, back.len())? != back {
            return Err(DAMAGED);
        }
        self.at = end + back.len();
        self.seen += 1;
        Ok(Some(value))
    }
}

/// Returns a 24-bit integer.
pub(crate) fn signed_24([a, b, c]: [u8; 3]) -> i32 {
    i32::from_le_bytes([0, a, b, c]) >> 8
}

/// Returns the length of an entry in the form that follows it.
fn back_length(length: u64) -> Vec<u8> {
    // The limits are Redis's, whose largest length of each form is one below what would fit.
    let groups: u32 = match length {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    let group = |at: u32| (length >> (7 * at) & 0x7f) as u8;
    (0..groups).rev().map(|at| if at + 1 == groups { group(at) } else { group(at) | 0x80 }).collect()
}

impl Iterator for Listpack {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        if self.is_done {
            return None;
        }
        let entry = self.entry().transpose();
        self.is_done = !matches!(entry, Some(Ok(_)));
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(entries: &[&[u8]], count: u16) -> Bytes {
        let mut bytes = vec![0; HEADER_LEN];
        for entry in entries {
            bytes.extend_from_slice(entry);
            bytes.extend(back_length(entry.len() as u64));
        }
        bytes.push(END);
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..6].copy_from_slice(&count.to_le_bytes());
        bytes.into()
    }

    fn read(bytes: Bytes) -> Result<Vec<Bytes>> {
        Listpack::open(bytes)?.collect()
    }

    #[test]
    fn integers_of_every_width_have_their_sign() {
        let entries: [&[u8]; 9] = [
            &[0x7f],
            &[0xcf, 0xff],
            &[0xd0, 0x00],
            &[0xdf, 0xff],
            &[0xf1, 0x00, 0x80],
            &[0xf2, 0xff, 0xff, 0xff],
            &[0xf2, 0xff, 0xff, 0x7f],
            &[0xf3, 0, 0, 0, 0x80],
            &[0xf4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ];
        assert_eq!(
            read(packed(&entries, 9)).unwrap(),
            ["127", "4095", "-4096", "-1", "-32768", "-1", "8388607", "-2147483648", "9223372036854775807"]
        );
    }

    #[test]
    fn strings_of_every_length_form_are_read() {
        let long = [&[0xe1, 0x00][..], &[b'x'; 256]].concat();
        let longer = [&[0xf0, 0, 0x10, 0, 0][..], &[b'y'; 4096]].concat();
        let read = read(packed(&[&[0x82, b'a', b'b'], &long, &longer], COUNT_UNKNOWN)).unwrap();
        assert_eq!(read.iter().map(Bytes::len).collect::<Vec<_>>(), [2, 256, 4096]);
    }

    #[test]
    fn wrong_counts_lengths_and_ends_are_damage() {
        assert!(read(packed(&[&[1]], 2)).is_err());
        let good = packed(&[&[1], &[0x82, b'a', b'b']], 2);
        assert!(read(good.clone()).is_ok());
        for cut in 0..good.len() {
            assert!(read(good.slice(..cut)).is_err());
        }
        let mut wrong_back = good.to_vec();
        wrong_back[7] = 2;
        assert!(read(wrong_back.into()).is_err());
    }

    #[test]
    fn lengths_to_read_backwards_have_redis_s_forms() {
        assert_eq!(back_length(127), [127]);
        assert_eq!(back_length(128), [1, 0x80]);
        assert_eq!(back_length(16_382), [127, 0xfe]);
        assert_eq!(back_length(16_383), [0, 0xff, 0xff]);
    }
}
