//! Reads log entries for lagging followers and for execution. So the thread that owns the groups
//! neither waits for a device nor copies a very large entry. The groups limit the number of
//! concurrent reads.

use crossbeam_channel::Receiver;
use raftlog::RaftLog;
use replica::{Input, LogStore};
use types::{LogIndex, RegionId};

use crate::loops::WorkerSender;

/// The fields of `replica::Action::ReadLog`.
pub struct Wanted {
    pub region: RegionId,
    pub number: u64,
    pub low: LogIndex,
    pub high: LogIndex,
    pub max_bytes: u64,
}

/// Runs until no sender is left.
pub fn run(worker: WorkerSender, log: RaftLog, wanted: Receiver<Wanted>) {
    while let Ok(Wanted { region, number, low, high, max_bytes }) = wanted.recv() {
        let entries = log.entries(region, low, high, max_bytes);
        let _ = worker.raft(Input::LogRead { region, number, entries });
    }
}
