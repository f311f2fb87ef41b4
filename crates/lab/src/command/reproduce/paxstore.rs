//! `steelyard bench reproduce paxstore`: the figures of PaxStore's evaluation on this machine.

mod ensemble;
mod failover;
mod growing;
mod log;
mod mount;
mod overhead;
mod ranges;
mod reads;
mod recovery;
mod stores;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context};
use hdrhistogram::Histogram;
use lab::load::{self, Load, Mix};
use lab::measure::{family_cpu_time, fdatasync_micros, machine_busy_time};
use lab::paxstore::{self, Figure, Round, Rounds, Sample, Scale, Setup};
use lab::ycsb::Latency;

use crate::command::ground::{cpus, program, target};

/// Number of syncs before and after a round.
const PROBES: usize = 200;
/// Maximum number of failed rounds in a row. The round after them would most likely fail as well.
const FAILURES_MAX: usize = 3;

#[derive(clap::Args)]
pub struct Options {
    /// Figure to make: 5.1 to 5.6 or failover; can be repeated [default: all]
    #[arg(long, value_name = "N")]
    figure: Vec<String>,
    /// Sizes and times: smoke (no claims), quick or full
    #[arg(long, value_name = "NAME", default_value = "full")]
    scale: String,
    /// The same as --scale quick
    #[arg(long, conflicts_with = "scale")]
    quick: bool,
    /// Number of rounds of each figure [default: the scale's]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Maximum number of times that a void round is made again
    #[arg(long, value_name = "N", default_value_t = 2)]
    repeat_void: usize,
    /// Make no rounds, only the report and the plots of existing rounds
    #[arg(long)]
    report_only: bool,
    /// First of the ports on which stores serve
    #[arg(long, value_name = "PORT", default_value_t = 7600)]
    port: u16,
    /// Directory for data on the disk to measure [default: the directory for results]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory for results, plots and the report [default: paxstore-SCALE under the build's
    /// target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let figures = paxstore::select(&options.figure).map_err(|error| anyhow!(error))?;
    let name = if options.quick { "quick" } else { options.scale.as_str() };
    let (scale, of_scale) = Scale::named(name).map_err(|error| anyhow!(error))?;
    let wanted = options.rounds.map_or(of_scale, usize::from);
    let out = options.out.unwrap_or_else(|| target().join(format!("paxstore-{name}")));
    let disk = options.data.unwrap_or_else(|| out.join("data"));
    for dir in [&out, &disk] {
        std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    }
    let file_system = client::place::file_system(&disk);
    ensure!(
        file_system != "tmpfs" && file_system != "ramfs",
        "{} is in RAM ({file_system}), where a sync costs nothing: give a --data that is on a disk",
        disk.display()
    );
    let setup = Setup { scale, cpus: cpus(), file_system, program: program() };
    let mut rounds = Rounds::open(&out, setup.clone())?;
    let mut failed = Vec::new();
    if !options.report_only {
        let bench = Bench { disk, port: options.port, setup: setup.clone() };
        failed = bench.make(&mut rounds, &figures, wanted, options.repeat_void).await?;
    }
    paxstore::write_plots(rounds.done(), &out)?;
    let text = paxstore::report(&setup, rounds.done(), &failed);
    let path = out.join("report.md");
    std::fs::write(&path, &text).with_context(|| format!("{} cannot be written", path.display()))?;
    print!("{text}");
    say(&format!("the report is {}", path.display()));
    Ok(())
}

/// The machine and the settings of the measurements.
struct Bench {
    /// A directory on the disk.
    disk: PathBuf,
    port: u16,
    setup: Setup,
}

impl Bench {
    fn scale(&self) -> &Scale {
        &self.setup.scale
    }

    /// Makes all rounds that are missing, and then the void ones again. Returns the failures.
    async fn make(
        &self,
        rounds: &mut Rounds,
        figures: &[Figure],
        wanted: usize,
        repeats_max: usize,
    ) -> anyhow::Result<Vec<String>> {
        let (mut failed, mut in_a_row) = (Vec::new(), 0);
        let mut given_up: Vec<(Figure, usize)> = Vec::new();
        loop {
            let next = rounds.wanted(figures, wanted, repeats_max);
            let Some((figure, round)) = next.into_iter().find(|next| !given_up.contains(next)) else {
                return Ok(failed);
            };
            say(&format!("{}, round {round} of {wanted}", figure.heading()));
            let started = Instant::now();
            match self.round(figure, round).await {
                Ok(made) => {
                    for why in &made.skipped {
                        say(&format!("  not measured: {why}"));
                    }
                    rounds.keep(made)?;
                    in_a_row = 0;
                    say(&format!("  took {:.0} s", started.elapsed().as_secs_f64()));
                }
                Err(error) => {
                    say(&format!("  failed: {error:#}"));
                    failed.push(format!("{}, round {round}: {error:#}", figure.heading()));
                    given_up.push((figure, round));
                    in_a_row += 1;
                    ensure!(
                        in_a_row < FAILURES_MAX,
                        "{FAILURES_MAX} rounds in a row failed, the last: {error:#}"
                    );
                }
            }
        }
    }

