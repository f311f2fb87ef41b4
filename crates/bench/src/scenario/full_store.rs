//! Stores of equal capacity and unequal speed are written until all of them are full (ALOR §3.2): the fast ones
//! fill first, shed what is coldest while others have room, and in the end there is nowhere to shed to.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::filling::Written;
use super::moves::{Move, Span};
use super::plot::{Level, Line, Mark, Plot};
use super::shedding::{came_back, needless, sheds, Bounds, Look, Shed};
use super::verdict::{verdicts, Verdict};
use super::Machine;
use crate::alor::Scale;
use crate::table::{bytes, count, Align, Table};

pub const VERSION: u32 = 2;

/// A planner knows of a store what its last heartbeats said.
const LATE_S: f64 = 5.0;
/// For so long an operator that has ended is planned around still: a planner knows of it within a second, and so
/// do we.
const TOLD_S: f64 = 2.0;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Devices, as in 1N2H3P.
    pub stores: String,
    pub policy: String,
    pub scale: Scale,
    pub capacity_bytes: u64,
    pub inserts_per_second: f64,
    /// Of each emulated device, log and what compaction needs included; none: unlimited.
    pub device_bytes: Option<u64>,
    pub regions: u16,
    /// In percent of capacity: a store sheds above the one until it is below the other.
    pub full_percent: u32,
    pub full_percent_low: u32,
    /// Regions that are hotter than the coldest by no more count as equally cold.
    pub heat_gap_percent: u32,
    /// From or towards one store at a time.
    pub copies_per_store: usize,
    pub machine: Machine,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FullStore {
    pub version: u32,
    pub setup: Setup,
    /// Device of each store.
    pub devices: BTreeMap<u64, String>,
    /// About one a second.
    pub looks: Vec<Look>,
    /// What had been written at each of them.
    pub written: Vec<Written>,
    pub moves: Vec<Move>,
    /// When the load was stopped.
    pub ended_s: f64,
}

impl FullStore {
    pub fn sheds(&self) -> Vec<Shed> {
        let bounds = Bounds {
            low_percent: self.setup.full_percent_low,
            copies_per_store: self.setup.copies_per_store,
            late_s: TOLD_S,
        };
        sheds(&self.looks, &self.moves, bounds)
    }

    /// The first look at which no store was below its threshold.
    fn all_full_at(&self) -> Option<f64> {
        self.looks.iter().find(|look| !self.has_room(look)).map(|look| look.at_s)
    }

    fn has_room(&self, look: &Look) -> bool {
        look.stores.is_empty() || look.has_room(self.setup.full_percent)
    }

    /// Everything written up to the last moment at which some store had room.
    fn while_room(&self) -> (f64, Written) {
        let last = self.looks.iter().zip(&self.written).rfind(|(look, _)| self.has_room(look));
        last.map_or((0.0, Written::default()), |(look, written)| (look.at_s, written.clone()))
    }

    fn last(&self) -> Written {
        self.written.last().cloned().unwrap_or_default()
    }

    /// Of a store, as share of its capacity: the first time above the threshold, and the most it ever held.
    fn filled(&self, store: u64) -> (Option<f64>, f64) {
        let full = f64::from(self.setup.full_percent) / 100.0;
        let first = self.looks.iter().find(|look| look.share(store) > full).map(|look| look.at_s);
        (first, self.looks.iter().map(|look| look.share(store)).fold(0.0, f64::max))
    }

    /// How often a store went from above the threshold to below the band.
    fn relieved(&self, store: u64) -> usize {
        let (full, low) = (f64::from(self.setup.full_percent), f64::from(self.setup.full_percent_low));
        let (mut shedding, mut times) = (false, 0);
        for look in &self.looks {
            let percent = look.share(store) * 100.0;
            if percent > full {
                shedding = true;
            } else if shedding && percent < low {
                shedding = false;
                times += 1;
            }
        }
        times
    }

