//! Direct and chained replication compared on three stores in network namespaces: the results and
//! their report. The caller starts the stores and drives the load.

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
    pub rounds: u32,
    pub warmup_s: u64,
    pub window_s: u64,
    /// Connections, each with one SET in flight.
    pub connections: usize,
    pub machine: Machine,
}

/// The conditions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    pub value_bytes: usize,
    /// Rate at which each store can send, in megabits per second; `None` without a limit.
    pub limit_megabits: Option<u32>,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    pub round: u32,
    pub case: Case,
    pub is_chained: bool,
    pub sets_per_s: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    /// Bytes that the leader's store sent during the window, to the other stores and to the client.
    pub leader_sent_bytes: u64,
    /// CPU time of the leader's store for each SET, in microseconds.
    pub leader_cpu_us: f64,
    /// CPU time of all stores for each SET, in microseconds.
    pub cpu_us: f64,
    /// Appends that the leader left to a follower to pass on, and returns to direct sending, during
    /// the whole load.
    pub chained_appends: u64,
    pub fallbacks: u64,
    /// Average number of CPUs that other processes used.
    pub other_cpus: f64,
}

impl Round {
    /// Returns the bytes that the leader's store sent for each byte of values.
    fn sent_per_byte(&self, window_s: u64) -> f64 {
        let bytes = self.sets_per_s * window_s as f64 * self.case.value_bytes as f64;
        self.leader_sent_bytes as f64 / bytes.max(1.0)
    }
}

impl Comparison {
    /// Returns the report in Markdown.
    pub fn report(&self) -> String {
        let Setup { rounds, warmup_s, window_s, connections, machine } = &self.setup;
        let mut text = String::from("# Direct and chained replication\n\n");
        let _ = writeln!(
            text,
            "Three stores in network namespaces on one machine, one region of three copies, {connections} \
             connections with one SET each in flight, `fsync always`. Medians of {rounds} interleaved rounds \
             of {window_s} s after {warmup_s} s of warm-up; in brackets the range of the rounds. A limit \
             holds for what each store sends. {} CPUs for stores and client, data on {}, {}.\n",
            machine.cpus, machine.file_system, machine.program
        );
        text += "| value | limit | replication | SETs/s | MiB/s | p50 | p99 | leader sends, bytes per byte of values | leader's CPU per SET | all stores' CPU per SET | fallbacks | other CPUs |\n";
        text += "|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
        for case in self.cases() {
            for is_chained in [false, true] {
                self.write_row(&mut text, case, is_chained);
            }
        }
        text += "\n| value | limit | SETs/s, chained / direct, by rounds | median |\n|--:|--:|---|--:|\n";
        for case in self.cases() {
            let ratios = self.ratios(case);
            if ratios.is_empty() {
                continue;
            }
            let list: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
            let _ = writeln!(
                text,
                "| {} KiB | {} | {} | {:.2} |",
                case.value_bytes >> 10,
                limit(case),
                list.join(", "),
                median(&ratios)
            );
        }
        text
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for round in &self.rounds {
            if !cases.contains(&round.case) {
                cases.push(round.case);
            }
        }
        cases
    }

    fn of(&self, case: Case, is_chained: bool) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(move |round| round.case == case && round.is_chained == is_chained)
    }

    /// Returns the ratios of throughput, round by round.
    fn ratios(&self, case: Case) -> Vec<f64> {
        let direct = self.of(case, false);
        let pairs = direct.filter_map(|direct| {
            let chained = self.of(case, true).find(|chained| chained.round == direct.round)?;
            Some(chained.sets_per_s / direct.sets_per_s.max(f64::MIN_POSITIVE))
        });
        pairs.collect()
    }

    fn write_row(&self, text: &mut String, case: Case, is_chained: bool) {
        let rounds: Vec<&Round> = self.of(case, is_chained).collect();
        if rounds.is_empty() {
            return;
        }
        let of =
            |field: &dyn Fn(&Round) -> f64| rounds.iter().map(|round| field(round)).collect::<Vec<f64>>();
        let middle = |field: &dyn Fn(&Round) -> f64| median(&of(field));
        let rates = of(&|round| round.sets_per_s);
        let (least, most) =
            rates.iter().fold((f64::MAX, 0f64), |(least, most), &rate| (least.min(rate), most.max(rate)));
        let rate = median(&rates);
        let _ = writeln!(
            text,
            "| {} KiB | {} | {} | {rate:.0} ({least:.0}–{most:.0}) | {:.1} | {:.1} ms | {:.1} ms | {:.2} | {:.0} µs | {:.0} µs | {} | {:.1} |",
            case.value_bytes >> 10,
            limit(case),
            if is_chained { "chained" } else { "direct" },
            rate * case.value_bytes as f64 / f64::from(1 << 20),
            middle(&|round| round.p50_us as f64 / 1e3),
            middle(&|round| round.p99_us as f64 / 1e3),
            middle(&|round| round.sent_per_byte(self.setup.window_s)),
            middle(&|round| round.leader_cpu_us),
            middle(&|round| round.cpu_us),
            rounds.iter().map(|round| round.fallbacks).sum::<u64>(),
            middle(&|round| round.other_cpus),
        );
    }
}

fn limit(case: Case) -> String {
    case.limit_megabits.map_or_else(|| "none".to_owned(), |rate| format!("{rate} Mbit/s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(number: u32, is_chained: bool, sets_per_s: f64) -> Round {
        Round {
            round: number,
            case: Case { value_bytes: 16 << 10, limit_megabits: Some(200) },
            is_chained,
            sets_per_s,
            p50_us: 2000,
            p99_us: 9000,
            leader_sent_bytes: (sets_per_s * 10.0 * 16384.0 * if is_chained { 1.0 } else { 2.0 }) as u64,
            leader_cpu_us: 100.0,
            cpu_us: 300.0,
            chained_appends: 0,
            fallbacks: u64::from(is_chained),
            other_cpus: 0.5,
        }
    }

    #[test]
    fn the_report_pairs_the_rounds_of_a_case() {
        let machine =
            Machine { cpus: 2, file_system: "ext4".to_owned(), program: "steelyard 0.1.0".to_owned() };
        let setup = Setup { rounds: 3, warmup_s: 2, window_s: 10, connections: 32, machine };
        let rates = [(1, 700.0, 1400.0), (2, 800.0, 1200.0), (3, 750.0, 1350.0)];
        let rounds = rates
            .iter()
            .flat_map(|&(number, direct, chained)| {
                [round(number, false, direct), round(number, true, chained)]
            })
            .collect();
        let kept = Comparison { version: VERSION, setup, rounds };
        let report = kept.report();
        let rows: Vec<&str> = report.lines().filter(|line| line.starts_with("| 16 KiB")).collect();
        assert_eq!(rows.len(), 3);
        assert!(rows[0]
            .starts_with("| 16 KiB | 200 Mbit/s | direct | 750 (700–800) | 11.7 | 2.0 ms | 9.0 ms | 2.00 |"));
        assert!(rows[1].contains("| chained | 1350 (1200–1400) |") && rows[1].contains("| 1.00 |"));
        assert_eq!(rows[2], "| 16 KiB | 200 Mbit/s | 2.00, 1.50, 1.80 | 1.80 |");
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap().report(), report);
    }
}
