//! The users of clients at one time.

use std::collections::BTreeMap;
use std::sync::Arc;

use acl::{User, DEFAULT_USER};
use bytes::Bytes;
use cluster::UserRecord;

use crate::settings::Settings;

/// Users by name, as the cluster agreed on them.
pub type AgreedUsers = BTreeMap<String, UserRecord>;

/// A user under its name.
#[derive(Debug)]
pub struct Account {
    pub name: Bytes,
    /// See [`UserRecord::since`].
    since: u64,
    pub user: User,
    /// False if the user may execute every command.
    pub is_restricted: bool,
}

/// All users, at one time.
pub struct Accounts {
    /// The version of the list of stores that the users came with.
    pub version: u64,
    by_name: BTreeMap<Bytes, Arc<Account>>,
    pub default: Arc<Account>,
    /// False while the default user follows this store's `requirepass`.
    pub is_default_agreed: bool,
}

/// Returns bytes as a text in which a character stands for a byte.
pub fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

/// Returns the bytes of such a text; `None` if it is none.
pub fn bytes_of(text: &str) -> Option<Bytes> {
    text.chars()
        .map(|character| u8::try_from(u32::from(character)).ok())
        .collect::<Option<Vec<u8>>>()
        .map(Bytes::from)
}

impl Account {
    fn new(name: Bytes, since: u64, user: User) -> Arc<Account> {
        let is_restricted = !user.permits_everything();
        Arc::new(Account { name, since, user, is_restricted })
    }

    /// Reads a user that the cluster agreed on. One whose rules cannot be read can do nothing.
    fn of(name: &str, record: &UserRecord) -> Option<Arc<Account>> {
        let Some(bytes) = bytes_of(name) else {
            tracing::error!("the name of a user cannot be read: the user cannot log in here");
            return None;
        };
        let parsed =
            bytes_of(&record.rules).ok_or(acl::RuleError::Syntax).and_then(|rules| User::parse(&rules));
        let user = parsed.unwrap_or_else(|error| {
            tracing::error!(user = name, %error, "the rules of a user cannot be read: the user can do nothing here");
            User::new(false)
        });
        Some(Account::new(bytes, record.since, user))
    }
}

impl Accounts {
    pub fn new(version: u64, agreed: &AgreedUsers, settings: &Settings) -> Accounts {
        let mut by_name: BTreeMap<Bytes, Arc<Account>> = agreed
            .iter()
            .filter_map(|(name, record)| Account::of(name, record))
            .map(|account| (account.name.clone(), account))
            .collect();
        let is_default_agreed = by_name.contains_key(DEFAULT_USER);
        let own = || {
            let user = match settings.lacks_password() {
                true => User::new(false),
                false => User::default_user(settings.requirepass.as_deref()),
            };
            Account::new(Bytes::from_static(DEFAULT_USER), 0, user)
        };
        let default = by_name.entry(Bytes::from_static(DEFAULT_USER)).or_insert_with(own).clone();
        Accounts { version, by_name, default, is_default_agreed }
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<Account>> {
        self.by_name.get(name)
    }

    /// Returns the present account of a user, unless the user was deleted since.
    pub fn current(&self, account: &Account) -> Option<&Arc<Account>> {
        self.created_in(&account.name, account.since)
    }

    /// Returns the user that was created in the version `since`.
    pub fn created_in(&self, name: &[u8], since: u64) -> Option<&Arc<Account>> {
        self.get(name).filter(|present| present.since == since)
    }

    pub fn default_user(&self) -> &User {
        &self.default.user
    }

    /// Returns all users, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.by_name.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_as_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes_of(&text_of(&bytes)).as_deref(), Some(&bytes[..]));
        assert_eq!(bytes_of("ż"), None);
    }
}
