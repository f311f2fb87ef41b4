//! The measurement of one device: its I/O by the probe, and the bytes that a store writes there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context};
use client::cluster_client::ClusterClient;
use device::{Control, Measured, Pair, Profile};
use indicatif::ProgressBar;
use lab::alor::{Evidence, Scale};
use lab::ycsb::{self, Workload};

use crate::command::reproduce::laboratory::{serve_flags, PATIENCE};
use crate::command::reproduce::observe::Observer;
use crate::command::CLIENT_THREADS;
use steelyard::playground::cluster::{self, choose_place, Cluster};
use steelyard::playground::layout::Layout;
use steelyard::playground::START_PATIENCE;

/// Number of regions. A store of the evaluation has as many peers.
const REGIONS: u16 = 12;
/// Length in bytes of a key and a value of the load.
const RECORD_BYTES: f64 = 16.0 + 1024.0;
/// Minimum part of the time that the device must be in use to count as the bound.
const DEVICE_SHARE_MIN: f64 = 0.7;
/// Minimum ratio between the rates of the two halves of the measurement.
const STEADY_MIN: f64 = 0.7;
const SEED: u64 = 1;

pub struct Settings {
    pub records: u64,
    pub at_most: Duration,
    pub scale: Scale,
    pub cpus: usize,
    pub port: u16,
}

pub enum Place {
    Emulated { device: String, speed: f64 },
    Real(PathBuf),
}

impl Place {
    pub fn name(&self) -> String {
        match self {
            Place::Emulated { device, .. } => device.clone(),
            Place::Real(dir) => dir.display().to_string(),
        }
    }

    /// Returns the factor by which both numbers are divided.
    fn speed(&self) -> f64 {
        match self {
            Place::Emulated { speed, .. } => *speed,
            Place::Real(_) => 1.0,
        }
    }

    /// Makes a directory that is removed with the trial.
    fn data(&self) -> anyhow::Result<cluster::Place> {
        match self {
            Place::Emulated { .. } => Ok(choose_place(None, true)?.0),
            Place::Real(dir) => {
                let dir = tempfile::Builder::new().prefix("steelyard-").tempdir_in(dir)?;
                Ok(cluster::Place::Temporary(dir))
            }
        }
    }
}

/// The measurements on one device at its actual speed.
pub struct Trial {
    pub name: String,
    pub speed: f64,
    pub file_system: String,
    pub probed: Measured,
    pub kv_bytes_per_s: f64,
    pub evidence: Evidence,
    /// The reasons why the trial says nothing about the device. Empty if it is good.
    pub void: Vec<String>,
}

impl Trial {
    /// Returns the pair of I/O and KV speeds, converted to full speed.
    pub fn pair(&self) -> Pair {
        Pair {
            name: self.name.clone(),
            io_bytes_per_s: self.probed.write_bytes_per_s / self.speed,
            kv_bytes_per_s: self.kv_bytes_per_s / self.speed,
        }
    }
}

pub async fn measure(place: &Place, settings: &Settings, bar: &ProgressBar) -> anyhow::Result<Trial> {
    bar.reset();
    bar.set_length(settings.records);
    bar.set_message("probing");
    let data = place.data()?;
    let file_system = client::place::file_system(data.path());
    let probed = probe(place, data.path()).await?;
    bar.set_message("loading");
    let layout = Layout {
        stores: 1,
        port: settings.port,
        cluster_enabled: true,
        regions: REGIONS,
        replicas: 1,
        devices: match place {
            Place::Emulated { device, .. } => vec![device.clone()],
            Place::Real(_) => Vec::new(),
        },
        device_speed: place.speed(),
    };
    let mut flags = serve_flags(&settings.scale);
    // The device's probe must not disturb the load.
    flags.extend(["--probe", "no"].map(OsString::from));
    let mut store = Cluster::start(layout, data, &flags)?;
    let loaded = load(&mut store, settings, bar).await;
    if let Some((end, words)) = store.stores[0].died().map(|end| (end, store.stores[0].last_words())) {
        return Err(loaded.err().unwrap_or_else(|| anyhow::anyhow!("the store ended")))
            .context(format!("the store {end}: {words}"));
    }
    let Loaded { kv_bytes_per_s, evidence, mut void } = loaded?;
    void.extend(evidence.void(true));
    if let (Place::Emulated { .. }, Some(used)) = (place, evidence.busiest_device()) {
        if used.device_share() < DEVICE_SHARE_MIN {
            void.push(format!(
                "not bound by the device: {:.0}% of it was used (at least {:.0}%)",
                100.0 * used.device_share(),
                100.0 * DEVICE_SHARE_MIN
            ));
        }
    }
    Ok(Trial {
        name: place.name(),
        speed: place.speed(),
        file_system,
        probed,
        kv_bytes_per_s,
        evidence,
        void,
    })
}

