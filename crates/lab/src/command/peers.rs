//! `steelyard bench peers`: compares with Redis and etcd.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use lab::peers::{self, Plan};

#[derive(clap::Args)]
pub struct Peers {
    /// Number of rounds; figures are medians over them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds of each measurement beside Redis
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Number of inserts per client in each measurement beside etcd
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    inserts_per_client: u32,
    /// Number of regions of the three stores
    #[arg(long, value_name = "N", default_value_t = 3)]
    regions: u16,
    /// Directory for all servers' data, which should be on a real disk [default: under the build's
    /// target directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Leave out the standard comparison with Redis
    #[arg(long)]
    no_redis: bool,
    /// Also compare values of other sizes, other commands and more connections with Redis; needs
    /// 10,000 open files for each process (`ulimit -n`)
    #[arg(long)]
    cases: bool,
    /// Leave out the comparison with etcd
    #[arg(long)]
    no_etcd: bool,
    /// Also write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
}

pub fn run(options: Peers) -> anyhow::Result<()> {
    let target = super::ground::target();
    let plan = Plan {
        dir: options.dir.unwrap_or_else(|| target.join("bench-peers")),
        steelyard: steelyard::playground::cluster::program()?,
        tools: target.join("tools"),
        rounds: usize::from(options.rounds),
        window: Duration::from_secs(options.seconds),
        inserts_per_client: options.inserts_per_client as usize,
        regions: options.regions,
        redis: !options.no_redis,
        cases: options.cases,
        etcd: !options.no_etcd,
    };
    // The load generator has one thread, like `redis-benchmark`.
    let report = super::drive(super::CLIENT_THREADS, peers::run(&plan))?;
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    print!("{}", if options.markdown { report.markdown() } else { report.text() });
    Ok(())
}
