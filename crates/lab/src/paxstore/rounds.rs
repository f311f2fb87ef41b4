//! Rounds of a figure. Each is saved in a file of its own, so that an interrupted reproduction can
//! continue.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context};
use serde::{Deserialize, Serialize};

use super::figures::Figure;
use super::scale::Scale;
use crate::alor::difference;
use crate::measure::median;
use crate::results;
use crate::ycsb::Latency;

/// The version of the files of rounds.
const VERSION: u32 = 1;
/// A round is void if the disk's sync time before or after it is more than this multiple of the
/// median over all rounds.
const SYNC_FACTOR_MAX: f64 = 5.0;

/// The settings that all rounds of one directory share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    pub scale: Scale,
    pub cpus: usize,
    /// The type of the file system of the disk.
    pub file_system: String,
    pub program: String,
}

/// One measurement of one side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The device: `disk`, `loop-ext4` or an emulated device's profile.
    pub place: String,
    /// The load, such as the number of clients.
    pub load: String,
    /// The side of the comparison.
    pub series: String,
    /// The value on the horizontal axis: the size of a record in bytes, or the number of ranges or
    /// kills.
    pub at: u64,
    pub per_second: f64,
    pub latency: Latency,
    /// Mean microseconds of a sync of the log.
    pub sync_us: Option<f64>,
    /// CPUs that the whole machine used.
    pub cores: Option<f64>,
    /// CPUs that the servers and clients used.
    #[serde(default)]
    pub own_cores: Option<f64>,
}

/// The samples of a round, and the reasons why others could not be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    pub samples: Vec<Sample>,
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    version: u32,
    pub figure: Figure,
    /// The number of the round, from 1.
    pub round: usize,
    /// Number of earlier attempts at the round that were void.
    pub repeated: usize,
    pub setup: Setup,
    /// Median microseconds of an `fdatasync` of 4 KiB on the disk, before and after the round.
    pub sync_us: [f64; 2],
    pub samples: Vec<Sample>,
    pub skipped: Vec<String>,
}

impl Round {
    pub fn new(figure: Figure, round: usize, setup: Setup, sync_us: [f64; 2], measured: Measured) -> Round {
        let Measured { samples, skipped } = measured;
        Round { version: VERSION, figure, round, repeated: 0, setup, sync_us, samples, skipped }
    }

    fn worst_sync_us(&self) -> f64 {
        self.sync_us[0].max(self.sync_us[1])
    }
}

/// Returns the reason why a round is void, or `None` if it is good.
pub fn void(round: &Round, all: &[Round]) -> Option<String> {
    let middle = median(&all.iter().flat_map(|round| round.sync_us).collect::<Vec<_>>());
    let worst = round.worst_sync_us();
    (worst > SYNC_FACTOR_MAX * middle).then(|| {
        format!(
            "a sync of the disk took {}, {:.1} times the median of all rounds (limit {SYNC_FACTOR_MAX})",
            client::table::micros(worst),
            worst / middle
        )
    })
}

/// The rounds of one directory.
pub struct Rounds {
    dir: PathBuf,
    setup: Setup,
    done: Vec<Round>,
}

