//! `steelyard bench chain`: direct and chained replication on three stores in network namespaces.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context};
use client::process::Child;
use faults::network::Network;
use lab::chain::{Case, Comparison, Round, Setup, VERSION};
use lab::load::{self, Load, Mix};
use lab::measure::machine_busy_time;
use lab::scenario::keep;
use serde_json::Value;

use super::ground::{machine, target};
use steelyard::playground::cluster::choose_place;

#[derive(clap::Args)]
pub struct Chain {
    /// Bytes of a value
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "16384,65536")]
    values: Vec<usize>,
    /// Rate at which each store can send, in Mbit/s; measured with and without it
    #[arg(long, value_name = "MBIT", default_value_t = 200)]
    limit: u32,
    /// Number of rounds; in each, every case is measured with both ways of replication
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Seconds before each measurement
    #[arg(long, value_name = "S", default_value_t = 3)]
    warmup: u64,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 8)]
    window: u64,
    /// Connections, each with one SET in flight
    #[arg(long, value_name = "N", default_value_t = 32)]
    connections: usize,
    /// Directory for the stores' data [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory for results and the report [default: chain under the build's target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const STORES: usize = 3;
const CLIENT_PORT: u16 = 7000;
const PEER_PORT: u16 = 7001;
const ADMIN_PORT: u16 = 7002;
const REGION: u64 = 1;
/// Number of keys. They are few, so that compaction disturbs little.
const KEYS: u64 = 2000;
const START: Duration = Duration::from_secs(60);
/// Time that a change of the setting takes to reach every leader.
const CHANGE: Duration = Duration::from_millis(1500);

pub async fn run(options: Chain) -> anyhow::Result<()> {
    ensure!(options.rounds > 0 && options.window > 0, "there must be something to measure");
    ensure!(options.connections > 0 && options.values.iter().all(|&bytes| bytes > 0), "a load needs values");
    ensure!(options.limit > 0, "the limit must be above 0");
    let network = match Network::new(STORES).and_then(|network| network.limit(0, Some(1)).map(|()| network)) {
        Ok(network) => network,
        Err(why) => {
            eprintln!("SKIPPED: this machine permits no limited networks: {why}");
            return Ok(());
        }
    };
    network.limit(0, None).map_err(|error| anyhow!(error))?;
    let out = options.out.clone().unwrap_or_else(|| target().join("chain"));
    std::fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    let place = choose_place(options.data.as_deref(), false)?.0;
    let setup = Setup {
        rounds: options.rounds,
        warmup_s: options.warmup,
        window_s: options.window,
        connections: options.connections,
        machine: machine(client::place::file_system(place.path())),
    };
    let mut kept = Comparison { version: VERSION, setup, rounds: Vec::new() };
    let dir = tempfile::Builder::new().prefix("steelyard-chain-").tempdir_in(place.path())?;
    let mut stores = Stores { children: Vec::new(), network, _dir: dir };
    stores.start().await?;
    for round in 1..=options.rounds {
        for &value_bytes in &options.values {
            for limit_megabits in [None, Some(options.limit)] {
                let case = Case { value_bytes, limit_megabits };
                // Each way is first in every other round.
                for is_chained in [round % 2 == 0, round % 2 == 1] {
                    let measured = stores.measure(&options, round, case, is_chained).await?;
                    eprintln!(
                        "round {round}, {} KiB, {}, {}: {:.0} SETs/s",
                        value_bytes >> 10,
                        limit_megabits.map_or("no limit".to_owned(), |rate| format!("{rate} Mbit/s")),
                        way(is_chained),
                        measured.sets_per_s
                    );
                    kept.rounds.push(measured);
                    keep(&out, "chain", &kept, &kept.report(), &[])?;
                }
            }
        }
    }
    print!("{}", kept.report());
    eprintln!("the report is {}", out.join("chain.md").display());
    Ok(())
}

fn way(is_chained: bool) -> &'static str {
    if is_chained {
        "chained"
    } else {
        "direct"
    }
}

/// Counters at one moment.
struct Look {
    sent_bytes: u64,
    stores_cpu: Duration,
    /// CPU time of all other processes but this one.
    other_cpu: Duration,
}

/// The stores. They end before their network, because fields are dropped in this order.
struct Stores {
    children: Vec<Child>,
    network: Network,
    _dir: tempfile::TempDir,
}

