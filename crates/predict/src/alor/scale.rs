//! The scale of a reproduction. One factor shrinks all sizes that depend on data, and another slows
//! every device. The report states both.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// ALOR §4.1 and §4.2: 10 GB of values of 1 KB under keys of 16 bytes, over six stores.
const PAPER_RECORDS: f64 = 10_000_000.0;
const PAPER_STORES: f64 = 6.0;
/// Capacity of each store in bytes. With three copies of 10 GB the paper's six stores were exactly
/// full.
const PAPER_CAPACITY_BYTES: f64 = 5e9;

/// Sizes of a store before the data factor applies, in bytes. Memtables and levels have the default
/// sizes of TiKV, which the paper ran. Caches have the default sizes of our stores.
const MEMTABLE_BYTES: f64 = 134_217_728.0;
const LEVEL_BASE_BYTES: f64 = 536_870_912.0;
const BLOCK_CACHE_BYTES: f64 = 134_217_728.0;
const ROW_CACHE_BYTES: f64 = 268_435_456.0;
/// The size of table files is TiKV's and is not scaled. A table file costs a few syncs whatever its
/// size, and syncs are slowed like the device. With files that shrink with the data, compaction
/// would wait for syncs instead of bandwidth.
const TABLE_FILE_BYTES: u64 = 8 << 20;

/// Raft's tick in milliseconds at full speed, which is a store's default. The tick grows with the
/// slowness of the devices, but by a twentieth as much. A cluster whose disks are a hundred times
/// slower must not hold extra elections, and it must still notice the loss of a leader within a
/// run.
const RAFT_TICK_MS: f64 = 50.0;
const TICK_SHARE_OF_SLOWNESS: f64 = 20.0;
/// Maximum time in milliseconds that a command may wait. It is long, so that a slow write shows as
/// a latency and not as a failure.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    pub name: String,
    /// The factor for the data, memtables, level sizes and caches.
    pub data_factor: f64,
    /// The factor for every device's bandwidth. Latencies are divided by it.
    pub device_speed: f64,
    pub runs: usize,
    /// The number of closed-loop threads of the load.
    pub threads: usize,
    pub regions: u16,
    /// Maximum duration in seconds of each workload after `Load`.
    pub phase_at_most_s: u64,
    /// Maximum time in seconds that each workload but the first waits for the cluster to come to
    /// rest.
    pub settle_at_most_s: u64,
    /// A store's capacity as a multiple of the paper's capacity times the data factor. 0 for no
    /// limit.
    pub capacity_headroom: f64,
}

/// The paper's own set-up has no headroom. Here, overwritten data takes room until it is compacted:
/// with less headroom, even distribution would exceed the threshold and shed data.
const CAPACITY_HEADROOM: f64 = 1.25;

