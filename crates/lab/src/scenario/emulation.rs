//! A check of the emulation against real devices: stores on a RAM file system beside stores on a
//! real disk, and the same cluster on emulated devices with the numbers that a probe measured in
//! both places. The policies must change throughput in the same direction on both sides.

use serde::{Deserialize, Serialize};

use super::verdict::{verdicts, Verdict};
use super::Machine;
use crate::alor::BASELINE;
use crate::page::Page;
use crate::ycsb::Workload;
use client::table::{bytes, count, micros, Align, Table};

pub const VERSION: u32 = 1;

/// Maximum difference from 1 at which a ratio counts as the same.
pub const NOISE: f64 = 0.05;

/// A kind of device and the number of stores on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub file_system: String,
    pub stores: usize,
    pub write_bytes_per_s: f64,
    pub sync_us: f64,
    /// Capability that its stores are given, in KV bytes per second.
    pub capability_bytes_per_s: f64,
    /// The numbers of the emulated device that replaces it.
    pub emulated_as: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Real,
    Emulated,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::Real, Side::Emulated];

    pub fn name(self) -> &'static str {
        match self {
            Side::Real => "real",
            Side::Emulated => "emulated",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub side: Side,
    pub policy: String,
    pub run: usize,
    pub workload: Workload,
    pub per_second: f64,
    pub mean_us: f64,
    pub p99_us: f64,
    /// The reasons why the row says little about devices. Its ratio still has a sign.
    pub doubts: Vec<String>,
    /// Number of leaders on each store at the end.
    pub leaders: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub version: u32,
    pub machine: Machine,
    pub records: u64,
    pub threads: usize,
    pub places: Vec<Place>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Faster,
    Slower,
    Same,
}

impl Sign {
    pub fn of(ratio: f64) -> Sign {
        match ratio {
            ratio if ratio > 1.0 + NOISE => Sign::Faster,
            ratio if ratio < 1.0 - NOISE => Sign::Slower,
            _ => Sign::Same,
        }
    }
}

impl Check {
    fn median(&self, side: Side, policy: &str, workload: Workload) -> Option<f64> {
        let of = |row: &&Row| row.side == side && row.policy == policy && row.workload == workload;
        let rates: Vec<f64> = self.rows.iter().filter(of).map(|row| row.per_second).collect();
        (!rates.is_empty()).then(|| crate::measure::median(&rates)).filter(|rate| *rate > 0.0)
    }

    /// Returns the throughput of a policy divided by that of even distribution.
    pub fn ratio(&self, side: Side, policy: &str, workload: Workload) -> Option<f64> {
        Some(self.median(side, policy, workload)? / self.median(side, BASELINE, workload)?)
    }