impl Stores {
    async fn start(&mut self) -> anyhow::Result<()> {
        let program = std::env::current_exe()?.with_file_name("steelyard");
        let entries: Vec<String> = (0..STORES)
            .map(|i| format!("{i}={}:{CLIENT_PORT}:{PEER_PORT}:{ADMIN_PORT}", self.network.address(i)))
            .collect();
        for i in 0..STORES {
            let log = std::fs::File::create(self._dir.path().join(format!("store-{i}.log")))?;
            let mut command = self.at(i);
            command.arg(&program).args(["serve", "--store-id", &i.to_string(), "--stores"]);
            command.arg(entries.join(",")).args(["--fsync", "always", "--probe", "no", "--regions", "1"]);
            command
                .args(["--protected-mode", "no", "--insecure-peers", "yes", "--dir"])
                .arg(self._dir.path().join(format!("store-{i}")));
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            self.children.push(Child::spawn(format!("store {i}"), &mut command)?);
        }
        let deadline = Instant::now() + START;
        loop {
            // A new cluster's version rises a few seconds after its start.
            let ready = self.leader().and_then(|_| self.ctl(0, &["config", "replication", way(false)]));
            match ready {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error.context("the stores do not serve"))
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Returns the beginning of a command line on a store's host.
    fn at(&self, store: usize) -> Command {
        let launcher = self.network.launcher(store);
        let mut command = Command::new(&launcher[0]);
        command.args(&launcher[1..]);
        command
    }

    fn ctl(&self, store: usize, arguments: &[&str]) -> anyhow::Result<Value> {
        let program = std::env::current_exe()?.with_file_name("steelyard");
        let mut command = self.at(store);
        command.arg(program).args(["ctl", "--json", "--admin", &format!("127.0.0.1:{ADMIN_PORT}")]);
        let output = client::process::output(command.args(arguments).stdin(Stdio::null()))?;
        ensure!(output.status.success(), "ctl: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn leader(&self) -> anyhow::Result<usize> {
        let regions = self.ctl(0, &["regions"])?;
        let rows = regions.as_array().context("no list of regions")?;
        let row = rows.iter().find(|row| row["id"] == REGION).context("no region")?;
        let leader = row["leader"].as_u64().context("the region has no leader")?;
        Ok(usize::try_from(leader)?)
    }

    fn counter(&self, store: usize, name: &str) -> anyhow::Result<u64> {
        let status = self.ctl(store, &["status"])?;
        let counters = status["counters"].as_array().context("no counters")?;
        let counter = counters.iter().find(|counter| counter[0] == name);
        counter.and_then(|counter| counter[1].as_u64()).with_context(|| format!("no counter {name}"))
    }

    async fn measure(
        &mut self,
        options: &Chain,
        round: u32,
        case: Case,
        is_chained: bool,
    ) -> anyhow::Result<Round> {
        for child in &mut self.children {
            ensure!(child.ended().is_none(), "{} has ended", child.name());
        }
        for store in 0..STORES {
            self.network.limit(store, case.limit_megabits).map_err(|error| anyhow!(error))?;
        }
        self.ctl(0, &["config", "replication", way(is_chained)])?;
        tokio::time::sleep(CHANGE).await;
        let leader = self.leader()?;
        let pids: Vec<u32> = self.children.iter().map(Child::pid).collect();
        let load = Load {
            target: SocketAddr::new(self.network.address(leader), CLIENT_PORT),
            mix: Mix::Set,
            connections: options.connections,
            pipeline: 1,
            value_bytes: case.value_bytes,
            keys: KEYS,
            warmup: Duration::from_secs(options.warmup),
            window: Duration::from_secs(options.window),
            pids: vec![pids[leader]],
            seed: u64::from(round),
            opening: &[],
        };
        let before = [self.counter(leader, "chained_appends")?, self.counter(leader, "chain_fallbacks")?];
        let sent = async {
            tokio::time::sleep(load.warmup).await;
            let from = self.look(leader, &pids);
            tokio::time::sleep(load.window).await;
            anyhow::Ok((from?, self.look(leader, &pids)?))
        };
        let (measured, looks) = tokio::join!(load::run(&load), sent);
        let (measured, (from, to)) = (measured?, looks?);
        ensure!(self.leader()? == leader, "the region's leader has changed");
        let spent = to.stores_cpu.saturating_sub(from.stores_cpu);
        let others = (to.other_cpu.saturating_sub(from.other_cpu)).as_secs_f64();
        Ok(Round {
            round,
            case,
            is_chained,
            sets_per_s: measured.per_second(),
            p50_us: measured.latency.value_at_quantile(0.5),
            p99_us: measured.latency.value_at_quantile(0.99),
            leader_sent_bytes: to.sent_bytes - from.sent_bytes,
            leader_cpu_us: measured.cpu_micros_per_operation().context("the leader's store has ended")?,
            cpu_us: spent.as_micros() as f64 / measured.operations.max(1) as f64,
            chained_appends: self.counter(leader, "chained_appends")? - before[0],
            fallbacks: self.counter(leader, "chain_fallbacks")? - before[1],
            other_cpus: others / load.window.as_secs_f64(),
        })
    }

    fn look(&self, leader: usize, pids: &[u32]) -> anyhow::Result<Look> {
        let cpu = |pid: &u32| lab::measure::cpu_time(*pid).context("a store has ended");
        let stores_cpu = pids.iter().map(cpu).sum::<anyhow::Result<Duration>>()?;
        let own = cpu(&std::process::id())?;
        let busy = machine_busy_time().context("the machine tells no CPU times")?;
        let sent_bytes = self.network.sent_bytes(leader).map_err(|error| anyhow!(error))?;
        Ok(Look { sent_bytes, stores_cpu, other_cpu: busy.saturating_sub(stores_cpu + own) })
    }
}
