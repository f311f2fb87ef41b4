//! Replication of a node: the results and their report. An empty store joins a cluster, one of the
//! others leaves, and so every region gets a copy on the empty one while the cluster serves.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::measure::median;
use crate::scenario::Machine;

pub const VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub version: u32,
    pub setup: Setup,
    pub rounds: Vec<Round>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The emulated device of each store; `None` for the device of the data's directory.
    pub device: Option<String>,
    /// Bytes per second that such a device can write, and read.
    pub device_limits: Option<[f64; 2]>,
    pub keys: u64,
    pub value_bytes: usize,
    pub regions: u16,
    /// Connections of the load in the foreground, half SET and half GET, one command in flight.
    pub connections: usize,
    pub machine: Machine,
}

/// Flags of the stores that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    pub name: String,
    pub flags: Vec<String>,
}

/// The commands of the load in the foreground.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Served {
    pub per_s: f64,
    pub p50_us: u64,
    pub p99_us: u64,
}

/// One replication.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    pub round: u32,
    pub variant: Variant,
    /// Seconds until the new store had a voting peer of every region.
    pub seconds: f64,
    /// Bytes of keys and values that the new store got.
    pub row_bytes: u64,
    /// Bytes that the new store's device wrote, and that the sources' devices read and wrote.
    pub written_bytes: u64,
    pub sources_read_bytes: u64,
    pub sources_written_bytes: u64,
    /// CPU seconds of all processes of the machine but this one.
    pub busy_cpu_s: f64,
    pub before: Served,
    pub meanwhile: Served,
}

impl Round {
    fn bytes_per_s(&self) -> f64 {
        self.row_bytes as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    fn written_per_byte(&self) -> f64 {
        self.written_bytes as f64 / self.row_bytes.max(1) as f64
    }
}

impl Comparison {
    /// Returns the report in Markdown.
    pub fn report(&self) -> String {
        let Setup { device, device_limits, keys, value_bytes, regions, connections, machine } = &self.setup;
        let mut text = String::from("# Replication of a node\n\n");
        let device = device.as_deref().unwrap_or("the device of the data's directory");
        let _ = writeln!(
            text,
            "Three stores with three copies of {keys} keys of {value_bytes} bytes in {regions} regions, on {device}. An \
             empty store joins, and store 2 leaves. Measured from the order to leave until the new store has a voting \
             peer of every region, while {connections} connections SET and GET. {} CPUs for all of it, data on {}, {}. \
             Medians of the rounds; in brackets their range.\n",
            machine.cpus, machine.file_system, machine.program
        );
        text += "| stores | seconds | MB/s of rows | of the device's limit | written per byte of rows | sources read, \
                 wrote per byte | CPUs busy | SET and GET before | meanwhile | p99 before | meanwhile |\n";
        text += "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
        for variant in self.variants() {
            let rounds: Vec<&Round> = self.rounds.iter().filter(|round| round.variant == *variant).collect();
            let middle = |field: &dyn Fn(&Round) -> f64| {
                median(&rounds.iter().map(|round| field(round)).collect::<Vec<f64>>())
            };
            let seconds = rounds.iter().map(|round| round.seconds);
            let (least, most) =
                seconds.fold((f64::MAX, 0f64), |(least, most), one| (least.min(one), most.max(one)));
            let rate = middle(&Round::bytes_per_s);
            let of_limit = device_limits
                .map_or("–".to_owned(), |[write, read]| format!("{:.2}", rate / write.min(read)));
            let _ = writeln!(
                text,
                "| {} | {:.1} ({least:.1}–{most:.1}) | {:.1} | {of_limit} | {:.2} | {:.2}, {:.2} | {:.1} | {:.0}/s | \
                 {:.0}/s | {:.1} ms | {:.1} ms |",
                variant.name,
                middle(&|round| round.seconds),
                rate / 1e6,
                middle(&Round::written_per_byte),
                middle(&|round| round.sources_read_bytes as f64 / round.row_bytes.max(1) as f64),
                middle(&|round| round.sources_written_bytes as f64 / round.row_bytes.max(1) as f64),
                middle(&|round| round.busy_cpu_s / round.seconds.max(f64::MIN_POSITIVE)),
                middle(&|round| round.before.per_s),
                middle(&|round| round.meanwhile.per_s),
                middle(&|round| round.before.p99_us as f64 / 1e3),
                middle(&|round| round.meanwhile.p99_us as f64 / 1e3),
            );
        }
        text.push('\n');
        for variant in self.variants() {
            let flags =
                if variant.flags.is_empty() { "no flags".to_owned() } else { variant.flags.join(" ") };
            let _ = writeln!(text, "- {}: `{flags}`", variant.name);
        }
        text
    }

    fn variants(&self) -> Vec<&Variant> {
        let mut variants = Vec::new();
        for round in &self.rounds {
            if !variants.contains(&&round.variant) {
                variants.push(&round.variant);
            }
        }
        variants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_a_row_for_each_variant() {
        let machine =
            Machine { cpus: 2, file_system: "ext4".to_owned(), program: "steelyard 0.1.0".to_owned() };
        let setup = Setup {
            device: Some("plain-ssd/5".to_owned()),
            device_limits: Some([100e6, 110e6]),
            keys: 1000,
            value_bytes: 1000,
            regions: 4,
            connections: 8,
            machine,
        };
        let round = |round, name: &str, seconds| Round {
            round,
            variant: Variant { name: name.to_owned(), flags: vec!["--snapshot-rate".into(), "1mb".into()] },
            seconds,
            row_bytes: 100_000_000,
            written_bytes: 150_000_000,
            sources_read_bytes: 100_000_000,
            sources_written_bytes: 50_000_000,
            busy_cpu_s: seconds,
            before: Served { per_s: 1000.0, p50_us: 900, p99_us: 2000 },
            meanwhile: Served { per_s: 900.0, p50_us: 1000, p99_us: 3000 },
        };
        let rounds = vec![round(1, "a", 2.0), round(1, "b", 20.0), round(2, "a", 4.0), round(2, "b", 20.0)];
        let kept = Comparison { version: VERSION, setup, rounds };
        let report = kept.report();
        let rows: Vec<&str> = report.lines().filter(|line| line.contains("2.0 ms")).collect();
        assert!(rows[0].starts_with("| a | 3.0 (2.0–4.0) | 37.5 | 0.38 | 1.50 | 1.00, 0.50 | 1.0 | 1000/s |"));
        assert!(rows[1].starts_with("| b | 20.0 (20.0–20.0) | 5.0 | 0.05 |"), "{}", rows[1]);
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap().report(), report);
    }
}
