//! Which figure compares what, and the paper's numbers for it as far as they are known here.
//!
//! ALOR's evaluation (NPC 2018, §4) makes five comparisons, each by throughput and latency. Which of its
//! figures 5 to 18 shows which is our assignment, in the order of that section; a comparison's numbers do not
//! depend on it.

use serde::{Deserialize, Serialize};

use super::scale::Scale;
use crate::ycsb::Workload;

/// The baseline of every ratio: the usual even distribution.
pub const BASELINE: &str = "even";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    Throughput,
    MeanLatency,
    TailLatency,
}

impl Metric {
    pub fn name(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput",
            Metric::MeanLatency => "mean latency",
            Metric::TailLatency => "p99 latency",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comparison {
    /// The paper's main cluster under every workload.
    Workloads,
    /// The same number of stores, more or fewer of them fast.
    Mixes,
    /// Four, five and six stores, the data in proportion.
    Scales,
    /// Leader migration alone, and with the skewed layout.
    Components,
    /// Each store an NVM cache before a plain SSD, beside the same hardware in unequal stores.
    Hybrid,
    /// Not the paper's: equal stores, on which no policy may differ from the baseline.
    Equal,
}

/// What is compared on one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        const HYBRID: &[Group] = &[group("6Y", &[BASELINE]), group("1N5P", &["alor"])];
        const EQUAL: &[Group] = &[group("6P", ALL_POLICIES)];
        match self {
            Comparison::Workloads => WORKLOADS,
            Comparison::Mixes => MIXES,
            Comparison::Scales => SCALES,
            Comparison::Components => COMPONENTS,
            Comparison::Hybrid => HYBRID,
            Comparison::Equal => EQUAL,
        }
    }

