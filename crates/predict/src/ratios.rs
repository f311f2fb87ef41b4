//! Ratios between policies and a baseline, as the figures show them.

use placement::Policy;
use serde::{Deserialize, Serialize};

use crate::{Phase, Prediction, Workload};

/// The results of a policy for one workload, divided by those of the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub policy: Policy,
    pub workload: Workload,
    pub ops_per_s: f64,
    pub throughput: f64,
    pub mean_latency: f64,
    pub p99_latency: f64,
}

/// Returns the ratios of the workloads that both predictions have.
pub fn beside(base: &Prediction, prediction: &Prediction) -> Vec<Ratio> {
    let pairs = prediction.phases.iter().filter_map(|phase| Some((phase, base.phase(phase.workload)?)));
    pairs.map(|(phase, base)| ratio(prediction.policy, phase, base)).collect()
}

fn ratio(policy: Policy, phase: &Phase, base: &Phase) -> Ratio {
    let over = |value: f64, base: f64| if base > 0.0 { value / base } else { 0.0 };
    Ratio {
        policy,
        workload: phase.workload,
        ops_per_s: phase.ops_per_s,
        throughput: over(phase.ops_per_s, base.ops_per_s),
        mean_latency: over(phase.mean_us, base.mean_us),
        p99_latency: over(phase.p99_us, base.p99_us),
    }
}
