//! `steelyard bench replicate`: an empty store gets copies of all regions while the cluster serves.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context};
use client::admin::{RegionRow, StoreRequest};
use client::latency::histogram;
use lab::alor::{Sample, StoreSample};
use lab::load::{self, Load, Measured, Mix};
use lab::replicate::{Comparison, Round, Served, Setup, Variant, VERSION};
use lab::scenario::keep;

use super::ground::{machine, target};
use super::reproduce::laboratory::settle;
use super::reproduce::observe::Observer;
use steelyard::playground::cluster::{choose_place, Cluster, Place};
use steelyard::playground::layout::Layout;
use steelyard::playground::START_PATIENCE;
use steelyard::serve::size::Size;

#[derive(clap::Args)]
pub struct Replicate {
    /// Emulated device of each store, or `real`
    #[arg(long, value_name = "DEVICE", default_value = "plain-ssd/5")]
    device: String,
    /// Bytes of values
    #[arg(long, value_name = "SIZE", default_value = "1gb")]
    data: Size,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 1024)]
    value: usize,
    #[arg(long, value_name = "N", default_value_t = 16)]
    regions: u16,
    /// Flags of the stores that are compared, such as `one loop=--io-threads 1`; `NAME=` for none
    #[arg(long = "variant", value_name = "NAME=FLAGS", default_value = "as shipped=")]
    variants: Vec<String>,
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// Connections of the load in the foreground, each with one command in flight
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// Seconds of the load before the replication
    #[arg(long, value_name = "S", default_value_t = 5)]
    before: u64,
    /// Maximum seconds of a replication
    #[arg(long, value_name = "S", default_value_t = 900)]
    at_most: u64,
    /// `maxmemory` of each store
    #[arg(long, value_name = "SIZE", default_value = "256mb")]
    maxmemory: Size,
    /// Store i serves on this port + i
    #[arg(long, value_name = "PORT", default_value_t = 7600)]
    port: u16,
    /// Directory for the stores' data [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory for results and the report [default: replicate under the build's target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const STORES: u16 = 3;
/// The store that leaves.
const LEAVES: u64 = 2;
/// The load during the replication is measured in windows of this length.
const WINDOW: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(100);
/// Length of the keys that `load` writes.
const KEY_BYTES: u64 = 16;
/// Time for flushes and compactions to end after the data was written.
const REST: Duration = Duration::from_secs(60);
/// Time for the new store to be in the list of stores.
const JOINING: Duration = Duration::from_secs(60);

