//! The prefix of an encrypted file. It names the data key, and has the file's salt.
//!
//! ```text
//! big-endian, 4096 bytes, so that the content stays aligned for direct I/O:
//!   magic 8 | version u8 = 1 | kind u8 (1 rows, 2 log) | 0 u16 | number of the data key u32
//!   salt 32 | HMAC-SHA256 of the bytes before, its first 16 bytes | zeros
//! ```

use ring::hmac;

use crate::key::{Key, KeyNumber, Salt};
use crate::keyring::Keyring;
use crate::sectors::Sectors;
use crate::stream::Stream;

pub const PREFIX_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"SYLYREST";
const VERSION: u8 = 1;
const SALT_AT: usize = 16;
const MAC_AT: usize = 48;
const MAC_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A [`Stream`].
    Rows = 1,
    /// [`Sectors`].
    Log = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    #[error("its encryption prefix is cut short")]
    Short,
    #[error("its encryption prefix has a version or kind that is not expected here")]
    Unknown,
    #[error("it is encrypted with data key {0}, which KEYS does not have")]
    NoKey(KeyNumber),
    #[error("its encryption prefix is damaged")]
    Damaged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    kind: Kind,
    number: KeyNumber,
    salt: Salt,
}

impl Prefix {
    /// Returns the prefix of a new file, under the active key. `salt` must be random.
    pub fn new(kind: Kind, keyring: &Keyring, salt: Salt) -> Prefix {
        Prefix { kind, number: keyring.active().0, salt }
    }

    /// Returns the number of the file's data key.
    pub fn number(&self) -> KeyNumber {
        self.number
    }

    /// Returns true if a file that begins with these bytes is encrypted. A file that ends within
    /// the magic is not.
    pub fn is_there(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// # Errors
    /// A data key that the keyring does not have.
    pub fn encode(&self, keyring: &Keyring) -> Result<Vec<u8>, PrefixError> {
        let key = keyring.get(self.number).ok_or(PrefixError::NoKey(self.number))?;
        let mut out = vec![0; PREFIX_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8] = VERSION;
        out[9] = self.kind as u8;
        out[12..SALT_AT].copy_from_slice(&self.number.to_be_bytes());
        out[SALT_AT..MAC_AT].copy_from_slice(&self.salt);
        let mac = hmac::sign(&mac_key(key), &out[..MAC_AT]);
        out[MAC_AT..MAC_AT + MAC_BYTES].copy_from_slice(&mac.as_ref()[..MAC_BYTES]);
        Ok(out)
    }

    /// Reads the beginning of a file. Returns `None` if the file is plain.
    pub fn decode(bytes: &[u8], kind: Kind, keyring: &Keyring) -> Result<Option<Prefix>, PrefixError> {
        if !Prefix::is_there(bytes) {
            return Ok(None);
        }
        if bytes.len() < PREFIX_BYTES {
            return Err(PrefixError::Short);
        }
        if bytes[8] != VERSION || bytes[9] != kind as u8 {
            return Err(PrefixError::Unknown);
        }
        let number = u32::from_be_bytes(bytes[12..SALT_AT].try_into().expect("4 bytes"));
        let salt = bytes[SALT_AT..MAC_AT].try_into().expect("32 bytes");
        let prefix = Prefix { kind, number, salt };
        match prefix.encode(keyring)? == bytes[..PREFIX_BYTES] {
            true => Ok(Some(prefix)),
            false => Err(PrefixError::Damaged),
        }
    }

    /// Returns the cipher of a file of RocksDB.
    pub fn stream(&self, keyring: &Keyring) -> Result<Stream, PrefixError> {
        let key = keyring.get(self.number).ok_or(PrefixError::NoKey(self.number))?;
        Ok(Stream::new(&key.derive("rows", &self.salt)))
    }

    /// Returns the cipher of a segment of the log.
    pub fn sectors(&self, keyring: &Keyring) -> Result<Sectors, PrefixError> {
        let key = keyring.get(self.number).ok_or(PrefixError::NoKey(self.number))?;
        Ok(Sectors::new(&key.derive("log", &self.salt), &key.derive("log tweak", &self.salt)))
    }

    /// Reads the number of the data key without a check.
    pub fn peek(bytes: &[u8]) -> Option<KeyNumber> {
        let is_long = Prefix::is_there(bytes) && bytes.len() >= SALT_AT;
        is_long.then(|| u32::from_be_bytes(bytes[12..SALT_AT].try_into().expect("4 bytes")))
    }
}

fn mac_key(key: &Key) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.derive("prefix", b"").bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KEY_BYTES, SALT_BYTES};

    #[test]
    fn a_prefix_survives_and_no_damage_goes_unnoticed() {
        let ring = Keyring::new(Key::new([1; KEY_BYTES]));
        let prefix = Prefix::new(Kind::Rows, &ring, [5; SALT_BYTES]);
        let bytes = prefix.encode(&ring).unwrap();
        assert_eq!(Prefix::decode(&bytes, Kind::Rows, &ring), Ok(Some(prefix)));
        assert_eq!(Prefix::decode(&bytes, Kind::Log, &ring), Err(PrefixError::Unknown));
        assert_eq!(Prefix::peek(&bytes), Some(1));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            let decoded = Prefix::decode(&flipped, Kind::Rows, &ring);
            assert!(if at < 8 { decoded == Ok(None) } else { decoded.is_err() }, "byte {at}");
            let cut = Prefix::decode(&bytes[..at], Kind::Rows, &ring);
            assert_eq!(cut, if at < 8 { Ok(None) } else { Err(PrefixError::Short) }, "cut at {at}");
        }
        let other = Keyring::new(Key::new([2; KEY_BYTES]));
        assert_eq!(Prefix::decode(&bytes, Kind::Rows, &other), Err(PrefixError::Damaged));
        let newer = ring.rotated(Key::new([3; KEY_BYTES])).unwrap();
        assert_eq!(Prefix::decode(&bytes, Kind::Rows, &newer), Ok(Some(prefix)));
        let lacking = newer.reduced(&std::collections::BTreeSet::new());
        assert_eq!(Prefix::decode(&bytes, Kind::Rows, &lacking), Err(PrefixError::NoKey(1)));
    }
}
