//! Keys, and keys that are derived from them.

use ring::hmac;
use zeroize::Zeroize;

pub const KEY_BYTES: usize = 32;
pub const SALT_BYTES: usize = 32;

/// The number of a data key. Numbers begin at 1 and are never used twice.
pub type KeyNumber = u32;

/// Random bytes that are drawn for one file and stored with it.
pub type Salt = [u8; SALT_BYTES];

/// A key of 256 bits. Its memory is cleared when it is dropped, and it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    pub fn new(bytes: [u8; KEY_BYTES]) -> Key {
        Key(bytes)
    }

    /// Reads 64 hexadecimal digits, with white space around them.
    pub fn from_hex(text: &[u8]) -> Option<Key> {
        let digits = text.trim_ascii();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut key = Key([0; KEY_BYTES]);
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(key)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns the key for a purpose and a context. Purposes end with a zero, so that no purpose
    /// and context are those of another purpose.
    pub(crate) fn derive(&self, purpose: &str, context: &[u8]) -> Key {
        let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac.update(context);
        let mut key = Key([0; KEY_BYTES]);
        key.0.copy_from_slice(mac.sign().as_ref());
        key
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_64_hexadecimal_digits() {
        let text = "00112233445566778899aAbBcCdDeEfF".repeat(2);
        let key = Key::from_hex(format!(" {text}\n").as_bytes()).unwrap();
        assert_eq!(key.bytes()[..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(key.bytes()[31], 0xff);
        for bad in ["", "00", &text[1..], &text.replace('9', "g"), &format!("{text}0"), &"é".repeat(32)] {
            assert_eq!(Key::from_hex(bad.as_bytes()), None, "{bad}");
        }
        assert!(!format!("{key:?}").contains("11"));
    }

    #[test]
    fn keys_of_other_purposes_and_contexts_differ() {
        let key = Key::new([7; KEY_BYTES]);
        let derived = [
            key.derive("rows", b"x"),
            key.derive("rows", b"y"),
            key.derive("log", b"x"),
            key.derive("row", b"sx"),
            Key::new([8; KEY_BYTES]).derive("rows", b"x"),
        ];
        for (at, one) in derived.iter().enumerate() {
            assert!(derived[at + 1..].iter().all(|other| one != other), "{at}");
        }
        assert_eq!(derived[0], key.derive("rows", b"x"));
    }
}
