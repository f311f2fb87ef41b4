//! JSON encoding of descriptors. `types` has no serialization of its own.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use types::{
    Merging, Peer, PeerRole, Recovery, RegionDescriptor, RegionEpoch, SlotRange, ABSORBED_MAX, PEERS_MAX,
    RECOVERIES_MAX,
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Json {
    id: u64,
    slots: Option<(u16, u16)>,
    conf_version: u64,
    version: u64,
    peers: Vec<PeerJson>,
    next_peer: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    merging: Option<MergingJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    absorbed: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recoveries: Vec<RecoveryJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecoveryJson {
    order: u64,
    at_ms: u64,
    keeper: u64,
    lost: Vec<u64>,
    committed: u64,
    last: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MergingJson {
    into: u64,
    sealed_at: u64,
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

impl From<&Recovery> for RecoveryJson {
    fn from(recovery: &Recovery) -> RecoveryJson {
        let Recovery { order, at_ms, keeper, ref lost, committed, last } = *recovery;
        RecoveryJson { order, at_ms, keeper, lost: lost.clone(), committed, last }
    }
}

impl From<RecoveryJson> for Recovery {
    fn from(json: RecoveryJson) -> Recovery {
        let RecoveryJson { order, at_ms, keeper, lost, committed, last } = json;
        Recovery { order, at_ms, keeper, lost, committed, last }
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
            merging: region.merging.map(|Merging { into, sealed_at }| MergingJson { into, sealed_at }),
            absorbed: region.absorbed.clone(),
            recoveries: region.recoveries.iter().map(RecoveryJson::from).collect(),
        }
    }
}

impl TryFrom<Json> for RegionDescriptor {
    type Error = String;

    fn try_from(json: Json) -> Result<RegionDescriptor, String> {
        let mut peers: Vec<Peer> = json.peers.into_iter().map(Peer::from).collect();
        peers.sort_unstable();
        let region = RegionDescriptor {
            id: json.id,
            slots: json.slots.map(|(first, last)| SlotRange { first, last }),
            epoch: RegionEpoch { conf_version: json.conf_version, version: json.version },
            peers,
            next_peer: json.next_peer,
            merging: json.merging.map(|MergingJson { into, sealed_at }| Merging { into, sealed_at }),
            absorbed: json.absorbed,
            recoveries: json.recoveries.into_iter().map(Recovery::from).collect(),
        };
        if region.absorbed.len() > ABSORBED_MAX {
            return Err(format!("a descriptor names {} absorbed regions", region.absorbed.len()));
        }
        let is_long = |recovery: &Recovery| recovery.lost.len() > PEERS_MAX;
        if region.recoveries.len() > RECOVERIES_MAX || region.recoveries.iter().any(is_long) {
            return Err("a descriptor names too many recoveries or lost stores".into());
        }
        // The descriptor's own decoder checks all other conditions.
        RegionDescriptor::decode(&region.encode()).map_err(|error| error.to_string())
    }
}

/// One descriptor.
pub(crate) mod one {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(region: &RegionDescriptor, to: S) -> Result<S::Ok, S::Error> {
        Json::from(region).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<RegionDescriptor, D::Error> {
        RegionDescriptor::try_from(Json::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// The record of a recovery, by itself.
pub(crate) mod recovery {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(recovery: &Recovery, to: S) -> Result<S::Ok, S::Error> {
        RecoveryJson::from(recovery).serialize(to)
    }

    /// Refuses a record that no order can make: one whose keeper is lost, whose log ends before the
    /// last entry known to be committed, or whose lost stores are too many or not sorted.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Recovery, D::Error> {
        let recovery = Recovery::from(RecoveryJson::deserialize(from)?);
        let is_sorted = recovery.lost.windows(2).all(|pair| pair[0] < pair[1]);
        let is_valid = is_sorted
            && recovery.lost.len() <= PEERS_MAX
            && !recovery.lost.contains(&recovery.keeper)
            && recovery.committed <= recovery.last;
        is_valid.then_some(recovery).ok_or_else(|| D::Error::custom("a recovery that cannot be"))
    }
}

pub(crate) fn serialize<S: Serializer>(regions: &[RegionDescriptor], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(regions.iter().map(Json::from))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RegionDescriptor>, D::Error> {
    let regions = Vec::<Json>::deserialize(from)?.into_iter().map(RegionDescriptor::try_from);
    regions.collect::<Result<_, _>>().map_err(D::Error::custom)
}
