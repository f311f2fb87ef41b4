//! Log reads for followers that need entries no longer in memory.
//!
//! Such a read waits for a device, so the worker does not perform it. The consensus code asks for
//! the entries, is told that they come later, and continues. When they have been read, it asks
//! again and receives them. The entries are not kept after that.

use raft::eraftpb::Entry;
use raft::GetEntriesContext;
use types::LogIndex;

/// Maximum number of log reads of a store in progress, each for the entries of one message. Further
/// reads wait.
pub(crate) const LOG_READS_MAX: usize = 16;

/// Maximum number of requests that one read remembers. The library repeats any other request after
/// the next heartbeat response.
const ASKERS_MAX: usize = 16;

/// A request for the entries of `low..high` that fit in `max_bytes`, in order from `low`, and at
/// least one.
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

#[derive(Default)]
pub(crate) struct LogReads {
    open: Vec<Read>,
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
        let fresh = self.open.iter_mut().filter(|read| read.number == 0);
        fresh
            .map(|read| {
                *last += 1;
                read.number = *last;
                (read.number, read.range)
            })
            .collect()
    }

    /// Returns the range of an open read.
    pub fn range(&self, number: u64) -> Option<Range> {
        self.open.iter().find(|read| read.number == number).map(|read| read.range)
    }

    /// Completes a read. Returns the requests to repeat while [`fetched`](Self::fetched) holds the
    /// entries.
    pub fn finish(&mut self, number: u64, entries: Vec<Entry>) -> Vec<GetEntriesContext> {
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

    /// Forgets all reads because the log was replaced: they may return entries that it does not
    /// hold.
    pub fn clear(&mut self) {
        *self = LogReads::default();
    }
}
