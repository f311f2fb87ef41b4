//! The state machine of the meta region.

use std::collections::{BTreeMap, BTreeSet};

use placement::{Capability, Policy};
use serde::{Deserialize, Serialize};
use types::{RegionDescriptor, RegionId, StoreId, UnixMillis, META_REGION, SLOT_COUNT};

use crate::{MetaCommand, MetaError, MetaReply};

/// A member. Addresses are `host:port`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreRecord {
    pub id: StoreId,
    pub client: String,
    pub peer: String,
    pub admin: String,
    pub forward: Option<String>,
    /// The device's profile, for people.
    pub device: String,
    pub capability: Capability,
    pub labels: BTreeMap<String, String>,
}

/// What every replica of region 0 agrees on. The default is the state before bootstrap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetaState {
    /// `None` until bootstrap.
    pub cluster_id: Option<u64>,
    pub created_ms: UnixMillis,
    pub stores: BTreeMap<StoreId, StoreRecord>,
    pub regions: BTreeMap<RegionId, RegionDescriptor>,
    pub policy: Policy,
    pub policy_since_ms: UnixMillis,
    pub config: BTreeMap<String, String>,
    /// The version of command execution that every store of the cluster supports.
    pub semantics: u32,
}

/// An object that a command changed, and so a row to be written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Cluster,
    Policy,
    Store(StoreId),
    Region(RegionId),
    Config(String),
}

impl MetaState {
    pub fn is_bootstrapped(&self) -> bool {
        self.cluster_id.is_some()
    }

    /// Deterministic: the same commands with the same stamps lead to the same state. On an error nothing
    /// is changed.
    pub fn apply(&mut self, command: &MetaCommand, stamp_ms: UnixMillis) -> Result<MetaReply, MetaError> {
        self.apply_noting(command, stamp_ms, &mut BTreeSet::new())
    }

    pub(crate) fn apply_noting(
        &mut self,
        command: &MetaCommand,
        stamp_ms: UnixMillis,
        changed: &mut BTreeSet<Object>,
    ) -> Result<MetaReply, MetaError> {
        if let MetaCommand::Bootstrap { cluster_id, stores, regions, policy, config, semantics } = command {
            if let Some(cluster_id) = self.cluster_id {
                return Ok(MetaReply::AlreadyBootstrapped { cluster_id });
            }
            check_bootstrap(stores, regions)?;
            *self = MetaState {
                cluster_id: Some(*cluster_id),
                created_ms: stamp_ms,
                stores: stores.iter().map(|store| (store.id, store.clone())).collect(),
                regions: regions.iter().map(|region| (region.id, region.clone())).collect(),
                policy: *policy,
                policy_since_ms: stamp_ms,
                config: config.clone(),
                semantics: *semantics,
            };
            changed.extend([Object::Cluster, Object::Policy]);
            changed.extend(self.stores.keys().map(|&id| Object::Store(id)));
            changed.extend(self.regions.keys().map(|&id| Object::Region(id)));
            changed.extend(self.config.keys().cloned().map(Object::Config));
            return Ok(MetaReply::Bootstrapped);
        }
        if !self.is_bootstrapped() {
            return Err(MetaError::NotBootstrapped);
        }
        let object = match command {
            MetaCommand::Bootstrap { .. } => unreachable!("answered above"),
            MetaCommand::SetPolicy { policy } => {
                if self.policy == *policy {
                    return Ok(MetaReply::Unchanged);
                }
                self.policy = *policy;
                self.policy_since_ms = stamp_ms;
                Object::Policy
            }
            MetaCommand::SetStore { store } => {
                let known = self.stores.get_mut(&store.id).ok_or(MetaError::UnknownStore(store.id))?;
                if known == store {
                    return Ok(MetaReply::Unchanged);
                }
                *known = store.clone();
                Object::Store(store.id)
            }
            MetaCommand::SetConfig { name, value } => {
                if self.config.get(name) == value.as_ref() {
                    return Ok(MetaReply::Unchanged);
                }
                match value {
                    Some(value) => self.config.insert(name.clone(), value.clone()),
                    None => self.config.remove(name),
                };
                Object::Config(name.clone())
            }
        };
        changed.insert(object);
        Ok(MetaReply::Changed)
    }
}

