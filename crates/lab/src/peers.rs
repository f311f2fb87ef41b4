//! Comparisons with other servers on the same machine in the same run: Redis beside one store, etcd
//! beside three. The limit, the smallest durable server that can be written ([`crate::limit`]),
//! runs beside both.
//!
//! Rounds alternate between the servers, so that a disk whose speed changes by the hour changes for
//! all of them. Figures are medians over rounds, and ratios of medians. Every server keeps its data
//! on the same file system and syncs before it acknowledges.

mod cases;
mod etcd;
mod redis;
mod report;
pub mod servers;
pub(crate) mod ycsb;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{ensure, Context};
use hdrhistogram::Histogram;
use serde::Serialize;

pub use report::Report;

use crate::measure;

#[derive(Clone, Debug)]
pub struct Plan {
    /// The directory in which everything is made. It is all removed at the end.
    pub dir: PathBuf,
    /// The `steelyard` program.
    pub steelyard: PathBuf,
    /// The directory in which go-ycsb is built and kept.
    pub tools: PathBuf,
    pub rounds: usize,
    /// The duration of each measurement beside Redis.
    pub window: Duration,
    /// The number of inserts per client in each measurement beside etcd.
    pub inserts_per_client: usize,
    /// The number of regions of the three stores.
    pub regions: u16,
    pub redis: bool,
    /// True if other sizes, commands and numbers of connections are compared with Redis, too.
    pub cases: bool,
    pub etcd: bool,
}

/// One measurement of one server.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub round: usize,
    pub per_second: f64,
    pub mean_us: f64,
    pub p99_us: f64,
    /// CPU time of the server's processes in microseconds.
    pub cpu_us_per_operation: Option<f64>,
    /// Syncs of the log, if the server counts them.
    pub syncs_per_operation: Option<f64>,
}

/// The samples of one load on all servers, from every round.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub load: String,
    pub client: String,
    pub neighbour: String,
    pub ours: Vec<Sample>,
    pub theirs: Vec<Sample>,
    pub limit: Vec<Sample>,
    /// The ratio to reach.
    pub aim: f64,
}

/// The server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
    Limit,
}

impl Side {
    /// Returns the order of a round. It rotates, so that no server always runs first.
    fn order(round: usize) -> [Side; 3] {
        let mut order = [Side::Ours, Side::Theirs, Side::Limit];
        order.rotate_left(round % 3);
        order
    }
}

impl Comparison {
    fn new(load: String, client: &str, neighbour: &str, aim: f64) -> Comparison {
        let (ours, theirs, limit) = (Vec::new(), Vec::new(), Vec::new());
        Comparison { load, client: client.into(), neighbour: neighbour.into(), ours, theirs, limit, aim }
    }

    fn of(&mut self, side: Side) -> &mut Vec<Sample> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
            Side::Limit => &mut self.limit,
        }
    }

    /// Returns the ratio of our rate to the neighbour's.
    pub fn ratio(&self) -> f64 {
        rate(&self.ours) / rate(&self.theirs)
    }

    /// Returns the ratio of our rate to the limit's, if that was measured.
    pub fn part_of_limit(&self) -> Option<f64> {
        (!self.limit.is_empty()).then(|| rate(&self.ours) / rate(&self.limit))
    }
}

fn rate(samples: &[Sample]) -> f64 {
    let rates: Vec<f64> = samples.iter().map(|sample| sample.per_second).collect();
    measure::median(&rates).max(f64::MIN_POSITIVE)
}

/// Microseconds of an `fdatasync` of 4 KiB in the data directory.
#[derive(Clone, Debug, Serialize)]
pub struct SyncTime {
    pub round: usize,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p99_us: u64,
}

impl SyncTime {
    fn of(round: usize, times: &Histogram<u64>) -> SyncTime {
        SyncTime {
            round,
            mean_us: times.mean(),
            p50_us: times.value_at_quantile(0.5),
            p99_us: times.value_at_quantile(0.99),
        }
    }
}

/// Runs all comparisons that the plan asks for and the machine allows. Must be called from the main
/// thread, because the servers end when the calling thread ends.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    ensure!(plan.rounds > 0, "a comparison needs at least one round");
    std::fs::create_dir_all(&plan.dir).with_context(|| format!("{} cannot be made", plan.dir.display()))?;
    let file_system = client::place::file_system(&plan.dir);
    ensure!(
        file_system != "tmpfs" && file_system != "ramfs",
        "{} is in RAM ({file_system}), where a sync costs nothing: give a --dir that is on a disk",
        plan.dir.display()
    );
    let mut report = Report::new(plan, file_system);
    if plan.redis {
        redis::compare(plan, &mut report).await?;
    }
    if plan.cases {
        cases::compare(plan, &mut report).await?;
    }
    if plan.etcd {
        etcd::compare(plan, &mut report).await?;
    }
    Ok(report)
}

/// Prints progress to stderr, because stdout carries the report.
fn say(text: &str) {
    eprintln!("{text}");
}
