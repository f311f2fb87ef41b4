//! The log thread: one engine write and one sync for each batch of the worker, which goes on meanwhile.
//!
//! A failed write or sync ends the process: what is durable is not known any more, and a retry could be
//! told "yes" by a kernel that has dropped the pages. No space is different: nothing was written, the
//! batch waits, and so does the acknowledgement. Cuts do not wait behind it, for they make room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use raftlog::{Appended, LogError, RaftLog};
use replica::{Input, LogBatch};
use types::{LogIndex, RegionId, Term};

use super::inbox::ToWorker;
use crate::config::Fsync;
use crate::store::Store;

const EVERY_SECOND: Duration = Duration::from_secs(1);
const NO_SPACE_RETRY: Duration = Duration::from_millis(200);

/// What the log thread is told, in order.
pub enum ToLog {
    Append(LogBatch),
    /// Drop a region's entries through `index`, whose term is kept.
    Truncate {
        region: RegionId,
        index: LogIndex,
        term: Term,
    },
}

/// What this thread does to a log.
pub trait Log: Send {
    fn append(&self, batch: &LogBatch, sync: bool) -> Result<Appended, LogError>;
    fn sync(&self) -> Result<Appended, LogError>;
    fn truncate(&self, region: RegionId, index: LogIndex, term: Term) -> Result<(), LogError>;
}

impl Log for RaftLog {
    fn append(&self, batch: &LogBatch, sync: bool) -> Result<Appended, LogError> {
        RaftLog::append(self, batch, sync)
    }

    fn sync(&self) -> Result<Appended, LogError> {
        RaftLog::sync(self)
    }

    fn truncate(&self, region: RegionId, index: LogIndex, term: Term) -> Result<(), LogError> {
        RaftLog::truncate(self, region, index, term)
    }
}

pub struct LogWriter<L> {
    log: L,
    jobs: Receiver<ToLog>,
    worker: Sender<ToWorker>,
    store: Arc<Store>,
    /// Batches that came while another waited for room.
    backlog: VecDeque<LogBatch>,
    /// Cuts for which there was no room, each region's last.
    uncut: BTreeMap<RegionId, (LogIndex, Term)>,
    /// When what was appended without a sync is to be synced.
    sync_at: Option<Instant>,
}

/// The store stops while something waits for room: it was never acknowledged, and is given up.
struct GivenUp;

impl<L: Log> LogWriter<L> {
    pub fn new(log: L, jobs: Receiver<ToLog>, worker: Sender<ToWorker>, store: Arc<Store>) -> LogWriter<L> {
        LogWriter {
            log,
            jobs,
            worker,
            store,
            backlog: VecDeque::new(),
            uncut: BTreeMap::new(),
            sync_at: None,
        }
    }

    /// Runs until the worker has gone.
    pub fn run(mut self) {
        self.store.capability.log.begin_thread();
        if let Err(GivenUp) = self.serve() {
            // The worker may still send until it is told to stop; nothing of that is acknowledged.
            self.jobs.iter().for_each(drop);
        }
        // What a full device keeps from being synced now was not promised to be durable yet.
        self.sync();
    }

