//! The figures and what each of them compares: ALOR's (NPC 2018), by their captions in §4.2 to
//! §4.7, and our own.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ycsb::{Kind, Workload};

/// The baseline of every ratio: even distribution.
pub const BASELINE: &str = "even";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    Throughput,
    /// The mean latency of all operations of a workload.
    MeanLatency,
    TailLatency,
    MeanWriteLatency,
    TailWriteLatency,
    MeanReadLatency,
    TailReadLatency,
}

impl Metric {
    pub fn name(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput",
            Metric::MeanLatency => "mean latency",
            Metric::TailLatency => "p99 latency",
            Metric::MeanWriteLatency => "mean write latency",
            Metric::TailWriteLatency => "p99 write latency",
            Metric::MeanReadLatency => "mean read latency",
            Metric::TailReadLatency => "p99 read latency",
        }
    }

    /// The kinds of operations that the metric counts. `None` for all kinds.
    pub fn kinds(self) -> Option<&'static [Kind]> {
        match self {
            Metric::Throughput | Metric::MeanLatency | Metric::TailLatency => None,
            Metric::MeanWriteLatency | Metric::TailWriteLatency => Some(&[Kind::Insert, Kind::Update]),
            Metric::MeanReadLatency | Metric::TailReadLatency => Some(&[Kind::Read]),
        }
    }

    /// Returns true if the workload has operations that the metric counts.
    pub fn is_of(self, workload: Workload) -> bool {
        self.kinds().is_none_or(|kinds| kinds.iter().any(|kind| workload.share(*kind) > 0))
    }

    /// Returns the same metric over all operations, if the metric counts every operation of the
    /// workload.
    pub fn of_all(self, workload: Workload) -> Option<Metric> {
        let counted = |kinds: &[Kind]| kinds.iter().map(|kind| workload.share(*kind)).sum::<u64>();
        match self {
            _ if self.kinds().is_some_and(|kinds| counted(kinds) < 100) => None,
            Metric::Throughput => Some(Metric::Throughput),
            Metric::MeanLatency | Metric::MeanWriteLatency | Metric::MeanReadLatency => {
                Some(Metric::MeanLatency)
            }
            Metric::TailLatency | Metric::TailWriteLatency | Metric::TailReadLatency => {
                Some(Metric::TailLatency)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comparison {
    /// The paper's main cluster under every workload (§4.2).
    Workloads,
    /// The same number of stores with different numbers of fast ones (§4.4).
    Mixes,
    /// Four, five and six stores, with data in proportion (§4.5).
    Scales,
    /// Leader migration alone, and together with the skewed layout (§4.6).
    Components,
    /// Four stores that each have an NVM cache before a plain SSD, beside one NVM store and three
    /// plain stores (§4.7).
    Hybrid,
    /// Six stores with an NVM cache, beside one NVM store and five plain stores. Not in the paper.
    SixHybrids,
    /// Equal stores, on which no policy may differ from the baseline. Not in the paper.
    Equal,
}

/// The policies that are compared on one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub mix: &'static str,
    pub policies: &'static [&'static str],
}

const fn group(mix: &'static str, policies: &'static [&'static str]) -> Group {
    Group { mix, policies }
}

const ALL_POLICIES: &[&str] = &[BASELINE, "leader-only", "alor", "adaptive"];
const BOTH: &[&str] = &[BASELINE, "alor"];

impl Comparison {
    pub fn groups(self) -> &'static [Group] {
        const WORKLOADS: &[Group] = &[group("1N2H3P", ALL_POLICIES)];
        const MIXES: &[Group] =
            &[group("2H4P", BOTH), group("1N2H3P", BOTH), group("2N2H2P", BOTH), group("3N2H1P", BOTH)];
        const SCALES: &[Group] = &[group("1H3P", BOTH), group("1N1H3P", BOTH), group("1N2H3P", BOTH)];
        const COMPONENTS: &[Group] = &[group("1N2H3P", &[BASELINE, "leader-only", "alor"])];
        const HYBRID: &[Group] = &[group("4Y", &[BASELINE]), group("1N3P", BOTH)];
        const SIX_HYBRIDS: &[Group] = &[group("6Y", &[BASELINE]), group("1N5P", &["alor"])];
        const EQUAL: &[Group] = &[group("6P", ALL_POLICIES)];
        match self {
            Comparison::Workloads => WORKLOADS,
            Comparison::Mixes => MIXES,
            Comparison::Scales => SCALES,
            Comparison::Components => COMPONENTS,
            Comparison::Hybrid => HYBRID,
            Comparison::SixHybrids => SIX_HYBRIDS,
            Comparison::Equal => EQUAL,
        }
    }

    /// The cluster whose runs under [`BASELINE`] are the baseline of `mix`. It is the same cluster,
    /// except beside hybrid stores.
    pub fn baseline_mix(self, mix: &'static str) -> &'static str {
        match self {
            Comparison::Hybrid => "4Y",
            Comparison::SixHybrids => "6Y",
            _ => mix,
        }
    }

    /// Returns true if ratios are relative to this bar. Beside hybrid stores, even distribution
    /// over unequal stores is not the baseline.
    pub fn is_baseline(self, mix: &str, policy: &str) -> bool {
        let own = self.groups().iter().find(|group| group.mix == mix);
        policy == BASELINE && own.is_some_and(|group| self.baseline_mix(group.mix) == mix)
    }

    /// A note for readers who compare with the paper's figure. May be empty.
    pub fn note(self) -> &'static str {
        match self {
            Comparison::Mixes | Comparison::Scales => {
                "The paper shows Load. The other workloads are ours, and their latencies are over all operations."
            },
            Comparison::Hybrid => {
                "As in the paper, four stores hold 5 GB, by the data factor. A hybrid's plain SSD has three quarters of a \
                 store's capacity, its cache a quarter. Ratios are over the hybrid stores."
            }
            _ => "",
        }
    }

    /// The workloads that the figure shows. They include all that the paper shows.
    pub fn workloads(self) -> &'static [Workload] {
        match self {
            Comparison::Components | Comparison::Hybrid => &[Workload::Load, Workload::C],
            Comparison::SixHybrids => &[Workload::Load, Workload::A],
            _ => &[Workload::Load, Workload::A, Workload::B, Workload::C],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The paper's number, or a name if the paper has no such figure.
    pub name: &'static str,
    pub title: &'static str,
    pub comparison: Comparison,
    pub metrics: &'static [Metric],
}

impl Figure {
    pub fn is_the_papers(&self) -> bool {
        self.name.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Returns `Figure 5` for a figure of the paper, and the title for any other.
    pub fn heading(&self) -> String {
        if self.is_the_papers() {
            format!("Figure {}", self.name)
        } else {
            self.title.to_owned()
        }
    }
}

const fn figure(
    name: &'static str,
    title: &'static str,
    comparison: Comparison,
    metrics: &'static [Metric],
) -> Figure {
    Figure { name, title, comparison, metrics }
}

const THROUGHPUT: &[Metric] = &[Metric::Throughput];
const LATENCY: &[Metric] = &[Metric::MeanLatency, Metric::TailLatency];
const WRITES: &[Metric] = &[Metric::MeanWriteLatency, Metric::TailWriteLatency];
const READS: &[Metric] = &[Metric::MeanReadLatency, Metric::TailReadLatency];
const EVERYTHING: &[Metric] = &[Metric::Throughput, Metric::MeanLatency, Metric::TailLatency];

pub const FIGURES: [Figure; 14] = [
    figure("5", "Throughput by workload, 1N2H3P", Comparison::Workloads, THROUGHPUT),
    figure("6", "Writes by workload, 1N2H3P", Comparison::Workloads, WRITES),
    figure("7", "Reads by workload, 1N2H3P", Comparison::Workloads, READS),
    figure("11", "Throughput by mix of devices", Comparison::Mixes, THROUGHPUT),
    figure("12", "Latency by mix of devices", Comparison::Mixes, LATENCY),
    figure("13", "Throughput of four, five and six stores", Comparison::Scales, THROUGHPUT),
    figure("14", "Latency of four, five and six stores", Comparison::Scales, LATENCY),
    figure("15", "Throughput of ALOR's components", Comparison::Components, THROUGHPUT),
    figure("16", "Latency of ALOR's components", Comparison::Components, LATENCY),
    figure("17", "Throughput beside hybrid stores", Comparison::Hybrid, THROUGHPUT),
    figure("18", "Latency beside hybrid stores", Comparison::Hybrid, LATENCY),
    figure(
        "all-operations",
        "All operations by workload, 1N2H3P (not in the paper)",
        Comparison::Workloads,
        LATENCY,
    ),
    figure("six-hybrids", "Beside six hybrid stores (not in the paper)", Comparison::SixHybrids, EVERYTHING),
    figure("equal", "Six equal stores (not in the paper)", Comparison::Equal, EVERYTHING),
];

/// Figures of the paper that do not compare runs: number, caption, and where their numbers are.
const NOT_DRAWN: [(&str, &str, &str); 3] = [
    (
        "8",
        "throughput during the data loading process",
        "it is not plotted; every second of Load is in the runs' JSON files (`series`)",
    ),
    (
        "9",
        "latency during the data loading process",
        "it is not plotted; every second of Load is in the runs' JSON files (`series`)",
    ),
    (
        "10",
        "relationship between I/O and KV performance",
        "it is not plotted; `steelyard calibrate` measures and fits it",
    ),
];

fn is_known(name: &str) -> bool {
    FIGURES.iter().any(|figure| figure.name == name) || NOT_DRAWN.iter().any(|(number, ..)| *number == name)
}

/// Returns the names of the wanted figures. An empty list means every figure of the paper.
fn names(wanted: &[String]) -> Result<BTreeSet<String>, String> {
    let unknown = |text: &str| {
        format!(
            "'{text}' is no figure: name 5 to 18, a range such as 5-7, all-operations, six-hybrids or equal"
        )
    };
    let everything = ["5-18".to_owned()];
    let wanted = if wanted.is_empty() { &everything } else { wanted };
    let mut names = BTreeSet::new();
    for text in wanted {
        let range = text.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        let of_text: Vec<String> = match range {
            Some((from, to)) => (from..=to).map(|number: u8| number.to_string()).collect(),
            None => vec![text.clone()],
        };
        if of_text.is_empty() || !of_text.iter().all(|name| is_known(name)) {
            return Err(unknown(text));
        }
        names.extend(of_text);
    }
    Ok(names)
}

/// Returns the wanted figures: `5`, `5-7` or `equal`, and every figure of the paper for an empty
/// list. A range leaves out the figures that cannot be drawn; see [`not_drawn`]. It is an error to
/// name one of those alone.
pub fn select(wanted: &[String]) -> Result<Vec<Figure>, String> {
    let names = names(wanted)?;
    let alone = NOT_DRAWN.iter().find(|(number, ..)| wanted.iter().any(|text| text == number));
    if let Some((number, caption, why)) = alone {
        return Err(format!("figure {number}, {caption}: {why}"));
    }
    Ok(FIGURES.iter().copied().filter(|figure| names.contains(figure.name)).collect())
}

/// Returns the figures that are wanted but left out by [`select`], each with the reason.
pub fn not_drawn(wanted: &[String]) -> Vec<String> {
    let names = names(wanted).unwrap_or_default();
    let asked = NOT_DRAWN.iter().filter(|(number, ..)| names.contains(*number));
    asked.map(|(number, caption, why)| format!("figure {number}, {caption}: {why}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use predict::alor::devices;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn names_of(texts: &[&str]) -> Result<Vec<&'static str>, String> {
        select(&strings(texts)).map(|figures| figures.iter().map(|figure| figure.name).collect())
    }

    #[test]
    fn figures_5_to_18_are_drawn_or_said_not_to_be() {
        let drawn = names_of(&[]).unwrap();
        assert_eq!(drawn, ["5", "6", "7", "11", "12", "13", "14", "15", "16", "17", "18"]);
        let left_out = not_drawn(&[]);
        assert_eq!(left_out.len(), 3);
        assert!(left_out[2].starts_with("figure 10, relationship between I/O and KV performance: "));
        assert_eq!(names_of(&["5-7", "15"]).unwrap(), ["5", "6", "7", "15"]);
        assert_eq!(names_of(&["7-11"]).unwrap(), ["7", "11"]);
        assert_eq!(not_drawn(&strings(&["5-7", "9-11"])).len(), 2);
        assert_eq!(names_of(&["equal", "six-hybrids"]).unwrap(), ["six-hybrids", "equal"]);
        assert!(not_drawn(&strings(&["equal"])).is_empty());
        for bad in ["4", "19", "7-5", "x", "5-x", "5-19", ""] {
            let error = names_of(&[bad]).unwrap_err();
            assert!(error.contains("is no figure"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_figure_that_is_not_drawn_is_refused_by_its_number() {
        let error = names_of(&["5", "8"]).unwrap_err();
        assert!(error.starts_with("figure 8, throughput during the data loading process: "), "{error}");
    }

    /// The captions are in ALOR §4.2 and §4.4 to §4.7.
    #[test]
    fn figures_show_what_their_captions_say() {
        let all = |name: &str| FIGURES.into_iter().find(|figure| figure.name == name).unwrap();
        let show = |name: &str, comparison: Comparison, metrics: &[Metric]| {
            let figure = all(name);
            assert_eq!((figure.comparison, figure.metrics), (comparison, metrics), "{name}");
        };
        show("5", Comparison::Workloads, THROUGHPUT);
        show("6", Comparison::Workloads, &[Metric::MeanWriteLatency, Metric::TailWriteLatency]);
        show("7", Comparison::Workloads, &[Metric::MeanReadLatency, Metric::TailReadLatency]);
        for (throughput, latency, comparison) in [
            ("11", "12", Comparison::Mixes),
            ("13", "14", Comparison::Scales),
            ("15", "16", Comparison::Components),
            ("17", "18", Comparison::Hybrid),
        ] {
            show(throughput, comparison, THROUGHPUT);
            show(latency, comparison, LATENCY);
        }
        assert_eq!(Comparison::Components.workloads(), [Workload::Load, Workload::C]);
        assert_eq!(Comparison::Hybrid.workloads(), [Workload::Load, Workload::C]);
        let stores = |comparison: Comparison| {
            comparison.groups().iter().map(|group| devices(group.mix).unwrap().len()).collect::<Vec<_>>()
        };
        assert_eq!(stores(Comparison::Scales), [4, 5, 6]);
        assert_eq!(stores(Comparison::Hybrid), [4, 4]);
    }

    #[test]
    fn every_group_is_a_cluster_and_has_its_baseline() {
        for figure in FIGURES {
            let groups = figure.comparison.groups();
            for group in groups {
                assert!((4..=6).contains(&devices(group.mix).unwrap().len()), "{}", group.mix);
                let baseline = figure.comparison.baseline_mix(group.mix);
                let has = |g: &&Group| g.mix == baseline && g.policies.contains(&BASELINE);
                assert!(groups.iter().any(|g| has(&g)), "{} {}", figure.name, group.mix);
                assert!(figure.comparison.is_baseline(baseline, BASELINE));
                assert!(!figure.comparison.is_baseline(baseline, "alor"));
            }
        }
        assert!(!Comparison::Hybrid.is_baseline("1N3P", BASELINE));
    }

    #[test]
    fn latencies_of_writes_are_of_workloads_that_write() {
        let of = |metric: Metric| {
            let all = Comparison::Workloads.workloads().iter().copied();
            all.filter(|workload| metric.is_of(*workload)).collect::<Vec<_>>()
        };
        use Workload::{Load, A, B, C};
        assert_eq!(of(Metric::TailWriteLatency), [Load, A, B]);
        assert_eq!(of(Metric::MeanReadLatency), [A, B, C]);
        assert_eq!(of(Metric::MeanLatency), [Load, A, B, C]);
        assert_eq!(Metric::MeanWriteLatency.of_all(Load), Some(Metric::MeanLatency));
        assert_eq!(Metric::TailReadLatency.of_all(C), Some(Metric::TailLatency));
        assert_eq!(Metric::MeanReadLatency.of_all(A), None);
        assert_eq!(Metric::Throughput.of_all(A), Some(Metric::Throughput));
    }
}
