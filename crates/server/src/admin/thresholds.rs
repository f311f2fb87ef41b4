//! Changes of the thresholds of collections, as the leader of the meta region.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::AuditedChange;
use serde_json::Value;
use types::StoreId;

use super::ask::{self, not_set, Ask, NotAnswered};
use super::proposer::Proposer;
use crate::admin_error::AdminError;
use crate::members::AgreedMembers;
use crate::store::Store;

/// Time for which another store may wait for a version of the list of stores.
const HAS_PATIENCE: Duration = Duration::from_secs(1);

/// Asks the cluster to change thresholds. Returns the list of stores, which brings them to every
/// store.
pub async fn set_thresholds(
    store: &Store,
    change: Option<AuditedChange>,
    values: BTreeMap<String, String>,
) -> Result<AgreedMembers, AdminError> {
    let question = ask::audited(store, change, Ask::SetThresholds { values });
    ask::ask_for(store, question).await
}

pub async fn answer(
    store: &Store,
    proposer: &Proposer,
    values: &BTreeMap<String, String>,
) -> Result<Value, NotAnswered> {
    let command = store.cluster.set_thresholds(values).map_err(not_set)?;
    proposer.propose(store, command).await?;
    // The command is applied here, so it is in the list.
    let list = store.cluster.members_after(0).unwrap_or_default();
    Ok(serde_json::to_value(list).expect("plain data"))
}

/// Waits until another store has a version of the list of stores, for a limited time.
pub async fn has_members(store: &Store, to: StoreId, version: u64) {
    let _ = ask::ask_store(store, to, Ask::HasMembers { version }).await;
}

/// Answers once this store has a version of the list of stores, or when the time is up.
pub async fn answer_has(store: &Store, version: u64) -> Value {
    Value::from(store.membership.has(version, HAS_PATIENCE).await)
}
