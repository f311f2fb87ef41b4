//! The payload of `DUMP` and `RESTORE`: the number of a type, a value, and a footer.
//!
//! ```text
//! -10  2   version of the format, little endian
//! -8   8   CRC-64 of everything before, little endian
//! ```

use bytes::Bytes;

use crate::stream::STREAM_2;
use crate::{crc64, Error, Result};

/// The version of payloads that are written: that of Redis 4.0, so that every later one reads them.
pub const PAYLOAD_VERSION: u16 = 8;
/// The version of payloads with a stream: that of Redis 7.0.
const STREAM_PAYLOAD_VERSION: u16 = 10;
/// The newest version that is read: that of Redis 7.2.
pub const PAYLOAD_VERSION_MAX: u16 = 11;

const FOOTER_LEN: usize = 10;

/// Appends the footer to a type's number and a value.
pub fn seal_payload(payload: &mut Vec<u8>) {
    let version = match payload.first() {
        Some(&STREAM_2) => STREAM_PAYLOAD_VERSION,
        _ => PAYLOAD_VERSION,
    };
    payload.extend(version.to_le_bytes());
    payload.extend(crc64(0, payload).to_le_bytes());
}

/// Checks a payload's footer. Returns the type's number and the value.
///
/// # Errors
/// [`Error::UnknownVersion`] and [`Error::WrongChecksum`].
pub fn open_payload(payload: &Bytes) -> Result<(u8, Bytes)> {
    let body = unsealed(payload)?;
    match body.first() {
        Some(number) => Ok((*number, body.slice(1..))),
        None => Err(Error::WrongChecksum),
    }
}

/// Checks a payload's footer. Returns what precedes it.
pub(crate) fn unsealed(payload: &Bytes) -> Result<Bytes> {
    let end = payload.len().checked_sub(FOOTER_LEN).ok_or(Error::WrongChecksum)?;
    let footer = &payload[end..];
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    if version > PAYLOAD_VERSION_MAX {
        return Err(Error::UnknownVersion(version.into()));
    }
    let checksum = u64::from_le_bytes(footer[2..].try_into().expect("eight bytes"));
    match crc64(0, &payload[..payload.len() - 8]) == checksum {
        true => Ok(payload.slice(..end)),
        false => Err(Error::WrongChecksum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_redis_7_is_opened_and_a_changed_one_is_not() {
        // DUMP of a key with the value 10.
        let payload = b"\x00\xc0\x0a\x0a\x00\x6e\x9f\x52\x4a\x61\x4d\xb6\x0f";
        let mut sealed = payload[..3].to_vec();
        sealed.extend(10u16.to_le_bytes());
        sealed.extend(crc64(0, &sealed).to_le_bytes());
        let sealed = Bytes::from(sealed);
        assert_eq!(open_payload(&sealed).unwrap(), (0, Bytes::from_static(b"\xc0\x0a")));
        for at in 0..sealed.len() {
            let mut wrong = sealed.to_vec();
            wrong[at] ^= 0x10;
            assert!(open_payload(&wrong.into()).is_err());
        }
        for cut in 0..sealed.len() {
            assert!(open_payload(&sealed.slice(..cut)).is_err());
        }
    }

    #[test]
    fn what_is_sealed_can_be_opened() {
        let mut payload = b"\x00\x01a".to_vec();
        seal_payload(&mut payload);
        assert_eq!(open_payload(&payload.into()).unwrap(), (0, Bytes::from_static(b"\x01a")));
    }
}
