//! The times at which this store measures its device: at its first start, again soon after, and
//! later while the result is uncertain.

use std::time::Duration;

use super::account::Written;
use super::schedule::Sitting;
use super::watcher::{watch_device, SERVING_OPS_PER_S};
use super::{keep, probe, read_ground, read_persisted, rounds, Measurer, Probe};
use crate::clock;
use crate::config::Config;

/// Maximum wait before the first probe until the store serves and its device is at rest. Other
/// stores may not have started yet, and a store's own start still writes after the store is ready.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// Time after which the device is at rest, if during it the log syncs nothing and at most
/// [`REST_BYTES`] are written.
const REST: Duration = Duration::from_millis(400);
const REST_BYTES: u64 = 256 << 10;
/// Minimum time after a start before the device is measured again.
const REST_MIN: Duration = Duration::from_secs(30);
/// The interval at which a store with a good result checks whether the result is still good.
const SURE_PERIOD: Duration = Duration::from_secs(600);

/// Measures the device if needed, and watches it from then on, until the task is dropped.
pub async fn run(measurer: Measurer) {
    if let Some(wanted) = measurer.own.lacks().filter(|_| measurer.config.probe) {
        let _ = tokio::time::timeout(PROBE_AFTER, until_at_rest(&measurer)).await;
        if let Err(error) = probe(&measurer, wanted, None).await {
            tracing::warn!(%error, "the device could not be measured, so this store's capability is unknown");
        }
    }
    tokio::join!(sit_again(&measurer), watch_device(&measurer));
}

/// Measures again at later times, because the rounds of one sitting may share an error that they
/// cannot reveal.
async fn sit_again(measurer: &Measurer) {
    if !measurer.config.probe {
        return;
    }
    let next = || measurer.own.next_sitting(clock::unix_millis());
    loop {
        let Some(rest) = next() else {
            tokio::time::sleep(SURE_PERIOD).await;
            continue;
        };
        tokio::time::sleep(rest.max(REST_MIN)).await;
        until_at_rest(measurer).await;
        // A requested probe may have measured the device in the meantime.
        if next() == Some(Duration::ZERO) {
            if let Err(error) = probe(measurer, Probe::Start, None).await {
                tracing::debug!(%error, "the device could not be measured again");
            }
        }
    }
}

/// Waits until the store serves and its device is idle, for this store and for others on the
/// device.
async fn until_at_rest(measurer: &Measurer) {
    let serves = || !measurer.ends.is_stopping() && measurer.regions.are_all_led();
    measurer.regions.look_until(None, || serves().then_some(())).await;
    let mut written = Written::default();
    loop {
        let syncs = measurer.own.log.syncs();
        let Ok(before) = written.bytes(&measurer.own.log) else { return };
        tokio::time::sleep(REST).await;
        let Ok(bytes) = written.bytes(&measurer.own.log) else { return };
        let is_at_rest = measurer.own.log.syncs() == syncs && bytes - before <= REST_BYTES;
        if is_at_rest && measurer.cluster.neighbours().load_ops_per_s < SERVING_OPS_PER_S {
            return;
        }
    }
}

/// Makes the short measurement of a store with a configured capability, before the store begins to
/// write; later its device may never be at rest. It delays only the first start, by less than a
/// second.
pub fn look_first(config: &Config) {
    if !config.probe || config.this().capability.is_none() {
        return;
    }
    let ground = read_ground(config);
    if read_persisted(config, ground.as_ref()).is_some() {
        return;
    }
    let options = Probe::Brief.options();
    let room = device::free_bytes(&config.dir).unwrap_or(0);
    if room < config.reserve_bytes.saturating_add(options.file_bytes) {
        return;
    }
    let began_unix_ms = clock::unix_millis();
    match rounds::measure(&config.dir, Probe::Brief, (&[], 0)) {
        // The store reads the file when it is created.
        Ok(result) => {
            let history = vec![Sitting { began_unix_ms, ended_unix_ms: clock::unix_millis() }];
            drop(keep(config, result, Probe::Brief, ground.as_ref(), history));
        }
        // The probe is repeated once the store serves.
        Err(error) => tracing::warn!(%error, "the device could not be measured"),
    }
}
