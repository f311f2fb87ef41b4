//! The predictions that were made before measuring, beside the measurements.

use super::figures::Metric;
use super::statistics::{Bar, Chart};
use crate::page::Page;
use crate::ycsb::Workload;
use client::table::{Align, Table};

/// A predicted ratio of a policy to even distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    pub mix: String,
    pub policy: String,
    pub workload: Workload,
    pub metric: Metric,
    pub ratio: f64,
}

/// Maximum relative difference at which a prediction counts as close.
pub const CLOSE: f64 = 0.25;
/// Ratios that differ relatively by less than this count as equal, without an order.
pub const TIE: f64 = 0.05;

fn is_baseline(chart: &Chart, bar: &Bar) -> bool {
    chart.figure.comparison.is_baseline(&bar.mix, &bar.policy)
}

fn predicted(predictions: &[Prediction], chart: &Chart, bar: &Bar) -> Option<f64> {
    if is_baseline(chart, bar) {
        return Some(1.0);
    }
    let of = |prediction: &&Prediction| {
        prediction.mix == bar.mix
            && prediction.policy == bar.policy
            && prediction.workload == bar.workload
            && prediction.metric == chart.metric
    };
    predictions.iter().find(of).map(|prediction| prediction.ratio)
}

/// Returns the cluster whose baseline a bar is relative to. Only bars that share it can be ordered
/// by their ratios.
fn over(chart: &Chart, bar: &Bar) -> Option<&'static str> {
    let comparison = chart.figure.comparison;
    let group = comparison.groups().iter().find(|group| group.mix == bar.mix)?;
    Some(comparison.baseline_mix(group.mix))
}

/// Adds a section to the report if a measured value was predicted.
pub fn section(page: &mut Page, charts: &[Chart], predictions: &[Prediction]) {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("figure", Left),
        ("metric", Left),
        ("stores", Left),
        ("workload", Left),
        ("policy", Left),
        ("predicted", Right),
        ("measured", Right),
        ("apart", Right),
    ]);
    let (mut close, mut all, mut in_order, mut pairs) = (0, 0, 0, 0);
    for chart in charts {
        let both: Vec<(&Bar, f64, f64)> = chart
            .bars
            .iter()
            .filter_map(|bar| Some((bar, predicted(predictions, chart, bar)?, bar.ratio?)))
            .collect();
        for (index, (bar, predicted, measured)) in both.iter().enumerate() {
            let cluster = over(chart, bar);
            let beside = |other: &Bar| over(chart, other) == cluster && other.workload == bar.workload;
            let rivals = both[..index].iter().filter(|(other, ..)| beside(other));
            for (_, rival_predicted, rival_measured) in rivals {
                if (measured / rival_measured).ln().abs() > TIE.ln_1p() {
                    pairs += 1;
                    in_order += usize::from((predicted > rival_predicted) == (measured > rival_measured));
                }
            }
            if is_baseline(chart, bar) {
                continue;
            }
            all += 1;
            // The distance is symmetric: 0.8 times and 1.25 times the measurement are equally far
            // from it.
            close += usize::from((predicted / measured).ln().abs() <= CLOSE.ln_1p());
            table.row([
                chart.figure.name.to_owned(),
                chart.metric.name().to_owned(),
                bar.mix.clone(),
                bar.workload.name().to_owned(),
                bar.policy.clone(),
                format!("{predicted:.2}"),
                format!("{measured:.2}"),
                format!("{:+.0}%", 100.0 * (predicted / measured - 1.0)),
            ]);
        }
    }
    if !table.is_empty() {
        page.section("Predicted and measured");
        page.paragraph(format!(
            "{close} of {all} ratios are within {:.0}%; {in_order} of {pairs} pairs of policies \
             that differ by more than {:.0}% are in the order that was predicted.",
            100.0 * CLOSE,
            100.0 * TIE
        ));
        page.table(&table);
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::select;
    use super::super::report::charts;
    use super::super::runs::tests::run;
    use super::super::runs::Run;
    use super::*;

    fn prediction(policy: &str, workload: Workload, ratio: f64) -> Prediction {
        let (mix, policy) = ("1N2H3P".to_owned(), policy.to_owned());
        Prediction { mix, policy, workload, metric: Metric::Throughput, ratio }
    }

    #[test]
    fn predictions_are_judged_by_closeness_and_by_order() {
        let runs = [
            run("1N2H3P", "even", 1, 100.0, 100.0),
            run("1N2H3P", "leader-only", 1, 150.0, 102.0),
            run("1N2H3P", "alor", 1, 200.0, 160.0),
        ];
        let charts = charts(&select(&["5".to_owned()]).unwrap(), &runs);
        let predictions = [
            prediction("leader-only", Workload::Load, 1.6),
            prediction("alor", Workload::Load, 1.55),
            prediction("leader-only", Workload::A, 0.9),
        ];
        let text = text(&charts, &predictions);
        // Load: even below both is right, alor above leader-only is wrong. A: too close to have an
        // order.
        assert!(text.contains("2 of 3 ratios are within 25%; 2 of 3 pairs"), "{text}");
        assert!(text.contains("| 5 | throughput | 1N2H3P | Load | alor | 1.55 | 2.00 | -22% |"), "{text}");
    }

    fn text(charts: &[Chart], predictions: &[Prediction]) -> String {
        let mut page = Page::default();
        section(&mut page, charts, predictions);
        page.into_text()
    }

    fn judged(figure: &str, runs: &[Run], predictions: &[Prediction]) -> String {
        text(&charts(&select(&[figure.to_owned()]).unwrap(), runs), predictions)
    }

    #[test]
    fn hybrid_stores_are_judged_beside_the_unequal_ones() {
        let runs = [run("6Y", "even", 1, 100.0, 100.0), run("1N5P", "alor", 1, 130.0, 120.0)];
        let predictions = [prediction("alor", Workload::Load, 1.2), prediction("alor", Workload::A, 0.9)];
        let predictions = predictions.map(|one| Prediction { mix: "1N5P".to_owned(), ..one });
        let text = judged("six-hybrids", &runs, &predictions);
        // Load: unequal stores above hybrid stores is right. A: unequal stores below hybrid stores
        // is wrong.
        assert!(text.contains("1 of 2 ratios are within 25%; 1 of 2 pairs"), "{text}");
    }

    /// Each mix has its own baseline: 1.5 relative to one is not more than 1.2 relative to another.
    #[test]
    fn mixes_are_not_judged_beside_each_other() {
        let runs = [
            run("2H4P", "even", 1, 100.0, 100.0),
            run("2H4P", "alor", 1, 120.0, 120.0),
            run("1N2H3P", "even", 1, 300.0, 300.0),
            run("1N2H3P", "alor", 1, 450.0, 450.0),
        ];
        let main = [prediction("alor", Workload::Load, 1.1), prediction("alor", Workload::A, 1.1)];
        let other = main.clone().map(|one| Prediction { mix: "2H4P".to_owned(), ratio: 1.3, ..one });
        let text = judged("11", &runs, &[main.as_slice(), other.as_slice()].concat());
        assert!(text.contains("; 4 of 4 pairs"), "{text}");
    }

    #[test]
    fn without_predictions_there_is_no_section() {
        let runs = [run("1N2H3P", "even", 1, 100.0, 100.0), run("1N2H3P", "alor", 1, 150.0, 102.0)];
        let charts = charts(&select(&["5".to_owned()]).unwrap(), &runs);
        assert_eq!(text(&charts, &[]), "");
    }
}
