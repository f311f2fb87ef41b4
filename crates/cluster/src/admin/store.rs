//! Operations on one store, and on the list of stores.

use serde::{Deserialize, Serialize};

use super::{Method, Operation};

/// Asks for the stores of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoresQuery {}

impl Operation for StoresQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/stores";
    type Of = ();
    type Reply = Vec<StoreRow>;
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoreRow {
    pub id: u64,
    pub state: String,
    pub client: String,
    pub peer: String,
    pub admin: String,
    pub forward: Option<String>,
    /// The protection of its connections with other stores: `tls`, `loopback` without TLS, or
    /// `insecure`: without TLS over a network.
    #[serde(default)]
    pub peer_traffic: String,
    pub device: String,
    /// The present capability in KV bytes/s: the configured or measured value after the correction.
    /// On a measured device that several stores use, it is this store's share. 1 if unknown.
    pub capability_bytes_per_s: f64,
    /// The factor within which the capability is known; 1 if configured, 0 if unknown.
    pub capability_spread: f64,
    /// Measured write bandwidth of the device in bytes/s; 0 if it was not measured.
    pub io_bytes_per_s: f64,
    /// The device's present time for a sync in microseconds; 0 if unknown.
    pub sync_us: f64,
    /// The factor applied to the configured or measured capability: 1 while the device performs as
    /// measured.
    pub correction: f64,
    /// The other stores on the device and on the host, ascending. Those on the host include those
    /// on the device.
    #[serde(default)]
    pub shares_device_with: Vec<u64>,
    #[serde(default)]
    pub shares_host_with: Vec<u64>,
    /// Weights that an administrator has pinned: the store's share of the data, which replaces
    /// `capability_bytes_per_s`, and its rank for leaders.
    pub data_weight: Option<f64>,
    pub leader_weight: Option<f64>,
    pub leaders: usize,
    pub regions: usize,
    pub used_bytes: u64,
    pub capacity_bytes: u64,
    /// Bytes of committed entries that the store has not applied yet.
    pub unapplied_bytes: u64,
    /// True if those entries would keep the store busy for so long that it gets no leaders.
    pub behind: bool,
    /// The store's wall clock minus the median of the stores' clocks (the lower middle one for an
    /// even number), as seen by the answering store. Absent if no recent heartbeat of the store
    /// arrived or no offset can be measured.
    #[serde(default)]
    pub clock_offset_ms: Option<i64>,
    /// True if the store reports that its clock is too far from the median. It then gets no
    /// leaders.
    #[serde(default)]
    pub clock_off: bool,
    /// Three values, averaged over about 10 s and absent if unknown: the cores that the store may
    /// use, the busy share of them across all processes, and the cores that the store's process
    /// uses.
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
    /// Milliseconds since the last heartbeat from this store reached the answering store.
    pub heard_ms_ago: Option<u64>,
}

/// Changes a store: `{"change": "drain"}`.
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

impl Operation for StoreRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/stores/{id}/change";
    const CHANGE: &'static str = "store";
    type Of = u64;
    type Reply = StoreRequest;
}

/// Asks for the reasons of a store's placement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainStoreQuery {}

impl Operation for ExplainStoreQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/stores/{id}/explain";
    type Of = u64;
    type Reply = ExplainStoreRow;
}

/// A store's placement, as text for display.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainStoreRow {
    pub explanation: String,
    pub store: u64,
}

/// Asks for the answering store's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusQuery {}

impl Operation for StatusQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/status";
    type Of = ();
    type Reply = StoreStatus;
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreStatus {
    pub store: u64,
    pub version: String,
    /// The cluster's version, as the store knows it: 0 from a program of an earlier version.
    #[serde(default)]
    pub cluster_version: u32,
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

/// Slows the answering store's emulated device by a factor: `{"slow": 10}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRequest {
    pub slow: f64,
}

impl Operation for DeviceRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/device";
    const CHANGE: &'static str = "device";
    type Of = ();
    type Reply = DeviceRequest;

    fn refusal(&self) -> Option<&'static str> {
        let is_factor = self.slow.is_finite() && self.slow > 0.0;
        let text = "slow is a factor above 0: 10 is ten times slower, 1 is the profile's own speed";
        (!is_factor).then_some(text)
    }
}

/// Measures the answering store's device again, which takes some seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeRequest {}

impl Operation for ProbeRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/probe";
    const CHANGE: &'static str = "probe";
    type Of = ();
    type Reply = ProbeRow;
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
    /// True if the store has a configured capability, which takes precedence.
    pub told: bool,
    /// True if the result was stored and is the reference from now on.
    pub kept: bool,
    /// Commands per second that the store answered at the beginning of the probe.
    pub load_ops_per_s: f64,
}

/// Lets the answering store's unclean peer of a region take part again, although it may have lost
/// writes when the machine crashed. Without a region it accepts the loss for all regions that have
/// no leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptLossRequest {
    #[serde(default)]
    pub region: Option<u64>,
}

impl Operation for AcceptLossRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/accept-loss";
    const CHANGE: &'static str = "accept-loss";
    type Of = ();
    type Reply = Vec<AcceptedRow>;
}

/// A peer of the answering store that takes part again although it may have lost writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptedRow {
    pub store: u64,
    pub region: u64,
    pub peer: u64,
    /// The last index of its log. Later entries that the peer acknowledged are lost if no other
    /// peer has them.
    pub last: u64,
}
