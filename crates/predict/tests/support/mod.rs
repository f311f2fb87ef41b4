//! Test clusters, configured like a small scale of the reproduction.
#![allow(dead_code)] // Each test binary uses a part of it.

use placement::{Capability, Spread};
use steelyard_predict::{Device, Load, Processors, Question, Store, Tuning, WriteBack};

/// A cluster of devices named by profile, such as `plain-ssd/80`, with 24 regions and three copies.
pub fn cluster(devices: &[&str]) -> Question {
    let stores: Vec<Store> = devices.iter().zip(0..).map(|(name, id)| store(id, name)).collect();
    Question {
        regions: Question::founded(&stores, 24, 3),
        replicas: stores.len().min(3),
        tuning: Tuning {
            memtable_bytes: 1 << 20,
            level_base_bytes: 4 << 20,
            table_file_bytes: 4 << 20,
            block_cache_bytes: 1 << 20,
            row_cache_bytes: 2 << 20,
            ..Tuning::default()
        },
        processors: Processors::default(),
        load: Load {
            records: 30_000,
            value_bytes: 1024,
            threads: 128,
            operations: 20_000,
            at_most_ns: 20_000_000_000,
            rest_at_most_ns: 60_000_000_000,
            warm_up: 0,
        },
        network_ns: 100_000,
        seed: 1,
        runs: 1,
        stores,
    }
}

pub fn store(id: u64, name: &str) -> Store {
    let profile: device::Profile = name.parse().unwrap();
    Store {
        id,
        device_name: name.to_owned(),
        device: Device {
            write_bytes_per_s: profile.write_bytes_per_s,
            read_bytes_per_s: profile.read_bytes_per_s,
            sync_ns: profile.sync_latency.as_nanos() as u64,
            read_ns: profile.read_latency.as_nanos() as u64,
            cache: profile.cache.as_ref().map(|cache| WriteBack {
                bytes: cache.bytes,
                write_bytes_per_s: cache.write_bytes_per_s,
                read_bytes_per_s: cache.read_bytes_per_s,
                sync_ns: cache.sync_latency.as_nanos() as u64,
                read_ns: cache.read_latency.as_nanos() as u64,
            }),
            sharing_milli: (profile.sharing * 1000.0) as u64,
        },
        // Only the order of the devices and their approximate ratios matter.
        capability: Capability {
            kv_bytes_per_s: profile.write_bytes_per_s as f64 / 8.0,
            ops_per_s: profile.read_bytes_per_s as f64 / 8192.0,
        },
        spread: Spread::EXACT,
        capacity_bytes: 0,
        data_weight: None,
        leader_weight: None,
        leaving: false,
    }
}

pub const UNEQUAL: [&str; 6] =
    ["nvm/80", "high-end-ssd/80", "high-end-ssd/80", "plain-ssd/80", "plain-ssd/80", "plain-ssd/80"];
pub const EQUAL: [&str; 6] = ["plain-ssd/80"; 6];
