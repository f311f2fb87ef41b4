//! The payload of `FUNCTION DUMP`: the codes of libraries, and the footer of a payload.
//!
//! ```text
//! (245 u8 | code, a string)* | footer
//! ```

use bytes::Bytes;

use crate::payload::unsealed;
use crate::{seal_payload, write, Error, Result, Source};

pub(crate) const LIBRARY: u8 = 245;
/// A library of a preview of Redis 7.0.
pub(crate) const LIBRARY_OLD: u8 = 246;

pub(crate) const OLD: Error = Error::Unsupported("functions of a preview of Redis 7.0");

/// Returns the payload of libraries.
pub fn write_libraries<'a>(codes: impl Iterator<Item = &'a Bytes>) -> Vec<u8> {
    let mut payload = Vec::new();
    for code in codes {
        payload.push(LIBRARY);
        write::string(&mut payload, code);
    }
    seal_payload(&mut payload);
    payload
}

/// Reads the codes of the libraries in a payload. They may take `bytes_max` bytes of memory.
///
/// # Errors
/// [`Error::UnknownVersion`] and [`Error::WrongChecksum`] for what is no payload, and others for
/// what is no library.
pub fn read_libraries(payload: &Bytes, bytes_max: u64) -> Result<Vec<Bytes>> {
    let body = unsealed(payload)?;
    let mut source = Source::new(&body[..]);
    let (mut codes, mut left) = (Vec::new(), bytes_max);
    while source.position() < body.len() as u64 {
        match source.u8()? {
            LIBRARY => {
                source = source.with_string_bytes_max(left);
                let code = source.string()?;
                let taken = (size_of::<Bytes>() + code.len()) as u64;
                left = left.checked_sub(taken).ok_or(Error::TooLarge("the libraries are too long"))?;
                codes.push(code);
            }
            LIBRARY_OLD => return Err(OLD),
            other => return Err(Error::UnknownType(other)),
        }
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 1 << 20;

    fn sealed(body: &[u8]) -> Bytes {
        let mut payload = body.to_vec();
        seal_payload(&mut payload);
        payload.into()
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_refused() {
        let codes: Vec<Bytes> =
            [0, 1, 63, 64, 16_383, 16_384, 70_000].map(|length| Bytes::from(vec![b'x'; length])).to_vec();
        let written = Bytes::from(write_libraries(codes.iter()));
        assert_eq!(read_libraries(&written, MAX).unwrap(), codes);
        assert_eq!(read_libraries(&write_libraries([].iter()).into(), MAX).unwrap(), Vec::<Bytes>::new());
        for at in [0, 5, written.len() - 1] {
            let mut damaged = written.to_vec();
            damaged[at] ^= 1;
            assert!(matches!(read_libraries(&damaged.into(), MAX), Err(Error::WrongChecksum)));
        }
        assert!(matches!(read_libraries(&written.slice(..9), MAX), Err(Error::WrongChecksum)));
        for end in 0..300 {
            let _ = read_libraries(&sealed(&written[..end]), MAX);
        }
    }

    #[test]
    fn other_encodings_of_strings_are_read_and_what_is_no_library_is_refused() {
        let read = |body: &[u8]| read_libraries(&sealed(body), MAX);
        assert_eq!(read(b"\xf5\x80\0\0\0\x03abc").unwrap(), ["abc"]);
        assert_eq!(read(b"\xf5\xc0\xff\xf5\xc1\0\x80").unwrap(), ["-1", "-32768"]);
        // Two literals, then nine bytes from one back.
        assert_eq!(read(b"\xf5\xc3\x06\x0b\x01ab\xe0\x00\x00").unwrap(), ["abbbbbbbbbb"]);
        assert!(matches!(read(b"\x01abc"), Err(Error::UnknownType(1))));
        assert!(matches!(read(b"\xf6abc"), Err(Error::Unsupported(_))));
        for bad in
            [&b"\xf5\x81\xff\xff\xff\xff\xff\xff\xff\xffabc"[..], b"\xf5\xc4\x01", b"\xf5\x03ab", b"\xf5"]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn many_libraries_that_decompress_to_much_are_refused_together() {
        // Three bytes decompress to 264.
        let mut compressed = vec![0, b'x'];
        (0..1000).for_each(|_| compressed.extend([0xe0, 0xff, 0x00]));
        let mut body = Vec::new();
        for _ in 0..5 {
            body.extend([LIBRARY, 0xc3]);
            write::length(&mut body, compressed.len() as u64);
            write::length(&mut body, 1 + 1000 * 264);
            body.extend_from_slice(&compressed);
        }
        assert!(matches!(read_libraries(&sealed(&body), MAX), Err(Error::TooLarge(_))));
        assert_eq!(read_libraries(&sealed(&body), 2 * MAX).unwrap().len(), 5);
        // Empty ones take memory, too.
        let empty = sealed(&[LIBRARY, 0].repeat(1000));
        assert_eq!(read_libraries(&empty, MAX).unwrap().len(), 1000);
        assert!(matches!(read_libraries(&empty, 10_000), Err(Error::TooLarge(_))));
    }
}