/// A cluster begins with stores named once, a meta region without slots, and user regions that cover every
/// slot once; every peer is on a member, no two of a region on one.
fn check_bootstrap(stores: &[StoreRecord], regions: &[RegionDescriptor]) -> Result<(), MetaError> {
    let bad = |what: String| Err(MetaError::BadBootstrap(what));
    let members: BTreeSet<StoreId> = stores.iter().map(|store| store.id).collect();
    if members.is_empty() || members.len() != stores.len() {
        return bad("no stores, or one named twice".into());
    }
    let mut ids = BTreeSet::new();
    let mut ranges = Vec::new();
    for region in regions {
        let id = region.id;
        if !ids.insert(id) {
            return bad(format!("region {id} is named twice"));
        }
        if region.slots.is_none() != (id == META_REGION) {
            return bad(format!("region {id} has slots and is the meta region, or neither"));
        }
        ranges.extend(region.slots);
        if region.voters().next().is_none() || !region.peers.iter().all(|peer| members.contains(&peer.store))
        {
            return bad(format!("region {id} has no voter, or a peer on a store that is no member"));
        }
        if !region.peers.windows(2).all(|pair| pair[0].store < pair[1].store) {
            return bad(format!("region {id} has two peers on one store, or they are out of order"));
        }
    }
    if !ids.contains(&META_REGION) {
        return bad("there is no meta region".into());
    }
    ranges.sort_unstable();
    let mut next = 0;
    for range in ranges {
        if range.first != next || range.is_empty() {
            return bad(format!("slot {next} is not in exactly one region"));
        }
        next = range.last + 1;
    }
    if next != SLOT_COUNT {
        return bad(format!("slot {next} is in no region"));
    }
    Ok(())
}

/// Descriptors as JSON: `types` has no serialization of its own.
pub(crate) mod descriptors {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use types::{Peer, PeerRole, RegionDescriptor, RegionEpoch, SlotRange};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(crate) struct Json {
        id: u64,
        slots: Option<(u16, u16)>,
        conf_version: u64,
        version: u64,
        peers: Vec<PeerJson>,
        next_peer: u64,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct PeerJson {
        store: u64,
        id: u64,
        role: RoleJson,
    }

    #[derive(Clone, Copy, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum RoleJson {
        Voter,
        Learner,
        Incoming,
        Outgoing,
    }

    impl From<&Peer> for PeerJson {
        fn from(peer: &Peer) -> PeerJson {
            let role = match peer.role {
                PeerRole::Voter => RoleJson::Voter,
                PeerRole::Learner => RoleJson::Learner,
                PeerRole::Incoming => RoleJson::Incoming,
                PeerRole::Outgoing => RoleJson::Outgoing,
            };
            PeerJson { store: peer.store, id: peer.id, role }
        }
    }

    impl From<PeerJson> for Peer {
        fn from(json: PeerJson) -> Peer {
            let role = match json.role {
                RoleJson::Voter => PeerRole::Voter,
                RoleJson::Learner => PeerRole::Learner,
                RoleJson::Incoming => PeerRole::Incoming,
                RoleJson::Outgoing => PeerRole::Outgoing,
            };
            Peer { store: json.store, id: json.id, role }
        }
    }

    impl From<&RegionDescriptor> for Json {
        fn from(region: &RegionDescriptor) -> Json {
            Json {
                id: region.id,
                slots: region.slots.map(|range| (range.first, range.last)),
                conf_version: region.epoch.conf_version,
                version: region.epoch.version,
                peers: region.peers.iter().map(PeerJson::from).collect(),
                next_peer: region.next_peer,
            }
        }
    }

    impl From<Json> for RegionDescriptor {
        fn from(json: Json) -> RegionDescriptor {
            let mut peers: Vec<Peer> = json.peers.into_iter().map(Peer::from).collect();
            peers.sort_unstable();
            RegionDescriptor {
                id: json.id,
                slots: json.slots.map(|(first, last)| SlotRange { first, last }),
                epoch: RegionEpoch { conf_version: json.conf_version, version: json.version },
                peers,
                next_peer: json.next_peer,
            }
        }
    }

    pub(crate) fn serialize<S: Serializer>(regions: &[RegionDescriptor], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(regions.iter().map(Json::from))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RegionDescriptor>, D::Error> {
        let regions = Vec::<Json>::deserialize(from)?;
        Ok(regions.into_iter().map(RegionDescriptor::from).collect())
    }
}

#[cfg(test)]
pub(crate) mod tests;
