//! Writes the log: one write and one sync for each batch of the worker.
//!
//! The log thread writes batches while the worker continues in parallel. The loop that owns the
//! groups writes a batch itself if it expects to wait only shortly ([`waits`]). Each batch is
//! written by one of them, and the worker sends the next one only after it.
//!
//! A failed write stops the store. A failed sync ends the process in `raftlog` already: it is then
//! unknown which bytes are durable, and a retry could succeed although the kernel has dropped the
//! pages. A lack of space does not stop the store: nothing was acknowledged, and the batch waits in
//! the log thread.

mod waits;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use raftlog::{Appended, LogError, RaftLog};
use replica::{Input, LogBatch};

use super::batches::{BatchReceiver, BatchSender, Next};
use super::parts::Parts;
use crate::capability::Schedule;
use crate::config::Fsync;
use waits::Waits;

const EVERY_SECOND: Duration = Duration::from_secs(1);
const NO_SPACE_RETRY: Duration = Duration::from_millis(200);

/// The operations on a log.
pub trait Log: Send {
    fn append(&self, batch: &LogBatch, sync: bool) -> Result<Appended, LogError>;
    fn sync(&self) -> Result<Appended, LogError>;

    /// Appends like [`append`](Self::append). Returns `None`, and has written nothing, if that
    /// would have to wait for another thread or for a new segment.
    fn try_append(&self, batch: &LogBatch, sync: bool) -> Option<Result<Appended, LogError>>;
}

impl Log for RaftLog {
    fn append(&self, batch: &LogBatch, sync: bool) -> Result<Appended, LogError> {
        RaftLog::append(self, batch, sync)
    }

    fn sync(&self) -> Result<Appended, LogError> {
        RaftLog::sync(self)
    }

    fn try_append(&self, batch: &LogBatch, sync: bool) -> Option<Result<Appended, LogError>> {
        RaftLog::try_append(self, batch, sync)
    }
}

/// The log, as the log thread and the loop use it in turn.
struct Writing<L> {
    log: L,
    parts: Parts,
    /// The time by which appended batches without a sync must be synced.
    sync_at: Option<Instant>,
    /// Bytes of entries appended since the last sync.
    unsynced: u64,
    waits: Waits,
}

/// The reason why a batch is not written.
enum NotWritten {
    /// The device is full.
    Full(String),
    /// The write would have to wait for more than the device.
    Busy,
}

/// The thread that writes a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    LogThread,
    Loop,
}

impl<L: Log> Writing<L> {
    fn must_sync(&self, batch: &LogBatch) -> bool {
        self.parts.config.fsync == Fsync::Always || batch.must_sync
    }

    /// Writes a batch. `schedule` is that of the calling thread. Returns the bytes written.
    fn append(&mut self, batch: &LogBatch, caller: Caller, schedule: &Schedule) -> Result<usize, NotWritten> {
        let sync = self.must_sync(batch);
        let started = Instant::now();
        let (bytes, largest) = batch.entry_sizes();
        let unsynced = self.unsynced.saturating_add(bytes);
        let clock = &self.parts.log_clock;
        clock.note_entry(largest);
        let call = || match caller {
            Caller::LogThread => Some(self.log.append(batch, sync)),
            Caller::Loop => self.log.try_append(batch, sync),
        };
        let done = clock.during(schedule, unsynced, call, |done| sync && matches!(done, Some(Ok(_))));
        let written = match done {
            None => return Err(NotWritten::Busy),
            Some(Ok(written)) => written,
            Some(Err(LogError::NoSpace(reason))) => {
                self.parts.disk.set_full();
                return Err(NotWritten::Full(reason));
            }
            Some(Err(error)) => self.parts.ends.fatal(&format!("the Raft log cannot be written: {error}")),
        };
        let took = started.elapsed();
        self.unsynced = if sync { 0 } else { unsynced };
        self.waits.note(bytes, took);
        if sync {
            self.sync_at = None;
        } else if self.parts.config.fsync == Fsync::EverySec {
            self.sync_at.get_or_insert_with(|| Instant::now() + EVERY_SECOND);
        }
        let metrics = &self.parts.metrics;
        metrics.log_batches.inc();
        metrics.log_bytes.inc_by(written.bytes as u64);
        if sync {
            metrics.log_syncs.inc();
        }
        metrics.record_log_sync(took);
        Ok(written.bytes)
    }

