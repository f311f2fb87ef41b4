//! A user: passwords, flags and selectors.

use bytes::Bytes;
use command::scripting::rules::Rules;
use command::CommandSpec;

use crate::password::{hash, is_digest, same_digest};
use crate::rule_error::RuleError;
use crate::selector::{Denial, Selector};
use crate::words;

/// The user of connections that have not named another one.
pub const DEFAULT_USER: &[u8] = b"default";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    enabled: bool,
    no_password: bool,
    /// `sanitize-payload` or `skip-sanitize-payload`. Nothing here depends on it.
    sanitizes: Option<bool>,
    /// Digests, in the order in which they were added.
    passwords: Vec<String>,
    root: Selector,
    selectors: Vec<Selector>,
}

/// A selector that no parenthesis closes, as far as its first word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched(pub Bytes);

impl User {
    /// Returns a new user, who can do nothing. `all_channels` is `acl-pubsub-default`.
    pub fn new(all_channels: bool) -> User {
        User {
            enabled: false,
            no_password: false,
            sanitizes: None,
            passwords: Vec::new(),
            root: Selector::new(all_channels),
            selectors: Vec::new(),
        }
    }

    /// Returns the default user, who can do everything, with or without a password.
    pub fn default_user(password: Option<&str>) -> User {
        let mut user = User::new(true);
        user.enabled = true;
        for rule in ["+@all", "~*", "&*"] {
            user.root.set(rule.as_bytes()).expect("the rule is known");
        }
        user.set_password(password);
        user
    }

    /// Replaces all passwords by one, or by none. This is `requirepass`.
    pub fn set_password(&mut self, password: Option<&str>) {
        self.no_password = password.is_none();
        self.passwords = password.map(|password| hash(password.as_bytes())).into_iter().collect();
    }

    /// Applies one modifier. A user whose modifiers fail must be dropped: an invalid selector may
    /// have been applied in part.
    pub fn apply(&mut self, modifier: &[u8], all_channels: bool) -> Result<(), RuleError> {
        // Redis compares words as C strings.
        let word = modifier.split(|&byte| byte == 0).next().unwrap_or_default();
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if modifier.is_empty() {
            return Ok(());
        }
        if is("on") {
            self.enabled = true;
        } else if is("off") {
            self.enabled = false;
        } else if is("nopass") {
            self.no_password = true;
            self.passwords.clear();
        } else if is("resetpass") {
            self.no_password = false;
            self.passwords.clear();
        } else if is("skip-sanitize-payload") {
            self.sanitizes = Some(false);
        } else if is("sanitize-payload") {
            self.sanitizes = Some(true);
        } else if is("clearselectors") {
            self.selectors.clear();
        } else if is("reset") {
            *self = User { sanitizes: Some(true), ..User::new(all_channels) };
        } else {
            return match modifier {
                [b'>' | b'#', ..] => self.add_password(modifier),
                [b'<' | b'!', ..] => self.remove_password(modifier),
                [b'(', rules @ .., b')'] => {
                    let mut selector = Selector::new(all_channels);
                    // As in Redis, a text with an open quote has no rules.
                    for rule in words::split(rules).unwrap_or_default() {
                        // In the description of the user it would end the selector.
                        if rule.ends_with(b")") {
                            return Err(RuleError::Syntax);
                        }
                        selector.set(&rule)?;
                    }
                    self.selectors.push(selector);
                    Ok(())
                }
                _ => self.root.set(modifier),
            };
        }
        Ok(())
    }

    fn add_password(&mut self, modifier: &[u8]) -> Result<(), RuleError> {
        let digest = digest_of(modifier)?;
        if !self.passwords.contains(&digest) {
            self.passwords.push(digest);
        }
        self.no_password = false;
        Ok(())
    }

