//! `steelyard bench reads`: strong and weak reads by the way in which they are proved.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use lab::reads::{self, Plan};

#[derive(clap::Args)]
pub struct Reads {
    /// Number of rounds; figures are medians over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Directory for the stores' data [default: under the build's target directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Also write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub async fn run(options: Reads) -> anyhow::Result<()> {
    let plan = Plan {
        dir: options.dir.unwrap_or_else(|| super::ground::target().join("bench-reads")),
        steelyard: steelyard::playground::cluster::program()?,
        rounds: usize::from(options.rounds),
        window: Duration::from_secs(options.seconds),
    };
    let report = reads::run(&plan).await?;
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    print!("{}", report.page());
    Ok(())
}
