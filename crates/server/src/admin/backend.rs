//! The data and operations of the admin endpoint, as plain data. The store implements
//! [`AdminBackend`].

use std::future::Future;
use std::pin::Pin;

pub use cluster::recovery::{RecoveryPlan, RefusedRegion, RegionPlan, Survivor};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoreRow {
    pub id: u64,
    pub state: String,
    pub client: String,
    pub peer: String,
    pub admin: String,
    pub forward: Option<String>,
    pub device: String,
    /// The present capability in KV bytes/s: the configured or measured value, after the
    /// correction. On a measured device that several stores use, it is this store's share. 1 if
    /// unknown.
    pub capability_bytes_per_s: f64,
    /// The factor within which the capability is known; 1 if configured, 0 if unknown.
    pub capability_spread: f64,
    /// Measured write bandwidth of the device in bytes/s; 0 if it was not measured.
    pub io_bytes_per_s: f64,
    /// The device's present time for a sync in microseconds; 0 if unknown.
    pub sync_us: f64,
    /// The factor on the configured or measured capability: 1 while the device performs as
    /// measured.
    pub correction: f64,
    /// The other stores on the device and on the host, ascending. Those on the host include those
    /// on the device.
    #[serde(default)]
    pub shares_device_with: Vec<u64>,
    #[serde(default)]
    pub shares_host_with: Vec<u64>,
    /// Weights that an administrator has pinned: the store's share of the data, in place of
    /// `capability_bytes_per_s`, and its rank for leaders.
    pub data_weight: Option<f64>,
    pub leader_weight: Option<f64>,
    pub leaders: usize,
    pub regions: usize,
    pub used_bytes: u64,
    pub capacity_bytes: u64,
    /// Bytes of committed entries that the store has not applied yet.
    pub unapplied_bytes: u64,
    /// True if those entries keep the store busy for so long that it gets no leaders.
    pub behind: bool,
    /// The store's wall clock minus the median of the stores' clocks (the lower one of two), as
    /// heard by the answering store. Absent if the store was not heard lately or no offset can be
    /// measured.
    #[serde(default)]
    pub clock_offset_ms: Option<i64>,
    /// True if the store reports that its clock is too far from the median. It then gets no
    /// leaders.
    #[serde(default)]
    pub clock_off: bool,
    /// Cores that the store may use, the busy share of them, whichever process uses them, and the
    /// cores that the store's process uses, over about 10 s. Absent if unknown.
    #[serde(default)]
    pub cpu_cores: Option<f64>,
    #[serde(default)]
    pub cpu_busy: Option<f64>,
    #[serde(default)]
    pub cpu_own_cores: Option<f64>,
    /// Commands answered per second, averaged over about the last 2 s.
    pub ops_per_s: f64,
    /// 99th percentile of command latency over about the last 2 s, microseconds.
    pub p99_us: u64,
    /// Number of the store's peers that are quarantined.
    #[serde(default)]
    pub quarantined: usize,
    /// Milliseconds since the answering store last heard this store.
    pub heard_ms_ago: Option<u64>,
}

/// A cluster setting that can be changed while the cluster runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigRow {
    pub name: String,
    pub value: String,
    /// The meaning of the value, for display.
    pub note: String,
}

/// The version of the cluster, and what a newer one waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsRow {
    pub version: u32,
    /// True if the version rises by itself.
    pub finishes: bool,
    pub stores: Vec<StoreVersionsRow>,
    /// The reason why a newer version waits, for display.
    pub note: String,
}

/// The versions of a store. They are `None` if the store does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreVersionsRow {
    pub store: u64,
    /// The newest version that its program supports.
    pub newest: Option<u32>,
    /// The version that its data directory records: an older program cannot start there.
    pub prepared: Option<u32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegionRow {
    pub id: u64,
    pub first_slot: Option<u16>,
    pub last_slot: Option<u16>,
    pub epoch_conf_version: u64,
    pub epoch_version: u64,
    /// True between two configurations.
    pub joint: bool,
    pub leader: Option<u64>,
    pub term: u64,
    pub peers: Vec<PeerRow>,
    pub keys: u64,
    pub bytes: u64,
    /// Operations per second.
    pub read_rate: f64,
    /// Reads per second that RAM could not answer.
    pub miss_rate: f64,
    pub write_rate: f64,
    /// Operations per second, averaged over minutes. Heat per byte decides how cold a region is.
    pub heat: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerRow {
    pub store: u64,
    /// The peer's id within the region, never used twice.
    pub id: u64,
    /// voter, learner, incoming or outgoing.
    pub role: String,
    /// Log entries behind the leader's commit index.
    pub lag: Option<u64>,
    /// The cause of the quarantine: entry, change, rows or damage.
    #[serde(default)]
    pub quarantined: Option<String>,
    /// True if its store reports that the peer takes no part, because it may have forgotten writes.
    #[serde(default)]
    pub unclean: bool,
}

/// A quarantined peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuarantineRow {
    pub region: u64,
    pub store: u64,
    /// The first entry of the region's log that it does not execute.
    pub index: u64,
    /// entry, change or rows.
    pub cause: String,
    /// True if its rows are served to connections that sent READONLY.
    pub read_only: bool,
    /// The command of the entry and the beginning of its key, or the check that found a difference.
    /// Empty where the store has many quarantined peers.
    pub what: String,
    pub error: String,
}

