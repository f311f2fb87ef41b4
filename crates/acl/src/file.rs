//! Files of users: a line `user NAME RULES...` for each.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::user::{merge_selectors, User};
use crate::words::has_spaces;

/// Errors of a file, one sentence for each, as Redis words them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileErrors(pub String);

/// Reads the users from a file's text. All of them are valid, or none is returned. `path` is for
/// the error messages, and `all_channels` is `acl-pubsub-default`.
pub fn parse_file(path: &str, text: &[u8], all_channels: bool) -> Result<BTreeMap<Bytes, User>, FileErrors> {
    let (mut users, mut errors) = (BTreeMap::new(), String::new());
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match parse_line(line, &users, all_channels) {
            Ok((name, user)) => drop(users.insert(name, user)),
            Err(why) => errors += &format!("{path}:{}: {why}. ", at + 1),
        }
    }
    match errors.is_empty() {
        true => Ok(users),
        false => Err(FileErrors(
            errors
                + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
        )),
    }
}

fn parse_line(
    line: &[u8],
    earlier: &BTreeMap<Bytes, User>,
    all_channels: bool,
) -> Result<(Bytes, User), String> {
    let words: Vec<Bytes> = line.split(|&byte| byte == b' ').map(Bytes::copy_from_slice).collect();
    let [keyword, name, rules @ ..] = words.as_slice() else {
        return Err("should start with user keyword followed by the username".into());
    };
    if &keyword[..] != b"user" {
        return Err("should start with user keyword followed by the username".into());
    }
    let shown = String::from_utf8_lossy(name);
    if has_spaces(name) {
        return Err(format!("username '{shown}' contains invalid characters"));
    }
    if earlier.contains_key(name) {
        return Err(format!("Duplicate user '{shown}' found"));
    }
    let merged =
        merge_selectors(rules).map_err(|_| "Unmatched parenthesis in selector definition.".to_owned())?;
    let mut user = User::new(all_channels);
    for modifier in &merged {
        user.apply(modifier.trim_ascii(), all_channels).map_err(|error| error.to_string())?;
    }
    Ok((name.clone(), user))
}

/// Returns the text of a file with these users.
pub fn write_file<'a>(users: impl Iterator<Item = (&'a [u8], &'a User)>) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, user) in users {
        text.extend_from_slice(b"user ");
        text.extend_from_slice(name);
        text.push(b' ');
        text.extend_from_slice(&user.describe());
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let text = b"# users\n\nuser a on >pw ~a* +@read (~b +set)\r\nuser default on nopass ~* &* +@all\n";
        let users = parse_file("f", text, false).unwrap();
        assert_eq!(
            users.keys().map(|name| name.to_vec()).collect::<Vec<_>>(),
            [b"a".to_vec(), b"default".to_vec()]
        );
        let written = write_file(users.iter().map(|(name, user)| (&name[..], user)));
        assert_eq!(parse_file("f", &written, true).unwrap(), users);
        assert!(!written.windows(3).any(|bytes| bytes == b">pw"), "only digests are written");
    }

    #[test]
    fn one_bad_line_refuses_the_file() {
        for (text, why) in [
            ("user a\nuser a on", "f:2: Duplicate user 'a' found. "),
            ("users a", "f:1: should start with user keyword followed by the username. "),
            ("user", "f:1: should start with user keyword followed by the username. "),
            ("user a (+get", "f:1: Unmatched parenthesis in selector definition.. "),
            ("user a +nope", "f:1: Unknown command or category name in ACL. "),
        ] {
            let FileErrors(errors) = parse_file("f", text.as_bytes(), false).unwrap_err();
            assert!(errors.starts_with(why), "{errors}");
        }
    }
}
