//! Logins at the admin endpoint, if `admin-auth` asks for them: HTTP's `Authorization: Basic` with
//! a user of the store, or `Authorization: Bearer` with a token, which stands for a user. The
//! user's rules decide what a request may do; see [`Need`].

use std::sync::Arc;

use bytes::Bytes;
use cluster::TokenRecord;

use super::tokens;
use crate::accounts::{bytes_of, Account};
use crate::store::Store;

/// The permission that a request needs. The category `@admin` has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To read the metrics, which tell what `INFO` tells.
    Metrics,
    Look,
    Change,
    /// To read the audit log.
    Audit,
    /// To list the tokens of users.
    Tokens,
    /// To create and revoke them. A token can do what its user can do.
    ChangeTokens,
}

impl Need {
    /// Returns the commands of which the user must be permitted one, and their names.
    fn commands(self) -> (&'static [&'static [&'static str]], &'static str) {
        match self {
            Need::Metrics => (&[&["info"], &["config", "get", "*"]], "INFO or CONFIG GET"),
            Need::Look => (&[&["config", "get", "*"]], "CONFIG GET"),
            Need::Change => (&[&["config", "set", "", ""]], "CONFIG SET"),
            Need::Audit => (&[&["acl", "log"]], "ACL LOG"),
            Need::Tokens => (&[&["acl", "list"]], "ACL LIST"),
            Need::ChangeTokens => (&[&["acl", "setuser", ""]], "ACL SETUSER"),
        }
    }
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The request has no login, or one that cannot be read.
    NoLogin,
    /// The user or the password is wrong, or the user is `off`.
    WrongLogin,
    /// No token of a user is the one in the request.
    BadToken,
    TokenExpired,
    /// The token's user is `off`.
    UserOff,
    /// The user may not do this: it needs permission for the named command.
    NoPermission(&'static str),
}

/// Decides whether a request is carried out. `header` is its `Authorization`. Returns the name of
/// the user, if a login is required.
pub fn admits(store: &Arc<Store>, header: Option<&str>, need: Need) -> Result<Option<Bytes>, Refused> {
    if !store.config.admin_auth {
        return Ok(None);
    }
    let header = header.ok_or(Refused::NoLogin)?;
    let account = match bearer(header) {
        Some(token) => {
            let account = of_token(store, token).inspect_err(|_| store.access.denied_login())?;
            if !account.user.is_enabled() {
                return Err(Refused::UserOff);
            }
            account
        }
        None => {
            let (name, password) = credentials(header).ok_or(Refused::NoLogin)?;
            store.access.admit(&name, &password).ok_or(Refused::WrongLogin)?
        }
    };
    let (commands, named) = need.commands();
    let is_permitted = |words: &&[&'static str]| {
        let args: Vec<Bytes> = words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect();
        command::resolve(&args).is_ok_and(|spec| account.user.check(spec, &args).is_ok())
    };
    match commands.iter().any(is_permitted) {
        true => Ok(Some(account.name.clone())),
        false => Err(Refused::NoPermission(named)),
    }
}

/// Returns the user of a token.
fn of_token(store: &Store, token: &str) -> Result<Arc<Account>, Refused> {
    let members = store.membership.members();
    let known = tokens::find(members.agreed.tokens.values(), token.as_bytes()).ok_or(Refused::BadToken)?;
    if known.has_expired(store.wall.millis()) {
        return Err(Refused::TokenExpired);
    }
    let TokenRecord { user, since, .. } = known;
    let accounts = store.access.accounts();
    let account = bytes_of(user).and_then(|name| accounts.created_in(&name, *since).cloned());
    account.ok_or(Refused::BadToken)
}

/// Returns the token in `Bearer TOKEN`.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Returns the user and the password in `Basic BASE64`.
pub fn credentials(header: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, text) = header.split_once(' ')?;
    let plain = scheme.eq_ignore_ascii_case("basic").then(|| decode(text.trim()))??;
    let colon = plain.iter().position(|&byte| byte == b':')?;
    Some((plain[..colon].to_vec(), plain[colon + 1..].to_vec()))
}

/// Decodes base64 with the usual alphabet and padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').bytes();
    if text.len() % 4 != 0 || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        let value = ALPHABET.iter().position(|&known| known == digit)?;
        bits = (bits << 6 | value as u32) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_the_header_whatever_it_is() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  a b "), Some("a b"));
        assert_eq!(bearer("Bearer "), Some(""));
        for header in ["", "Bearer", "Bearerabc", "Basic abc", " Bearer abc"] {
            assert_eq!(bearer(header), None, "{header}");
        }
    }

    #[test]
    fn credentials_are_read_from_the_header_and_nothing_else_is() {
        let pair =
            |name: &str, password: &str| Some((name.as_bytes().to_vec(), password.as_bytes().to_vec()));
        assert_eq!(credentials("Basic dXNlcjpwYXNz"), pair("user", "pass"));
        assert_eq!(credentials("basic dTpwOnE="), pair("u", "p:q"));
        assert_eq!(credentials("Basic Og=="), pair("", ""));
        for header in [
            "",
            "Basic",
            "Basic ",
            "Basic dXNl",
            "Bearer dTpw",
            "Basic d===",
            "Basic dTpw*",
            "Basic \u{e9}AAA",
        ] {
            assert_eq!(credentials(header), None, "{header}");
        }
    }
}