/// An operator's decision about a region's quarantined peers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case", deny_unknown_fields)]
pub enum QuarantineRequest {
    /// No peer executes the entry.
    Skip {
        index: u64,
        /// True if the entry is skipped even if a store with a peer does not answer.
        #[serde(default)]
        force: bool,
    },
    /// The entry is executed again: on one store, or on all.
    Retry { on: Option<u64> },
    /// Decides whether the rows are served to connections that sent READONLY.
    ReadOnly { read_only: bool },
    /// The peer on this store is removed, and made anew by a snapshot.
    Refill { from: u64 },
}

/// An entry that fails where it is executed, for tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailRequest {
    pub by_panic: bool,
    /// None: on every store.
    #[serde(default)]
    pub stores: Vec<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperatorRow {
    pub region: u64,
    pub kind: String,
    pub from: Option<u64>,
    pub to: Option<u64>,
    pub reason: String,
    /// The kind of the reason, such as `wait` or `data-levels`. Empty from a store of an older
    /// version.
    #[serde(default)]
    pub reason_kind: String,
    pub state: String,
    pub started_unix_ms: u64,
    pub finished_unix_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreStatus {
    pub store: u64,
    pub version: String,
    pub pid: u32,
    pub uptime_s: u64,
    pub cluster_enabled: bool,
    pub policy: String,
    pub fsync: String,
    /// Stage name -> microseconds: count, mean, p50, p99, max. Stages: log_sync, apply, command,
    /// groups_turn.
    pub stages: Vec<StageRow>,
    pub counters: Vec<(String, u64)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageRow {
    pub stage: String,
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeRow {
    pub store: u64,
    /// fio, direct or buffered.
    pub method: String,
    pub io_bytes_per_s: f64,
    pub sync_us: f64,
    pub read_us: f64,
    /// The capability of a store on this device.
    pub capability_bytes_per_s: f64,
    pub ops_per_s: f64,
    /// True if the store has a configured capability, which counts instead.
    pub told: bool,
    /// True if the result was stored and is the reference from now on.
    pub kept: bool,
    /// Commands per second that the store answered at the beginning of the probe.
    pub load_ops_per_s: f64,
}

/// The result of a check of one region's replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckRow {
    pub region: u64,
    /// The index of the region's log at which all checksums were computed.
    pub index: u64,
    /// equal, minority, no majority or incomplete.
    pub verdict: String,
    /// The stores whose peers differ from the majority.
    pub differing: Vec<u64>,
    pub stores: Vec<CheckedRow>,
    /// The same as text, with what to do.
    pub note: String,
}

/// One store's checksum of its peer's rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckedRow {
    pub store: u64,
    /// Sixteen hexadecimal digits, `unreadable`, `skipped` or `none`.
    pub checksum: String,
    pub rows: u64,
    pub bytes: u64,
}

/// A peer of the answering store that takes part again although it may have forgotten writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptedRow {
    pub store: u64,
    pub region: u64,
    pub peer: u64,
    /// The last index of its log. Entries that the peer acknowledged after it are lost if no other
    /// peer has them.
    pub last: u64,
}

/// A change of a region's peers or slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RegionRequest {
    AddPeer {
        to: u64,
    },
    RemovePeer {
        from: u64,
    },
    MovePeer {
        from: u64,
        to: u64,
    },
    Split,
    /// Ends the region. Its neighbour takes over its slots.
    Merge {
        into: u64,
    },
}

/// The changes of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case", deny_unknown_fields)]
pub enum StoreRequest {
    /// Moves the store's leaders and peers away, and then removes the store.
    Drain,
    /// Cancels a drain.
    Keep,
    /// Removes an empty store from the cluster.
    Remove,
    /// Pins weights that replace the measured ones. An absent weight is measured.
    Pin { data_weight: Option<f64>, leader_weight: Option<f64> },
}