    fn remove_password(&mut self, modifier: &[u8]) -> Result<(), RuleError> {
        let digest = digest_of(modifier)?;
        let at = self.passwords.iter().position(|known| *known == digest).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns true if any password is right.
    pub fn needs_no_password(&self) -> bool {
        self.no_password
    }

    /// Returns true if connections have this user from the start, as the default user.
    pub fn is_open(&self) -> bool {
        self.enabled && self.no_password
    }

    /// Returns true if the user may log in with this password. The time does not tell how much of
    /// a password is right, nor which of several.
    pub fn admits(&self, password: &[u8]) -> bool {
        let given = hash(password);
        let known = self.passwords.iter().fold(false, |known, digest| known | same_digest(digest, &given));
        self.enabled & (self.no_password | known)
    }

    /// Returns true if [`check`](User::check) permits every command.
    pub fn permits_everything(&self) -> bool {
        self.root.permits_everything() || self.selectors.iter().any(Selector::permits_everything)
    }

    /// Decides whether the user may execute a command. `spec` is the entry of the command or its
    /// subcommand, and the number of arguments is right.
    pub fn check(&self, spec: &'static CommandSpec, args: &[Bytes]) -> Result<(), Denial> {
        let mut denial = Denial::Command;
        for selector in std::iter::once(&self.root).chain(&self.selectors) {
            match selector.check(spec, args) {
                Ok(()) => return Ok(()),
                // The reported denial is that of the selector that permits the most.
                Err(reason) => denial = denial.max(reason),
            }
        }
        Err(denial)
    }

    /// Returns true if the user may subscribe to a channel, or to a pattern of channels.
    pub fn permits_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let mut selectors = std::iter::once(&self.root).chain(&self.selectors);
        selectors.any(|selector| selector.permits_channel(channel, is_pattern))
    }

    /// Returns the user's permissions as the log entry of a script has them.
    pub fn script_rules(&self) -> Rules {
        Rules(std::iter::once(&self.root).chain(&self.selectors).map(Selector::rules).collect())
    }

    /// Returns the names of the user's flags.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        if self.no_password {
            flags.push("nopass");
        }
        match self.sanitizes {
            Some(true) => flags.push("sanitize-payload"),
            Some(false) => flags.push("skip-sanitize-payload"),
            None => {}
        }
        flags
    }

    pub fn passwords(&self) -> &[String] {
        &self.passwords
    }

    pub fn root(&self) -> &Selector {
        &self.root
    }

    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Returns the rules that describe the user, as `ACL LIST` shows them.
    pub fn describe(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for flag in self.flags() {
            out.extend_from_slice(flag.as_bytes());
            out.push(b' ');
        }
        for digest in &self.passwords {
            out.push(b'#');
            out.extend_from_slice(digest.as_bytes());
            out.push(b' ');
        }
        self.root.describe(&mut out);
        for selector in &self.selectors {
            out.extend_from_slice(b" (");
            selector.describe(&mut out);
            out.push(b')');
        }
        out
    }

    /// Returns the user that [`describe`](User::describe) describes.
    pub fn parse(rules: &[u8]) -> Result<User, RuleError> {
        let words: Vec<Bytes> = rules
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty())
            .map(Bytes::copy_from_slice)
            .collect();
        let mut user = User::new(false);
        for modifier in merge_selectors(&words).map_err(|_| RuleError::Syntax)? {
            user.apply(&modifier, false)?;
        }
        Ok(user)
    }
}

/// Returns the digest that a modifier of a password names.
fn digest_of(modifier: &[u8]) -> Result<String, RuleError> {
    let (kind, text) = (modifier[0], &modifier[1..]);
    match kind {
        b'>' | b'<' => Ok(hash(text)),
        _ if is_digest(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Err(RuleError::BadDigest),
    }
}

/// Returns true if a modifier is a rule without a password, so that it can be shown. A word that is
/// no rule may be anything.
pub fn is_public(modifier: &[u8]) -> bool {
    let is_rule = match modifier {
        [b'>' | b'<' | b'#' | b'!', ..] => false,
        // A text with an open quote has no rules, and is ignored.
        [b'(', rules @ .., b')'] => words::split(rules).is_some(),
        _ => true,
    };
    // A user with all channels takes no patterns of channels.
    is_rule && !modifier.contains(&0) && User::new(false).apply(modifier, false).is_ok()
}

/// Joins the words of selectors: from one that begins with a parenthesis to one that ends with one.
pub fn merge_selectors(words: &[Bytes]) -> Result<Vec<Bytes>, Unmatched> {
    let mut merged = Vec::with_capacity(words.len());
    let mut open: Option<(&Bytes, Vec<u8>)> = None;
    for word in words {
        open = match open {
            None if word.starts_with(b"(") && !word.ends_with(b")") => Some((word, word.to_vec())),
            None => {
                merged.push(word.clone());
                None
            }
            Some((first, mut text)) => {
                text.push(b' ');
                // Redis appends a C string.
                text.extend_from_slice(word.split(|&byte| byte == 0).next().unwrap_or_default());
                match word.ends_with(b")") {
                    true => {
                        merged.push(text.into());
                        None
                    }
                    false => Some((first, text)),
                }
            }
        };
    }
    match open {
        Some((first, _)) => Err(Unmatched(first.clone())),
        None => Ok(merged),
    }
}

#[cfg(test)]
mod tests;
