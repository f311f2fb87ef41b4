//! How a store comes to know the others, and makes itself known: the list of stores on its way between them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{StoreFacts, StoreState};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use types::StoreId;

use crate::admin_backend;
use crate::config::{Config, Member};
use crate::datadir::{DataDir, Joined};
use crate::dispatch::{REQUEST_JOIN, REQUEST_MEMBERS, STATUS_DONE, STATUS_ERROR};
use crate::members::{facts_of, AgreedMembers};
use crate::startup::StartError;
use crate::store::Store;
use crate::transport::frame::{Hello, Refusal, RefusalReason};
use crate::transport::{ask_once, NOBODY};

const ASK_TIMEOUT: Duration = Duration::from_secs(10);
const JOIN_AGAIN: Duration = Duration::from_millis(500);
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// What a store says of itself is said again after this long, if it did not get through.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);

/// What a store that joins is told.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    store: StoreId,
    cluster_id: u64,
    layout: String,
    cluster_enabled: bool,
    members: AgreedMembers,
}

/// Asks, until somebody answers, to be taken in, and keeps what comes of it. Asked again after a crash, the
/// cluster gives the same number for the same token.
pub async fn join(
    config: &Config,
    dir: &mut DataDir,
    stores: &[std::net::SocketAddr],
) -> Result<(), StartError> {
    let facts = facts_of(config.this(), dir.identity().token);
    let body = Bytes::from(serde_json::to_vec(&facts).expect("plain data"));
    let welcome: Welcome = 'asking: loop {
        for &address in stores {
            let asked =
                tokio::time::timeout(ASK_TIMEOUT, ask_once(address, REQUEST_JOIN, body.clone())).await;
            match asked.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok((STATUS_DONE, answer)) => match serde_json::from_slice(&answer) {
                    Ok(welcome) => break 'asking welcome,
                    Err(error) => {
                        return Err(StartError::Join(format!("{address} answers strangely: {error}")))
                    }
                },
                Ok((_, answer)) => {
                    let error = admin_backend::read_error(&answer);
                    if error.status < 500 {
                        return Err(StartError::Join(error.message));
                    }
                    tracing::warn!(%address, error.message, "not taken in yet; asking again");
                }
                Err(error) => tracing::warn!(%address, %error, "cannot ask to be taken in; asking again"),
            }
        }
        tokio::time::sleep(JOIN_AGAIN).await;
    };
    tracing::info!(store = welcome.store, "taken in by the cluster");
    dir.keep_members(&welcome.members)?;
    let joined = Joined { cluster_enabled: welcome.cluster_enabled };
    dir.joined(welcome.store, welcome.cluster_id, welcome.layout, joined)?;
    Ok(())
}

/// Answers a store that asks to be taken in.
pub async fn answer_join(store: Arc<Store>, body: Bytes) -> (u8, Bytes) {
    match welcome(&store, &body).await {
        Ok(welcome) => (STATUS_DONE, serde_json::to_vec(&welcome).expect("plain data").into()),
        Err(error) => (STATUS_ERROR, admin_backend::encode_error(error)),
    }
}

async fn welcome(store: &Arc<Store>, body: &Bytes) -> Result<Welcome, crate::admin::AdminError> {
    let facts: StoreFacts =
        serde_json::from_slice(body).map_err(|error| admin_backend::refuse(400, error.to_string()))?;
    let (joined, cluster_id, members) = admin_backend::join(store, facts).await?;
    Ok(Welcome {
        store: joined,
        cluster_id,
        layout: store.layout.clone(),
        cluster_enabled: store.config.cluster_enabled,
        members,
    })
}

