//! The key pair with which a store proves its identity. It is generated with the data directory.
//! Its private half is stored only there and never sent. Other stores know its public half.

use std::fmt;
use std::io;

use cluster::StoreKey;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::frame::Nonce;

#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// Generates a new key.
    pub fn draw() -> io::Result<SecretKey> {
        Ok(SecretKey(SigningKey::from_bytes(&draw()?)))
    }

    /// Returns the same key for the same number.
    #[cfg(test)]
    pub fn numbered(number: u8) -> SecretKey {
        SecretKey(SigningKey::from_bytes(&[0x40 + number; 32]))
    }

    pub fn public(&self) -> StoreKey {
        StoreKey(self.0.verifying_key().to_bytes())
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

/// Returns random bytes of the operating system.
pub(super) fn draw<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    Ok(bytes)
}

pub(super) fn draw_nonce() -> io::Result<Nonce> {
    draw()
}

/// Returns a random number other than 0.
pub fn draw_number() -> io::Result<u64> {
    Ok(u64::from_le_bytes(draw()?).max(1))
}

/// Returns true if the owner of the private half signed the message. Weak keys, which several
/// private halves match, are rejected.
pub(super) fn has_signed(key: &StoreKey, message: &[u8], signature: &[u8; 64]) -> bool {
    let Ok(key) = VerifyingKey::from_bytes(&key.0) else { return false };
    key.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
}

fn mac_of(secret: &[u8], message: &[u8]) -> Hmac<Sha256> {
    let mac = <Hmac<Sha256> as Mac>::new_from_slice(secret);
    mac.expect("a secret of any length will do").chain_update(message)
}

/// Returns a proof that the sender of the message knows the secret, for others who know it.
pub(super) fn prove(secret: &[u8], message: &[u8]) -> [u8; 32] {
    mac_of(secret, message).finalize().into_bytes().into()
}

/// Checks a proof in constant time.
pub(super) fn is_proof(secret: &[u8], message: &[u8], proof: &[u8; 32]) -> bool {
    mac_of(secret, message).verify_slice(proof).is_ok()
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the secret half of {}", self.public())
    }
}

impl serde::Serialize for SecretKey {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&StoreKey(self.0.to_bytes()))
    }
}

impl<'de> serde::Deserialize<'de> for SecretKey {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<SecretKey, D::Error> {
        let bytes: StoreKey = serde::Deserialize::deserialize(from)?;
        Ok(SecretKey(SigningKey::from_bytes(&bytes.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_key_signs_with_it_and_nobody_else() {
        let (key, other) = (SecretKey::draw().unwrap(), SecretKey::draw().unwrap());
        assert_ne!(key.public(), other.public());
        let signature = key.sign(b"message");
        assert!(has_signed(&key.public(), b"message", &signature));
        assert!(!has_signed(&key.public(), b"massage", &signature));
        assert!(!has_signed(&other.public(), b"message", &signature));
        // With the neutral point as the key, anyone can make a valid signature.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        let mut forged = [0; 64];
        forged[0] = 1;
        assert!(!has_signed(&StoreKey(neutral), b"message", &forged));
        assert!(!has_signed(&StoreKey([0xff; 32]), b"message", &forged));
    }

    #[test]
    fn a_secret_is_kept_in_words_that_only_its_file_has() {
        let key = SecretKey::draw().unwrap();
        let kept = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<SecretKey>(&kept).unwrap(), key);
        let secret = kept.trim_matches('"');
        assert!(!format!("{key:?}").contains(secret) && !key.public().to_string().contains(secret));
    }

    #[test]
    fn who_knows_a_password_can_prove_it_for_one_message() {
        let proof = prove(b"secret", b"message");
        assert!(is_proof(b"secret", b"message", &proof));
        assert!(!is_proof(b"Secret", b"message", &proof));
        assert!(!is_proof(b"secret", b"massage", &proof));
        assert!(!is_proof(b"secret", b"message", &[0; 32]));
    }
}
