//! `steelyard bench reproduce redis-on-flash`: RocksDB's knobs, measured as the paper does.
//!
//! Every run is made by processes of their own, so that RocksDB's threads and memory end with it
//! and an emulated device can be put under it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context};
use client::process::Child;
use device::preload_env;
use lab::flash::{
    self, cases, child, select, Case, Conditions, Config, Done, Job, Kind, Place, Round, Rounds, Scale, Setup,
};
use lab::measure::{cpu_time, ended_children_cpu_time, fdatasync_micros, machine_busy_time};

use crate::command::ground::{cpus, program, target};

/// Number of syncs before a run.
const PROBES: usize = 100;
/// Interval at which the end of a process is noticed.
const POLL: Duration = Duration::from_millis(10);
/// Maximum number of failed runs in a row. The one after them would most likely fail as well.
const FAILURES_MAX: usize = 3;

#[derive(clap::Args)]
pub struct Options {
    /// Figure to make: table (every knob), total, 2 to 7, nvme, filters, sync or disk; can be
    /// repeated [default: all]
    #[arg(long, value_name = "N")]
    figure: Vec<String>,
    /// Devices: sata, nvme (both emulated) and disk [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    place: Vec<String>,
    /// Sizes and times: smoke (no claims), quick or full
    #[arg(long, value_name = "NAME", default_value = "full")]
    scale: String,
    /// The same as --scale quick
    #[arg(long, conflicts_with = "scale")]
    quick: bool,
    /// Number of rows, instead of the scale's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..))]
    rows: Option<u64>,
    /// Number of rounds, instead of the scale's
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Maximum number of times that a void run is made again
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat_void: usize,
    /// Make no runs, only the report and the plots of existing runs
    #[arg(long)]
    report_only: bool,
    /// Directory on a RAM file system, for the data on emulated devices
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    ram: PathBuf,
    /// Directory for data on the disk to measure [default: the directory for results]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory for results, plots and the report [default: redis-on-flash-SCALE under the build's
    /// target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do one job in this process: its description as JSON
    #[arg(long, hide = true)]
    one: Option<String>,
}

/// The work of a process, as it is told to it.
#[derive(serde::Serialize, serde::Deserialize)]
struct One {
    job: Job,
    config: Config,
    scale: Scale,
    dir: PathBuf,
    result: PathBuf,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    if let Some(one) = &options.one {
        let One { job, config, scale, dir, result } = serde_json::from_str(one)?;
        return child(job, &config, &scale, &dir, &result);
    }
    let figures = select(&options.figure).map_err(|error| anyhow!(error))?;
    let named = |name: &String| Place::named(name).with_context(|| format!("there is no device '{name}'"));
    let mut places: Vec<Place> = options.place.iter().map(named).collect::<anyhow::Result<_>>()?;
    if places.is_empty() {
        places = Place::ALL.to_vec();
    }
    let name = if options.quick { "quick" } else { options.scale.as_str() };
    let mut scale = Scale::named(name).map_err(|error| anyhow!(error))?;
    scale.rounds = options.rounds.map_or(scale.rounds, usize::from);
    scale.rows = options.rows.unwrap_or(scale.rows);
    let out = options.out.unwrap_or_else(|| target().join(format!("redis-on-flash-{name}")));
    let disk = options.data.unwrap_or_else(|| out.join("data"));
    for dir in [&out, &disk] {
        std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    }
    let file_system = client::place::file_system(&disk);
    let setup = Setup { scale, cpus: cpus(), file_system, program: program() };
    let mut rounds = Rounds::open(&out, setup.clone())?;
    let mut failed = Vec::new();
    if !options.report_only {
        let bench = Bench { disk, ram: options.ram, setup: setup.clone() };
        // The processes end with the thread that starts them, which is this one.
        failed = bench.make(&mut rounds, &cases(&figures, &places), options.repeat_void).await?;
    }
    flash::write_plots(rounds.done(), &out)?;
    let text = flash::report(&setup, rounds.done(), &failed);
    let path = out.join("report.md");
    std::fs::write(&path, &text).with_context(|| format!("{} cannot be written", path.display()))?;
    print!("{text}");
    eprintln!("the report is {}", path.display());
    Ok(())
}

struct Bench {
    /// Directories on the disk and in RAM.
    disk: PathBuf,
    ram: PathBuf,
    setup: Setup,
}

