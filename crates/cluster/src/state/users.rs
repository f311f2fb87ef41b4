//! The users of clients. They are sent and stored with the list of stores, and share its version.
//!
//! This crate knows users only by their names and as the text of their rules. A character stands
//! for a byte, because names and patterns need not be UTF-8.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::THIRD_VERSION;

use super::{MetaState, Object};
use crate::MetaError;

/// Maximum number of users.
const USERS_MAX: usize = 4096;
/// Maximum number of characters of all names and rules.
const CHARACTERS_MAX: usize = 4 << 20;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserRecord {
    /// The rules that describe the user. They hold digests of passwords.
    pub rules: String,
    /// The version of the list in which the user was created. A user who was deleted and created
    /// again has another one.
    pub since: u64,
}

impl MetaState {
    /// Changes users. See [`MetaCommand::SetUsers`](crate::MetaCommand::SetUsers).
    pub(super) fn set_users(
        &mut self,
        expected: u64,
        changes: &BTreeMap<String, Option<String>>,
        replace: bool,
        changed: &mut Vec<Object>,
    ) -> Result<(), MetaError> {
        if self.version < THIRD_VERSION {
            return Err(MetaError::BadUsers(
                "users need version 3 of the cluster: see steelyard ctl versions",
            ));
        }
        if expected != self.members_version {
            return Err(MetaError::UsersChanged);
        }
        let since = self.members_version + 1;
        let mut users = if replace { BTreeMap::new() } else { self.users.clone() };
        for (name, rules) in changes {
            let Some(rules) = rules else {
                users.remove(name);
                continue;
            };
            let since = users.get(name).map_or(since, |known: &UserRecord| known.since);
            users.insert(name.clone(), UserRecord { rules: rules.clone(), since });
        }
        if users.len() > USERS_MAX {
            return Err(MetaError::BadUsers("there are too many users: 4096 is the maximum"));
        }
        let characters: usize = users.iter().map(|(name, user)| name.len() + user.rules.len()).sum();
        if characters > CHARACTERS_MAX {
            return Err(MetaError::BadUsers("the users' names and rules are too long: 4 MiB is the maximum"));
        }
        let names = self.users.keys().chain(users.keys());
        let differing: Vec<String> =
            names.filter(|name| self.users.get(*name) != users.get(*name)).cloned().collect();
        if !differing.is_empty() {
            self.users = users;
            self.members_version = since;
            changed.extend(differing.into_iter().map(Object::User));
            self.drop_tokens_without_user(changed);
            changed.push(Object::Counters);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::begun;
    use crate::{MetaCommand, MetaReply};

    fn set(expected: u64, changes: &[(&str, Option<&str>)], replace: bool) -> MetaCommand {
        let changes =
            changes.iter().map(|(name, rules)| ((*name).to_owned(), rules.map(str::to_owned))).collect();
        let command = MetaCommand::SetUsers { expected, changes, replace };
        assert_eq!(MetaCommand::decode(&command.encode()).as_ref(), Ok(&command));
        command
    }

    #[test]
    fn users_change_with_the_list_of_stores_and_only_if_nothing_else_has() {
        let mut state = begun(3, 1);
        let old = state.apply(&set(1, &[("a", Some("on"))], false), 1);
        assert!(matches!(old, Err(MetaError::BadUsers(_))), "the version is too old: {old:?}");
        state.version = THIRD_VERSION;
        let since = |state: &MetaState, name: &str| state.users.get(name).map(|user| user.since);
        assert_eq!(
            state.apply(&set(1, &[("a", Some("on")), ("b", Some("off"))], false), 1),
            Ok(MetaReply::Changed)
        );
        assert_eq!((state.members_version, since(&state, "a")), (2, Some(2)));
        assert_eq!(state.apply(&set(1, &[("a", None)], false), 1), Err(MetaError::UsersChanged));
        assert_eq!(state.apply(&set(2, &[("a", Some("on"))], false), 1), Ok(MetaReply::Unchanged));
        assert_eq!(state.apply(&set(2, &[("a", Some("off"))], false), 1), Ok(MetaReply::Changed));
        assert_eq!(
            (state.members_version, since(&state, "a")),
            (3, Some(2)),
            "a changed user is the same one"
        );
        assert_eq!(state.apply(&set(3, &[("a", None)], false), 1), Ok(MetaReply::Changed));
        assert_eq!(state.apply(&set(4, &[("a", Some("on"))], false), 1), Ok(MetaReply::Changed));
        assert_eq!(since(&state, "a"), Some(5), "a user who was deleted is another one");
        assert_eq!(state.apply(&set(5, &[("b", Some("off"))], true), 1), Ok(MetaReply::Changed));
        assert_eq!((since(&state, "a"), since(&state, "b")), (None, Some(6)));
    }

    #[test]
    fn there_is_a_maximum_of_users_and_of_their_rules() {
        let mut state = begun(3, 1);
        state.version = THIRD_VERSION;
        let names: Vec<String> = (0..=USERS_MAX).map(|number| number.to_string()).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), Some(""))).collect();
        assert!(matches!(state.apply(&set(1, &many, false), 1), Err(MetaError::BadUsers(_))));
        let long = "x".repeat(CHARACTERS_MAX);
        assert!(matches!(state.apply(&set(1, &[("a", Some(&long))], false), 1), Err(MetaError::BadUsers(_))));
        assert!(state.users.is_empty() && state.members_version == 1);
        assert_eq!(state.apply(&set(1, &many[1..], false), 1), Ok(MetaReply::Changed));
    }
}
