//! The figures: the captions and statements of the paper, and the measurements made here.

use serde::{Deserialize, Serialize};

use super::rounds::Sample;
use client::table;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Figure {
    #[serde(rename = "5.1")]
    Log,
    #[serde(rename = "5.2")]
    Overhead,
    #[serde(rename = "5.3")]
    Ensemble,
    #[serde(rename = "5.4")]
    Ranges,
    #[serde(rename = "5.5")]
    Recovery,
    #[serde(rename = "5.6")]
    Reads,
    #[serde(rename = "failover")]
    Failover,
}

/// A quantity of a sample that a table or a plot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Mean,
    /// The duration of something that happens once.
    Time,
    /// The part of the mean latency that was spent in syncs.
    Sync,
    Rate,
    /// The CPUs that the whole machine used.
    Cores,
    /// The CPUs that the servers and clients used.
    OwnCores,
    Median,
    Longest,
}

impl Metric {
    pub fn name(self) -> &'static str {
        match self {
            Metric::Mean => "mean latency",
            Metric::Time => "time",
            Metric::Sync => "time of a sync",
            Metric::Rate => "operations per second",
            Metric::Cores => "CPUs of the machine busy",
            Metric::OwnCores => "CPUs used by servers and clients",
            Metric::Median => "median",
            Metric::Longest => "longest",
        }
    }

    pub fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Metric::Mean | Metric::Time => Some(sample.latency.mean_us),
            Metric::Sync => sample.sync_us,
            Metric::Rate => Some(sample.per_second),
            Metric::Cores => sample.cores,
            Metric::OwnCores => sample.own_cores,
            Metric::Median => Some(sample.latency.p50_us as f64),
            Metric::Longest => Some(sample.latency.max_us as f64),
        }
    }

    pub fn text(self, value: f64) -> String {
        match self {
            Metric::Rate => table::count(value),
            Metric::Cores | Metric::OwnCores => format!("{value:.2}"),
            _ => table::micros(value),
        }
    }
}

