//! Redis's serialization of libraries (`FUNCTION DUMP`), which a server of Redis 7.0 can restore.
//!
//! ```text
//! (kind u8 = 245 | string: the code)* | version of the format u16 = 10 | CRC64 of all before, u64
//!
//! string  length | bytes                  length: 00xxxxxx, 01xxxxxx xxxxxxxx, 0x80 u32, 0x81 u64
//!         0xC0 i8, 0xC1 i16, 0xC2 i32     a number as text
//!         0xC3 length, length, bytes      compressed by LZF: lengths before and after it
//! ```
//!
//! Lengths are big-endian, the other numbers little-endian. Nothing is allocated because of a
//! declared length.

use bytes::{Buf, BufMut, Bytes, BytesMut};

const KIND_LIBRARY: u8 = 245;
const KIND_BEFORE_RELEASE: u8 = 246;
const VERSION: u16 = 10;
const FOOTER_BYTES: usize = 10;
/// Maximum bytes of a library that was compressed.
const LIBRARY_BYTES_MAX: usize = cluster::LIBRARIES_BYTES_MAX;

const NOT_A_DUMP: &str = "DUMP payload version or checksum are wrong";
const NO_PAYLOAD: &str = "Failed loading library payload";

/// Returns the serialization of libraries.
pub fn write<'a>(codes: impl Iterator<Item = &'a Bytes>) -> Bytes {
    let mut out = BytesMut::new();
    for code in codes {
        out.put_u8(KIND_LIBRARY);
        match code.len() {
            length @ 0..0x40 => out.put_u8(length as u8),
            length @ 0x40..0x4000 => out.put_u16(0x4000 | length as u16),
            length => {
                out.put_u8(0x80);
                out.put_u32(u32::try_from(length).expect("libraries are far below 4 GiB"));
            }
        }
        out.put_slice(code);
    }
    out.put_u16_le(VERSION);
    let checksum = crc64(&out);
    out.put_u64_le(checksum);
    out.freeze()
}

/// Reads the codes of the libraries in a serialization.
///
/// # Errors
/// The text of the error, without its code.
pub fn read(payload: &Bytes) -> Result<Vec<Bytes>, &'static str> {
    let Some(at) = payload.len().checked_sub(FOOTER_BYTES) else { return Err(NOT_A_DUMP) };
    let mut footer = payload.slice(at..);
    let version = footer.get_u16_le();
    if version > VERSION || crc64(&payload[..at + 2]) != footer.get_u64_le() {
        return Err(NOT_A_DUMP);
    }
    let mut rest = payload.slice(..at);
    let mut codes = Vec::new();
    while !rest.is_empty() {
        match rest.get_u8() {
            KIND_LIBRARY => codes.push(take_string(&mut rest).ok_or(NO_PAYLOAD)?),
            KIND_BEFORE_RELEASE => return Err("Pre-GA function format not supported"),
            _ => return Err("given type is not a function"),
        }
    }
    Ok(codes)
}

fn take(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= rest.len()).then(|| rest.split_to(length))
}

/// Reads a length that is none of the special ones, whose first byte is `first`.
fn take_length(rest: &mut Bytes, first: u8) -> Option<usize> {
    match first {
        0..0x40 => Some(usize::from(first)),
        0x40..0x80 => Some(usize::from(first & 0x3f) << 8 | usize::from(take(rest, 1)?[0])),
        0x80 => usize::try_from(take(rest, 4)?.get_u32()).ok(),
        0x81 => usize::try_from(take(rest, 8)?.get_u64()).ok(),
        _ => None,
    }
}

fn take_string(rest: &mut Bytes) -> Option<Bytes> {
    let first = take(rest, 1)?[0];
    match first {
        0xc0 => Some(take(rest, 1)?.get_i8().to_string().into()),
        0xc1 => Some(take(rest, 2)?.get_i16_le().to_string().into()),
        0xc2 => Some(take(rest, 4)?.get_i32_le().to_string().into()),
        0xc3 => {
            let mut length = || {
                let first = take(rest, 1)?[0];
                take_length(rest, first)
            };
            let (compressed, length) = (length()?, length()?);
            decompressed(&take(rest, compressed)?, length)
        }
        _ => {
            let length = take_length(rest, first)?;
            take(rest, length)
        }
    }
}

