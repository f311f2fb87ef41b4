//! Sizes and numbers of rounds.

use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The sizes of a reproduction. The paper has 50 million rows of 1 KB and a memtable budget of 128
/// MB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    pub name: String,
    pub rows: u64,
    pub value_bytes: usize,
    /// The memtable budget, from which the sizes of memtables, files and levels follow.
    pub budget_bytes: u64,
    /// Milliseconds of one value of a throughput series.
    pub tick_ms: u64,
    /// Number of look-ups of the read-only load, and of operations of the 50:50 load.
    pub reads: u64,
    pub mixed: u64,
    pub rounds: usize,
    /// Share of the rows that the replica holds in RAM: rows leave it in random order, as they are
    /// evicted.
    pub ram_share: f64,
}

/// The paper's memtable budget.
pub const PAPER_BUDGET_BYTES: u64 = 128 * MIB;
pub const KEY_BYTES: usize = 16;

impl Scale {
    pub const NAMES: [&'static str; 3] = ["smoke", "quick", "full"];

    /// Returns the scale with a name.
    ///
    /// # Errors
    /// There is no such scale.
    pub fn named(name: &str) -> Result<Scale, String> {
        let (rows, budget_bytes, tick_ms, reads, mixed, rounds) = match name {
            "smoke" => (3_000, 256 * KIB, 50, 300, 300, 1),
            "quick" => (25_000, MIB, 100, 5_000, 5_000, 2),
            "full" => (10_000_000, 32 * MIB, 1000, 1_000_000, 1_000_000, 3),
            _ => return Err(format!("there is no scale '{name}': use {}", Scale::NAMES.join(", "))),
        };
        Ok(Scale {
            name: name.to_owned(),
            rows,
            value_bytes: 1024,
            budget_bytes,
            tick_ms,
            reads,
            mixed,
            rounds,
            ram_share: 0.1,
        })
    }

    pub fn row_bytes(&self) -> u64 {
        (self.value_bytes + KEY_BYTES) as u64
    }

    pub fn data_bytes(&self) -> u64 {
        self.rows * self.row_bytes()
    }

    /// Returns the factor by which the budget is smaller than the paper's.
    pub fn factor(&self) -> f64 {
        self.budget_bytes as f64 / PAPER_BUDGET_BYTES as f64
    }
}
