//! The input of a prediction: stores, regions, the configuration of a store, and the load.

use std::fmt;
use std::str::FromStr;

use placement::{Capability, Spread};
use serde::{Deserialize, Serialize};
use types::{RegionId, SlotRange, StoreId};

use crate::Device;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Inserts every record once.
    Load,
    /// Half reads, half updates.
    A,
    /// 95% reads, 5% updates.
    B,
    /// Reads only.
    C,
    /// This percentage of reads and the rest updates: the mix seen in a running cluster.
    Mixed(u8),
}

impl Workload {
    /// Returns the percentage of reads, or `None` if the workload inserts.
    pub fn read_percent(self) -> Option<u64> {
        match self {
            Workload::Load => None,
            Workload::A => Some(50),
            Workload::B => Some(95),
            Workload::C => Some(100),
            Workload::Mixed(reads) => Some(u64::from(reads.min(100))),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Load => f.write_str("Load"),
            Workload::A => f.write_str("A"),
            Workload::B => f.write_str("B"),
            Workload::C => f.write_str("C"),
            Workload::Mixed(reads) => write!(f, "{reads}% reads"),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        match text.to_ascii_lowercase().as_str() {
            "load" => Ok(Workload::Load),
            "a" => Ok(Workload::A),
            "b" => Ok(Workload::B),
            "c" => Ok(Workload::C),
            _ => Err(format!("'{text}' is no workload that can be predicted: load, a, b, c")),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    pub id: StoreId,
    /// Shown to people; has no effect.
    pub device_name: String,
    pub device: Device,
    /// The capability that placement sees.
    pub capability: Capability,
    /// The uncertainty of the capability, by which placement distinguishes stores.
    pub spread: Spread,
    /// Maximum live user bytes. 0: unlimited.
    pub capacity_bytes: u64,
    pub data_weight: Option<f64>,
    pub leader_weight: Option<f64>,
    /// The store's leaders and peers move away before anything is measured.
    pub leaving: bool,
}

/// A region in its initial state.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    pub id: RegionId,
    pub slots: SlotRange,
    pub leader: StoreId,
    pub peers: Vec<StoreId>,
    /// Live bytes that the region holds at the start.
    pub bytes: u64,
    /// The region's share of all operations, relative to the weights of the other regions. `None`:
    /// as its keys are asked for.
    pub weight: Option<f64>,
}

/// The configuration of every store: the settings of RocksDB and of the store that affect the
/// device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    pub memtable_bytes: u64,
    pub memtables: usize,
    pub level0_trigger: usize,
    pub level0_slowdown: usize,
    pub level0_stop: usize,
    pub level_base_bytes: u64,
    pub level_multiplier: u64,
    pub table_file_bytes: u64,
    pub block_bytes: u64,
    pub block_cache_bytes: u64,
    pub row_cache_bytes: u64,
    /// Maximum number of concurrent row reads in an apply turn (the number of threads in
    /// `server::readers`). 1: one after the other.
    pub apply_reads: usize,
    /// Factor for the latency of syncs by flushes, compactions and copies, and for the time between
    /// two planning rounds. It is below 1 if table files and regions are smaller than in reality:
    /// what happens once for each of them then happens more often by the same factor.
    pub background_sync_part: f64,
}

impl Default for Tuning {
    /// `rocks::Options::default()`, which an unconfigured store uses, and a row cache of 64 MiB.
    fn default() -> Tuning {
        Tuning {
            memtable_bytes: 64 << 20,
            memtables: 4,
            level0_trigger: 4,
            level0_slowdown: 20,
            level0_stop: 36,
            level_base_bytes: 256 << 20,
            level_multiplier: 10,
            table_file_bytes: 64 << 20,
            block_bytes: 8 << 10,
            block_cache_bytes: 128 << 20,
            row_cache_bytes: 64 << 20,
            apply_reads: 16,
            background_sync_part: 1.0,
        }
    }
}

impl Tuning {
    /// Returns the bytes that a read of one row takes from the device. A block ends before the row
    /// that would exceed its size if it is more than nine tenths full by then, and otherwise after
    /// that row (RocksDB 7.8, `FlushBlockBySizePolicy` with a `block_size_deviation` of 10).
    pub(crate) fn block_read_bytes(&self, row_bytes: u64) -> u64 {
        let row = row_bytes.max(1);
        let held = self.block_bytes / row * row;
        if held > self.block_bytes - self.block_bytes / 10 {
            held
        } else {
            held + row
        }
    }

    /// Returns a copy in which every size that grows with the data is multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Tuning {
        let size = |bytes: u64, least: u64| ((bytes as f64 * factor) as u64).max(least);
        Tuning {
            memtable_bytes: size(self.memtable_bytes, 128 << 10),
            level_base_bytes: size(self.level_base_bytes, 512 << 10),
            table_file_bytes: size(self.table_file_bytes, 128 << 10),
            block_cache_bytes: size(self.block_cache_bytes, 0),
            row_cache_bytes: size(self.row_cache_bytes, 0),
            background_sync_part: self.background_sync_part * factor,
            ..self.clone()
        }
    }
}

/// The CPU cost of operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Processors {
    /// CPUs of each store. With `shared`, CPUs of all stores and the client together.
    pub cpus: usize,
    pub shared: bool,
    /// CPU time of a read, which also applies to a row that an update replaces; of a write in the
    /// leader's store; of a write in each other store of the region.
    pub read_ns: u64,
    pub lead_ns: u64,
    pub follow_ns: u64,
    /// CPU time of an operation in the client. Counts only if CPUs are shared.
    pub client_ns: u64,
    /// The number of CPUs that are busy without load, among those of a store or those that all
    /// share.
    pub idle: f64,
}

