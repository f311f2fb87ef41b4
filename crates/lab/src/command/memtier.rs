//! `steelyard bench memtier`: the loads of `memtier_benchmark`, with its usual options.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{ensure, Context};
use clap::value_parser;
use lab::memtier::{self, End, Pattern, Range, Settings};

#[derive(clap::Args)]
pub struct Memtier {
    /// Server to put under load
    #[arg(short, long, value_name = "HOST", default_value = "127.0.0.1")]
    server: String,
    #[arg(short, long, value_name = "PORT", default_value_t = 6379)]
    port: u16,
    /// Number of threads
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Number of connections of each thread
    #[arg(short, long, value_name = "N", default_value_t = 50, value_parser = value_parser!(u64).range(1..=10_000))]
    clients: u64,
    /// Number of requests of each connection, or `allkeys` for one request for each key
    #[arg(short = 'n', long, value_name = "N", default_value = "10000")]
    requests: String,
    /// Seconds to run, instead of a number of requests
    #[arg(long, value_name = "S", value_parser = value_parser!(u64).range(1..))]
    test_time: Option<u64>,
    /// SETs to GETs: 1:0 writes only, 0:1 reads only, 1:1 mixes them half and half
    #[arg(long, value_name = "SET:GET", default_value = "1:10")]
    ratio: String,
    /// Number of requests that a connection has in flight
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: usize,
    /// Bytes of a value
    #[arg(short, long, value_name = "N", default_value_t = 32)]
    data_size: usize,
    #[arg(long, value_name = "TEXT", default_value = "memtier-")]
    key_prefix: String,
    #[arg(long, value_name = "N", default_value_t = 0)]
    key_minimum: u64,
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    key_maximum: u64,
    /// Patterns of the keys of SETs and of GETs: R random, G Gaussian, S sequential, P sequential
    /// with a part of the keys for each connection
    #[arg(long, value_name = "SET:GET", default_value = "R:R")]
    key_pattern: String,
    /// Median of Gaussian keys [default: the middle]
    #[arg(long, value_name = "N")]
    key_median: Option<f64>,
    /// Standard deviation of Gaussian keys [default: a sixth of the range]
    #[arg(long, value_name = "N")]
    key_stddev: Option<f64>,
    /// Password
    #[arg(short, long, value_name = "TEXT")]
    authenticate: Option<String>,
    /// Number of runs, one after the other
    #[arg(short = 'x', long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    run_count: u64,
    /// The same seed asks for the same keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also write the results of all runs to this file as JSON
    #[arg(long, value_name = "FILE")]
    json_out_file: Option<PathBuf>,
}

impl Memtier {
    fn settings(&self) -> anyhow::Result<Settings> {
        let clients = self.threads * self.clients;
        ensure!(
            self.key_minimum <= self.key_maximum && self.key_maximum < u64::MAX,
            "the first key must not be after the last one"
        );
        ensure!(self.pipeline > 0, "a pipeline has at least one request");
        ensure!(self.data_size > 0, "a value has at least one byte");
        let keys = self.key_maximum - self.key_minimum + 1;
        let end = match (self.test_time, self.requests.as_str()) {
            (Some(seconds), _) => End::Time(Duration::from_secs(seconds)),
            (None, "allkeys") => End::Requests(keys.div_ceil(clients)),
            (None, requests) => {
                End::Requests(requests.parse().ok().with_context(|| format!("{requests} is not a number"))?)
            }
        };
        let [sets, gets] = pair(&self.ratio)?;
        let number = |text: &str| text.parse::<u64>().ok().with_context(|| format!("{text} is not a number"));
        let [of_sets, of_gets] = pair(&self.key_pattern)?;
        let pattern = |text: &str| text.parse::<Pattern>().map_err(anyhow::Error::msg);
        Ok(Settings {
            target: address(&self.server, self.port)?,
            clients,
            pipeline: self.pipeline,
            ratio: [number(sets)?, number(gets)?],
            value_bytes: self.data_size,
            prefix: self.key_prefix.clone(),
            range: Range {
                least: self.key_minimum,
                most: self.key_maximum,
                median: self.key_median,
                deviation: self.key_stddev,
            },
            patterns: [pattern(of_sets)?, pattern(of_gets)?],
            end,
            password: self.authenticate.clone(),
            seed: self.seed,
        })
    }

    /// Returns the number of threads of the load generator.
    pub fn threads(&self) -> usize {
        usize::try_from(self.threads).unwrap_or(1)
    }
}

fn address(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let found = (host, port).to_socket_addrs().with_context(|| format!("{host} has no address"))?;
    found.into_iter().next().with_context(|| format!("{host} has no address"))
}

fn pair(text: &str) -> anyhow::Result<[&str; 2]> {
    let (left, right) = text.split_once(':').with_context(|| format!("{text} has no colon"))?;
    Ok([left, right])
}

pub async fn run(options: Memtier) -> anyhow::Result<()> {
    let mut settings = options.settings()?;
    let mut all = Vec::new();
    for number in 1..=options.run_count {
        let measured = memtier::run(&settings).await?;
        if options.run_count > 1 {
            println!("run {number} of {}", options.run_count);
        }
        measured.table()?.lines().iter().for_each(|line| println!("{line}"));
        all.push(measured.rows()?);
        settings.seed = settings.seed.wrapping_add(1_000_000_007);
    }
    if let Some(path) = &options.json_out_file {
        let text = serde_json::to_string_pretty(&all)? + "\n";
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        memtier: Memtier,
    }

    fn settings(arguments: &str) -> anyhow::Result<Settings> {
        Cli::try_parse_from(["memtier"].into_iter().chain(arguments.split_whitespace()))?.memtier.settings()
    }

    #[test]
    fn the_usual_options_are_those_of_the_tool() {
        let usual =
            settings("-s 127.0.0.1 -p 7000 -t 2 -c 10 -n 500 --ratio 1:1 --pipeline 8 -d 1024").unwrap();
        assert_eq!((usual.clients, usual.pipeline, usual.ratio), (20, 8, [1, 1]));
        assert_eq!((usual.value_bytes, usual.end, usual.target.port()), (1024, End::Requests(500), 7000));
        let load = "--ratio 1:0 --key-pattern P:P -n allkeys --key-minimum 1 --key-maximum 1000 -t 1 -c 3";
        assert_eq!(settings(load).unwrap().end, End::Requests(334));
        let gauss = settings("--key-pattern G:S --test-time 9").unwrap();
        assert_eq!(gauss.patterns, [Pattern::Gaussian, Pattern::Sequential]);
        assert_eq!(gauss.end, End::Time(Duration::from_secs(9)));
        for bad in ["--ratio 1", "--key-pattern Q:R", "-n many", "--key-minimum 2 --key-maximum 1", "-d 0"] {
            assert!(settings(bad).is_err(), "{bad}");
        }
    }
}
