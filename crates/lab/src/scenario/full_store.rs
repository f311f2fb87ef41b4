//! Stores of equal capacity and unequal speed are written until all of them are full (ALOR §3.2).
//! The fast stores fill first. They shed their coldest regions while other stores have room, until
//! no store has.
//!
//! Copies are slower than the load, so no store would fall below the band while records are
//! inserted. Therefore insertion pauses once, while there is room left, until shedding is at rest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::filling::Written;
use super::moves::{Move, Span};
use super::plot::{Level, Line, Mark, Plot};
use super::shedding::{at_rest, came_back, needless, relieved, sheds, Bounds, Look, Shed};
use super::verdict::{verdicts, Verdict};
use super::Machine;
use crate::alor::Scale;
use crate::page::Page;
use client::table::{bytes, count, Align, Table};

pub const VERSION: u32 = 5;

/// Maximum age in seconds of a planner's knowledge of a store, which comes from heartbeats.
const LATE_S: f64 = 5.0;
/// Time in seconds for which a planner may still plan around something that has ended: an operator,
/// or the reason why a region could not leave its store. A planner learns of the end within a
/// second, and so does the observer.
const TOLD_S: f64 = 2.0;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Devices, such as 1N2H3P.
    pub stores: String,
    pub policy: String,
    pub scale: Scale,
    pub capacity_bytes: u64,
    pub inserts_per_second: f64,
    /// Insertion pauses when the stores together hold this percentage of their capacity, copies
    /// included.
    pub pause_at_percent: u32,
    /// Insertion resumes when shedding has been at rest for `rest_s` seconds, or after
    /// `pause_s_max` seconds.
    pub rest_s: f64,
    pub pause_s_max: f64,
    /// Size of each emulated device, including the log and the space that compaction needs. `None`
    /// for unlimited devices.
    pub device_bytes: Option<u64>,
    pub regions: u16,
    /// A store begins to shed above the first percentage of its capacity and stops below the
    /// second.
    pub full_percent: u32,
    pub full_percent_low: u32,
    /// Maximum percentage by which a region may be hotter than the coldest and still count as
    /// equally cold.
    pub heat_gap_percent: u32,
    /// Maximum number of copies at a time from or towards one store.
    pub copies_per_store: usize,
    pub machine: Machine,
}

/// The time during which nothing was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pause {
    pub from_s: f64,
    /// The end of the pause. `None` if the run ended first.
    pub to_s: Option<f64>,
    /// True if shedding was at rest at the end of the pause.
    pub at_rest: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FullStore {
    pub version: u32,
    pub setup: Setup,
    /// The device of each store.
    pub devices: BTreeMap<u64, String>,
    /// The states of the cluster, about one per second.
    pub looks: Vec<Look>,
    /// The counts of operations at each of these moments.
    pub written: Vec<Written>,
    /// The pause. `None` if the stores never held enough.
    pub pause: Option<Pause>,
    pub moves: Vec<Move>,
    /// The time in seconds at which the load was stopped.
    pub ended_s: f64,
}

impl FullStore {
    /// Adds a state of the cluster, with the moves known by then. Returns true if insertion should
    /// be paused from now on.
    pub fn note(&mut self, look: Look, written: Written, moves: &[Move]) -> bool {
        let setup = &self.setup;
        match self.pause {
            None if look.share_of_all() * 100.0 >= f64::from(setup.pause_at_percent) => {
                self.pause = Some(Pause { from_s: look.at_s, to_s: None, at_rest: false });
            }
            Some(pause) if pause.to_s.is_none() => {
                let paused_s = look.at_s - pause.from_s;
                let at_rest =
                    paused_s >= setup.rest_s && at_rest(&look, moves, setup.full_percent, setup.rest_s);
                if at_rest || paused_s >= setup.pause_s_max {
                    self.pause = Some(Pause { to_s: Some(look.at_s), at_rest, ..pause });
                }
            }
            _ => {}
        }
        self.looks.push(look);
        self.written.push(written);
        self.pause.is_some_and(|pause| pause.to_s.is_none())
    }

