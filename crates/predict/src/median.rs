//! Combines several runs of one question, which differ in their seeds.

use crate::{Phase, Prediction};

/// Returns the median of the runs, or `None` if there are none. The layout is that of the run from
/// which the last phase comes.
pub(crate) fn of(runs: &[Prediction]) -> Option<Prediction> {
    let mut median = runs.first()?.clone();
    for at in 0..median.phases.len() {
        let phases: Vec<&Phase> = runs.iter().filter_map(|run| run.phases.get(at)).collect();
        let value = |of: fn(&Phase) -> f64| middle(phases.iter().map(|phase| of(phase)).collect());
        let ops_per_s = value(|phase| phase.ops_per_s);
        let off = |phase: &Phase| (phase.ops_per_s - ops_per_s).abs();
        let (run, told) = runs
            .iter()
            .zip(&phases)
            .min_by(|(_, a), (_, b)| off(a).total_cmp(&off(b)))
            .map(|(run, phase)| (run, *phase))?;
        (median.layout, median.stores, median.moves) = (run.layout.clone(), run.stores.clone(), run.moves);
        let rates = || phases.iter().map(|phase| phase.ops_per_s);
        median.phases[at] = Phase {
            ops_per_s,
            least_ops_per_s: rates().fold(f64::INFINITY, f64::min),
            most_ops_per_s: rates().fold(0.0, f64::max),
            mean_us: value(|phase| phase.mean_us),
            p50_us: value(|phase| phase.p50_us),
            p99_us: value(|phase| phase.p99_us),
            ..told.clone()
        };
    }
    Some(median)
}

/// Returns the median. For an even number of values it is the mean of the two in the middle, as for
/// measurements.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Holding, Workload};

    fn run(seed: u64, rates: [(f64, f64); 2]) -> Prediction {
        let phase = |(ops_per_s, p99_us): (f64, f64)| Phase {
            workload: Workload::A,
            operations: seed,
            seconds: 1.0,
            ops_per_s,
            least_ops_per_s: ops_per_s,
            most_ops_per_s: ops_per_s,
            mean_us: 1e6 / ops_per_s,
            p50_us: 1.0,
            p99_us,
            moves: seed,
            stores: Vec::new(),
            cpu_share: 0.0,
            bound_by: Vec::new(),
        };
        let store = Holding { store: seed, device: String::new(), leaders: 0, peers: 0, bytes: 0 };
        Prediction {
            policy: placement::Policy::Even,
            phases: rates.map(phase).to_vec(),
            layout: Vec::new(),
            stores: vec![store],
            moves: seed,
        }
    }

    #[test]
    fn each_number_is_a_median_and_the_rest_is_of_the_run_of_median_rate() {
        let runs = [
            run(1, [(30.0, 5.0), (100.0, 7.0)]),
            run(2, [(10.0, 9.0), (300.0, 9.0)]),
            run(3, [(20.0, 1.0), (200.0, 8.0)]),
        ];
        let median = of(&runs).unwrap();
        let [first, second] = &median.phases[..] else { panic!("{median:?}") };
        assert_eq!((first.ops_per_s, first.least_ops_per_s, first.most_ops_per_s), (20.0, 10.0, 30.0));
        assert_eq!((first.p99_us, first.mean_us, first.operations), (5.0, 1e6 / 20.0, 3));
        assert_eq!((second.ops_per_s, second.p99_us, second.operations), (200.0, 8.0, 3));
        assert_eq!((median.moves, median.stores[0].store), (3, 3));
        assert_eq!(of(&runs[..1]), Some(runs[0].clone()));
        assert_eq!(of(&runs[..2]).unwrap().phases[0].ops_per_s, 20.0);
        assert_eq!(of(&[]), None);
    }
}
