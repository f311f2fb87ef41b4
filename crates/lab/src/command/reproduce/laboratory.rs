//! Clusters of real stores on emulated devices, one for each run.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context};
use bytes::Bytes;
use client::admin::StoreRow;
use client::cluster_client::{Call, ClusterClient, Patience};
use indicatif::ProgressBar;
use lab::alor::{
    capacity_bytes, devices, records, scaled_devices, Case, Evidence, Laboratory, Measured, Phase, Rest,
    Scale, Setup, REQUEST_TIMEOUT_MS,
};
use lab::ycsb::{self, Settings, Workload};

use super::observe::Observer;
use crate::command::CLIENT_THREADS;
use steelyard::ctl::unix_ms;
use steelyard::playground::cluster::{choose_place, Cluster, Place};
use steelyard::playground::layout::Layout;
use steelyard::playground::START_PATIENCE;

const WORKLOADS: [Workload; 4] = [Workload::Load, Workload::A, Workload::B, Workload::C];
/// Times that the client waits. A store gives up first.
pub const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(2),
    reply: Duration::from_millis(REQUEST_TIMEOUT_MS + 10_000),
    whole: Duration::from_millis(REQUEST_TIMEOUT_MS + 20_000),
};
/// Maximum time until leaders have reached their places in an empty cluster.
pub const PLACING_PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time until all stores of a cluster have measured their devices, one after the other.
const PROBING_PATIENCE: Duration = Duration::from_secs(300);
const QUIET: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(250);

pub struct Stores {
    data: Option<PathBuf>,
    port: u16,
    /// True if stores measure their devices, and false if they are told the devices' speeds.
    pub probed: bool,
    pub progress: ProgressBar,
}

impl Stores {
    pub fn new(data: Option<PathBuf>, port: u16, probed: bool) -> anyhow::Result<Stores> {
        if let Some(data) = &data {
            std::fs::create_dir_all(data).with_context(|| format!("{} cannot be made", data.display()))?;
        }
        Ok(Stores { data, port, probed, progress: super::progress() })
    }

    /// Returns a directory for the data of a run, which is removed with the run.
    fn place(&self) -> anyhow::Result<Place> {
        match &self.data {
            Some(data) => {
                let dir = tempfile::Builder::new().prefix("steelyard-alor-").tempdir_in(data)?;
                Ok(Place::Temporary(dir))
            }
            None => Ok(choose_place(None, true)?.0),
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn file_system(&self) -> String {
        match self.place() {
            Ok(place) => client::place::file_system(place.path()),
            Err(_) => String::new(),
        }
    }

    pub fn start(&self, mix: &str, policy: &str, setup: &Setup) -> anyhow::Result<Cluster> {
        let devices = scaled_devices(mix, &setup.scale).map_err(|error| anyhow!(error))?;
        let capacity = capacity_bytes(mix, &setup.scale);
        self.start_wanted(&Wanted { devices, capacity, ..Wanted::new(policy, &setup.scale) })
    }

    pub fn start_wanted(&self, wanted: &Wanted<'_>) -> anyhow::Result<Cluster> {
        let layout = wanted.layout(self.port)?;
        let mut members = layout.members()?;
        if self.probed {
            members.iter_mut().for_each(|member| member.capability = None);
        }
        Cluster::start_members(layout, members, self.place()?, &wanted.options())
    }

    /// Waits until every store of an empty cluster knows its capability, and leaders and peers are
    /// in their places.
    pub async fn placed(&self, observer: &Observer) -> anyhow::Result<()> {
        let started = Instant::now();
        while self.probed && !observer.glance().await?.stores.iter().all(is_measured) {
            ensure!(started.elapsed() < PROBING_PATIENCE, "a store has not measured its device");
            tokio::time::sleep(LOOK).await;
        }
        settle(observer, PLACING_PATIENCE).await?;
        Ok(())
    }
}

/// The description of a cluster to start.
pub struct Wanted<'a> {
    /// The device of each store. Empty for real devices.
    pub devices: Vec<String>,
    /// The number of stores if there are no devices.
    pub stores: usize,
    pub policy: &'a str,
    pub scale: &'a Scale,
    pub regions: u16,
    pub capacity: Option<u64>,
    pub extra: Vec<OsString>,
}

impl<'a> Wanted<'a> {
    pub fn new(policy: &'a str, scale: &'a Scale) -> Wanted<'a> {
        Wanted {
            devices: Vec::new(),
            stores: 0,
            policy,
            scale,
            regions: scale.regions,
            capacity: scale.capacity_bytes(),
            extra: Vec::new(),
        }
    }

