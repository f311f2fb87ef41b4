//! The numbers of a figure, computed from runs: medians over good runs, and ratios to the baseline.

use super::figures::{Figure, Metric, BASELINE};
use super::paper::{paper, Paper};
use super::runs::{Phase, Run};
use crate::measure::median;
use crate::ycsb::{Latency, Workload};

/// One value of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub mix: String,
    pub policy: String,
    pub workload: Workload,
    /// Median over good runs, in operations per second or microseconds. `None` if there is no good
    /// run.
    pub value: Option<f64>,
    pub least: f64,
    pub most: f64,
    pub runs: usize,
    pub void: usize,
    /// The median divided by the baseline's median.
    pub ratio: Option<f64>,
    /// The least and the greatest value of this bar's runs, divided by the baseline's median.
    pub ratio_range: (f64, f64),
    pub paper: Paper,
}

/// One figure for one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    pub figure: Figure,
    pub metric: Metric,
    pub bars: Vec<Bar>,
}

/// Returns the phase's value. `None` if the phase has no operations that the metric counts.
fn value(phase: &Phase, metric: Metric) -> Option<f64> {
    let latency = || -> Option<Latency> {
        match metric.kinds() {
            None => Some(phase.summary.latency),
            Some(kinds) => kinds.iter().find_map(|kind| phase.summary.kinds.get(kind)).copied(),
        }
    };
    match metric {
        Metric::Throughput => Some(phase.summary.per_second()),
        Metric::MeanLatency | Metric::MeanWriteLatency | Metric::MeanReadLatency => Some(latency()?.mean_us),
        Metric::TailLatency | Metric::TailWriteLatency | Metric::TailReadLatency => {
            Some(latency()?.p99_us as f64)
        }
    }
}

/// Returns the values of good runs, and the number of void runs.
fn values(runs: &[Run], mix: &str, policy: &str, workload: Workload, metric: Metric) -> (Vec<f64>, usize) {
    let of_case = runs.iter().filter(|run| run.case.mix == mix && run.case.policy == policy);
    let (good, void): (Vec<&Phase>, Vec<&Phase>) =
        of_case.filter_map(|run| run.phase(workload)).partition(|phase| phase.void.is_empty());
    (good.into_iter().filter_map(|phase| value(phase, metric)).collect(), void.len())
}

pub fn chart(figure: Figure, metric: Metric, runs: &[Run]) -> Chart {
    let mut bars = Vec::new();
    for group in figure.comparison.groups() {
        let baseline_mix = figure.comparison.baseline_mix(group.mix);
        for workload in figure.comparison.workloads().iter().filter(|workload| metric.is_of(**workload)) {
            let baseline = values(runs, baseline_mix, BASELINE, *workload, metric).0;
            let baseline = (!baseline.is_empty()).then(|| median(&baseline)).filter(|value| *value > 0.0);
            for policy in group.policies {
                let (good, void) = values(runs, group.mix, policy, *workload, metric);
                let least = good.iter().copied().fold(f64::INFINITY, f64::min);
                let most = good.iter().copied().fold(0.0, f64::max);
                let value = (!good.is_empty()).then(|| median(&good));
                let over = |value: f64| baseline.map_or(0.0, |baseline| value / baseline);
                bars.push(Bar {
                    mix: group.mix.to_owned(),
                    policy: (*policy).to_owned(),
                    workload: *workload,
                    value,
                    least,
                    most,
                    runs: good.len(),
                    void,
                    ratio: value.and_then(|value| Some(value / baseline?)),
                    ratio_range: (over(least), over(most)),
                    paper: match figure.comparison.is_baseline(group.mix, policy) {
                        true => Paper::Ratio(1.0),
                        false => paper(figure.comparison, group.mix, policy, *workload, metric),
                    },
                });
            }
        }
    }
    Chart { figure, metric, bars }
}

impl Chart {
    /// Returns the mean of a policy's ratios over workloads, as the paper computes it, and these
    /// workloads: those for which both the policy and the baseline have good runs. `None` if there
    /// are none.
    pub fn mean_ratio(&self, mix: &str, policy: &str) -> Option<(f64, Vec<Workload>)> {
        let of = |bar: &&Bar| bar.mix == mix && bar.policy == policy;
        let known: Vec<(f64, Workload)> =
            self.bars.iter().filter(of).filter_map(|bar| Some((bar.ratio?, bar.workload))).collect();
        let sum: f64 = known.iter().map(|(ratio, _)| ratio).sum();
        (!known.is_empty())
            .then(|| (sum / known.len() as f64, known.iter().map(|(_, workload)| *workload).collect()))
    }

