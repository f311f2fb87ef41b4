//! Descriptions of clients' changes for the audit log, without secrets.
//!
//! An argument is shown only if it is known to be none: a word that no rule and no setting has may
//! be a mistyped password.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use cluster::admin::HIDDEN;
use cluster::{AuditOutcome, AuditedChange};
use resp::Reply;

use super::thresholds;
use crate::admin::{self, Author};
use crate::admin_error::AdminError;
use crate::audit_queue::LocalRecord;
use crate::connections::ClientEntry;
use crate::secrets::{self, shown};
use crate::store::Store;

/// Describes a change that a client asks for.
pub fn change(store: &Store, entry: &ClientEntry, command: &str, arguments: Vec<String>) -> AuditedChange {
    let account = store.access.account_of(entry);
    // The default user without a password is nobody in particular.
    let is_anyone = entry.account().is_none() && account.user.is_open();
    let author = Author { user: (!is_anyone).then(|| shown(&account.name)), address: entry.peer };
    admin::describe(store, author, command, arguments)
}

/// Returns the arguments of `CONFIG SET`, which follow its two words.
pub fn of_config_set(store: &Store, args: &[Bytes]) -> Vec<String> {
    let mut known: Vec<&'static str> = store.settings.read().all().iter().map(|(name, _)| *name).collect();
    known.extend(store.engine.rows().options().settings().iter().map(|(name, _)| *name));
    known.extend(thresholds::names());
    config_pairs(&known, args)
}

fn config_pairs(known: &[&'static str], args: &[Bytes]) -> Vec<String> {
    let mut words = Vec::new();
    for pair in args.chunks(2) {
        let [name, value] = pair else { continue };
        let known = known.iter().find(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        let is_secret = secrets::is_secret_setting(name);
        words.push(match known {
            Some(known) => (*known).to_owned(),
            None if is_secret => shown(&name.to_ascii_lowercase()),
            None => HIDDEN.to_owned(),
        });
        words.push(match known {
            Some(_) if !is_secret => shown(value),
            _ => HIDDEN.to_owned(),
        });
    }
    words
}

/// Returns the arguments of `ACL SETUSER`: the user and the modifiers.
pub fn of_set_user(args: &[Bytes]) -> Vec<String> {
    let [name, modifiers @ ..] = args else { return Vec::new() };
    let mut words = vec![shown(name)];
    match acl::merge_selectors(modifiers) {
        Ok(modifiers) => words.extend(modifiers.iter().map(|modifier| match acl::is_public(modifier) {
            true => shown(modifier),
            false => hidden_modifier(modifier),
        })),
        Err(_) => words.push(HIDDEN.to_owned()),
    }
    words
}

/// Returns a modifier of a password without the password.
fn hidden_modifier(modifier: &[u8]) -> String {
    match modifier.first() {
        Some(&kind @ (b'>' | b'<' | b'#' | b'!')) => format!("{}{HIDDEN}", char::from(kind)),
        _ => HIDDEN.to_owned(),
    }
}

/// Returns the record of a change that this store made and answered.
pub fn record(change: AuditedChange, reply: &Reply, outcome: AuditOutcome) -> LocalRecord {
    let reason = match reply {
        Reply::Error(error) => Some(error.clone().into_owned()),
        _ => None,
    };
    LocalRecord::new(change, outcome, reason)
}

/// Executes a change of users, libraries or thresholds of collections. If this store refuses it,
/// nothing is proposed, and the refusal is recorded here.
pub async fn recorded(
    store: &Arc<Store>,
    audit: &AuditedChange,
    change: impl Future<Output = Result<Reply, NotChanged>>,
) -> Reply {
    let (reply, outcome) = match change.await {
        Ok(reply) => (reply, AuditOutcome::Done),
        Err(NotChanged::Here(error)) => {
            admin::note_change(store, record(audit.clone(), &error, AuditOutcome::Refused)).await;
            return error;
        }
        Err(NotChanged::ByCluster(error, outcome)) => (error, outcome),
    };
    admin::log_change(&record(audit.clone(), &reply, outcome));
    reply
}

/// The reason why nothing was changed, or why that is not known.
pub enum NotChanged {
    /// This store refused the change.
    Here(Reply),
    /// The cluster has recorded the outcome, or did not answer.
    ByCluster(Reply, AuditOutcome),
}

impl From<Reply> for NotChanged {
    fn from(error: Reply) -> NotChanged {
        NotChanged::Here(error)
    }
}

impl NotChanged {
    /// Returns the answer to a change that the cluster refused or did not answer.
    pub fn by_cluster(error: AdminError) -> NotChanged {
        let outcome = admin::outcome_of(&error);
        NotChanged::ByCluster(Reply::error(format!("ERR {}", error.message)), outcome)
    }

    pub fn into_reply(self) -> Reply {
        self.into_parts().0
    }

    /// Returns the error and the outcome.
    pub fn into_parts(self) -> (Reply, AuditOutcome) {
        match self {
            NotChanged::Here(error) => (error, AuditOutcome::Refused),
            NotChanged::ByCluster(error, outcome) => (error, outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<Bytes> {
        words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    #[test]
    fn secrets_and_what_may_be_some_are_left_out() {
        let hex = "ab".repeat(32);
        let digest = format!("#{hex}");
        let args = [
            "ann",
            "on",
            ">hunter2",
            "<hunter2",
            &digest,
            "!hunter2",
            "~key*",
            "&news:*",
            "%R~a",
            "+@read",
            "-config|set",
            "hunter2",
            "on\0hunter2",
            "(+get",
            "~x",
            "&a)",
            "(>hunter2)",
            "(\"hunter2)",
            "resetpass",
            "",
        ];
        assert_eq!(
            of_set_user(&words(&args)),
            [
                "ann",
                "on",
                ">(hidden)",
                "<(hidden)",
                "#(hidden)",
                "!(hidden)",
                "~key*",
                "&news:*",
                "%R~a",
                "+@read",
                "-config|set",
                HIDDEN,
                HIDDEN,
                "(+get ~x &a)",
                HIDDEN,
                HIDDEN,
                "resetpass",
                "",
            ]
        );
        assert_eq!(of_set_user(&words(&["ann", "on", "(hunter2"])), ["ann", HIDDEN]);
        let known = ["maxclients", "requirepass", "aclfile"];
        let args = [
            "MaxClients",
            "5",
            "requirepass",
            "hunter2",
            "requirepas",
            "hunter2",
            "hunter2",
            "requirepass",
            "tls-key-file-pass",
            "hunter2",
            "aclfile",
            "a\nb",
        ];
        assert_eq!(
            config_pairs(&known, &words(&args)),
            [
                "maxclients",
                "5",
                "requirepass",
                HIDDEN,
                HIDDEN,
                HIDDEN,
                HIDDEN,
                HIDDEN,
                "tls-key-file-pass",
                HIDDEN,
                "aclfile",
                "a\nb",
            ]
        );
    }

    #[test]
    fn the_reason_of_a_failure_is_left_out_if_it_could_repeat_a_secret() {
        let with = |arguments: &[&str]| AuditedChange {
            arguments: arguments.iter().map(|&text| text.to_owned()).collect(),
            ..AuditedChange::default()
        };
        let error = Reply::error("ERR hunter2 is no value");
        let refused = AuditOutcome::Refused;
        assert_eq!(record(with(&["a", "#(hidden)"]), &error, refused).reason, None);
        assert!(record(with(&["a"]), &error, refused).reason.is_some());
        assert_eq!(record(with(&["a"]), &Reply::OK, AuditOutcome::Done).reason, None);
    }
}
