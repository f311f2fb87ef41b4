//! Figure 5.4: throughput with more and more ranges, each with stores of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::cluster_client::ClusterClient;
use lab::paxstore::{size, Measured};
use lab::ycsb::{self, Settings, Workload};

use super::super::laboratory::{settle, PATIENCE};
use super::super::observe::Observer;
use super::stores::{Device, Wanted};
use super::{say, Bench, Busy, Loaded};

/// Copies of a range, and the stores that hold them.
const COPIES: u64 = 3;
/// Factor of the emulated devices' speed. The devices are so slow that several ranges together do
/// not need both CPUs of a small machine.
const SPEED: f64 = 1.0 / 20.0;
const CLIENTS_PER_RANGE: u64 = 64;
/// Raft's tick, slowed like the devices.
const RAFT_TICK_MS: &str = "100";
const PLACING_PATIENCE: Duration = Duration::from_secs(60);

pub async fn measure(bench: &Bench, round: usize) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    let mut numbers = bench.scale().ranges.clone();
    // Every second round begins with the most ranges, so that a slow change of the machine is not
    // taken for growth.
    if round % 2 == 0 {
        numbers.reverse();
    }
    let sizes = bench.scale().sizes.clone();
    let ends: BTreeSet<u64> = sizes.first().into_iter().chain(sizes.last()).copied().collect();
    for ranges in numbers {
        let wanted = Wanted {
            speed: SPEED,
            regions: ranges as u16,
            replicas: COPIES as usize,
            ..Wanted::new(Device::Emulated, (COPIES * ranges) as u16)
        };
        let cluster = bench.start(&wanted.option("raft-tick", RAFT_TICK_MS)).await?;
        let observer = Observer::new(&cluster)?;
        settle(&observer, PLACING_PATIENCE).await?;
        let glance = observer.glance().await?;
        let user = || glance.regions.iter().filter(|region| region.first_slot.is_some());
        let leaders: BTreeSet<u64> = user().filter_map(|region| region.leader).collect();
        let holders: BTreeSet<u64> =
            user().flat_map(|region| region.peers.iter().map(|peer| peer.store)).collect();
        if leaders.len() as u64 != ranges || holders.len() as u64 != COPIES * ranges {
            measured.skipped.push(format!(
                "{ranges} ranges: {} stores lead and {} hold copies, instead of {ranges} and {}",
                leaders.len(),
                holders.len(),
                COPIES * ranges
            ));
            continue;
        }
        let addresses = cluster.stores.iter().map(|store| store.member.client).collect();
        let client = Arc::new(ClusterClient::new(addresses, PATIENCE));
        for bytes in &ends {
            let threads = CLIENTS_PER_RANGE * ranges;
            let settings = Settings {
                threads: threads as usize,
                field_bytes: *bytes as usize,
                seed: round as u64,
                ..Settings::new(Workload::Load, threads * bench.scale().inserts_per_client)
            };
            let busy = Busy::start();
            let summary = ycsb::run(client.clone(), settings, |_| ()).await?;
            for fault in summary.faults() {
                say(&format!("  {fault}"));
            }
            let (per_second, latency) = (summary.per_second(), summary.latency);
            let loaded = Loaded { per_second, latency, cpus: busy.cpus() };
            let load = format!("{}, {CLIENTS_PER_RANGE} clients a range", size(*bytes));
            measured.samples.push(loaded.sample("plain-ssd/20", &load, "3 copies", ranges));
        }
    }
    Ok(measured)
}
