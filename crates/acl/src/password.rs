//! Passwords: only their digests are kept, and digests are compared in a constant time.

use sha2::{Digest, Sha256};

/// Length of a digest in hexadecimal digits.
pub(crate) const DIGEST_DIGITS: usize = 64;

/// Returns the SHA-256 digest of a password, in lower-case hexadecimal digits.
pub fn hash(password: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = Sha256::digest(password);
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Returns true if the text can be a digest.
pub(crate) fn is_digest(text: &[u8]) -> bool {
    text.len() == DIGEST_DIGITS && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Compares two digests. Every byte is looked at, whatever the bytes before it were, and nothing
/// branches on a difference.
pub fn same_digest(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    // The lengths of digests are no secret.
    if one.len() != other.len() {
        return false;
    }
    let difference = one.iter().zip(other).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_sha256() {
        assert_eq!(hash(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hash(b"pw"), "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4");
        assert!(is_digest(hash(b"any").as_bytes()));
        assert!(!is_digest(hash(b"any").to_uppercase().as_bytes()) && !is_digest(b"30c9"));
    }

    #[test]
    fn digests_are_equal_only_when_every_digit_is() {
        let digest = hash(b"pw");
        assert!(same_digest(&digest, &hash(b"pw")));
        for at in 0..digest.len() {
            let mut other = digest.clone().into_bytes();
            other[at] ^= 1;
            assert!(!same_digest(&digest, std::str::from_utf8(&other).unwrap()), "{at}");
        }
        assert!(!same_digest(&digest, &digest[1..]) && !same_digest(&digest, ""));
    }
}
