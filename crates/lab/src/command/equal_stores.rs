//! `steelyard bench equal-stores`: starts equal stores that measure themselves, many times.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{ensure, Context};
use client::cluster_client::ClusterClient;
use lab::scenario::equal::{shares, EqualStores, Setup, Share, Start, VERSION};
use lab::scenario::{keep, Span};
use lab::ycsb::{self, Settings, Summary, Workload};

use super::ground::{machine, target};
use super::reproduce::laboratory::PATIENCE;
use super::reproduce::observe::Observer;
use super::watch::{Moment, Watch, LOOK_EVERY};
use steelyard::playground::cluster::{choose_place, Cluster, Place};
use steelyard::playground::layout::{parse_devices, Layout};
use steelyard::playground::START_PATIENCE;

#[derive(clap::Args)]
pub struct Options {
    /// Number of stores of each cluster
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(3..=16))]
    stores: u16,
    /// Number of regions of each cluster
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    regions: u16,
    /// Policies, which take turns
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "adaptive,alor,leader-only")]
    policy: Vec<String>,
    /// Number of starts of each policy
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    starts: u16,
    /// An emulated device for each store [default: the disk under all of them]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Speed of the emulated devices
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    device_speed: f64,
    /// Seconds for measuring and placing
    #[arg(long, value_name = "S", default_value_t = 60)]
    settle: u16,
    /// Seconds of load
    #[arg(long, value_name = "S", default_value_t = 20)]
    load: u16,
    /// Seconds at rest after the load
    #[arg(long, value_name = "S", default_value_t = 30)]
    calm: u16,
    /// Number of threads of the load
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Store i serves on this port + i
    #[arg(long, value_name = "PORT", default_value_t = 7700)]
    port: u16,
    /// Directory for the stores' data [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory for results and the report [default: equal-stores under the build's target
    /// directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Number of records of 1 KiB that are inserted first.
const RECORDS: u64 = 20_000;

pub async fn run(options: Options) -> anyhow::Result<()> {
    for policy in &options.policy {
        policy.parse::<placement::Policy>()?;
    }
    if let Some(device) = &options.device {
        parse_devices(device, Some(1))?;
    }
    ensure!(
        options.device_speed.is_finite() && options.device_speed > 0.0,
        "a device's speed must be a factor above 0"
    );
    let out = options.out.clone().unwrap_or_else(|| target().join("equal-stores"));
    std::fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    let file_system = client::place::file_system(options.place()?.path());
    let setup = Setup {
        stores: options.stores.into(),
        regions: options.regions.into(),
        replicas: 3,
        device: options.device.clone(),
        starts: options.starts.into(),
        settle_s: options.settle.into(),
        load_s: options.load.into(),
        calm_s: options.calm.into(),
        machine: machine(file_system),
    };
    let mut kept = EqualStores { version: VERSION, setup, starts: Vec::new() };
    for number in 1..=options.starts {
        for policy in &options.policy {
            let start = options.start(policy).await.with_context(|| format!("start {number}, {policy}"))?;
            let leads: Vec<usize> = start.ended.iter().map(|share| share.leads).collect();
            eprintln!("start {number} of {}, {policy}: leaders {leads:?}", options.starts);
            kept.starts.push(start);
            keep(&out, "equal-stores", &kept, &kept.report(), &[])?;
        }
    }
    print!("{}", kept.report());
    eprintln!("the report is {}", out.join("equal-stores.md").display());
    Ok(())
}

impl Options {
    /// Returns a directory that is removed with the cluster.
    fn place(&self) -> anyhow::Result<Place> {
        match &self.data {
            Some(data) => {
                std::fs::create_dir_all(data)
                    .with_context(|| format!("{} cannot be made", data.display()))?;
                let dir = tempfile::Builder::new().prefix("steelyard-equal-").tempdir_in(data)?;
                Ok(Place::Temporary(dir))
            }
            None => Ok(choose_place(None, self.device.is_some())?.0),
        }
    }

    async fn start(&self, policy: &str) -> anyhow::Result<Start> {
        let layout = Layout {
            stores: self.stores,
            port: self.port,
            cluster_enabled: true,
            regions: self.regions,
            replicas: 3,
            devices: self.device.iter().cycle().take(self.stores.into()).cloned().collect(),
            device_speed: self.device_speed,
        };
        let mut members = layout.members()?;
        // Stores without a stated capability measure it.
        members.iter_mut().for_each(|member| member.capability = None);
        let extra: Vec<OsString> = vec!["--policy".into(), policy.into()];
        let mut cluster = Cluster::start_members(layout, members, self.place()?, &extra)?;
        cluster.wait_until_ready(START_PATIENCE).await?;
        let observer = Arc::new(Observer::new(&cluster)?);
        let addresses = cluster.stores.iter().map(|store| store.member.client).collect();
        let client = Arc::new(ClusterClient::new(addresses, PATIENCE));
        let mut watch = Watch::start(observer);

        let settled = until(&mut watch, self.settle.into()).await?;
        let from_s = watch.seconds();
        let summary = tokio::select! {
            summary = self.work(client) => summary?,
            failed = until(&mut watch, f64::INFINITY) => return Err(failed.err().context("the watch must not end")?),
        };
        let to_s = watch.seconds();
        let ended = until(&mut watch, to_s + f64::from(self.calm)).await?;
        Ok(Start {
            policy: policy.to_owned(),
            settled: of(&settled),
            ended: of(&ended),
            load: Span::new("load", from_s, to_s),
            end_s: watch.seconds(),
            operations_per_s: summary.per_second(),
            moves: watch.moves(),
        })
    }

    /// Inserts the records, then reads and updates them for the configured time.
    async fn work(&self, client: Arc<ClusterClient>) -> anyhow::Result<Summary> {
        let settings =
            |workload| Settings { threads: self.threads.into(), ..Settings::new(workload, RECORDS) };
        ycsb::run(client.clone(), settings(Workload::Load), |_| ()).await?;
        let settings = Settings {
            operations: u64::MAX,
            at_most: Some(Duration::from_secs(self.load.into())),
            ..settings(Workload::A)
        };
        ycsb::run(client, settings, |_| ()).await
    }
}

fn of(moment: &Moment) -> Vec<Share> {
    shares(&moment.look, |store| moment.believed.get(&store).copied().unwrap_or_default())
}

/// Watches the cluster until that second, and returns the last state.
async fn until(watch: &mut Watch, second: f64) -> anyhow::Result<Moment> {
    let mut last = None;
    while watch.seconds() < second || last.is_none() {
        last = watch.look().await?.or(last);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    last.context("the cluster did not answer")
}
