//! `steelyard bench reproduce`: the figures of three papers' evaluations on this machine. This file
//! has ALOR's.

mod flash;
pub mod laboratory;
pub mod observe;
mod paxstore;
mod predicted;

use std::time::Instant;

use anyhow::{anyhow, Context};
use indicatif::{ProgressBar, ProgressStyle};
use lab::alor::{self, Account, Runs, Scale, Setup};

use super::ground::{cpus, program, Ground};
use laboratory::Stores;

#[derive(clap::Args)]
pub struct Reproduce {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(clap::Subcommand)]
enum Paper {
    /// ALOR (NPC 2018), figures 5 to 18 by its captions; skips runs whose results are in the output
    /// directory
    Alor(Alor),
    /// PaxStore (NPC 2014), figures 5.1 to 5.6 and the time of a failover; skips rounds whose
    /// results are in the output directory
    Paxstore(paxstore::Options),
    /// RocksDB for Redis on Flash (ICPE 2017), table 1 and figures 2 to 7; skips runs whose results
    /// are in the output directory
    RedisOnFlash(flash::Options),
}

#[derive(clap::Args)]
struct Alor {
    /// Figure to make: 5 to 18, a range such as 5-7, or one that is not in the paper
    /// (all-operations, six-hybrids, equal); can be repeated [default: 5 to 18, without 8 to 10,
    /// which are not drawn]
    #[arg(long, value_name = "N")]
    figure: Vec<String>,
    /// Number of runs of each policy on each cluster [default: the scale's]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Policies to compare with `even`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "leader-only,alor,adaptive")]
    policies: Vec<String>,
    /// Repeat runs that have a void measurement
    #[arg(long)]
    repeat_void: bool,
    /// Make no runs, only the report and the plots of existing runs
    #[arg(long)]
    report_only: bool,
    /// Show the predictions of `plan` for the same clusters beside the measurements
    #[arg(long)]
    predict: bool,
    #[command(flatten)]
    ground: Ground,
}

pub async fn run(options: Reproduce) -> anyhow::Result<()> {
    match options.paper {
        Paper::Alor(options) => alor(options).await,
        Paper::Paxstore(options) => paxstore::run(options).await,
        Paper::RedisOnFlash(options) => flash::run(options).await,
    }
}

async fn alor(options: Alor) -> anyhow::Result<()> {
    let figures = alor::select(&options.figure).map_err(|error| anyhow!(error))?;
    let mut scale = options.ground.scale()?;
    if let Some(runs) = options.runs {
        scale.runs = usize::from(runs);
    }
    let out = options.ground.out("alor")?;
    let mut stores = options.ground.stores()?;
    let wanted_runs = scale.runs;
    // The number of runs is no setting of a single run.
    let setup = Setup { scale: Scale { runs: 0, ..scale.clone() }, ..setup(&stores) };
    let mut runs = Runs::open(&out, setup.clone())?;
    if options.repeat_void {
        eprintln!("{} runs with void measurements are made again", runs.drop_void()?);
    }
    let (possible, refused) = alor::feasible(&stores, &figures);
    let cases = alor::cases(&possible, &alor::with_baseline(&options.policies), wanted_runs);
    let mut account = if options.report_only {
        Account::default()
    } else {
        let (bar, started) = (stores.progress.clone(), Instant::now());
        let mut wanted = None;
        alor::make(&mut stores, &mut runs, &cases, |case, left| {
            let made = *wanted.get_or_insert(left) - left;
            let time = match made {
                // Runs that failed at once say nothing about the time that the others will take.
                made if made == 0 || started.elapsed().as_secs() < 10 => String::new(),
                made => {
                    let left = started.elapsed().mul_f64(left as f64 / made as f64);
                    format!(", about {}", client::table::duration(left))
                }
            };
            laboratory::say(&bar, &format!("{} ({left} runs to go{time})", case.name()));
        })
        .await?
    };
    account.refused.extend(refused);
    account.refused.extend(alor::not_drawn(&options.figure));
    stores.progress.finish_and_clear();
    let charts = alor::charts(&figures, runs.done());
    alor::write_plots(&charts, &out)?;
    let predictions = match options.predict {
        true => predicted::predictions(&charts, &scale)?,
        false => Vec::new(),
    };
    let text = alor::report(&Setup { scale, ..setup }, &charts, runs.done(), &account, &predictions);
    let path = out.join("report.md");
    std::fs::write(&path, &text).with_context(|| format!("{} cannot be written", path.display()))?;
    print!("{text}");
    eprintln!(
        "{} runs made, {} found from before; the report is {}",
        account.made,
        account.found,
        path.display()
    );
    Ok(())
}

/// Returns the settings of the default scale.
pub fn setup(stores: &Stores) -> Setup {
    Setup {
        scale: Scale::named(Scale::NAMES[1]).expect("a scale has its own names"),
        seed: 1,
        cpus: cpus(),
        file_system: stores.file_system(),
        program: program(),
        probed: stores.probed,
    }
}

fn progress() -> ProgressBar {
    let bar = ProgressBar::new(1);
    let style = ProgressStyle::with_template("{msg:<44} [{bar:30}] {percent:>3}%  {elapsed}");
    bar.set_style(style.expect("a constant template is valid").progress_chars("=> "));
    bar
}