/// Whether another store is believed to be who it says it is.
pub fn admit(store: &Store, hello: &Hello) -> Result<(), Refusal> {
    let refuse = |reason, text: String| Err(Refusal { reason, text });
    let own = store.identity.cluster_id();
    let from = hello.from;
    if own != 0 && hello.cluster_id != 0 && hello.cluster_id != own {
        return refuse(RefusalReason::Wrong, format!("store {from} belongs to another cluster"));
    }
    let members = store.members();
    match members.record(from) {
        Some(record) if record.state == StoreState::Removed => {
            refuse(RefusalReason::Removed, format!("store {from} was removed from the cluster"))
        }
        Some(record) if record.facts.token != 0 && record.facts.token != hello.token => refuse(
            RefusalReason::OtherToken,
            format!(
                "the cluster knows store {from} with another data directory than the one it comes with now: \
                 what that one held, and promised, is not in this one. Remove store {from} from the cluster \
                 and let a store with an empty directory join"
            ),
        ),
        Some(_) => Ok(()),
        None if members.member(from).is_some() => Ok(()),
        // Its joining may have been agreed on before this store heard of it.
        None if own != 0 && hello.cluster_id == own => Ok(()),
        None => refuse(RefusalReason::Wrong, format!("store {from} is not known here")),
    }
}

pub fn is_removed(store: &Store, id: StoreId) -> bool {
    store.members().record(id).is_some_and(|record| record.state == StoreState::Removed)
}

/// Acts on what other stores say when they refuse this one, until the task is dropped.
pub async fn heed_refusals(store: Arc<Store>, mut refused: UnboundedReceiver<(StoreId, Refusal)>) {
    let mut last = None;
    let mut has_begun_to_end = false;
    while let Some((by, refusal)) = refused.recv().await {
        match refusal.reason {
            RefusalReason::OtherToken => store.fatal(&refusal.text),
            RefusalReason::Removed if has_begun_to_end => {}
            RefusalReason::Removed => {
                store.end(&refusal.text);
                has_begun_to_end = true;
            }
            RefusalReason::Wrong if last.as_ref() != Some(&(by, refusal.clone())) => {
                tracing::warn!(by, refusal.text, "another store refuses this one");
            }
            RefusalReason::Wrong => {}
        }
        last = Some((by, refusal));
    }
}

/// The heartbeat's part in it: what was agreed is taken in, and what this store says of itself is agreed on.
#[derive(Default)]
pub struct MembershipKeeper {
    announcing: JoinSet<()>,
    announced: Option<tokio::time::Instant>,
}

impl MembershipKeeper {
    pub fn look(&mut self, store: &Arc<Store>) {
        if let Some(agreed) = store.cluster.members_after(store.members().agreed.version) {
            store.take_members(agreed);
        }
        if let Some(cluster_id) = store.cluster.cluster_id() {
            store.take_cluster_id(cluster_id);
        }
        while self.announcing.try_join_next().is_some() {}
        let lately = self.announced.is_some_and(|at| at.elapsed() < ANNOUNCE_AGAIN);
        if lately || !self.announcing.is_empty() {
            return;
        }
        let members = store.members();
        let facts = facts_of(store.config.this(), store.identity.token);
        if members.record(store.id).is_some_and(|record| record.facts != facts) {
            self.announced = Some(tokio::time::Instant::now());
            self.announcing.spawn(announce(store.clone(), facts));
        }
    }
}

async fn announce(store: Arc<Store>, facts: StoreFacts) {
    match admin_backend::set_facts(&store, facts).await {
        Ok(()) => tracing::info!("the cluster knows where this store is"),
        // The cluster knows this number with another disk, or not any more.
        Err(error) if error.status == 409 => store.fatal(&error.message),
        Err(error) => tracing::debug!(error.message, "the cluster did not hear where this store is"),
    }
}

/// Asks a store that has said that it has a newer list.
pub fn fetch(store: &Arc<Store>, from: StoreId) {
    if !store.begin_fetch() {
        return;
    }
    let store = store.clone();
    tokio::spawn(async move {
        let asked = store.transport().call(from, REQUEST_MEMBERS, Bytes::new(), FETCH_TIMEOUT).await;
        if let Ok((STATUS_DONE, body)) = asked {
            match serde_json::from_slice::<AgreedMembers>(&body) {
                Ok(agreed) => store.take_members(agreed),
                Err(error) => tracing::warn!(from, %error, "a list of stores cannot be read"),
            }
        }
        store.end_fetch();
    });
}

