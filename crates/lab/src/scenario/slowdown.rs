//! A store's device becomes many times slower while the cluster works, and later recovers.
//!
//! The best possible throughput after the slow-down is measured. The same cluster is started again
//! with that store slow and known to be slow from the beginning, so that the layout suits it.
//! Recovery is judged against its steady throughput.

use serde::{Deserialize, Serialize};

use super::moves::{reversals, Move, Span};
use super::plot::{Level, Line, Mark, Plot};
use super::series::{mean_between, recovery, Recovery, WINDOW_S};
use super::verdict::{verdicts, Verdict};
use super::Machine;
use crate::alor::Scale;
use crate::page::Page;
use crate::ycsb::{Second, Workload};
use client::table::{bytes, count, Align, Table};

/// The part of the best possible throughput that counts as recovered.
pub const RECOVERED_SHARE: f64 = 0.8;
pub const RECOVERED_WITHIN_S: f64 = 120.0;
/// Maximum time in seconds until a slow store has lost weight.
pub const WEIGHT_LOST_WITHIN_S: f64 = 60.0;
/// Length in seconds of the end of the run, in which a cluster that does not thrash moves almost
/// nothing.
pub const CALM_S: f64 = 60.0;
pub const CALM_MOVES_MAX: usize = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Devices, such as 1N2H3P.
    pub stores: String,
    pub workload: Workload,
    pub scale: Scale,
    pub records: u64,
    /// The rate of operations. `None` for closed-loop threads.
    pub target_per_s: Option<f64>,
    pub slow_factor: f64,
    pub steady_s: f64,
    pub slowed_s: f64,
    pub restored_s: f64,
    pub machine: Machine,
}

impl Setup {
    pub fn slowed_at(&self) -> f64 {
        self.steady_s
    }

    pub fn restored_at(&self) -> f64 {
        self.steady_s + self.slowed_s
    }

    pub fn end(&self) -> f64 {
        self.restored_at() + self.restored_s
    }

    pub fn spans(&self) -> [Span; 4] {
        let calm = self.end() - CALM_S.min(self.restored_s);
        [
            Span::new("steady", 0.0, self.slowed_at()),
            Span::new("slowed", self.slowed_at(), self.restored_at()),
            Span::new("restored", self.restored_at(), self.end()),
            Span::new("its last minute", calm, self.end()),
        ]
    }
}

/// The state of the slowed store at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreLook {
    pub at_s: f64,
    /// The capability that the cluster attributes to it, in KV bytes per second.
    pub capability_bytes_per_s: f64,
    pub leaders: u64,
    pub regions: u64,
}

/// A cluster whose store was slowed while it worked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    pub policy: String,
    pub store: u64,
    pub device: String,
    /// The times at which the factors were actually set.
    pub slowed_at_s: f64,
    pub restored_at_s: f64,
    pub series: Vec<Second>,
    pub looks: Vec<StoreLook>,
    pub moves: Vec<Move>,
    /// The reasons to doubt the series, such as failed operations or CPU use.
    pub faults: Vec<String>,
}

/// A cluster whose store was slow, and known to be slow, from the beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    pub policy: String,
    /// Throughput of the second half of the run, when caches are warm.
    pub steady_per_s: f64,
    pub series: Vec<Second>,
    pub faults: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slowdown {
    pub version: u32,
    pub setup: Setup,
    pub subjects: Vec<Subject>,
    pub references: Vec<Reference>,
}

pub const VERSION: u32 = 1;

/// Returns the steady rate of a reference run that took `seconds`.
pub fn steady_rate(series: &[Second], seconds: f64) -> Option<f64> {
    mean_between(series, seconds / 2.0, seconds)
}

impl Slowdown {
    /// Returns the best steady rate of the layouts that were made for the slow store.
    pub fn best_per_s(&self) -> Option<f64> {
        self.references.iter().map(|reference| reference.steady_per_s).reduce(f64::max)
    }

    fn threshold(&self) -> f64 {
        self.best_per_s().map_or(f64::INFINITY, |best| RECOVERED_SHARE * best)
    }

