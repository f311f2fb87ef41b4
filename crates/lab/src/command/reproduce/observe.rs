//! The state of a cluster's stores, devices and machine at one moment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::Context;
use client::admin::{
    AdminClient, AdminFailure, Operation, OperatorRow, OperatorsQuery, RegionRow, RegionsQuery, StoreRow,
    StoresQuery,
};
use lab::alor::{Sample, StoreSample};
use lab::measure::{cpu_time, machine_busy_time, threads_cpu_time};
use lab::scenario::Move;

use super::laboratory::rows_dir;
use steelyard::playground::cluster::Cluster;

struct Place {
    store: u64,
    device: String,
    pid: u32,
    admin: AdminClient,
    control: Option<PathBuf>,
    rows: PathBuf,
}

/// Observes a cluster. It asks from threads of its own, because HTTP requests and files block.
pub struct Observer {
    places: Arc<Vec<Place>>,
    started: Instant,
    /// Every operator seen so far. The cluster remembers only the last few hundred.
    seen: Arc<Seen>,
}

/// The identity of an operator: when it began, its region, kind, source and target. Sorts by the
/// beginning.
type Begun = (u64, u64, String, Option<u64>, Option<u64>);

fn begun(row: &OperatorRow) -> Begun {
    (row.started_unix_ms, row.region, row.kind.clone(), row.from, row.to)
}

/// The leader and peers of each region: its id, leader and peers.
pub type Peers = Vec<(u64, Option<u64>, Vec<u64>)>;

pub struct Glance {
    pub stores: Vec<StoreRow>,
    pub regions: Vec<RegionRow>,
    pub operators: Vec<OperatorRow>,
}

pub struct Placement {
    pub operators: usize,
    pub worst_lag: u64,
    /// Number of compactions running in all stores.
    pub compactions: u64,
    pub peers: Peers,
}

impl Observer {
    /// Creates an observer. All stores must be running.
    pub fn new(cluster: &Cluster) -> anyhow::Result<Observer> {
        let mut places = Vec::new();
        for store in &cluster.stores {
            let id = store.member.id;
            let control = cluster.dir().join(format!("store-{id}.device"));
            places.push(Place {
                store: id,
                device: store.member.device.clone(),
                pid: store.pid().with_context(|| format!("store {id} does not run"))?,
                admin: store.admin(),
                control: control.exists().then_some(control),
                rows: rows_dir(cluster.dir(), id),
            });
        }
        Ok(Observer { places: Arc::new(places), started: Instant::now(), seen: Arc::default() })
    }

    #[cfg(test)]
    pub fn of_nothing() -> Observer {
        Observer { places: Arc::default(), started: Instant::now(), seen: Arc::default() }
    }

    pub async fn sample(&self) -> anyhow::Result<Sample> {
        let (places, started) = (self.places.clone(), self.started);
        let sample = tokio::task::spawn_blocking(move || sample(&places, started)).await??;
        Ok(Sample { moves: self.note_moves().await? as u64, ..sample })
    }

    /// Notes operators while it is polled, often enough to miss none. Returns only on a failure.
    pub async fn count_moves(&self) -> anyhow::Error {
        loop {
            tokio::time::sleep(COUNT_EVERY).await;
            if let Err(failed) = self.note_moves().await {
                return failed;
            }
        }
    }

    /// Returns the number of operators begun so far.
    async fn note_moves(&self) -> anyhow::Result<usize> {
        let (places, seen) = (self.places.clone(), self.seen.clone());
        tokio::task::spawn_blocking(move || {
            let history = ask(&places, &OperatorsQuery { history: true })?;
            Ok(note(&seen, &history))
        })
        .await?
    }

    /// Returns every operator seen, in the order in which they began. Times are seconds from
    /// `since_unix_ms`.
    pub fn moves(&self, since_unix_ms: u64) -> Vec<Move> {
        let seconds = |unix_ms: u64| (unix_ms as f64 - since_unix_ms as f64) / 1000.0;
        let of = |row: &OperatorRow| Move {
            at_s: seconds(row.started_unix_ms),
            ended_s: row.finished_unix_ms.map(seconds),
            region: row.region,
            kind: row.kind.clone(),
            from: row.from,
            to: row.to,
            reason: row.reason.clone(),
        };
        locked(&self.seen).values().map(of).collect()
    }

