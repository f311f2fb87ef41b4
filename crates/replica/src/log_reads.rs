//! Reads of entries that are no longer in memory, for followers that lag.
//!
//! They wait for a device, so the worker does not make them itself. The consensus code asks, is told that the entries come
//! later, and goes on; when they are here it asks again, and is given them. Of the entries nothing is kept after that.

use raft::eraftpb::Entry;
use raft::GetEntriesContext;
use types::LogIndex;

/// The most reads of a store that are on their way, each of one message's entries. The others wait for these.
pub(crate) const LOG_READS_MAX: usize = 16;

/// The most askers that one read remembers. The library asks again for any other with the next heartbeat's answer.
const ASKERS_MAX: usize = 16;

/// Of `low..high` from `low` on, as many entries as fit in `max_bytes`, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub low: LogIndex,
    pub high: LogIndex,
    pub max_bytes: u64,
}

struct Read {
    range: Range,
    /// 0: it has not been taken up yet.
    number: u64,
    askers: Vec<GetEntriesContext>,
}

#[derive(Default)]
pub(crate) struct LogReads {
    open: Vec<Read>,
    /// What the last one brought, while it is handed to those who asked.
    fetched: Vec<Entry>,
}

impl LogReads {
    /// These entries are wanted, and `asker` is to be asked again when they are here.
    pub fn want(&mut self, range: Range, asker: GetEntriesContext) {
        match self.open.iter_mut().find(|read| read.range.low == range.low) {
            Some(read) if read.askers.len() < ASKERS_MAX => read.askers.push(asker),
            Some(_) => {}
            None => self.open.push(Read { range, number: 0, askers: vec![asker] }),
        }
    }

    /// Returns the reads that nobody has taken up, and gives them the next numbers after `last`.
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

    /// The range of an open read.
    pub fn range(&self, number: u64) -> Option<Range> {
        self.open.iter().find(|read| read.number == number).map(|read| read.range)
    }

    /// The read is done: whom to ask again, while [`fetched`](Self::fetched) has the entries.
    pub fn finish(&mut self, number: u64, entries: Vec<Entry>) -> Vec<GetEntriesContext> {
        let Some(at) = self.open.iter().position(|read| read.number == number) else { return Vec::new() };
        self.fetched = entries;
        self.open.swap_remove(at).askers
    }

    /// From `low` to before `high`, as far as they are here.
    pub fn fetched(&self, low: LogIndex, high: LogIndex) -> &[Entry] {
        let is_there = self.fetched.first().is_some_and(|entry| entry.index == low);
        let most = usize::try_from(high.saturating_sub(low)).unwrap_or(usize::MAX);
        &self.fetched[..if is_there { most.min(self.fetched.len()) } else { 0 }]
    }

    pub fn forget_fetched(&mut self) {
        self.fetched = Vec::new();
    }

    /// Forgets all reads, because the log was replaced: they may bring entries that it does not hold.
    pub fn clear(&mut self) {
        *self = LogReads::default();
    }
}
