//! The data keys of a store, and their file.
//!
//! ```text
//! KEYS, big-endian:
//!   magic 8 | version u32 = 1 | check of the master key 16 | nonce 12
//!   AES-256-GCM under the master key, with the bytes before as associated data:
//!     active u32 | count u32 | for each key: number u32, key 32
//!   tag 16
//! ```
//!
//! The check tells another master key from a damaged file. It is a keyed hash of a constant.

use std::collections::{BTreeMap, BTreeSet};

use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_256_GCM};
use zeroize::Zeroizing;

use crate::key::{Key, KeyNumber, KEY_BYTES};

const MAGIC: &[u8; 8] = b"SYLYKEYS";
const VERSION: u32 = 1;
const CHECK_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const CHECK_AT: usize = 12;
const NONCE_AT: usize = CHECK_AT + CHECK_BYTES;
const SEALED_AT: usize = NONCE_AT + NONCE_BYTES;
const ENTRY_BYTES: usize = 4 + KEY_BYTES;
/// Maximum number of data keys.
const KEYS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("it was sealed with another master key")]
    OtherMasterKey,
    #[error("it has version {0}, which this program cannot read")]
    Version(u32),
    #[error("it is damaged")]
    Damaged,
    #[error("it already has {KEYS_MAX} data keys")]
    Full,
}

/// The data keys of a store. One of them is active: new files use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyring {
    active: KeyNumber,
    keys: BTreeMap<KeyNumber, Key>,
}

impl Keyring {
    /// Returns a keyring with a first key.
    pub fn new(key: Key) -> Keyring {
        Keyring { active: 1, keys: BTreeMap::from([(1, key)]) }
    }

    pub fn active(&self) -> (KeyNumber, &Key) {
        (self.active, &self.keys[&self.active])
    }

    pub fn get(&self, number: KeyNumber) -> Option<&Key> {
        self.keys.get(&number)
    }

    pub fn numbers(&self) -> impl Iterator<Item = KeyNumber> + '_ {
        self.keys.keys().copied()
    }

    /// Returns the keyring with a new active key.
    pub fn rotated(&self, key: Key) -> Result<Keyring, KeyringError> {
        let active = self.active.checked_add(1).filter(|_| self.keys.len() < KEYS_MAX);
        let active = active.ok_or(KeyringError::Full)?;
        let mut keys = self.keys.clone();
        keys.insert(active, key);
        Ok(Keyring { active, keys })
    }

    /// Returns the keyring with the active key and those in `needed` only.
    pub fn reduced(&self, needed: &BTreeSet<KeyNumber>) -> Keyring {
        let is_kept = |number: &KeyNumber| *number == self.active || needed.contains(number);
        let kept = self.keys.iter().filter(|(number, _)| is_kept(number));
        Keyring { active: self.active, keys: kept.map(|(number, key)| (*number, key.clone())).collect() }
    }

    /// Returns the content of the file. `nonce` must be random.
    pub fn seal(&self, master: &Key, nonce: [u8; NONCE_BYTES]) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(SEALED_AT + 8 + self.keys.len() * ENTRY_BYTES + AES_256_GCM.tag_len());
        out.extend(MAGIC);
        out.extend(VERSION.to_be_bytes());
        out.extend(check_of(master));
        out.extend(nonce);
        let mut inner =
            Zeroizing::new(Vec::with_capacity(8 + self.keys.len() * ENTRY_BYTES + AES_256_GCM.tag_len()));
        inner.extend(self.active.to_be_bytes());
        inner.extend((self.keys.len() as u32).to_be_bytes());
        for (number, key) in &self.keys {
            inner.extend(number.to_be_bytes());
            inner.extend(key.bytes());
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        aead(&master.derive("keys", b""))
            .seal_in_place_append_tag(nonce, Aad::from(&out[..]), &mut *inner)
            .expect("a keyring is short");
        out.extend(&inner[..]);
        out
    }

    /// Reads the content of the file.
    pub fn open(bytes: &[u8], master: &Key) -> Result<Keyring, KeyringError> {
        let longest = SEALED_AT + 8 + KEYS_MAX * ENTRY_BYTES + AES_256_GCM.tag_len();
        if bytes.len() < SEALED_AT || bytes.len() > longest || &bytes[..8] != MAGIC {
            return Err(KeyringError::Damaged);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(KeyringError::Version(version));
        }
        let (head, sealed) = bytes.split_at(SEALED_AT);
        let mut inner = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(head[NONCE_AT..].try_into().expect("12 bytes"));
        let opened = aead(&master.derive("keys", b"")).open_in_place(nonce, Aad::from(head), &mut inner);
        let Ok(opened) = opened else {
            return Err(match head[CHECK_AT..NONCE_AT] == check_of(master) {
                true => KeyringError::Damaged,
                false => KeyringError::OtherMasterKey,
            });
        };
        decode(opened).ok_or(KeyringError::Damaged)
    }
}