    #[cfg(test)]
    pub fn note(&self, operators: &[OperatorRow]) {
        note(&self.seen, operators);
    }

    /// Returns what the cluster reports now, with the operators that it remembers.
    pub async fn glance(&self) -> anyhow::Result<Glance> {
        let (places, seen) = (self.places.clone(), self.seen.clone());
        tokio::task::spawn_blocking(move || {
            let operators = ask(&places, &OperatorsQuery { history: true })?;
            note(&seen, &operators);
            let stores = ask(&places, &StoresQuery {})?;
            let regions = ask(&places, &RegionsQuery {})?;
            Ok(Glance { stores, regions, operators })
        })
        .await?
    }

    pub async fn placement(&self) -> anyhow::Result<Placement> {
        let places = self.places.clone();
        tokio::task::spawn_blocking(move || placement(&places)).await?
    }
}

type Seen = Mutex<BTreeMap<Begun, OperatorRow>>;

/// No code that can panic runs under this lock.
fn locked(seen: &Seen) -> MutexGuard<'_, BTreeMap<Begun, OperatorRow>> {
    seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Adds operators, or updates those known already. Returns their number.
fn note(seen: &Seen, operators: &[OperatorRow]) -> usize {
    let mut seen = locked(seen);
    seen.extend(operators.iter().map(|row| (begun(row), row.clone())));
    seen.len()
}

/// The interval between two requests for operators. A cluster needs much longer to begin as many
/// operators as it remembers.
const COUNT_EVERY: Duration = Duration::from_secs(4);

