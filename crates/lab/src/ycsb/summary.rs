//! The results of a run, as they are saved in files and shown.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::workload::{Kind, Workload};
use super::Distribution;
use client::table::{count, micros, Align, Table};

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

impl Latency {
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        if histogram.is_empty() {
            return Latency::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile);
        Latency {
            count: histogram.len(),
            mean_us: histogram.mean(),
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max(),
        }
    }
}

/// One second of a run, with the operations that ended in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds from the beginning of the run to this second's end. The last second may be shorter.
    pub at_s: f64,
    pub operations: u64,
    pub mean_us: f64,
    pub p99_us: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub workload: Workload,
    pub distribution: Distribution,
    pub records: u64,
    pub threads: usize,
    pub pipeline: usize,
    pub seed: u64,
    /// The target rate in operations per second. `None` for closed-loop threads.
    pub target_per_s: Option<f64>,
    pub seconds: f64,
    /// Number of operations completed within `seconds`, without failed ones.
    pub operations: u64,
    /// Latencies of all operations begun in time. With a target they count from the moment an
    /// operation was due. So the operations that a stalled store kept from being sent include the
    /// stall.
    pub latency: Latency,
    /// Latencies from the sending. Only with a target.
    pub service: Option<Latency>,
    pub kinds: BTreeMap<Kind, Latency>,
    pub series: Vec<Second>,
    /// Reads that did not find a record that had been inserted.
    pub missing: u64,
    /// Operations that no store could serve in time and that had no effect.
    pub not_done: u64,
    /// Writes with an unknown outcome.
    pub unknown: u64,
    pub redirections: u64,
    /// True if the run's time ended before all operations were done.
    pub cut_short: bool,
}

impl Summary {
    pub fn per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            self.operations as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// Returns the reasons to doubt the figures.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut add = |number: u64, what: &str| {
            if number > 0 {
                faults.push(format!("{} {what}", count(number as f64)));
            }
        };
        add(self.missing, "records that had been inserted were not found");
        add(self.not_done, "operations could not be served in time");
        add(self.unknown, "writes ended with an unknown outcome");
        faults
    }

    pub fn text(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("", Left),
            ("operations", Right),
            ("ops/s", Right),
            ("mean", Right),
            ("p50", Right),
            ("p95", Right),
            ("p99", Right),
            ("p99.9", Right),
            ("max", Right),
        ]);
        let mut row = |name: &str, latency: &Latency| {
            let rate = latency.count as f64 / self.seconds.max(f64::MIN_POSITIVE);
            let times = [latency.p50_us, latency.p95_us, latency.p99_us, latency.p999_us, latency.max_us];
            let mut cells = vec![name.to_owned(), count(latency.count as f64), count(rate)];
            cells.push(micros(latency.mean_us));
            cells.extend(times.map(|us| micros(us as f64)));
            table.row(cells);
        };
        for (kind, latency) in &self.kinds {
            row(kind.name(), latency);
        }
        row("all", &self.latency);
        if let Some(service) = &self.service {
            row("all, from sending", service);
        }
        let mut text = format!(
            "{} over {} records ({}), {} threads{}: {:.1} s{}\n{table}",
            self.workload.name(),
            count(self.records as f64),
            self.distribution.name(),
            self.threads,
            match self.target_per_s {
                Some(target) => format!(", {} ops/s asked for", count(target)),
                None => String::new(),
            },
            self.seconds,
            if self.cut_short { ", ended by time" } else { "" }
        );
        for fault in self.faults() {
            text += &format!("{fault}\n");
        }
        text
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn summary() -> Summary {
        let latency = Latency {
            count: 1000,
            mean_us: 1500.0,
            p50_us: 1000,
            p95_us: 3000,
            p99_us: 9000,
            p999_us: 9500,
            max_us: 9900,
        };
        Summary {
            workload: Workload::A,
            distribution: Distribution::Zipfian,
            records: 5000,
            threads: 8,
            pipeline: 1,
            seed: 1,
            target_per_s: None,
            seconds: 2.0,
            operations: 1000,
            latency,
            service: None,
            kinds: BTreeMap::from([(Kind::Read, latency)]),
            series: Vec::new(),
            missing: 0,
            not_done: 0,
            unknown: 0,
            redirections: 0,
            cut_short: false,
        }
    }

    #[test]
    fn a_summary_is_read_back_and_shows_its_rate() {
        let summary = summary();
        let text = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
        assert_eq!(summary.per_second(), 500.0);
        assert!(summary.text().contains("1.50 ms") && summary.text().contains("500"), "{}", summary.text());
    }

    #[test]
    fn lost_records_are_told() {
        let faulty = Summary { missing: 3, ..summary() };
        assert!(faulty.text().contains("3 records that had been inserted were not found"));
        assert!(summary().faults().is_empty());
    }
}