    fn serve(&mut self) -> Result<(), GivenUp> {
        loop {
            if let Some(batch) = self.backlog.pop_front() {
                self.write(&batch)?;
                continue;
            }
            match self.next_job() {
                Ok(ToLog::Truncate { region, index, term }) => self.cut(region, index, term),
                Ok(ToLog::Append(batch)) => self.write(&batch)?,
                Err(RecvTimeoutError::Timeout) => self.cut_again(),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if self.sync_at.is_some_and(|at| at <= Instant::now()) {
                self.sync_at = if self.sync() { None } else { Some(Instant::now() + NO_SPACE_RETRY) };
            }
        }
    }

    /// Waits for a job, but not past what is due without one.
    fn next_job(&self) -> Result<ToLog, RecvTimeoutError> {
        let mut wait = self.sync_at.map(|at| at.saturating_duration_since(Instant::now()));
        if !self.uncut.is_empty() {
            wait = Some(wait.map_or(NO_SPACE_RETRY, |wait| wait.min(NO_SPACE_RETRY)));
        }
        match wait {
            Some(wait) => self.jobs.recv_timeout(wait),
            None => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn write(&mut self, batch: &LogBatch) -> Result<(), GivenUp> {
        let fsync = self.store.config.fsync;
        let synced = fsync == Fsync::Always || batch.must_sync;
        self.append(batch, synced)?;
        if synced {
            self.sync_at = None;
        } else if fsync == Fsync::EverySec {
            self.sync_at.get_or_insert_with(|| Instant::now() + EVERY_SECOND);
        }
        // The worker is gone when nobody takes this; the channel of jobs says so, too.
        let _ = self.worker.send(ToWorker::Input(Input::Persisted { batch: batch.number }));
        Ok(())
    }

    fn append(&mut self, batch: &LogBatch, sync: bool) -> Result<(), GivenUp> {
        let started = Instant::now();
        let mut told = false;
        loop {
            let clock = &self.store.capability.log;
            match clock.during(|| self.log.append(batch, sync), |done| sync && done.is_ok()) {
                Ok(written) => {
                    let metrics = &self.store.metrics;
                    metrics.log_batches.inc();
                    metrics.log_bytes.inc_by(written.bytes as u64);
                    if sync {
                        metrics.log_syncs.inc();
                    }
                    metrics.log_sync.record(started.elapsed());
                    if told {
                        tracing::info!("there is room for the Raft log again");
                    }
                    return Ok(());
                }
                Err(LogError::NoSpace(reason)) => {
                    self.store.disk.set_full();
                    if !told {
                        tracing::error!(%reason, "no space for the Raft log: acknowledgements wait for room");
                        told = true;
                    }
                    if self.store.stopping.load(Ordering::Relaxed) {
                        return Err(GivenUp);
                    }
                    self.cut_again();
                    self.cut_for(NO_SPACE_RETRY);
                }
                Err(error) => self.store.fatal(&format!("the Raft log cannot be written: {error}")),
            }
        }
    }

    /// Takes jobs for as long as given, which is a pause for what waits for room: cuts are made at once.
    /// They are of entries that were persisted before, so they may overtake a batch.
    fn cut_for(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            match self.jobs.recv_deadline(until) {
                Ok(ToLog::Truncate { region, index, term }) => self.cut(region, index, term),
                Ok(ToLog::Append(batch)) => self.backlog.push_back(batch),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => {
                    // It returns at once: without the pause the caller would spin.
                    std::thread::sleep(until.saturating_duration_since(Instant::now()));
                    return;
                }
            }
        }
    }

    fn cut_again(&mut self) {
        let uncut: Vec<_> =
            self.uncut.iter().map(|(&region, &(index, term))| (region, index, term)).collect();
        uncut.into_iter().for_each(|(region, index, term)| self.cut(region, index, term));
    }

    fn cut(&mut self, region: RegionId, index: LogIndex, term: Term) {
        match self.log.truncate(region, index, term) {
            Ok(()) => {
                self.uncut.remove(&region);
            }
            Err(LogError::NoSpace(reason)) => {
                self.store.disk.set_full();
                // Every cut that comes after another one is of more entries.
                if self.uncut.insert(region, (index, term)).is_none() {
                    tracing::warn!(region, %reason, "no space to cut the Raft log: tried again later");
                }
            }
            Err(error) => self.store.fatal(&format!("the Raft log cannot be cut: {error}")),
        }
    }

    /// False: there is no room, and it must be tried again.
    fn sync(&self) -> bool {
        let started = Instant::now();
        match self.store.capability.log.during(|| self.log.sync(), Result::is_ok) {
            Ok(_) => {
                self.store.metrics.log_syncs.inc();
                self.store.metrics.log_sync.record(started.elapsed());
                true
            }
            Err(LogError::NoSpace(reason)) => {
                self.store.disk.set_full();
                tracing::warn!(%reason, "no space to sync the Raft log");
                false
            }
            Err(error) => self.store.fatal(&format!("the Raft log cannot be synced: {error}")),
        }
    }
}

#[cfg(test)]
mod tests;
