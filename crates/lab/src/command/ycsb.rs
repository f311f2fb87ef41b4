//! `steelyard bench ycsb`: one of YCSB's core workloads against a running cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use client::cluster_client::{ClusterClient, Patience};
use client::table::count;
use indicatif::{ProgressBar, ProgressStyle};
use lab::ycsb::{self, Distribution, Settings, Workload};

#[derive(clap::Args)]
pub struct Ycsb {
    /// A store of the cluster; can be repeated
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7000")]
    addr: Vec<SocketAddr>,
    /// load, a, b, c, d, e or f. `load` inserts the records that the others use
    #[arg(long, value_name = "NAME")]
    workload: Workload,
    /// Number of records
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// Number of operations [default: as many as records]
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Maximum duration in seconds; not for load
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Number of client threads. Each thread has one operation in flight
    #[arg(long, value_name = "N", default_value_t = 64)]
    threads: usize,
    /// Number of commands that a thread sends at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: usize,
    /// Operations per second; latency then counts from the time at which an operation was due
    #[arg(long, value_name = "N")]
    target: Option<f64>,
    /// Number of fields of a record: a record with one field is a string, one with more is a hash
    #[arg(long, value_name = "N", default_value_t = 1)]
    fields: usize,
    /// Bytes of a field
    #[arg(long, value_name = "N", default_value_t = 1024)]
    field_bytes: usize,
    /// Number of consecutive records that share a slot, by a hash tag in their keys. A range of
    /// strings in workload e is then one MGET for each group that it touches. Must be the same for
    /// load and later workloads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    group: u64,
    /// uniform, zipfian or latest [default: the workload's own]
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,
    /// The same seed asks for the same keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Ycsb {
    fn settings(&self) -> Settings {
        let plain = Settings::new(self.workload, self.records);
        Settings {
            distribution: self.distribution.unwrap_or(plain.distribution),
            operations: self.ops.unwrap_or(self.records),
            at_most: self.seconds.map(Duration::from_secs),
            threads: self.threads,
            pipeline: self.pipeline,
            target_per_s: self.target,
            fields: self.fields,
            field_bytes: self.field_bytes,
            group: self.group,
            seed: self.seed,
            ..plain
        }
    }
}

pub async fn run(options: Ycsb) -> anyhow::Result<()> {
    let settings = options.settings();
    let client = Arc::new(ClusterClient::new(options.addr.clone(), Patience::default()));
    let operations = if settings.workload == Workload::Load { settings.records } else { settings.operations };
    let bar = progress(settings.workload.name(), operations);
    let summary = ycsb::run(client, settings, |completed| bar.set_position(completed)).await?;
    bar.finish_and_clear();
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&summary)? + "\n";
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    print!("{}", summary.text());
    println!("{} ops/s", count(summary.per_second()));
    Ok(())
}

/// Makes a progress bar. It is only drawn on a terminal.
pub fn progress(name: &str, operations: u64) -> ProgressBar {
    let bar = ProgressBar::new(operations);
    let style = ProgressStyle::with_template("{msg:<28} [{bar:30}] {percent:>3}%  {per_sec}  {eta} left");
    bar.set_style(style.expect("a constant template is valid").progress_chars("=> "));
    bar.set_message(name.to_owned());
    bar
}
