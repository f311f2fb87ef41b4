//! How a store becomes a member: it asks one, which has the meta region's leader agree with the others on it.
//!
//! Whoever reaches a peer port may ask, so the answer holds nothing that helps to pass for another store, and what
//! asking may bring about is bounded (`admission`). Where a password is set, only those who know it are taken in
//! (`Membership::admit`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::StoreId;

use crate::admin::{encode_error, read_error, AdminError};
use crate::admin_backend;
use crate::admission::read_facts;
use crate::config::{facts_of, Config};
use crate::datadir::{DataDir, Joined};
use crate::members::AgreedMembers;
use crate::start_error::StartError;
use crate::store::Store;
use crate::transport::kinds::{REQUEST_JOIN, STATUS_DONE, STATUS_ERROR};
use crate::transport::{ask_once, Identity, Remote};

const ASK_TIMEOUT: Duration = Duration::from_secs(10);
const JOIN_AGAIN: Duration = Duration::from_millis(500);
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
/// cluster gives the same number for the same key.
pub async fn join(config: &Config, dir: &mut DataDir, stores: &[SocketAddr]) -> Result<(), StartError> {
    let secret = dir.identity().secret.clone();
    let facts = facts_of(config.this(), Some(secret.public()));
    let identity = Arc::new(Identity::joining(secret, config.requirepass.clone()));
    let body = Bytes::from(serde_json::to_vec(&facts).expect("plain data"));
    let welcome: Welcome = 'asking: loop {
        for &address in stores {
            let asking = ask_once(address, identity.clone(), REQUEST_JOIN, body.clone());
            let asked = tokio::time::timeout(ASK_TIMEOUT, asking).await;
            match asked.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok((STATUS_DONE, answer)) => match serde_json::from_slice(&answer) {
                    Ok(welcome) => break 'asking welcome,
                    Err(error) => {
                        return Err(StartError::Join(format!("{address} answers strangely: {error}")))
                    }
                },
                Ok((_, answer)) => {
                    let error = read_error(&answer);
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
pub async fn answer_join(store: Arc<Store>, from: Remote, body: Bytes) -> (u8, Bytes) {
    match welcome(&store, from, &body).await {
        Ok(welcome) => (STATUS_DONE, serde_json::to_vec(&welcome).expect("plain data").into()),
        Err(error) => (STATUS_ERROR, encode_error(error)),
    }
}

async fn welcome(store: &Arc<Store>, from: Remote, body: &Bytes) -> Result<Welcome, AdminError> {
    let facts = read_facts(body, from)?;
    let (joined, cluster_id, members) = admin_backend::join(store, facts).await?;
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
