//! Reads entries of the log for followers that lag, so that the thread that owns the groups waits for no device. How many
//! reads there are at a time, the groups' machine bounds.

use crossbeam_channel::Receiver;
use raftlog::RaftLog;
use replica::{Input, LogStore};
use types::{LogIndex, RegionId};

use crate::loops::{ToWorker, WorkerSender};

/// As `replica::Action::ReadLog`.
pub struct Wanted {
    pub region: RegionId,
    pub number: u64,
    pub low: LogIndex,
    pub high: LogIndex,
    pub max_bytes: u64,
}

/// Runs until nobody can ask any more.
pub fn run(worker: WorkerSender, log: RaftLog, wanted: Receiver<Wanted>) {
    while let Ok(Wanted { region, number, low, high, max_bytes }) = wanted.recv() {
        let entries = log.entries(region, low, high, max_bytes);
        let _ = worker.send(ToWorker::Input(Input::LogRead { region, number, entries }));
    }
}
