//! Log reads of entries that are no longer in memory: entries that followers lack, and very large
//! entries to execute.
//!
//! Such a read waits for a device or copies a very large entry, so the worker does not perform it.
//! The consensus code asks for the entries, is told that they come later, and continues. When they
//! have been read, it asks again and receives them. They are not cached after that.

use raft::eraftpb::Entry;
use raft::GetEntriesContext;
use types::LogIndex;

/// Maximum number of log reads of a store in progress, each for the entries of one message. Further
/// reads wait.
pub(crate) const LOG_READS_MAX: usize = 16;

/// Maximum number of waiting requests that one read records. The library repeats any other request
/// after the next heartbeat response.
const ASKERS_MAX: usize = 16;

/// A request for the entries of `low..high` that fit in `max_bytes`, from `low` on, and at least
/// one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub low: LogIndex,
    pub high: LogIndex,
    pub max_bytes: u64,
}

struct Read {
    range: Range,
    /// The read's number, or 0 if the read has not been started.
    number: u64,
    askers: Vec<GetEntriesContext>,
}

/// The read of the entries that are to be executed next.
#[derive(Default)]
enum ForExecution {
    #[default]
    None,
    /// The number is 0 if the read has not been started.
    Open { range: Range, number: u64 },
    /// The entries that were read, until they are handed out.
    Done(Vec<Entry>),
}

#[derive(Default)]
pub(crate) struct LogReads {
    open: Vec<Read>,
    for_execution: ForExecution,
    /// The result of the last read, while the requests that waited for it are repeated.
    fetched: Vec<Entry>,
}

impl LogReads {
    /// Requests a read of `range`. `asker` is to be called again when the entries are available.
    pub fn want(&mut self, range: Range, asker: GetEntriesContext) {
        match self.open.iter_mut().find(|read| read.range.low == range.low) {
            Some(read) if read.askers.len() < ASKERS_MAX => read.askers.push(asker),
            Some(_) => {}
            None => self.open.push(Read { range, number: 0, askers: vec![asker] }),
        }
    }

    /// Returns the reads that have not been started, and assigns them the next numbers after
    /// `last`.
    pub fn take_up(&mut self, last: &mut u64) -> Vec<(u64, Range)> {
        let for_execution = match &mut self.for_execution {
            ForExecution::Open { range, number } => Some((number, *range)),
            ForExecution::None | ForExecution::Done(_) => None,
        };
        let for_followers = self.open.iter_mut().map(|read| (&mut read.number, read.range));
        let fresh = for_execution.into_iter().chain(for_followers).filter(|(number, _)| **number == 0);
        fresh
            .map(|(number, range)| {
                *last += 1;
                *number = *last;
                (*number, range)
            })
            .collect()
    }

    /// Returns the range of an open read.
    pub fn range(&self, number: u64) -> Option<Range> {
        match &self.for_execution {
            ForExecution::Open { range, number: own } if *own == number => Some(*range),
            _ => self.open.iter().find(|read| read.number == number).map(|read| read.range),
        }
    }

    /// Returns the entries to execute if they have been read, and forgets them. Otherwise requests
    /// a read of `range` and returns none.
    pub fn take_for_execution(&mut self, range: Range) -> Vec<Entry> {
        match std::mem::take(&mut self.for_execution) {
            ForExecution::Done(entries) if entries.first().is_some_and(|first| first.index == range.low) => {
                entries
            }
            open @ ForExecution::Open { .. } => {
                self.for_execution = open;
                Vec::new()
            }
            ForExecution::None | ForExecution::Done(_) => {
                self.for_execution = ForExecution::Open { range, number: 0 };
                Vec::new()
            }
        }
    }

    /// Returns whether entries to execute are being read.
    pub fn awaits_execution(&self) -> bool {
        matches!(self.for_execution, ForExecution::Open { .. })
    }

    /// Completes a read. Returns the requests to repeat while [`fetched`](Self::fetched) holds the
    /// entries.
    pub fn finish(&mut self, number: u64, entries: Vec<Entry>) -> Vec<GetEntriesContext> {
        if matches!(self.for_execution, ForExecution::Open { number: own, .. } if own == number) {
            // If the entries were truncated in the meantime, the result is empty. The next request
            // decides.
            self.for_execution = ForExecution::Done(entries);
            return Vec::new();
        }
        let Some(at) = self.open.iter().position(|read| read.number == number) else { return Vec::new() };
        self.fetched = entries;
        self.open.swap_remove(at).askers
    }

    /// Returns the fetched entries from `low` to before `high`, if they begin with `low`.
    pub fn fetched(&self, low: LogIndex, high: LogIndex) -> &[Entry] {
        let is_there = self.fetched.first().is_some_and(|entry| entry.index == low);
        let most = usize::try_from(high.saturating_sub(low)).unwrap_or(usize::MAX);
        &self.fetched[..if is_there { most.min(self.fetched.len()) } else { 0 }]
    }

    pub fn forget_fetched(&mut self) {
        self.fetched = Vec::new();
    }

    /// Cancels all reads because the log was replaced: they may return entries that it does not
    /// hold.
    pub fn clear(&mut self) {
        *self = LogReads::default();
    }
}
