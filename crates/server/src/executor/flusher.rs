//! Flushes memtables on the store's own schedule, so that the Raft log below them can be truncated.
//!
//! The applied indexes are read *before* the flush begins. Everything that was applied by then is
//! durable when the flush returns.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use raftlog::RaftLog;
use storage::StorageError;

use super::parts::Parts;
use crate::checkpoints::Flushed;
use crate::config::Config;
use crate::loops::ToWorker;

/// Returns the bytes of rows, and of log, since the last flush that justify another one: 384 MiB
/// for the default size of the log. A full memtable is flushed earlier. But if the same rows are
/// written repeatedly, the memtable stays small while the log grows.
fn flush_bytes(config: &Config) -> u64 {
    config.raft_log_bytes / 4 * 3
}

/// Maximum time for which rows in memory keep the log from being truncated.
const FLUSH_PERIOD: Duration = Duration::from_secs(60);
/// Maximum time for which rows in memory keep the log from being truncated on a full device. An
/// earlier flush lets the log be truncated, and shows how much space the rows really take.
const FLUSH_PERIOD_FULL: Duration = Duration::from_secs(2);
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Runs until the store stops.
pub fn run(parts: Parts, log: RaftLog) {
    let mut flushed = Instant::now();
    let mut logged = log.written_bytes();
    while !parts.ends.is_stopping() {
        parts.engine.rows().wait_for_flush(LOOK_PERIOD);
        let bytes = parts.engine.rows().unflushed_bytes();
        parts.disk.set_unflushed(bytes);
        parts.metrics.log_device_bytes.inner().store(log.device_bytes(), Ordering::Relaxed);
        let period = if parts.disk.is_full() { FLUSH_PERIOD_FULL } else { FLUSH_PERIOD };
        let wanted = parts.levels.take_flush_wanted();
        let worth_it = flush_bytes(&parts.config);
        let is_much = parts.engine.rows().is_flush_due() || log.written_bytes() - logged >= worth_it;
        if wanted || (bytes > 0 && (is_much || flushed.elapsed() >= period)) {
            logged = log.written_bytes();
            if !flush(&parts) {
                std::thread::sleep(LOOK_PERIOD);
            }
            flushed = Instant::now();
        }
    }
}

/// Makes the applied rows durable and tells the worker. Returns false if there is no room.
pub fn flush(parts: &Parts) -> bool {
    match try_flush(parts) {
        Ok(flushed) => flushed,
        Err(error) => parts.ends.rows_failed_for_good("rows cannot be flushed", &error),
    }
}

/// Flushes at a planned stop, so that the next start is faster. Without it the log restores the
/// rows. If a file of rows is damaged, the next start removes it.
pub fn flush_last(parts: &Parts) {
    parts.engine.rows().end_pauses();
    if let Err(error) = try_flush(parts) {
        parts.ends.rows_failed("rows cannot be flushed", &error);
    }
}

/// A flush that runs out of space can end the process: RocksDB 7.8 with assertions, as built by
/// Debian, asserts that the file is not used again, and then uses it. So no flush begins without
/// room.
fn try_flush(parts: &Parts) -> Result<bool, StorageError> {
    parts.checkpoints.begin();
    let flushed = flush_rows(parts);
    let has_flushed = matches!(flushed, Ok(true));
    parts.checkpoints.end(if has_flushed { Flushed::Done } else { Flushed::NoRoom });
    flushed
}

fn flush_rows(parts: &Parts) -> Result<bool, StorageError> {
    if !parts.disk.takes(parts.engine.rows().unflushed_bytes()) {
        parts.disk.set_full();
        tracing::warn!("no space to flush rows: the Raft log grows until there is room");
        return Ok(false);
    }
    let applied = parts.regions.applied();
    match parts.engine.rows().flush() {
        Ok(()) => {
            let _ = parts.worker.send(ToWorker::Flushed { applied });
            Ok(true)
        }
        Err(StorageError::NoSpace(reason)) => {
            parts.disk.set_full();
            tracing::warn!(%reason, "no space to flush rows: the Raft log grows until there is room");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