    pub fn recovered(&self, subject: &Subject) -> Recovery {
        recovery(&subject.series, subject.slowed_at_s, subject.restored_at_s, self.threshold())
    }

    fn mean(&self, subject: &Subject, span: &Span) -> Option<f64> {
        mean_between(&subject.series, span.from_s, span.to_s)
    }

    /// Judges the claims about `subject`. A policy that does not react is only shown and not
    /// judged.
    pub fn judge(&self, subject: &Subject) -> Vec<Verdict> {
        let [steady, slowed, restored, calm] = self.setup.spans();
        let recovered = self.recovered(subject);
        let best = self.best_per_s();
        let after = recovered.seconds().and_then(|seconds| {
            mean_between(&subject.series, subject.slowed_at_s + seconds, subject.restored_at_s)
        });
        let share = |rate: Option<f64>, of: Option<f64>| match (rate, of) {
            (Some(rate), Some(of)) if of > 0.0 => format!("{:.0}%", 100.0 * rate / of),
            _ => "-".to_owned(),
        };
        let lost = self.weight_lost_after(subject);
        let regained = weight_regained(subject);
        let last = calm.moves(&subject.moves).count();
        let (before, end) = (self.mean(subject, &steady), self.mean(subject, &calm));
        let there_and_back = reversals(restored.moves(&subject.moves));
        vec![
            Verdict::new(
                format!(
                    "back to {:.0}% of the best possible within {RECOVERED_WITHIN_S:.0} s",
                    100.0 * RECOVERED_SHARE
                ),
                recovered.seconds().is_some_and(|seconds| seconds <= RECOVERED_WITHIN_S),
                format!(
                    "{}; from then on {} of {} ops/s, {}",
                    recovered.text(),
                    after.map_or("-".to_owned(), count),
                    best.map_or("-".to_owned(), count),
                    share(after, best)
                ),
            ),
            Verdict::new(
                format!("the slow store loses weight within {WEIGHT_LOST_WITHIN_S:.0} s"),
                lost.is_some_and(|seconds| seconds <= WEIGHT_LOST_WITHIN_S),
                lost.map_or("it kept its weight".to_owned(), |seconds| {
                    format!("after {seconds:.0} s it counted for less than half")
                }),
            ),
            Verdict::new(
                "restored, the store regains its weight (80% of before)",
                regained.is_some_and(|share| share >= 0.8),
                regained.map_or("nothing is known of it".to_owned(), |share| {
                    format!("at the end it counts for {:.0}% of what it did", 100.0 * share)
                }),
            ),
            Verdict::new(
                format!("restored, at most {CALM_MOVES_MAX} moves in the last {CALM_S:.0} s"),
                last <= CALM_MOVES_MAX,
                format!(
                    "{last} moves; {} while slow, {} after the return, {there_and_back} of these there and back",
                    slowed.moves(&subject.moves).count(),
                    restored.moves(&subject.moves).count()
                ),
            ),
            Verdict::new(
                "restored, as fast as before (90% of the steady rate in the last minute)",
                before.zip(end).is_some_and(|(before, end)| end >= 0.9 * before),
                format!(
                    "{} of {} ops/s, {}",
                    end.map_or("-".to_owned(), count),
                    before.map_or("-".to_owned(), count),
                    share(end, before)
                ),
            ),
        ]
    }

    /// Returns the seconds from the slow-down until the cluster attributed to the store less than
    /// half of its capability before.
    fn weight_lost_after(&self, subject: &Subject) -> Option<f64> {
        let before = subject.looks.iter().rfind(|look| look.at_s <= subject.slowed_at_s)?;
        let half = before.capability_bytes_per_s / 2.0;
        let slow = |look: &&StoreLook| {
            subject.slowed_at_s < look.at_s
                && look.at_s <= subject.restored_at_s
                && look.capability_bytes_per_s < half
        };
        subject.looks.iter().find(slow).map(|look| look.at_s - subject.slowed_at_s)
    }

