//! Small files, which are replaced whole: sealed with AES-256-GCM under a key for the file's name
//! and a new salt, so a file cannot be changed, and cannot be put in the place of another.
//!
//! ```text
//! magic 8 | version u32 = 1 | number of the data key u32 | salt 32 | ciphertext | tag 16
//! ```

use ring::aead::{Aad, Nonce, AES_256_GCM};

use crate::key::{Key, KeyNumber, Salt};
use crate::keyring::{aead, Keyring};

const MAGIC: &[u8; 8] = b"SYLYSEAL";
const VERSION: u32 = 1;
const NUMBER_AT: usize = 12;
const SALT_AT: usize = 16;
const HEAD_BYTES: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmallError {
    #[error("it is encrypted in a version that this program does not know")]
    Version,
    #[error("it is encrypted with data key {0}, which KEYS does not have")]
    NoKey(KeyNumber),
    #[error("it is encrypted, and damaged or of another place")]
    Damaged,
}

/// Returns true if the file is sealed. A file that is not is plain.
pub fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the number of the data key of a sealed file.
pub fn peek(bytes: &[u8]) -> Option<KeyNumber> {
    let is_long = is_sealed(bytes) && bytes.len() >= SALT_AT;
    is_long.then(|| u32::from_be_bytes(bytes[NUMBER_AT..SALT_AT].try_into().expect("4 bytes")))
}

/// Returns the sealed content of the file of this name. `salt` must be random.
pub fn seal(keyring: &Keyring, name: &[u8], salt: Salt, content: &[u8]) -> Vec<u8> {
    let (number, key) = keyring.active();
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend(MAGIC);
    head.extend(VERSION.to_be_bytes());
    head.extend(number.to_be_bytes());
    head.extend(salt);
    let mut body = content.to_vec();
    let key = key_of(key, name, &salt);
    // The key is used once.
    aead(&key)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::from(&head[..]), &mut body)
        .expect("a small file is short");
    head.extend(body);
    head
}

/// Returns the content of a sealed file.
pub fn open(keyring: &Keyring, name: &[u8], bytes: &[u8]) -> Result<Vec<u8>, SmallError> {
    if bytes.len() < HEAD_BYTES + AES_256_GCM.tag_len() || !is_sealed(bytes) {
        return Err(SmallError::Damaged);
    }
    if bytes[8..NUMBER_AT] != VERSION.to_be_bytes() {
        return Err(SmallError::Version);
    }
    let (head, sealed) = bytes.split_at(HEAD_BYTES);
    let number = u32::from_be_bytes(head[NUMBER_AT..SALT_AT].try_into().expect("4 bytes"));
    let key = keyring.get(number).ok_or(SmallError::NoKey(number))?;
    let key = key_of(key, name, head[SALT_AT..].try_into().expect("32 bytes"));
    let mut body = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let opened = aead(&key).open_in_place(nonce, Aad::from(head), &mut body);
    let length = opened.map_err(|_| SmallError::Damaged)?.len();
    body.truncate(length);
    Ok(body)
}

fn key_of(key: &Key, name: &[u8], salt: &Salt) -> Key {
    // The salt has a fixed length, so the name needs no delimiter.
    key.derive("small", &[&salt[..], name].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEY_BYTES;

    #[test]
    fn a_small_file_survives_and_neither_damage_nor_a_swap_goes_unnoticed() {
        let ring = Keyring::new(Key::new([1; KEY_BYTES]));
        for content in [&b""[..], b"secret = 'a key'"] {
            let bytes = seal(&ring, b"IDENTITY", [4; 32], content);
            assert_eq!(open(&ring, b"IDENTITY", &bytes).as_deref(), Ok(content));
            assert_eq!(open(&ring, b"MEMBERS", &bytes), Err(SmallError::Damaged));
            assert_eq!(peek(&bytes), Some(1));
            assert!(!bytes.windows(6).any(|part| part == b"secret"));
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x20;
                assert!(open(&ring, b"IDENTITY", &flipped).is_err(), "byte {at}");
                assert!(open(&ring, b"IDENTITY", &bytes[..at]).is_err(), "cut at {at}");
            }
        }
        let other = Keyring::new(Key::new([2; KEY_BYTES]));
        let bytes = seal(&other, b"AUDIT", [4; 32], b"x");
        assert_eq!(open(&ring, b"AUDIT", &bytes), Err(SmallError::Damaged));
    }
}