    pub fn judge(&self) -> Vec<Verdict> {
        let setup = &self.setup;
        let sheds = self.sheds();
        let (until, written) = self.while_room();
        let coldest = sheds.iter().filter(|shed| shed.was_coldest(setup.heat_gap_percent)).count();
        let rivals = sheds.iter().filter(|shed| shed.had_rivals()).count();
        let needless =
            needless(&self.looks, &self.moves, &sheds, (setup.full_percent, setup.full_percent_low), LATE_S);
        let full: Vec<u64> =
            self.devices.keys().copied().filter(|store| self.filled(*store).0.is_some()).collect();
        let relieved: usize = full.iter().map(|store| self.relieved(*store)).sum();
        let back = came_back(&sheds, &self.moves);
        let hot = sheds.iter().filter(|shed| shed.was_hot()).count();
        vec![
            Verdict::new(
                "a full store sheds only the coldest regions",
                rivals > 0 && coldest == sheds.len(),
                format!(
                    "{coldest} of {} shed regions were the coldest, or within {}% and a quarter of it, of those of \
                     their store that could go, {rivals} of them not the only one; {hot} were hotter than its mean",
                    sheds.len(),
                    setup.heat_gap_percent
                ),
            ),
            Verdict::new(
                format!("shedding stops below {}%", setup.full_percent_low),
                !sheds.is_empty() && needless == 0,
                format!(
                    "{needless} of {} began while their store was below the band; {relieved} times a store that \
                     had been above {}% came below {}%",
                    sheds.len(),
                    setup.full_percent,
                    setup.full_percent_low
                ),
            ),
            Verdict::new(
                "no write fails for lack of space while a store has room",
                written.refused + written.errors == 0 && written.inserted > 0,
                format!(
                    "{} writes refused, {} other errors, {} out of time and {} of unknown outcome among {} operations \
                     up to {until:.0} s",
                    count(written.refused as f64),
                    count(written.errors as f64),
                    count(written.not_done as f64),
                    count(written.unknown as f64),
                    count(written.operations() as f64)
                ),
            ),
            Verdict::new(
                "what was shed does not come back",
                back == 0,
                format!("{back} of {} went back later to the store that had shed them", sheds.len()),
            ),
        ]
    }

    pub fn plot(&self) -> Plot {
        let store = |(store, device): (&u64, &String)| Line {
            name: format!("{store} {device}"),
            points: self.looks.iter().map(|look| (look.at_s, 100.0 * look.share(*store))).collect(),
        };
        let level = |percent: u32| Level { name: format!("{percent}%"), value: f64::from(percent) };
        let full = self.all_full_at().map(|at_s| Mark { at_s, text: "all are full".to_owned() });
        Plot {
            title: format!(
                "{} written until all stores are full, under {}",
                self.setup.stores, self.setup.policy
            ),
            unit: "percent of capacity".to_owned(),
            lines: self.devices.iter().map(store).collect(),
            levels: vec![level(self.setup.full_percent), level(self.setup.full_percent_low)],
            marks: full.into_iter().collect(),
            moves: self.sheds().iter().map(|shed| shed.at_s).collect(),
        }
    }

    fn rate_plot(&self) -> Plot {
        let mut points = Vec::new();
        for (pair, looks) in self.written.windows(2).zip(self.looks.windows(2)) {
            let seconds = looks[1].at_s - looks[0].at_s;
            if seconds > 0.0 {
                let operations = pair[1].operations().saturating_sub(pair[0].operations());
                points.push((looks[1].at_s, operations as f64 / seconds));
            }
        }
        let full = self.all_full_at().map(|at_s| Mark { at_s, text: "all are full".to_owned() });
        Plot {
            title: "Operations acknowledged".to_owned(),
            unit: "ops/s".to_owned(),
            lines: vec![Line { name: self.setup.policy.clone(), points }],
            marks: full.into_iter().collect(),
            ..Plot::default()
        }
    }

