//! What `plan` would have said of the figures that were measured.

use std::collections::BTreeMap;

use anyhow::{anyhow, Context};
use bench::alor::{Bar, Chart, Comparison, Metric, Prediction, Scale, BASELINE};
use bench::ycsb::Workload;
use placement::Policy;
use predict::Ratio;

/// The workloads of a run, in its order.
const WORKLOADS: [predict::Workload; 4] =
    [predict::Workload::Load, predict::Workload::A, predict::Workload::B, predict::Workload::C];

/// Of every bar that was measured, but for hybrid devices: what their caches hit is not predicted.
pub fn predictions(charts: &[Chart], scale: &Scale) -> anyhow::Result<Vec<Prediction>> {
    let of_mix = ratios(charts, scale)?;
    let mut all = Vec::new();
    for (chart, bar) in measured(charts) {
        let Some(ratio) = of_mix.get(&bar.mix).and_then(|all| find(all, &bar.policy, bar.workload)) else {
            continue;
        };
        all.push(Prediction {
            mix: bar.mix.clone(),
            policy: bar.policy.clone(),
            workload: bar.workload,
            metric: chart.metric,
            ratio: match chart.metric {
                Metric::Throughput => ratio.throughput,
                Metric::MeanLatency => ratio.mean_latency,
                Metric::TailLatency => ratio.p99_latency,
            },
        });
    }
    Ok(all)
}

/// Each cluster once, under every policy of which there is a measurement.
fn ratios(charts: &[Chart], scale: &Scale) -> anyhow::Result<BTreeMap<String, Vec<Ratio>>> {
    let mut policies: BTreeMap<String, Vec<Policy>> = BTreeMap::new();
    for (_, bar) in measured(charts) {
        let known = policies.entry(bar.mix.clone()).or_default();
        let policy = bar.policy.parse::<Policy>().map_err(|error| anyhow!("{error}"))?;
        if !known.contains(&policy) {
            known.push(policy);
        }
    }
    let predicted = |(mix, policies): (String, Vec<Policy>)| {
        let ratios = crate::plan::ratios(&mix, Policy::Even, &policies, &WORKLOADS, scale)
            .with_context(|| format!("{mix} cannot be predicted"))?;
        Ok((mix, ratios))
    };
    policies.into_iter().map(predicted).collect()
}

fn measured(charts: &[Chart]) -> impl Iterator<Item = (&Chart, &Bar)> {
    let pairs = charts.iter().flat_map(|chart| chart.bars.iter().map(move |bar| (chart, bar)));
    pairs.filter(|(chart, bar)| {
        chart.figure.comparison != Comparison::Hybrid && bar.policy != BASELINE && bar.ratio.is_some()
    })
}

fn find<'a>(ratios: &'a [Ratio], policy: &str, workload: Workload) -> Option<&'a Ratio> {
    let workload = workload.name().parse::<predict::Workload>().ok()?;
    let policy = policy.parse::<Policy>().ok()?;
    ratios.iter().find(|ratio| ratio.policy == policy && ratio.workload == workload)
}
