//! The good runs, summarised: values of a configuration, and effects of a knob.

use super::cases::{Case, Kind};
use super::knobs::Config;
use super::loads::Phase;
use super::places::{busy_seconds, Place};
use super::rounds::{void, Round};
use crate::measure::{median, Spread};

pub struct Summary<'a> {
    good: Vec<&'a Round>,
    cpus: f64,
}

/// The steadiness of a series of throughput. The first and the last tick are left out, because a
/// load begins and ends within them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    /// The standard deviation divided by the mean.
    pub variation: f64,
}

impl<'a> Summary<'a> {
    pub fn of(all: &'a [Round]) -> Summary<'a> {
        let cpus = all.first().map_or(1.0, |round| round.setup.cpus as f64);
        Summary { good: all.iter().filter(|round| void(round, all).is_none()).collect(), cpus }
    }

    pub fn runs<'b>(&'b self, case: &'b Case) -> impl Iterator<Item = &'a Round> + 'b {
        self.good.iter().copied().filter(move |round| round.case == *case)
    }

    pub fn loads(place: Place, config: &Config) -> Case {
        Case { place, kind: Kind::Loads, config: config.clone() }
    }

    /// Returns a value over the good runs of a case.
    pub fn spread(&self, case: &Case, value: impl Fn(&Round) -> Option<f64>) -> Option<Spread> {
        Spread::of(&self.runs(case).filter_map(value).collect::<Vec<_>>())
    }

    pub fn phase(&self, case: &Case, load: &str, value: impl Fn(&Phase) -> f64) -> Option<Spread> {
        self.spread(case, |round| round.measured.phases.get(load).map(&value))
    }

    /// Returns how many times as fast a load is with `changed` as with `initial`, round by round.
    pub fn effect(&self, place: Place, initial: &Config, changed: &Config, load: &str) -> Option<Spread> {
        let (initial, changed) = (Summary::loads(place, initial), Summary::loads(place, changed));
        self.ratio(&initial, &changed, |round| Some(round.measured.phases.get(load)?.seconds))
    }

    /// Returns the ratio of a value of two cases, in each round that has both.
    pub fn ratio(&self, over: &Case, under: &Case, value: impl Fn(&Round) -> Option<f64>) -> Option<Spread> {
        let of = |round: &Round| {
            let other = self.runs(under).find(|other| other.round == round.round)?;
            Some(value(round)? / value(other)?.max(f64::MIN_POSITIVE))
        };
        Spread::of(&self.runs(over).filter_map(of).collect::<Vec<_>>())
    }

    /// Returns where the time of a load went, in words.
    pub fn bound(&self, case: &Case, load: &str) -> String {
        let mut words = Vec::new();
        let busy = |phase: &Phase| busy_seconds(case.place, &phase.work).unwrap_or(0.0) / phase.seconds;
        if let Some(busy) = self.phase(case, load, busy).filter(|busy| busy.median > 0.0) {
            words.push(format!("device {:.0}% busy", busy.median * 100.0));
        }
        if let Some(cpu) = self.phase(case, load, |phase| phase.cpu_s / phase.seconds / self.cpus) {
            words.push(format!("CPUs {:.0}%", cpu.median * 100.0));
        }
        if let Some(stalled) = self.phase(case, load, |phase| phase.stalled_s) {
            words.push(format!("writers stalled {:.1} s", stalled.median));
        }
        words.join(", ")
    }

    pub fn steadiness(&self, case: &Case, load: &str) -> Option<Steadiness> {
        let all: Vec<Steadiness> = self
            .runs(case)
            .filter_map(|round| steadiness(&round.measured.phases.get(load)?.series))
            .collect();
        let of = |value: fn(&Steadiness) -> f64| median(&all.iter().map(value).collect::<Vec<_>>());
        (!all.is_empty()).then(|| Steadiness {
            median: of(|it| it.median),
            least: of(|it| it.least),
            most: of(|it| it.most),
            variation: of(|it| it.variation),
        })
    }
}

fn steadiness(series: &[f64]) -> Option<Steadiness> {
    let inner = series.get(1..series.len().saturating_sub(1)).filter(|inner| inner.len() > 1)?;
    let mean = inner.iter().sum::<f64>() / inner.len() as f64;
    let variance = inner.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / inner.len() as f64;
    Some(Steadiness {
        median: median(inner),
        least: inner.iter().copied().fold(f64::INFINITY, f64::min),
        most: inner.iter().copied().fold(0.0, f64::max),
        variation: variance.sqrt() / mean.max(f64::MIN_POSITIVE),
    })
}

#[cfg(test)]
mod tests {
    use super::super::knobs::{knob, Base, WritePath};
    use super::super::loads::{READ_ONLY, REPLICATION, WRITE_ONLY};
    use super::super::rounds::tests::{case, run};
    use super::*;

    #[test]
    fn an_effect_is_taken_within_rounds_and_void_runs_do_not_count() {
        let base = Config::new(Base::Paper, WritePath::Puts);
        let tuned = base.with(knob("triggers 24/40").unwrap().changed);
        let mut all = Vec::new();
        for (round, slower) in [(1, 1.0), (2, 3.0), (3, 1.0)] {
            all.push(run(case(base.clone()), round, 2.0 * slower, 1.0));
            all.push(run(case(tuned.clone()), round, slower, 4.0));
        }
        let mut void = run(case(tuned.clone()), 4, 99.0, 1.0);
        void.other_cpus = 1.0;
        all.push(void);
        let summary = Summary::of(&all);
        let effect = |load| summary.effect(Place::Sata, &base, &tuned, load).unwrap();
        assert_eq!(effect(REPLICATION), Spread { median: 2.0, least: 2.0, most: 2.0 });
        assert_eq!(effect(READ_ONLY).median, 0.25);
        assert!(summary.effect(Place::Disk, &base, &tuned, READ_ONLY).is_none());
        let steady = summary.steadiness(&case(base), WRITE_ONLY).unwrap();
        assert_eq!((steady.median, steady.least, steady.most), (70.0, 40.0, 100.0));
    }
}
