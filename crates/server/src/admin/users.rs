//! Changes of the users, as the leader of the meta region.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::{AuditedChange, MetaCommand, MetaError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ask::{self, Ask, NotAnswered};
use super::proposer::Proposer;
use crate::admin_error::AdminError;
use crate::members::AgreedMembers;
use crate::store::Store;

/// The result of a change, with the present list of stores, which includes the users.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsersAnswer {
    Changed(Box<AgreedMembers>),
    /// The list had another version than the change was computed for.
    Conflict(Box<AgreedMembers>),
}

/// Asks the cluster to change users, if the list of stores has the version `expected`.
pub async fn set_users(
    store: &Store,
    change: Option<AuditedChange>,
    expected: u64,
    changes: BTreeMap<String, Option<String>>,
    replace: bool,
) -> Result<UsersAnswer, AdminError> {
    let question = Ask::SetUsers { expected, changes, replace };
    let question = ask::audited(store, change, question);
    ask::read(ask::ask_leader(store, store.regions.meta(), question, Duration::from_millis(500)).await?)
}

pub async fn answer(
    store: &Store,
    proposer: &Proposer,
    expected: u64,
    changes: BTreeMap<String, Option<String>>,
    replace: bool,
) -> Result<Value, NotAnswered> {
    ask::need_third_version(store, "users")?;
    let proposed = proposer.propose(store, MetaCommand::SetUsers { expected, changes, replace }).await;
    // The command is applied here, so the list has its effect.
    let list = || Box::new(store.cluster.members_after(0).unwrap_or_default());
    let answer = match proposed {
        Ok(_) => UsersAnswer::Changed(list()),
        Err(NotAnswered::Error(error)) if error.message == MetaError::UsersChanged.to_string() => {
            UsersAnswer::Conflict(list())
        }
        Err(error) => return Err(error),
    };
    Ok(serde_json::to_value(answer).expect("plain data"))
}
