//! Flushes memtables on our own schedule, so that the Raft log below them can be cut.
//!
//! The applied indexes are read *before* the flush is asked for: what was applied by then is durable once
//! it returns.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use raftlog::{LogError, RaftLog};

use super::inbox::ToWorker;
use crate::config::Config;
use crate::store::Store;

/// Returns the bytes of rows written since the last flush that make another one worth it: 192 MiB for the default
/// size of the log. RocksDB flushes full memtables by itself; this is well above their size, so that it seldom
/// cuts one short.
fn flush_bytes(config: &Config) -> u64 {
    config.raft_log_bytes / 4 * 3
}

/// The log is not kept longer than this for the sake of rows in memory.
const FLUSH_PERIOD: Duration = Duration::from_secs(60);
/// On a full device rows are flushed sooner: the log is cut, and what the rows really take is known.
const FLUSH_PERIOD_FULL: Duration = Duration::from_secs(2);
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Runs until the store stops.
pub fn run(store: Arc<Store>, log: RaftLog) {
    let (mut flushed, mut purged) = (Instant::now(), Instant::now());
    let mut owes_purge = false;
    let (mut appended, mut marked) = (0, 0);
    while !store.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_PERIOD);
        // The watermark of a busy log is synced with its files; that of one that has fallen idle, here.
        let sequence = log.sequence();
        if sequence == appended && sequence != marked {
            if let Err(error) = log.sync_watermark() {
                store.fatal(&format!("the Raft log's watermark cannot be synced: {error}"));
            }
            marked = sequence;
        }
        appended = sequence;
        let bytes = store.engine.flash().unflushed_bytes();
        store.disk.set_unflushed(bytes);
        let full = store.disk.is_full();
        let period = if full { FLUSH_PERIOD_FULL } else { FLUSH_PERIOD };
        let wanted = store.flush_soon.swap(false, Ordering::Relaxed);
        let flushes =
            bytes >= flush_bytes(&store.config) || wanted || (bytes > 0 && flushed.elapsed() >= period);
        if flushes {
            flush(&store);
            flushed = Instant::now();
        }
        // The log is cut some time after the flush: where room is short, files do not wait for the next one.
        if flushes || ((full || owes_purge) && purged.elapsed() >= FLUSH_PERIOD_FULL) {
            owes_purge = !purge(&store, &log);
            purged = Instant::now();
        }
    }
}

/// Makes durable what is applied now, and tells the worker. False: there was no room.
///
/// A flush that finds no room half-way can end the process: RocksDB 7.8 built with assertions, as Debian
/// builds it, then asserts that nobody touches the file again, and touches it. So none is begun without room.
pub fn flush(store: &Store) -> bool {
    if !store.disk.takes(store.engine.flash().unflushed_bytes()) {
        store.disk.set_full();
        tracing::warn!("no space to flush rows: the log is kept");
        if store.stopping.load(Ordering::Relaxed) {
            // Closing the engine would flush all the same. It ends with the process instead, unclosed as
            // after a kill, and the log tells the rest.
            std::mem::forget(store.engine.clone());
        }
        return false;
    }
    let applied: Vec<_> = store
        .regions
        .table()
        .iter()
        .filter(|r| r.is_local())
        .map(|region| (region.id(), region.applied()))
        .collect();
    match store.engine.flash().flush() {
        Ok(()) => {
            let _ = store.worker.send(ToWorker::Flushed { applied });
            true
        }
        Err(storage::StorageError::NoSpace(reason)) => {
            store.disk.set_full();
            tracing::warn!(%reason, "no space to flush rows: the log is kept");
            false
        }
        Err(error) => store.fatal(&format!("rows cannot be flushed: {error}")),
    }
}

/// Deletes the files of the log that nobody needs. False: moving what is live in them found no room.
fn purge(store: &Store, log: &RaftLog) -> bool {
    match log.purge() {
        Ok(pinned) => {
            if !pinned.is_empty() {
                tracing::debug!(?pinned, "regions keep old log files alive");
            }
            true
        }
        Err(LogError::NoSpace(reason)) => {
            store.disk.set_full();
            tracing::warn!(%reason, "no space to purge the Raft log: tried again later");
            false
        }
        Err(error) => store.fatal(&format!("the Raft log cannot be purged: {error}")),
    }
}
