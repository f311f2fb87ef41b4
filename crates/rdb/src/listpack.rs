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

/// Bytes of the longest text of a 64-bit integer.
const INTEGER_TEXT_MAX: usize = 20;

const DAMAGED: Error = Error::Damaged("a listpack");
const TOO_LARGE: Error = Error::TooLarge("a listpack is too long");
const HEADER_LEN: usize = 6;
const END: u8 = 0xff;
const COUNT_UNKNOWN: u16 = u16::MAX;

/// The entries of a listpack or a ziplist.
pub(crate) trait Entries: Iterator<Item = Result<Bytes>> {}
impl<I: Iterator<Item = Result<Bytes>>> Entries for I {}

/// An entry of a listpack.
pub(crate) enum Packed {
    Number(i64),
    Text(Bytes),
}

impl Packed {
    pub fn into_text(self) -> Bytes {
        match self {
            Packed::Number(number) => decimal(number),
            Packed::Text(text) => text,
        }
    }

    /// Returns the number, also if it is written as text.
    pub fn number(&self) -> Option<i64> {
        match self {
            Packed::Number(number) => Some(*number),
            Packed::Text(text) => integer(text),
        }
    }
}

/// Returns the integer whose text this is, exactly.
fn integer(text: &[u8]) -> Option<i64> {
    let number: i64 = match text.len() <= INTEGER_TEXT_MAX {
        true => std::str::from_utf8(text).ok()?.parse().ok()?,
        false => return None,
    };
    (itoa::Buffer::new().format(number).as_bytes() == text).then_some(number)
}

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

    /// Returns the next entry, or `None` at the end.
    pub fn packed(&mut self) -> Result<Option<Packed>> {
        let at = self.at;
        let [first] = self.array(at)?;
        let (value, length) = match first {
            END => {
                let count = u16::from_le_bytes(self.array(4)?);
                let counted = count == COUNT_UNKNOWN || u64::from(count) == self.seen;
                return if counted && at + 1 == self.bytes.len() { Ok(None) } else { Err(DAMAGED) };
            }
            0..=0x7f => (Packed::Number(first.into()), 1),
            0x80..=0xbf => {
                let length = usize::from(first & 0x3f);
                (Packed::Text(self.slice(at + 1, length)?), 1 + length)
            }
            0xc0..=0xdf => {
                let [_, second] = self.array(at)?;
                let number = i16::from(first & 0x1f) << 8 | i16::from(second);
                // 13 bits with a sign.
                (Packed::Number((if number >= 1 << 12 { number - (1 << 13) } else { number }).into()), 2)
            }
            0xe0..=0xef => {
                let [_, second] = self.array(at)?;
                let length = usize::from(first & 0x0f) << 8 | usize::from(second);
                (Packed::Text(self.slice(at + 2, length)?), 2 + length)
            }
            0xf0 => {
                let length = u32::from_le_bytes(self.array(at + 1)?);
                let length = usize::try_from(length).map_err(|_| DAMAGED)?;
                (Packed::Text(self.slice(at + 5, length)?), length.checked_add(5).ok_or(DAMAGED)?)
            }
            0xf1 => (Packed::Number(i16::from_le_bytes(self.array(at + 1)?).into()), 3),
            0xf2 => (Packed::Number(signed_24(self.array(at + 1)?).into()), 4),
            0xf3 => (Packed::Number(i32::from_le_bytes(self.array(at + 1)?).into()), 5),
            0xf4 => (Packed::Number(i64::from_le_bytes(self.array(at + 1)?)), 9),
            _ => return Err(DAMAGED),
        };
        let end = at.checked_add(length).ok_or(DAMAGED)?;
        let (back, back_len) = back_length(length as u64);
        if self.bytes.get(end..).and_then(|rest| rest.get(..back_len)) != Some(&back[..back_len]) {
            return Err(DAMAGED);
        }
        self.at = end + back_len;
        self.seen += 1;
        Ok(Some(value))
    }
}

/// Returns a 24-bit integer.
pub(crate) fn signed_24([a, b, c]: [u8; 3]) -> i32 {
    i32::from_le_bytes([0, a, b, c]) >> 8
}

