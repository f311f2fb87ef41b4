//! The capability of this store, as placement uses it.
//!
//! It is configured (`capability`), or measured at the first start and stored beside the data
//! (`DIR/CAPABILITY`). `ctl probe` measures again. While the store runs, the time that its log
//! waits for the device is compared with the measurement ([`watch`]). The result is the
//! *correction*, a factor that lowers the configured or measured capability.
//!
//! A store with a configured capability still needs a reference for that comparison. It makes a
//! short measurement, which has no other use.

mod account;
mod measurements;
mod measurer;
mod persisted;
mod rounds;
mod schedule;
mod touch;
mod turn;
pub mod watch;
mod watcher;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use cluster::Place;
use device::{Fit, Ground, KvCapability, Measured};
use parking_lot::Mutex;
use placement::{Capability, Spread};

use crate::clock;
use crate::config::Config;
use crate::metrics::Metrics;
pub use account::{LogClock, Schedule};
use persisted::Persisted;
use rounds::{DeviceSpread, Round};
use schedule::Sitting;
use turn::OwnTurn;
use watch::{Reference, Watch};

pub use measurements::{look_first, run};
pub use measurer::Measurer;

/// The spread that a correction adds, because a ratio of times is less exact than a measurement.
const SPREAD_OF_CORRECTION: f64 = 1.2;

/// The thoroughness of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A short measurement that serves as a reference only.
    Brief,
    /// The measurement at the first start, before important work uses the device.
    Start,
    /// The measurement on demand, in parallel with the store's work.
    Full,
}

impl Probe {
    fn options(self) -> device::probe::Options {
        let rounds = if self == Probe::Brief { 1 } else { rounds::ROUNDS };
        let (file_bytes, bytes_max, jobs) = match self {
            Probe::Brief => (16 << 20, 16 << 20, 1),
            Probe::Start => (64 << 20, 64 << 20, 2),
            Probe::Full => (256 << 20, 1 << 30, 4),
        };
        let (time_max, bytes_max) = (self.time_max() / rounds, bytes_max / u64::from(rounds));
        device::probe::Options { file_bytes, jobs, time_max, bytes_max, fio: false, ..Default::default() }
    }

    /// Returns the time limit for all rounds together.
    fn time_max(self) -> Duration {
        Duration::from_millis(match self {
            Probe::Brief => 700,
            Probe::Start => 2000,
            Probe::Full => 5000,
        })
    }

    /// Returns the pause between two rounds.
    fn pause(self) -> Duration {
        Duration::from_millis(if self == Probe::Start { 200 } else { 50 })
    }
}

/// The reason why a probe gave no result.
#[derive(Debug, thiserror::Error)]
pub enum NotProbed {
    #[error("a probe is under way")]
    UnderWay,
    #[error("stores of this host measure their devices one after the other, and this store did not get its turn in time")]
    NoTurn,
    #[error("a probe's file would leave less than the reserve: {room} bytes of room")]
    NoRoom { room: u64 },
    #[error(transparent)]
    Failed(#[from] device::ProbeError),
    #[error("the probe's thread could not be started, or died")]
    NoThread,
}

/// The present capability of this store, for heartbeats and metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Present {
    /// The configured or measured capability, after the correction.
    pub capability: Capability,
    /// The measured device speed; 0 if it was not measured.
    pub io_bytes_per_s: f64,
    pub correction: f64,
    /// The time of a sync after the correction, possibly from a short measurement; `None` if it was
    /// not measured.
    pub sync: Option<Duration>,
    /// The uncertainty of these values.
    pub spread: Spread,
    /// The device's present time relative to the measured one; `None` if unknown.
    pub ratio: Option<f64>,
}

impl Present {
    /// Updates the metrics.
    pub fn show(&self, metrics: &Metrics) {
        metrics.set_capability(self.capability, self.correction, self.spread, self.ratio);
    }
}

pub struct OwnCapability {
    told: Option<Capability>,
    fit: Fit,
    /// The device under the data directory; `None` if the kernel does not report it.
    ground: Option<Ground>,
    place: Place,
    state: Mutex<State>,
    /// True from the request of a probe to its end.
    asked: AtomicBool,
    /// True while the device is being measured.
    probing: AtomicBool,
    pub turn: OwnTurn,
    pub log: Arc<LogClock>,
}

