//! Joining: a store asks a member, and the meta region's leader then proposes the join.
//!
//! Any process that reaches a peer port may ask. So the answer contains nothing that helps to
//! impersonate another store, and the effects of asking are limited (`admission`). If a password is
//! set, only stores that know it are admitted (`Membership::admit`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::{StoreId, Version, NEWEST_VERSION, OLDEST_VERSION};

use crate::admin;
use crate::admin_error::{encode_error, read_error, refuse, AdminError};
use crate::admission::read_facts;
use crate::config::{facts_of, Config};
use crate::datadir::{DataDir, Joined};
use crate::members::AgreedMembers;
use crate::start_error::StartError;
use crate::store::Store;
use crate::transport::certificates::Certificates;
use crate::transport::kinds::{JOIN_FIRST, REQUEST_JOIN, REQUEST_JOIN_AS, STATUS_DONE, STATUS_ERROR};
use crate::transport::{ask_once, Identity, Remote};

const ASK_TIMEOUT: Duration = Duration::from_secs(10);
const JOIN_AGAIN: Duration = Duration::from_millis(500);
/// The answer to a store that joins.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    store: StoreId,
    cluster_id: u64,
    layout: String,
    cluster_enabled: bool,
    members: AgreedMembers,
}

/// Asks until a member answers, and stores the answer. If the store asks again after a crash, the
/// cluster gives the same number for the same key.
pub async fn join(
    config: &Config,
    dir: &mut DataDir,
    stores: &[SocketAddr],
    certificates: Option<Arc<Certificates>>,
) -> Result<(), StartError> {
    let secret = dir.identity().secret.clone();
    let facts = facts_of(config.this(), Some(secret.public()));
    let identity = Arc::new(
        Identity::joining(secret, config.requirepass.clone(), config.join_token.clone()).with(certificates),
    );
    let facts = Bytes::from(serde_json::to_vec(&facts).expect("plain data"));
    let with_newest = Bytes::from([&NEWEST_VERSION.to_le_bytes()[..], &facts].concat());
    let mut request = (REQUEST_JOIN_AS, with_newest);
    let welcome: Welcome = 'asking: loop {
        for &address in stores {
            let (kind, body) = request.clone();
            let asking = ask_once(address, identity.clone(), kind, body);
            let asked = tokio::time::timeout(ASK_TIMEOUT, asking).await;
            match asked.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok((STATUS_DONE, answer)) => match serde_json::from_slice(&answer) {
                    Ok(welcome) => break 'asking welcome,
                    Err(error) => {
                        return Err(StartError::Join(format!(
                            "the answer of {address} cannot be read: {error}"
                        )))
                    }
                },
                Ok((_, answer)) if request.0 == REQUEST_JOIN_AS && answer == JOIN_FIRST => {
                    // The program there does not support this kind of request, so the cluster has
                    // the oldest version.
                    request = (REQUEST_JOIN, facts.clone());
                }
                Ok((_, answer)) => {
                    let error = read_error(&answer);
                    if error.status < 500 {
                        return Err(StartError::Join(error.message));
                    }
                    tracing::warn!(%address, error.message, "not admitted yet; asking again");
                }
                Err(error) => tracing::warn!(%address, %error, "cannot ask to join; asking again"),
            }
        }
        tokio::time::sleep(JOIN_AGAIN).await;
    };
    tracing::info!(store = welcome.store, "joined the cluster");
    dir.keep_members(&welcome.members)?;
    // The store may write in the cluster's version from its start.
    dir.prepare(welcome.members.settings.cluster_version)?;
    let by_token = config.join_token.is_some() && config.requirepass.is_none();
    let joined = Joined { cluster_enabled: welcome.cluster_enabled, by_token };
    dir.joined(welcome.store, welcome.cluster_id, welcome.layout, joined)?;
    Ok(())
}

/// Answers a store that asks to join, by a request of either kind.
pub async fn answer_join(store: Arc<Store>, from: Remote, kind: u8, body: Bytes) -> (u8, Bytes) {
    match welcome(&store, from, kind, &body).await {
        Ok(welcome) => (STATUS_DONE, serde_json::to_vec(&welcome).expect("plain data").into()),
        Err(error) => (STATUS_ERROR, encode_error(error)),
    }
}

async fn welcome(store: &Arc<Store>, from: Remote, kind: u8, body: &[u8]) -> Result<Welcome, AdminError> {
    let (newest, facts) = match (kind, body.split_first_chunk()) {
        (REQUEST_JOIN_AS, Some((newest, facts))) => (Version::from_le_bytes(*newest), facts),
        (REQUEST_JOIN_AS, None) => return Err(refuse(400, "the request is cut short")),
        _ => (OLDEST_VERSION, body),
    };
    let facts = read_facts(facts, from)?;
    let (joined, cluster_id, members) = admin::join(store, facts, newest).await?;
    Ok(Welcome {
        store: joined,
        cluster_id,
        layout: store.layout.clone(),
        cluster_enabled: store.config.cluster_enabled,
        members,
    })
}

#[cfg(test)]
mod running;