    fn compared(&self) -> Vec<(String, Workload)> {
        let mut all: Vec<(String, Workload)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.policy != BASELINE) {
            let pair = (row.policy.clone(), row.workload);
            if !all.contains(&pair) {
                all.push(pair);
            }
        }
        all
    }

    pub fn judge(&self) -> Vec<Verdict> {
        let verdict = |(policy, workload): (String, Workload)| {
            let claim = format!("{policy} over {BASELINE} on {}: the same sign", workload.name());
            let [real, emulated] = Side::BOTH.map(|side| self.ratio(side, &policy, workload));
            match real.zip(emulated) {
                Some((real, emulated)) => Verdict::new(
                    claim,
                    Sign::of(real) == Sign::of(emulated),
                    format!("real {real:.2}, emulated {emulated:.2}"),
                ),
                None => Verdict::new(claim, false, "not measured on both sides"),
            }
        };
        self.compared().into_iter().map(verdict).collect()
    }

    pub fn report(&self) -> String {
        let mut page = Page::new("The emulation, checked");
        page.paragraph(format!(
            "No device is emulated on the real side. The emulated side has the same stores on devices with the numbers that \
             the probe found. Reads of real files come from the page cache, so the emulated devices read at the speed of \
             RAM. Closer to 1 than {:.0}% a ratio has no sign. {} records, {} closed-loop threads; {}.",
            100.0 * NOISE,
            count(self.records as f64),
            self.threads,
            self.machine.text()
        ));
        page.table(&self.places());
        page.section("What it shows");
        page.table(&verdicts(&self.judge()));
        page.section("Runs");
        page.table(&self.table());
        page.into_text()
    }

    fn places(&self) -> Table {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("place", Left),
            ("stores", Right),
            ("random 8 MiB writes", Right),
            ("sync", Right),
            ("capability", Right),
            ("emulated as", Left),
        ]);
        for place in &self.places {
            table.row([
                place.file_system.clone(),
                place.stores.to_string(),
                format!("{}/s", bytes(place.write_bytes_per_s)),
                micros(place.sync_us),
                format!("{}/s", bytes(place.capability_bytes_per_s)),
                format!("`{}`", place.emulated_as),
            ]);
        }
        table
    }

    fn table(&self) -> Table {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("devices", Left),
            ("workload", Left),
            ("policy", Left),
            ("run", Right),
            ("ops/s", Right),
            ("over even", Right),
            ("mean", Right),
            ("p99", Right),
            ("leaders by store", Left),
            ("doubts", Left),
        ]);
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| (row.side, row.workload));
        for row in rows {
            let ratio = self.median(row.side, BASELINE, row.workload).map(|even| row.per_second / even);
            table.row([
                row.side.name().to_owned(),
                row.workload.name().to_owned(),
                row.policy.clone(),
                row.run.to_string(),
                count(row.per_second),
                ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                micros(row.mean_us),
                micros(row.p99_us),
                row.leaders.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
                if row.doubts.is_empty() { "-".to_owned() } else { row.doubts.join("; ") },
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rates: &[(Side, &str, f64)]) -> Check {
        let row = |(side, policy, per_second): &(Side, &str, f64)| Row {
            side: *side,
            policy: (*policy).to_owned(),
            run: 1,
            workload: Workload::Load,
            per_second: *per_second,
            mean_us: 1000.0,
            p99_us: 9000.0,
            doubts: Vec::new(),
            leaders: vec![8, 8, 8, 0, 0, 0],
        };
        Check {
            version: VERSION,
            machine: Machine { cpus: 2, file_system: "tmpfs, ext4".into(), program: "steelyard 0".into() },
            records: 1000,
            threads: 64,
            places: vec![Place {
                file_system: "ext4".into(),
                stores: 3,
                write_bytes_per_s: 5e8,
                sync_us: 1250.0,
                capability_bytes_per_s: 6e7,
                emulated_as: "write=500MB/s,sync=1250us".into(),
            }],
            rows: rates.iter().map(row).collect(),
        }
    }

    #[test]
    fn signs_agree_or_they_do_not() {
        use Side::{Emulated, Real};
        let passed = |real: f64, emulated: f64| {
            let even = 100.0;
            let rows = [
                (Real, "even", even),
                (Real, "alor", real),
                (Emulated, "even", even),
                (Emulated, "alor", emulated),
            ];
            check(&rows).judge()[0].passed
        };
        assert!(passed(150.0, 400.0) && passed(60.0, 90.0) && passed(103.0, 98.0));
        assert!(!passed(150.0, 90.0) && !passed(150.0, 100.0));
    }

    #[test]
    fn a_side_that_is_missing_proves_nothing() {
        let verdicts = check(&[(Side::Real, "even", 1.0), (Side::Real, "alor", 2.0)]).judge();
        assert!(!verdicts[0].passed && verdicts[0].because.contains("not measured"));
    }

    #[test]
    fn ratios_are_of_medians_over_runs() {
        let rows = [("even", 100.0), ("alor", 150.0), ("alor", 400.0), ("alor", 200.0)];
        let check = check(&rows.map(|(policy, rate)| (Side::Real, policy, rate)));
        assert_eq!(check.ratio(Side::Real, "alor", Workload::Load), Some(2.0));
        let text = check.report();
        for wanted in ["500 MB/s", "1.25 ms", "8 8 8 0 0 0", "2.00", "`write=500MB/s,sync=1250us`"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}