/// Decompresses LZF to exactly `length` bytes.
fn decompressed(mut from: &[u8], length: usize) -> Option<Bytes> {
    if length > LIBRARY_BYTES_MAX {
        return None;
    }
    let mut out: Vec<u8> = Vec::new();
    let next = |from: &mut &[u8]| {
        let (first, rest) = from.split_first()?;
        *from = rest;
        Some(usize::from(*first))
    };
    while !from.is_empty() {
        let control = next(&mut from)?;
        if control < 32 {
            let (literal, rest) = from.split_at_checked(control + 1)?;
            out.extend_from_slice(literal);
            from = rest;
        } else {
            let mut count = control >> 5;
            if count == 7 {
                count += next(&mut from)?;
            }
            let distance = ((control & 31) << 8) + next(&mut from)? + 1;
            let start = out.len().checked_sub(distance)?;
            // The source may overlap what is written.
            for at in start..start + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then(|| out.into())
}

/// The CRC64 of Redis: the reflected polynomial of Jones, without inversions.
fn crc64(bytes: &[u8]) -> u64 {
    const TABLE: [u64; 256] = table();
    bytes.iter().fold(0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

const fn table() -> [u64; 256] {
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_footer(body: &[u8], version: u16) -> Bytes {
        let mut out = BytesMut::from(body);
        out.put_u16_le(version);
        let checksum = crc64(&out);
        out.put_u64_le(checksum);
        out.freeze()
    }

    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_refused() {
        let codes: Vec<Bytes> =
            [0, 1, 63, 64, 16_383, 16_384, 70_000].map(|length| Bytes::from(vec![b'x'; length])).to_vec();
        let written = write(codes.iter());
        assert_eq!(read(&written), Ok(codes));
        assert_eq!(read(&write([].iter())), Ok(vec![]));
        for at in [0, 5, written.len() - 1] {
            let mut damaged = written.to_vec();
            damaged[at] ^= 1;
            assert_eq!(read(&damaged.into()), Err(NOT_A_DUMP));
        }
        assert_eq!(read(&written.slice(..9)), Err(NOT_A_DUMP));
        for end in 0..300 {
            let _ = read(&with_footer(&written[..end], VERSION));
        }
    }

    #[test]
    fn other_encodings_of_strings_are_read() {
        let read = |body: &[u8]| read(&with_footer(body, VERSION));
        let text = |text: &'static [u8]| Ok(vec![Bytes::from_static(text)]);
        assert_eq!(read(b"\xf5\x80\0\0\0\x03abc"), text(b"abc"));
        assert_eq!(read(b"\xf5\x81\0\0\0\0\0\0\0\x03abc"), text(b"abc"));
        assert_eq!(read(b"\xf5\xc0\xff\xf5\xc1\0\x80"), Ok(vec!["-1".into(), "-32768".into()]));
        // Two literals, then nine bytes from one back.
        assert_eq!(read(b"\xf5\xc3\x06\x0b\x01ab\xe0\x00\x00"), text(b"abbbbbbbbbb"));
        for bad in [
            &b"\xf5\x81\xff\xff\xff\xff\xff\xff\xff\xffabc"[..],
            b"\xf5\xc3\x06\x0a\x01ab\xe0\x00\x00",
            b"\xf5\xc3\x06\x0c\x01ab\xe0\x00\x00",
            b"\xf5\xc3\x05\x20aaaaa",
            b"\xf5\xc3\x03\x81\xff\xff\xff\xff\xff\xff\xff\xffaaa",
            b"\xf5\xc4\x01",
            b"\xf5\x03ab",
            b"\xf5",
        ] {
            assert_eq!(read(bad), Err(NO_PAYLOAD), "{bad:?}");
        }
        assert_eq!(read(b"\x01abc"), Err("given type is not a function"));
        assert_eq!(super::read(&with_footer(b"", VERSION + 1)), Err(NOT_A_DUMP));
        assert_eq!(super::read(&with_footer(b"", 1)), Ok(vec![]));
    }
}
