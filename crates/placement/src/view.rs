//! What a policy sees: the cluster as plain data at one moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use crate::Operator;

/// What a store can do. All stores of a view state it in the same unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// Bytes of keys and values written per second.
    #[serde(serialize_with = "finite")]
    pub kv_bytes_per_s: f64,
    #[serde(serialize_with = "finite")]
    pub ops_per_s: f64,
}

/// JSON has no infinity and no NaN: what is written must be read back.
fn finite<S: serde::Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(if value.is_nan() { 0.0 } else { value.clamp(f64::MIN, f64::MAX) })
}

impl Capability {
    /// Stores of which nothing is known are equals.
    pub const UNKNOWN: Capability = Capability { kv_bytes_per_s: 1.0, ops_per_s: 1.0 };

    /// What leader placement compares (ALOR ranks devices by the KV bytes/s that they can write). Numbers
    /// that make no sense count as no speed at all.
    pub fn speed(&self) -> u64 {
        // A cast saturates, and takes NaN for 0.
        self.kv_bytes_per_s as u64
    }
}

impl Default for Capability {
    fn default() -> Capability {
        Capability::UNKNOWN
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreState {
    Up,
    /// Not heard of for longer than the liveness limit: neither source nor target of anything.
    Down,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoreView {
    pub id: StoreId,
    pub capability: Capability,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    /// Failure domains and the like: `zone` -> `a`.
    pub labels: BTreeMap<String, String>,
    pub state: StoreState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    pub store: StoreId,
    pub voter: bool,
    /// Log entries behind what the leader has committed; `None`: the leader has not said.
    pub lag: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RegionView {
    pub id: RegionId,
    pub bytes: u64,
    /// Operations per second.
    pub write_rate: f64,
    pub read_rate: f64,
    /// `None` while no leader is known.
    pub leader: Option<StoreId>,
    pub peers: Vec<PeerView>,
    /// A move of this region failed a short while ago: it is left alone.
    pub cooldown: bool,
}

impl RegionView {
    /// Operations per second in whole numbers, for ranking.
    pub(crate) fn rate(&self) -> u64 {
        (self.write_rate + self.read_rate) as u64
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterView {
    /// Sorted by id, none twice.
    pub stores: Vec<StoreView>,
    /// Sorted by id, none twice.
    pub regions: Vec<RegionView>,
    /// Begun and not yet known to have ended. They count as done.
    pub in_flight: Vec<Operator>,
}

impl ClusterView {
    pub fn store(&self, id: StoreId) -> Option<&StoreView> {
        self.stores.binary_search_by_key(&id, |store| store.id).ok().map(|at| &self.stores[at])
    }

    pub fn region(&self, id: RegionId) -> Option<&RegionView> {
        self.regions.binary_search_by_key(&id, |region| region.id).ok().map(|at| &self.regions[at])
    }
}