impl Scale {
    pub const NAMES: [&'static str; 4] = ["smoke", "quick", "full", "overnight"];

    pub fn named(name: &str) -> Result<Scale, String> {
        let (data, slowness, runs, phase_at_most_s, settle_at_most_s) = match name {
            "smoke" => (640.0, 80.0, 1, 4, 5),
            "quick" => (160.0, 160.0, 3, 30, 60),
            "full" => (128.0, 160.0, 3, 60, 90),
            "overnight" => (48.0, 160.0, 3, 120, 180),
            other => return Err(format!("'{other}' is no scale: use {}", Scale::NAMES.join(", "))),
        };
        Ok(Scale {
            name: name.to_owned(),
            data_factor: 1.0 / data,
            device_speed: 1.0 / slowness,
            runs,
            threads: 256,
            regions: 24,
            phase_at_most_s,
            settle_at_most_s,
            capacity_headroom: CAPACITY_HEADROOM,
        })
    }

    /// Returns true if the scale has enough runs for claims. A smaller scale only shows that
    /// everything works.
    pub fn makes_claims(&self) -> bool {
        self.runs >= 3
    }

    /// Returns the number of records that gives each store as much data as in the paper, by the
    /// data factor.
    pub fn records(&self, stores: usize) -> u64 {
        self.records_of(stores as f64 / PAPER_STORES)
    }

    /// Returns the number of records in a part of the paper's 10 GB, by the data factor.
    pub fn records_of(&self, part: f64) -> u64 {
        (PAPER_RECORDS * self.data_factor * part).round() as u64
    }

    pub fn phase_at_most(&self) -> Duration {
        Duration::from_secs(self.phase_at_most_s)
    }

    pub fn raft_tick_ms(&self) -> u64 {
        (RAFT_TICK_MS / (self.device_speed * TICK_SHARE_OF_SLOWNESS)).clamp(RAFT_TICK_MS, 1000.0) as u64
    }

    pub fn settle_at_most(&self) -> Duration {
        Duration::from_secs(self.settle_at_most_s)
    }

    /// Returns the bytes of live user data that each store may hold. `None` for as much as its file
    /// system holds.
    pub fn capacity_bytes(&self) -> Option<u64> {
        let bytes = PAPER_CAPACITY_BYTES * self.data_factor * self.capacity_headroom;
        (self.capacity_headroom > 0.0).then_some(bytes.round() as u64)
    }

    fn scaled(&self, bytes: f64, least: f64) -> u64 {
        (bytes * self.data_factor).max(least) as u64
    }

    /// Returns RocksDB's options by name, and the size of the row cache in front of it.
    pub fn store_options(&self) -> Vec<(&'static str, u64)> {
        const KIB: f64 = 1024.0;
        vec![
            ("write_buffer_size", self.scaled(MEMTABLE_BYTES, 128.0 * KIB)),
            ("max_bytes_for_level_base", self.scaled(LEVEL_BASE_BYTES, 512.0 * KIB)),
            ("block_cache_size", self.scaled(BLOCK_CACHE_BYTES, 256.0 * KIB)),
            ("row_cache_bytes", self.scaled(ROW_CACHE_BYTES, 256.0 * KIB)),
            ("target_file_size_base", TABLE_FILE_BYTES),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_in_proportion_to_stores() {
        let quick = Scale::named("quick").unwrap();
        assert_eq!((quick.records(6), quick.records(4)), (62_500, 41_667));
        let options = Scale::named("full").unwrap().store_options();
        assert_eq!(options[0], ("write_buffer_size", 1 << 20));
        assert!(options.iter().any(|(name, bytes)| *name == "row_cache_bytes" && *bytes == 2 << 20));
        assert!(Scale::named("huge").is_err());
    }

    /// Three copies of the data on six stores alone fill none of them.
    #[test]
    fn capacity_is_the_papers_by_data_factor_and_headroom() {
        let quick = Scale::named("quick").unwrap();
        assert_eq!(quick.capacity_bytes(), Some(39_062_500));
        let even = quick.records(6) * (1024 + 16) / 2;
        assert!((0.80..0.90).contains(&(even as f64 / 39_062_500.0)), "{even}");
        assert_eq!(Scale { capacity_headroom: 0.0, ..quick }.capacity_bytes(), None);
    }

    #[test]
    fn rafts_clock_slows_with_the_devices() {
        let tick = |device_speed| Scale { device_speed, ..Scale::named("quick").unwrap() }.raft_tick_ms();
        assert_eq!([1.0, 0.1, 0.0125, 0.00625, 0.0001].map(tick), [50, 50, 200, 400, 1000]);
    }

    /// Each of six stores holds half of the records, with three copies. A memtable must be a small
    /// part of that. Otherwise nothing compacts.
    #[test]
    fn every_scale_fills_many_memtables() {
        for name in Scale::NAMES {
            let scale = Scale::named(name).unwrap();
            let per_store = scale.records(6) * 1024 / 2;
            let memtable = scale.store_options()[0].1;
            assert!(per_store / memtable > 30, "{name}: {}", per_store / memtable);
            assert_eq!(scale.makes_claims(), name != "smoke");
        }
    }
}
