//! Rounds. Each run is saved in a file of its own, so that an interrupted reproduction can
//! continue.

use std::path::{Path, PathBuf};

use anyhow::{ensure, Context};
use serde::{Deserialize, Serialize};

use super::cases::Case;
use super::loads::Measured;
use super::places::Place;
use super::replica::SetRead;
use super::scale::Scale;
use crate::measure::median;
use crate::results;

/// The version of the files.
const VERSION: u32 = 1;
/// A run is void if other processes used more CPUs than this.
const OTHER_CPUS_MAX: f64 = 0.3;
/// A run on the disk is void if a sync takes more than this multiple of the median over all runs.
const SYNC_FACTOR_MAX: f64 = 5.0;

/// The settings that all runs of one directory share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    pub scale: Scale,
    pub cpus: usize,
    /// The type of the file system of the disk.
    pub file_system: String,
    pub program: String,
}

/// One run of one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    version: u32,
    pub case: Case,
    /// The number of the round, from 1.
    pub round: usize,
    /// Number of earlier attempts that were void.
    pub repeated: usize,
    pub setup: Setup,
    /// The average number of CPUs that other processes used.
    pub other_cpus: f64,
    /// Median microseconds of an `fdatasync` of 4 KiB on the disk, before the run.
    pub sync_us: f64,
    pub measured: Measured,
    pub set: Vec<SetRead>,
}

/// The conditions of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    pub other_cpus: f64,
    pub sync_us: f64,
}

impl Round {
    pub fn new(
        case: Case,
        round: usize,
        setup: Setup,
        conditions: Conditions,
        measured: Measured,
        set: Vec<SetRead>,
    ) -> Round {
        let Conditions { other_cpus, sync_us } = conditions;
        Round { version: VERSION, case, round, repeated: 0, setup, other_cpus, sync_us, measured, set }
    }
}

/// Returns the reason why a run is void, or `None` if it is good.
pub fn void(round: &Round, all: &[Round]) -> Option<String> {
    if round.other_cpus > OTHER_CPUS_MAX {
        return Some(format!("other processes used {:.2} CPUs (limit {OTHER_CPUS_MAX})", round.other_cpus));
    }
    let middle = median(&all.iter().map(|round| round.sync_us).collect::<Vec<_>>());
    let is_slow = round.case.place == Place::Disk && round.sync_us > SYNC_FACTOR_MAX * middle;
    is_slow.then(|| {
        let time = client::table::micros(round.sync_us);
        let times = round.sync_us / middle;
        format!("a sync of the disk took {time}, {times:.1} times the median (limit {SYNC_FACTOR_MAX})")
    })
}

/// The runs of one directory.
pub struct Rounds {
    dir: PathBuf,
    setup: Setup,
    done: Vec<Round>,
}

