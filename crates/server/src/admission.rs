//! Decides whether a store that asks to join may join.
//!
//! Any process that reaches a peer port may ask. So four things are limited: the size of a store's
//! facts (`StoreFacts::check`), the number of members, the joins per minute, and the addresses.

use std::net::SocketAddr;

use cluster::StoreFacts;

use crate::admin_error::{refuse, AdminError};
use crate::cluster_state::ClusterState;
use crate::membership::Membership;
use crate::transport::Remote;

/// Maximum size of encoded facts, in bytes. Valid facts need less.
const FACTS_BYTES_MAX: usize = 8 << 10;

/// Parses and checks the facts of a store that asks to join.
pub fn read_facts(body: &[u8], from: Remote) -> Result<StoreFacts, AdminError> {
    if body.len() > FACTS_BYTES_MAX {
        return Err(refuse(400, "the store's facts are too long"));
    }
    let facts: StoreFacts = serde_json::from_slice(body).map_err(|error| refuse(400, error.to_string()))?;
    if facts.key != Some(from.key) {
        return Err(refuse(403, "a store joins under its own key"));
    }
    facts.check().map_err(|error| refuse(400, error.to_string()))?;
    check_addresses(&facts)?;
    Ok(facts)
}

/// Checks the addresses, because every member will connect to them.
fn check_addresses(facts: &StoreFacts) -> Result<(), AdminError> {
    let all = [&facts.client, &facts.peer, &facts.admin].into_iter().chain(&facts.forward);
    for text in all {
        let address = text.parse::<SocketAddr>().ok();
        let is_place = |address: &SocketAddr| {
            address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast()
        };
        if !address.as_ref().is_some_and(is_place) {
            return Err(refuse(400, format!("a store cannot be reached at the address {text:?}")));
        }
    }
    Ok(())
}

/// Decides, as the leader of the meta region, whether the join may be proposed now. The store
/// repeats a request that was refused with 503.
pub fn may_join(
    cluster: &ClusterState,
    membership: &Membership,
    facts: &StoreFacts,
) -> Result<(), AdminError> {
    check_addresses(facts)?;
    if let Some(other) = cluster.live_at(facts) {
        return Err(refuse(
            503,
            format!("store {other} uses {} or {} and is alive", facts.peer, facts.client),
        ));
    }
    let is_known = facts.key.is_some_and(|key| cluster.knows_key(key));
    match membership.may_join(is_known) {
        true => Ok(()),
        false => Err(refuse(503, "too many stores have joined within the last minute")),
    }
}

/// Checks that any bytes from a store that asks to join yield an error or valid facts.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Ok(StoreFacts { key: Some(key), .. }) = serde_json::from_slice(bytes) else { return };
    let from = Remote { store: crate::transport::NO_STORE, key };
    if let Ok(facts) = read_facts(bytes, from) {
        assert!(bytes.len() <= FACTS_BYTES_MAX && facts.check().is_ok());
        let again = serde_json::to_vec(&facts).expect("plain data");
        assert_eq!(serde_json::from_slice::<StoreFacts>(&again).expect("the text was written here"), facts);
    }
}

#[cfg(test)]
mod tests {
    use cluster::StoreKey;

    use super::*;
    use crate::config::{facts_of, Config};
    use crate::transport::NO_STORE;

    const KEY: StoreKey = StoreKey([3; 32]);

    fn facts() -> StoreFacts {
        let config = Config::single("nowhere".into(), 7000);
        facts_of(config.this(), Some(KEY))
    }

    fn read(facts: &StoreFacts) -> Result<StoreFacts, u16> {
        let body = serde_json::to_vec(facts).unwrap();
        read_facts(&body, Remote { store: NO_STORE, key: KEY }).map_err(|error| error.status)
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
        let refused = read_facts(&body, Remote { store: NO_STORE, key: KEY }).unwrap_err();
        assert_eq!((refused.status, refused.message.contains("too long")), (400, true));
        body.truncate(FACTS_BYTES_MAX);
        assert!(read_facts(&body, Remote { store: NO_STORE, key: KEY }).is_ok());
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