struct State {
    kept: Option<Persisted>,
    correction: f64,
    ratio: Option<f64>,
    /// A counter that increases with each new measurement of the device.
    measurements: u64,
}

impl OwnCapability {
    pub fn load(config: &Config) -> OwnCapability {
        let ground = read_ground(config);
        OwnCapability {
            told: told(config),
            fit: config.fit.clone(),
            state: Mutex::new(State {
                kept: read_persisted(config, ground.as_ref()),
                correction: 1.0,
                ratio: None,
                measurements: 0,
            }),
            place: ground.as_ref().map(place_of).unwrap_or_default(),
            ground,
            asked: AtomicBool::new(false),
            probing: AtomicBool::new(false),
            turn: OwnTurn::default(),
            log: Arc::default(),
        }
    }

    /// Returns the fingerprints by which other stores recognise this store's host and device.
    pub fn place(&self) -> Place {
        self.place
    }

    pub fn present(&self) -> Present {
        let state = self.state.lock();
        let measured = state.kept.as_ref().filter(|kept| !kept.brief);
        let whole = self.told.or_else(|| measured.map(|kept| self.counts_for(&kept.measured)));
        Present {
            capability: whole.map_or(Capability::UNKNOWN, |whole| Capability {
                kv_bytes_per_s: whole.kv_bytes_per_s * state.correction,
                ops_per_s: whole.ops_per_s * state.correction,
            }),
            io_bytes_per_s: measured.map_or(0.0, |kept| kept.measured.write_bytes_per_s),
            correction: state.correction,
            sync: state.kept.as_ref().and_then(|kept| {
                Duration::try_from_secs_f64(kept.measured.sync_latency.as_secs_f64() / state.correction).ok()
            }),
            spread: self.spread(&state),
            ratio: state.ratio,
        }
    }

    /// Returns the spread. A configured capability has no uncertainty except that of the
    /// correction.
    fn spread(&self, state: &State) -> Spread {
        let corrected = if state.correction < 1.0 { SPREAD_OF_CORRECTION } else { 1.0 };
        let kept = state.kept.as_ref();
        let known = match (self.told, kept) {
            (Some(_), kept) => Spread { sync: kept.map_or(0.0, |kept| kept.spread.sync), ..Spread::EXACT },
            (None, Some(kept)) if !kept.brief => rounds::spread_of(&kept.measured, kept.spread, &self.fit),
            (None, kept) => Spread { sync: kept.map_or(0.0, |kept| kept.spread.sync), ..Spread::UNKNOWN },
        };
        Spread {
            kv_bytes_per_s: known.kv_bytes_per_s * corrected,
            ops_per_s: known.ops_per_s * corrected,
            sync: known.sync * corrected,
        }
    }

    /// Returns the time until the next sitting; `None` if the present result is good enough.
    fn next_sitting(&self, now_unix_ms: u64) -> Option<Duration> {
        let state = self.state.lock();
        let kept = state.kept.as_ref().filter(|kept| !kept.brief && !self.is_told())?;
        if state.correction < 1.0 && kept.sittings >= schedule::SITTINGS {
            // The device has changed, and the watch tracks it.
            return None;
        }
        let spread = rounds::spread_of(&kept.measured, kept.spread, &self.fit).kv_bytes_per_s;
        schedule::rest(kept.sittings, spread, &kept.history, now_unix_ms)
    }

    /// Returns the rounds that a new sitting continues. Returns none if the device is corrected,
    /// because its speed has changed since the measurement.
    fn previous_rounds(&self, probe: Probe) -> (Vec<Round>, u32) {
        let state = self.state.lock();
        let kept = state.kept.as_ref().filter(|kept| !kept.brief && state.correction == 1.0);
        match (probe, kept) {
            (Probe::Start, Some(kept)) => (kept.rounds.clone(), kept.sittings),
            _ => (Vec::new(), 0),
        }
    }

    pub fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Returns the capability of a store on a device with this measurement.
    pub fn counts_for(&self, measured: &Measured) -> Capability {
        counts_for(measured, &self.fit)
    }

