//! What is asked: stores, regions, how a store is set up, and the load.

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
    /// Reads.
    C,
    /// So many reads in a hundred, the others updates: what a running cluster was seen to do.
    Mixed(u8),
}

impl Workload {
    /// `None`: it inserts.
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
    /// For people.
    pub device_name: String,
    pub device: Device,
    /// What placement is told that the store can do.
    pub capability: Capability,
    /// How sure that is, by which placement tells stores apart.
    pub spread: Spread,
    /// Live user bytes; 0: as much as comes.
    pub capacity_bytes: u64,
    pub data_weight: Option<f64>,
    pub leader_weight: Option<f64>,
    /// Its leaders and peers are to go elsewhere before anything is measured.
    pub leaving: bool,
}

/// A region as it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    pub id: RegionId,
    pub slots: SlotRange,
    pub leader: StoreId,
    pub peers: Vec<StoreId>,
    /// What it holds at the start.
    pub bytes: u64,
    /// Its part of all operations, against the other regions' weights; `None`: as its keys are asked for.
    pub weight: Option<f64>,
}

/// How every store is set up: the knobs of RocksDB and of the store that decide what reaches the device.
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
    /// Reads of rows that an apply turn keeps under way at once (`server::readers` has so many threads); 1: one
    /// after the other.
    pub apply_reads: usize,
    /// Of the latency of a sync that a flush, a compaction or a copy makes, and of the time between two rounds of
    /// planning. Below 1 where table files and regions are smaller than in truth: what comes once for each of
    /// them comes as much more often.
    pub background_sync_part: f64,
}

impl Default for Tuning {
    /// `rocks::Options::default()`, which a store has when nothing is configured, and a row cache of 64 MiB.
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
    /// What a read of one row brings from the device: a block ends before the row that would take it beyond its
    /// size, if it is more than nine tenths full by then, and else behind it (RocksDB 7.8,
    /// `FlushBlockBySizePolicy` with a `block_size_deviation` of 10).
    pub(crate) fn block_read_bytes(&self, row_bytes: u64) -> u64 {
        let row = row_bytes.max(1);
        let held = self.block_bytes / row * row;
        if held > self.block_bytes - self.block_bytes / 10 {
            held
        } else {
            held + row
        }
    }

    /// Every size that grows with the data, by one factor.
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

/// What operations cost beside the devices' time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Processors {
    /// CPUs of each store; with `shared`, of all stores and the client together.
    pub cpus: usize,
    pub shared: bool,
    /// CPU time of a read, also of a row that an update replaces; of a write by the leader's store; of a write by each other store of its region.
    pub read_ns: u64,
    pub lead_ns: u64,
    pub follow_ns: u64,
    /// CPU time that the client takes for an operation; counts where CPUs are shared.
    pub client_ns: u64,
    /// CPUs that are busy when nothing is asked, of those that a store has, or that all share.
    pub idle: f64,
}

impl Default for Processors {
    /// By docs/PERFORMANCE.md, one store beside Redis at pipeline 1: 50.9 us of CPU for a SET, 12.2 us for a
    /// GET; three stores took 160 us for an insert, so a follower takes what is left.
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

/// A store applies with one thread: 16.7 us for a command at pipeline 1 (docs/PERFORMANCE.md).
pub(crate) const APPLY_NS: u64 = 16_700;

#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    pub records: u64,
    pub value_bytes: u64,
    /// Threads that each wait for their answer.
    pub threads: usize,
    /// A workload ends after so many operations, or after this long; `Load` with its last record.
    pub operations: u64,
    pub at_most_ns: u64,
    /// After a workload nothing is asked until all is at rest, and no longer than this.
    pub rest_at_most_ns: u64,
    /// Operations that are made before those that are counted; for caches that begin empty.
    pub warm_up: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Sorted by id, none twice.
    pub stores: Vec<Store>,
    /// Sorted by id, none twice; their slots are all slots.
    pub regions: Vec<Region>,
    pub replicas: usize,
    pub tuning: Tuning,
    pub processors: Processors,
    pub load: Load,
    /// From one store or client to another, one way.
    pub network_ns: u64,
    pub seed: u64,
    /// Simulated so often, each time from the next seed; what is told is the median.
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
    #[error("{policy} does not come to rest within {rounds} rounds")]
    Restless { policy: placement::Policy, rounds: usize },
}

/// Memory: a few bytes for each record on each store.
pub const RECORDS_MAX: u64 = 4_000_000;

impl Question {
    /// The regions with which a cluster of these stores begins, as the stores themselves compute it.
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
            (self.tuning.memtable_bytes, "a memtable's size"),
            (self.tuning.level0_trigger as u64, "level 0's trigger"),
            (self.tuning.level_multiplier, "the levels' multiplier"),
            (self.tuning.apply_reads as u64, "the number of reads of an apply turn"),
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