    pub fn plots(&self) -> Vec<(String, Plot)> {
        vec![
            ("full-store-used.svg".to_owned(), self.plot()),
            ("full-store-throughput.svg".to_owned(), self.rate_plot()),
        ]
    }

    pub fn report(&self) -> String {
        let setup = &self.setup;
        let mut text = String::from("# Stores that fill\n\n");
        let _ = writeln!(
            text,
            "Stores {} of {} each{}, policy `{}`, {} regions. {} threads insert {} records of 1 KiB a second at most; as often they \
             read and overwrite records of three quarters of the slots, in bands of unequal heat, and the last quarter \
             is written once. Devices at {} of their speed; {}.\n",
            setup.stores,
            bytes(setup.capacity_bytes as f64),
            setup.device_bytes.map_or(String::new(), |size| {
                format!(" on devices of {}, log and compaction included", bytes(size as f64))
            }),
            setup.policy,
            setup.regions,
            setup.scale.threads,
            count(setup.inserts_per_second),
            setup.scale.device_speed,
            setup.machine.text()
        );
        text += &verdicts(&self.judge());
        text += "![used](full-store-used.svg)\n\n![throughput](full-store-throughput.svg)\n\n";
        text += &self.stores();
        text += &self.end();
        text += &self.shed_table();
        text
    }

    fn stores(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("store", Right),
            ("device", Left),
            ("full after", Right),
            ("most it held", Right),
            ("at the end", Right),
            ("shed", Right),
            ("came below the band", Right),
        ]);
        let sheds = self.sheds();
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        for (store, device) in &self.devices {
            let (full, most) = self.filled(*store);
            table.row([
                store.to_string(),
                device.clone(),
                full.map_or("-".to_owned(), |at_s| format!("{at_s:.0} s")),
                percent(most),
                percent(self.looks.last().map_or(0.0, |look| look.share(*store))),
                sheds.iter().filter(|shed| shed.from == *store).count().to_string(),
                format!("{} times", self.relieved(*store)),
            ]);
        }
        format!("## Stores\n\n{}\n", table.markdown())
    }

    /// What happened when no store had room any more.
    fn end(&self) -> String {
        let (_, before) = self.while_room();
        let last = self.last();
        let mut text = String::from("## When all are full\n\n");
        let Some(at_s) = self.all_full_at() else {
            let _ = writeln!(text, "In {:.0} s it did not come to that.\n", self.ended_s);
            return text;
        };
        let after = Span::new("after", at_s, f64::INFINITY);
        let seconds = (self.ended_s - at_s).max(1e-9);
        let since = |field: fn(&Written) -> u64| field(&last).saturating_sub(field(&before));
        let rate = |operations: u64, seconds: f64| count(operations as f64 / seconds);
        let _ = writeln!(
            text,
            "After {at_s:.0} s every store was above {}%: weights are the usual ones again, and writes go on. Until then \
             {} ops/s were acknowledged, in the {seconds:.0} s that followed {} ops/s; {} writes were refused for lack \
             of space, {} operators begun.\n",
            self.setup.full_percent,
            rate(before.operations(), at_s.max(1e-9)),
            rate(since(Written::operations), seconds),
            count(since(|written| written.refused) as f64),
            after.moves_text(&self.moves)
        );
        if let Some(error) = &last.last_error {
            let _ = writeln!(text, "Another error of a store: {error}\n");
        }
        text
    }

    fn shed_table(&self) -> String {
        use Align::Right;
        let mut table = Table::new([
            ("after", Right),
            ("region", Right),
            ("from", Right),
            ("to", Right),
            ("the store was", Right),
            ("heat, ops/s per GB", Right),
            ("mean of the store", Right),
            ("coldness among its regions", Right),
            ("among those that could go", Right),
        ]);
        for shed in self.sheds() {
            table.row([
                format!("{:.0} s", shed.at_s),
                shed.region.to_string(),
                shed.from.to_string(),
                shed.to.to_string(),
                format!("{:.1}% full", 100.0 * shed.used_share),
                count(shed.heat_per_gb),
                count(shed.mean_per_gb),
                format!("{} of {}", shed.rank, shed.of),
                format!("{} of {}", shed.free_rank, shed.free),
            ]);
        }
        if table.is_empty() {
            return "Nothing was shed.\n".to_owned();
        }
        format!("## What was shed\n\n1 is the coldest.\n\n{}\n", table.markdown())
    }
}

