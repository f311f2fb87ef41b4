//! The bearer tokens of the admin endpoint. They are sent and stored with the list of stores, and
//! share its version.
//!
//! A token stands for a user. Only its digest is known here.

use serde::{Deserialize, Serialize};
use types::{UnixMillis, THIRD_VERSION};

use super::{MetaState, Object};
use crate::MetaError;

/// Maximum number of tokens. A store compares each with the one of a request.
pub const TOKENS_MAX: usize = 256;
/// Maximum number of bytes of a token's name.
pub const TOKEN_NAME_BYTES_MAX: usize = 64;
/// Number of digits of a digest.
const DIGEST_DIGITS: usize = 64;

/// A bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The name of the user, as in [`MetaState::users`].
    pub user: String,
    /// The version in which the user was created ([`UserRecord::since`](super::UserRecord)). A user
    /// of the same name who was created later is another one.
    pub since: u64,
    /// The SHA-256 digest of the token in hexadecimal digits.
    pub digest: String,
    pub created_ms: UnixMillis,
    /// The time from which on the token is refused, if it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<UnixMillis>,
}

impl TokenRecord {
    pub fn has_expired(&self, now_ms: UnixMillis) -> bool {
        self.expires_ms.is_some_and(|at| at <= now_ms)
    }
}

/// Returns true if a token can have this name.
pub fn is_token_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=TOKEN_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_part)
}

impl MetaState {
    /// Creates a token. See [`MetaCommand::CreateToken`](crate::MetaCommand::CreateToken).
    /// Tokens that have expired are removed first.
    pub(super) fn create_token(
        &mut self,
        name: &str,
        (user, digest, ttl_ms): (&str, &str, Option<u64>),
        stamp_ms: UnixMillis,
        changed: &mut Vec<Object>,
    ) -> Result<(), MetaError> {
        if self.version < THIRD_VERSION {
            return Err(MetaError::BadToken(
                "tokens need version 3 of the cluster: see steelyard ctl versions",
            ));
        }
        if !is_token_name(name) {
            return Err(MetaError::BadToken(
                "the name of a token has 1 to 64 letters, digits, dots, hyphens and underscores",
            ));
        }
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digest.len() != DIGEST_DIGITS || !digest.bytes().all(is_digit) {
            return Err(MetaError::BadToken("the digest of a token has 64 hexadecimal digits"));
        }
        let is_past = |name: &&String| self.tokens[*name].has_expired(stamp_ms);
        let past: Vec<String> = self.tokens.keys().filter(is_past).cloned().collect();
        let count = self.tokens.len() - past.len();
        if self.tokens.contains_key(name) && !past.iter().any(|past| past == name) {
            return Err(MetaError::BadToken("there is a token of that name: revoke it first"));
        }
        if count >= TOKENS_MAX {
            return Err(MetaError::BadToken("there are 256 tokens, the maximum: revoke some first"));
        }
        let since = self.users.get(user).map(|user| user.since).ok_or(MetaError::BadToken(
            "a token stands for a user of the cluster, and there is none of that name: see ACL SETUSER",
        ))?;
        if ttl_ms == Some(0) {
            return Err(MetaError::BadToken("a token is valid for some time"));
        }
        for past in past {
            self.tokens.remove(&past);
            if past != name {
                changed.push(Object::Token(past));
            }
        }
        let expires_ms = ttl_ms.map(|ttl| stamp_ms.saturating_add(ttl));
        let (user, digest) = (user.to_owned(), digest.to_owned());
        let token = TokenRecord { user, since, digest, created_ms: stamp_ms, expires_ms };
        self.tokens.insert(name.to_owned(), token);
        self.token_changed(name.to_owned(), changed);
        Ok(())
    }

    pub(super) fn revoke_token(&mut self, name: &str, changed: &mut Vec<Object>) -> Result<(), MetaError> {
        if self.tokens.remove(name).is_none() {
            return Err(MetaError::BadToken("there is no token of that name"));
        }
        self.token_changed(name.to_owned(), changed);
        Ok(())
    }

    /// Removes the tokens of users that are gone. The caller changes the list's version.
    pub(super) fn drop_tokens_without_user(&mut self, changed: &mut Vec<Object>) {
        let users = &self.users;
        let is_gone =
            |token: &TokenRecord| users.get(&token.user).is_none_or(|user| user.since != token.since);
        let gone: Vec<String> =
            self.tokens.iter().filter(|(_, token)| is_gone(token)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.tokens.remove(&name);
            changed.push(Object::Token(name));
        }
    }