    /// Syncs the log. Returns false if there is no room, and the caller must try again.
    fn sync(&mut self, schedule: &Schedule) -> bool {
        let started = Instant::now();
        match self.parts.log_clock.during(schedule, self.unsynced, || self.log.sync(), Result::is_ok) {
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

    fn sync_if_due(&mut self, schedule: &Schedule) {
        if self.sync_at.is_some_and(|at| at <= Instant::now()) {
            self.sync_at = if self.sync(schedule) { None } else { Some(Instant::now() + NO_SPACE_RETRY) };
        }
    }
}

/// Creates the two ends at which batches are written.
pub fn new<L: Log>(log: L, parts: Parts) -> (LogSender<L>, LogWriter<L>) {
    let (sender, batches) = super::batches::channel();
    let (for_sender, for_writer) = (parts.clone(), parts.clone());
    let writing = Writing { log, parts, sync_at: None, unsynced: 0, waits: Waits::default() };
    let writing = Arc::new(Mutex::new(writing));
    let schedule = Schedule::default();
    let sender = LogSender { writing: writing.clone(), batches: sender, schedule, parts: for_sender };
    (sender, LogWriter { writing, batches, parts: for_writer })
}

/// The worker's end.
pub struct LogSender<L> {
    writing: Arc<Mutex<Writing<L>>>,
    batches: BatchSender,
    /// The schedule of the worker's thread.
    schedule: Schedule,
    parts: Parts,
}

impl<L: Log> LogSender<L> {
    /// Passes a batch to the log thread.
    pub fn send(&self, batch: LogBatch) {
        self.batches.send(batch);
    }

    /// Writes a batch on this thread if the wait is expected to be short. Returns true if the batch
    /// is persisted now. Otherwise the log thread writes it.
    pub fn write(&self, batch: LogBatch) -> bool {
        let is_written = self.try_write(&batch);
        if !is_written {
            self.batches.send(batch);
        }
        is_written
    }

    fn try_write(&self, batch: &LogBatch) -> bool {
        let Some(mut writing) = self.writing.try_lock() else { return false };
        let (bytes, _) = batch.entry_sizes();
        // A sync after writes without one takes as long as all of their bytes.
        let syncs_others = writing.must_sync(batch) && writing.unsynced > 0;
        if syncs_others || !writing.waits.are_short(bytes) {
            return false;
        }
        let had_limit = writing.sync_at.is_some();
        // If there is no room, the log thread waits for it.
        let Ok(written) = writing.append(batch, Caller::Loop, &self.schedule) else { return false };
        self.parts.log_clock.note_loop_bytes(written as u64);
        self.parts.metrics.log_batches_of_loop.inc();
        if !had_limit && writing.sync_at.is_some() {
            self.batches.wake();
        }
        true
    }
}

/// The log thread's end.
pub struct LogWriter<L> {
    writing: Arc<Mutex<Writing<L>>>,
    batches: BatchReceiver,
    parts: Parts,
}

/// The error of a batch that waits for room while the store stops. The batch was never acknowledged
/// and is dropped.
struct GivenUp;

impl<L: Log> LogWriter<L> {
    /// Runs until the worker has ended.
    pub fn run(self) {
        let schedule = Schedule::default();
        if let Err(GivenUp) = self.serve(&schedule) {
            // The worker may still send batches until it is told to stop. They are not
            // acknowledged.
            while let Next::Batch(_) = self.batches.next(None) {}
        }
        // If a full device prevents this sync, only data that was never acknowledged as durable is
        // lost.
        self.writing.lock().sync(&schedule);
    }

    fn serve(&self, schedule: &Schedule) -> Result<(), GivenUp> {
        loop {
            // The wait ends at the next due sync.
            let sync_at = self.writing.lock().sync_at;
            match self.batches.next(sync_at) {
                Next::Batch(batch) => self.write(&batch, schedule)?,
                Next::Late => {}
                Next::Closed => return Ok(()),
            }
            self.writing.lock().sync_if_due(schedule);
        }
    }

    fn write(&self, batch: &LogBatch, schedule: &Schedule) -> Result<(), GivenUp> {
        let mut told = false;
        loop {
            let written = self.writing.lock().append(batch, Caller::LogThread, schedule);
            let Err(NotWritten::Full(reason)) = written else { break };
            if !told {
                tracing::error!(%reason, "no space for the Raft log: acknowledgements wait for room");
                told = true;
            }
            if self.parts.ends.is_stopping() {
                return Err(GivenUp);
            }
            std::thread::sleep(NO_SPACE_RETRY);
        }
        if told {
            tracing::info!("there is room for the Raft log again");
        }
        // The send fails only after the worker has ended. The queue of batches also shows that.
        let _ = self.parts.worker.raft(Input::Persisted { batch: batch.number });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
