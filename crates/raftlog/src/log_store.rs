//! The log as `replica` reads it.

use raft::eraftpb::Entry;
use replica::{HardState, LogBounds, LogStore};
use types::{LogIndex, RegionId, Term};

use crate::error::{reading, LogError, Result};
use crate::log::{EntryExt, RaftLog};
use crate::records;

impl LogStore for RaftLog {
    fn hard_state(&self, region: RegionId) -> std::result::Result<Option<HardState>, replica::LogError> {
        let bytes = self.engine().get(region, records::HARD_STATE_KEY);
        told(region, bytes.map(|bytes| records::decode_hard_state(&bytes)).transpose())
    }

    fn bounds(&self, region: RegionId) -> std::result::Result<LogBounds, replica::LogError> {
        told(region, self.bounds_of(region))
    }

    fn term(&self, region: RegionId, index: LogIndex) -> std::result::Result<Term, replica::LogError> {
        told(region, self.term_of(region, index))
    }

    fn entries(
        &self,
        region: RegionId,
        low: LogIndex,
        high: LogIndex,
        max_bytes: u64,
    ) -> std::result::Result<Vec<Entry>, replica::LogError> {
        told(region, self.entries_of(region, low, high, max_bytes))
    }
}

impl RaftLog {
    pub(crate) fn term_of(&self, region: RegionId, index: LogIndex) -> Result<Term> {
        let state = self.log_state(region)?;
        if index == state.truncated_index {
            return Ok(state.truncated_term);
        }
        let entry = retried(|| self.engine().get_entry::<EntryExt>(region, index))?;
        match entry {
            Some(entry) => Ok(entry.term),
            None => Err(self.out_of_range(region, format!("no term of {index}"))),
        }
    }

    pub(crate) fn entries_of(
        &self,
        region: RegionId,
        low: LogIndex,
        high: LogIndex,
        max_bytes: u64,
    ) -> Result<Vec<Entry>> {
        if low >= high {
            return Ok(Vec::new());
        }
        let bounds = self.bounds_of(region)?;
        if low < bounds.first || high > bounds.last + 1 {
            return Err(self.out_of_range(region, format!("no entries {low}..{high}")));
        }
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        retried(|| {
            let mut entries = Vec::new();
            self.engine().fetch_entries_to::<EntryExt>(region, low, high, Some(max_bytes), &mut entries)?;
            Ok(entries)
        })
    }

    fn out_of_range(&self, region: RegionId, asked: String) -> LogError {
        match self.bounds_of(region) {
            Ok(LogBounds { first, last }) => LogError::Range { region, first, last, asked },
            Err(error) => error,
        }
    }
}

/// A purge may move an entry between the look-up of its place and the read of the file. Then the second
/// look-up finds the new place.
fn retried<T>(read: impl Fn() -> raft_engine::Result<T>) -> Result<T> {
    read().or_else(|_| read()).map_err(reading)
}

fn told<T>(region: RegionId, result: Result<T>) -> std::result::Result<T, replica::LogError> {
    result.map_err(|error| replica::LogError { region, reason: error.to_string() })
}
