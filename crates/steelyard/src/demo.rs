//! `steelyard demo`: shows what Steelyard does in two minutes, with real processes and real data.
//!
//! Six stores run on emulated devices of three kinds, under a load with the policies `even` and
//! then `leader-only`. The busiest store is killed with `kill -9` under load. Every acknowledged
//! write is checked, and the store comes back.

mod load;
mod records;
mod screen;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context};
use bytes::Bytes;
use client::admin::AdminClient;
use client::cluster_client::{Call, ClusterClient, Patience};
use client::table::{bytes, count, micros, Align, Table};
use serde_json::{json, Value};
use server::admin::{OperatorRow, RegionRow, StoreRow};
use tokio::signal::unix::{signal, SignalKind};

use crate::playground::cluster::{choose_place, Cluster};
use crate::playground::layout::{parse_devices, Layout};
use crate::playground::START_PATIENCE;
use load::{Load, Window};
use records::Record;
use screen::Screen;

#[derive(clap::Args)]
pub struct Demo {
    /// Exit after everything was shown, instead of serving until Ctrl-C
    #[arg(long)]
    once: bool,
    /// Store i serves clients on this port + i
    #[arg(long, value_name = "PORT", default_value_t = 7000)]
    port: u16,
    /// Directory for the data [default: a temporary directory, in RAM if there is room]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Seconds of load measured under each policy
    #[arg(long, value_name = "S", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    seconds_per_policy: u64,
    /// Emulated devices, one per store
    #[arg(long, value_name = "LIST", default_value = "nvm,2x high-end-ssd,3x plain-ssd")]
    devices: String,
    /// Speed factor for every device, so that devices and not this machine's CPU are the limit
    #[arg(long, value_name = "FACTOR", default_value_t = 0.1)]
    device_speed: f64,
    /// Number of regions
    #[arg(long, value_name = "N", default_value_t = 24)]
    regions: u16,
    /// Number of clients, each of which waits for its reply
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Maximum number of records to load
    #[arg(long, value_name = "N")]
    records: Option<usize>,
}

pub fn run(demo: Demo) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // The root future runs on the main thread, because the stores end when that thread ends.
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            shown = show(demo) => shown,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Maximum time until the cluster has settled under a policy.
const SETTLE_PATIENCE: Duration = Duration::from_secs(60);
/// Time without operators and changes of leaders after which the cluster has settled.
const QUIET: Duration = Duration::from_secs(2);
/// Time under load before each measurement.
const WARM_UP: Duration = Duration::from_secs(3);
/// Time under load after the kill.
const AFTER_KILL: Duration = Duration::from_secs(6);

struct Show {
    cluster: Cluster,
    client: Arc<ClusterClient>,
    records: Arc<Vec<Record>>,
    screen: Screen,
}

async fn show(demo: Demo) -> anyhow::Result<()> {
    let devices = parse_devices(&demo.devices, None)?;
    let layout = Layout {
        stores: devices.len().try_into()?,
        port: demo.port,
        cluster_enabled: true,
        regions: demo.regions,
        replicas: 3,
        devices,
        device_speed: demo.device_speed,
    };
    let mut screen = Screen::new();
    screen.headline(&format!("{} stores: {}", layout.stores, demo.devices));
    let (place, note) = choose_place(demo.dir.as_deref(), true)?;
    screen.say(&note);
    screen.say(&format!(
        "emulated devices at {} of their real speed, so that they and not this machine's CPU are the limit",
        demo.device_speed
    ));
    let started = Instant::now();
    let mut cluster = Cluster::start(layout, place, &[])?;
    cluster.wait_until_ready(START_PATIENCE).await?;
    screen.say(&format!("all stores serve after {:.1} s", started.elapsed().as_secs_f64()));

    let (mut records, source) = tokio::task::spawn_blocking(records::find).await??;
    records.truncate(demo.records.unwrap_or(usize::MAX));
    ensure!(!records.is_empty(), "there are no records to load");
    let seeds = cluster.stores.iter().map(|store| store.member.client).collect();
    let client = Arc::new(ClusterClient::new(seeds, Patience::default()));
    let mut show = Show { cluster, client, records: Arc::new(records), screen };
    show.load_records(&source).await?;

    let load = Load::start(show.client.clone(), show.records.clone(), usize::from(demo.clients));
    let window = Duration::from_secs(demo.seconds_per_policy);
    let even = show.measure("even", &load, window).await?;
    let leader_only = show.measure("leader-only", &load, window).await?;
    show.compare(&even, &leader_only);
    let killed = show.kill_the_busiest(&load).await?;
    let ledger = load.stop(show.records.len()).await?;
    let verified = verify::verify(&show.client, &show.records, &ledger, &mut show.screen).await;
    verified.tell(&mut show.screen);
    show.bring_back(killed).await?;
    ensure!(verified.is_clean(), "acknowledged writes are missing; see above");
    if demo.once {
        return Ok(());
    }
    let port = demo.port;
    show.screen.headline("still serving until Ctrl-C");
    show.screen.say(&format!("redis-cli -c -p {port} hgetall pkg:bash"));
    show.screen.say(&format!("steelyard ctl --port {port} stores"));
    std::future::pending().await
}

