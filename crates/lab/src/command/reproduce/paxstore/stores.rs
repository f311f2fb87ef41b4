//! Clusters of stores on this machine's disk or on emulated devices.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context};
use client::admin::RegionsQuery;
use steelyard::playground::cluster::{choose_place, Cluster, Place};
use steelyard::playground::layout::Layout;
use steelyard::playground::START_PATIENCE;

use super::Bench;

/// The emulated device of a comparison that is to say something about the paper's disks.
pub const EMULATED: &str = "plain-ssd";
/// Distance of the ports of two clusters that run at the same time.
pub const PORTS: u16 = 50;
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The machine's disk, which all stores share.
    Disk,
    /// An emulated device for each store.
    Emulated,
}

impl Device {
    pub const BOTH: [Device; 2] = [Device::Emulated, Device::Disk];

    pub fn name(self) -> &'static str {
        match self {
            Device::Disk => "disk",
            Device::Emulated => EMULATED,
        }
    }
}

pub struct Wanted {
    pub device: Device,
    /// Factor of the emulated devices' speed.
    pub speed: f64,
    pub stores: u16,
    pub regions: u16,
    pub replicas: usize,
    /// Distance of the first port from the first one of the measurement.
    pub ports: u16,
    pub options: Vec<OsString>,
}

impl Wanted {
    /// Returns `stores` stores with one region that has a copy on each.
    pub fn new(device: Device, stores: u16) -> Wanted {
        let (speed, regions, replicas, ports) = (1.0, 1, usize::from(stores), 0);
        Wanted { device, speed, stores, regions, replicas, ports, options: Vec::new() }
    }

    /// Adds an option of `steelyard serve`.
    pub fn option(mut self, name: &str, value: &str) -> Wanted {
        self.options.extend([format!("--{name}").into(), value.into()]);
        self
    }
}

impl Bench {
    /// Starts a cluster and waits until it serves.
    pub async fn start(&self, wanted: &Wanted) -> anyhow::Result<Cluster> {
        let emulated = wanted.device == Device::Emulated;
        let devices =
            if emulated { vec![EMULATED.to_owned(); usize::from(wanted.stores)] } else { Vec::new() };
        let layout = Layout {
            stores: wanted.stores,
            port: self.port + wanted.ports,
            cluster_enabled: true,
            regions: wanted.regions,
            replicas: wanted.replicas,
            devices,
            device_speed: wanted.speed,
        };
        let place = if emulated { choose_place(None, true)?.0 } else { Place::Temporary(self.directory()?) };
        // The probe of a real disk would disturb the measurement.
        let mut options: Vec<OsString> =
            vec!["--probe".into(), "no".into(), "--policy".into(), "even".into()];
        options.extend(wanted.options.iter().cloned());
        let mut cluster = Cluster::start(layout, place, &options)?;
        cluster.wait_until_ready(START_PATIENCE).await?;
        Ok(cluster)
    }
}

/// Waits until the region with data has a leader, and returns its place among the stores.
pub async fn leader(cluster: &Cluster, patience: Duration) -> anyhow::Result<usize> {
    let deadline = Instant::now() + patience;
    loop {
        for store in &cluster.stores {
            let admin = store.admin();
            let regions = tokio::task::spawn_blocking(move || admin.ask(&RegionsQuery {})).await?;
            let regions = regions.unwrap_or_default();
            let leads =
                regions.iter().find(|region| region.first_slot.is_some()).and_then(|region| region.leader);
            if let Some(leader) = leads {
                let at = cluster.stores.iter().position(|store| store.member.id == leader);
                return at.context("a store leads that was not started here");
            }
        }
        ensure!(Instant::now() < deadline, "the region has no leader after {} s", patience.as_secs());
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the address at which clients reach the leader.
pub async fn leader_address(cluster: &Cluster) -> anyhow::Result<SocketAddr> {
    Ok(cluster.stores[leader(cluster, START_PATIENCE).await?].member.client)
}
