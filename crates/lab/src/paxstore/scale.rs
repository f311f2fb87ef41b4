//! The sizes and times of a reproduction.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    pub name: String,
    /// Sizes of a record in bytes, ascending.
    pub sizes: Vec<u64>,
    /// Number of synchronous writes of the log at each size (figure 5.1).
    pub log_writes: u64,
    /// Duration of a measurement under load, and of the load before it.
    pub window_ms: u64,
    pub warmup_ms: u64,
    /// Numbers of ranges (figure 5.4), and of inserts by each client.
    pub ranges: Vec<u64>,
    pub inserts_per_client: u64,
    /// Number of records that a follower recovers (figure 5.5).
    pub recovered: u64,
    /// Number of records that are read at random (figure 5.6).
    pub read: u64,
    /// Number of leaders killed in a round, for each way of election.
    pub kills: usize,
}

impl Scale {
    pub const NAMES: [&'static str; 3] = ["smoke", "quick", "full"];

    /// Returns a scale and its number of rounds.
    pub fn named(name: &str) -> Result<(Scale, usize), String> {
        let all = vec![512, 1024, 2048, 4096, 8192];
        let three = vec![512, 2048, 8192];
        let scale = |sizes: Vec<u64>, log_writes, window_ms, warmup_ms| Scale {
            name: name.to_owned(),
            sizes,
            log_writes,
            window_ms,
            warmup_ms,
            ranges: vec![1, 2, 4, 8],
            inserts_per_client: 100,
            recovered: 10_000,
            read: 500_000,
            kills: 10,
        };
        match name {
            "smoke" => Ok((
                Scale {
                    ranges: vec![1, 2],
                    inserts_per_client: 10,
                    recovered: 500,
                    read: 2_000,
                    kills: 1,
                    ..scale(vec![512, 8192], 200, 300, 100)
                },
                1,
            )),
            "quick" => Ok((
                Scale { inserts_per_client: 30, read: 50_000, kills: 3, ..scale(three, 2_000, 1_000, 300) },
                3,
            )),
            "full" => Ok((scale(all, 10_000, 3_000, 1_000), 3)),
            _ => Err(format!("there is no scale '{name}'; the scales are {}", Scale::NAMES.join(", "))),
        }
    }
}