    pub fn throughput_plot(&self) -> Plot {
        let line = |name: &str, series: &[Second]| Line { name: name.to_owned(), points: smooth(series) };
        let mut levels = Vec::new();
        if let Some(best) = self.best_per_s() {
            levels.push(Level { name: "best possible with the slow store".to_owned(), value: best });
            levels.push(Level {
                name: format!("{:.0}% of it", 100.0 * RECOVERED_SHARE),
                value: RECOVERED_SHARE * best,
            });
        }
        Plot {
            title: format!(
                "Throughput of {} on {}, a store slowed {}-fold",
                self.setup.workload.name(),
                self.setup.stores,
                self.setup.slow_factor
            ),
            unit: "ops/s, means over 5 s".to_owned(),
            axis: None,
            lines: self.subjects.iter().map(|subject| line(&subject.policy, &subject.series)).collect(),
            levels,
            marks: self.marks(),
            moves: self
                .subjects
                .first()
                .map_or(Vec::new(), |subject| subject.moves.iter().map(|one| one.at_s).collect()),
        }
    }

    /// Returns a plot of the slowed store's leaders, regions and capability as seen by the cluster,
    /// each as a part of its maximum.
    pub fn store_plot(&self, subject: &Subject) -> Plot {
        let most =
            |field: fn(&StoreLook) -> f64| subject.looks.iter().map(field).fold(f64::MIN_POSITIVE, f64::max);
        let line = |name: &str, field: fn(&StoreLook) -> f64| Line {
            name: name.to_owned(),
            points: subject.looks.iter().map(|look| (look.at_s, field(look) / most(field))).collect(),
        };
        Plot {
            title: format!("Store {} ({}) under {}", subject.store, subject.device, subject.policy),
            unit: "of the most it had".to_owned(),
            axis: None,
            lines: vec![
                line("capability", |look| look.capability_bytes_per_s),
                line("regions it leads", |look| look.leaders as f64),
                line("regions it holds", |look| look.regions as f64),
            ],
            levels: Vec::new(),
            marks: self.marks(),
            moves: subject.moves.iter().map(|one| one.at_s).collect(),
        }
    }

    fn marks(&self) -> Vec<Mark> {
        let mark = |at_s, text: &str| Mark { at_s, text: text.to_owned() };
        vec![mark(self.setup.slowed_at(), "slowed"), mark(self.setup.restored_at(), "restored")]
    }

    pub fn plots(&self) -> Vec<(String, Plot)> {
        let mut plots = vec![("slowdown-throughput.svg".to_owned(), self.throughput_plot())];
        let of =
            |subject: &Subject| (format!("slowdown-{}-store.svg", subject.policy), self.store_plot(subject));
        plots.extend(self.subjects.iter().map(of));
        plots
    }

    pub fn report(&self) -> String {
        let setup = &self.setup;
        let mut page = Page::new("A store that slows and recovers");
        page.paragraph(format!(
            "Stores {}, {} over {} records, {}; after {:.0} s one store became {} times slower, \
             after {:.0} s more as fast as before, and {:.0} s later the run ended. Recovered: the mean of {WINDOW_S:.0} s \
             and that of all that is left until the store is restored are at {:.0}% of the best possible, which is \
             the steady rate of the same cluster started anew with that store slow from the beginning, and known \
             to be, under the best of the policies.",
            setup.stores,
            setup.workload.name(),
            count(setup.records as f64),
            match setup.target_per_s {
                Some(target) => format!("{} ops/s asked for", count(target)),
                None => format!("{} closed-loop threads", setup.scale.threads),
            },
            setup.steady_s,
            setup.slow_factor,
            setup.slowed_s,
            setup.restored_s,
            100.0 * RECOVERED_SHARE
        ));
        let speed = setup.scale.device_speed;
        page.paragraph(format!("Devices at {speed} of their speed; {}.", setup.machine.text()));
        for subject in self.subjects.iter().filter(|subject| subject.policy != crate::alor::BASELINE) {
            if self.subjects.len() > 1 {
                page.subsection(&subject.policy);
            }
            page.section("What it shows");
            page.table(&verdicts(&self.judge(subject)));
        }
        page.section("Throughput and moves");
        page.table(&self.table());
        page.figure("throughput", "slowdown-throughput.svg");
        page.list(self.subjects.iter().map(store_text));
        let faults = self.subjects.iter().map(|one| (&one.policy, &one.faults));
        let faults = faults.chain(self.references.iter().map(|one| (&one.policy, &one.faults)));
        let faults = faults.filter(|(_, faults)| !faults.is_empty());
        page.list(faults.map(|(policy, faults)| format!("{policy}: {}", faults.join("; "))));
        page.into_text()
    }

