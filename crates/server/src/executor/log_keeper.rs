//! Recycles the log's segments, prepares new ones, and makes the mark of an idle log durable. This
//! thread spares the appending thread the wait for any of these.

use std::time::{Duration, Instant};

use raftlog::{LogError, RaftLog};
use replica::Input;

use super::parts::Parts;

const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// Pause after a failed attempt before the next one.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Time until the next attempt if damaged entries pin a segment.
const DAMAGE_PERIOD: Duration = Duration::from_millis(500);
/// Minimum interval of recycling. Each run looks at all regions, so it does not follow every
/// truncation.
const RECYCLE_PERIOD: Duration = Duration::from_millis(50);

/// Runs until the store stops.
pub fn run(parts: Parts, log: RaftLog) {
    let (mut appended, mut marked) = (0, 0);
    let mut try_at = Instant::now();
    while !parts.ends.is_stopping() {
        log.await_work(LOOK_PERIOD);
        record_damage(&parts);
        if Instant::now() >= try_at {
            try_at = Instant::now() + recycle(&parts, &log);
            prepare(&parts, &log);
        }
        // Each block of a busy log records which earlier blocks are synced. The last block of an
        // idle log has no successor, so the mark records it.
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

/// Prepares segments in advance, unless room is short.
fn prepare(parts: &Parts, log: &RaftLog) {
    if !parts.disk.takes(parts.config.raft_log_bytes / 4) {
        return;
    }
    match log.prepare() {
        Ok(()) | Err(LogError::NoSpace(_)) => {}
        Err(error) => parts.ends.fatal(&format!("a segment of the Raft log cannot be made: {error}")),
    }
}

/// Records the peers that newly found damage has made unclean, and then silences them.
fn record_damage(parts: &Parts) {
    match parts.unsynced.record_found() {
        Ok(regions) => {
            for region in regions {
                let _ = parts.worker.raft(Input::Damaged { region });
            }
        }
        Err(error) => parts.ends.fatal(&format!("damage to the Raft log cannot be recorded: {error}")),
    }
}

/// Recycles segments. Returns the time to wait before the next attempt.
fn recycle(parts: &Parts, log: &RaftLog) -> Duration {
    match log.recycle() {
        Ok(pinned) => {
            if !pinned.is_empty() {
                tracing::debug!(?pinned, "the Raft log is too large, and these regions hold most of it");
                let _ = parts.worker.raft(Input::LogPinned { regions: pinned });
            }
            RECYCLE_PERIOD
        }
        Err(LogError::NoSpace(reason)) => {
            parts.disk.set_full();
            tracing::warn!(%reason, "no space to recycle the Raft log: tried again later");
            RETRY_PERIOD
        }
        // Either a flush makes the entries unnecessary, or the peer falls silent and its log is
        // abandoned.
        Err(error @ LogError::Damaged { region, first, last, .. }) => {
            let error = replica::LogError { region, reason: error.to_string(), damaged: Some((first, last)) };
            let _ = parts.worker.raft(Input::DamageFound(error));
            DAMAGE_PERIOD
        }
        Err(error) => parts.ends.fatal(&format!("the Raft log cannot be recycled: {error}")),
    }
}
