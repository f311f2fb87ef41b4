//! The audit log: describes the changes that users ask for, and records them.
//!
//! A change of the meta region's state is recorded with its command (`ask::audited`). A change that
//! a store makes by itself is recorded afterwards ([`note_change`], `audit_queue`). Each change is
//! also in the log of the store that was asked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::admin::{AuditQuery, AuditRows};
use cluster::{AuditOutcome, AuditedChange, MetaCommand, StoreFacts};
use types::THIRD_VERSION;

use super::ask::{ask, ask_for, Ask, NotAnswered};
use super::operations::{Change, Served};
use super::proposer::Proposer;
use crate::admin_error::AdminError;
use crate::audit_queue::{LocalRecord, PATIENCE};
use crate::store::Store;
use crate::transport::keys;

/// Pause before a record is delivered again.
const AGAIN: Duration = Duration::from_millis(200);

/// The author of a request.
#[derive(Clone, Debug)]
pub struct Author {
    /// The user; `None` if no login is required.
    pub user: Option<String>,
    pub address: SocketAddr,
}

/// Returns true if the cluster keeps an audit log.
pub fn is_kept(store: &Store) -> bool {
    store.membership.agreed_settings().cluster_version >= THIRD_VERSION
}

/// Describes a change.
pub fn describe(store: &Store, author: Author, command: &str, arguments: Vec<String>) -> AuditedChange {
    let Author { user, address } = author;
    let change = AuditedChange {
        at_ms: store.wall.millis(),
        store: store.id,
        // Without random numbers the time has to do.
        number: keys::draw_number().unwrap_or_else(|_| store.wall.millis()),
        user,
        address: address.to_string(),
        command: command.to_owned(),
        arguments,
        left_out: 0,
    };
    change.clipped()
}

/// Describes the joining of a store. Its address is the one that it names.
pub fn change_of_join(store: &Store, facts: &StoreFacts) -> AuditedChange {
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let author = Author { user: None, address: facts.peer.parse().unwrap_or(nowhere) };
    let arguments = vec![format!("client={}", facts.client), format!("peer={}", facts.peer)];
    describe(store, author, "join", arguments)
}

/// Carries out an operation, and records it if it is a change.
pub async fn carry_out<O: Served>(
    store: &Arc<Store>,
    of: O::Of,
    operation: O,
    author: Author,
) -> Result<O::Reply, AdminError> {
    if !operation.is_change() {
        return operation.serve(of, store, None).await;
    }
    let mut arguments = operation.audited();
    if let Ok(number @ serde_json::Value::Number(_)) = serde_json::to_value(&of) {
        arguments.insert(0, number.to_string());
    }
    let change = describe(store, author, O::CHANGE, arguments);
    let done = operation.serve(of, store, Some(&change)).await;
    let (outcome, reason) = match &done {
        Ok(_) => (AuditOutcome::Done, None),
        // A change of several stores may have been made in part.
        Err(error) if O::IS_OWN && error.status >= 500 => {
            (AuditOutcome::Unknown, Some(error.message.clone()))
        }
        Err(error) => (outcome_of(error), Some(error.message.clone())),
    };
    let record = LocalRecord::new(change, outcome, reason);
    match O::IS_OWN {
        true => note_change(store, record).await,
        false => log_change(&record),
    }
    done
}

/// Returns the outcome of a change that failed.
pub fn outcome_of(error: &AdminError) -> AuditOutcome {
    match error.status {
        // The leader did not answer, and may still act.
        504 => AuditOutcome::Unknown,
        _ => AuditOutcome::Refused,
    }
}

/// Writes a change to the log of this store.
pub fn log_change(LocalRecord { change, outcome, reason }: &LocalRecord) {
    let user = change.user.as_deref().map_or("none".to_owned(), |user| format!("{user:?}"));
    let (command, arguments) = (change.command.as_str(), &change.arguments);
    let outcome = outcome.name();
    tracing::info!(user, address = change.address, command, ?arguments, outcome, ?reason, "audit: a change");
}

/// Records a change that this store made by itself. Returns once the cluster has the record, or
/// after a time limit.
pub async fn note_change(store: &Arc<Store>, record: LocalRecord) {
    log_change(&record);
    if !is_kept(store) {
        return;
    }
    let number = record.change.number;
    store.audit.add(record);
    if tokio::time::timeout(PATIENCE, store.audit.await_delivery(number)).await.is_err() {
        let _ = tokio::time::timeout(PATIENCE, keep(store)).await;
    }
}

async fn keep(store: &Arc<Store>) {
    let store = store.clone();
    let _ = tokio::task::spawn_blocking(move || store.audit.keep()).await;
}

/// Delivers the records that wait, until the task is dropped.
pub async fn keep_records(store: Arc<Store>) {
    loop {
        let record = store.audit.next().await;
        let number = record.change.number;
        match ask(&store, Ask::Record { record }).await {
            Ok(_) => {}
            Err(error) if error.status >= 500 => {
                tracing::debug!(error.message, "a change cannot be recorded yet");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            Err(error) => tracing::error!(error.message, "a record of a change was refused and is lost"),
        }
        if store.audit.remove(number) {
            keep(&store).await;
        }
    }
}

/// Records another store's change, as the leader of the meta region.
pub async fn record_as_leader(store: &Store, record: LocalRecord) -> Result<(), NotAnswered> {
    let LocalRecord { change, outcome, reason } = record;
    let command = MetaCommand::RecordChange { change, outcome, reason };
    Proposer::unrecorded().propose(store, command).await.map(drop)
}

/// Records a change that the leader of the meta region refused without a proposal.
pub async fn record_refusal(store: &Store, proposer: Proposer, error: &AdminError) {
    let Some(change) = proposer.into_unrecorded() else { return };
    // A store that may not join asks again and again. Without a leader nothing can be recorded.
    if change.command == "join" || error.status >= 500 {
        return;
    }
    let record = LocalRecord::new(change, AuditOutcome::Refused, Some(error.message.clone()));
    if record_as_leader(store, record).await.is_err() {
        tracing::debug!("a refused change could not be recorded");
    }
}

impl Served for AuditQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<AuditRows, AdminError> {
        ask_for(store, Ask::Audit { last: self.last }).await
    }
}
