//! The rise of the cluster's version: the leader of the meta region asks the stores, and they
//! answer (`cluster::upgrade`). The heartbeat's task drives this.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{MetaCommand, StoreVersions, UpgradeStep};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;
use types::{StoreId, Version, NEWEST_VERSION, OLDEST_VERSION};

use crate::proposals::propose_all;
use crate::store::Store;
use crate::transport::kinds::{REQUEST_VERSIONS, STATUS_DONE, STATUS_ERROR};

/// Interval at which the stores are asked while the cluster's version can rise.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// A question for a store's versions. The store first prepares for `prepare`, if its program
/// supports that version.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    prepare: Option<Version>,
}

/// Raises the version while this store leads the meta region, and ends the store if its program
/// does not support the cluster's version.
#[derive(Default)]
pub struct UpgradeKeeper {
    asking: JoinSet<()>,
    asked: Option<Instant>,
}

impl UpgradeKeeper {
    pub fn look(&mut self, store: &Arc<Store>, plans: bool) {
        let cluster_version = store.membership.agreed_settings().cluster_version;
        if cluster_version > NEWEST_VERSION {
            store.ends.fatal(&format!(
                "the cluster has version {cluster_version}, and this program supports {NEWEST_VERSION} at most: \
                 install a newer program"
            ));
        }
        while self.asking.try_join_next().is_some() {}
        if !plans {
            store.cluster.forget_versions();
            return;
        }
        let lately = self.asked.is_some_and(|at| at.elapsed() < ASK_AGAIN);
        if !self.asking.is_empty() {
            return;
        }
        match store.cluster.upgrade_step() {
            UpgradeStep::Raise { version, members_version } => {
                let command = MetaCommand::RaiseVersion { version, members_version };
                let patience = store.config.request_timeout;
                self.asking.spawn(propose_all(store.proposals.clone(), patience, vec![command]));
            }
            UpgradeStep::Ask { prepare } if !lately => {
                self.asked = Some(Instant::now());
                let store = store.clone();
                self.asking.spawn(async move { ask_all(&store, prepare).await });
            }
            UpgradeStep::Ask { .. } | UpgradeStep::Done => {}
        }
    }
}

/// Asks all members for their versions, and notes their answers.
pub async fn ask_all(store: &Store, prepare: Option<Version>) {
    let asked = store.cluster.members().into_iter().map(|of| async move {
        if let Some(versions) = ask(store, of, prepare).await {
            store.cluster.hear_versions(of, versions);
        }
    });
    join_all(asked).await;
}

async fn ask(store: &Store, of: StoreId, prepare: Option<Version>) -> Option<StoreVersions> {
    if of == store.id {
        return Some(own_versions(store, prepare).await);
    }
    let body = serde_json::to_vec(&Question { prepare }).expect("plain data").into();
    match store.transport.call(of, REQUEST_VERSIONS, body, ASK_TIMEOUT).await.ok()? {
        (STATUS_DONE, answer) => match serde_json::from_slice(&answer) {
            Ok(versions) => Some(versions),
            Err(error) => {
                tracing::warn!(of, %error, "a store's versions cannot be read");
                None
            }
        },
        // The program is older than the query.
        (STATUS_ERROR, _) => Some(StoreVersions::BEFORE_QUESTIONS),
        _ => None,
    }
}

/// Answers the leader of the meta region.
pub async fn answer(store: Arc<Store>, body: Bytes) -> (u8, Bytes) {
    // A newer program may ask for more than this program supports.
    let prepare = serde_json::from_slice::<Question>(&body).ok().and_then(|question| question.prepare);
    let versions = own_versions(&store, prepare).await;
    (STATUS_DONE, serde_json::to_vec(&versions).expect("plain data").into())
}

/// Prepares this store's directory and returns its versions.
async fn own_versions(store: &Store, prepare: Option<Version>) -> StoreVersions {
    let prepare = prepare.filter(|version| (OLDEST_VERSION..=NEWEST_VERSION).contains(version));
    let membership = store.membership.clone();
    let preparing = move || membership.prepare(prepare.unwrap_or(OLDEST_VERSION));
    let prepared = tokio::task::spawn_blocking(preparing).await.unwrap_or(OLDEST_VERSION);
    StoreVersions { newest: NEWEST_VERSION, prepared }
}
