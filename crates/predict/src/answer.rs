//! What is predicted.

use placement::Policy;
use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use crate::Workload;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub policy: Policy,
    pub phases: Vec<Phase>,
    /// As it is when the last workload ends.
    pub layout: Vec<Placed>,
    pub stores: Vec<Holding>,
    /// Operators begun from the cluster's start to its end.
    pub moves: u64,
}

impl Prediction {
    pub fn phase(&self, workload: Workload) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.workload == workload)
    }
}

/// One workload. Of several runs: rate and latencies are medians, each by itself, and the rest is of the run whose
/// rate is nearest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    pub workload: Workload,
    pub operations: u64,
    pub seconds: f64,
    pub ops_per_s: f64,
    /// Of the slowest run and of the fastest.
    pub least_ops_per_s: f64,
    pub most_ops_per_s: f64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Operators begun in it.
    pub moves: u64,
    pub stores: Vec<Use>,
    /// Of all CPUs, where stores share them; of the busiest store's else.
    pub cpu_share: f64,
    /// What was in use nearly all the time.
    pub bound_by: Vec<String>,
}

/// Parts of a phase's time that a store's device and its apply thread were in use, and bytes by their cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Use {
    pub store: StoreId,
    pub write_share: f64,
    pub read_share: f64,
    pub sync_share: f64,
    /// Of the apply thread, by CPU time alone.
    pub apply_share: f64,
    /// Of the device, for whatever was synced; and log batches, each of which waited for one.
    pub flushes: u64,
    pub log_batches: u64,
    pub log_bytes: u64,
    pub rows_bytes: u64,
    pub compaction_bytes: u64,
    /// Reads that found their row in RAM.
    pub hit_share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    pub region: RegionId,
    pub leader: StoreId,
    /// The leader's among them, sorted.
    pub peers: Vec<StoreId>,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holding {
    pub store: StoreId,
    pub device: String,
    pub leaders: usize,
    pub peers: usize,
    pub bytes: u64,
}

/// Above this a resource has no time left to speak of.
pub(crate) const BOUND: f64 = 0.85;