pub fn answer_members(store: &Store) -> (u8, Bytes) {
    (STATUS_DONE, serde_json::to_vec(&store.members().agreed).expect("plain data").into())
}

/// The store as it is in its own configuration, under the number that its directory has.
pub fn rename(config: &mut Config, store: StoreId) {
    debug_assert!(store != NOBODY);
    let this: Member = Member { id: store, ..config.this().clone() };
    config.store = store;
    config.members = vec![this];
}

#[cfg(test)]
mod tests {
    use cluster::StoreRecord;

    use super::*;
    use crate::fixture::Fixture;
    use crate::transport::frame::Lane;

    fn hello(from: StoreId, cluster_id: u64, token: u64) -> Hello {
        Hello { from, to: 0, lane: Lane::Control, layout_digest: 0, cluster_id, token }
    }

    fn reason(store: &Store, hello: Hello) -> Option<RefusalReason> {
        admit(store, &hello).err().map(|refusal| refusal.reason)
    }

    #[tokio::test]
    async fn a_store_is_believed_with_its_cluster_and_its_token() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        fixture.start_links(&tokio::runtime::Handle::current());
        assert_eq!(reason(store, hello(1, 0, 5)), Some(RefusalReason::Wrong), "nobody knows it");
        assert_eq!(reason(store, hello(1, 77, 5)), Some(RefusalReason::Wrong), "nor its cluster");
        store.take_cluster_id(77);
        assert_eq!(reason(store, hello(1, 77, 5)), None, "it joined, and this store has not heard of it");
        assert_eq!(reason(store, hello(1, 78, 5)), Some(RefusalReason::Wrong), "another cluster's");

        let record = |id, token, state| {
            let member = Member { id, ..store.config.this().clone() };
            StoreRecord { state, ..StoreRecord::new(id, facts_of(&member, token)) }
        };
        let stores = vec![
            record(0, store.identity.token, StoreState::Up),
            record(1, 5, StoreState::Draining),
            record(2, 6, StoreState::Removed),
            record(3, 0, StoreState::Up),
        ];
        store.take_members(AgreedMembers { version: 4, stores, ..Default::default() });
        assert_eq!(reason(store, hello(1, 77, 5)), None);
        assert_eq!(reason(store, hello(1, 0, 5)), None, "it may not have heard the cluster's name");
        assert_eq!(reason(store, hello(1, 77, 6)), Some(RefusalReason::OtherToken));
        assert_eq!(reason(store, hello(2, 77, 6)), Some(RefusalReason::Removed));
        assert_eq!(reason(store, hello(3, 77, 9)), None, "it has not told its token yet");
        assert!(is_removed(store, 2) && !is_removed(store, 1) && !is_removed(store, 9));
    }

    #[tokio::test]
    async fn lists_of_stores_only_go_forward_and_are_kept() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        let list = |version| AgreedMembers { version, ..Default::default() };
        store.take_members(list(3));
        store.take_members(list(2));
        assert_eq!(store.members().agreed.version, 3);
        let (status, body) = answer_members(store);
        assert_eq!(status, STATUS_DONE);
        assert_eq!(serde_json::from_slice::<AgreedMembers>(&body).unwrap(), list(3));
        let path = store.config.dir.join("MEMBERS");
        let kept = loop {
            match std::fs::read(&path) {
                Ok(kept) => break kept,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert_eq!(serde_json::from_slice::<AgreedMembers>(&kept).unwrap(), list(3));
        assert!(store.begin_fetch() && !store.begin_fetch());
        store.end_fetch();
        assert!(store.begin_fetch());
    }
}
