//! The input of a policy: the cluster as plain data at one moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use crate::{Classes, Operator, PlanLimits, Spread};

/// The capability of a store. All stores of a view use the same unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// Bytes of keys and values written per second.
    #[serde(serialize_with = "finite")]
    pub kv_bytes_per_s: f64,
    /// Reads per second that miss RAM.
    #[serde(serialize_with = "finite")]
    pub ops_per_s: f64,
}

/// Serializes a finite number. JSON has neither infinity nor NaN, and the output must be readable
/// again.
fn finite<S: serde::Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(if value.is_nan() { 0.0 } else { value.clamp(f64::MIN, f64::MAX) })
}

impl Capability {
    /// The capability of a store that has not been measured. All such stores are equal.
    pub const UNKNOWN: Capability = Capability { kv_bytes_per_s: 1.0, ops_per_s: 1.0 };

    /// Returns the KV bytes written per second, by which ALOR rates nodes (§3.2) and leader
    /// placement compares stores. NaN and negative numbers count as 0.
    pub fn speed(&self) -> u64 {
        // A cast saturates and turns NaN into 0.
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
    /// Silent for seconds. The store is neither source nor target of any operator; its peers are
    /// expected to return.
    Down,
    /// Live and asked to leave. Its leaders and peers move away, and none move to it.
    Draining,
    /// Silent for so long that its peers are replaced on other stores.
    Lost,
}

/// The CPU of a store's machine, averaged over some seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Cores that the store may use; fractional if a quota limits it.
    pub cores: f64,
    /// The share of these cores that is busy with any process, from 0 to 1.
    pub busy: f64,
    /// Cores that the store's own process uses.
    pub own: f64,
    /// Number that identifies the machine. Stores with the same number share its cores. 0: unknown,
    /// and shared with no other store.
    pub machine: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreView {
    pub id: StoreId,
    pub capability: Capability,
    /// The uncertainty of the capability and of the sync time.
    pub spread: Spread,
    /// The store's classes in the previous round, as returned by [`rate`](crate::rate).
    pub previous: Classes,
    /// Duration of one sync on the otherwise idle device, in nanoseconds. 0: unknown.
    pub sync_ns: u64,
    /// Live user bytes that the store may hold. 0: unknown.
    pub capacity_bytes: u64,
    /// Live user bytes of all regions that have a peer on this store in this view. Derived from the
    /// view, so that a move in flight counts once.
    pub used_bytes: u64,
    /// Bytes of committed entries that the store has yet to apply. A new leader serves its region
    /// only after it has applied them.
    pub unapplied_bytes: u64,
    /// True if the free space of its device is down to the reserve. The leaders on this store then
    /// refuse commands that add data, even if the other peers have room.
    pub out_of_room: bool,
    /// True if its wall clock, which decides when keys expire in the regions it leads, is too far
    /// from the clocks of the other stores.
    pub clock_off: bool,
    /// True if the store has lost its session with ZooKeeper, which chooses candidates, and another
    /// store has one.
    pub no_session: bool,
    /// True if the store exceeded its fill threshold and has not been below the lower end of the
    /// band since. The value of [`sheds`](crate::sheds) in the previous round.
    pub shedding: bool,
    /// The CPU of the store's machine. `None`: unknown, so that CPU affects no decision.
    pub cpu: Option<Cpu>,
    /// Set if the CPU was recently above the limit. See [`CpuMemory`](crate::CpuMemory) for this
    /// field and the next.
    pub cpu_high: bool,
    pub cpu_units: Option<f64>,
    /// Overrides the measured write speed when data is placed.
    pub data_weight: Option<f64>,
    /// Overrides the measured write speed when leaders are placed.
    pub leader_weight: Option<f64>,
    /// Labels such as failure domains: `zone` -> `a`.
    pub labels: BTreeMap<String, String>,
    pub state: StoreState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    pub store: StoreId,
    pub voter: bool,
    /// Log entries between this peer and the leader's commit index. `None`: the leader has not
    /// reported it.
    pub lag: Option<u64>,
    /// True if its machine crashed and the peer may have lost state that it acknowledged. It takes
    /// no part in consensus until it is removed and added under another number.
    pub unclean: bool,
    /// True if it lost rows with a damaged file. It votes but cannot lead until it is removed and
    /// added under another number.
    pub lost_rows: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionView {
    pub id: RegionId,
    /// Live user bytes of one copy.
    pub bytes: u64,
    /// The first and last slot, both included. Region 0 has no slots.
    pub first_slot: u16,
    pub last_slot: u16,
    /// The number of slots. A region of one slot cannot be split.
    pub slots: u32,
    /// Recent operations per second.
    pub write_rate: f64,
    pub read_rate: f64,
    /// The part of the reads that miss RAM. They are the cost of leading for the device.
    pub miss_rate: f64,
    /// Recent bytes of keys and values written per second.
    pub write_bytes_rate: f64,
    /// Operations per second, averaged over a long time, including reads answered by followers.
    /// Distinguishes cold data from data that is idle for a moment.
    pub heat: f64,
    /// The leader's store; `None` if no leader is known.
    pub leader: Option<StoreId>,
    pub peers: Vec<PeerView>,
    /// True if a membership change is in progress. Such a region gets no operator.
    pub joint: bool,
    /// True if the region gets no operator: one failed recently, or the region was split and its
    /// size has not been measured since.
    pub cooldown: bool,
    /// True while an operator must decide about a peer whose rows are kept. Until then unclean
    /// peers are removed and missing voters added, and no other change is made.
    pub held: bool,
}

/// The reason why a store should not lead regions that another store can lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    OutOfRoom,
    ClockOff,
    NoSession,
}

/// Minimum backlog of a store that counts as behind, in bytes. A smaller one is applied before a
/// client notices.
const UNAPPLIED_BYTES_MIN: u64 = 1 << 20;

/// Returns true if applying this many bytes takes the store longer than
/// [`PlanLimits::unapplied_ms_max`]. Such a store gets no leaders.
pub fn is_behind(capability: Capability, unapplied_bytes: u64, limits: &PlanLimits) -> bool {
    let bytes = capability.kv_bytes_per_s * f64::from(limits.unapplied_ms_max) / 1000.0;
    // A cast saturates and turns NaN into 0.
    unapplied_bytes > UNAPPLIED_BYTES_MIN.max(bytes as u64)
}

impl StoreView {
    /// Returns true if the store's unapplied entries keep it from taking over leaders; see
    /// [`is_behind`].
    pub fn is_behind(&self, limits: &PlanLimits) -> bool {
        is_behind(self.capability, self.unapplied_bytes, limits)
    }

    pub(crate) fn bar(&self) -> Option<Bar> {
        let bars = [
            (self.out_of_room, Bar::OutOfRoom),
            (self.clock_off, Bar::ClockOff),
            (self.no_session, Bar::NoSession),
        ];
        bars.into_iter().find(|(holds, _)| *holds).map(|(_, bar)| bar)
    }
}

impl RegionView {
    /// Returns the operations per second as an integer, for ranking.
    pub(crate) fn rate(&self) -> u64 {
        (self.write_rate + self.read_rate) as u64
    }

    /// Returns the heat per byte. The coldest region has the lowest.
    pub(crate) fn density(&self) -> f64 {
        self.heat.max(0.0) / self.bytes.max(1) as f64
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    /// Sorted by id, without duplicates.
    pub stores: Vec<StoreView>,
    /// Sorted by id, without duplicates.
    pub regions: Vec<RegionView>,
    /// Operators that have begun and are not known to have ended. They count as done.
    pub in_flight: Vec<Operator>,
    /// The number of voters that a user region should have.
    pub replicas: usize,
    /// The number of voters that the meta region should have if there are enough stores. It is
    /// rounded to an odd number.
    pub meta_replicas: usize,
    /// The label that names failure domains: stores with equal values of it fail together.
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
