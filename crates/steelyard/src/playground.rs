//! `steelyard playground`: a local cluster of real processes in the foreground.
//!
//! Stdout carries one line per store and then `ready`. All other output goes to stderr.

pub mod cluster;
pub mod election;
pub mod layout;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use tokio::signal::unix::{signal, SignalKind};

use crate::serve::{YesNo, DEFAULT_REGIONS};
use cluster::{choose_place, Cluster, Store};
use election::ZooKeeper;
use layout::{noisy, parse_devices, Layout};

#[derive(clap::Args)]
pub struct Playground {
    /// Number of stores [default: 3, or as many as devices]
    #[arg(long, value_name = "N")]
    stores: Option<u16>,
    /// Emulated devices: nvm, high-end-ssd, plain-ssd, hybrid or numbers; one per store or one for
    /// all
    #[arg(long, value_name = "LIST")]
    devices: Option<String>,
    /// Speed factor for every emulated device: 0.1 is ten times slower
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    device_speed: f64,
    /// Noise of every emulated device: spread=50%, burst=10s:200ms:5 (every 10 s, for 200 ms, 5
    /// times slower), neighbour=60s:20s:30% (takes a share), seed=7; separated by commas
    #[arg(long, value_name = "SPEC")]
    device_noise: Option<String>,
    /// Store i serves clients on this port + i
    #[arg(long, value_name = "PORT", default_value_t = 7000)]
    port: u16,
    /// Directory for the data, which is kept and reused the next time [default: a temporary
    /// directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Number of regions [default: 1; 16 with --cluster-enabled]
    #[arg(long, value_name = "N")]
    regions: Option<u16>,
    /// Number of copies of each region
    #[arg(long, value_name = "N", default_value_t = 3)]
    replicas: usize,
    /// Follow Redis Cluster's rules on the client ports [default: no]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    cluster_enabled: Option<YesNo>,
    /// Placement policy: even, leader-only, alor or adaptive
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Let stores measure their emulated devices; otherwise their capability is configured from the
    /// profile
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    probe: Option<YesNo>,
    /// The way in which candidates of elections are chosen: raft, or zookeeper, for which a server
    /// of Debian's package zookeeper is started unless the serve flags name an ensemble
    #[arg(long, value_name = "raft|zookeeper", value_parser = ["raft", "zookeeper"])]
    election: Option<String>,
    /// Use TLS at every port, with certificates below the data: of an authority, stores and clients
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    tls: Option<YesNo>,
    /// More flags for every `steelyard serve`
    #[arg(last = true, value_name = "SERVE FLAGS")]
    extra: Vec<OsString>,
}

/// Maximum time until six stores are up on a busy machine with a slow disk.
pub const START_PATIENCE: Duration = Duration::from_secs(60);

pub fn run(playground: Playground) -> anyhow::Result<()> {
    // Everything runs on the main thread, because the stores end when that thread ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(playground))
}

async fn serve(playground: Playground) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut asked_to_end = std::pin::pin!(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    });
    let (layout, mut extra) = layout_of(&playground)?;
    // Declared before the cluster, so that it ends after the stores.
    let zookeeper = ZooKeeper::start_for(playground.election.as_deref(), &mut extra)?;
    if let Some(zookeeper) = &zookeeper {
        say(&format!("zookeeper {}  znodes below /steelyard", zookeeper.address()))?;
    }
    let (place, note) = choose_place(playground.dir.as_deref(), !layout.devices.is_empty())?;
    eprintln!("{note}");
    if !layout.devices.is_empty() {
        eprintln!("emulated devices at {} of their speed", layout.device_speed);
    }
    let mut members = layout.members()?;
    if playground.probe.is_some_and(|yes| yes.0) {
        members.iter_mut().for_each(|member| member.capability = None);
    }
    let with_tls = playground.tls.is_some_and(|yes| yes.0);
    let mut cluster = match with_tls {
        true => Cluster::start_with_tls(layout, members, place, &extra)?,
        false => Cluster::start_members(layout, members, place, &extra)?,
    };
    tokio::select! {
        ready = cluster.wait_until_ready(START_PATIENCE) => ready?,
        () = &mut asked_to_end => return Ok(()),
    }
    for store in &cluster.stores {
        say(&line(store))?;
    }
    if with_tls {
        say(&format!("tls {}", cluster.tls_dir().display()))?;
    }
    if let Some(election) = &playground.election {
        tokio::select! {
            set = election::set(&cluster, election) => set?,
            () = &mut asked_to_end => return Ok(()),
        }
    }
    say("ready")?;
    let mut look = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            () = &mut asked_to_end => break,
            _ = look.tick() => report_deaths(&mut cluster),
        }
    }
    drop(cluster);
    Ok(())
}

fn report_deaths(cluster: &mut Cluster) {
    let dir = cluster.dir().to_owned();
    for store in &mut cluster.stores {
        if let Some(end) = store.died() {
            let script = dir.join(format!("store-{}.cmd", store.member.id));
            eprintln!("store {} {end}; start it again with {}", store.member.id, script.display());
        }
    }
}

/// Prints a line to stdout. If the reader has closed the pipe, returns an error and does not panic.
fn say(line: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn line(store: &Store) -> String {
    let m = &store.member;
    let mut line = format!("store {}  {}  peer {}  admin {}", m.id, m.client, m.peer, m.admin);
    if let Some(forward) = m.forward {
        line += &format!("  forward {forward}");
    }
    if let Some(pid) = store.pid() {
        line += &format!("  pid {pid}");
    }
    if !m.device.is_empty() {
        line += &format!("  device {}", m.device);
    }
    line
}

fn layout_of(playground: &Playground) -> anyhow::Result<(Layout, Vec<OsString>)> {
    let mut devices = match &playground.devices {
        Some(text) => parse_devices(text, playground.stores)?,
        None => Vec::new(),
    };
    if let Some(noise) = &playground.device_noise {
        ensure!(!devices.is_empty(), "--device-noise needs emulated devices: name them with --devices");
        devices = noisy(devices, noise)?;
    }
    let stores = match (playground.stores, devices.len()) {
        (Some(stores), _) => stores,
        (None, 0 | 1) => 3,
        (None, devices) => devices.try_into()?,
    };
    let devices = match devices.len() {
        1 => vec![devices[0].clone(); usize::from(stores)],
        _ => devices,
    };
    let cluster_enabled = playground.cluster_enabled.is_some_and(|yes| yes.0);
    let regions = playground.regions.unwrap_or(if cluster_enabled { DEFAULT_REGIONS } else { 1 });
    ensure!(cluster_enabled || regions == 1, "more than one region needs --cluster-enabled yes");
    let mut extra = Vec::new();
    if let Some(policy) = &playground.policy {
        policy.parse::<placement::Policy>().map_err(|error| anyhow::anyhow!("policy: {error}"))?;
        extra.extend(["--policy".into(), OsString::from(policy)]);
    }
    extra.extend(playground.extra.iter().cloned());
    let layout = Layout {
        stores,
        port: playground.port,
        cluster_enabled,
        regions,
        replicas: playground.replicas,
        devices,
        device_speed: playground.device_speed,
    };
    Ok((layout, extra))
}
