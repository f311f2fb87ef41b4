//! When this store measures its device: at its first start, a second time soon after, and again while the result is not sure.

use std::time::Duration;

use super::account::Written;
use super::schedule::Sitting;
use super::watcher::{watch_device, SERVING_OPS_PER_S};
use super::{keep, probe, read_ground, read_kept, rounds, Measurer, Probe};
use crate::config::Config;
use crate::{clock, datadir};

/// The first probe waits this long at most for the store to serve and for its device to be at rest: other
/// stores may not have come yet, and what a start writes is not over when it is ready.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// At rest: so long without a sync of the log, and with no more than this written.
const REST: Duration = Duration::from_millis(400);
const REST_BYTES: u64 = 256 << 10;
/// A store that has just started is left in peace for this long.
const REST_MIN: Duration = Duration::from_secs(30);
/// How often a store that is sure of its device looks whether it still is.
const SURE_PERIOD: Duration = Duration::from_secs(600);

/// Measures what was not measured yet and watches the device from then on, until the task is dropped.
pub async fn run(measurer: Measurer) {
    if let Some(wanted) = measurer.own.lacks().filter(|_| measurer.config.probe) {
        let _ = tokio::time::timeout(PROBE_AFTER, until_at_rest(&measurer)).await;
        if let Err(error) = probe(&measurer, wanted, None).await {
            tracing::warn!(%error, "the device was not measured: what it can do is not known");
        }
    }
    tokio::join!(sit_again(&measurer), watch_device(&measurer));
}

/// Measures again, at other times: what a sitting's rounds have in common they cannot tell.
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
        // It may have been asked for meanwhile.
        if next() == Some(Duration::ZERO) {
            if let Err(error) = probe(measurer, Probe::Start, None).await {
                tracing::debug!(%error, "the device was not measured once more");
            }
        }
    }
}

/// Waits until the store serves and its device has nothing to do, for this store or others on it.
async fn until_at_rest(measurer: &Measurer) {
    while measurer.ends.is_stopping() || !measurer.regions.are_all_led() {
        let news = measurer.regions.leader_news.notified();
        let _ = tokio::time::timeout(Duration::from_millis(50), news).await;
    }
    let mut written = Written::default();
    loop {
        let syncs = measurer.own.log.syncs();
        let Ok(before) = written.bytes() else { return };
        tokio::time::sleep(REST).await;
        let Ok(bytes) = written.bytes() else { return };
        let is_at_rest = measurer.own.log.syncs() == syncs && bytes - before <= REST_BYTES;
        if is_at_rest && measurer.cluster.neighbours().load_ops_per_s < SERVING_OPS_PER_S {
            return;
        }
    }
}

/// The short look of a store that is told what it can do, before it begins to write anything: from then on
/// its device may never be at rest. It costs the first start under a second, and no other.
pub fn look_first(config: &Config) {
    if !config.probe || config.this().capability.is_none() {
        return;
    }
    let ground = read_ground(config);
    if read_kept(config, ground.as_ref()).is_some() {
        return;
    }
    let options = Probe::Brief.options();
    let room = datadir::free_space(&config.dir).unwrap_or(0);
    if room < config.reserve_bytes.saturating_add(options.file_bytes) {
        return;
    }
    let began_unix_ms = clock::unix_millis();
    match rounds::measure(&config.dir, Probe::Brief, (&[], 0)) {
        // The store reads it when it is made.
        Ok(result) => {
            let history = vec![Sitting { began_unix_ms, ended_unix_ms: clock::unix_millis() }];
            drop(keep(config, result, Probe::Brief, ground.as_ref(), history));
        }
        // It is tried once more when the store serves.
        Err(error) => tracing::warn!(%error, "the device was not measured"),
    }
}
