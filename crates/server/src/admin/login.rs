//! Logins at the admin endpoint, if `admin-auth` asks for them: HTTP's `Authorization: Basic` with
//! a user of the store. The user needs permission for `CONFIG GET` to look, and for `CONFIG SET` to
//! change something; the category `@admin` has both.

use std::sync::Arc;

use bytes::Bytes;

use crate::store::Store;

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The request has no login, or a wrong one.
    NoLogin,
    /// The user may not do this.
    NoPermission,
}

/// Decides whether a request is carried out. `header` is its `Authorization`.
pub fn admits(store: &Arc<Store>, header: Option<&str>, changes: bool) -> Result<(), Refused> {
    if !store.config.admin_auth {
        return Ok(());
    }
    let (name, password) = header.and_then(credentials).ok_or(Refused::NoLogin)?;
    let account = store.access.admit(&name, &password).ok_or(Refused::NoLogin)?;
    let words: &[&str] = if changes { &["config", "set", "", ""] } else { &["config", "get", "*"] };
    let args: Vec<Bytes> = words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect();
    let spec = command::resolve(&args).map_err(|_| Refused::NoPermission)?;
    account.user.check(spec, &args).map_err(|_| Refused::NoPermission)
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
