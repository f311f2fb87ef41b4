//! The implementation of `replica`'s trait for reading the log.

use raft::eraftpb::Entry;
use replica::{HardState, LogBounds, LogError, LogStore};
use types::{LogIndex, RegionId, Term};
use wal::{read_entries, SharedIndex};

use crate::log::RaftLog;

impl LogStore for RaftLog {
    fn hard_state(&self, region: RegionId) -> Result<Option<HardState>, LogError> {
        Ok(self.index().with(|index| index.hard_state(region)))
    }

    fn bounds(&self, region: RegionId) -> Result<LogBounds, LogError> {
        Ok(self.index().with(|index| index.bounds(region)))
    }

    fn term(&self, region: RegionId, index: LogIndex) -> Result<Term, LogError> {
        told(region, self.index().with(|of| of.term(region, index)))
    }

    fn entries(
        &self,
        region: RegionId,
        low: LogIndex,
        high: LogIndex,
        max_bytes: u64,
    ) -> Result<Vec<Entry>, LogError> {
        let (files, secret) = self.files();
        told(region, read_entries(files, self.index(), secret, region, (low, high), max_bytes))
    }
}

fn told<T>(region: RegionId, result: wal::Result<T>) -> Result<T, LogError> {
    result.map_err(|error| {
        let damaged = match error {
            wal::LogError::Damaged { first, last, .. } => Some((first, last)),
            _ => None,
        };
        LogError { region, reason: error.to_string(), damaged }
    })
}
