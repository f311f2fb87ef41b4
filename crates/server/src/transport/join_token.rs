//! Tokens with which a store may ask to join until they expire.
//!
//! A token is derived from the cluster's password, so that every store can judge it and none has to
//! remember it: the secret is a MAC, with the password as the key, over the time of expiry and a
//! random id. Other expiries need another secret. A new password ends all tokens. Until then a
//! token may be used by several stores.

use std::fmt;
use std::io;

use super::keys;
use crate::clock;

/// The beginning of a token's text, which names its format.
const PREFIX: &str = "join1.";
const LABEL: &[u8] = b"steelyard 1: join token\0";

/// The part of a token that may be told: it names the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenName {
    /// Seconds since 1970.
    pub expires: u64,
    pub id: [u8; 16],
}

#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub name: TokenName,
    secret: [u8; 32],
}

impl TokenName {
    /// Returns the secret of the token with this name.
    fn secret(&self, password: &str) -> [u8; 32] {
        let content = [LABEL, &self.expires.to_le_bytes(), &self.id].concat();
        keys::prove(password.as_bytes(), &content)
    }

    pub fn has_expired(&self) -> bool {
        self.expires <= unix_seconds()
    }

    /// Checks a proof that the sender of the message has the token with this name.
    pub(super) fn is_proof(&self, password: &str, message: &[u8], proof: &[u8; 32]) -> bool {
        keys::is_proof(&self.secret(password), message, proof)
    }
}

impl JoinToken {
    /// Makes a token of the cluster with this password.
    pub fn issue(password: &str, seconds: u64) -> io::Result<JoinToken> {
        let name = TokenName { expires: unix_seconds().saturating_add(seconds), id: keys::draw()? };
        Ok(JoinToken { name, secret: name.secret(password) })
    }

    /// Parses the text of a token.
    pub fn parse(text: &str) -> Option<JoinToken> {
        let digits = text.strip_prefix(PREFIX)?;
        let of = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: [u8; 56] = match digits.len() == 112 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            true => digits.as_bytes().chunks(2).map(of).collect::<Option<Vec<u8>>>()?.try_into().ok()?,
            false => return None,
        };
        let (expires, rest) = bytes.split_first_chunk::<8>()?;
        let (id, secret) = rest.split_first_chunk::<16>()?;
        let name = TokenName { expires: u64::from_le_bytes(*expires), id: *id };
        Some(JoinToken { name, secret: secret.try_into().ok()? })
    }

    /// Returns a proof that the sender of the message has the token.
    pub(super) fn prove(&self, message: &[u8]) -> [u8; 32] {
        keys::prove(&self.secret, message)
    }

    /// Returns the text of the token, which is a secret.
    pub fn text(&self) -> String {
        let bytes = [&self.name.expires.to_le_bytes()[..], &self.name.id, &self.secret].concat();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{PREFIX}{digits}")
    }
}

/// The secret stays out of messages.
impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a token for joining until {}", self.name.expires)
    }
}

fn unix_seconds() -> u64 {
    clock::unix_millis() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_proves_itself_for_one_message_and_one_password() {
        let token = JoinToken::issue("secret", 60).unwrap();
        let read = JoinToken::parse(&token.text()).unwrap();
        assert!(read == token && !read.name.has_expired());
        assert!(!format!("{token:?}").contains(&token.text()[60..]));
        let proof = read.prove(b"message");
        assert!(token.name.is_proof("secret", b"message", &proof));
        assert!(!token.name.is_proof("secret", b"massage", &proof));
        assert!(!token.name.is_proof("Secret", b"message", &proof));
        // A later expiry belongs to another secret.
        let later = TokenName { expires: token.name.expires + 1, ..token.name };
        assert!(!later.is_proof("secret", b"message", &proof));
        assert!(JoinToken::issue("secret", 0).unwrap().name.has_expired());
        assert_ne!(JoinToken::issue("secret", 60).unwrap().name.id, token.name.id);
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let text = JoinToken::issue("secret", 60).unwrap().text();
        for bad in [
            "",
            "join1.",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}0"),
            &text.replace("join1", "join2"),
        ] {
            assert!(JoinToken::parse(bad).is_none(), "{bad}");
        }
        assert!(JoinToken::parse(&format!("{}g", &text[..text.len() - 1])).is_none());
        assert!(JoinToken::parse(&format!("{}+1", &text[..text.len() - 2])).is_none());
    }
}