    async fn round(&self, figure: Figure, round: usize) -> anyhow::Result<Round> {
        let before = self.probe()?;
        let measured = match figure {
            Figure::Log => log::measure(self, round).await?,
            Figure::Overhead => overhead::measure(self, round).await?,
            Figure::Ensemble => ensemble::measure(self, round).await?,
            Figure::Ranges => ranges::measure(self, round).await?,
            Figure::Recovery => recovery::measure(self, round).await?,
            Figure::Reads => reads::measure(self, round).await?,
            Figure::Failover => failover::measure(self, round).await?,
        };
        let after = self.probe()?;
        Ok(Round::new(figure, round, self.setup.clone(), [before, after], measured))
    }

    fn probe(&self) -> anyhow::Result<f64> {
        Ok(fdatasync_micros(&self.disk, PROBES)?.value_at_quantile(0.5) as f64)
    }

    /// Returns a new directory on the disk, which is removed when it is dropped.
    fn directory(&self) -> anyhow::Result<tempfile::TempDir> {
        Ok(tempfile::Builder::new().prefix("steelyard-paxstore-").tempdir_in(&self.disk)?)
    }

    /// Loads a server with closed-loop clients, each with one command under way.
    async fn load(&self, load: Request) -> anyhow::Result<Loaded> {
        let busy = Busy::start();
        let measured = load::run(&Load {
            target: load.target,
            mix: load.mix,
            connections: load.clients,
            pipeline: 1,
            value_bytes: load.bytes as usize,
            keys: load.keys,
            warmup: Duration::from_millis(self.scale().warmup_ms),
            window: Duration::from_millis(self.scale().window_ms),
            pids: Vec::new(),
            seed: load.seed as u64,
            opening: &[],
        })
        .await?;
        ensure!(measured.operations > 0, "no operation ended within the window");
        Ok(Loaded {
            per_second: measured.per_second(),
            latency: Latency::of(&measured.latency),
            cpus: busy.cpus(),
        })
    }
}

struct Request {
    target: std::net::SocketAddr,
    mix: Mix,
    clients: usize,
    bytes: u64,
    keys: u64,
    seed: usize,
}

/// The result of one measurement, without its names.
#[derive(Clone, Copy)]
struct Loaded {
    per_second: f64,
    latency: Latency,
    cpus: Cpus,
}

impl Loaded {
    fn of(latencies: &Histogram<u64>, elapsed: Duration, cpus: Cpus) -> Loaded {
        let per_second = latencies.len() as f64 / elapsed.as_secs_f64().max(1e-9);
        Loaded { per_second, latency: Latency::of(latencies), cpus }
    }

    fn sample(self, place: &str, load: &str, series: &str, at: u64) -> Sample {
        let Loaded { per_second, latency, cpus } = self;
        say(&format!(
            "  {place}, {load}, {series}, {at}: {} in the mean, {}/s",
            client::table::micros(latency.mean_us),
            client::table::count(per_second)
        ));
        Sample {
            place: place.to_owned(),
            load: load.to_owned(),
            series: series.to_owned(),
            at,
            per_second,
            latency,
            sync_us: None,
            cores: cpus.machine,
            own_cores: cpus.own,
        }
    }
}

/// The CPUs used during a measurement: by the whole machine, and by the servers and clients.
#[derive(Clone, Copy)]
struct Cpus {
    machine: Option<f64>,
    own: Option<f64>,
}

/// The CPU time from a moment on.
struct Busy {
    started: Instant,
    machine: Option<Duration>,
    own: Option<Duration>,
}

impl Busy {
    fn start() -> Busy {
        Busy { started: Instant::now(), machine: machine_busy_time(), own: family_cpu_time() }
    }

    fn cpus(&self) -> Cpus {
        let elapsed = self.started.elapsed().as_secs_f64().max(1e-9);
        let spent = |before: Option<Duration>, after: Option<Duration>| {
            Some(after?.saturating_sub(before?).as_secs_f64() / elapsed)
        };
        Cpus { machine: spent(self.machine, machine_busy_time()), own: spent(self.own, family_cpu_time()) }
    }
}

/// Returns the sides of a comparison in the order of a round, in which another side begins than in
/// the round before.
fn turns<T: Copy>(sides: &[T], round: usize) -> Vec<T> {
    let mut order = sides.to_vec();
    order.rotate_left(round % sides.len().max(1));
    order
}

/// Prints progress to stderr, because stdout carries the report.
fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_side_begins_each_round() {
        let first: Vec<char> = (1..=3).map(|round| turns(&['a', 'b', 'c'], round)[0]).collect();
        assert_eq!(first, ['b', 'c', 'a']);
    }
}