/// Asks the stores in turn until one answers. On a busy machine a store may be late.
fn ask<O: Operation<Of = ()>>(places: &[Place], question: &O) -> anyhow::Result<O::Reply> {
    const ATTEMPTS: usize = 5;
    let mut last = None;
    for _ in 0..ATTEMPTS {
        for place in places {
            match place.admin.ask(question) {
                Ok(answer) => return Ok(answer),
                Err(failure) => last = Some(failure),
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(last.context("there is no store to ask")?.into())
}

fn placement(places: &[Place]) -> anyhow::Result<Placement> {
    let operators = ask(places, &OperatorsQuery { history: false })?;
    let regions = ask(places, &RegionsQuery {})?;
    let worst_lag = worst_lag(&regions);
    let mut compactions = 0;
    for place in places {
        compactions += patiently(|| place.admin.gauge("compactions_running"))?;
    }
    let peers = regions
        .into_iter()
        .map(|region| {
            let stores = region.peers.iter().map(|peer| peer.store).collect();
            (region.id, region.leader, stores)
        })
        .collect();
    Ok(Placement { operators: operators.len(), worst_lag, compactions, peers })
}

fn worst_lag(regions: &[RegionRow]) -> u64 {
    let lags = regions.iter().flat_map(|region| &region.peers).filter_map(|peer| peer.lag);
    lags.max().unwrap_or(0)
}

/// Returns a sample without the number of moves.
fn sample(places: &[Place], started: Instant) -> anyhow::Result<Sample> {
    let rows = ask(places, &StoresQuery {})?;
    let regions = ask(places, &RegionsQuery {})?;
    let mut stores = Vec::new();
    for place in places {
        let row = rows.iter().find(|row| row.id == place.store);
        stores.push(place.sample(row)?);
    }
    Ok(Sample {
        at_s: started.elapsed().as_secs_f64(),
        machine_busy_s: seconds(machine_busy_time()),
        client_cpu_s: seconds(cpu_time(std::process::id())),
        stores,
        moves: 0,
        worst_lag: worst_lag(&regions),
    })
}

fn seconds(time: Option<Duration>) -> f64 {
    time.unwrap_or_default().as_secs_f64()
}

impl Place {
    fn sample(&self, row: Option<&StoreRow>) -> anyhow::Result<StoreSample> {
        let gone = || format!("store {} is gone", self.store);
        let counter = |name: &str| patiently(|| self.admin.counter(name));
        let (compactions, compaction_bytes) =
            compactions(&self.rows).with_context(|| format!("{} cannot be read", self.rows.display()))?;
        let mut sample = StoreSample {
            store: self.store,
            device: self.device.clone(),
            cpu_s: seconds(Some(cpu_time(self.pid).with_context(gone)?)),
            threads_cpu_s: threads_cpu_time(self.pid)
                .with_context(gone)?
                .into_iter()
                .map(|(name, time)| (name, time.as_secs_f64()))
                .collect(),
            log_bytes: counter("log_bytes")?,
            rows_bytes: counter("rows_bytes_written")?,
            compactions,
            compaction_bytes,
            leaders: row.map_or(0, |row| row.leaders as u64),
            regions: row.map_or(0, |row| row.regions as u64),
            used_bytes: row.map_or(0, |row| row.used_bytes),
            ..StoreSample::default()
        };
        if let Some(path) = &self.control {
            let control = device::Control::open(path)?;
            let (stats, profile) = (control.stats(), control.profile());
            // For a hybrid device, count only what passed through its cache, because the profile's
            // bandwidths are those of the device behind the cache.
            let (written, read, sync) = match &profile.cache {
                Some(cache) => (stats.bytes_destaged, stats.bytes_missed, cache.sync_latency),
                None => (stats.bytes_written, stats.bytes_read, profile.sync_latency),
            };
            sample.device_written_bytes = written;
            sample.device_read_bytes = read;
            sample.device_flushes = stats.flushes;
            sample.device_write_bytes_per_s = profile.write_bytes_per_s as f64;
            sample.device_read_bytes_per_s = profile.read_bytes_per_s as f64;
            sample.device_sync_s = sync.as_secs_f64();
        }
        Ok(sample)
    }
}

/// Asks one store repeatedly until it answers. On a busy machine it may be late.
fn patiently(ask: impl Fn() -> Result<u64, AdminFailure>) -> anyhow::Result<u64> {
    const ATTEMPTS: usize = 5;
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match ask() {
            Ok(count) => return Ok(count),
            Err(failure) => last = Some(failure),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(last.expect("at least one attempt failed").into())
}

/// Returns the number of compactions that RocksDB has finished and the bytes that they wrote,
/// according to its own text logs.
fn compactions(rows: &Path) -> std::io::Result<(u64, u64)> {
    let (mut number, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(rows)? {
        let path = entry?.path();
        if path
            .file_name()
            .is_some_and(|name| name == "LOG" || name.to_string_lossy().starts_with("LOG.old."))
        {
            // A log may have been rotated after the directory was read.
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for output in text.lines().filter_map(finished) {
                number += 1;
                bytes += output;
            }
        }
    }
    Ok((number, bytes))
}

/// Returns the bytes that a compaction wrote, from the event log line of its end.
fn finished(line: &str) -> Option<u64> {
    let (_, event) = line.split_once("EVENT_LOG_v1 ")?;
    if !event.contains("\"compaction_finished\"") {
        return None;
    }
    let event: serde_json::Value = serde_json::from_str(event).ok()?;
    event["total_output_size"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compactions_are_counted_by_their_ends() {
        let dir = tempfile::tempdir().unwrap();
        let line = |event: &str, size: u64| {
            format!("2026/11/21-15:08:59 26091 EVENT_LOG_v1 {{\"event\": \"{event}\", \"total_output_size\": {size}}}\n")
        };
        let old = line("compaction_finished", 100) + &line("flush_finished", 7) + "text\n";
        std::fs::write(dir.path().join("LOG.old.1"), old).unwrap();
        let new = line("compaction_started", 1) + &line("compaction_finished", 20);
        std::fs::write(dir.path().join("LOG"), new).unwrap();
        std::fs::write(dir.path().join("000012.log"), line("compaction_finished", 5000)).unwrap();
        assert_eq!(compactions(dir.path()).unwrap(), (2, 120));
    }
}
