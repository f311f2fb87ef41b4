//! The output of a prediction.

use placement::Policy;
use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use crate::Workload;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub policy: Policy,
    pub phases: Vec<Phase>,
    /// The layout at the end of the last workload.
    pub layout: Vec<Placed>,
    pub stores: Vec<Holding>,
    /// The number of operators begun in the whole run.
    pub moves: u64,
}

impl Prediction {
    pub fn phase(&self, workload: Workload) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.workload == workload)
    }
}

/// The results of one workload. If there are several runs, the rate and the latencies are medians,
/// each on its own, and the other fields are those of the run whose rate is nearest to the median.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    pub workload: Workload,
    pub operations: u64,
    pub seconds: f64,
    pub ops_per_s: f64,
    /// The rates of the slowest and of the fastest run.
    pub least_ops_per_s: f64,
    pub most_ops_per_s: f64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// The number of operators begun during the workload.
    pub moves: u64,
    pub stores: Vec<Use>,
    /// The share of all CPUs that is busy if stores share them, and of the busiest store's CPUs
    /// otherwise.
    pub cpu_share: f64,
    /// The resources that were in use almost all the time.
    pub bound_by: Vec<String>,
}

/// The use of one store's resources during a phase: shares of the time that its device and apply
/// thread were busy, and bytes by their cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Use {
    pub store: StoreId,
    pub write_share: f64,
    pub read_share: f64,
    pub sync_share: f64,
    /// The share of the apply thread, by CPU time alone.
    pub apply_share: f64,
    /// Syncs of the device for any purpose, and log batches, each of which waited for one sync.
    pub flushes: u64,
    pub log_batches: u64,
    pub log_bytes: u64,
    pub rows_bytes: u64,
    pub compaction_bytes: u64,
    /// The share of reads that found their row in RAM.
    pub hit_share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    pub region: RegionId,
    pub leader: StoreId,
    /// Sorted, including the leader.
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

/// The share of its time above which a busy resource counts as the bottleneck.
pub(crate) const BOUND: f64 = 0.85;