/// An order to recover regions whose majority is lost for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoverRequest {
    /// The stores that never come back.
    pub lost: Vec<u64>,
    /// The regions to recover. An empty list means every region that lost its majority with those
    /// stores.
    #[serde(default)]
    pub regions: Vec<u64>,
    /// False if the request only asks for a plan.
    #[serde(default)]
    pub act: bool,
}

/// The plan of an order, and its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoverRow {
    pub plan: RecoveryPlan,
    /// The order's number, once it was carried out.
    pub order: Option<u64>,
    /// Regions that continue from a survivor's log and have a leader.
    pub recovered: Vec<u64>,
    pub failed: Vec<FailedRegion>,
    /// The lost stores. Each row says whether the store was removed from the list.
    pub struck: Vec<StruckStore>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedRegion {
    pub region: u64,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StruckStore {
    pub store: u64,
    /// The reason why it is still on the list of stores.
    pub not_struck: Option<String>,
}

/// The record of a region's recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoveryRow {
    pub region: u64,
    pub order: u64,
    pub at_unix_ms: u64,
    /// The store whose log counted.
    pub keeper: u64,
    pub lost: Vec<u64>,
    /// The last entry that a survivor knew to be committed, and the last one that was kept.
    pub committed: u64,
    pub last: u64,
}

/// The failure of an admin request, as an HTTP status and a sentence.
#[derive(Clone, Debug)]
pub struct AdminError {
    pub status: u16,
    pub message: String,
}

pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, AdminError>> + Send + 'a>>;

/// The store behind the endpoint. Every store answers for the whole cluster.
pub trait AdminBackend: Send + Sync + 'static {
    fn stores(&self) -> Answer<'_, Vec<StoreRow>>;
    fn regions(&self) -> Answer<'_, Vec<RegionRow>>;
    fn policy(&self) -> Answer<'_, String>;
    fn set_policy(&self, name: String) -> Answer<'_, ()>;
    fn config(&self) -> Answer<'_, Vec<ConfigRow>>;
    fn set_config(&self, name: String, value: String) -> Answer<'_, ()>;
    fn move_leader(&self, region: u64, to: u64) -> Answer<'_, ()>;
    fn change_region(&self, region: u64, change: RegionRequest) -> Answer<'_, ()>;
    fn change_store(&self, store: u64, change: StoreRequest) -> Answer<'_, ()>;
    /// Compares the replicas of a region, after they have read all of their rows.
    fn check(&self, region: u64) -> Answer<'_, CheckRow>;
    /// Returns the quarantined peers of all stores.
    fn quarantined(&self) -> Answer<'_, Vec<QuarantineRow>>;
    /// Carries out a decision about a region's quarantined peers.
    fn quarantine(&self, region: u64, request: QuarantineRequest) -> Answer<'_, ()>;
    /// Proposes an entry that fails where it is executed.
    fn fail(&self, region: u64, request: FailRequest) -> Answer<'_, ()>;
    /// Explains a region's placement, as text for display.
    fn explain(&self, region: u64) -> Answer<'_, String>;
    /// Explains a store's placement, as text for display.
    fn explain_store(&self, store: u64) -> Answer<'_, String>;
    fn operators(&self, history: bool) -> Answer<'_, Vec<OperatorRow>>;
    fn status(&self) -> Answer<'_, StoreStatus>;
    /// Slows this store's emulated device by a factor.
    fn slow_device(&self, factor: f64) -> Answer<'_, ()>;
    /// Measures this store's device again.
    fn probe(&self) -> Answer<'_, ProbeRow>;
    /// Makes this store's unclean peer of `region` take part again, although it may have forgotten
    /// writes when the machine crashed. `None` stands for all regions without a leader.
    fn accept_loss(&self, region: Option<u64>) -> Answer<'_, Vec<AcceptedRow>>;
    /// Plans the recovery of regions whose majority is lost for good, and carries it out.
    fn recover(&self, request: RecoverRequest) -> Answer<'_, RecoverRow>;
    /// Returns the recoveries that are on record in regions.
    fn recoveries(&self) -> Answer<'_, Vec<RecoveryRow>>;
    /// Returns the cluster's version, and the versions that its stores support.
    fn versions(&self) -> Answer<'_, VersionsRow>;
    /// Returns true if this store serves: it leads every region that it holds, or knows the leader.
    fn healthy(&self) -> bool;
    /// Returns the metrics as Prometheus text.
    fn metrics(&self) -> String;
}
