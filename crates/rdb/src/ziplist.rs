//! Ziplists: the packed encoding of small collections before Redis 7.0.
//!
//! ```text
//! 0   4   bytes of the whole, little endian
//! 4   4   offset of the last entry
//! 8   2   number of entries, or 65535 for unknown
//! 10      entries: length of the entry before (1 byte, or 0xfe and 4), encoding, data
//! end 1   0xff
//! ```

use bytes::Bytes;

use crate::listpack::signed_24;
use crate::source::decimal;
use crate::{Error, Result};

const DAMAGED: Error = Error::Damaged("a ziplist");
const HEADER_LEN: usize = 10;
const END: u8 = 0xff;
const LONG_PREVIOUS: u8 = 0xfe;
const COUNT_UNKNOWN: u16 = u16::MAX;

pub(crate) struct Ziplist {
    bytes: Bytes,
    at: usize,
    /// The length of the entry before.
    previous: usize,
    seen: u64,
    is_done: bool,
}

impl Ziplist {
    pub fn open(bytes: Bytes) -> Result<Ziplist> {
        let declared = bytes.get(..4).ok_or(DAMAGED)?;
        let declared = u32::from_le_bytes(declared.try_into().expect("four bytes"));
        match usize::try_from(declared) == Ok(bytes.len()) && bytes.len() > HEADER_LEN {
            true => Ok(Ziplist { bytes, at: HEADER_LEN, previous: 0, seen: 0, is_done: false }),
            false => Err(DAMAGED),
        }
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let end = at.checked_add(N).ok_or(DAMAGED)?;
        Ok(self.bytes.get(at..end).ok_or(DAMAGED)?.try_into().expect("a slice of that length"))
    }

    fn string(&self, at: usize, length: usize) -> Result<(Bytes, usize)> {
        match at.checked_add(length) {
            Some(end) if end <= self.bytes.len() => Ok((self.bytes.slice(at..end), end)),
            _ => Err(DAMAGED),
        }
    }

    fn entry(&mut self) -> Result<Option<Bytes>> {
        let start = self.at;
        let (previous, at) = match self.array(start)? {
            [END] => {
                let count = u16::from_le_bytes(self.array(8)?);
                let last = u32::from_le_bytes(self.array(4)?) as usize;
                let counted = count == COUNT_UNKNOWN || u64::from(count) == self.seen;
                let is_last = last.checked_add(self.previous) == Some(start);
                let ends = start + 1 == self.bytes.len();
                return if counted && is_last && ends { Ok(None) } else { Err(DAMAGED) };
            }
            [LONG_PREVIOUS] => {
                let length = u32::from_le_bytes(self.array(start + 1)?);
                (usize::try_from(length).map_err(|_| DAMAGED)?, start + 5)
            }
            [length] => (usize::from(length), start + 1),
        };
        if previous != self.previous {
            return Err(DAMAGED);
        }
        let [first] = self.array(at)?;
        let (value, end) = match first {
            0x00..=0x3f => self.string(at + 1, usize::from(first))?,
            0x40..=0x7f => {
                let [_, second] = self.array(at)?;
                self.string(at + 2, usize::from(first & 0x3f) << 8 | usize::from(second))?
            }
            0x80 => {
                let length = u32::from_be_bytes(self.array(at + 1)?);
                self.string(at + 5, usize::try_from(length).map_err(|_| DAMAGED)?)?
            }
            0xc0 => (decimal(i16::from_le_bytes(self.array(at + 1)?)), at + 3),
            0xd0 => (decimal(i32::from_le_bytes(self.array(at + 1)?)), at + 5),
            0xe0 => (decimal(i64::from_le_bytes(self.array(at + 1)?)), at + 9),
            0xf0 => (decimal(signed_24(self.array(at + 1)?)), at + 4),
            0xfe => (decimal(self.array::<1>(at + 1)?[0] as i8), at + 2),
            0xf1..=0xfd => (decimal((first & 0x0f) - 1), at + 1),
            _ => return Err(DAMAGED),
        };
        (self.at, self.previous) = (end, end - start);
        self.seen += 1;
        Ok(Some(value))
    }
}

impl Iterator for Ziplist {
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

/// Makes a ziplist of strings, for tests.
#[cfg(test)]
pub(crate) fn of_strings(entries: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    let (mut previous, mut last) = (0usize, HEADER_LEN);
    for entry in entries {
        last = bytes.len();
        match u8::try_from(previous) {
            Ok(short) if short < LONG_PREVIOUS => bytes.push(short),
            _ => {
                bytes.push(LONG_PREVIOUS);
                bytes.extend((previous as u32).to_le_bytes());
            }
        }
        match entry.len() {
            length @ 0..=0x3f => bytes.push(length as u8),
            length => bytes.extend([0x40 | (length >> 8) as u8, length as u8]),
        }
        bytes.extend_from_slice(entry);
        previous = bytes.len() - last;
    }
    bytes.push(END);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..8].copy_from_slice(&(last as u32).to_le_bytes());
    bytes[8..10].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: Vec<u8>) -> Result<Vec<Bytes>> {
        Ziplist::open(bytes.into())?.collect()
    }

    #[test]
    fn strings_after_short_and_long_entries_are_read() {
        let long = [b'x'; 300];
        let entries: [&[u8]; 4] = [b"a", &long, b"b", b""];
        assert_eq!(read(of_strings(&entries)).unwrap(), entries);
        assert!(read(of_strings(&[])).unwrap().is_empty());
    }

    #[test]
    fn integers_of_every_width_are_read() {
        let entries: [&[u8]; 7] = [
            &[0xf1],
            &[0xfd],
            &[0xfe, 0x80],
            &[0xc0, 0, 0x80],
            &[0xf0, 0xff, 0xff, 0xff],
            &[0xd0, 0xff, 0xff, 0xff, 0x7f],
            &[0xe0, 0, 0, 0, 0, 0, 0, 0, 0x80],
        ];
        let mut bytes = vec![0; HEADER_LEN];
        let (mut previous, mut last) = (0, 0);
        for entry in entries {
            last = bytes.len();
            bytes.push(previous);
            bytes.extend_from_slice(entry);
            previous = 1 + entry.len() as u8;
        }
        bytes.push(END);
        bytes[0] = bytes.len() as u8;
        bytes[4] = last as u8;
        bytes[8] = entries.len() as u8;
        assert_eq!(
            read(bytes).unwrap(),
            ["0", "12", "-128", "-32768", "-1", "2147483647", "-9223372036854775808"]
        );
    }

    #[test]
    fn cut_and_changed_ziplists_are_damage() {
        let good = of_strings(&[b"abc", b"de"]);
        for cut in 0..good.len() {
            assert!(read(good[..cut].to_vec()).is_err());
        }
        for at in [0, 4, 8, 10, 15] {
            let mut wrong = good.clone();
            wrong[at] ^= 1;
            assert!(read(wrong).is_err(), "{at}");
        }
    }
}
