//! Changes of the libraries of functions, as the leader of the meta region.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::{AuditedChange, LibraryRecord, MetaCommand, MetaError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::StoreId;

use super::ask::{self, Ask, NotAnswered};
use super::proposer::Proposer;
use crate::admin_error::AdminError;
use crate::functions::AgreedLibraries;
use crate::store::Store;

/// Time for which another store may wait for a version of the libraries.
const HAS_PATIENCE: Duration = Duration::from_secs(1);

/// The result of a change, with the present version of the libraries.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LibrariesAnswer {
    Changed(u64),
    /// The libraries had another version than the change was computed for.
    Conflict(u64),
}

/// Asks the cluster to change libraries, if they have the version `expected`.
pub async fn set_libraries(
    store: &Store,
    change: Option<AuditedChange>,
    expected: u64,
    changes: BTreeMap<String, Option<LibraryRecord>>,
    replace: bool,
) -> Result<LibrariesAnswer, AdminError> {
    let question = Ask::SetLibraries { expected, changes, replace };
    let question = ask::audited(store, change, question);
    ask::read(ask::ask_leader(store, store.regions.meta(), question, Duration::from_millis(500)).await?)
}

pub async fn answer(
    store: &Store,
    proposer: &Proposer,
    expected: u64,
    changes: BTreeMap<String, Option<LibraryRecord>>,
    replace: bool,
) -> Result<Value, NotAnswered> {
    ask::need_third_version(store, "libraries")?;
    let proposed = proposer.propose(store, MetaCommand::SetLibraries { expected, changes, replace }).await;
    // The command is applied here, so the version has its effect.
    let version = store.cluster.libraries_version();
    let answer = match proposed {
        Ok(_) => LibrariesAnswer::Changed(version),
        Err(NotAnswered::Error(error)) if error.message == MetaError::LibrariesChanged.to_string() => {
            LibrariesAnswer::Conflict(version)
        }
        Err(error) => return Err(error),
    };
    Ok(serde_json::to_value(answer).expect("plain data"))
}

/// Asks the cluster for libraries. `known` has those that this store knows, each with its version.
pub async fn libraries(store: &Store, known: BTreeMap<String, u64>) -> Result<AgreedLibraries, AdminError> {
    ask::ask_for(store, Ask::Libraries { known }).await
}

/// Waits until another store has a version of the libraries, for a limited time.
pub async fn has_libraries(store: &Store, to: StoreId, version: u64) {
    let _ = ask::ask_store(store, to, Ask::HasLibraries { version }).await;
}

/// Answers once this store has a version of the libraries, or when the time is up.
pub async fn answer_has(store: &Store, version: u64) -> Value {
    Value::from(store.functions.has(version, HAS_PATIENCE).await)
}