impl Bench {
    /// Makes all runs that are missing, and then the void ones again. Returns the failures.
    async fn make(
        &self,
        rounds: &mut Rounds,
        cases: &[Case],
        repeats_max: usize,
    ) -> anyhow::Result<Vec<String>> {
        let (mut failed, mut in_a_row) = (Vec::new(), 0);
        let mut given_up: Vec<(Case, usize)> = Vec::new();
        loop {
            let wanted = rounds.wanted(cases, repeats_max);
            let left = wanted.len();
            let Some((case, round)) = wanted.into_iter().find(|next| !given_up.contains(next)) else {
                return Ok(failed);
            };
            let started = Instant::now();
            match self.round(&case, round).await {
                Ok(made) => {
                    rounds.keep(made)?;
                    in_a_row = 0;
                    let took = started.elapsed().as_secs_f64();
                    eprintln!("{left} to go; round {round}, {took:.1} s, {}", case.label());
                }
                Err(error) => {
                    eprintln!("round {round}, {}: failed: {error:#}", case.label());
                    failed.push(format!("failed: {}, round {round}: {error:#}", case.label()));
                    given_up.push((case, round));
                    in_a_row += 1;
                    ensure!(
                        in_a_row < FAILURES_MAX,
                        "{in_a_row} runs in a row failed: {}",
                        failed.join("; ")
                    );
                }
            }
        }
    }

    async fn round(&self, case: &Case, round: usize) -> anyhow::Result<Round> {
        let within = if case.place == Place::Disk { &self.disk } else { &self.ram };
        let dir = tempfile::Builder::new().prefix("steelyard-flash-").tempdir_in(within);
        let dir = dir.with_context(|| format!("{} cannot be used", within.display()))?;
        let times = fdatasync_micros(&self.disk, PROBES).context("the disk's sync time")?;
        let sync_us = times.value_at_quantile(0.5) as f64;
        // The processes of the run have ended whenever this is asked.
        let busy = || -> anyhow::Result<Duration> {
            let own = cpu_time(std::process::id()).context("the CPU time")?;
            let ended = ended_children_cpu_time().context("the CPU time of the run")?;
            Ok(machine_busy_time().context("the machine's CPU time")?.saturating_sub(own + ended))
        };
        let (started, before) = (Instant::now(), busy()?);
        let master = self.stage(dir.path(), case, "master")?;
        let job = match case.kind {
            Kind::Loads => Job::Loads,
            Kind::Filters => Job::Filters,
            Kind::Write => Job::Write,
            Kind::Set => Job::Set,
        };
        self.finish(self.start(&master, job, case, Stdio::null(), Stdio::null())?).await?;
        let mut done = self.results(&master)?;
        if case.kind == Kind::Loads {
            let replica = self.stage(dir.path(), case, "replica")?;
            let (from, to) = std::io::pipe()?;
            let sending = self.start(&master, Job::Send, case, Stdio::null(), to.into())?;
            let receiving = self.start(&replica, Job::Receive, case, from.into(), Stdio::null())?;
            self.finish(receiving).await?;
            self.finish(sending).await?;
            done.measured.phases.append(&mut self.results(&replica)?.measured.phases);
        }
        let elapsed = started.elapsed().as_secs_f64();
        let other_cpus = busy()?.saturating_sub(before).as_secs_f64() / elapsed;
        let conditions = Conditions { other_cpus, sync_us };
        Ok(Round::new(case.clone(), round, self.setup.clone(), conditions, done.measured, done.set))
    }

    /// Makes a directory for a process, on an emulated device or on the disk.
    fn stage(&self, dir: &Path, case: &Case, name: &str) -> anyhow::Result<Stage> {
        let (_, running) = case.config.resolve(&self.setup.scale)?;
        let result = dir.join(format!("{name}.json"));
        match case.place.description(&running.chunk) {
            Some(description) => {
                let (control, root) = flash::emulate(dir, name, &description)?;
                let environment = preload_env(control.path(), &root)?;
                Ok(Stage { root, result, environment })
            }
            None => {
                let root = dir.join(name);
                std::fs::create_dir_all(&root)?;
                Ok(Stage { root, result, environment: Vec::new() })
            }
        }
    }

    fn start(
        &self,
        stage: &Stage,
        job: Job,
        case: &Case,
        input: Stdio,
        output: Stdio,
    ) -> anyhow::Result<Child> {
        let one = One {
            job,
            config: case.config.clone(),
            scale: self.setup.scale.clone(),
            dir: stage.root.clone(),
            result: stage.result.clone(),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "reproduce", "redis-on-flash", "--one"]).arg(serde_json::to_string(&one)?);
        command.envs(stage.environment.iter().cloned()).stdin(input).stdout(output);
        Ok(Child::spawn(format!("{job:?}").to_lowercase(), &mut command)?)
    }

    /// Waits for the end of a process. A signal ends the wait, the process, and its data.
    async fn finish(&self, mut child: Child) -> anyhow::Result<()> {
        let status = loop {
            match child.ended() {
                Some(status) => break status,
                None => tokio::time::sleep(POLL).await,
            }
        };
        ensure!(status.success(), "{} ended with {status}", child.name());
        Ok(())
    }

    fn results(&self, stage: &Stage) -> anyhow::Result<Done> {
        let text = std::fs::read(&stage.result)
            .with_context(|| format!("{} cannot be read", stage.result.display()))?;
        serde_json::from_slice(&text).context("the results of a process cannot be read")
    }
}

/// The place of a process: its data, the file of its results, and the environment that puts it on
/// its device.
struct Stage {
    root: PathBuf,
    result: PathBuf,
    environment: Vec<(&'static str, std::ffi::OsString)>,
}