/// Returns the length of an entry in the form that follows it, and the number of its bytes.
fn back_length(length: u64) -> ([u8; 5], usize) {
    // The limits are Redis's, whose largest length of each form is one below what would fit.
    let groups = match length {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    let mut bytes = [0; 5];
    for (at, byte) in bytes[..groups].iter_mut().enumerate() {
        *byte = (length >> (7 * (groups - 1 - at)) & 0x7f) as u8 | if at == 0 { 0 } else { 0x80 };
    }
    (bytes, groups)
}

/// Writes a listpack.
#[derive(Default)]
pub(crate) struct ListpackWriter {
    /// The entries.
    bytes: Vec<u8>,
    count: u64,
}

impl ListpackWriter {
    /// Returns the bytes of the listpack.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.bytes.len() + 1
    }

    fn end_entry(&mut self, start: usize) {
        let (back, back_len) = back_length((self.bytes.len() - start) as u64);
        self.bytes.extend_from_slice(&back[..back_len]);
        self.count += 1;
    }

    pub fn number(&mut self, number: i64) {
        let start = self.bytes.len();
        let bytes = number.to_le_bytes();
        match number {
            0..=127 => self.bytes.push(bytes[0]),
            -4096..=4095 => self.bytes.extend([0xc0 | bytes[1] & 0x1f, bytes[0]]),
            -32_768..=32_767 => self.bytes.extend([0xf1, bytes[0], bytes[1]]),
            -8_388_608..=8_388_607 => self.bytes.extend([0xf2, bytes[0], bytes[1], bytes[2]]),
            -2_147_483_648..=2_147_483_647 => {
                self.bytes.push(0xf3);
                self.bytes.extend_from_slice(&bytes[..4]);
            }
            _ => {
                self.bytes.push(0xf4);
                self.bytes.extend(bytes);
            }
        }
        self.end_entry(start);
    }

    /// Adds a text, or the number of which it is the text.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn text(&mut self, text: &[u8]) -> Result<()> {
        if let Some(number) = integer(text) {
            self.number(number);
            return Ok(());
        }
        let start = self.bytes.len();
        match text.len() {
            length @ 0..=63 => self.bytes.push(0x80 | length as u8),
            length @ 64..=4095 => self.bytes.extend([0xe0 | (length >> 8) as u8, length as u8]),
            length => {
                self.bytes.push(0xf0);
                self.bytes.extend(u32::try_from(length).map_err(|_| TOO_LARGE)?.to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end_entry(start);
        Ok(())
    }

    /// Adds all entries of another listpack.
    pub fn append(&mut self, other: &ListpackWriter) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
    }

    /// Returns the listpack.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn finish(self) -> Result<Vec<u8>> {
        let length = u32::try_from(self.len()).map_err(|_| TOO_LARGE)?;
        let count = u16::try_from(self.count).unwrap_or(COUNT_UNKNOWN);
        let mut bytes = Vec::with_capacity(self.len());
        bytes.extend(length.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend_from_slice(&self.bytes);
        bytes.push(END);
        Ok(bytes)
    }
}

impl Iterator for Listpack {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        if self.is_done {
            return None;
        }
        let entry = self.packed().transpose();
        self.is_done = !matches!(entry, Some(Ok(_)));
        entry.map(|entry| entry.map(Packed::into_text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(entries: &[&[u8]], count: u16) -> Bytes {
        let mut bytes = vec![0; HEADER_LEN];
        for entry in entries {
            bytes.extend_from_slice(entry);
            let (back, back_len) = back_length(entry.len() as u64);
            bytes.extend_from_slice(&back[..back_len]);
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
        let back = |length| {
            let (bytes, len) = back_length(length);
            bytes[..len].to_vec()
        };
        assert_eq!(back(127), [127]);
        assert_eq!(back(128), [1, 0x80]);
        assert_eq!(back(16_382), [127, 0xfe]);
        assert_eq!(back(16_383), [0, 0xff, 0xff]);
    }

    #[test]
    fn what_is_written_is_read_in_the_same_encodings() {
        let mut writer = ListpackWriter::default();
        let mut expected = Vec::new();
        let bounds = [0, 127, 4095, 32_767, 8_388_607, 2_147_483_647, i64::MAX];
        for number in bounds.into_iter().flat_map(|bound| [bound, bound.wrapping_add(1), !bound, -bound]) {
            writer.number(number);
            writer.text(number.to_string().as_bytes()).unwrap();
            expected.extend([number.to_string().into_bytes(), number.to_string().into_bytes()]);
        }
        for length in [0, 1, 63, 64, 126, 127, 4095, 4096, 20_000, 2_100_000] {
            let text = vec![b'x'; length];
            writer.text(&text).unwrap();
            expected.push(text);
        }
        for text in ["007", "-0", "+1", "9223372036854775808"] {
            writer.text(text.as_bytes()).unwrap();
            expected.push(text.into());
        }
        assert_eq!(read(writer.finish().unwrap().into()).unwrap(), expected);
    }
}