    pub fn is_empty(&self) -> bool {
        self.bars.iter().all(|bar| bar.value.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::select;
    use super::super::runs::tests::run;
    use super::*;
    use crate::ycsb::Kind;

    fn figure(name: &str) -> Figure {
        select(&[name.to_owned()]).unwrap()[0]
    }

    fn bar<'a>(chart: &'a Chart, policy: &str, workload: Workload) -> &'a Bar {
        let of = |bar: &&Bar| bar.policy == policy && bar.workload == workload;
        chart.bars.iter().find(of).unwrap()
    }

    fn runs() -> Vec<Run> {
        let mut runs = Vec::new();
        for (index, (even, alor)) in [(100.0, 180.0), (110.0, 150.0), (90.0, 200.0)].into_iter().enumerate() {
            runs.push(run("1N2H3P", "even", index + 1, even, even));
            runs.push(run("1N2H3P", "alor", index + 1, alor, alor));
        }
        runs
    }

    #[test]
    fn ratios_are_of_medians_and_ranges_of_runs() {
        let chart = chart(figure("5"), Metric::Throughput, &runs());
        let alor = bar(&chart, "alor", Workload::Load);
        assert_eq!((alor.value, alor.ratio, alor.runs), (Some(180.0), Some(1.8), 3));
        assert_eq!(alor.ratio_range, (1.5, 2.0));
        assert_eq!(alor.paper, Paper::Ratio(1.726));
        assert_eq!(bar(&chart, "even", Workload::Load).ratio, Some(1.0));
        assert_eq!(bar(&chart, "adaptive", Workload::Load).value, None);
        let measured = vec![Workload::Load, Workload::A];
        assert_eq!(chart.mean_ratio("1N2H3P", "alor"), Some((1.8, measured)), "B and C were not measured");
        assert_eq!(chart.mean_ratio("1N2H3P", "adaptive"), None);
    }

    #[test]
    fn void_runs_do_not_count() {
        let mut runs = runs();
        let fast = runs.iter_mut().find(|run| run.case.policy == "alor" && run.case.run == 3).unwrap();
        fast.phases[0].void.push("bound by CPU".into());
        let chart = chart(figure("5"), Metric::Throughput, &runs);
        let alor = bar(&chart, "alor", Workload::Load);
        assert_eq!((alor.value, alor.runs, alor.void), (Some(165.0), 2, 1));
        assert_eq!(bar(&chart, "alor", Workload::A).runs, 3, "only the phase is void");
    }

    #[test]
    fn latencies_are_compared_as_they_are() {
        let chart = chart(figure("all-operations"), Metric::MeanLatency, &runs());
        let ratio = bar(&chart, "alor", Workload::A).ratio.unwrap();
        assert!((ratio - 100.0 / 180.0).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn latencies_of_writes_and_of_reads_are_their_own() {
        let mut runs = runs();
        for run in runs.iter_mut().filter(|run| run.case.policy == "alor") {
            let kinds = &mut run.phases[1].summary.kinds;
            *kinds = [(Kind::Read, 5_000.0), (Kind::Update, 15_000.0)]
                .map(|(kind, mean_us)| (kind, Latency { mean_us, p99_us: 70_000, ..Latency::default() }))
                .into();
        }
        let of = |name: &str, metric: Metric| {
            let chart = chart(figure(name), metric, &runs);
            bar(&chart, "alor", Workload::A).value.unwrap()
        };
        assert_eq!(of("6", Metric::MeanWriteLatency), 15_000.0);
        assert_eq!(of("7", Metric::MeanReadLatency), 5_000.0);
        assert_eq!(of("7", Metric::TailReadLatency), 70_000.0);
        let writes = chart(figure("6"), Metric::MeanWriteLatency, &runs);
        assert!(writes.bars.iter().all(|bar| bar.workload != Workload::C), "C writes nothing");
        assert!(bar(&writes, "alor", Workload::Load).value.is_some(), "Load does nothing else");
    }

    #[test]
    fn hybrid_stores_are_the_baseline_of_their_figure() {
        let runs = [
            run("4Y", "even", 1, 100.0, 100.0),
            run("1N3P", "even", 1, 80.0, 70.0),
            run("1N3P", "alor", 1, 130.0, 120.0),
        ];
        let chart = chart(figure("17"), Metric::Throughput, &runs);
        assert_eq!(bar(&chart, "alor", Workload::Load).ratio, Some(1.3));
        assert_eq!(bar(&chart, "alor", Workload::Load).paper, Paper::Ratio(1.2857));
        let of = |mix: &str| chart.bars.iter().find(|bar| bar.mix == mix && bar.policy == BASELINE).unwrap();
        assert_eq!((of("4Y").ratio, of("4Y").paper), (Some(1.0), Paper::Ratio(1.0)));
        assert_eq!((of("1N3P").ratio, of("1N3P").paper), (Some(0.8), Paper::Words("below 1")));
    }
}