    fn token_changed(&mut self, name: String, changed: &mut Vec<Object>) {
        self.members_version += 1;
        changed.extend([Object::Token(name), Object::Counters]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::begun;
    use crate::{MetaCommand, MetaReply};

    fn create(name: &str, user: &str, digest: &str) -> MetaCommand {
        create_for(name, user, digest, None)
    }

    fn create_for(name: &str, user: &str, digest: &str, ttl_ms: Option<u64>) -> MetaCommand {
        let (name, user, digest) = (name.to_owned(), user.to_owned(), digest.to_owned());
        let command = MetaCommand::CreateToken { name, user, digest, ttl_ms };
        assert_eq!(MetaCommand::decode(&command.encode()).as_ref(), Ok(&command));
        command
    }

    fn set_user(state: &mut MetaState, name: &str, rules: Option<&str>) {
        let changes = [(name.to_owned(), rules.map(str::to_owned))].into();
        let command = MetaCommand::SetUsers { expected: state.members_version, changes, replace: false };
        assert_eq!(state.apply(&command, 1), Ok(MetaReply::Changed));
    }

    #[test]
    fn a_token_belongs_to_a_user_and_goes_with_it() {
        let digest = "0a".repeat(32);
        let mut state = begun(1, 1);
        let old = state.apply(&create("t", "ann", &digest), 1);
        assert!(matches!(old, Err(MetaError::BadToken(_))), "the version is too old: {old:?}");
        state.version = THIRD_VERSION;
        set_user(&mut state, "ann", Some("on"));
        for (name, user, digest) in [
            ("t", "bob", digest.as_str()),
            ("t", "default", &digest),
            ("", "ann", &digest),
            ("a b", "ann", &digest),
            ("a\nb", "ann", &digest),
            ("t", "ann", "0a"),
            ("t", "ann", &"0A".repeat(32)),
            (&"x".repeat(65), "ann", &digest),
        ] {
            let refused = state.apply(&create(name, user, digest), 1);
            assert!(matches!(refused, Err(MetaError::BadToken(_))), "{name} {user}: {refused:?}");
        }
        let version = state.members_version;
        assert_eq!(state.apply(&create("t", "ann", &digest), 9), Ok(MetaReply::Changed));
        assert_eq!((state.members_version, state.tokens["t"].created_ms), (version + 1, 9));
        assert!(matches!(state.apply(&create("t", "ann", &digest), 9), Err(MetaError::BadToken(_))));
        set_user(&mut state, "ann", Some("off"));
        assert!(state.tokens.contains_key("t"), "a changed user is the same one");
        set_user(&mut state, "ann", None);
        assert!(state.tokens.is_empty());
    }

    #[test]
    fn an_expired_token_makes_room_when_another_is_created() {
        let digest = "0a".repeat(32);
        let mut state = begun(1, 1);
        state.version = THIRD_VERSION;
        set_user(&mut state, "ann", Some("on"));
        let never = state.apply(&create_for("t", "ann", &digest, Some(0)), 100);
        assert!(matches!(never, Err(MetaError::BadToken(_))));
        for number in 0..TOKENS_MAX {
            let ttl = (number % 2 == 0).then_some(50);
            let created = create_for(&number.to_string(), "ann", &digest, ttl);
            assert_eq!(state.apply(&created, 100), Ok(MetaReply::Changed));
        }
        assert_eq!((state.tokens["0"].expires_ms, state.tokens["1"].expires_ms), (Some(150), None));
        assert!(!state.tokens["0"].has_expired(149) && state.tokens["0"].has_expired(150));
        assert!(matches!(state.apply(&create("0", "ann", &digest), 149), Err(MetaError::BadToken(_))));
        let endless = create_for("0", "ann", &digest, Some(u64::MAX));
        assert_eq!(state.apply(&endless, 150), Ok(MetaReply::Changed));
        assert_eq!(state.tokens.len(), TOKENS_MAX / 2 + 1);
        assert_eq!(state.tokens["0"].expires_ms, Some(u64::MAX));
    }

    #[test]
    fn a_revoked_token_is_gone_and_there_is_a_maximum() {
        let mut state = begun(1, 1);
        state.version = THIRD_VERSION;
        set_user(&mut state, "ann", Some("on"));
        for number in 0..TOKENS_MAX {
            let digest = format!("{number:064x}");
            assert_eq!(state.apply(&create(&number.to_string(), "ann", &digest), 1), Ok(MetaReply::Changed));
        }
        let more = create("more", "ann", &"f".repeat(64));
        assert!(matches!(state.apply(&more, 1), Err(MetaError::BadToken(_))));
        let revoke = MetaCommand::RevokeToken { name: "7".into() };
        assert_eq!(state.apply(&revoke, 1), Ok(MetaReply::Changed));
        assert!(matches!(state.apply(&revoke, 1), Err(MetaError::BadToken(_))));
        assert_eq!(state.apply(&more, 1), Ok(MetaReply::Changed));
    }
}