#[cfg(test)]
mod tests {
    use super::super::shedding::tests::{look, shed_move};
    use super::*;

    fn written(inserted: u64, refused: u64) -> Written {
        Written { inserted, refused, ..Written::default() }
    }

    /// Store 0 fills and sheds twice; in the end all are full, and then writes are refused.
    fn full_store() -> FullStore {
        let heats = [0.1, 5.0, 9.0, 2.0];
        let mut looks: Vec<Look> = [50, 96, 93, 89, 96, 97]
            .iter()
            .enumerate()
            .map(|(at, used)| look(10.0 * at as f64, *used, &heats))
            .collect();
        for store in &mut looks[5].stores {
            store.used_bytes = 96_000_000;
        }
        FullStore {
            version: VERSION,
            setup: Setup {
                stores: "1N2H1P".into(),
                policy: "alor".into(),
                scale: Scale::named("smoke").unwrap(),
                capacity_bytes: 100_000_000,
                inserts_per_second: 500.0,
                device_bytes: None,
                regions: 4,
                full_percent: 95,
                full_percent_low: 90,
                heat_gap_percent: 10,
                copies_per_store: 2,
                machine: Machine { cpus: 2, file_system: "tmpfs".into(), program: "steelyard 0".into() },
            },
            devices: (0..4).map(|store| (store, "nvm".to_owned())).collect(),
            looks,
            written: [0, 1000, 2000, 3000, 4000, 4100]
                .map(|n| written(n, if n > 4000 { 7 } else { 0 }))
                .into(),
            moves: vec![shed_move(11.0, 1, 0, 3), shed_move(41.0, 1, 0, 3)],
            ended_s: 60.0,
        }
    }

    #[test]
    fn a_store_that_sheds_the_coldest_and_stops_holds_every_claim() {
        let run = full_store();
        let verdicts = run.judge();
        assert!(verdicts.iter().all(|verdict| verdict.passed), "{verdicts:?}");
        assert_eq!((run.all_full_at(), run.relieved(0), run.relieved(1)), (Some(50.0), 1, 0));
        assert_eq!(run.filled(0), (Some(10.0), 0.96));
    }

    #[test]
    fn a_hot_region_a_refusal_and_needless_shedding_are_told() {
        let mut run = full_store();
        run.moves.insert(1, shed_move(32.0, 3, 0, 3));
        run.written[4].refused = 1;
        let verdicts = run.judge();
        let failed: Vec<bool> = verdicts.iter().map(|verdict| verdict.passed).collect();
        assert_eq!(failed, [false, false, false, true], "{verdicts:?}");
        assert!(verdicts[0].because.starts_with("2 of 3"), "{}", verdicts[0].because);
    }

    #[test]
    fn nothing_shed_proves_nothing() {
        let run = FullStore { moves: Vec::new(), ..full_store() };
        assert!(!run.judge()[0].passed && run.report().contains("Nothing was shed."));
    }

    #[test]
    fn the_report_says_who_was_full_what_was_shed_and_what_came_then() {
        let text = full_store().report();
        for wanted in ["1 of 4", "96.0% full", "After 50 s every store", "7 writes were refused", "1 times"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let run = full_store();
        let json = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<FullStore>(&json).unwrap(), run);
        assert!(run.plots().iter().all(|(_, plot)| plot.svg().is_ok()));
    }
}