/// Probes the device in a child process, whose files are on the emulated device if there is one.
async fn probe(place: &Place, data: &Path) -> anyhow::Result<Measured> {
    let root = data.join("probe");
    std::fs::create_dir(&root)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["calibrate", "--probe"]).arg(&root);
    if let Place::Emulated { device, speed } = place {
        let control = data.join("probe.device");
        Control::create(&control, &device.parse::<Profile>()?, 1.0 / speed)?;
        command.envs(device::preload_env(&control, &root)?);
    }
    let output = tokio::task::spawn_blocking(move || client::process::output(&mut command)).await??;
    std::fs::remove_dir_all(&root)?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the probe failed ({}): {}", output.status, words.trim());
    serde_json::from_slice(&output.stdout).context("the probe's answer cannot be read")
}

struct Loaded {
    kv_bytes_per_s: f64,
    evidence: Evidence,
    void: Vec<String>,
}

/// The number of records loaded at a moment.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    records: u64,
}

/// Loads records and measures after the first quarter. By then memtables have been filled many
/// times, and RocksDB can postpone no more compaction.
async fn load(store: &mut Cluster, settings: &Settings, bar: &ProgressBar) -> anyhow::Result<Loaded> {
    store.wait_until_ready(START_PATIENCE).await?;
    let observer = Observer::new(store)?;
    let client = Arc::new(ClusterClient::new(vec![store.stores[0].member.client], PATIENCE));
    let load = ycsb::Settings {
        threads: settings.scale.threads,
        seed: SEED,
        ..ycsb::Settings::new(Workload::Load, settings.records)
    };
    let begin = settings.records / 4;
    let marks: Mutex<Vec<Mark>> = Mutex::new(Vec::new());
    let begun = tokio::sync::Notify::new();
    let mark = |records| {
        let mut marks = marks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        marks.push(Mark { at: Instant::now(), records });
    };
    let running = async {
        let running = ycsb::run(client, load, |records| {
            bar.set_position(records);
            if records >= begin {
                mark(records);
                begun.notify_one();
            }
        });
        let summary = tokio::time::timeout(settings.at_most, running).await.ok().transpose();
        if let Ok(Some(summary)) = &summary {
            mark(summary.operations);
        }
        // Wake a waiter even if the beginning was never reached.
        begun.notify_one();
        summary
    };
    let at_begin = async {
        begun.notified().await;
        observer.sample().await
    };
    let (summary, before) = tokio::join!(running, at_begin);
    let (summary, before, after) = (summary?, before?, observer.sample().await?);
    let marks = marks.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut void = summary.map(|summary| summary.faults()).unwrap_or_default();
    let kv_bytes_per_s = match steady(&marks, settings.records) {
        Ok(records_per_s) => records_per_s * RECORD_BYTES,
        Err((records_per_s, reason)) => {
            void.push(reason);
            records_per_s * RECORD_BYTES
        }
    };
    let evidence = Evidence::between(&before, &after, settings.cpus, CLIENT_THREADS);
    Ok(Loaded { kv_bytes_per_s, evidence, void })
}

/// Returns the records per second from the first mark to the last. The error has the rate that is
/// known, and the reason why it is no measure.
fn steady(marks: &[Mark], wanted: u64) -> Result<f64, (f64, String)> {
    let rate = |from: Mark, to: Mark| {
        let seconds = to.at.saturating_duration_since(from.at).as_secs_f64();
        to.records.saturating_sub(from.records) as f64 / seconds.max(1e-9)
    };
    let (Some(first), Some(last)) = (marks.first().copied(), marks.last().copied()) else {
        return Err((0.0, "the first quarter of the records took all of the time: raise --seconds".into()));
    };
    let whole = rate(first, last);
    let records = last.records.saturating_sub(first.records);
    if records < wanted / 2 {
        let seconds = last.at.duration_since(first.at).as_secs_f64();
        let reason = format!("too short: {records} records in {seconds:.1} s after the first quarter");
        return Err((whole, reason));
    }
    let middle = first.records + records / 2;
    let inner = marks.get(1..marks.len() - 1).unwrap_or_default();
    let middle = inner.iter().min_by_key(|mark| mark.records.abs_diff(middle)).copied();
    let (before, after) = middle.map_or((whole, whole), |middle| (rate(first, middle), rate(middle, last)));
    if before.min(after) < STEADY_MIN * before.max(after) {
        let reason = format!("not steady: {before:.0} records/s, and then {after:.0}");
        return Err((whole, reason));
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(points: &[(u64, u64)]) -> Vec<Mark> {
        let began = Instant::now();
        let mark =
            |(ms, records): &(u64, u64)| Mark { at: began + Duration::from_millis(*ms), records: *records };
        points.iter().map(mark).collect()
    }

    #[test]
    fn a_rate_is_of_the_records_after_the_first_mark() {
        assert_eq!(steady(&marks(&[(0, 300), (1000, 600), (2500, 1050)]), 1000), Ok(300.0));
    }

    #[test]
    fn what_is_cut_short_or_falls_is_no_measure() {
        let reason = |points: &[(u64, u64)]| steady(&marks(points), 1000).unwrap_err().1;
        assert!(reason(&[]).contains("raise --seconds"));
        assert!(reason(&[(0, 300), (1000, 700)]).starts_with("too short: 400 records in 1.0 s"));
        assert_eq!(reason(&[(0, 300), (1000, 650), (3000, 1000)]), "not steady: 350 records/s, and then 175");
    }
}