impl Default for Processors {
    /// From docs/PERFORMANCE.md, one store next to Redis at pipeline 1: 50.9 us of CPU for a SET,
    /// 12.2 us for a GET. Three stores took 160 us for an insert, so a follower takes about as much
    /// as the leader.
    fn default() -> Processors {
        Processors {
            cpus: 8,
            shared: false,
            read_ns: 12_200,
            lead_ns: 50_900,
            follow_ns: 50_900,
            client_ns: 0,
            idle: 0.0,
        }
    }
}

/// CPU time per command of the apply thread, of which a store has one: 16.7 us at pipeline 1
/// (docs/PERFORMANCE.md).
pub(crate) const APPLY_NS: u64 = 16_700;

#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    pub records: u64,
    pub value_bytes: u64,
    /// Threads that each wait for their answer before they send the next operation.
    pub threads: usize,
    /// A workload ends after this number of operations or this time. `Load` ends with its last
    /// record.
    pub operations: u64,
    pub at_most_ns: u64,
    /// Maximum time after a workload for which the cluster may come to rest before the next
    /// workload begins.
    pub rest_at_most_ns: u64,
    /// Operations before those that are counted, for caches that begin empty.
    pub warm_up: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Sorted by id, without duplicates.
    pub stores: Vec<Store>,
    /// Sorted by id, without duplicates. Together they cover all slots.
    pub regions: Vec<Region>,
    pub replicas: usize,
    pub tuning: Tuning,
    pub processors: Processors,
    pub load: Load,
    /// Latency of a message from a store or client to another, one way.
    pub network_ns: u64,
    pub seed: u64,
    /// The number of simulations, each with the next seed. The result is their median.
    pub runs: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PredictError {
    #[error("there is no store")]
    NoStores,
    #[error("there is no region")]
    NoRegions,
    #[error("region {0} names store {1}, which is not among the stores")]
    UnknownStore(RegionId, StoreId),
    #[error("region {0} has no leader among its peers")]
    NoLeader(RegionId),
    #[error("the regions do not cover slot {0}")]
    Uncovered(u16),
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error("more than {0} records cannot be simulated one by one: scale the data down")]
    TooManyRecords(u64),
    #[error("store {store} cannot go: region {region} has nowhere else to be")]
    Stays { store: StoreId, region: RegionId },
    #[error("policy {policy} still plans operators after {rounds} rounds")]
    Restless { policy: placement::Policy, rounds: usize },
}

/// Maximum number of records. Each takes a few bytes of memory per store.
pub const RECORDS_MAX: u64 = 4_000_000;

impl Question {
    /// Returns the regions with which a cluster of these stores begins, computed by the same code
    /// that stores use.
    pub fn founded(stores: &[Store], regions: u16, replicas: usize) -> Vec<Region> {
        let layout = cluster::Layout {
            stores: stores.iter().map(|store| store.id).collect(),
            regions,
            replicas: replicas.min(stores.len()),
        };
        let plan = cluster::bootstrap_plan(&layout);
        let leaders = cluster::first_leaders(&plan);
        let user = plan.iter().filter_map(|region| Some((region, region.slots?)));
        user.map(|(region, slots)| Region {
            id: region.id,
            slots,
            leader: leaders[&region.id],
            peers: region.voters().collect(),
            bytes: 0,
            weight: None,
        })
        .collect()
    }

    pub(crate) fn check(&self) -> Result<(), PredictError> {
        if self.stores.is_empty() {
            return Err(PredictError::NoStores);
        }
        if self.regions.is_empty() {
            return Err(PredictError::NoRegions);
        }
        for region in &self.regions {
            for peer in &region.peers {
                if !self.stores.iter().any(|store| store.id == *peer) {
                    return Err(PredictError::UnknownStore(region.id, *peer));
                }
            }
            if !region.peers.contains(&region.leader) {
                return Err(PredictError::NoLeader(region.id));
            }
        }
        let covers = |slot: u16| self.regions.iter().any(|region| region.slots.contains(slot));
        if let Some(slot) = (0..types::SLOT_COUNT).find(|slot| !covers(*slot)) {
            return Err(PredictError::Uncovered(slot));
        }
        for (count, name) in [
            (self.load.records, "the number of records"),
            (self.load.threads as u64, "the number of threads"),
            (self.load.operations, "the number of operations"),
            (self.tuning.memtable_bytes, "the size of a memtable"),
            (self.tuning.level0_trigger as u64, "the compaction trigger of level 0"),
            (self.tuning.level_multiplier, "the size multiplier of the levels"),
            (self.tuning.apply_reads as u64, "the number of concurrent reads of an apply turn"),
            (self.processors.cpus as u64, "the number of CPUs"),
            (self.runs, "the number of runs"),
        ] {
            if count == 0 {
                return Err(PredictError::Zero(name));
            }
        }
        if self.load.records > RECORDS_MAX {
            return Err(PredictError::TooManyRecords(RECORDS_MAX));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ends_before_a_row_that_does_not_fit_or_behind_it() {
        let tuning = Tuning { block_bytes: 8192, ..Tuning::default() };
        assert_eq!(tuning.block_read_bytes(1084), 7 * 1084, "seven rows are 93% of it");
        assert_eq!(tuning.block_read_bytes(1500), 5 * 1500, "five are 92%");
        assert_eq!(tuning.block_read_bytes(3000), 3 * 3000, "two are 73%");
        assert_eq!(tuning.block_read_bytes(100_000), 100_000);
    }
}
