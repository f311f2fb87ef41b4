//! Figure 5.3: three stores, a ZooKeeper ensemble of three, and the limit with three copies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context};
use client::latency::histogram;
use client::zookeeper::Ensemble;
use hdrhistogram::Histogram;
use lab::load::{self, Mix};
use lab::paxstore::Measured;
use lab::peers::servers;
use steelyard::playground::cluster::program;
use tokio::task::JoinSet;
use zookeeper_client::{Acls, Client, CreateMode};

use super::stores::{leader_address, Device, Wanted};
use super::{turns, Bench, Busy, Loaded, Request};

const CLIENTS: usize = 50;
/// Number of sessions that ZooKeeper's clients share, a third of them at each server. The requests
/// of a session are pipelined.
const SESSIONS: usize = 6;
const KEYS: u64 = 1000;
const SERVERS: usize = 3;
const TICK: Duration = Duration::from_secs(2);
/// Enough for all znodes of a measurement.
const HEAP_MIB: u32 = 1024;
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of windows with writes before the first one that counts, and the size of these writes.
const WARM_UPS: usize = 3;
const WARM_UP_BYTES: u64 = 1024;
const PLACE: &str = "disk";
const LOAD: &str = "50 clients";

#[derive(Clone, Copy)]
enum Side {
    Ours,
    ZooKeeper,
    Limit,
}

pub async fn measure(bench: &Bench, round: usize) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    for side in turns(&[Side::Ours, Side::ZooKeeper, Side::Limit], round) {
        match side {
            Side::Ours => {
                let cluster = bench.start(&Wanted::new(Device::Disk, 3)).await?;
                let target = leader_address(&cluster).await?;
                set(bench, round, "Steelyard", target, &mut measured).await?;
            }
            Side::Limit => {
                let dir = bench.directory()?;
                let server = servers::limit(dir.path(), &program()?, SERVERS).await?;
                set(bench, round, "limit", server.clients[0], &mut measured).await?;
            }
            Side::ZooKeeper => {
                let dir = bench.directory()?;
                match Ensemble::start_sized(dir.path(), SERVERS, TICK, HEAP_MIB) {
                    Ok(ensemble) => zookeeper(bench, ensemble, &mut measured).await?,
                    Err(error) => measured.skipped.push(format!("ZooKeeper: {error}")),
                }
            }
        }
    }
    Ok(measured)
}

async fn set(
    bench: &Bench,
    round: usize,
    series: &str,
    target: std::net::SocketAddr,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    for bytes in bench.scale().sizes.clone() {
        load::fill(target, KEYS, bytes as usize).await?;
        let request = Request { target, mix: Mix::Set, clients: CLIENTS, bytes, keys: KEYS, seed: round };
        measured.samples.push(bench.load(request).await?.sample(PLACE, LOAD, series, bytes));
    }
    Ok(())
}

async fn zookeeper(bench: &Bench, ensemble: Ensemble, measured: &mut Measured) -> anyhow::Result<()> {
    let ensemble = Arc::new(ensemble);
    let asked = ensemble.clone();
    let is_ready = tokio::task::spawn_blocking(move || asked.await_ready(PATIENCE)).await?;
    ensure!(is_ready, "ZooKeeper does not serve after {} s", PATIENCE.as_secs());
    let mut sessions = Vec::new();
    for server in ensemble.addresses().iter().cycle().take(SESSIONS) {
        let session = Client::connect(&server.to_string()).await.context("no session with ZooKeeper")?;
        sessions.push(session);
    }
    let acls = CreateMode::Persistent.with_acls(Acls::anyone_all());
    // The servers' programs are compiled while they run, so the first writes would count as slow.
    for round in 0..WARM_UPS {
        let root = format!("/warm-{round}");
        sessions[0].create(&root, b"", &acls).await?;
        written(bench, &sessions, &root, WARM_UP_BYTES, None).await?;
    }
    for bytes in bench.scale().sizes.clone() {
        let root = format!("/size-{bytes}");
        sessions[0].create(&root, b"", &acls).await?;
        let created = written(bench, &sessions, &root, bytes, None).await?;
        measured.samples.push(created.sample(PLACE, LOAD, "ZooKeeper create", bytes));
        let root = format!("/set-{bytes}");
        sessions[0].create(&root, b"", &acls).await?;
        for key in 0..KEYS {
            sessions[0].create(&format!("{root}/{key}"), b"", &acls).await?;
        }
        // The other servers may still be behind the creations.
        for session in &sessions {
            session.sync(&root).await?;
        }
        let set = written(bench, &sessions, &root, bytes, Some(KEYS)).await?;
        measured.samples.push(set.sample(PLACE, LOAD, "ZooKeeper setData", bytes));
    }
    drop(sessions);
    Ok(())
}

/// Writes from all clients below `root`: into new znodes, or into random ones of `keys`.
async fn written(
    bench: &Bench,
    sessions: &[Client],
    root: &str,
    bytes: u64,
    keys: Option<u64>,
) -> anyhow::Result<Loaded> {
    let busy = Busy::start();
    let from = Instant::now() + Duration::from_millis(bench.scale().warmup_ms);
    let window = Duration::from_millis(bench.scale().window_ms);
    let mut tasks = JoinSet::new();
    for (number, session) in sessions.iter().cycle().take(CLIENTS).enumerate() {
        let drive = drive(session.clone(), root.to_owned(), number as u64, bytes, keys, from, from + window);
        tasks.spawn(drive);
    }
    let mut latencies = histogram();
    while let Some(done) = tasks.join_next().await {
        latencies.add(done??)?;
    }
    ensure!(!latencies.is_empty(), "no write ended within the window");
    Ok(Loaded::of(&latencies, window, busy.cpus()))
}

async fn drive(
    session: Client,
    root: String,
    number: u64,
    bytes: u64,
    keys: Option<u64>,
    from: Instant,
    until: Instant,
) -> anyhow::Result<Histogram<u64>> {
    let value = client::value::printable(bytes as usize, number);
    let acls = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let mut draw = types::Draw::new(number);
    let mut latency = histogram();
    for count in 0u64.. {
        let sent = Instant::now();
        if sent >= until {
            break;
        }
        match keys {
            Some(keys) => {
                session.set_data(&format!("{root}/{}", draw.below(keys)), &value, None).await?;
            }
            None => {
                session.create(&format!("{root}/{number}-{count}"), &value, &acls).await?;
            }
        }
        let now = Instant::now();
        if now >= from && now < until {
            latency.saturating_record(now.duration_since(sent).as_micros() as u64);
        }
    }
    Ok(latency)
}
