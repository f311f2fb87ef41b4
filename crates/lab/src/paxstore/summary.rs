//! The good rounds of a figure, summarised.

use super::figures::{Figure, Metric};
use super::rounds::{void, Round, Sample};
use crate::measure::Spread;

/// The device and load that several series share.
pub type Panel = (String, String);

pub struct Summary<'a> {
    samples: Vec<&'a Sample>,
}

impl<'a> Summary<'a> {
    /// Returns the summary of a figure's good rounds among `all`.
    pub fn of(figure: Figure, all: &'a [Round]) -> Summary<'a> {
        let good = all.iter().filter(|round| round.figure == figure && void(round, all).is_none());
        Summary { samples: good.flat_map(|round| &round.samples).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    pub fn panels(&self) -> Vec<Panel> {
        let mut all = distinct(self.samples.iter().map(|sample| (sample.place.clone(), sample.load.clone())));
        all.sort();
        all
    }

    /// Returns the sides of the comparison by name. The order of measurement differs from round to
    /// round.
    pub fn series(&self, panel: &Panel) -> Vec<String> {
        let mut all = distinct(self.of_panel(panel).map(|sample| sample.series.clone()));
        all.sort();
        all
    }

    /// Returns the values on the horizontal axis, ascending.
    pub fn axis(&self, panel: &Panel) -> Vec<u64> {
        let mut all = distinct(self.of_panel(panel).map(|sample| sample.at));
        all.sort_unstable();
        all
    }

    fn of_panel<'b>(&'b self, panel: &'b Panel) -> impl Iterator<Item = &'a Sample> + 'b {
        let (place, load) = panel;
        self.samples.iter().copied().filter(move |sample| sample.place == *place && sample.load == *load)
    }

    pub fn spread(&self, panel: &Panel, series: &str, at: u64, metric: Metric) -> Option<Spread> {
        let wanted = self.of_panel(panel).filter(|sample| sample.series == series && sample.at == at);
        Spread::of(&wanted.filter_map(|sample| metric.of(sample)).collect::<Vec<_>>())
    }

    pub fn median(&self, panel: &Panel, series: &str, at: u64, metric: Metric) -> Option<f64> {
        Some(self.spread(panel, series, at, metric)?.median)
    }

    /// Returns the ratio of the medians of two series at a value of the axis.
    pub fn ratio(&self, panel: &Panel, over: &str, under: &str, at: u64, metric: Metric) -> Option<f64> {
        let under = self.median(panel, under, at, metric).filter(|value| *value > 0.0)?;
        Some(self.median(panel, over, at, metric)? / under)
    }
}

/// Returns each value once, in the order of its first appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut known, value| {
        if !known.contains(&value) {
            known.push(value);
        }
        known
    })
}

#[cfg(test)]
mod tests {
    use super::super::rounds::tests::{round, sample};
    use super::*;

    #[test]
    fn void_rounds_do_not_count() {
        let of = |number, sync_us, mean_us| {
            round(Figure::Log, number, sync_us, vec![sample("disk", "1 writer", "append", 512, mean_us)])
        };
        let rounds = [of(1, 1.0, 10.0), of(2, 1.0, 30.0), of(3, 9.0, 999.0), of(4, 1.0, 11.0)];
        let summary = Summary::of(Figure::Log, &rounds);
        let panel = summary.panels().remove(0);
        assert_eq!(
            summary.spread(&panel, "append", 512, Metric::Mean),
            Some(Spread { median: 11.0, least: 10.0, most: 30.0 })
        );
        assert_eq!(summary.spread(&panel, "append", 1024, Metric::Mean), None);
        assert!(Summary::of(Figure::Reads, &rounds).is_empty());
    }
}
