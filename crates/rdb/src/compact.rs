//! The other packed encodings: sets of integers (intset), and hashes of Redis before 2.6 (zipmap).

use bytes::Bytes;

use crate::source::decimal;
use crate::{Error, Result};

const BAD_INTSET: Error = Error::Damaged("a set of integers");
const BAD_ZIPMAP: Error = Error::Damaged("a zipmap");
const INTSET_HEADER_LEN: usize = 8;

/// Visits the members of an intset, which must be ascending.
pub(crate) fn intset(bytes: &[u8], mut visit: impl FnMut(Bytes) -> Result<()>) -> Result<()> {
    let (header, members) = bytes.split_at_checked(INTSET_HEADER_LEN).ok_or(BAD_INTSET)?;
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let width = match word(0) {
        width @ (2 | 4 | 8) => width as usize,
        _ => return Err(BAD_INTSET),
    };
    if (word(4) as usize).checked_mul(width) != Some(members.len()) {
        return Err(BAD_INTSET);
    }
    let mut before = None;
    for member in members.chunks_exact(width) {
        let number = match *member {
            [a, b] => i64::from(i16::from_le_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => i64::from_le_bytes(member.try_into().map_err(|_| BAD_INTSET)?),
        };
        if before.is_some_and(|before| before >= number) {
            return Err(BAD_INTSET);
        }
        before = Some(number);
        visit(decimal(number))?;
    }
    Ok(())
}

/// Visits the fields and values of a zipmap.
///
/// ```text
/// 0   1   number of fields, or 254 and more for unknown
/// 1       fields: length (1 byte, or 0xfe and 4), name, length, bytes unused, value, unused bytes
/// end 1   0xff
/// ```
pub(crate) fn zipmap(bytes: &Bytes, mut visit: impl FnMut(Bytes, Bytes) -> Result<()>) -> Result<()> {
    let mut at = 1;
    let mut seen = 0u64;
    while let Some((length, start)) = zipmap_length(bytes, at)? {
        let (name, behind) = zipmap_part(bytes, start, length)?;
        let (length, start) = zipmap_length(bytes, behind)?.ok_or(BAD_ZIPMAP)?;
        let unused = usize::from(*bytes.get(start).ok_or(BAD_ZIPMAP)?);
        let (value, behind) = zipmap_part(bytes, start + 1, length)?;
        at = behind.checked_add(unused).ok_or(BAD_ZIPMAP)?;
        seen += 1;
        visit(name, value)?;
    }
    let count = *bytes.first().ok_or(BAD_ZIPMAP)?;
    match (count >= 254 || u64::from(count) == seen) && at + 1 == bytes.len() {
        true => Ok(()),
        false => Err(BAD_ZIPMAP),
    }
}

/// Returns a length and the position behind it, or `None` at the end.
fn zipmap_length(bytes: &Bytes, at: usize) -> Result<Option<(usize, usize)>> {
    match *bytes.get(at).ok_or(BAD_ZIPMAP)? {
        0xff => Ok(None),
        0xfe => {
            let length = bytes.get(at + 1..at + 5).ok_or(BAD_ZIPMAP)?;
            let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
            Ok(Some((usize::try_from(length).map_err(|_| BAD_ZIPMAP)?, at + 5)))
        }
        length => Ok(Some((usize::from(length), at + 1))),
    }
}

fn zipmap_part(bytes: &Bytes, at: usize, length: usize) -> Result<(Bytes, usize)> {
    match at.checked_add(length) {
        Some(end) if end <= bytes.len() => Ok((bytes.slice(at..end), end)),
        _ => Err(BAD_ZIPMAP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_each_width_are_read_in_order() {
        let members = |bytes: &[u8]| {
            let mut all = Vec::new();
            intset(bytes, |member| {
                all.push(member);
                Ok(())
            })
            .map(|()| all)
        };
        assert_eq!(members(&[2, 0, 0, 0, 2, 0, 0, 0, 0, 0x80, 5, 0]).unwrap(), ["-32768", "5"]);
        assert_eq!(members(&[4, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f]).unwrap(), ["2147483647"]);
        assert!(members(&[2, 0, 0, 0, 2, 0, 0, 0, 5, 0, 5, 0]).is_err(), "repeated");
        assert!(members(&[2, 0, 0, 0, 2, 0, 0, 0, 5, 0]).is_err(), "too short");
        assert!(members(&[3, 0, 0, 0, 0, 0, 0, 0]).is_err(), "a width that there is not");
        assert!(members(&[2, 0, 0]).is_err());
    }

    #[test]
    fn fields_of_a_zipmap_are_read_with_unused_bytes() {
        let fields = |bytes: &[u8]| {
            let mut all = Vec::new();
            zipmap(&Bytes::copy_from_slice(bytes), |name, value| {
                all.push((name, value));
                Ok(())
            })
            .map(|()| all)
        };
        let good = *b"\x02\x01a\x02\x01xyq\x01b\x00\x00\xff";
        assert_eq!(
            fields(&good).unwrap(),
            [("a".into(), "xy".into()), ("b".into(), Bytes::new())] as [(Bytes, Bytes); 2]
        );
        for cut in 0..good.len() {
            assert!(fields(&good[..cut]).is_err());
        }
    }
}