    /// Returns the measurement that the store still needs.
    fn lacks(&self) -> Option<Probe> {
        let state = self.state.lock();
        match (&state.kept, self.is_told()) {
            (None, true) => Some(Probe::Brief),
            (None, false) => Some(Probe::Start),
            // The capability was configured until now.
            (Some(kept), false) if kept.brief => Some(Probe::Start),
            (Some(_), _) => None,
        }
    }

    fn reference(&self) -> (u64, Option<Reference>) {
        let state = self.state.lock();
        let reference = state.kept.as_ref().map(|kept| Reference {
            sync_latency: kept.measured.sync_latency,
            write_bytes_per_s: kept.measured.write_bytes_per_s,
        });
        (state.measurements, reference)
    }

    /// Returns true if the configured capability is known to be too high. A measurement would end
    /// the correction without replacing the configured value.
    fn is_told_too_much(&self) -> bool {
        let state = self.state.lock();
        self.is_told() && (state.correction < 1.0 || state.ratio.is_some_and(|ratio| ratio > watch::SLOW))
    }

    /// Stores a new measurement and ends the correction, because the measurement shows the device's
    /// present speed.
    fn take(&self, kept: Persisted) {
        let mut state = self.state.lock();
        state.kept = Some(kept);
        (state.correction, state.ratio) = (1.0, None);
        state.measurements += 1;
    }

    fn history(&self) -> Vec<Sitting> {
        self.state.lock().kept.as_ref().map(|kept| kept.history.clone()).unwrap_or_default()
    }

    fn correct(&self, watch: &Watch) {
        let mut state = self.state.lock();
        (state.correction, state.ratio) = (watch.correction(), watch.ratio());
    }
}

fn told(config: &Config) -> Option<Capability> {
    let told = config.this().capability?;
    Some(Capability { kv_bytes_per_s: told.kv_bytes_per_s, ops_per_s: told.ops_per_s })
}

fn place_of(ground: &Ground) -> Place {
    // 0 means unknown.
    let fingerprint = |key: &str| types::key_hash(key.as_bytes()).max(1);
    Place {
        host: ground.host_key().map_or(0, fingerprint),
        device: ground.device_key().map_or(0, |key| fingerprint(&key)),
    }
}

fn read_ground(config: &Config) -> Option<Ground> {
    let read = Ground::read(&config.dir, config.device_control.as_deref());
    read.map_err(|error| tracing::warn!(%error, "the device under the data directory cannot be identified"))
        .ok()
}

/// Reads the last measurement, if it was made on the directory's present device.
/// Returns the measurement that an earlier start made of this device.
pub fn measured_before(config: &Config) -> Option<Measured> {
    read_persisted(config, read_ground(config).as_ref()).map(|kept| kept.measured)
}

fn read_persisted(config: &Config, ground: Option<&Ground>) -> Option<Persisted> {
    let kept = Persisted::read(&config.dir).unwrap_or_else(|error| {
        tracing::warn!(%error, "the measurement of the device cannot be read; the device will be measured again");
        None
    })?;
    if let (Some(before), Some(now)) = (&kept.ground, ground) {
        if before.is_another_device(now) {
            tracing::warn!(
                "the data is on another device ({now}) than the one that was measured ({before}): the \
                 measurement is dropped, and the device will be measured again"
            );
            return None;
        }
    }
    // A new configured capability describes the present device, so the old reference does not
    // apply.
    match (kept.told_bytes_per_s, told(config)) {
        (Some(before), Some(told)) if before != told.kv_bytes_per_s => None,
        _ => Some(kept),
    }
}

fn counts_for(measured: &Measured, fit: &Fit) -> Capability {
    let kv = KvCapability::measured(measured, fit);
    Capability { kv_bytes_per_s: kv.kv_bytes_per_s, ops_per_s: kv.kv_ops_per_s }
}

/// The result of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    pub measured: Measured,
    /// True if the measurement was stored and is the reference from now on.
    pub is_reference: bool,
}

/// A guard that excludes other probes.
struct Asked(Measurer);

impl Asked {
    fn take(measurer: &Measurer) -> Option<Asked> {
        let is_first = !measurer.own.asked.swap(true, Ordering::AcqRel);
        is_first.then(|| Asked(measurer.clone()))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.own.asked.store(false, Ordering::Release);
    }
}

