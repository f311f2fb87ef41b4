//! The time of a failover: the leader is killed under load, again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use client::admin::{ConfigRequest, RegionsQuery};
use client::cluster_client::{Call, ClusterClient, Patience};
use client::latency::histogram;
use client::zookeeper::Ensemble;
use lab::load;
use lab::paxstore::Measured;
use steelyard::playground::cluster::Cluster;
use steelyard::playground::START_PATIENCE;
use tokio::task::JoinSet;

use super::stores::{leader, Device, Wanted};
use super::{say, turns, Bench, Busy, Loaded};

const ELECTIONS: [&str; 2] = ["raft", "zookeeper"];
const SERVERS: usize = 3;
const TICK: Duration = Duration::from_secs(2);
const READY: Duration = Duration::from_secs(60);
/// Number of clients that write all the time.
const CLIENTS: u64 = 8;
const VALUE_BYTES: usize = 512;
/// Time under load before a kill.
const LOADED: Duration = Duration::from_millis(1500);
const LOOK: Duration = Duration::from_millis(50);
/// A client that waits for a leader looks for it again every few milliseconds. One that waits for a
/// reply notices the end of its connection.
const PATIENCE: Patience = Patience {
    connect: Duration::from_millis(500),
    reply: Duration::from_secs(30),
    whole: Duration::from_secs(60),
};

pub async fn measure(bench: &Bench, round: usize) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    for election in turns(&ELECTIONS, round) {
        let mut wanted = Wanted::new(Device::Emulated, 3);
        let dir = bench.directory()?;
        let mut ensemble = None;
        if election == "zookeeper" {
            match Ensemble::start(dir.path(), SERVERS, TICK) {
                Ok(started) => {
                    ensure!(
                        started.await_ready(READY),
                        "ZooKeeper does not serve after {} s",
                        READY.as_secs()
                    );
                    wanted = wanted.option("zookeeper", &started.connect_string());
                    ensemble = Some(started);
                }
                Err(error) => {
                    measured.skipped.push(format!("election zookeeper: {error}"));
                    continue;
                }
            }
        }
        let mut cluster = bench.start(&wanted).await?;
        set_election(&cluster, election).await?;
        let busy = Busy::start();
        let mut times = histogram();
        for number in 0..bench.scale().kills {
            let took = killed(&mut cluster).await?;
            say(&format!("  election {election}, kill {}: {:.2} s", number + 1, took.as_secs_f64()));
            times.saturating_record(took.as_micros() as u64);
        }
        let loaded = Loaded::of(&times, times_sum(&times), busy.cpus());
        let kills = bench.scale().kills as u64;
        measured.samples.push(loaded.sample("plain-ssd", &format!("election {election}"), "3 stores", kills));
        drop(ensemble);
    }
    Ok(measured)
}

fn times_sum(times: &hdrhistogram::Histogram<u64>) -> Duration {
    Duration::from_micros((times.mean() * times.len() as f64) as u64)
}

async fn set_election(cluster: &Cluster, election: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let request = ConfigRequest { name: "election".to_owned(), value: election.to_owned() };
        let admin = cluster.stores[0].admin();
        match tokio::task::spawn_blocking(move || admin.ask(&request)).await? {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > START_PATIENCE => {
                return Err(anyhow!("the election cannot be set to {election}: {error}"))
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Kills the leader under load. Returns the time until a write that began after the kill was
/// acknowledged. Then starts the killed store again and waits until it has caught up.
async fn killed(cluster: &mut Cluster) -> anyhow::Result<Duration> {
    caught_up(cluster).await?;
    let seeds = cluster.stores.iter().map(|store| store.member.client).collect();
    let client = Arc::new(ClusterClient::new(seeds, PATIENCE));
    let is_done = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        let (client, is_done) = (client.clone(), is_done.clone());
        tasks.spawn(async move {
            while !is_done.load(Ordering::Relaxed) {
                client.call(&write(number)).await;
            }
        });
    }
    tokio::time::sleep(LOADED).await;
    let at = leader(cluster, START_PATIENCE).await?;
    // `kill` returns when the process is gone.
    cluster.stores[at].kill();
    let gone = Instant::now();
    while !client.call(&write(CLIENTS)).await.acknowledged() {
        ensure!(gone.elapsed() < PATIENCE.whole, "no write was acknowledged after the leader was killed");
    }
    let took = gone.elapsed();
    is_done.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    cluster.stores[at].start()?;
    cluster.wait_until_ready(START_PATIENCE).await?;
    Ok(took)
}

fn write(number: u64) -> Call {
    let value = Bytes::from(client::value::printable(VALUE_BYTES, number));
    Call::new(vec![Bytes::from_static(b"SET"), Bytes::from(load::key(number)), value], false)
}

/// Waits until no peer lags, so that each of the other two stores can lead.
async fn caught_up(cluster: &Cluster) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        let admin = cluster.stores[0].admin();
        let regions =
            tokio::task::spawn_blocking(move || admin.ask(&RegionsQuery {})).await?.unwrap_or_default();
        let mut peers = regions.iter().flat_map(|region| &region.peers);
        if !regions.is_empty() && peers.all(|peer| peer.lag == Some(0)) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "a store has not caught up after {} s", START_PATIENCE.as_secs());
        tokio::time::sleep(LOOK).await;
    }
}
