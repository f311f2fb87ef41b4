//! Figure 5.5: a follower that recovers what was written without it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context};
use client::connection::{text, Connection};
use client::latency::histogram;
use lab::load;
use lab::paxstore::{Measured, Sample};
use steelyard::playground::cluster::Cluster;
use steelyard::playground::START_PATIENCE;

use super::stores::{leader, Device, Wanted};
use super::{turns, Bench, Busy, Loaded};

/// Maximum time of a recovery.
const PATIENCE: Duration = Duration::from_secs(120);
const CONNECT: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);
/// The record that is written last. A follower that has it has all others, because it executes
/// entries in the order of the log.
const LAST: &str = "last";

#[derive(Clone, Copy)]
enum Way {
    /// The follower was away while the records were written.
    Log,
    /// A new store joins.
    Snapshot,
}

pub async fn measure(bench: &Bench, round: usize) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    for device in Device::BOTH {
        for bytes in bench.scale().sizes.clone() {
            for way in turns(&[Way::Log, Way::Snapshot], round) {
                measured.samples.push(one(bench, device, bytes, way).await?);
            }
        }
    }
    Ok(measured)
}

async fn one(bench: &Bench, device: Device, bytes: u64, way: Way) -> anyhow::Result<Sample> {
    let stores = match way {
        Way::Log => 3,
        Way::Snapshot => 2,
    };
    let mut cluster = bench.start(&Wanted { replicas: 3, ..Wanted::new(device, stores) }).await?;
    let mut leads = leader(&cluster, START_PATIENCE).await?;
    let follower = match way {
        Way::Log => (leads + 1) % cluster.stores.len(),
        Way::Snapshot => cluster.stores.len(),
    };
    if let Way::Log = way {
        cluster.stores[follower].kill();
        leads = leader(&cluster, START_PATIENCE).await?;
    }
    let target = cluster.stores[leads].member.client;
    load::fill(target, bench.scale().recovered, bytes as usize).await?;
    let mut connection = Connection::open(target, CONNECT).await?;
    let reply = connection.call(&["SET", LAST, LAST]).await?;
    ensure!(!reply.is_error(), "the last record was refused: {reply:?}");
    let snapshots = snapshots(&cluster, leads).await?;
    let (busy, started) = (Busy::start(), Instant::now());
    match way {
        Way::Log => cluster.stores[follower].start()?,
        Way::Snapshot => cluster.join(&["--probe".into(), "no".into()])?,
    }
    let address = cluster.stores[follower].member.client;
    while !has_last(address).await {
        if let Some(end) = cluster.stores[follower].died() {
            return Err(anyhow!("the follower {end}: {}", cluster.stores[follower].last_words()));
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "the follower is not up to date after {} s",
            PATIENCE.as_secs()
        );
        tokio::time::sleep(LOOK).await;
    }
    let took = started.elapsed();
    let sent = self::snapshots(&cluster, leads).await? - snapshots;
    let series = match way {
        Way::Log => {
            ensure!(sent == 0, "the leader sent {sent} snapshots instead of its log");
            "log"
        }
        Way::Snapshot => {
            ensure!(sent > 0, "the leader sent its log instead of a snapshot");
            "snapshot"
        }
    };
    let mut times = histogram();
    times.saturating_record(took.as_micros() as u64);
    Ok(Loaded::of(&times, took, busy.cpus()).sample(device.name(), "3 copies", series, bytes))
}

/// Returns true if a store answers a weak read of the last record from its own copy.
async fn has_last(address: SocketAddr) -> bool {
    let read = async {
        let mut connection = Connection::open(address, CONNECT).await?;
        connection.call(&["READONLY"]).await?;
        connection.call(&["GET", LAST]).await
    };
    let reply = tokio::time::timeout(CONNECT, read).await;
    matches!(reply, Ok(Ok(reply)) if text(&reply).is_some_and(|value| value.as_ref() == LAST.as_bytes()))
}

async fn snapshots(cluster: &Cluster, store: usize) -> anyhow::Result<u64> {
    let admin = cluster.stores[store].admin();
    let asked = tokio::task::spawn_blocking(move || admin.gauge("snapshots_sent_total")).await?;
    asked.context("the leader does not count its snapshots")
}