pub async fn run(options: Replicate) -> anyhow::Result<()> {
    ensure!(options.rounds > 0 && options.value > 0 && options.connections > 0, "nothing is measured");
    let variants = options.variants.iter().map(|text| variant(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let keys = options.data.0 / options.value as u64;
    ensure!(keys > 0 && options.regions > 0, "there must be data");
    let device = (options.device != "real").then(|| options.device.clone());
    let limits = device.as_ref().map(|device| device.parse::<device::Profile>()).transpose()?;
    let out = options.out.clone().unwrap_or_else(|| target().join("replicate"));
    std::fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    let place = choose_place(options.dir.as_deref(), false)?.0;
    std::fs::create_dir_all(place.path())
        .with_context(|| format!("{} cannot be made", place.path().display()))?;
    let setup = Setup {
        device,
        device_limits: limits.map(|it| [it.write_bytes_per_s as f64, it.read_bytes_per_s as f64]),
        keys,
        value_bytes: options.value,
        regions: options.regions,
        connections: options.connections,
        machine: machine(client::place::file_system(place.path())),
    };
    let mut kept = Comparison { version: VERSION, setup, rounds: Vec::new() };
    for number in 1..=options.rounds {
        for variant in &variants {
            let dir = tempfile::Builder::new().prefix("steelyard-replicate-").tempdir_in(place.path())?;
            let round = measure(&options, &kept.setup, number, variant, dir).await?;
            eprintln!("round {number}, {}: {:.1} s", variant.name, round.seconds);
            kept.rounds.push(round);
            keep(&out, "replicate", &kept, &kept.report(), &[])?;
        }
    }
    print!("{}", kept.report());
    eprintln!("the report is {}", out.join("replicate.md").display());
    Ok(())
}

/// Parses `NAME=FLAGS`.
fn variant(text: &str) -> anyhow::Result<Variant> {
    let (name, flags) = text.split_once('=').context("a variant is NAME=FLAGS")?;
    let flags = flags.split_whitespace().map(str::to_owned).collect();
    Ok(Variant { name: name.to_owned(), flags })
}

async fn measure(
    options: &Replicate,
    setup: &Setup,
    round: u32,
    variant: &Variant,
    dir: tempfile::TempDir,
) -> anyhow::Result<Round> {
    let layout = Layout {
        stores: STORES,
        port: options.port,
        cluster_enabled: true,
        regions: options.regions,
        replicas: STORES.into(),
        devices: vec![setup.device.clone(); usize::from(STORES)].into_iter().flatten().collect(),
        device_speed: 1.0,
    };
    let mut extra: Vec<OsString> = vec!["--maxmemory".into(), options.maxmemory.0.to_string().into()];
    extra.extend(variant.flags.iter().map(OsString::from));
    let mut cluster = Cluster::start(layout, Place::Temporary(dir), &extra)?;
    cluster.wait_until_ready(START_PATIENCE).await?;
    let serving = cluster.stores[0].member.forward.context("a port for plain clients")?;
    load::fill(serving, setup.keys, setup.value_bytes).await?;
    settle(&Observer::new(&cluster)?, REST).await?;
    let load = |window, seed| Load {
        target: serving,
        mix: Mix::Mixed,
        connections: setup.connections,
        pipeline: 1,
        value_bytes: setup.value_bytes,
        keys: setup.keys,
        warmup: Duration::ZERO,
        window,
        pids: Vec::new(),
        seed,
        opening: &[],
    };
    let before = served(&[load::run(&load(Duration::from_secs(options.before), 0)).await?]);
    let joined = join(&mut cluster, &extra).await?;
    let observer = Observer::new(&cluster)?;
    let from = observer.sample().await?;
    let since = Instant::now();
    let admin = cluster.stores[0].admin();
    tokio::task::spawn_blocking(move || admin.ask_of(LEAVES, &StoreRequest::Drain)).await??;
    let replicated = async {
        while !has_all(&observer.glance().await?.regions, joined) {
            ensure!(since.elapsed() < Duration::from_secs(options.at_most), "the replication does not end");
            tokio::time::sleep(LOOK).await;
        }
        anyhow::Ok((since.elapsed(), observer.sample().await?))
    };
    let mut meanwhile = Vec::new();
    let serve = async {
        loop {
            match load::run(&load(WINDOW, 1 + meanwhile.len() as u64)).await {
                Ok(part) => meanwhile.push(part),
                Err(error) => break error,
            }
        }
    };
    let (took, to) = tokio::select! {
        replicated = replicated => replicated?,
        error = serve => return Err(error),
    };
    let of_all = |sample: &Sample, field: &dyn Fn(&StoreSample) -> f64| {
        let (mut new, mut others) = (0.0, 0.0);
        for store in &sample.stores {
            let sum = if store.store == joined { &mut new } else { &mut others };
            *sum += field(store);
        }
        [new, others]
    };
    let spent = |field: &dyn Fn(&StoreSample) -> f64| {
        let (from, to) = (of_all(&from, field), of_all(&to, field));
        [to[0] - from[0], to[1] - from[1]]
    };
    let written = spent(&|store| store.device_written_bytes as f64);
    let read = spent(&|store| store.device_read_bytes as f64);
    let own = to.client_cpu_s - from.client_cpu_s;
    Ok(Round {
        round,
        variant: variant.clone(),
        seconds: took.as_secs_f64(),
        row_bytes: setup.keys * (KEY_BYTES + setup.value_bytes as u64),
        written_bytes: written[0] as u64,
        sources_read_bytes: read[1] as u64,
        sources_written_bytes: written[1] as u64,
        busy_cpu_s: to.machine_busy_s - from.machine_busy_s - own,
        before,
        meanwhile: served(&meanwhile),
    })
}

/// Starts a store that joins the cluster, and waits until it serves. Returns its number.
async fn join(cluster: &mut Cluster, extra: &[OsString]) -> anyhow::Result<u64> {
    let observer = Observer::new(cluster)?;
    let listed = async || {
        let stores = observer.glance().await?.stores;
        anyhow::Ok(stores.into_iter().map(|store| store.id).collect::<BTreeSet<u64>>())
    };
    let known = listed().await?;
    cluster.join(extra)?;
    let since = Instant::now();
    let joined = loop {
        if let Some(&joined) = listed().await?.difference(&known).next() {
            break joined;
        }
        ensure!(since.elapsed() < JOINING, "the new store does not join");
        tokio::time::sleep(LOOK).await;
    };
    cluster.wait_until_ready(START_PATIENCE).await?;
    Ok(joined)
}

fn has_all(regions: &[RegionRow], store: u64) -> bool {
    let has_voter =
        |region: &RegionRow| region.peers.iter().any(|peer| peer.store == store && peer.role == "voter");
    !regions.is_empty() && regions.iter().all(has_voter)
}

fn served(parts: &[Measured]) -> Served {
    let mut latency = histogram();
    let mut seconds = 0.0;
    for part in parts {
        // All histograms have the same bounds.
        let _ = latency.add(&part.latency);
        seconds += part.window.as_secs_f64();
    }
    Served {
        per_s: latency.len() as f64 / f64::max(seconds, f64::MIN_POSITIVE),
        p50_us: latency.value_at_quantile(0.5),
        p99_us: latency.value_at_quantile(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_has_a_name_and_flags() {
        let parsed = variant("one loop=--io-threads 1").unwrap();
        assert_eq!((parsed.name.as_str(), parsed.flags.len()), ("one loop", 2));
        assert!(variant("as shipped=").unwrap().flags.is_empty());
        assert!(variant("slow").is_err());
    }
}
