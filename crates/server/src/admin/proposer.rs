//! Proposals to the meta region, as its leader, with the records of the audit log.

use std::time::Instant;

use bytes::Bytes;
use cluster::{AuditedChange, MetaCommand, MetaError, MetaReply};
use node::{Work, REQUEST_BYTES_MAX};
use parking_lot::Mutex;
use resp::Reply;

use super::ask::NotAnswered;
use crate::admin_error::{refuse, AdminError};
use crate::proposals::{unknown_outcome, NotDone};
use crate::store::Store;

/// Proposes commands for one question. The change that led to the question is recorded with the
/// first command, in the same entry.
pub struct Proposer(Mutex<Option<AuditedChange>>);

impl Proposer {
    /// Returns one whose commands are not recorded, because no user asked for them.
    pub fn unrecorded() -> Proposer {
        Proposer(Mutex::new(None))
    }

    /// Returns one that records the change with its first command.
    pub fn of(change: AuditedChange) -> Proposer {
        Proposer(Mutex::new(Some(change)))
    }

    /// Returns the change, if no command was proposed for it.
    pub fn into_unrecorded(self) -> Option<AuditedChange> {
        self.0.into_inner()
    }

    /// Proposes a change of the cluster's state. Returns its result.
    pub async fn propose(&self, store: &Store, command: MetaCommand) -> Result<MetaReply, NotAnswered> {
        let change = self.0.lock().take();
        let command = match change.clone() {
            Some(change) => MetaCommand::Audited { change, order: Box::new(command) },
            None => command,
        };
        let command = command.encode();
        if command.len() > REQUEST_BYTES_MAX {
            // No store could send the entry to another one.
            *self.0.lock() = change;
            let bytes = command.len();
            return Err(
                refuse(413, format!("the change has {bytes} bytes: {REQUEST_BYTES_MAX} at most")).into()
            );
        }
        propose(store, command).await
    }
}

async fn propose(store: &Store, command: Bytes) -> Result<MetaReply, NotAnswered> {
    let deadline = Instant::now() + store.config.request_timeout;
    let answers = match store.proposals.submit(store.regions.meta(), Work::Meta(command), deadline).await {
        Ok(answers) => answers,
        Err(NotDone::NotLeader) => return Err(NotAnswered::NotLeader),
        Err(NotDone::Error(error)) => {
            // With 504 a change may have taken effect.
            let status = if error == unknown_outcome() { 504 } else { 503 };
            let text = match error {
                Reply::Error(text) => text.into_owned(),
                _ => "nothing was changed".to_owned(),
            };
            return Err(refuse(status, text).into());
        }
    };
    match answers.into_iter().flatten().next().map(node::Answer::into_reply) {
        Some(Reply::Bulk(reply)) => {
            MetaReply::decode(&reply).map_err(|error| refuse(502, error.to_string()).into())
        }
        Some(Reply::Error(error)) => Err(refused(&error).into()),
        _ => Err(refuse(502, "an answer of an unexpected kind").into()),
    }
}

/// Returns the error of a command that the cluster's state refused. The state of a new cluster
/// appears a moment after its first leader. The status tells a caller that came earlier to ask
/// again.
fn refused(reply: &str) -> AdminError {
    let text = reply.strip_prefix("ERR ").unwrap_or(reply);
    refuse(if is_early(text) { 503 } else { 409 }, text.to_owned())
}

pub fn is_early(text: &str) -> bool {
    text == MetaError::NotBootstrapped.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_without_state_is_asked_again_and_other_refusals_are_final() {
        let early = format!("ERR {}", MetaError::NotBootstrapped);
        assert_eq!((refused(&early).status, refused("ERR the store is there").status), (503, 409));
        assert_eq!(refused("ERR the store is there").message, "the store is there");
    }
}
