//! The log thread: one engine write and one sync for each batch of the worker, which goes on meanwhile.
//!
//! A failed write or sync ends the process: what is durable is not known any more, and a retry could be
//! told "yes" by a kernel that has dropped the pages. No space is different: nothing was written, the
//! batch waits, and so does the acknowledgement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use raftlog::{LogError, RaftLog};
use replica::LogBatch;
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

pub struct LogWriter {
    pub log: RaftLog,
    pub jobs: Receiver<ToLog>,
    pub worker: Sender<ToWorker>,
    pub store: Arc<Store>,
}

impl LogWriter {
    /// Runs until the worker has gone.
    pub fn run(self) {
        let fsync = self.store.config.fsync;
        let mut unsynced_since: Option<Instant> = None;
        loop {
            let job = match unsynced_since {
                Some(since) if fsync == Fsync::EverySec => {
                    self.jobs.recv_timeout(EVERY_SECOND.saturating_sub(since.elapsed()))
                }
                _ => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(ToLog::Truncate { region, index, term }) => {
                    if let Err(error) = self.log.truncate(region, index, term) {
                        self.store.fatal(&format!("the Raft log cannot be cut: {error}"));
                    }
                }
                Ok(ToLog::Append(batch)) => {
                    let synced = fsync == Fsync::Always || batch.must_sync;
                    self.append(&batch, synced);
                    if synced {
                        unsynced_since = None;
                    } else if unsynced_since.is_none() {
                        unsynced_since = Some(Instant::now());
                    }
                    if self.worker.send(ToWorker::Persisted { batch: batch.number }).is_err() {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if fsync == Fsync::EverySec && unsynced_since.is_some_and(|since| since.elapsed() >= EVERY_SECOND)
            {
                self.sync();
                unsynced_since = None;
            }
        }
        self.sync();
    }

    fn append(&self, batch: &LogBatch, sync: bool) {
        let started = Instant::now();
        let mut told = false;
        loop {
            match self.log.append(batch, sync) {
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
                    return;
                }
                Err(LogError::NoSpace(reason)) => {
                    self.store.disk.set_full();
                    if !told {
                        tracing::error!(%reason, "no space for the Raft log: acknowledgements wait for room");
                        told = true;
                    }
                    std::thread::sleep(NO_SPACE_RETRY);
                }
                Err(error) => self.store.fatal(&format!("the Raft log cannot be written: {error}")),
            }
        }
    }

    fn sync(&self) {
        let started = Instant::now();
        if let Err(error) = self.log.sync() {
            self.store.fatal(&format!("the Raft log cannot be synced: {error}"));
        }
        self.store.metrics.log_syncs.inc();
        self.store.metrics.log_sync.record(started.elapsed());
    }
}