impl Show {
    /// Asks the running stores in turn until one answers. The HTTP client blocks, so it has a
    /// thread of its own.
    async fn ask<T: serde::de::DeserializeOwned + Send + 'static>(
        &self,
        path: &'static str,
    ) -> anyhow::Result<T> {
        self.with_admin(move |admin| admin.get(path)).await
    }

    async fn with_admin<T: Send + 'static>(
        &self,
        request: impl Fn(&AdminClient) -> Result<T, client::admin::AdminFailure> + Send + 'static,
    ) -> anyhow::Result<T> {
        let running = self.cluster.stores.iter().filter(|store| store.pid().is_some());
        let admins: Vec<AdminClient> = running.map(|store| store.admin()).collect();
        tokio::task::spawn_blocking(move || {
            let mut last = None;
            for admin in &admins {
                match request(admin) {
                    Ok(answer) => return Ok(answer),
                    Err(failure) => last = Some(failure),
                }
            }
            match last {
                Some(failure) => Err(failure.into()),
                None => bail!("no store runs"),
            }
        })
        .await?
    }

    async fn load_records(&mut self, source: &str) -> anyhow::Result<()> {
        let total: usize = self.records.iter().map(Record::bytes).sum();
        let records = self.records.len();
        self.screen.headline(&format!(
            "loading {}: {} records, {}, one hash each",
            source,
            count(records as f64),
            bytes(total as f64)
        ));
        const AT_ONCE: usize = 256;
        const TASKS: usize = 4;
        let started = Instant::now();
        let mut progress = self.screen.progress("loading", records as u64);
        let mut tasks = tokio::task::JoinSet::new();
        let batches: Vec<std::ops::Range<usize>> =
            (0..records).step_by(AT_ONCE).map(|from| from..(from + AT_ONCE).min(records)).collect();
        let mut batches = batches.into_iter();
        loop {
            while tasks.len() < TASKS {
                let Some(range) = batches.next() else { break };
                let (client, records) = (self.client.clone(), self.records.clone());
                tasks.spawn(async move {
                    let calls: Vec<Call> = records[range.clone()].iter().map(hset).collect();
                    let mut outcomes = client.call_many(&calls).await;
                    for (call, outcome) in calls.iter().zip(&mut outcomes) {
                        // Writing the same fields again is harmless, so a write with an unknown
                        // outcome may be repeated here.
                        let mut attempts = 0;
                        while !outcome.acknowledged() {
                            attempts += 1;
                            ensure!(attempts <= 10, "a record cannot be loaded: {outcome:?}");
                            *outcome = client.call(call).await;
                        }
                    }
                    Ok(range.len())
                });
            }
            match tasks.join_next().await {
                Some(done) => progress.add(done?? as u64),
                None => break,
            }
        }
        drop(progress);
        let seconds = started.elapsed().as_secs_f64();
        self.screen.say(&format!("loaded in {seconds:.1} s, {} records/s", count(records as f64 / seconds)));
        Ok(())
    }

    /// Switches the policy, waits until the cluster is quiet, and measures under load.
    async fn measure(
        &mut self,
        policy: &'static str,
        load: &Load,
        window: Duration,
    ) -> anyhow::Result<(Window, Duration)> {
        self.screen.headline(&format!("policy {policy}"));
        self.with_admin(move |admin| admin.post::<Value>("/api/v1/policy", json!({ "policy": policy })))
            .await?;
        let moved = self.settle(policy).await?;
        self.screen.say(&format!("leaders in place after {:.1} s", moved.as_secs_f64()));
        self.watch(policy, WARM_UP).await?;
        load.turn();
        self.watch(policy, window).await?;
        let measured = load.turn();
        self.screen.settle();
        Ok(measured)
    }

    /// Waits until no operator is in flight and leaders stay where they are.
    async fn settle(&mut self, policy: &str) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let mut leaders: Vec<(u64, Option<u64>)> = Vec::new();
        let mut quiet_since = Instant::now();
        while started.elapsed() < SETTLE_PATIENCE {
            let stores: Vec<StoreRow> = self.ask("/api/v1/stores").await?;
            self.screen.table(&format!("{policy}: moving leaders"), &screen::stores(&stores));
            let operators: Vec<OperatorRow> = self.ask("/api/v1/operators").await?;
            let regions: Vec<RegionRow> = self.ask("/api/v1/regions").await?;
            let now = regions.iter().map(|region| (region.id, region.leader)).collect();
            if now != leaders || !operators.is_empty() {
                leaders = now;
                quiet_since = Instant::now();
            }
            if quiet_since.elapsed() >= QUIET {
                return Ok(quiet_since.duration_since(started));
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        bail!("leaders still move after {} s under {policy}", SETTLE_PATIENCE.as_secs())
    }

    /// Shows the stores for some time.
    async fn watch(&mut self, title: &str, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            let stores: Vec<StoreRow> = self.ask("/api/v1/stores").await?;
            let title = format!("{title}: {:.0} s to go", left.as_secs_f64());
            self.screen.table(&title, &screen::stores(&stores));
            tokio::time::sleep(left.min(Duration::from_secs(1))).await;
        }
        Ok(())
    }

    fn compare(&mut self, even: &(Window, Duration), leader_only: &(Window, Duration)) {
        self.screen.headline("the same load, the same devices");
        use Align::{Left, Right};
        let mut table = Table::new([("policy", Left), ("ops/s", Right), ("mean", Right), ("p99", Right)]);
        let rate = |(window, took): &(Window, Duration)| window.operations() as f64 / took.as_secs_f64();
        let p99 = |(window, _): &(Window, Duration)| window.latency.value_at_quantile(0.99) as f64;
        for (name, measured) in [("even", even), ("leader-only", leader_only)] {
            table.row([
                name.into(),
                count(rate(measured)),
                micros(measured.0.latency.mean()),
                micros(p99(measured)),
            ]);
        }
        let ratio = |new: f64, old: f64| if old > 0.0 { format!("{:.2} x", new / old) } else { "-".into() };
        table.row([
            "leader-only / even".into(),
            ratio(rate(leader_only), rate(even)),
            ratio(leader_only.0.latency.mean(), even.0.latency.mean()),
            ratio(p99(leader_only), p99(even)),
        ]);
        self.screen.table("", &table);
        self.screen.settle();
    }

    async fn kill_the_busiest(&mut self, load: &Load) -> anyhow::Result<usize> {
        let stores: Vec<StoreRow> = self.ask("/api/v1/stores").await?;
        let busiest =
            stores.iter().max_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s)).context("no stores")?;
        let id = busiest.id as usize;
        self.screen.headline(&format!(
            "kill -9 of the busiest store: {} ({}, {} leaders) under load",
            id, busiest.device, busiest.leaders
        ));
        load.turn();
        self.cluster.stores[id].kill();
        self.watch("after the kill", AFTER_KILL).await?;
        let (window, took) = load.turn();
        self.screen.say(&format!(
            "{} commands answered in the {:.0} s since; the longest took {}; outcome unknown: {}, refused: {}",
            count(window.operations() as f64),
            took.as_secs_f64(),
            micros(window.longest as f64),
            window.unknown,
            window.not_done
        ));
        Ok(id)
    }

    async fn bring_back(&mut self, id: usize) -> anyhow::Result<()> {
        self.screen.headline(&format!("store {id} comes back"));
        let started = Instant::now();
        self.cluster.stores[id].start()?;
        self.cluster.wait_until_ready(START_PATIENCE).await?;
        self.screen.say(&format!("it serves after {:.1} s", started.elapsed().as_secs_f64()));
        loop {
            let regions: Vec<RegionRow> = self.ask("/api/v1/regions").await?;
            let behind = |region: &&RegionRow| {
                region.peers.iter().any(|peer| peer.store == id as u64 && peer.lag != Some(0))
            };
            let behind = regions.iter().filter(behind).count();
            if behind == 0 {
                break;
            }
            if started.elapsed() > SETTLE_PATIENCE {
                bail!("store {id} is still behind in {behind} regions");
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        self.screen.say(&format!("it has caught up after {:.1} s", started.elapsed().as_secs_f64()));
        let stores: Vec<StoreRow> = self.ask("/api/v1/stores").await?;
        self.screen.table("", &screen::stores(&stores));
        self.screen.settle();
        Ok(())
    }
}

fn hset(record: &Record) -> Call {
    let mut arguments: Vec<Bytes> = vec!["HSET".into(), record.key.clone()];
    for (name, value) in &record.fields {
        arguments.extend([name.clone(), value.clone()]);
    }
    Call::new(arguments, false)
}