    fn table(&self) -> Table {
        use Align::{Left, Right};
        let [steady, slowed, restored, calm] = self.setup.spans();
        let mut table = Table::new([
            ("policy", Left),
            ("steady, ops/s", Right),
            ("slowed", Right),
            ("restored", Right),
            ("its last minute", Right),
            ("slow from the start", Right),
            ("recovered after", Right),
            ("moves: steady", Right),
            ("slowed", Right),
            ("restored", Right),
            ("last minute", Right),
        ]);
        for subject in &self.subjects {
            let rate = |span: &Span| self.mean(subject, span).map_or("-".to_owned(), count);
            let reference = self.references.iter().find(|reference| reference.policy == subject.policy);
            table.row([
                subject.policy.clone(),
                rate(&steady),
                rate(&slowed),
                rate(&restored),
                rate(&calm),
                reference.map_or("-".to_owned(), |reference| count(reference.steady_per_s)),
                self.recovered(subject).text(),
                steady.moves_text(&subject.moves),
                slowed.moves_text(&subject.moves),
                restored.moves_text(&subject.moves),
                calm.moves_text(&subject.moves),
            ]);
        }
        table
    }
}

fn store_text(subject: &Subject) -> String {
    let Subject { store, device, policy, .. } = subject;
    let shown = |at_s: f64| {
        let look = subject.looks.iter().rfind(|look| look.at_s <= at_s);
        look.map_or("unknown".to_owned(), |look| {
            let StoreLook { leaders, regions, .. } = look;
            format!("{}/s, {leaders} leaders, {regions} regions", bytes(look.capability_bytes_per_s))
        })
    };
    format!(
        "Store {store} ({device}) under {policy}: {} before, {} when it was restored, {} at the end\n  \
         ([over time](slowdown-{policy}-store.svg)).",
        shown(subject.slowed_at_s),
        shown(subject.restored_at_s),
        shown(f64::INFINITY),
    )
}

/// Returns the store's capability at the end, as seen by the cluster, as a part of that before the
/// slow-down.
fn weight_regained(subject: &Subject) -> Option<f64> {
    let before = subject.looks.iter().rfind(|look| look.at_s <= subject.slowed_at_s)?;
    let end = subject.looks.iter().rfind(|look| look.at_s > subject.restored_at_s)?;
    Some(end.capability_bytes_per_s / before.capability_bytes_per_s.max(f64::MIN_POSITIVE))
}

