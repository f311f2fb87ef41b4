//! This store's part in an operator's order to recover regions. Any store may carry out the order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::quorum_loss::{RecoveryStep, Survey};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use types::THIRD_VERSION;

use crate::loops::{Surveyed, ToWorker};
use crate::store::Store;
use crate::transport::kinds::{STATUS_DONE, STATUS_ERROR};

/// Time for the worker's answer, which takes one turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request to every store that may have survived.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AskSurvivor {
    /// Answered by a [`Survey`].
    Survey,
    /// Answered by the refused steps, with the reasons.
    Steps { steps: Vec<RecoveryStep> },
}

/// The reasons for which steps were refused, each with its region.
pub type RefusedSteps = Vec<(u64, String)>;

/// Answers a request of another store, or of this one. Returns a status and the body.
pub async fn answer(store: Arc<Store>, body: Bytes) -> (u8, Bytes) {
    let answered = match serde_json::from_slice(&body) {
        Ok(AskSurvivor::Survey) => survey(&store).await.and_then(|survey| encode(&survey)),
        Ok(AskSurvivor::Steps { steps }) => take(&store, steps).await.and_then(|refused| encode(&refused)),
        Err(error) => Err(error.to_string()),
    };
    match answered {
        Ok(body) => (STATUS_DONE, body),
        Err(error) => (STATUS_ERROR, error.into()),
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Bytes, String> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| error.to_string())
}

pub async fn survey(store: &Store) -> Result<Survey, String> {
    let (reply, reports) = oneshot::channel();
    let _ = store.worker.send(ToWorker::Survey { reply });
    let Surveyed { peers, mut removed } = patiently(reports).await?;
    let members = store.membership.members();
    if members.agreed.settings.cluster_version < THIRD_VERSION {
        removed.clear();
    }
    let ids = || members.list.iter().map(|member| member.id);
    Ok(Survey {
        store: store.id,
        hears: ids().filter(|&id| id != store.id && store.cluster.is_heard(id)).collect(),
        members_version: members.agreed.version,
        members: ids().collect(),
        peers,
        removed,
    })
}

pub async fn take(store: &Store, steps: Vec<RecoveryStep>) -> Result<RefusedSteps, String> {
    for step in &steps {
        match step {
            RecoveryStep::Promise { region, term, keeper } => {
                tracing::warn!(
                    region,
                    term,
                    keeper,
                    "an order to recover the region: its peer here promises its vote"
                );
            }
            RecoveryStep::Recover { region, term, recovery } => {
                tracing::warn!(region, term, ?recovery, "the region is recovered from its peer here");
            }
        }
    }
    let (reply, outcomes) = oneshot::channel();
    let _ = store.worker.send(ToWorker::Recovery { steps, reply });
    patiently(outcomes).await
}

async fn patiently<T>(answer: oneshot::Receiver<T>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err("the store is stopping".into()),
        Err(_) => Err("the store's groups do not answer".into()),
    }
}
