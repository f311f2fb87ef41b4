//! The log thread: one write and one sync for each batch of the worker, which continues in
//! parallel.
//!
//! A failed write stops the store. A failed sync ends the process in `raftlog` already: it is then
//! unknown which bytes are durable, and a retry could succeed although the kernel has dropped the
//! pages. A lack of space does not stop the store: nothing was acknowledged, and the batch waits.

use std::time::{Duration, Instant};

use raftlog::{Appended, LogError, RaftLog};
use replica::{Input, LogBatch};

use super::batches::{BatchReceiver, Next};
use super::parts::Parts;
use crate::config::Fsync;

const EVERY_SECOND: Duration = Duration::from_secs(1);
const NO_SPACE_RETRY: Duration = Duration::from_millis(200);

/// The operations of this thread on a log.
pub trait Log: Send {
    fn append(&self, batch: &LogBatch, sync: bool) -> Result<Appended, LogError>;
    fn sync(&self) -> Result<Appended, LogError>;
}

impl Log for RaftLog {
    fn append(&self, batch: &LogBatch, sync: bool) -> Result<Appended, LogError> {
        RaftLog::append(self, batch, sync)
    }

    fn sync(&self) -> Result<Appended, LogError> {
        RaftLog::sync(self)
    }
}

pub struct LogWriter<L> {
    log: L,
    batches: BatchReceiver,
    parts: Parts,
    /// The time by which appended batches without a sync must be synced.
    sync_at: Option<Instant>,
    /// Bytes of entries appended since the last sync.
    unsynced: u64,
}

/// The error of a batch that waits for room while the store stops. The batch was never acknowledged
/// and is dropped.
struct GivenUp;

impl<L: Log> LogWriter<L> {
    pub fn new(log: L, batches: BatchReceiver, parts: Parts) -> LogWriter<L> {
        LogWriter { log, batches, parts, sync_at: None, unsynced: 0 }
    }

    /// Runs until the worker has ended.
    pub fn run(mut self) {
        self.parts.log_clock.begin_thread();
        if let Err(GivenUp) = self.serve() {
            // The worker may still send batches until it is told to stop. They are not
            // acknowledged.
            while let Next::Batch(_) = self.batches.next(None) {}
        }
        // If a full device prevents this sync, only data that was never acknowledged as durable is
        // lost.
        self.sync();
    }

    fn serve(&mut self) -> Result<(), GivenUp> {
        loop {
            // The wait ends at the next due sync.
            match self.batches.next(self.sync_at) {
                Next::Batch(batch) => self.write(&batch)?,
                Next::Late => {}
                Next::Closed => return Ok(()),
            }
            if self.sync_at.is_some_and(|at| at <= Instant::now()) {
                self.sync_at = if self.sync() { None } else { Some(Instant::now() + NO_SPACE_RETRY) };
            }
        }
    }

    fn write(&mut self, batch: &LogBatch) -> Result<(), GivenUp> {
        let fsync = self.parts.config.fsync;
        let synced = fsync == Fsync::Always || batch.must_sync;
        self.append(batch, synced)?;
        if synced {
            self.sync_at = None;
        } else if fsync == Fsync::EverySec {
            self.sync_at.get_or_insert_with(|| Instant::now() + EVERY_SECOND);
        }
        // The send fails only after the worker has ended. The queue of batches also shows that.
        let _ = self.parts.worker.raft(Input::Persisted { batch: batch.number });
        Ok(())
    }

    fn append(&mut self, batch: &LogBatch, sync: bool) -> Result<(), GivenUp> {
        let started = Instant::now();
        let (bytes, largest) = batch.entry_sizes();
        self.unsynced = self.unsynced.saturating_add(bytes);
        self.parts.log_clock.note_entry(largest);
        let mut told = false;
        loop {
            let clock = &self.parts.log_clock;
            match clock.during(self.unsynced, || self.log.append(batch, sync), |done| sync && done.is_ok()) {
                Ok(written) => {
                    let metrics = &self.parts.metrics;
                    metrics.log_batches.inc();
                    metrics.log_bytes.inc_by(written.bytes as u64);
                    if sync {
                        metrics.log_syncs.inc();
                        self.unsynced = 0;
                    }
                    metrics.record_log_sync(started.elapsed());
                    if told {
                        tracing::info!("there is room for the Raft log again");
                    }
                    return Ok(());
                }
                Err(LogError::NoSpace(reason)) => {
                    self.parts.disk.set_full();
                    if !told {
                        tracing::error!(%reason, "no space for the Raft log: acknowledgements wait for room");
                        told = true;
                    }
                    if self.parts.ends.is_stopping() {
                        return Err(GivenUp);
                    }
                    std::thread::sleep(NO_SPACE_RETRY);
                }
                Err(error) => self.parts.ends.fatal(&format!("the Raft log cannot be written: {error}")),
            }
        }
    }

    /// Syncs the log. Returns false if there is no room, and the caller must try again.
    fn sync(&mut self) -> bool {
        let started = Instant::now();
        match self.parts.log_clock.during(self.unsynced, || self.log.sync(), Result::is_ok) {
            Ok(_) => {
                self.unsynced = 0;
                self.parts.metrics.log_syncs.inc();
                self.parts.metrics.record_log_sync(started.elapsed());
                true
            }
            Err(LogError::NoSpace(reason)) => {
                self.parts.disk.set_full();
                tracing::warn!(%reason, "no space to sync the Raft log");
                false
            }
            Err(error) => self.parts.ends.fatal(&format!("the Raft log cannot be synced: {error}")),
        }
    }
}

#[cfg(test)]
mod tests;
