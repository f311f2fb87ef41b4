//! Recycles the log's segments, makes new ones ahead of need, and makes the mark of an idle log durable: all that the
//! thread that appends should not wait for.

use std::time::{Duration, Instant};

use raftlog::{LogError, RaftLog};
use replica::Input;

use super::parts::Parts;
use crate::loops::ToWorker;

const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// What has been tried in vain is not tried sooner again.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// To look at the log is to look at all regions, so it is not done more often, however often they are truncated.
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
        // A busy log's blocks say what is synced. Those of one that has fallen idle do not say it of the last one.
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

/// Where room is short, segments are made when they are needed and not before.
fn prepare(parts: &Parts, log: &RaftLog) {
    if !parts.disk.takes(parts.config.raft_log_bytes / 4) {
        return;
    }
    match log.prepare() {
        Ok(()) | Err(LogError::NoSpace(_)) => {}
        Err(error) => parts.ends.fatal(&format!("a segment of the Raft log cannot be made: {error}")),
    }
}

/// Returns how long to wait before the next time.
fn recycle(parts: &Parts, log: &RaftLog) -> Duration {
    match log.recycle() {
        Ok(pinned) => {
            if !pinned.is_empty() {
                tracing::debug!(?pinned, "regions hold most of a log that is too large");
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
