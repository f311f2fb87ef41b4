//! Single runs: one policy on one cluster, with the workloads one after the other. Each run is
//! saved in a file of its own, so that an interrupted reproduction can continue.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context};
use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::figures::{Figure, BASELINE};
use crate::results;
use crate::scenario::Move;
use crate::ycsb::{Summary, Workload};
use predict::alor::Scale;

/// The version of the files of runs.
const VERSION: u32 = 5;

/// The identity of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    pub mix: String,
    pub policy: String,
    /// The number of the run, from 1.
    pub run: usize,
}

impl Case {
    pub fn name(&self) -> String {
        format!("{}-{}-{}", self.mix, self.policy, self.run)
    }
}

/// The settings that every run of one directory shares. Runs with other settings are not
/// comparable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    pub scale: Scale,
    pub seed: u64,
    pub cpus: usize,
    /// The type of the file system that held the stores' data.
    pub file_system: String,
    pub program: String,
    /// True if the stores measured their devices, and false if they were told the devices' speeds.
    #[serde(default)]
    pub probed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    pub summary: Summary,
    pub evidence: Evidence,
    /// The reasons why the figures of this phase are void. Empty if they are good.
    pub void: Vec<String>,
}

impl Phase {
    pub fn new(summary: Summary, evidence: Evidence) -> Phase {
        let mut void = evidence.void(summary.workload.is_write_heavy());
        void.extend(summary.faults());
        Phase { summary, evidence, void }
    }

    pub fn workload(&self) -> Workload {
        self.summary.workload
    }
}

/// The wait before a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    pub before: Workload,
    /// Seconds from the end of the previous workload until the stores were at rest. `None` if they
    /// were still working when the next workload began.
    pub seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    version: u32,
    pub case: Case,
    pub setup: Setup,
    pub phases: Vec<Phase>,
    pub rests: Vec<Rest>,
    /// The operators begun from the start of the cluster to its end. Times are relative to the
    /// beginning of the load.
    pub moves: Vec<Move>,
}

/// The results of a run in a laboratory.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub phases: Vec<Phase>,
    pub rests: Vec<Rest>,
    pub moves: Vec<Move>,
}

impl Run {
    pub fn new(case: Case, setup: Setup, measured: Measured) -> Run {
        let Measured { phases, rests, moves } = measured;
        Run { version: VERSION, case, setup, phases, rests, moves }
    }

    pub fn phase(&self, workload: Workload) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.workload() == workload)
    }
}

/// Returns every run that the figures need, each once, in the order to make them: run by run, and
/// cluster by cluster. The policies rotate, so that slow changes of the machine affect all of them
/// alike.
pub fn cases(figures: &[Figure], policies: &[String], runs: usize) -> Vec<Case> {
    let mut groups: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    for group in figures.iter().flat_map(|figure| figure.comparison.groups()) {
        let known = match groups.iter_mut().find(|(mix, _)| *mix == group.mix) {
            Some((_, known)) => known,
            None => {
                groups.push((group.mix, Vec::new()));
                &mut groups.last_mut().expect("just pushed").1
            }
        };
        for policy in group.policies.iter().filter(|policy| policies.iter().any(|p| p == *policy)) {
            if !known.contains(policy) {
                known.push(policy);
            }
        }
    }
    let mut cases = Vec::new();
    for run in 1..=runs {
        for (mix, policies) in &mut groups {
            for policy in policies.iter() {
                cases.push(Case { mix: (*mix).to_owned(), policy: (*policy).to_owned(), run });
            }
            if !policies.is_empty() {
                policies.rotate_left(1);
            }
        }
    }
    cases
}

/// The runs of one directory.
pub struct Runs {
    dir: PathBuf,
    setup: Setup,
    done: Vec<Run>,
}

