//! How a store becomes a member: it asks one, which has the meta region's leader agree with the others on it.
//!
//! Whoever reaches a peer port may ask, so the answer holds nothing that helps to pass for another store, and what
//! asking may bring about is bounded: what a store says of itself (`StoreFacts::check`), how many members there may
//! be, how many join in a minute, and where they may be. Where a password is set, only those who know it are taken
//! in (`membership::admit`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::StoreFacts;
use serde::{Deserialize, Serialize};
use types::StoreId;

use crate::admin::AdminError;
use crate::admin_backend::{self, refuse};
use crate::config::Config;
use crate::datadir::{DataDir, Joined};
use crate::dispatch::{REQUEST_JOIN, STATUS_DONE, STATUS_ERROR};
use crate::members::{facts_of, AgreedMembers};
use crate::startup::StartError;
use crate::store::Store;
use crate::transport::{ask_once, Identity, Remote};

const ASK_TIMEOUT: Duration = Duration::from_secs(10);
const JOIN_AGAIN: Duration = Duration::from_millis(500);
/// More than all that a store may say of itself.
const FACTS_BYTES_MAX: usize = 8 << 10;

/// Joins that are agreed on at once, and one more for each [`JOIN_EVERY`] after. Each is an entry of the meta
/// region's log, and makes every store connect to another address.
const JOINS_AT_ONCE: u32 = 30;
const JOIN_EVERY: Duration = Duration::from_secs(1);

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
pub async fn answer_join(store: Arc<Store>, from: Remote, body: Bytes) -> (u8, Bytes) {
    match welcome(&store, from, &body).await {
        Ok(welcome) => (STATUS_DONE, serde_json::to_vec(&welcome).expect("plain data").into()),
        Err(error) => (STATUS_ERROR, admin_backend::encode_error(error)),
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

fn read_facts(body: &[u8], from: Remote) -> Result<StoreFacts, AdminError> {
    if body.len() > FACTS_BYTES_MAX {
        return Err(refuse(400, "a store says more of itself than is taken"));
    }
    let facts: StoreFacts = serde_json::from_slice(body).map_err(|error| refuse(400, error.to_string()))?;
    if facts.key != Some(from.key) {
        return Err(refuse(403, "a store joins under its own key"));
    }
    facts.check().map_err(|error| refuse(400, error.to_string()))?;
    check_addresses(&facts)?;
    Ok(facts)
}

/// Every member will connect to them.
fn check_addresses(facts: &StoreFacts) -> Result<(), AdminError> {
    let all = [&facts.client, &facts.peer, &facts.admin].into_iter().chain(&facts.forward);
    for text in all {
        let address = text.parse::<SocketAddr>().ok();
        let is_place = |address: &SocketAddr| {
            address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast()
        };
        if !address.as_ref().is_some_and(is_place) {
            return Err(refuse(400, format!("{text:?} is no address at which a store can be reached")));
        }
    }
    Ok(())
}

/// As the leader of the meta region: whether that is to be agreed on now. What is refused with 503 is asked again.
pub fn may_join(store: &Store, facts: &StoreFacts) -> Result<(), AdminError> {
    check_addresses(facts)?;
    if let Some(other) = store.cluster.live_at(facts) {
        return Err(refuse(
            503,
            format!("store {other} is at {} or {}, and lives", facts.peer, facts.client),
        ));
    }
    // Who asks again takes nothing from those who are new.
    let is_known = facts.key.is_some_and(|key| store.cluster.knows_key(key));
    let joins = if is_known { &store.joins_again } else { &store.joins };
    match joins.lock().take(Instant::now()) {
        true => Ok(()),
        false => Err(refuse(503, "too many stores have joined within a minute")),
    }
}

/// A bucket of joins, which fills with time.
pub struct JoinRate {
    left: u32,
    filled_at: Instant,
}

impl JoinRate {
    pub fn new(now: Instant) -> JoinRate {
        JoinRate { left: JOINS_AT_ONCE, filled_at: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        while self.left < JOINS_AT_ONCE && now.duration_since(self.filled_at) >= JOIN_EVERY {
            self.left += 1;
            self.filled_at += JOIN_EVERY;
        }
        if self.left == JOINS_AT_ONCE {
            self.filled_at = now;
        }
        self.left = match self.left.checked_sub(1) {
            Some(left) => left,
            None => return false,
        };
        true
    }
}

/// What must hold for any bytes from a store that asks to join: an error, or what a store may say of itself.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Ok(StoreFacts { key: Some(key), .. }) = serde_json::from_slice(bytes) else { return };
    let from = Remote { store: crate::transport::NOBODY, key };
    if let Ok(facts) = read_facts(bytes, from) {
        assert!(bytes.len() <= FACTS_BYTES_MAX && facts.check().is_ok());
        let again = serde_json::to_vec(&facts).expect("plain data");
        assert_eq!(serde_json::from_slice::<StoreFacts>(&again).expect("it was written here"), facts);
    }
}

#[cfg(test)]
mod running;

#[cfg(test)]
mod tests {
    use cluster::StoreKey;

    use super::*;
    use crate::transport::NOBODY;

    const KEY: StoreKey = StoreKey([3; 32]);

    fn facts() -> StoreFacts {
        let config = Config::single("nowhere".into(), 7000);
        facts_of(config.this(), Some(KEY))
    }

    fn read(facts: &StoreFacts) -> Result<StoreFacts, u16> {
        let body = serde_json::to_vec(facts).unwrap();
        read_facts(&body, Remote { store: NOBODY, key: KEY }).map_err(|error| error.status)
    }

    #[test]
    fn a_store_joins_under_its_own_key_and_at_an_address() {
        assert_eq!(read(&facts()), Ok(facts()));
        for key in [None, Some(StoreKey([4; 32]))] {
            assert_eq!(read(&StoreFacts { key, ..facts() }), Err(403));
        }
        for peer in ["", "here", "localhost:7000", "0.0.0.0:7000", "[::]:7000", "10.0.0.1:0", "224.0.0.1:70"]
        {
            assert_eq!(read(&StoreFacts { peer: peer.into(), ..facts() }), Err(400), "{peer}");
            assert_eq!(read(&StoreFacts { forward: Some(peer.into()), ..facts() }), Err(400), "{peer}");
        }
        assert_eq!(read(&StoreFacts { device: "x".repeat(200), ..facts() }), Err(400));
    }

    #[test]
    fn a_long_body_is_refused_before_it_is_parsed() {
        let mut body = serde_json::to_vec(&facts()).unwrap();
        body.resize(FACTS_BYTES_MAX + 1, b' ');
        let refused = read_facts(&body, Remote { store: NOBODY, key: KEY }).unwrap_err();
        assert_eq!((refused.status, refused.message.contains("more of itself")), (400, true));
        body.truncate(FACTS_BYTES_MAX);
        assert!(read_facts(&body, Remote { store: NOBODY, key: KEY }).is_ok());
    }

    #[test]
    fn joins_are_as_many_as_time_allows() {
        let start = Instant::now();
        let mut rate = JoinRate::new(start);
        let takes = |rate: &mut JoinRate, at| (0..1000).filter(|_| rate.take(start + at)).count();
        assert_eq!(takes(&mut rate, Duration::ZERO), 30);
        assert_eq!(takes(&mut rate, JOIN_EVERY / 2), 0);
        assert_eq!(takes(&mut rate, JOIN_EVERY), 1);
        assert_eq!(takes(&mut rate, JOIN_EVERY * 5), 4);
        assert_eq!(takes(&mut rate, JOIN_EVERY * 3600), 30);
    }

    #[test]
    fn mutated_bodies_are_errors_or_facts() {
        let corpus = serde_json::to_vec(&facts()).unwrap();
        let mut draw = types::Draw::new(1);
        let mut next = move || draw.number();
        for _ in 0..50_000 {
            let mut bytes = corpus.clone();
            for _ in 0..next() % 6 {
                let at = next() as usize % bytes.len();
                bytes[at] = next() as u8;
            }
            bytes.truncate(1 + next() as usize % (2 * corpus.len()));
            fuzz(&bytes);
        }
    }
}