    pub fn sheds(&self) -> Vec<Shed> {
        let bounds = Bounds {
            low_percent: self.setup.full_percent_low,
            copies_per_store: self.setup.copies_per_store,
            late_s: TOLD_S,
        };
        sheds(&self.looks, &self.moves, bounds)
    }

    /// Returns the first moment at which no store was below its threshold.
    pub fn all_full_at(&self) -> Option<f64> {
        self.looks.iter().find(|look| !self.has_room(look)).map(|look| look.at_s)
    }

    fn has_room(&self, look: &Look) -> bool {
        look.stores.is_empty() || look.has_room(self.setup.full_percent)
    }

    /// Returns the last moment at which some store had room, and the counts up to then.
    fn while_room(&self) -> (f64, Written) {
        let last = self.looks.iter().zip(&self.written).rfind(|(look, _)| self.has_room(look));
        last.map_or((0.0, Written::default()), |(look, written)| (look.at_s, written.clone()))
    }

    fn last(&self) -> Written {
        self.written.last().cloned().unwrap_or_default()
    }

    /// Returns when a store first exceeded the threshold, and the largest part of its capacity that
    /// it ever held.
    fn filled(&self, store: u64) -> (Option<f64>, f64) {
        let full = f64::from(self.setup.full_percent) / 100.0;
        let first = self.looks.iter().find(|look| look.share(store) > full).map(|look| look.at_s);
        (first, self.looks.iter().map(|look| look.share(store)).fold(0.0, f64::max))
    }

    fn band(&self) -> (u32, u32) {
        (self.setup.full_percent, self.setup.full_percent_low)
    }

    /// Returns the moments at which a store that had exceeded the threshold fell below the band.
    fn relieved(&self, store: u64) -> Vec<f64> {
        relieved(&self.looks, &self.moves, store, self.band())
    }

    /// Returns the moment at which insertion resumed after the pause.
    fn went_on_at(&self) -> Option<f64> {
        self.pause.and_then(|pause| pause.to_s)
    }

    /// Returns the last state at or before `at_s`, and the counts at that moment.
    fn at(&self, at_s: f64) -> Option<(&Look, &Written)> {
        self.looks.iter().zip(&self.written).rfind(|(look, _)| look.at_s <= at_s)
    }