impl Runs {
    /// Reads the runs that an earlier reproduction left in `dir`. It is an error if one of them was
    /// made with other settings.
    pub fn open(dir: &Path, setup: Setup) -> anyhow::Result<Runs> {
        let dir = dir.join("runs");
        let mut done = Vec::new();
        for (path, run) in results::read::<Run>(&dir, "a run")? {
            ensure!(
                run.version == VERSION,
                "{} has version {}, not {VERSION}: choose another directory",
                path.display(),
                run.version
            );
            if let Some(difference) = difference(&run.setup, &setup) {
                bail!("{} was made with {difference}: choose another directory", path.display());
            }
            done.push(run);
        }
        Ok(Runs { dir, setup, done })
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    pub fn done(&self) -> &[Run] {
        &self.done
    }

    pub fn has(&self, case: &Case) -> bool {
        self.done.iter().any(|run| run.case == *case)
    }

    /// Deletes every run that has a void phase, so that it is made again. Returns their number.
    pub fn drop_void(&mut self) -> anyhow::Result<usize> {
        let void = |run: &Run| run.phases.iter().any(|phase| !phase.void.is_empty());
        let names: Vec<String> =
            self.done.iter().filter(|run| void(run)).map(|run| run.case.name()).collect();
        for name in &names {
            std::fs::remove_file(self.path(name))?;
        }
        self.done.retain(|run| !void(run));
        Ok(names.len())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }

    /// Saves a run atomically. An interrupted run leaves no file that could be taken for a run.
    pub fn keep(&mut self, run: Run) -> anyhow::Result<()> {
        let path = self.path(&run.case.name());
        durable::write(&path, serde_json::to_string_pretty(&run)? + "\n")
            .with_context(|| format!("{} cannot be written", path.display()))?;
        self.done.retain(|known| known.case != run.case);
        self.done.push(run);
        Ok(())
    }
}

/// Describes the first setting that differs.
pub(crate) fn difference<T: Serialize>(old: &T, new: &T) -> Option<String> {
    fn walk(old: &serde_json::Value, new: &serde_json::Value, name: &str) -> Option<String> {
        match (old.as_object(), new.as_object()) {
            (Some(old), Some(fields)) => {
                let absent = serde_json::Value::Null;
                fields.iter().find_map(|(name, new)| walk(old.get(name).unwrap_or(&absent), new, name))
            }
            _ => (old != new).then(|| format!("{} {old}, not {new}", name.replace('_', " "))),
        }
    }
    walk(&serde_json::to_value(old).ok()?, &serde_json::to_value(new).ok()?, "")
}

/// Starts a cluster, runs the workloads on it, and ends it.
pub trait Laboratory {
    /// Returns the reason why this program cannot make such a run as an error.
    fn supports(&self, mix: &str, policy: &str) -> Result<(), String>;

    fn measure(
        &mut self,
        case: &Case,
        setup: &Setup,
    ) -> impl std::future::Future<Output = anyhow::Result<Measured>>;
}

/// Returns the figures that this program can make, and the reasons why it cannot make the others. A
/// figure needs the runs of its baseline.
pub fn feasible<L: Laboratory>(laboratory: &L, figures: &[Figure]) -> (Vec<Figure>, BTreeSet<String>) {
    let mut refused = BTreeSet::new();
    let mut feasible = Vec::new();
    for figure in figures {
        let groups = figure.comparison.groups().iter();
        let mut baselines = groups.map(|group| figure.comparison.baseline_mix(group.mix));
        match baselines.find_map(|mix| laboratory.supports(mix, BASELINE).err()) {
            None => feasible.push(*figure),
            Some(why) => {
                refused.insert(format!("figure {}: {why}", figure.name));
            }
        }
    }
    (feasible, refused)
}

/// The outcome of a reproduction, apart from its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// The reasons why this program cannot make some runs, each once.
    pub refused: BTreeSet<String>,
    /// The runs that failed, and why.
    pub failed: Vec<(Case, String)>,
    pub made: usize,
    pub found: usize,
}

/// Maximum number of consecutive failures. The run after them would most likely fail as well.
const FAILURES_MAX: usize = 3;

