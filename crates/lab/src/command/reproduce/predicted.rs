//! The predictions of `plan` for the measured figures.

use std::collections::BTreeMap;

use anyhow::{anyhow, Context};
use lab::alor::{Bar, Chart, Metric, Prediction, Scale};
use lab::ycsb::Workload;
use placement::Policy;
use predict::Ratio;

/// The workloads of a run, in order.
const WORKLOADS: [predict::Workload; 4] =
    [predict::Workload::Load, predict::Workload::A, predict::Workload::B, predict::Workload::C];

/// Returns a prediction for every measured bar.
pub fn predictions(charts: &[Chart], scale: &Scale) -> anyhow::Result<Vec<Prediction>> {
    let of_mix = ratios(charts, scale)?;
    let mut all = Vec::new();
    for (chart, bar) in measured(charts) {
        let found = of_mix.get(&clusters(chart, bar)).and_then(|all| find(all, &bar.policy, bar.workload));
        // The simulation gives latencies only for all operations together.
        let (Some(ratio), Some(metric)) = (found, chart.metric.of_all(bar.workload)) else {
            continue;
        };
        all.push(Prediction {
            mix: bar.mix.clone(),
            policy: bar.policy.clone(),
            workload: bar.workload,
            metric: chart.metric,
            ratio: match metric {
                Metric::Throughput => ratio.throughput,
                Metric::MeanLatency => ratio.mean_latency,
                Metric::TailLatency => ratio.p99_latency,
                _ => continue,
            },
        });
    }
    Ok(all)
}

/// A mix, and the mix that it is compared with.
type Clusters = (String, String);

fn clusters(chart: &Chart, bar: &Bar) -> Clusters {
    let over = chart.figure.comparison.groups().iter().find(|group| group.mix == bar.mix);
    let over = over.map_or(bar.mix.as_str(), |group| chart.figure.comparison.baseline_mix(group.mix));
    (bar.mix.clone(), over.to_owned())
}

/// Simulates each cluster once, under every measured policy.
fn ratios(charts: &[Chart], scale: &Scale) -> anyhow::Result<BTreeMap<Clusters, Vec<Ratio>>> {
    let mut policies: BTreeMap<Clusters, Vec<Policy>> = BTreeMap::new();
    for (chart, bar) in measured(charts) {
        let known = policies.entry(clusters(chart, bar)).or_default();
        let policy = bar.policy.parse::<Policy>().map_err(|error| anyhow!("{error}"))?;
        if !known.contains(&policy) {
            known.push(policy);
        }
    }
    let predicted = |(clusters, policies): (Clusters, Vec<Policy>)| {
        let (mix, over) = &clusters;
        let ratios = steelyard::plan::ratios(mix, over, Policy::Even, &policies, &WORKLOADS, scale)
            .with_context(|| format!("{mix} cannot be predicted"))?;
        Ok((clusters, ratios))
    };
    policies.into_iter().map(predicted).collect()
}

fn measured(charts: &[Chart]) -> impl Iterator<Item = (&Chart, &Bar)> {
    let pairs = charts.iter().flat_map(|chart| chart.bars.iter().map(move |bar| (chart, bar)));
    pairs.filter(|(chart, bar)| {
        !chart.figure.comparison.is_baseline(&bar.mix, &bar.policy) && bar.ratio.is_some()
    })
}

fn find<'a>(ratios: &'a [Ratio], policy: &str, workload: Workload) -> Option<&'a Ratio> {
    let workload = workload.name().parse::<predict::Workload>().ok()?;
    let policy = policy.parse::<Policy>().ok()?;
    ratios.iter().find(|ratio| ratio.policy == policy && ratio.workload == workload)
}