    pub fn judge(&self) -> Vec<Verdict> {
        let setup = &self.setup;
        let sheds = self.sheds();
        let (until, written) = self.while_room();
        let coldest = sheds.iter().filter(|shed| shed.was_coldest(setup.heat_gap_percent)).count();
        let rivals = sheds.iter().filter(|shed| shed.had_rivals()).count();
        let needless = needless(&self.looks, &self.moves, &sheds, self.band(), LATE_S);
        let went_on = self.went_on_at().unwrap_or(f64::INFINITY);
        let relieved = self.devices.keys().flat_map(|store| self.relieved(*store));
        let relieved = relieved.filter(|at_s| *at_s <= went_on).count();
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
                relieved > 0 && !sheds.is_empty() && needless == 0,
                format!(
                    "{needless} of {} began while their store was below the band; {relieved} times a store that \
                     had been above {}% came below {}%{}",
                    sheds.len(),
                    setup.full_percent,
                    setup.full_percent_low,
                    self.went_on_at().map_or("", |_| " before insertion went on after its pause")
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
        Plot {
            title: format!(
                "{} written until all stores are full, under {}",
                self.setup.stores, self.setup.policy
            ),
            unit: "percent of capacity".to_owned(),
            axis: None,
            lines: self.devices.iter().map(store).collect(),
            levels: vec![level(self.setup.full_percent), level(self.setup.full_percent_low)],
            marks: self.marks(),
            moves: self.sheds().iter().map(|shed| shed.at_s).collect(),
        }
    }

    fn marks(&self) -> Vec<Mark> {
        let moments = [
            ("insertion pauses", self.pause.map(|pause| pause.from_s)),
            ("insertion resumes", self.went_on_at()),
            ("all are full", self.all_full_at()),
        ];
        let mark = |(text, at_s): (&str, Option<f64>)| at_s.map(|at_s| Mark { at_s, text: text.to_owned() });
        moments.into_iter().filter_map(mark).collect()
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
        Plot {
            title: "Operations acknowledged".to_owned(),
            unit: "ops/s".to_owned(),
            axis: None,
            lines: vec![Line { name: self.setup.policy.clone(), points }],
            marks: self.marks(),
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
        let mut page = Page::new("Stores that fill");
        page.paragraph(format!(
            "Stores {} of {} each{}, policy `{}`, {} regions. {} threads insert {} records of 1 KiB a second at most; as often they \
             read and overwrite records of three quarters of the slots, in bands of unequal heat, and the last quarter \
             is written once. When the stores hold {}% of all their capacity, insertion pauses until shedding has come to \
             rest; then it goes on until all are full. Devices at {} of their speed; {}.",
            setup.stores,
            bytes(setup.capacity_bytes as f64),
            setup.device_bytes.map_or(String::new(), |size| {
                format!(" on devices of {}, log and compaction included", bytes(size as f64))
            }),
            setup.policy,
            setup.regions,
            setup.scale.threads,
            count(setup.inserts_per_second),
            setup.pause_at_percent,
            setup.scale.device_speed,
            setup.machine.text()
        ));
        page.section("What it shows");
        page.table(&verdicts(&self.judge()));
        page.figure("used", "full-store-used.svg");
        page.figure("throughput", "full-store-throughput.svg");
        self.stores(&mut page);
        self.rest(&mut page);
        self.end(&mut page);
        self.shed_table(&mut page);
        page.into_text()
    }

    fn stores(&self, page: &mut Page) {
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
        for (store, device) in &self.devices {
            let (full, most) = self.filled(*store);
            table.row([
                store.to_string(),
                device.clone(),
                moment(full),
                percent(most),
                percent(self.looks.last().map_or(0.0, |look| look.share(*store))),
                sheds.iter().filter(|shed| shed.from == *store).count().to_string(),
                format!("{} times", self.relieved(*store).len()),
            ]);
        }
        page.section("Stores");
        page.table(&table);
    }

    /// Describes the shedding while nothing was inserted.
    fn rest(&self, page: &mut Page) {
        use Align::{Left, Right};
        let setup = &self.setup;
        page.section("While insertion paused");
        let Some(pause) = self.pause else {
            let percent = setup.pause_at_percent;
            return page.paragraph(format!("The stores never held {percent}% of their capacity together."));
        };
        let to_s = pause.to_s.unwrap_or(self.ended_s);
        let span = Span::new("pause", pause.from_s, to_s);
        let (first, last) = (self.at(pause.from_s), self.at(to_s));
        let operations = |at: Option<(&Look, &Written)>| at.map_or(0, |(_, written)| written.operations());
        let done = operations(last).saturating_sub(operations(first));
        let seconds = to_s - pause.from_s;
        let came_to = match pause {
            Pause { at_rest: true, .. } => "it was, and insertion went on",
            Pause { to_s: Some(_), .. } => "it was **not**, and insertion went on all the same",
            Pause { to_s: None, .. } => "it was **not** when the run was over",
        };
        page.paragraph(format!(
            "After {:.0} s the stores held {} of all their capacity. For {:.0} s nothing was inserted, and what was there was \
             read and overwritten, {} ops/s; {} operators were begun. Shedding is at rest when no store is above {}% and \
             for {:.0} s no operator was in flight: {came_to}.",
            pause.from_s,
            first.map_or("-".to_owned(), |(look, _)| percent(look.share_of_all())),
            seconds,
            count(done as f64 / seconds.max(1e-9)),
            span.moves_text(&self.moves),
            setup.full_percent,
            setup.rest_s
        ));
        let mut table = Table::new([
            ("store", Right),
            ("device", Left),
            ("when it paused", Right),
            ("when it went on", Right),
            ("shed meanwhile", Right),
            ("below the band after", Right),
        ]);
        let sheds = self.sheds();
        for (store, device) in &self.devices {
            let share = |at: Option<(&Look, &Written)>| at.map_or(0.0, |(look, _)| look.share(*store));
            let shed = sheds.iter().filter(|shed| shed.from == *store && span.holds(shed.at_s));
            table.row([
                store.to_string(),
                device.clone(),
                percent(share(first)),
                percent(share(last)),
                shed.count().to_string(),
                moment(self.relieved(*store).into_iter().find(|at_s| *at_s <= to_s)),
            ]);
        }
        page.table(&table);
    }

    /// Describes the time after no store had room left.
    fn end(&self, page: &mut Page) {
        let (_, before) = self.while_room();
        let last = self.last();
        page.section("When all are full");
        let Some(at_s) = self.all_full_at() else {
            return page.paragraph(format!("In {:.0} s the stores did not all fill.", self.ended_s));
        };
        let after = Span::new("after", at_s, f64::INFINITY);
        let seconds = (self.ended_s - at_s).max(1e-9);
        let since = |field: fn(&Written) -> u64| field(&last).saturating_sub(field(&before));
        let rate = |operations: u64, seconds: f64| count(operations as f64 / seconds);
        let pause = self.pause.map_or("", |_| ", the pause included,");
        page.paragraph(format!(
            "After {at_s:.0} s every store was above {}%: weights are the usual ones again, and writes go on. Until then{pause} \
             {} ops/s were acknowledged, in the {seconds:.0} s that followed {} ops/s; {} writes were refused for lack \
             of space, {} operators begun.",
            self.setup.full_percent,
            rate(before.operations(), at_s.max(1e-9)),
            rate(since(Written::operations), seconds),
            count(since(|written| written.refused) as f64),
            after.moves_text(&self.moves)
        ));
        if let Some(error) = &last.last_error {
            page.paragraph(format!("Another error of a store: {error}"));
        }
    }

    fn shed_table(&self, page: &mut Page) {
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
            return page.paragraph("Nothing was shed.");
        }
        page.section("What was shed");
        page.paragraph(
            "1 is the coldest. A region can go when no operator is in flight for it, all its peers \
             answer, another of them is near enough to lead if its store does, and a store without one has room and is \
             not busy with copies.",
        );
        page.table(&table);
    }
}

/// Formats a share such as `96%`.
fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

/// Formats a moment such as `115 s`, or `-` if there is none.
fn moment(at_s: Option<f64>) -> String {
    at_s.map_or("-".to_owned(), |at_s| format!("{at_s:.0} s"))
}

#[cfg(test)]
mod tests {
    use super::super::shedding::tests::{look, shed_move};
    use super::*;

