//! What this store can do, as placement counts it.
//!
//! It is told (`capability`), or measured when the store starts for the first time and kept beside the data
//! (`DIR/CAPABILITY`); `ctl probe` measures again. While the store runs, what its log waits for the device is
//! compared with what the device was measured to do ([`watch`]), and what was told or measured counts only by
//! the factor that comes of it.
//!
//! A store that was told what it can do still needs something to compare with: it takes a short look, which
//! serves for that alone.

mod account;
mod kept;
mod rounds;
mod touch;
pub mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Fit, KvCapability, Measured};
use parking_lot::Mutex;
use placement::{Capability, Spread};

use crate::config::Config;
use crate::datadir;
use crate::store::Store;
use account::{LogClock, Written};
use kept::Kept;
use rounds::{DeviceSpread, Round};
use touch::Toucher;
use watch::{Changed, Reference, Totals, Watch};

/// Beside that of what is corrected: a ratio of times says less than a measurement.
const SPREAD_OF_CORRECTION: f64 = 1.2;
/// A device is measured at so many times of their own before the result is left alone, …
const SITTINGS: u32 = 2;
/// … this long apart, when the device has nothing else to do.
const SITTING_AFTER: Duration = Duration::from_secs(30);
const SITTINGS_APART: Duration = Duration::from_secs(11);

const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// The first probe waits this long at most for the store to serve and for its device to be at rest: other
/// stores may not have come yet, and what a start writes is not over when it is ready.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// At rest: so long without a sync of the log, and with no more than this written.
const REST: Duration = Duration::from_millis(400);
const REST_BYTES: u64 = 256 << 10;
/// Commands per second of a store that serves.
const SERVING_OPS_PER_S: f64 = 50.0;

/// How thoroughly the device is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Something to compare with.
    Brief,
    /// At the first start: nothing that matters waits for the device yet, but it soon may.
    Start,
    /// On demand, beside whatever the store does.
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

    /// The device's time, for all rounds together.
    fn time_max(self) -> Duration {
        Duration::from_millis(match self {
            Probe::Brief => 700,
            Probe::Start => 2000,
            Probe::Full => 5000,
        })
    }

    /// Between two rounds.
    fn pause(self) -> Duration {
        Duration::from_millis(if self == Probe::Start { 200 } else { 50 })
    }
}

/// Why a probe told nothing.
#[derive(Debug, thiserror::Error)]
pub enum NotProbed {
    #[error("a probe is under way")]
    UnderWay,
    #[error("a probe's file would leave less than the reserve: {room} bytes of room")]
    NoRoom { room: u64 },
    #[error(transparent)]
    Failed(#[from] device::ProbeError),
    #[error("the probe's thread could not be started, or died")]
    NoThread,
}

/// How this store stands, for heartbeats and metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Present {
    /// What was told or measured, by the correction.
    pub capability: Capability,
    /// As measured; 0: it was not.
    pub io_bytes_per_s: f64,
    pub correction: f64,
    /// What a sync takes: as measured, if only by a short look, through the correction; `None`: it was not.
    pub sync: Option<Duration>,
    /// How sure these are.
    pub spread: Spread,
    /// How much longer the device needs than it was measured to; `None`: nobody knows.
    pub ratio: Option<f64>,
}

pub struct OwnCapability {
    told: Option<Capability>,
    fit: Fit,
    state: Mutex<State>,
    probing: AtomicBool,
    pub log: LogClock,
}

struct State {
    kept: Option<Kept>,
    correction: f64,
    ratio: Option<f64>,
    /// Rises when the device was measured anew.
    measurements: u64,
}