fn decode(inner: &[u8]) -> Option<Keyring> {
    if inner.len() < 8 {
        return None;
    }
    let (head, entries) = inner.split_at(8);
    let (active, count) = (u32_at(head, 0), u32_at(head, 4) as usize);
    if count.checked_mul(ENTRY_BYTES) != Some(entries.len()) {
        return None;
    }
    let key = |entry: &[u8]| (u32_at(entry, 0), Key::new(entry[4..].try_into().expect("32 bytes")));
    let keys: BTreeMap<_, _> = entries.chunks_exact(ENTRY_BYTES).map(key).collect();
    let is_consistent = keys.len() == count && keys.last_key_value().is_some_and(|(last, _)| *last == active);
    is_consistent.then_some(Keyring { active, keys })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn check_of(master: &Key) -> [u8; CHECK_BYTES] {
    master.derive("check", b"").bytes()[..CHECK_BYTES].try_into().expect("16 bytes")
}

pub(crate) fn aead(key: &Key) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.bytes()).expect("a key of 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new([byte; KEY_BYTES])
    }

    #[test]
    fn a_keyring_survives_and_no_damage_goes_unnoticed() {
        let ring = Keyring::new(key(1)).rotated(key(2)).unwrap();
        let bytes = ring.seal(&key(9), [3; NONCE_BYTES]);
        assert_eq!(Keyring::open(&bytes, &key(9)).as_ref(), Ok(&ring));
        assert_eq!(Keyring::open(&bytes, &key(8)), Err(KeyringError::OtherMasterKey));
        assert!(!bytes.windows(8).any(|part| part == [1; 8] || part == [2; 8] || part == [9; 8]));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(Keyring::open(&flipped, &key(9)).is_err(), "byte {at}");
            assert!(Keyring::open(&bytes[..at], &key(9)).is_err(), "cut at {at}");
        }
        assert!(Keyring::open(&[&bytes[..], b"x"].concat(), &key(9)).is_err());
        let mut newer = bytes.clone();
        newer[11] = 2;
        assert_eq!(Keyring::open(&newer, &key(9)), Err(KeyringError::Version(2)));
    }

    #[test]
    fn any_bytes_as_a_keyring_are_refused_without_a_panic() {
        let mut state = 7u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for length in 0..300 {
            let mut bytes: Vec<u8> = (0..length).map(|_| draw()).collect();
            assert!(Keyring::open(&bytes, &key(9)).is_err());
            assert_eq!(decode(&bytes), None);
            if length >= 12 {
                bytes[..8].copy_from_slice(MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_be_bytes());
                assert!(Keyring::open(&bytes, &key(9)).is_err());
            }
        }
        // A sealed content that is nonsense.
        let nonsense = Keyring { active: 2, keys: BTreeMap::from([(1, key(1))]) };
        assert_eq!(Keyring::open(&nonsense.seal(&key(9), [0; 12]), &key(9)), Err(KeyringError::Damaged));
    }

    #[test]
    fn a_rotation_keeps_old_keys_until_they_are_dropped() {
        let ring = Keyring::new(key(1)).rotated(key(2)).unwrap().rotated(key(3)).unwrap();
        assert_eq!((ring.active().0, ring.numbers().collect::<Vec<_>>()), (3, vec![1, 2, 3]));
        let reduced = ring.reduced(&BTreeSet::from([1, 99]));
        assert_eq!(reduced.numbers().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(reduced.reduced(&BTreeSet::new()).numbers().collect::<Vec<_>>(), [3]);
        // A number is not used again.
        assert_eq!(reduced.rotated(key(4)).unwrap().active().0, 4);
    }
}
