//! The stores of the cluster, as this store knows them.
//!
//! The meta region's state holds the list. A store without a peer of that region learns from
//! heartbeats that a newer list exists, and asks their sender for it. The list includes the
//! settings that every store uses. The last list is stored beside the data (`DIR/MEMBERS`), so that
//! a restarting store knows which stores to contact.
//!
//! If a store is given a list of stores at its start, the addresses in that list take precedence,
//! because they are the operator's latest statement.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cluster::{AgreedSettings, MemberState, MetaState, StoreKey, StoreRecord, TokenRecord};
use serde::{Deserialize, Serialize};
use types::StoreId;

use crate::accounts::AgreedUsers;
use crate::config::{Capability, Config, Member};

/// The agreed list, as of a version. Version 0 means that nothing is agreed yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgreedMembers {
    pub version: u64,
    /// The stores, ascending by id, removed ones included.
    pub stores: Vec<StoreRecord>,
    /// The settings of the same version.
    #[serde(default)]
    pub settings: AgreedSettings,
    /// The users of clients in the same version.
    #[serde(default, skip_serializing_if = "AgreedUsers::is_empty")]
    pub users: AgreedUsers,
    /// The version of the last change of the libraries of functions, 0 without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub libraries: u64,
    /// The bearer tokens of the admin endpoint in the same version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, TokenRecord>,
}

fn is_zero(version: &u64) -> bool {
    *version == 0
}

impl AgreedMembers {
    /// Returns the list in the meta region's rows.
    pub fn of(meta: &MetaState) -> AgreedMembers {
        AgreedMembers {
            version: meta.members_version,
            stores: meta.stores.values().cloned().collect(),
            settings: meta.agreed_settings(),
            users: meta.users.clone(),
            libraries: meta.libraries_version,
            tokens: meta.tokens.clone(),
        }
    }
}

/// The agreed list, combined with this store's own configuration.
pub struct Members {
    pub agreed: AgreedMembers,
    /// The stores to contact, sorted by id, without the removed ones.
    pub list: Vec<Member>,
}

impl Members {
    pub fn new(config: &Config, agreed: AgreedMembers) -> Members {
        let mut list = config.members.clone();
        for record in &agreed.stores {
            let known = list.binary_search_by_key(&record.id, |member| member.id);
            match (record.state, known) {
                // This store stays in its own list. Other stores will tell it that it was removed.
                (MemberState::Removed, Ok(at)) if record.id != config.store => drop(list.remove(at)),
                (MemberState::Removed, _) | (_, Ok(_)) => {}
                (MemberState::Up | MemberState::Draining, Err(at)) => match member_of(record) {
                    Some(member) => list.insert(at, member),
                    None => tracing::error!(store = record.id, "a store's addresses cannot be read"),
                },
            }
        }
        Members { agreed, list }
    }

    pub fn member(&self, id: StoreId) -> Option<&Member> {
        self.list.binary_search_by_key(&id, |member| member.id).ok().map(|at| &self.list[at])
    }

    /// Returns the stores to contact, with their agreed keys.
    pub fn keys(&self) -> impl Iterator<Item = (StoreId, Option<StoreKey>)> + '_ {
        self.list.iter().map(|member| (member.id, self.record(member.id).and_then(|record| record.facts.key)))
    }

    pub fn record(&self, id: StoreId) -> Option<&StoreRecord> {
        let stores = &self.agreed.stores;
        stores.binary_search_by_key(&id, |record| record.id).ok().map(|at| &stores[at])
    }
}

fn member_of(record: &StoreRecord) -> Option<Member> {
    let facts = &record.facts;
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    let known = facts.capability != placement::Capability::UNKNOWN;
    Some(Member {
        id: record.id,
        client: address(&facts.client)?,
        peer: address(&facts.peer)?,
        admin: address(&facts.admin)?,
        forward: facts.forward.as_deref().and_then(address),
        capability: known.then_some(Capability {
            kv_bytes_per_s: facts.capability.kv_bytes_per_s,
            ops_per_s: facts.capability.ops_per_s,
        }),
        device: facts.device.clone(),
        labels: facts.labels.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::facts_of;

    fn config(ids: &[StoreId]) -> Config {
        let mut config = Config::single("nowhere".into(), 7000);
        let member = config.members[0].clone();
        config.members = ids.iter().map(|&id| Member { id, ..member.clone() }).collect();
        config.store = ids[0];
        config
    }

    fn record(id: StoreId, port: u16, state: MemberState) -> StoreRecord {
        let mut member = Config::single("nowhere".into(), port).members.remove(0);
        member.id = id;
        StoreRecord { state, ..StoreRecord::new(id, facts_of(&member, Some(StoreKey([5; 32])))) }
    }

    #[test]
    fn the_agreed_list_adds_stores_and_takes_them_away() {
        let (up, removed) = (MemberState::Up, MemberState::Removed);
        let stores = vec![
            record(0, 9000, up),
            record(1, 9001, removed),
            record(4, 9004, up),
            record(5, 9005, removed),
        ];
        let members =
            Members::new(&config(&[0, 1]), AgreedMembers { version: 3, stores, ..Default::default() });
        let list: Vec<_> = members.list.iter().map(|member| (member.id, member.client.port())).collect();
        assert_eq!(list, [(0, 7000), (4, 9004)], "the configuration takes precedence");
        assert_eq!(members.record(1).map(|record| record.state), Some(removed));
        assert_eq!(members.member(4).map(|member| member.peer.port()), Some(19_004));
        assert!(members.record(2).is_none());
    }

    #[test]
    fn a_store_stays_in_its_own_list() {
        let stores = vec![record(7, 9000, MemberState::Removed)];
        let members = Members::new(&config(&[7]), AgreedMembers { version: 1, stores, ..Default::default() });
        assert_eq!(members.list.len(), 1);
    }

    #[test]
    fn a_list_that_was_kept_without_settings_has_those_that_count_unless_others_are_agreed_on() {
        let kept: AgreedMembers = serde_json::from_str(r#"{"version":4,"stores":[]}"#).unwrap();
        assert_eq!(kept, AgreedMembers { version: 4, ..AgreedMembers::default() });
        let settings =
            AgreedSettings { strong_reads: cluster::StrongReads::ReadIndex, ..AgreedSettings::default() };
        let told = AgreedMembers { version: 5, settings, ..AgreedMembers::default() };
        let read: AgreedMembers = serde_json::from_slice(&serde_json::to_vec(&told).unwrap()).unwrap();
        assert_eq!(read, told);
    }

    #[test]
    fn facts_come_back_as_the_member_that_told_them() {
        let mut member = config(&[0]).members.remove(0);
        member.capability = Some(Capability { kv_bytes_per_s: 3.0, ops_per_s: 4.0 });
        member.forward = Some(SocketAddr::from(([127, 0, 0, 1], 7100)));
        member.labels.insert("zone".into(), "a".into());
        assert_eq!(member_of(&StoreRecord::new(0, facts_of(&member, None))), Some(member));
    }
}