impl OwnCapability {
    pub fn load(config: &Config) -> OwnCapability {
        let kept = Kept::read(&config.dir).unwrap_or_else(|error| {
            tracing::warn!(%error, "what was measured of the device is lost, and is measured anew");
            None
        });
        let told = told(config);
        // Told another number, it is told of the device as it is now.
        let is_of_before = |kept: &Kept| match (kept.told_bytes_per_s, told) {
            (Some(before), Some(told)) => before != told.kv_bytes_per_s,
            _ => false,
        };
        let kept = kept.filter(|kept| !is_of_before(kept));
        OwnCapability {
            told,
            fit: config.fit.clone(),
            state: Mutex::new(State { kept, correction: 1.0, ratio: None, measurements: 0 }),
            probing: AtomicBool::new(false),
            log: LogClock::default(),
        }
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

    /// Of what was told nothing is in doubt but what the correction makes of it.
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

    /// Whether what was measured stands on one sitting alone.
    fn wants_second_sitting(&self) -> bool {
        let state = self.state.lock();
        !self.is_told() && state.kept.as_ref().is_some_and(|kept| !kept.brief && kept.sittings < SITTINGS)
    }

    /// Rounds to go on from, which a device that is corrected has none of: it is another than it was.
    fn former_rounds(&self, probe: Probe) -> (Vec<Round>, u32) {
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

    /// What a device that was measured so lets a store do.
    pub fn counts_for(&self, measured: &Measured) -> Capability {
        counts_for(measured, &self.fit)
    }

    /// What has to be measured before the store knows enough of itself.
    fn lacks(&self) -> Option<Probe> {
        let state = self.state.lock();
        match (&state.kept, self.is_told()) {
            (None, true) => Some(Probe::Brief),
            (None, false) => Some(Probe::Start),
            // It was told until now.
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

    /// Whether the store goes by a number that its device is known to do less than. What is measured takes the place
    /// of the number in a store that was not told one; in one that was, it would only end the correction.
    fn is_told_too_much(&self) -> bool {
        let state = self.state.lock();
        self.is_told() && (state.correction < 1.0 || state.ratio.is_some_and(|ratio| ratio > watch::SLOW))
    }

    /// The device is what it is now: there is nothing to correct.
    fn take(&self, kept: Kept) {
        let mut state = self.state.lock();
        state.kept = Some(kept);
        (state.correction, state.ratio) = (1.0, None);
        state.measurements += 1;
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

fn counts_for(measured: &Measured, fit: &Fit) -> Capability {
    let kv = KvCapability::measured(measured, fit);
    Capability { kv_bytes_per_s: kv.kv_bytes_per_s, ops_per_s: kv.kv_ops_per_s }
}

/// What came of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    pub measured: Measured,
    /// It was kept, and the device is compared with it from now on.
    pub is_reference: bool,
}

/// Measures the device in a thread of its own, keeps what came of it, and says it. One at a time.
pub async fn probe(store: &Arc<Store>, probe: Probe) -> Result<Probed, NotProbed> {
    if store.capability.probing.swap(true, Ordering::AcqRel) {
        return Err(NotProbed::UnderWay);
    }
    let (answer, told) = tokio::sync::oneshot::channel();
    let of_thread = store.clone();
    let body = move || {
        let outcome = probe_here(&of_thread, probe);
        of_thread.capability.probing.store(false, Ordering::Release);
        // The store may be stopping: then nobody waits.
        let _ = answer.send(outcome);
    };
    if std::thread::Builder::new().name("probe".into()).spawn(body).is_err() {
        store.capability.probing.store(false, Ordering::Release);
        return Err(NotProbed::NoThread);
    }
    let probed = told.await.map_err(|_| NotProbed::NoThread)??;
    store.cluster.report_soon.notify_one();
    Ok(probed)
}

fn probe_here(store: &Store, probe: Probe) -> Result<Probed, NotProbed> {
    let options = probe.options();
    let room = store.disk.room();
    if room < options.file_bytes {
        return Err(NotProbed::NoRoom { room });
    }
    let former = store.capability.former_rounds(probe);
    let result = rounds::measure(&store.config.dir, probe, (&former.0, former.1))?;
    let measured = result.measured;
    let is_reference = !store.capability.is_told_too_much();
    if is_reference {
        store.capability.take(keep(&store.config, result, probe));
    } else {
        tracing::warn!(
            "the device under this store writes {} and syncs in {}; it does less than when the store was told what it \
             can do, and is still compared with what it was then",
            rate(measured.write_bytes_per_s),
            time(measured.sync_latency),
        );
    }
    Ok(Probed { measured, is_reference })
}

/// Writes down what was measured, and says it.
fn keep(config: &Config, result: rounds::Result, probe: Probe) -> Kept {
    let (measured, spread) = (result.measured, result.spread);
    let counts = counts_for(&measured, &config.fit);
    let mut kept = Kept::new(result, counts, probe == Probe::Brief, config.fit.provenance());
    kept.told_bytes_per_s = told(config).map(|told| told.kv_bytes_per_s);
    if let Err(error) = kept.write(&config.dir) {
        tracing::warn!(%error, "what was measured of the device cannot be kept: it will be measured again");
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
        true => tracing::info!("{device}: the store is compared with that and counts as it was told"),
        false => tracing::info!(
            "{device}: the store counts for {} of keys and values, {:.0} operations/s",
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

/// Measures what was not measured yet and watches the device from then on, until the task is dropped.
pub async fn run(store: Arc<Store>) {
    if let Some(wanted) = store.capability.lacks().filter(|_| store.config.probe) {
        let _ = tokio::time::timeout(PROBE_AFTER, until_at_rest(&store)).await;
        if let Err(error) = probe(&store, wanted).await {
            tracing::warn!(%error, "the device was not measured: what it can do is not known");
        }
    }
    tokio::join!(sit_again(&store), watch_device(&store));
}

/// Measures a second time, at another time: what a sitting's rounds have in common they cannot tell.
async fn sit_again(store: &Arc<Store>) {
    while store.config.probe && store.capability.wants_second_sitting() {
        // Stores that were started together are on one device, as often as not.
        tokio::time::sleep(SITTING_AFTER + SITTINGS_APART * (store.id % 8) as u32).await;
        until_at_rest(store).await;
        if !store.capability.wants_second_sitting() {
            break;
        }
        if let Err(error) = probe(store, Probe::Start).await {
            tracing::debug!(%error, "the device was not measured a second time");
        }
    }
}

async fn watch_device(store: &Arc<Store>) {
    let mut watcher = Watcher::default();
    let mut period = tokio::time::interval(LOOK_PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut kernel_tells = true;
    loop {
        period.tick().await;
        let looked = watcher.look(store).await;
        match &looked {
            // Where the kernel does not count (or the container hides it) there is nothing to judge by.
            Err(error) if kernel_tells => {
                tracing::warn!(%error, "the kernel does not tell what this process writes: the device is not watched");
            }
            Ok(()) if !kernel_tells => tracing::info!("the kernel tells again what this process writes"),
            _ => {}
        }
        kernel_tells = looked.is_ok();
    }
}

/// Until the store serves and its device has nothing to do.
async fn until_at_rest(store: &Store) {
    while !store.is_healthy() {
        let news = store.leader_news.notified();
        let _ = tokio::time::timeout(Duration::from_millis(50), news).await;
    }
    let mut written = Written::default();
    loop {
        let syncs = store.capability.log.syncs();
        let Ok(before) = written.bytes() else { return };
        tokio::time::sleep(REST).await;
        let Ok(bytes) = written.bytes() else { return };
        if store.capability.log.syncs() == syncs && bytes - before <= REST_BYTES {
            return;
        }
    }
}

/// The short look of a store that is told what it can do, before it begins to write anything: from then on
/// its device may never be at rest. It costs the first start under a second, and no other.
pub fn look_first(config: &Config) {
    let is_known = Kept::read(&config.dir).is_ok_and(|kept| kept.is_some());
    if !config.probe || config.this().capability.is_none() || is_known {
        return;
    }
    let options = Probe::Brief.options();
    let room = datadir::free_space(&config.dir).unwrap_or(0);
    if room < config.reserve_bytes.saturating_add(options.file_bytes) {
        return;
    }
    match rounds::measure(&config.dir, Probe::Brief, (&[], 0)) {
        // The store reads it when it is made.
        Ok(result) => drop(keep(config, result, Probe::Brief)),
        // It is tried once more when the store serves.
        Err(error) => tracing::warn!(%error, "the device was not measured"),
    }
}

/// Brings the store's counts before the watch.
#[derive(Default)]
struct Watcher {
    watch: Option<Watch>,
    measurements: u64,
    began: Option<Instant>,
    written: Written,
    /// The log thread's time on a CPU, or waiting for one, when it was last looked at.
    last: Option<(Duration, Duration)>,
    blocked: Duration,
    bytes: u64,
    bytes_per_s: f64,
    looked_at: Option<Instant>,
    toucher: Toucher,
}

impl Watcher {
    async fn look(&mut self, store: &Arc<Store>) -> std::io::Result<()> {
        let own = &store.capability;
        let (measurements, reference) = own.reference();
        let Some(reference) = reference else { return Ok(()) };
        if self.watch.is_none() || measurements != self.measurements {
            self.watch = Some(Watch::new(reference));
            self.measurements = measurements;
        }
        let now = self.began.get_or_insert_with(Instant::now).elapsed();
        let totals = self.totals(&own.log)?;
        let (Some(watch), Some(totals)) = (&mut self.watch, totals) else { return Ok(()) };
        if own.probing.load(Ordering::Acquire) {
            watch.skip();
            return Ok(());
        }
        let mut changed = watch.observe(now, totals);
        let is_serving = store.metrics.recent().0 >= SERVING_OPS_PER_S;
        if watch.wants_touch(now, is_serving) && store.disk.room() > touch::FILE_BYTES {
            match self.toucher.touch(&store.config.dir, self.bytes_per_s).await {
                Ok(touch) => changed = watch.touched(now, touch).or(changed),
                Err(error) => tracing::debug!(%error, "the device could not be touched"),
            }
        }
        own.correct(watch);
        if let Some(changed) = changed {
            say_changed(changed, own.present());
            store.cluster.report_soon.notify_one();
        }
        Ok(())
    }

    /// `None` before the log's thread has begun.
    fn totals(&mut self, log: &LogClock) -> std::io::Result<Option<Totals>> {
        let (busy, Some(scheduled)) = (log.busy(), log.scheduled()?) else { return Ok(None) };
        let (busy_before, scheduled_before) = *self.last.get_or_insert((busy, scheduled));
        let worked = scheduled.saturating_sub(scheduled_before);
        self.blocked += busy.saturating_sub(busy_before).saturating_sub(worked);
        self.last = Some((busy.max(busy_before), scheduled));
        let bytes = self.written.bytes()?;
        let at = Instant::now();
        if let Some(before) = self.looked_at.replace(at) {
            let seconds = at.duration_since(before).as_secs_f64().max(1e-3);
            self.bytes_per_s = bytes.saturating_sub(self.bytes) as f64 / seconds;
        }
        self.bytes = bytes;
        Ok(Some(Totals { blocked: self.blocked, syncs: log.syncs(), bytes }))
    }
}

fn say_changed(changed: Changed, present: Present) {
    let Changed { before, correction, ratio } = changed;
    let counts = format!(
        "this store counts for {:.0}% of its capability from now on ({}), and did for {:.0}%",
        correction * 100.0,
        rate(present.capability.kv_bytes_per_s),
        before * 100.0
    );
    match correction < before {
        true => tracing::warn!("the device needs {ratio:.1} times as long as it was measured to: {counts}"),
        false => tracing::info!("the device needs {ratio:.1} times as long as it was measured to: {counts}"),
    }
}

#[cfg(test)]
mod tests;