/// Returns means over five seconds, because single seconds vary too much.
fn smooth(series: &[Second]) -> Vec<(f64, f64)> {
    let mean = |at: f64| mean_between(series, at - 2.5, at + 2.5).map(|rate| (at, rate));
    series.iter().filter_map(|second| mean(second.at_s - 0.5)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::moves::tests::moved;
    use super::super::series::tests::series;
    use super::*;

    fn slowdown() -> Slowdown {
        let look = |at_s, capability_bytes_per_s, leaders| StoreLook {
            at_s,
            capability_bytes_per_s,
            leaders,
            regions: 12,
        };
        let subject = |policy: &str, series: Vec<Second>, moves| Subject {
            policy: policy.to_owned(),
            store: 0,
            device: "nvm".to_owned(),
            slowed_at_s: 60.0,
            restored_at_s: 240.0,
            series,
            looks: vec![look(59.0, 8e6, 12), look(80.0, 7e6, 12), look(95.0, 1e6, 3), look(420.0, 8e6, 11)],
            moves,
            faults: Vec::new(),
        };
        let quick = series(&[(60, 1000), (40, 100), (140, 900), (180, 1000)]);
        let stuck = series(&[(60, 500), (180, 50), (180, 500)]);
        let moves = vec![
            moved(70.0, 1, "transfer-leader", 0, 1),
            moved(260.0, 1, "transfer-leader", 1, 0),
            moved(270.0, 1, "move-peer", 3, 4),
        ];
        Slowdown {
            version: VERSION,
            setup: Setup {
                stores: "1N2H3P".to_owned(),
                workload: Workload::A,
                scale: Scale::named("quick").unwrap(),
                records: 10_000,
                target_per_s: None,
                slow_factor: 10.0,
                steady_s: 60.0,
                slowed_s: 180.0,
                restored_s: 180.0,
                machine: Machine { cpus: 2, file_system: "tmpfs".into(), program: "steelyard 0".into() },
            },
            subjects: vec![subject("adaptive", quick, moves), subject("even", stuck, Vec::new())],
            references: vec![Reference {
                policy: "adaptive".to_owned(),
                steady_per_s: 1000.0,
                series: Vec::new(),
                faults: Vec::new(),
            }],
        }
    }

    #[test]
    fn a_cluster_that_came_back_holds_every_claim_and_one_that_did_not_holds_none_of_recovery() {
        let slowdown = slowdown();
        assert_eq!(slowdown.recovered(&slowdown.subjects[0]), Recovery::After { seconds: 39.0 });
        assert!(slowdown.judge(&slowdown.subjects[0]).iter().all(|verdict| verdict.passed));
        assert_eq!(slowdown.recovered(&slowdown.subjects[1]), Recovery::Never);
        assert!(!slowdown.judge(&slowdown.subjects[1])[0].passed);
    }

    #[test]
    fn moves_at_the_end_are_thrashing() {
        let mut slowdown = slowdown();
        let late = (0..3).map(|at| moved(400.0 + at as f64, 5, "move-peer", at, at + 1));
        slowdown.subjects[0].moves.extend(late);
        let verdicts = slowdown.judge(&slowdown.subjects[0]);
        assert!(!verdicts[3].passed && verdicts[3].because.starts_with("3 moves"), "{}", verdicts[3].because);
    }

    #[test]
    fn a_store_that_keeps_its_weight_is_told() {
        let mut slowdown = slowdown();
        assert_eq!(slowdown.weight_lost_after(&slowdown.subjects[0]), Some(35.0));
        slowdown.subjects[0].looks.retain(|look| look.at_s != 95.0);
        let verdicts = slowdown.judge(&slowdown.subjects[0]);
        assert!(!verdicts[1].passed, "a lower weight after the recovery does not count");
    }

    #[test]
    fn a_store_that_stays_distrusted_is_told() {
        let mut slowdown = slowdown();
        assert_eq!(weight_regained(&slowdown.subjects[0]), Some(1.0));
        slowdown.subjects[0].looks[3].capability_bytes_per_s = 2e6;
        let verdicts = slowdown.judge(&slowdown.subjects[0]);
        assert!(!verdicts[2].passed && verdicts[2].because.contains("25%"), "{}", verdicts[2].because);
    }

    #[test]
    fn without_a_reference_nothing_has_recovered() {
        let mut slowdown = slowdown();
        slowdown.references.clear();
        assert!(!slowdown.judge(&slowdown.subjects[0])[0].passed);
        assert_eq!(steady_rate(&series(&[(30, 10), (30, 1000)]), 60.0), Some(1000.0));
    }

    #[test]
    fn the_report_names_phases_moves_and_verdicts() {
        let slowdown = slowdown();
        let text = slowdown.report();
        for wanted in [
            "39 s; from then on",
            "1 (1 transfer-leader)",
            "2 (1 move-peer, 1 transfer-leader)",
            "never",
            "holds",
            "8.0 MB/s, 12 leaders",
            "slowdown-throughput.svg",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains("does not hold"), "even is shown and not judged: {text}");
        let json = serde_json::to_string(&slowdown).unwrap();
        assert_eq!(serde_json::from_str::<Slowdown>(&json).unwrap(), slowdown);
        for (_, plot) in slowdown.plots() {
            assert!(plot.svg().is_ok());
        }
    }
}