impl Rounds {
    /// Reads the runs that an earlier reproduction left in `dir`. It is an error if one of them was
    /// made with other settings.
    pub fn open(dir: &Path, setup: Setup) -> anyhow::Result<Rounds> {
        let dir = dir.join("runs");
        let mut done = Vec::new();
        for (path, round) in results::read::<Round>(&dir, "a run")? {
            ensure!(
                round.version == VERSION && round.setup == setup,
                "{} was made with other settings: choose another directory",
                path.display()
            );
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

    /// Returns the runs to make, round by round. Each round begins with another run. If no run is
    /// absent, the void ones that were repeated fewer than `repeats_max` times are made again.
    pub fn wanted(&self, cases: &[Case], repeats_max: usize) -> Vec<(Case, usize)> {
        let count = cases.len().max(1);
        let all = (1..=self.setup.scale.rounds).flat_map(|round| {
            let first = (round - 1) * count / self.setup.scale.rounds;
            (0..cases.len()).map(move |at| (cases[(first + at) % count].clone(), round))
        });
        let known = |case: &Case, round: usize| {
            self.done.iter().find(|done| done.case == *case && done.round == round)
        };
        let absent: Vec<_> = all.clone().filter(|(case, round)| known(case, *round).is_none()).collect();
        if !absent.is_empty() {
            return absent;
        }
        let again = |(case, round): &(Case, usize)| {
            known(case, *round)
                .is_some_and(|done| done.repeated < repeats_max && void(done, &self.done).is_some())
        };
        all.filter(again).collect()
    }

    /// Saves a run atomically, in place of a void one with its number.
    pub fn keep(&mut self, mut round: Round) -> anyhow::Result<()> {
        let same = |known: &Round| known.case == round.case && known.round == round.round;
        if let Some(at) = self.done.iter().position(same) {
            round.repeated = self.done.remove(at).repeated + 1;
        }
        let case = serde_json::to_string(&round.case)?;
        let name = xxhash_rust::xxh3::xxh3_64(case.as_bytes());
        let path = self.dir.join(format!("{name:016x}-{}.json", round.round));
        durable::write(&path, serde_json::to_string(&round)? + "\n")
            .with_context(|| format!("{} cannot be written", path.display()))?;
        self.done.push(round);
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::cases::Kind;
    use super::super::knobs::{Base, Config, WritePath};
    use super::super::loads::{Phase, MIXED, READ_ONLY, REPLICATION, WRITE_ONLY};
    use super::*;

    pub fn setup() -> Setup {
        Setup {
            scale: Scale::named("quick").unwrap(),
            cpus: 2,
            file_system: "ext4".into(),
            program: "steelyard 0.1.0".into(),
        }
    }

    pub fn case(config: Config) -> Case {
        Case { place: Place::Sata, kind: Kind::Loads, config }
    }

    /// A run in which every load takes `seconds`, and reads `read_s`.
    pub fn run(case: Case, round: usize, seconds: f64, read_s: f64) -> Round {
        let phase = |seconds: f64| Phase {
            seconds,
            operations: 1000,
            series: vec![100.0, 40.0, 100.0, 90.0],
            ..Phase::default()
        };
        let phases = [(WRITE_ONLY, seconds), (READ_ONLY, read_s), (MIXED, seconds), (REPLICATION, seconds)];
        let measured = Measured {
            phases: phases.map(|(name, seconds)| (name.to_owned(), phase(seconds))).into(),
            write_amplification: 4.0,
            ..Measured::default()
        };
        let conditions = Conditions { other_cpus: 0.1, sync_us: 1000.0 };
        Round::new(case, round, setup(), conditions, measured, Vec::new())
    }

    #[test]
    fn runs_are_kept_and_only_absent_or_void_ones_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let cases = [Base::Paper, Base::Ours].map(|base| case(Config::new(base, WritePath::Puts)));
        let mut rounds = Rounds::open(dir.path(), setup()).unwrap();
        let order: Vec<(usize, usize)> = rounds
            .wanted(&cases, 1)
            .iter()
            .map(|(case, round)| (cases.iter().position(|known| known == case).unwrap(), *round))
            .collect();
        assert_eq!(order, [(0, 1), (1, 1), (1, 2), (0, 2)], "each round begins with another run");
        for (case, round) in rounds.wanted(&cases, 1) {
            rounds.keep(run(case, round, 1.0, 1.0)).unwrap();
        }
        assert_eq!(rounds.wanted(&cases, 1), []);
        let busy = Round { other_cpus: 0.9, ..run(cases[0].clone(), 2, 9.0, 1.0) };
        rounds.keep(busy.clone()).unwrap();
        assert_eq!(rounds.done().len(), 4);
        assert_eq!(rounds.wanted(&cases, 2), [(cases[0].clone(), 2)], "it was void");
        assert_eq!(rounds.wanted(&cases, 1), [], "and was repeated once already");
        let again = Rounds::open(dir.path(), setup()).unwrap();
        assert_eq!(again.done().len(), 4);
        let other = Setup { cpus: 3, ..setup() };
        assert!(Rounds::open(dir.path(), other).is_err());
    }

    #[test]
    fn a_slow_disk_makes_only_its_own_runs_void() {
        let of = |place, sync_us| {
            let case = Case { place, ..case(Config::new(Base::Paper, WritePath::Puts)) };
            Round { sync_us, ..run(case, 1, 1.0, 1.0) }
        };
        let all = [of(Place::Disk, 1000.0), of(Place::Disk, 9000.0), of(Place::Sata, 9000.0)];
        let all = [all.as_slice(), &vec![of(Place::Sata, 1000.0); 5]].concat();
        assert_eq!(all.iter().filter(|round| void(round, &all).is_some()).count(), 1);
    }
}
