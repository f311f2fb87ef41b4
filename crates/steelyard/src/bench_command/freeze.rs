//! `steelyard bench freeze`: how frozen rows reach flash.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{ensure, Context};
use bench::freeze::{measure, report, Load, Measured, Report, WAYS};

#[derive(clap::Args)]
pub struct Freeze {
    /// Where the databases are made and removed again: a real disk, or a RAM file system to see the CPU alone
    /// [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Ways, one after the other: memtable, vector, ingest, ingest-slices
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "memtable,vector,ingest,ingest-slices"
    )]
    ways: Vec<String>,
    /// Rows per second, one after the other; 0: as fast as it goes
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,50000")]
    rates: Vec<u64>,
    /// Seconds for each way and rate
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// Keys that there are
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// Rows of a run
    #[arg(long, value_name = "N", default_value_t = 120_000)]
    rows: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 1024)]
    value_bytes: usize,
    /// Reads per second beside it
    #[arg(long, value_name = "N", default_value_t = 1500, value_parser = clap::value_parser!(u64).range(1..))]
    reads: u64,
    /// One way and rate, in this process, whose result is printed as JSON
    #[arg(long, hide = true)]
    one: bool,
}

pub fn run(options: Freeze) -> anyhow::Result<()> {
    for way in &options.ways {
        ensure!(WAYS.iter().any(|(known, _)| known == way), "'{way}' is no way to freeze");
    }
    let dir = match &options.dir {
        Some(dir) => tempfile::Builder::new().prefix("steelyard-freeze-").tempdir_in(dir),
        None => tempfile::Builder::new().prefix("steelyard-freeze-").tempdir(),
    };
    let dir = dir.context("a directory for the databases")?;
    if options.one {
        let measured = measure(dir.path(), &options.ways[0], options.load(options.rates[0]))?;
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    let sync = bench::measure::fdatasync_micros(dir.path(), 300)?;
    let sync_us = [0.5, 0.99].map(|quantile| sync.value_at_quantile(quantile) as f64);
    let file_system = bench::measure::file_system(dir.path());
    let mut measured = Vec::new();
    for rate in &options.rates {
        for way in &options.ways {
            eprintln!("{way}, {} rows/s asked", if *rate == 0 { "all".into() } else { rate.to_string() });
            measured.push(options.in_a_process(dir.path(), way, *rate)?);
        }
    }
    print!("{}", report(&Report { measured, dir: dir.path().to_owned(), file_system, sync_us }));
    Ok(())
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

    /// What RocksDB leaves behind in memory and threads does not burden the next.
    fn in_a_process(&self, dir: &std::path::Path, way: &str, rate: u64) -> anyhow::Result<Measured> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "freeze", "--one", "--ways", way, "--dir"]).arg(dir);
        let numbers = [
            ("--rates", rate),
            ("--seconds", self.seconds),
            ("--keys", self.keys),
            ("--rows", self.rows),
            ("--value-bytes", self.value_bytes as u64),
            ("--reads", self.reads),
        ];
        for (name, number) in numbers {
            command.arg(name).arg(number.to_string());
        }
        let output = bench::process::output(&mut command)?;
        ensure!(
            output.status.success(),
            "{way}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout).context("the measurement's answer cannot be read")
    }
}