    pub fn layout(&self, port: u16) -> anyhow::Result<Layout> {
        Ok(Layout {
            stores: self.devices.len().max(self.stores).try_into()?,
            port,
            cluster_enabled: true,
            regions: self.regions,
            replicas: 3,
            devices: self.devices.clone(),
            device_speed: self.scale.device_speed,
        })
    }

    /// Returns the options of every store.
    pub fn options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> = vec!["--policy".into(), self.policy.into()];
        if let Some(bytes) = self.capacity {
            options.extend(["--capacity".into(), bytes.to_string().into()]);
        }
        options.extend(serve_flags(self.scale));
        options.extend(self.extra.iter().cloned());
        options
    }
}

impl Laboratory for Stores {
    fn supports(&self, mix: &str, policy: &str) -> Result<(), String> {
        if policy.parse::<placement::Policy>().is_err() {
            return Err(format!("policy '{policy}' is unknown to this program"));
        }
        for device in devices(mix)? {
            if device.parse::<device::Profile>().is_err() {
                return Err(format!("stores {mix}: device '{device}' is unknown to this program"));
            }
        }
        Ok(())
    }

    async fn measure(&mut self, case: &Case, setup: &Setup) -> anyhow::Result<Measured> {
        let mut cluster = self.start(&case.mix, &case.policy, setup)?;
        let measured = self.phases(&mut cluster, case, setup).await;
        if measured.is_err() {
            for store in &mut cluster.stores {
                if let Some(end) = store.died() {
                    let words = store.last_words();
                    return measured.with_context(|| format!("store {} {end}: {words}", store.member.id));
                }
            }
        }
        measured
    }
}

impl Stores {
    async fn phases(&self, cluster: &mut Cluster, case: &Case, setup: &Setup) -> anyhow::Result<Measured> {
        cluster.wait_until_ready(START_PATIENCE).await?;
        let observer = Observer::new(cluster)?;
        self.progress.set_message(format!("{}: placing leaders", case.name()));
        self.placed(&observer).await?;
        let addresses = cluster.stores.iter().map(|store| store.member.client).collect();
        let client = Arc::new(ClusterClient::new(addresses, PATIENCE));
        let records = records(&case.mix, &setup.scale).map_err(|error| anyhow!(error))?;
        let mut phases = Vec::new();
        let (mut rests, started_unix_ms) = (Vec::new(), unix_ms());
        for workload in WORKLOADS {
            if workload != Workload::Load {
                self.progress.set_message(format!("{}: coming to rest", case.name()));
                let seconds =
                    rest(&observer, &client, setup.scale.regions, setup.scale.settle_at_most()).await?;
                rests.push(Rest { before: workload, seconds });
            }
            let settings = Settings {
                threads: setup.scale.threads,
                at_most: Some(setup.scale.phase_at_most()),
                // The keys are the same under every policy. They differ between runs and workloads,
                // because a cache would otherwise know from the previous workload which keys come
                // next.
                seed: seed(setup.seed, case.run, phases.len()),
                ..Settings::new(workload, records)
            };
            self.progress.set_length(records);
            self.progress.set_position(0);
            self.progress.set_message(format!("{}: {}", case.name(), workload.name()));
            let before = observer.sample().await?;
            let bar = &self.progress;
            let summary = tokio::select! {
                summary = ycsb::run(client.clone(), settings, |done| bar.set_position(done)) => summary?,
                failed = observer.count_moves() => return Err(failed),
            };
            let after = observer.sample().await?;
            let evidence = Evidence::between(&before, &after, setup.cpus, CLIENT_THREADS);
            let phase = Phase::new(summary, evidence);
            self.tell(case, &phase);
            phases.push(phase);
        }
        Ok(Measured { phases, rests, moves: observer.moves(started_unix_ms) })
    }

    fn tell(&self, case: &Case, phase: &Phase) {
        let void =
            if phase.void.is_empty() { String::new() } else { format!("  VOID: {}", phase.void.join("; ")) };
        let line = format!(
            "{} {}: {} ops/s, mean {}, p99 {}{void}",
            case.name(),
            phase.workload().name(),
            client::table::count(phase.summary.per_second()),
            client::table::micros(phase.summary.latency.mean_us),
            client::table::micros(phase.summary.latency.p99_us as f64),
        );
        say(&self.progress, &line);
    }
}