    fn written(inserted: u64, refused: u64) -> Written {
        Written { inserted, refused, ..Written::default() }
    }

    /// Store 0 fills and sheds twice, the second time until it is below the band. In the end all
    /// stores are full, and writes are refused.
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
                pause_at_percent: 80,
                rest_s: 10.0,
                pause_s_max: 120.0,
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
            pause: Some(Pause { from_s: 10.0, to_s: Some(30.0), at_rest: true }),
            moves: vec![shed_move(11.0, 1, 0, 3), shed_move(41.0, 1, 0, 3)],
            ended_s: 60.0,
        }
    }

    /// Creates an empty run.
    fn empty() -> FullStore {
        FullStore { looks: Vec::new(), written: Vec::new(), pause: None, moves: Vec::new(), ..full_store() }
    }

    /// Returns stores that hold `used` MB of 100 MB each.
    fn stores_at(at_s: f64, used: [u64; 4]) -> Look {
        let mut one = look(at_s, 0, &[1.0]);
        for (store, used) in one.stores.iter_mut().zip(used) {
            store.used_bytes = used * 1_000_000;
        }
        one
    }

    fn passed(run: &FullStore) -> Vec<bool> {
        run.judge().iter().map(|verdict| verdict.passed).collect()
    }

    #[test]
    fn a_store_that_sheds_the_coldest_and_stops_holds_every_claim() {
        let run = full_store();
        assert_eq!(passed(&run), [true; 4]);
        assert_eq!((run.all_full_at(), run.relieved(0), run.relieved(1)), (Some(50.0), vec![30.0], vec![]));
        assert_eq!(run.filled(0), (Some(10.0), 0.96));
    }

    #[test]
    fn shedding_below_the_band_fails() {
        let mut run = full_store();
        run.moves.insert(1, shed_move(24.0, 1, 0, 3));
        assert_eq!(passed(&run), [true; 4], "within the band it is right");
        run.moves[1] = shed_move(34.0, 1, 0, 3);
        assert_eq!(passed(&run), [true, false, true, true]);
        assert!(run.judge()[1].because.starts_with("1 of 3 began while"), "{:?}", run.judge());
    }

    #[test]
    fn that_no_store_came_below_the_band_is_no_proof_that_shedding_stops() {
        let mut run = full_store();
        run.looks[3].stores[0].used_bytes = 91_000_000;
        assert_eq!(passed(&run), [true, false, true, true]);
        assert!(run.judge()[1].because.contains("; 0 times a store"), "{:?}", run.judge());
    }

    #[test]
    fn a_store_counts_as_relieved_by_the_pause_or_before_it() {
        let mut run = full_store();
        run.pause = Some(Pause { from_s: 10.0, to_s: Some(20.0), at_rest: false });
        assert_eq!(passed(&run), [true, false, true, true], "it came below the band only later");
        run.pause = None;
        assert_eq!(passed(&run), [true; 4]);
    }

    #[test]
    fn insertion_pauses_once_until_shedding_rests() {
        let mut run = empty();
        let moves = [shed_move(12.0, 1, 0, 3)];
        let mut note = |at_s, used| run.note(stores_at(at_s, used), Written::default(), &moves);
        assert!(!note(0.0, [96, 70, 70, 70]), "76.5% of all capacity");
        assert!(note(10.0, [98, 74, 74, 74]));
        assert!(note(22.0, [94, 74, 74, 78]), "a copy ended less than 10 s before");
        assert!(note(24.0, [96, 74, 74, 76]), "a store is above the band");
        assert!(!note(25.0, [88, 74, 74, 84]));
        assert!(!note(26.0, [98, 94, 94, 94]), "once");
        assert_eq!(run.pause, Some(Pause { from_s: 10.0, to_s: Some(25.0), at_rest: true }));
        assert_eq!((run.looks.len(), run.written.len()), (6, 6));
        assert!(run.report().contains("it was, and insertion went on."), "{}", run.report());
    }

    #[test]
    fn a_pause_ends_at_its_limit_though_shedding_goes_on() {
        let mut run = empty();
        assert!(run.note(stores_at(10.0, [98, 74, 74, 74]), Written::default(), &[]));
        assert!(run.note(stores_at(129.0, [98, 74, 74, 74]), Written::default(), &[]));
        assert!(run.report().contains("it was **not** when the run was over"), "{}", run.report());
        assert!(!run.note(stores_at(130.0, [98, 74, 74, 74]), Written::default(), &[]));
        assert_eq!(run.pause, Some(Pause { from_s: 10.0, to_s: Some(130.0), at_rest: false }));
        assert!(run.report().contains("it was **not**, and insertion went on"), "{}", run.report());
    }

    #[test]
    fn a_hot_region_a_refusal_and_needless_shedding_are_told() {
        let mut run = full_store();
        run.moves.insert(1, shed_move(32.0, 3, 0, 3));
        run.written[4].refused = 1;
        assert_eq!(passed(&run), [false, false, false, true]);
        assert!(run.judge()[0].because.starts_with("2 of 3"), "{}", run.judge()[0].because);
    }

    #[test]
    fn nothing_shed_proves_nothing() {
        let run = FullStore { moves: Vec::new(), ..full_store() };
        assert!(!run.judge()[0].passed && run.report().contains("Nothing was shed."));
    }

    #[test]
    fn the_report_says_who_was_full_what_was_shed_and_what_came_then() {
        let text = full_store().report();
        for wanted in [
            "1 of 4",
            "96.0% full",
            "For 20 s nothing was inserted",
            "it was, and insertion went on.",
            "After 50 s every store",
            "7 writes were refused",
            "1 times",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let run = full_store();
        let json = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<FullStore>(&json).unwrap(), run);
        assert!(run.plots().iter().all(|(_, plot)| plot.svg().is_ok()));
    }
}
