//! What a policy sees: the cluster as plain data at one moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use crate::{Classes, Operator, PlanLimits, Spread};

/// What a store can do. All stores of a view state it in the same unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// Bytes of keys and values written per second.
    #[serde(serialize_with = "finite")]
    pub kv_bytes_per_s: f64,
    /// Reads per second that RAM does not answer.
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

    /// What leader placement compares: KV bytes written per second, by which ALOR rates nodes (§3.2). Numbers
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreState {
    #[default]
    Up,
    /// Silent for seconds: neither source nor target of anything, its peers are expected back.
    Down,
    /// Live and asked to go: its leaders and peers move away, nothing moves to it.
    Draining,
    /// Silent for so long that its peers are made anew elsewhere.
    Lost,
}

/// The CPU of a store's machine, averaged over some seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Cores that the store may use; a part of one where a quota says so.
    pub cores: f64,
    /// The share of them that is busy, whoever uses them: from 0 to 1.
    pub busy: f64,
    /// Cores that the store's own process uses.
    pub own: f64,
    /// Stores that name the same machine share its cores; 0: not known, and shared with no other store.
    pub machine: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreView {
    pub id: StoreId,
    pub capability: Capability,
    /// How sure the capability and the sync are.
    pub spread: Spread,
    /// Of which classes it was last time, as [`rate`](crate::rate) said.
    pub former: Classes,
    /// What a write waits for a sync of its device, with nothing else to do; 0: not known.
    pub sync_ns: u64,
    /// Live user bytes that the store may hold; 0: not known.
    pub capacity_bytes: u64,
    /// Live user bytes that the store holds: of all regions that have a peer here in this view, so that what
    /// is under way counts once.
    pub used_bytes: u64,
    /// Of entries that are committed and that it has yet to apply. Who is handed a region's lead serves it
    /// when it is through with them.
    pub unapplied_bytes: u64,
    /// Its device is down to its reserve. Who leads there refuses what adds data, whatever room the other peers
    /// have.
    pub out_of_room: bool,
    /// Its wall clock, by which keys expire in regions that it leads, is too far from the others'.
    pub clock_off: bool,
    /// It was above its threshold and has not been below the lower end of the band since: what
    /// [`sheds`](crate::sheds) said of it last time.
    pub shedding: bool,
    /// `None`: not known, and nothing is decided by it.
    pub cpu: Option<Cpu>,
    /// Its CPU was above the limit lately, and the mean units of work over the seconds that `cpu` is averaged over: see
    /// [`CpuMemory`](crate::CpuMemory).
    pub cpu_high: bool,
    pub cpu_units: Option<f64>,
    /// Stands in for the measured write speed when data is shared out.
    pub data_weight: Option<f64>,
    /// Stands in for the measured write speed when leaders are placed.
    pub leader_weight: Option<f64>,
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionView {
    pub id: RegionId,
    /// Live user bytes of one copy.
    pub bytes: u64,
    /// Both ends included; region 0 has no slots.
    pub first_slot: u16,
    pub last_slot: u16,
    /// A region of one slot cannot be split.
    pub slots: u32,
    /// Operations per second, lately.
    pub write_rate: f64,
    pub read_rate: f64,
    /// Of the reads, those that RAM does not answer: what leading costs the device.
    pub miss_rate: f64,
    /// Bytes of keys and values written per second, lately.
    pub write_bytes_rate: f64,
    /// Operations per second with a long memory, those of followers included: what tells cold data from data that
    /// rests for a moment.
    pub heat: f64,
    /// `None` while no leader is known.
    pub leader: Option<StoreId>,
    pub peers: Vec<PeerView>,
    /// A change of its membership is under way: it is left alone.
    pub joint: bool,
    /// It is left alone: an operator for it failed a short while ago, or it was split and its size has not
    /// been measured since.
    pub cooldown: bool,
}

/// The reason why a store should not lead regions that another store can lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    OutOfRoom,
    ClockOff,
}

/// So many bytes are applied before anybody notices.
const UNAPPLIED_BYTES_MIN: u64 = 1 << 20;

/// Whether so many bytes keep a store that is to apply them busy for so long that it is handed no lead.
pub fn is_behind(capability: Capability, unapplied_bytes: u64, limits: &PlanLimits) -> bool {
    let bytes = capability.kv_bytes_per_s * f64::from(limits.unapplied_ms_max) / 1000.0;
    // A cast saturates, and takes NaN for 0.
    unapplied_bytes > UNAPPLIED_BYTES_MIN.max(bytes as u64)
}

impl StoreView {
    /// Whether what it has yet to apply keeps it busy for longer than that.
    pub fn is_behind(&self, limits: &PlanLimits) -> bool {
        is_behind(self.capability, self.unapplied_bytes, limits)
    }

    pub(crate) fn bar(&self) -> Option<Bar> {
        let bars = [(self.out_of_room, Bar::OutOfRoom), (self.clock_off, Bar::ClockOff)];
        bars.into_iter().find(|(holds, _)| *holds).map(|(_, bar)| bar)
    }
}

impl RegionView {
    /// Operations per second in whole numbers, for ranking.
    pub(crate) fn rate(&self) -> u64 {
        (self.write_rate + self.read_rate) as u64
    }

    /// Heat per byte: the least is the coldest.
    pub(crate) fn density(&self) -> f64 {
        self.heat.max(0.0) / self.bytes.max(1) as f64
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    /// Sorted by id, none twice.
    pub stores: Vec<StoreView>,
    /// Sorted by id, none twice.
    pub regions: Vec<RegionView>,
    /// Begun and not yet known to have ended. They count as done.
    pub in_flight: Vec<Operator>,
    /// Voters that a user region should have.
    pub replicas: usize,
    /// Voters that the meta region should have where there are stores for them; it takes an odd number.
    pub meta_replicas: usize,
    /// Stores with equal values of this label fail together.
    pub domain_label: Option<String>,
}

impl Default for ClusterView {
    fn default() -> ClusterView {
        ClusterView {
            stores: Vec::new(),
            regions: Vec::new(),
            in_flight: Vec::new(),
            replicas: 3,
            meta_replicas: 5,
            domain_label: None,
        }
    }
}

impl ClusterView {
    pub fn store(&self, id: StoreId) -> Option<&StoreView> {
        self.stores.binary_search_by_key(&id, |store| store.id).ok().map(|at| &self.stores[at])
    }

    pub fn region(&self, id: RegionId) -> Option<&RegionView> {
        self.regions.binary_search_by_key(&id, |region| region.id).ok().map(|at| &self.regions[at])
    }
}