impl Figure {
    /// All figures in the order in which they are made.
    pub const ALL: [Figure; 7] = [
        Figure::Log,
        Figure::Overhead,
        Figure::Ensemble,
        Figure::Failover,
        Figure::Recovery,
        Figure::Reads,
        Figure::Ranges,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Figure::Log => "5.1",
            Figure::Overhead => "5.2",
            Figure::Ensemble => "5.3",
            Figure::Ranges => "5.4",
            Figure::Recovery => "5.5",
            Figure::Reads => "5.6",
            Figure::Failover => "failover",
        }
    }

    pub fn heading(self) -> &'static str {
        match self {
            Figure::Log => "Figure 5.1: write latency of the log",
            Figure::Overhead => "Figure 5.2: protocol overhead",
            Figure::Ensemble => "Figure 5.3: comparison with ZooKeeper",
            Figure::Ranges => "Figure 5.4: system scalability",
            Figure::Recovery => "Figure 5.5: follower recovery time",
            Figure::Reads => "Figure 5.6: read latency",
            Figure::Failover => "Failover (§5.5)",
        }
    }

    /// Returns the method, in the words of the report.
    pub fn method(self) -> &'static str {
        match self {
            Figure::Log => {
                "Synchronous writes of the store's log, without a store around it. `overwrite` is the log as stores \
                 use it: blocks overwrite preallocated segments, and `fdatasync` follows. `append` writes the same \
                 blocks by the same code to a file that grows with them, and `fsync` follows; the store has no such \
                 mode, the measurement adds it. With several writers, one sync covers all writes that wait. \
                 `loop-ext4` is an ext4 with a journal in an image file, mounted through a loop device."
            }
            Figure::Overhead => {
                "SET of random keys by closed-loop clients at the leader of one region, on one store and on three \
                 stores with three copies. `plain-ssd` are emulated devices, one for each store; on `disk` all \
                 stores share the machine's disk. `fsync no` is the paper's asynchronous log."
            }
            Figure::Ensemble => {
                "Writes of 50 clients with a synchronous log, all servers and clients on this machine and its disk: \
                 SET on three stores and on the limit with three copies (`bench limit`), `setData` and `create` on a \
                 ZooKeeper ensemble of three, whose clients share sessions and pipeline their requests."
            }
            Figure::Ranges => {
                "Inserts into as many ranges as the axis says. Each range has three stores of its own with emulated \
                 devices, slowed so that they are the bound, and its own clients."
            }
            Figure::Recovery => {
                "The time from the start of a follower's process until it has everything, while nothing else is \
                 written. `log`: the follower was away while the records were written. `snapshot`: a new store joins \
                 two that have the records."
            }
            Figure::Reads => {
                "GET of random keys by one client over loopback, warm, on one store and on Redis. `RocksDB alone` is \
                 the engine with the store's options, in the measuring process, without the store's rows in RAM."
            }
            Figure::Failover => {
                "The leader of three stores is killed with `kill -9` under load: the time until a write that began \
                 after the kill is acknowledged."
            }
        }
    }

    /// Returns the paper's statement with its numbers. Its plots have no values beside their axes.
    pub fn paper(self) -> &'static str {
        match self {
            Figure::Log => {
                "write latency grows with the size, and overwriting is much faster than appending (no numbers)"
            }
            Figure::Overhead => "three copies take about 20% longer than one, with an asynchronous log",
            Figure::Ensemble => "five times or more the older system's speed from 2,000 bytes on",
            Figure::Ranges => "throughput grows linearly with the ranges, whatever the size",
            Figure::Recovery => "10,000 records of 512 bytes are recovered in 8 s, of 8,192 bytes in 15 s",
            Figure::Reads => {
                "150 us at 512 bytes, more with larger records; basically the speed of LevelDB, the engine"
            }
            Figure::Failover => "a leader is elected in less than 3 s",
        }
    }

    /// Returns the metrics in tables. The first one is plotted.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Figure::Log => &[Metric::Mean, Metric::Sync],
            Figure::Overhead => &[Metric::Mean, Metric::Cores, Metric::OwnCores],
            Figure::Ensemble => &[Metric::Rate, Metric::Mean, Metric::Cores, Metric::OwnCores],
            Figure::Ranges => &[Metric::Rate, Metric::Cores, Metric::OwnCores],
            Figure::Recovery => &[Metric::Time],
            Figure::Reads => &[Metric::Mean],
            Figure::Failover => &[Metric::Median, Metric::Longest],
        }
    }

    /// Returns the label of a value on the horizontal axis.
    pub fn label(self, at: u64) -> String {
        match self {
            Figure::Ranges => format!("{at} range{}", if at == 1 { "" } else { "s" }),
            Figure::Failover => format!("{at} kill{}", if at == 1 { "" } else { "s" }),
            _ => size(at),
        }
    }
}

/// Returns a record size as the paper's axes have it.
pub fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1024 && bytes % 1024 == 0 => format!("{} KiB", bytes / 1024),
        bytes => format!("{bytes} B"),
    }
}

/// Returns the figures with these names, in the order in which they are made. No name selects all.
pub fn select(names: &[String]) -> Result<Vec<Figure>, String> {
    let known = |name: &String| Figure::ALL.iter().any(|figure| figure.name() == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        let all = Figure::ALL.map(Figure::name).join(", ");
        return Err(format!("there is no figure '{name}'; the figures are {all}"));
    }
    let wanted = |figure: &Figure| names.is_empty() || names.iter().any(|name| name == figure.name());
    Ok(Figure::ALL.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_selected_by_name() {
        assert_eq!(select(&[]).unwrap(), Figure::ALL);
        let two = ["failover".to_owned(), "5.1".to_owned()];
        assert_eq!(select(&two).unwrap(), [Figure::Log, Figure::Failover]);
        assert!(select(&["5.7".to_owned()]).unwrap_err().contains("5.1, 5.2"));
    }

    #[test]
    fn labels() {
        assert_eq!([size(512), size(8192), size(1500)], ["512 B", "8 KiB", "1500 B"]);
        assert_eq!([Figure::Ranges.label(1), Figure::Ranges.label(4)], ["1 range", "4 ranges"]);
    }
}
