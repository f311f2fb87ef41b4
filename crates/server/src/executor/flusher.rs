//! Flushes memtables on our own schedule, so that the Raft log below them can be cut.
//!
//! The applied indexes are read *before* the flush is asked for: what was applied by then is durable once
//! it returns.

use std::time::{Duration, Instant};

use raftlog::RaftLog;

use super::parts::Parts;
use crate::config::Config;
use crate::loops::ToWorker;

/// Returns the bytes of rows, and of log, written since the last flush that make another one worth it: 192 MiB for the
/// default size of the log. A memtable that is full is flushed before; but where the same rows are written again and again
/// it stays small, and the log grows.
fn flush_bytes(config: &Config) -> u64 {
    config.raft_log_bytes / 4 * 3
}

/// The log is not kept longer than this for the sake of rows in memory.
const FLUSH_PERIOD: Duration = Duration::from_secs(60);
/// On a full device rows are flushed sooner: the log is cut, and what the rows really take is known.
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

/// Makes durable what is applied now, and tells the worker. False: there was no room.
///
/// A flush that finds no room half-way can end the process: RocksDB 7.8 built with assertions, as Debian
/// builds it, then asserts that nobody touches the file again, and touches it. So none is begun without room.
pub fn flush(parts: &Parts) -> bool {
    if !parts.disk.takes(parts.engine.rows().unflushed_bytes()) {
        parts.disk.set_full();
        tracing::warn!("no space to flush rows: the log is kept");
        if parts.ends.is_stopping() {
            // Closing the engine would flush all the same. It ends with the process instead, unclosed as
            // after a kill, and the log tells the rest.
            std::mem::forget(parts.engine.clone());
        }
        return false;
    }
    let applied = parts.regions.applied();
    match parts.engine.rows().flush() {
        Ok(()) => {
            let _ = parts.worker.send(ToWorker::Flushed { applied });
            true
        }
        Err(storage::StorageError::NoSpace(reason)) => {
            parts.disk.set_full();
            tracing::warn!(%reason, "no space to flush rows: the log is kept");
            false
        }
        Err(error) => parts.ends.fatal(&format!("rows cannot be flushed: {error}")),
    }
}
