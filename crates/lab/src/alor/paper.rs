//! The paper's numbers that its text and abstract state. No numbers are read off its plots.

use super::figures::{Comparison, Metric, BASELINE};
use crate::ycsb::Workload;

/// The paper's result for a policy, relative to even distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Paper {
    Ratio(f64),
    /// The paper describes the result in words and gives no number.
    Words(&'static str),
    Unknown,
}

impl Paper {
    pub fn text(self) -> String {
        match self {
            Paper::Ratio(ratio) => format!("{ratio:.3}"),
            Paper::Words(words) => words.to_owned(),
            Paper::Unknown => "not in its text".to_owned(),
        }
    }
}

/// Returns the paper's result from ALOR §4.2, §4.4, §4.6 and §4.7.
pub fn paper(comparison: Comparison, mix: &str, policy: &str, workload: Workload, metric: Metric) -> Paper {
    use Metric::{MeanReadLatency, TailReadLatency, TailWriteLatency, Throughput};
    use Workload::{Load, A, B, C};
    let main = mix == "1N2H3P";
    match (comparison, policy, workload, metric) {
        (Comparison::Components, "leader-only" | "alor", C, Throughput | Metric::MeanLatency) => {
            Paper::Words("very close to 1")
        }
        (Comparison::Components, "leader-only" | "alor", Load, Metric::MeanLatency | Metric::TailLatency) => {
            Paper::Words("below 1")
        }
        (_, "alor", Load, Throughput) if main => Paper::Ratio(1.726),
        (_, "alor", A, Throughput) if main => Paper::Ratio(1.615),
        (_, "alor", B, Throughput) if main => Paper::Ratio(1.137),
        (_, "alor", C, Throughput) if main => Paper::Words("slightly below 1"),
        (_, "leader-only", Load, Throughput) if main => Paper::Ratio(1.2285),
        (Comparison::Workloads, "alor", A | B, MeanReadLatency) => Paper::Words("below 1"),
        (Comparison::Workloads, "alor", C, MeanReadLatency) => Paper::Words("slightly above 1"),
        (Comparison::Workloads, "alor", _, TailReadLatency | TailWriteLatency) => Paper::Words("below 1"),
        (Comparison::Mixes, "alor", Load, Throughput) => match mix {
            "2N2H2P" | "3N2H1P" => Paper::Words("above 1, less than 2H4P and 1N2H3P"),
            _ => Paper::Words("above 1"),
        },
        (Comparison::Scales, "alor", Load, Throughput) => Paper::Words("above 1"),
        (Comparison::Hybrid, "alor", Load, Throughput) => Paper::Ratio(1.2857),
        (Comparison::Hybrid, BASELINE, Load, Throughput) => Paper::Words("below 1"),
        _ => Paper::Unknown,
    }
}

/// Returns the means of §4.2 for `alor`. The mean of throughput is over Load, A, B and C. The paper
/// does not say over which operations and workloads its means of latency are.
pub fn paper_mean(metric: Metric) -> Option<f64> {
    match metric {
        Metric::Throughput => Some(1.3689),
        Metric::MeanLatency => Some(1.0 - 0.2454),
        Metric::TailLatency => Some(1.0 - 0.2132),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's own numbers are consistent: leader migration, then ALOR relative to it (§4.6).
    #[test]
    fn components_multiply_to_the_whole() {
        let of = |policy| match paper(
            Comparison::Components,
            "1N2H3P",
            policy,
            Workload::Load,
            Metric::Throughput,
        ) {
            Paper::Ratio(ratio) => ratio,
            other => panic!("{other:?}"),
        };
        assert!((of("leader-only") * 1.4053 / of("alor") - 1.0).abs() < 0.001);
    }

    /// §4.2: the mean over four workloads leaves a ratio for C that the paper calls a bit lower
    /// than even distribution.
    #[test]
    fn the_mean_of_throughput_is_over_all_four_workloads() {
        let mean = paper_mean(Metric::Throughput).unwrap();
        let c = 4.0 * mean - 1.726 - 1.615 - 1.137;
        assert!((0.99..1.0).contains(&c), "{c}");
        assert_eq!(paper_mean(Metric::MeanReadLatency), None);
    }

    #[test]
    fn what_the_text_does_not_tell_is_not_made_up() {
        let unknown = paper(Comparison::Mixes, "2H4P", "alor", Workload::A, Metric::Throughput);
        assert_eq!(unknown.text(), "not in its text");
        let words = paper(Comparison::Mixes, "3N2H1P", "alor", Workload::Load, Metric::Throughput);
        assert_eq!(words.text(), "above 1, less than 2H4P and 1N2H3P");
        let hybrid = paper(Comparison::SixHybrids, "1N5P", "alor", Workload::Load, Metric::Throughput);
        assert_eq!(hybrid, Paper::Unknown, "its cluster has four stores");
    }
}
