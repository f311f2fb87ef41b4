//! Recycles the log's segments, prepares new ones, and makes the mark of an idle log durable. The
//! appending thread should wait for none of this.

use std::time::{Duration, Instant};

use raftlog::{LogError, RaftLog};
use replica::Input;

use super::parts::Parts;
use crate::loops::ToWorker;

const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// The pause before a failed attempt is repeated.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// The minimum interval of recycling. Each time looks at all regions, however often they are
/// truncated.
const RECYCLE_PERIOD: Duration = Duration::from_millis(50);

/// Runs until the store stops.
pub fn run(parts: Parts, log: RaftLog) {
    let (mut appended, mut marked) = (0, 0);
    let mut try_at = Instant::now();
    while !parts.ends.is_stopping() {
        log.await_work(LOOK_PERIOD);
        if Instant::now() >= try_at {
            try_at = Instant::now() + recycle(&parts, &log);
            prepare(&parts, &log);
        }
        // The blocks of a busy log say which blocks before them are synced. Nothing says it of the
        // last block of an idle log, so the mark does.
        let sequence = log.sequence();
        if sequence == appended && sequence != marked {
            match log.sync_mark() {
                Ok(()) => marked = sequence,
                Err(error) => parts.ends.fatal(&format!("the Raft log's mark cannot be synced: {error}")),
            }
        }
        appended = sequence;
    }
}

/// Prepares segments ahead of need, unless room is short.
fn prepare(parts: &Parts, log: &RaftLog) {
    if !parts.disk.takes(parts.config.raft_log_bytes / 4) {
        return;
    }
    match log.prepare() {
        Ok(()) | Err(LogError::NoSpace(_)) => {}
        Err(error) => parts.ends.fatal(&format!("a segment of the Raft log cannot be made: {error}")),
    }
}

/// Recycles segments. Returns the time to wait before the next attempt.
fn recycle(parts: &Parts, log: &RaftLog) -> Duration {
    match log.recycle() {
        Ok(pinned) => {
            if !pinned.is_empty() {
                tracing::debug!(?pinned, "the Raft log is too large, and these regions hold most of it");
                let _ = parts.worker.send(ToWorker::Input(Input::LogPinned { regions: pinned }));
            }
            RECYCLE_PERIOD
        }
        Err(LogError::NoSpace(reason)) => {
            parts.disk.set_full();
            tracing::warn!(%reason, "no space to recycle the Raft log: tried again later");
            RETRY_PERIOD
        }
        Err(error) => parts.ends.fatal(&format!("the Raft log cannot be recycled: {error}")),
    }
}