/// Measures the device in a thread of its own, when this store has the turn. Stores and logs the
/// result. Only one probe runs at a time. `patience` limits the wait for the turn; `None` waits
/// without a limit.
pub async fn probe(
    measurer: &Measurer,
    probe: Probe,
    patience: Option<Duration>,
) -> Result<Probed, NotProbed> {
    let asked = Asked::take(measurer).ok_or(NotProbed::UnderWay)?;
    let turn = turn::take(measurer);
    let turn = match patience {
        Some(patience) => tokio::time::timeout(patience, turn).await.map_err(|_| NotProbed::NoTurn)?,
        None => turn.await,
    };
    let (answer, told) = tokio::sync::oneshot::channel();
    let of_thread = measurer.clone();
    let body = move || {
        let probing = &of_thread.own.probing;
        probing.store(true, Ordering::Release);
        let outcome = probe_here(&of_thread, probe);
        probing.store(false, Ordering::Release);
        drop((turn, asked));
        // If the store is stopping, no caller is waiting.
        let _ = answer.send(outcome);
    };
    std::thread::Builder::new().name("probe".into()).spawn(body).map_err(|_| NotProbed::NoThread)?;
    let probed = told.await.map_err(|_| NotProbed::NoThread)??;
    measurer.cluster.report_soon.notify_one();
    Ok(probed)
}

fn probe_here(measurer: &Measurer, probe: Probe) -> Result<Probed, NotProbed> {
    let options = probe.options();
    let room = measurer.disk.room();
    if room < options.file_bytes {
        return Err(NotProbed::NoRoom { room });
    }
    let own = &measurer.own;
    let previous = own.previous_rounds(probe);
    let began_unix_ms = clock::unix_millis();
    let result = rounds::measure(&measurer.config.dir, probe, (&previous.0, previous.1))?;
    let measured = result.measured;
    let is_reference = !own.is_told_too_much();
    if is_reference {
        let mut history = own.history();
        history.push(Sitting { began_unix_ms, ended_unix_ms: clock::unix_millis() });
        own.take(keep(&measurer.config, result, probe, own.ground.as_ref(), history));
    } else {
        tracing::warn!(
            "the device under this store writes {} and syncs in {}; it is slower than when the capability was \
             configured, so the old measurement remains the reference",
            rate(measured.write_bytes_per_s),
            time(measured.sync_latency),
        );
    }
    Ok(Probed { measured, is_reference })
}

/// Writes and logs a measurement. The last entry of `history` is the sitting that produced it.
fn keep(
    config: &Config,
    result: rounds::Result,
    probe: Probe,
    ground: Option<&Ground>,
    mut history: Vec<Sitting>,
) -> Persisted {
    let (measured, spread) = (result.measured, result.spread);
    let counts = counts_for(&measured, &config.fit);
    let mut kept = Persisted::new(result, counts, probe == Probe::Brief, config.fit.provenance());
    kept.told_bytes_per_s = told(config).map(|told| told.kv_bytes_per_s);
    kept.ground = ground.cloned();
    history.drain(..history.len().saturating_sub(schedule::HISTORY_MAX));
    kept.history = history;
    if let Err(error) = kept.write(&config.dir) {
        tracing::warn!(%error, "the measurement cannot be stored: the next start will measure the device again");
    }
    say_measured(&measured, spread, counts, config.this().capability.is_some());
    kept
}

fn say_measured(measured: &Measured, spread: DeviceSpread, counts: Capability, is_told: bool) {
    let device = format!(
        "the device under this store writes {} (to within a factor of {:.2}) and syncs in {} ({:?})",
        rate(measured.write_bytes_per_s),
        spread.write,
        time(measured.sync_latency),
        measured.method,
    );
    match is_told {
        true => tracing::info!("{device}: this is the reference; the configured capability stays in effect"),
        false => tracing::info!(
            "{device}: the store's capability is {} of keys and values, {:.0} operations/s",
            rate(counts.kv_bytes_per_s),
            counts.ops_per_s
        ),
    }
}

pub fn rate(bytes_per_s: f64) -> String {
    format!("{:.1} MB/s", bytes_per_s / 1e6)
}

fn time(latency: Duration) -> String {
    match latency.as_secs_f64() * 1e3 {
        ms if ms < 0.1 => format!("{:.0} us", ms * 1e3),
        ms => format!("{ms:.1} ms"),
    }
}

#[cfg(test)]
mod tests;