fn seed(setup: u64, run: usize, phase: usize) -> u64 {
    let numbers = [run as u64, phase as u64];
    numbers.iter().fold(setup, |seed, number| seed.wrapping_mul(1000).wrapping_add(*number))
}

/// Returns the flags that make a store smaller than the paper's stores in proportion to its data.
pub fn serve_flags(scale: &Scale) -> Vec<OsString> {
    let mut flags: Vec<OsString> = Vec::new();
    let times = [("--raft-tick", scale.raft_tick_ms()), ("--request-timeout", REQUEST_TIMEOUT_MS)];
    flags.extend(times.iter().flat_map(|(name, ms)| [OsString::from(name), ms.to_string().into()]));
    for (name, value) in scale.store_options() {
        flags.extend(["--rocksdb".into(), format!("{name}={value}").into()]);
    }
    flags
}

fn is_measured(store: &StoreRow) -> bool {
    store.capability_spread > 0.0
}

/// Prints a line above the progress bar. Without a terminal it prints to stderr, because indicatif
/// would print nothing.
pub fn say(progress: &ProgressBar, line: &str) {
    if progress.is_hidden() {
        eprintln!("{line}");
    } else {
        progress.println(line);
    }
}

/// Waits until no operator is in flight, peers and leaders stay in place, no peer lags and no store
/// compacts. Returns the seconds until then, or `None` if it took longer than `patience`.
pub async fn settle(observer: &Observer, patience: Duration) -> anyhow::Result<Option<f64>> {
    let started = Instant::now();
    let mut known = None;
    let mut quiet_since = Instant::now();
    while started.elapsed() < patience {
        let now = observer.placement().await?;
        if now.operators > 0 || now.worst_lag > 0 || now.compactions > 0 || known.as_ref() != Some(&now.peers)
        {
            known = Some(now.peers);
            quiet_since = Instant::now();
        }
        if quiet_since.elapsed() >= QUIET {
            return Ok(Some(quiet_since.duration_since(started).as_secs_f64()));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}

/// Waits like `settle`, for a cluster that is in use.
pub async fn rest(
    observer: &Observer,
    client: &ClusterClient,
    regions: u16,
    patience: Duration,
) -> anyhow::Result<Option<f64>> {
    tokio::select! {
        settled = settle(observer, patience) => settled,
        never = keep_awake(client, regions) => match never {},
    }
}

/// Reads a record of each region now and then, because regions without requests hibernate. After
/// that, a full election timeout must pass before their leaders may answer reads without asking
/// others. With Raft's clock slowed like the devices, that takes six seconds and would dominate a
/// short workload.
async fn keep_awake(client: &ClusterClient, regions: u16) -> Infallible {
    let read = |record| {
        let words = [Bytes::from_static(b"GET"), Bytes::from(ycsb::key(record))];
        Call::new(words.into(), true)
    };
    let calls: Vec<Call> = one_of_each(regions).into_iter().map(read).collect();
    loop {
        // The answers do not matter. The next workload will notice any failure.
        client.call_many(&calls).await;
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns, for each of `regions` equal ranges of slots, the first record near the middle of the
/// range.
fn one_of_each(regions: u16) -> Vec<u64> {
    let slots = u64::from(types::SLOT_COUNT);
    let is_in = |record: u64, region: u64| {
        let at = u64::from(types::slot_of_key(ycsb::key(record).as_bytes())) * u64::from(regions);
        at / slots == region && (slots / 4..slots * 3 / 4).contains(&(at % slots))
    };
    // The search ends because every slot has keys.
    (0..u64::from(regions)).filter_map(|region| (0..).find(|record| is_in(*record, region))).collect()
}

/// Returns the directory of a store's rows.
pub fn rows_dir(cluster: &Path, store: u64) -> PathBuf {
    cluster.join(format!("store-{store}")).join("rows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_phases_of_a_reproduction_share_a_seed() {
        let all = (1..4).flat_map(|run| (0..4).map(move |phase| seed(1, run, phase)));
        assert_eq!(all.collect::<std::collections::BTreeSet<_>>().len(), 12);
    }

    #[test]
    fn every_region_has_a_record_that_keeps_it_awake() {
        let slots: Vec<u16> =
            one_of_each(24).iter().map(|record| types::slot_of_key(ycsb::key(*record).as_bytes())).collect();
        let regions: Vec<u32> = slots.iter().map(|slot| u32::from(*slot) * 24 / 16384).collect();
        assert_eq!(regions, (0..24).collect::<Vec<_>>());
        // The smallest load has these records.
        assert!(one_of_each(24).iter().all(|record| *record < 1000));
    }
}