impl Rounds {
    /// Reads the rounds that an earlier reproduction left in `dir`. It is an error if one of them
    /// was made with other settings.
    pub fn open(dir: &Path, setup: Setup) -> anyhow::Result<Rounds> {
        let dir = dir.join("rounds");
        let mut done = Vec::new();
        for (path, round) in results::read::<Round>(&dir, "a round")? {
            ensure!(
                round.version == VERSION,
                "{} has version {}, not {VERSION}: choose another directory",
                path.display(),
                round.version
            );
            if let Some(difference) = difference(&round.setup, &setup) {
                bail!("{} was made with {difference}: choose another directory", path.display());
            }
            done.push(round);
        }
        Ok(Rounds { dir, setup, done })
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    pub fn done(&self) -> &[Round] {
        &self.done
    }

    /// Returns the rounds to make: those without a result, round by round, and, if there are none,
    /// the void ones that were repeated fewer than `repeats_max` times.
    pub fn wanted(&self, figures: &[Figure], rounds: usize, repeats_max: usize) -> Vec<(Figure, usize)> {
        let all = (1..=rounds).flat_map(|round| figures.iter().map(move |figure| (*figure, round)));
        let known = |(figure, round): (Figure, usize)| {
            self.done.iter().find(|done| done.figure == figure && done.round == round)
        };
        let absent: Vec<_> = all.clone().filter(|wanted| known(*wanted).is_none()).collect();
        if !absent.is_empty() {
            return absent;
        }
        let again = |wanted: &(Figure, usize)| {
            known(*wanted).is_some_and(|done| done.repeated < repeats_max && void(done, &self.done).is_some())
        };
        all.filter(again).collect()
    }

    /// Saves a round atomically, in place of a void one with its number.
    pub fn keep(&mut self, mut round: Round) -> anyhow::Result<()> {
        let same = |known: &Round| known.figure == round.figure && known.round == round.round;
        if let Some(at) = self.done.iter().position(same) {
            round.repeated = self.done.remove(at).repeated + 1;
        }
        let path = self.dir.join(format!("{}-{}.json", round.figure.name(), round.round));
        durable::write(&path, serde_json::to_string_pretty(&round)? + "\n")
            .with_context(|| format!("{} cannot be written", path.display()))?;
        self.done.push(round);
        self.done.sort_by_key(|round| (round.figure, round.round));
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn setup() -> Setup {
        Setup {
            scale: Scale::named("quick").unwrap().0,
            cpus: 2,
            file_system: "ext4".into(),
            program: "steelyard 0.1.0".into(),
        }
    }

    pub fn sample(place: &str, load: &str, series: &str, at: u64, mean_us: f64) -> Sample {
        Sample {
            place: place.into(),
            load: load.into(),
            series: series.into(),
            at,
            per_second: 1e6 / mean_us,
            latency: Latency {
                count: 100,
                mean_us,
                p50_us: mean_us as u64,
                max_us: (2.0 * mean_us) as u64,
                ..Latency::default()
            },
            sync_us: None,
            cores: Some(1.0),
            own_cores: Some(0.9),
        }
    }

    pub fn round(figure: Figure, round: usize, sync_us: f64, samples: Vec<Sample>) -> Round {
        let measured = Measured { samples, skipped: Vec::new() };
        Round::new(figure, round, setup(), [sync_us, sync_us], measured)
    }

    #[test]
    fn a_round_on_a_slow_disk_is_void_and_made_again_a_few_times() {
        let dir = tempfile::tempdir().unwrap();
        let mut rounds = Rounds::open(dir.path(), setup()).unwrap();
        let figures = [Figure::Log];
        assert_eq!(rounds.wanted(&figures, 3, 2), [1, 2, 3].map(|round| (Figure::Log, round)));
        for number in 1..=3 {
            let sync_us = if number == 2 { 6000.0 } else { 1000.0 };
            rounds.keep(round(Figure::Log, number, sync_us, Vec::new())).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(rounds.wanted(&figures, 3, 2), [(Figure::Log, 2)]);
            rounds.keep(round(Figure::Log, 2, 6000.0, Vec::new())).unwrap();
        }
        assert_eq!(rounds.wanted(&figures, 3, 2), []);
        let again = Rounds::open(dir.path(), setup()).unwrap();
        assert_eq!(again.done(), rounds.done());
        assert!(void(&again.done()[1], again.done()).unwrap().contains("6.0 times the median"));
        assert_eq!(void(&again.done()[0], again.done()), None);
    }

    #[test]
    fn rounds_with_other_settings_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut rounds = Rounds::open(dir.path(), setup()).unwrap();
        rounds.keep(round(Figure::Log, 1, 1000.0, Vec::new())).unwrap();
        let mut other = setup();
        other.scale.log_writes = 7;
        let error = Rounds::open(dir.path(), other).err().unwrap().to_string();
        assert!(error.contains("log writes 2000, not 7"), "{error}");
    }
}