/// Makes every run that does not exist yet. Calls `before` with each case and the number of cases
/// left, including that case. It is an error if three runs in a row fail.
pub async fn make<L: Laboratory>(
    laboratory: &mut L,
    runs: &mut Runs,
    cases: &[Case],
    mut before: impl FnMut(&Case, usize),
) -> anyhow::Result<Account> {
    let mut account = Account::default();
    let mut wanted = Vec::new();
    for case in cases {
        match laboratory.supports(&case.mix, &case.policy) {
            _ if runs.has(case) => account.found += 1,
            Ok(()) => wanted.push(case),
            Err(why) => {
                account.refused.insert(why);
            }
        }
    }
    let mut in_a_row = 0;
    for (index, case) in wanted.iter().enumerate() {
        before(case, wanted.len() - index);
        let setup = runs.setup().clone();
        match laboratory.measure(case, &setup).await {
            Ok(measured) => {
                runs.keep(Run::new((*case).clone(), setup, measured))?;
                account.made += 1;
                in_a_row = 0;
            }
            Err(error) => {
                account.failed.push(((*case).clone(), format!("{error:#}")));
                in_a_row += 1;
                ensure!(in_a_row < FAILURES_MAX, "{FAILURES_MAX} runs in a row failed, the last: {error:#}");
            }
        }
    }
    Ok(account)
}