    /// The cluster under [`BASELINE`] that `mix` is compared with: itself, but for hybrid stores.
    pub fn baseline_mix(self, mix: &'static str) -> &'static str {
        match self {
            Comparison::Hybrid => "6Y",
            _ => mix,
        }
    }

    pub fn workloads(self) -> &'static [Workload] {
        match self {
            Comparison::Components | Comparison::Hybrid => &[Workload::Load, Workload::A],
            _ => &[Workload::Load, Workload::A, Workload::B, Workload::C],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The paper's number; `equal` has none.
    pub name: &'static str,
    pub title: &'static str,
    pub comparison: Comparison,
    pub metrics: &'static [Metric],
}

const fn figure(
    name: &'static str,
    title: &'static str,
    comparison: Comparison,
    metrics: &'static [Metric],
) -> Figure {
    Figure { name, title, comparison, metrics }
}

use Metric::{MeanLatency, TailLatency, Throughput};

pub const FIGURES: [Figure; 15] = [
    figure("5", "Throughput by workload, 1N2H3P", Comparison::Workloads, &[Throughput]),
    figure("6", "Mean latency by workload, 1N2H3P", Comparison::Workloads, &[MeanLatency]),
    figure("7", "p99 latency by workload, 1N2H3P", Comparison::Workloads, &[TailLatency]),
    figure("8", "Throughput by mix of devices", Comparison::Mixes, &[Throughput]),
    figure("9", "Mean latency by mix of devices", Comparison::Mixes, &[MeanLatency]),
    figure("10", "p99 latency by mix of devices", Comparison::Mixes, &[TailLatency]),
    figure("11", "Throughput of four, five and six stores", Comparison::Scales, &[Throughput]),
    figure("12", "Mean latency of four, five and six stores", Comparison::Scales, &[MeanLatency]),
    figure("13", "p99 latency of four, five and six stores", Comparison::Scales, &[TailLatency]),
    figure("14", "Throughput of ALOR's components", Comparison::Components, &[Throughput]),
    figure("15", "Latency of ALOR's components", Comparison::Components, &[MeanLatency, TailLatency]),
    figure("16", "Throughput beside hybrid stores", Comparison::Hybrid, &[Throughput]),
    figure("17", "Mean latency beside hybrid stores", Comparison::Hybrid, &[MeanLatency]),
    figure("18", "p99 latency beside hybrid stores", Comparison::Hybrid, &[TailLatency]),
    figure(
        "equal",
        "Six equal stores (not in the paper)",
        Comparison::Equal,
        &[Throughput, MeanLatency, TailLatency],
    ),
];

/// `5`, `5-7` or `equal`; an empty list is every figure of the paper.
pub fn select(wanted: &[String]) -> Result<Vec<Figure>, String> {
    let unknown = |text: &str| format!("'{text}' is no figure: 5 to 18, ranges as 5-7, or equal");
    if wanted.is_empty() {
        return Ok(FIGURES.iter().copied().filter(|figure| figure.name != "equal").collect());
    }
    let mut names: Vec<String> = Vec::new();
    for text in wanted {
        match text.split_once('-') {
            Some((from, to)) => {
                let (from, to): (u8, u8) = from
                    .parse()
                    .and_then(|from| to.parse().map(|to| (from, to)))
                    .map_err(|_| unknown(text))?;
                if from > to {
                    return Err(unknown(text));
                }
                names.extend((from..=to).map(|number| number.to_string()));
            }
            None => names.push(text.clone()),
        }
    }
    if let Some(name) = names.iter().find(|name| FIGURES.iter().all(|figure| figure.name != **name)) {
        return Err(unknown(name));
    }
    Ok(FIGURES.iter().copied().filter(|figure| names.iter().any(|name| name == figure.name)).collect())
}

/// What the paper says of a policy over even distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Paper {
    Ratio(f64),
    /// No number, only in words.
    Words(&'static str),
    Unknown,
}

impl Paper {
    pub fn text(self) -> String {
        match self {
            Paper::Ratio(ratio) => format!("{ratio:.3}"),
            Paper::Words(words) => words.to_owned(),
            Paper::Unknown => "not given here".to_owned(),
        }
    }
}

const HYBRID: &str = "hybrid";

/// ALOR §4. Of mixes, scales and single latencies only what is quoted in its abstract and text is known here.
pub fn paper(comparison: Comparison, mix: &str, policy: &str, workload: Workload, metric: Metric) -> Paper {
    let main = mix == "1N2H3P";
    match (comparison, policy, workload, metric) {
        (_, "alor", Workload::Load, Throughput) if main => Paper::Ratio(1.726),
        (_, "alor", Workload::A, Throughput) if main => Paper::Ratio(1.615),
        (_, "alor", Workload::B, Throughput) if main => Paper::Ratio(1.137),
        (_, "alor", Workload::C, Throughput) if main => Paper::Words("slightly below 1"),
        (_, "leader-only", Workload::Load, Throughput) if main => Paper::Ratio(1.2285),
        (Comparison::Hybrid, "alor", Workload::Load, Throughput) => Paper::Ratio(1.2857),
        _ => Paper::Unknown,
    }
}

/// Over all workloads of the main cluster.
pub fn paper_mean(metric: Metric) -> f64 {
    match metric {
        Throughput => 1.3689,
        MeanLatency => 1.0 - 0.2454,
        TailLatency => 1.0 - 0.2132,
    }
}

/// Bytes per second of the `nvm` device, and its size where stores have no capacity: that of the paper's.
const NVM_WRITE: f64 = 5e9;
const NVM_READ: f64 = 8e9;
const NVM_BYTES: f64 = 5e9;

/// The devices of a mix as a run makes them. The caches of all hybrid stores together are one `nvm` device, as the
/// unequal stores beside them have one: its bandwidths, and the room that a store has, in equal parts.
/// Its latencies are each cache's own, for parts of a device answer no sooner.
pub fn scaled_devices(mix: &str, scale: &Scale) -> Result<Vec<String>, String> {
    let names = devices(mix)?;
    let caches = names.iter().filter(|name| **name == HYBRID).count().max(1) as f64;
    let bytes = scale.capacity_bytes().map_or(NVM_BYTES * scale.data_factor, |bytes| bytes as f64);
    let hybrid = format!(
        "{HYBRID},cache={}B,cache-write={}B/s,cache-read={}B/s",
        (bytes / caches) as u64,
        (NVM_WRITE / caches) as u64,
        (NVM_READ / caches) as u64
    );
    Ok(names.into_iter().map(|name| if name == HYBRID { hybrid.clone() } else { name.to_owned() }).collect())
}

/// `1N2H3P` -> the devices' names, fastest kinds first.
pub fn devices(mix: &str) -> Result<Vec<&'static str>, String> {
    let wrong = || format!("'{mix}' is no mix of devices: counts of N, H, P and Y, as in 1N2H3P");
    let mut devices = Vec::new();
    let mut rest = mix;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: usize = rest[..digits].parse().map_err(|_| wrong())?;
        let name = match rest.as_bytes()[digits] {
            b'N' => "nvm",
            b'H' => "high-end-ssd",
            b'P' => "plain-ssd",
            b'Y' => HYBRID,
            _ => return Err(wrong()),
        };
        if number > 50 {
            return Err(wrong());
        }
        devices.extend(std::iter::repeat_n(name, number));
        rest = &rest[digits + 1..];
    }
    if devices.len() < 3 {
        return Err(format!("'{mix}' has {} stores, and three copies need three", devices.len()));
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_5_to_18_are_all_there_and_in_order() {
        let names: Vec<String> = select(&[]).unwrap().iter().map(|figure| figure.name.to_owned()).collect();
        assert_eq!(names, (5..=18).map(|number| number.to_string()).collect::<Vec<_>>());
        let some = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            select(&texts).map(|figures| figures.iter().map(|figure| figure.name).collect::<Vec<_>>())
        };
        assert_eq!(some(&["5-7", "14"]).unwrap(), ["5", "6", "7", "14"]);
        assert_eq!(some(&["equal"]).unwrap(), ["equal"]);
        for bad in ["4", "19", "7-5", "x", "5-x"] {
            assert!(some(&[bad]).is_err(), "{bad}");
        }
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
            }
        }
        assert_eq!(devices("1N2H3P").unwrap()[..3], ["nvm", "high-end-ssd", "high-end-ssd"]);
        assert!(devices("1N").is_err() && devices("3").is_err() && devices("3X").is_err());
    }

    #[test]
    fn the_caches_of_hybrid_stores_are_one_nvm_device() {
        let scale = Scale { data_factor: 0.01, capacity_headroom: 0.0, ..Scale::named("quick").unwrap() };
        let stores = scaled_devices("6Y", &scale).unwrap();
        assert_eq!(stores.len(), 6);
        assert_eq!(stores[5], "hybrid,cache=8333333B,cache-write=833333333B/s,cache-read=1333333333B/s");
        let mixed = scaled_devices("1N2Y", &scale).unwrap();
        assert_eq!(mixed[0], "nvm");
        assert_eq!(mixed[2], "hybrid,cache=25000000B,cache-write=2500000000B/s,cache-read=4000000000B/s");
        assert!(scaled_devices("1Y", &scale).is_err());
        let roomy = Scale { capacity_headroom: 1.2, ..scale };
        assert!(scaled_devices("6Y", &roomy).unwrap()[0].starts_with("hybrid,cache=10000000B,"));
    }

    /// The paper's own numbers agree with each other: leader migration, then ALOR over it.
    #[test]
    fn components_multiply_to_the_whole() {
        let of = |policy| match paper(Comparison::Components, "1N2H3P", policy, Workload::Load, Throughput) {
            Paper::Ratio(ratio) => ratio,
            other => panic!("{other:?}"),
        };
        assert!((of("leader-only") * 1.4053 / of("alor") - 1.0).abs() < 0.001);
        let unknown = paper(Comparison::Mixes, "2H4P", "alor", Workload::Load, Throughput);
        assert_eq!(unknown.text(), "not given here");
    }
}
