//! `steelyard bench freeze`: how frozen rows reach flash.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context};
use clap::value_parser;
use client::place::file_system;
use client::table::{count, micros};
use lab::freeze::{measure, report, variant, Load, Measured, Report, VARIANTS};
use lab::measure::fdatasync_micros;

#[derive(clap::Args)]
pub struct Freeze {
    /// Directory in which the databases are created and removed again: on a real disk, or on a RAM
    /// file system to leave out the device [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Variants, one after the other: memtable, vector, vector-low (compaction at low priority),
    /// ingest, ingest-cached (files are built in RAM and copied), ingest-slices (files are built
    /// with pauses), ingest-small (a quarter of the rows), ingest-low (files are also built at low
    /// priority) [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    variants: Vec<String>,
    /// Rows per second, one rate after the other; 0 for full speed
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,50000")]
    rates: Vec<u64>,
    /// Seconds for each variant and rate
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = value_parser!(u64).range(1..))]
    seconds: u64,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// Number of rows of a run
    #[arg(long, value_name = "N", default_value_t = 120_000, value_parser = value_parser!(u64).range(1..))]
    rows: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 1024)]
    value_bytes: usize,
    /// Reads per second during the writes
    #[arg(long, value_name = "N", default_value_t = 1500, value_parser = value_parser!(u64).range(1..))]
    reads: u64,
    /// Also write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure the first variant and rate in this process, and print the result as JSON
    #[arg(long, hide = true)]
    one: bool,
}

/// Number of syncs that are timed before and after the measurements.
const SYNC_ROUNDS: usize = 300;

pub fn run(mut options: Freeze) -> anyhow::Result<()> {
    if options.variants.is_empty() {
        options.variants = VARIANTS.iter().map(|variant| variant.name.to_owned()).collect();
    }
    options.variants.iter().try_for_each(|name| variant(name).map(drop))?;
    let within = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::Builder::new().prefix("steelyard-freeze-").tempdir_in(&within);
    let dir = dir.with_context(|| format!("{} cannot be used", within.display()))?;
    if options.one {
        let measured = measure(dir.path(), &options.variants[0], options.load(options.rates[0]))?;
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    let (sync_before, load_before) = (sync_us(dir.path())?, load_average());
    let mut measured = Vec::new();
    for rate in &options.rates {
        for name in &options.variants {
            let one = options.measure_in_a_process(dir.path(), name, *rate)?;
            let [_, p99, p999, _] = one.read_us.map(micros);
            eprintln!(
                "{name}: {} rows/s, {:.1} us of CPU a row, reads {p99} (p99), {p999} (p99.9)",
                count(one.rows_per_second),
                one.cpu_us_per_row
            );
            measured.push(one);
            if let Some(path) = &options.json {
                let text = serde_json::to_string_pretty(&measured)? + "\n";
                std::fs::write(path, text)
                    .with_context(|| format!("{} cannot be written", path.display()))?;
            }
        }
    }
    let report_of_all = Report {
        measured,
        dir: within,
        file_system: file_system(dir.path()),
        sync_us: [sync_before, sync_us(dir.path())?],
        load_average: [load_before, load_average()],
    };
    print!("{}", report(&report_of_all));
    Ok(())
}

fn sync_us(dir: &Path) -> anyhow::Result<[f64; 2]> {
    let times = fdatasync_micros(dir, SYNC_ROUNDS).context("the device's sync time cannot be measured")?;
    Ok([0.5, 0.99].map(|quantile| times.value_at_quantile(quantile) as f64))
}

/// Returns the load average over the last minute.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

impl Freeze {
    fn load(&self, rate: u64) -> Load {
        Load {
            keys: self.keys,
            rows: self.rows,
            value_bytes: self.value_bytes,
            rows_per_second: (rate > 0).then_some(rate),
            reads_per_second: self.reads,
            seconds: self.seconds,
        }
    }

    /// Measures one variant in its own process, so that RocksDB's threads, their priorities and its
    /// memory end with it.
    fn measure_in_a_process(&self, dir: &Path, name: &str, rate: u64) -> anyhow::Result<Measured> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "freeze", "--one", "--variants", name, "--dir"]).arg(dir);
        let numbers = [
            ("--rates", rate),
            ("--seconds", self.seconds),
            ("--keys", self.keys),
            ("--rows", self.rows),
            ("--value-bytes", self.value_bytes as u64),
            ("--reads", self.reads),
        ];
        for (option, number) in numbers {
            command.arg(option).arg(number.to_string());
        }
        let output = client::process::output(&mut command)?;
        ensure!(
            output.status.success(),
            "{name}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout).context("the answer of the measuring process cannot be read")
    }
}