/// Returns the policies that were asked for, and the baseline.
pub fn with_baseline(policies: &[String]) -> Vec<String> {
    let mut all = vec![BASELINE.to_owned()];
    all.extend(policies.iter().filter(|policy| *policy != BASELINE).cloned());
    all
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::alor::evidence::tests::evidence;
    use crate::alor::figures::select;
    use crate::scenario::moves::tests::moved;
    use crate::ycsb::Latency;

    pub fn setup() -> Setup {
        Setup {
            scale: Scale::named("quick").unwrap(),
            seed: 1,
            cpus: 2,
            file_system: "tmpfs".into(),
            program: "steelyard 0.1.0".into(),
            probed: false,
        }
    }

    /// Returns a phase with `per_second` operations per second.
    pub fn phase(workload: Workload, per_second: f64) -> Phase {
        let latency = Latency {
            count: per_second as u64 * 10,
            mean_us: 1e6 / per_second,
            p99_us: (4e6 / per_second) as u64,
            ..Latency::default()
        };
        let summary = Summary {
            workload,
            seconds: 10.0,
            operations: latency.count,
            latency,
            kinds: workload.shares().iter().map(|(kind, _)| (*kind, latency)).collect(),
            ..crate::ycsb::test_summary()
        };
        Phase::new(summary, evidence())
    }

    pub fn run(mix: &str, policy: &str, run: usize, load: f64, a: f64) -> Run {
        let case = Case { mix: mix.into(), policy: policy.into(), run };
        let phases = vec![phase(Workload::Load, load), phase(Workload::A, a)];
        let moves = vec![moved(1.0, 1, "move-peer", 0, 1); run];
        let rests = vec![Rest { before: Workload::A, seconds: Some(2.5) }];
        Run::new(case, setup(), Measured { phases, rests, moves })
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn policies_take_turns_and_each_run_is_made_once() {
        let figures = select(&strings(&["5-7", "15"])).unwrap();
        let cases = cases(&figures, &strings(&["even", "alor"]), 2);
        let names: Vec<String> = cases.iter().map(Case::name).collect();
        assert_eq!(names, ["1N2H3P-even-1", "1N2H3P-alor-1", "1N2H3P-alor-2", "1N2H3P-even-2"]);
        let all =
            super::cases(&select(&[]).unwrap(), &strings(&["even", "leader-only", "alor", "adaptive"]), 1);
        assert_eq!(all.len(), 4 + 3 * 2 + 2 * 2 + 3);
    }

    struct Counting {
        measured: Vec<String>,
        fail_on: Option<&'static str>,
    }

    impl Laboratory for Counting {
        fn supports(&self, mix: &str, policy: &str) -> Result<(), String> {
            match policy {
                _ if mix.contains('Y') => Err("this program has no hybrid devices".into()),
                "adaptive" => Err("this program has no policy 'adaptive'".into()),
                _ => Ok(()),
            }
        }

        async fn measure(&mut self, case: &Case, _setup: &Setup) -> anyhow::Result<Measured> {
            ensure!(self.fail_on != Some(case.policy.as_str()), "the cluster did not start");
            self.measured.push(case.name());
            Ok(Measured { phases: vec![phase(Workload::Load, 100.0)], rests: Vec::new(), moves: Vec::new() })
        }
    }

    fn counting() -> Counting {
        Counting { measured: Vec::new(), fail_on: None }
    }

    #[tokio::test]
    async fn done_runs_are_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let figures = select(&strings(&["5"])).unwrap();
        let policies = strings(&["even", "alor", "adaptive"]);
        let first = cases(&figures, &policies, 1);
        let mut laboratory = counting();
        let mut runs = Runs::open(dir.path(), setup()).unwrap();
        let account = make(&mut laboratory, &mut runs, &first, |_, _| {}).await.unwrap();
        assert_eq!((account.made, account.found), (2, 0));
        assert_eq!(account.refused.iter().collect::<Vec<_>>(), ["this program has no policy 'adaptive'"]);

        // The partial file of an interrupted run does not count as a run.
        std::fs::write(dir.path().join("runs/.1N2H3P-even-2.json.new"), "{").unwrap();
        let mut runs = Runs::open(dir.path(), setup()).unwrap();
        assert_eq!(runs.done().len(), 2);
        let mut laboratory = counting();
        let account =
            make(&mut laboratory, &mut runs, &cases(&figures, &policies, 2), |_, _| {}).await.unwrap();
        assert_eq!((account.made, account.found), (2, 2));
        assert_eq!(laboratory.measured, ["1N2H3P-alor-2", "1N2H3P-even-2"]);
    }

    #[test]
    fn a_figure_without_its_baseline_is_not_begun() {
        let figures = select(&strings(&["15", "17", "18"])).unwrap();
        let (feasible, refused) = feasible(&counting(), &figures);
        assert_eq!(feasible.iter().map(|figure| figure.name).collect::<Vec<_>>(), ["15"]);
        assert_eq!(refused.first().unwrap(), "figure 17: this program has no hybrid devices");
    }

    #[tokio::test]
    async fn a_failed_run_is_told_and_the_others_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let figures = select(&strings(&["5"])).unwrap();
        let cases = cases(&figures, &strings(&["even", "alor"]), 2);
        let mut runs = Runs::open(dir.path(), setup()).unwrap();
        let mut laboratory = Counting { fail_on: Some("alor"), ..counting() };
        let account = make(&mut laboratory, &mut runs, &cases, |_, _| {}).await.unwrap();
        assert_eq!((account.made, account.failed.len()), (2, 2));
        assert!(account.failed[0].1.contains("did not start"));
        let mut hopeless = Counting { fail_on: Some("even"), ..counting() };
        let dir = tempfile::tempdir().unwrap();
        let mut runs = Runs::open(dir.path(), setup()).unwrap();
        let only_even: Vec<Case> = (1..5).map(|run| Case { run, ..cases[0].clone() }).collect();
        assert!(make(&mut hopeless, &mut runs, &only_even, |_, _| {}).await.is_err());
    }

    #[test]
    fn runs_of_other_settings_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut runs = Runs::open(dir.path(), setup()).unwrap();
        runs.keep(run("1N2H3P", "even", 1, 100.0, 100.0)).unwrap();
        let mut other = setup();
        other.scale.device_speed = 0.5;
        let error = Runs::open(dir.path(), other).err().unwrap().to_string();
        assert!(error.contains("device speed 0.00625, not 0.5"), "{error}");
    }

    #[test]
    fn void_runs_can_be_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut runs = Runs::open(dir.path(), setup()).unwrap();
        let mut void = run("1N2H3P", "even", 2, 100.0, 100.0);
        void.phases[0].void.push("bound by CPU".into());
        runs.keep(run("1N2H3P", "even", 1, 100.0, 100.0)).unwrap();
        runs.keep(void).unwrap();
        assert_eq!(runs.drop_void().unwrap(), 1);
        assert_eq!(Runs::open(dir.path(), setup()).unwrap().done().len(), 1);
    }
}
