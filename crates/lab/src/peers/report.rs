//! The report of the comparisons, as a table, as Markdown and as JSON.

use serde::Serialize;

use super::{Comparison, Plan, Sample, SyncTime};
use crate::measure::median;
use crate::page::Page;
use client::table::{count, micros, Align, Table};

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub cpus: usize,
    pub file_system: String,
    pub rounds: usize,
    pub comparisons: Vec<Comparison>,
    pub syncs: Vec<SyncTime>,
    /// The comparisons that could not be made here, and why.
    pub skipped: Vec<String>,
}

impl Report {
    pub(super) fn new(plan: &Plan, file_system: String) -> Report {
        Report {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            file_system,
            rounds: plan.rounds,
            comparisons: Vec::new(),
            syncs: Vec::new(),
            skipped: Vec::new(),
        }
    }

    pub(super) fn skip(&mut self, why: &str) {
        super::say(why);
        self.skipped.push(why.to_owned());
    }

    fn table(&self) -> Table {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("load", Left),
            ("client", Left),
            ("server", Left),
            ("ops/s", Right),
            ("lowest-highest", Right),
            ("mean", Right),
            ("p99", Right),
            ("CPU/op", Right),
            ("syncs/op", Right),
            ("ratio", Right),
            ("aim", Right),
            ("of limit", Right),
        ]);
        for comparison in &self.comparisons {
            let rows = [
                ("steelyard", &comparison.ours),
                (comparison.neighbour.as_str(), &comparison.theirs),
                ("the limit", &comparison.limit),
            ];
            let measured = rows.into_iter().filter(|(_, samples)| !samples.is_empty());
            for (index, (server, samples)) in measured.enumerate() {
                let first = |text: String| if index == 0 { text } else { String::new() };
                let mut cells =
                    vec![first(comparison.load.clone()), first(comparison.client.clone()), server.into()];
                cells.extend(figures(samples));
                cells.push(first(format!("{:.2}", comparison.ratio())));
                cells.push(first(format!("{:.2}", comparison.aim)));
                let part = comparison.part_of_limit();
                cells.push(first(part.map_or("-".into(), |part| format!("{part:.2}"))));
                table.row(cells);
            }
        }
        table
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "{} CPUs, data on {}, medians of {} interleaved rounds; ratio = steelyard / neighbour, by ops/s; \
             of limit = steelyard / the limit, the smallest durable server (`steelyard bench limit`).",
            self.cpus, self.file_system, self.rounds
        )];
        if !self.syncs.is_empty() {
            let p50: Vec<f64> = self.syncs.iter().map(|sync| sync.p50_us as f64).collect();
            let p99 = self.syncs.iter().map(|sync| sync.p99_us).max().unwrap_or(0);
            notes.push(format!(
                "fdatasync of 4 KiB in the same run: p50 {} (median of {} probes), worst p99 {}.",
                micros(median(&p50)),
                p50.len(),
                micros(p99 as f64)
            ));
        }
        notes.extend(self.skipped.iter().cloned());
        notes
    }

    pub fn text(&self) -> String {
        let table = self.table();
        let table = if table.is_empty() { String::new() } else { format!("{table}\n") };
        format!("{table}{}\n", self.notes().join("\n"))
    }

    pub fn markdown(&self) -> String {
        let mut page = Page::default();
        let table = self.table();
        if !table.is_empty() {
            page.table(&table);
        }
        page.list(self.notes());
        page.into_text()
    }
}

/// Returns the rate, its range over the rounds, the mean and p99 latency, and CPU and syncs per
/// operation.
fn figures(samples: &[Sample]) -> [String; 6] {
    let of = |field: fn(&Sample) -> f64| median(&samples.iter().map(field).collect::<Vec<_>>());
    let optional = |field: fn(&Sample) -> Option<f64>| {
        let known: Vec<f64> = samples.iter().filter_map(field).collect();
        (!known.is_empty()).then(|| median(&known))
    };
    let rates = || samples.iter().map(|sample| sample.per_second);
    let range = match samples.is_empty() {
        true => "-".into(),
        false => {
            format!("{}-{}", count(rates().fold(f64::MAX, f64::min)), count(rates().fold(0.0, f64::max)))
        }
    };
    [
        count(of(|sample| sample.per_second)),
        range,
        micros(of(|sample| sample.mean_us)),
        micros(of(|sample| sample.p99_us)),
        optional(|sample| sample.cpu_us_per_operation).map_or("-".into(), |us| format!("{us:.1} us")),
        optional(|sample| sample.syncs_per_operation).map_or("-".into(), |syncs| format!("{syncs:.3}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians() {
        let sample = |per_second| Sample {
            round: 0,
            per_second,
            mean_us: 10.0,
            p99_us: 20.0,
            cpu_us_per_operation: Some(1.25),
            syncs_per_operation: None,
        };
        let comparison = Comparison {
            load: "SET".into(),
            client: "c".into(),
            neighbour: "redis".into(),
            ours: [300.0, 100.0, 200.0].map(sample).into(),
            theirs: [100.0, 90.0, 5000.0].map(sample).into(),
            limit: [400.0].map(sample).into(),
            aim: 1.0,
        };
        assert_eq!((comparison.ratio(), comparison.part_of_limit()), (2.0, Some(0.5)));
        let report = Report {
            cpus: 2,
            file_system: "ext4".into(),
            rounds: 3,
            comparisons: vec![comparison],
            syncs: Vec::new(),
            skipped: vec!["etcd is not installed".into()],
        };
        let text = report.text();
        assert!(text.contains("2.00") && text.contains("100-300") && text.contains("1.2 us"), "{text}");
        assert!(report.markdown().contains("- etcd is not installed"));
    }
}
