//! One region's log as the consensus code sees it: the content of the log engine, overlaid with the
//! entries whose write is pending.
//!
//! Invariants: `first - 1 <= stable <= last`. The engine holds exactly this log's entries through
//! `stable`. The cache is contiguous, ends at `last`, and contains every entry above `stable`.
//! Below `stable` it keeps as many entries as the memory budget of the store's peers allows.
//! `memory` counts exactly the entries in the cache.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use raft::eraftpb::{ConfState, Entry, HardState as RaftHardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use types::{LogIndex, RegionId, Term};

use crate::log_reads::{LogReads, Range};
use crate::log_store::{LogError, LogStore};
use crate::memory::{EntryMemory, Trim};

/// The state that all peers of a store share for their logs.
#[derive(Clone)]
pub(crate) struct Logs<L> {
    pub store: L,
    pub memory: Arc<EntryMemory>,
}

/// The way in which entries are handed out for execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handing {
    /// At once. Very large entries that are not in memory are handed out when they have been read.
    Out,
    /// No entries are handed out, because too many bytes wait to be executed.
    Withheld,
}

pub(crate) struct LogView<L> {
    store: L,
    region: RegionId,
    initial: RaftState,
    first: LogIndex,
    last: LogIndex,
    stable: LogIndex,
    truncated_term: Term,
    last_term: Term,
    cache: VecDeque<Entry>,
    cache_bytes: u64,
    memory: Arc<EntryMemory>,
    /// Written entries that were evicted before they were handed out and that are too large to be
    /// read directly. Ascending.
    large: VecDeque<LogIndex>,
    /// The size in bytes above which an entry is too large to be read directly.
    large_bytes: u64,
    /// The answer to requests for entries to execute. `None` while the consensus code requests
    /// entries for another purpose.
    handing: Option<Handing>,
    /// Typical size of an entry in bytes, as a moving average.
    entry_bytes: u64,
    /// The first failed read. The consensus code panics on most storage errors, so the view stores
    /// the error here and returns a result that the consensus code survives. Unless the entries are
    /// damaged, the worker then stops before any output of that turn is used.
    failure: RefCell<Option<LogError>>,
    /// The index of the last entry that was found damaged; 0 if none was. Followers that lack
    /// entries up to it need a snapshot.
    damaged_through: Cell<LogIndex>,
    reads: RefCell<LogReads>,
    /// The snapshot to send to a peer that needs truncated entries.
    offer: Option<Snapshot>,
    /// True if a peer needs a snapshot, and the log does not continue from any offered snapshot.
    snapshot_wanted: Cell<bool>,
}

/// Returns the memory that an entry takes, in bytes. Its size in the log is nearly the same.
pub(crate) fn size_of(entry: &Entry) -> u64 {
    entry.data.len() as u64 + 64
}

impl<L: LogStore> LogView<L> {
    pub fn open(
        logs: Logs<L>,
        region: RegionId,
        hard_state: RaftHardState,
        conf_state: ConfState,
    ) -> Result<Self, LogError> {
        let store = &logs.store;
        let bounds = store.bounds(region)?;
        let reason = |reason: String| LogError { region, reason, damaged: None };
        if bounds.first == 0 || bounds.last + 1 < bounds.first {
            return Err(reason(format!("impossible bounds {bounds:?}")));
        }
        let begin = (bounds.first - 1, store.term(region, bounds.first - 1)?);
        let last_term = store.term(region, bounds.last)?;
        let initial = RaftState::new(hard_state, conf_state);
        let mut view = LogView::new_at(logs, region, initial, begin);
        (view.last, view.stable, view.last_term) = (bounds.last, bounds.last, last_term);
        Ok(view)
    }

    /// Creates a view of an empty log that begins after the given entry. The engine is not read.
    pub fn new_at(
        Logs { store, memory }: Logs<L>,
        region: RegionId,
        initial: RaftState,
        (index, term): (LogIndex, Term),
    ) -> Self {
        LogView {
            store,
            region,
            initial,
            first: index + 1,
            last: index,
            stable: index,
            truncated_term: term,
            last_term: term,
            cache: VecDeque::new(),
            cache_bytes: 0,
            memory,
            large: VecDeque::new(),
            large_bytes: u64::MAX,
            handing: None,
            entry_bytes: 64,
            failure: RefCell::new(None),
            damaged_through: Cell::new(0),
            reads: RefCell::new(LogReads::default()),
            offer: None,
            snapshot_wanted: Cell::new(false),
        }
    }

    /// Replaces the log with an empty one that begins after this entry. The engine's entries are
    /// not read after this call: a batch that deletes them is in flight.
    pub fn restart(&mut self, index: LogIndex, term: Term) {
        (self.first, self.last, self.stable) = (index + 1, index, index);
        (self.truncated_term, self.last_term) = (term, term);
        self.damaged_through.set(0);
        self.forget_cache();
        self.large.clear();
        self.reads.borrow_mut().clear();
        self.offer = None;
    }

    /// Sets the snapshot to offer; `None` if no usable snapshot exists.
    pub fn set_offer(&mut self, offer: Option<Snapshot>) {
        self.offer = offer;
    }

    pub fn offered(&self) -> Option<LogIndex> {
        self.offer.as_ref().map(|snapshot| snapshot.get_metadata().index)
    }

    /// Returns true if a snapshot was requested since the last call and none could be offered.
    pub fn take_snapshot_wanted(&self) -> bool {
        self.snapshot_wanted.take()
    }

    pub fn first(&self) -> LogIndex {
        self.first
    }

    pub fn entry_bytes(&self) -> u64 {
        self.entry_bytes
    }

    pub fn take_failure(&self) -> Option<LogError> {
        self.failure.borrow_mut().take()
    }

    /// Appends entries whose write is pending. They replace the log from the first entry's index
    /// on.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(head) = entries.first() else { return };
        self.large.retain(|&index| index < head.index);
        assert!(self.first <= head.index && head.index <= self.last + 1, "entries follow the log");
        if head.index <= self.last {
            self.reads.borrow_mut().clear();
        }
        self.stable = self.stable.min(head.index - 1);
        while self.cache.back().is_some_and(|entry| entry.index >= head.index) {
            let bytes = self.cache.pop_back().map_or(0, |entry| size_of(&entry));
            self.released(bytes);
        }
        for entry in entries {
            let bytes = size_of(entry);
            self.cache_bytes += bytes;
            self.memory.add(bytes);
            self.entry_bytes = (self.entry_bytes * 63 + bytes).div_ceil(64);
            self.last = entry.index;
            self.last_term = entry.term;
            self.cache.push_back(entry.clone());
        }
    }

    /// Records that a batch was written whose last entry for this region is this one. Has no effect
    /// if the entry was replaced in the meantime, because then a later batch is pending.
    pub fn persisted(&mut self, index: LogIndex, term: Term) {
        if index > self.stable && self.cached(index).is_some_and(|entry| entry.term == term) {
            self.stable = index;
        }
    }

    /// Drops the entries through `index` and returns the term of the entry at `index`.
    pub fn truncate(&mut self, index: LogIndex) -> Option<Term> {
        assert!(self.first <= index && index <= self.stable, "only what is written is truncated");
        let term = self.term(index).ok()?;
        self.truncated_term = term;
        self.first = index + 1;
        self.large.retain(|&large| large > index);
        while self.cache.front().is_some_and(|entry| entry.index <= index) {
            self.pop_front();
        }
        Some(term)
    }

    pub fn term_if_held(&self, index: LogIndex) -> Option<Term> {
        if index < self.first - 1 || index > self.last {
            return None;
        }
        self.term(index).ok()
    }

    /// Evicts the older half of the cached bytes, limited to written entries. Returns false if
    /// nothing was evicted. Entries through `handed` were handed out for execution. With
    /// `Trim::NotNext` the log's last entry stays if it was not handed out.
    pub fn evict(&mut self, trim: Trim, handed: LogIndex) -> bool {
        let kept = self.cache_bytes / 2;
        let before = self.cache_bytes;
        let spares_last = trim == Trim::NotNext && self.last > handed;
        let end = if spares_last { self.stable.min(self.last - 1) } else { self.stable };
        while let Some(front) = self.cache.front() {
            if self.cache_bytes <= kept || front.index > end {
                break;
            }
            if front.index > handed && size_of(front) > self.large_bytes {
                self.large.push_back(front.index);
            }
            self.pop_front();
        }
        self.cache_bytes < before
    }

    /// Sets the answer to requests for entries to execute. It holds until the consensus code
    /// requests entries for another purpose.
    pub fn hand(&mut self, handing: Option<Handing>) {
        self.handing = handing;
    }

    /// Sets the size in bytes above which entries outside of memory are read asynchronously.
    pub fn set_large_bytes(&mut self, bytes: u64) {
        self.large_bytes = bytes;
    }

    /// Returns whether the entries to execute next are being read.
    pub fn awaits_execution(&self) -> bool {
        self.reads.borrow().awaits_execution()
    }

    fn pop_front(&mut self) {
        let bytes = self.cache.pop_front().map_or(0, |entry| size_of(&entry));
        self.released(bytes);
    }

    fn released(&mut self, bytes: u64) {
        self.cache_bytes -= bytes;
        self.memory.sub(bytes);
    }

    fn forget_cache(&mut self) {
        self.cache.clear();
        self.released(self.cache_bytes);
    }

    fn cached(&self, index: LogIndex) -> Option<&Entry> {
        let front = self.cache.front()?.index;
        self.cache.get(usize::try_from(index.checked_sub(front)?).ok()?)
    }

    /// Returns the lowest index from which followers can be sent entries.
    fn first_given(&self) -> LogIndex {
        self.first.max(self.damaged_through.get() + 1)
    }

    fn fail(&self, error: LogError) {
        if let Some((_, last)) = error.damaged {
            self.damaged_through.set(last.max(self.damaged_through.get()));
        }
        self.failure.borrow_mut().get_or_insert(error);
    }

    /// Reads the part of `low..high` that only the log engine holds.
    fn read(&self, low: LogIndex, high: LogIndex, max_bytes: u64) -> Vec<Entry> {
        let read = self.store.entries(self.region, low, high, max_bytes);
        self.checked(Range { low, high, max_bytes }, read)
    }

    /// Returns the entries if they match the requested range. Otherwise records a failure, so that
    /// the worker stops, and returns no entries.
    fn checked(&self, range: Range, read: Result<Vec<Entry>, LogError>) -> Vec<Entry> {
        let Range { low, high, .. } = range;
        match read {
            Ok(entries) => {
                let contiguous = entries.iter().zip(low..high).all(|(entry, index)| entry.index == index);
                if contiguous && !entries.is_empty() && entries.len() as u64 <= high - low {
                    return entries;
                }
                let reason = format!("asked for {low}..{high}, read {} others", entries.len());
                self.fail(LogError { region: self.region, reason, damaged: None });
            }
            Err(error) => self.fail(error),
        }
        Vec::new()
    }

    /// Returns the requested reads that have not been started, numbered from `last + 1` on.
    pub fn take_up_reads(&self, last: &mut u64) -> Vec<(u64, Range)> {
        self.reads.borrow_mut().take_up(last)
    }

    pub fn wants_read(&self, number: u64) -> bool {
        self.reads.borrow().range(number).is_some()
    }

    /// Completes a read. Returns the requests that the caller must repeat before it calls
    /// [`forget_fetched`](Self::forget_fetched). A read of entries that were truncated meanwhile
    /// may fail; its result is ignored.
    pub fn fetched(&self, number: u64, read: Result<Vec<Entry>, LogError>) -> Vec<GetEntriesContext> {
        let Some(range) = self.reads.borrow().range(number) else { return Vec::new() };
        let entries = if range.low < self.first_given() { Vec::new() } else { self.checked(range, read) };
        self.reads.borrow_mut().finish(number, entries)
    }

    pub fn forget_fetched(&self) {
        self.reads.borrow_mut().forget_fetched();
    }
}

impl<L> Drop for LogView<L> {
    fn drop(&mut self) {
        self.memory.sub(self.cache_bytes);
    }
}

impl<L: LogStore> Storage for LogView<L> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first || low < self.first_given() && context.can_async() {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.last + 1, "entries {low}..{high} of a log that ends at {}", self.last);
        let handing = self.handing.filter(|_| !context.can_async());
        if handing == Some(Handing::Withheld) {
            return Ok(Vec::new());
        }
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let cache_first = self.cache.front().map_or(self.last + 1, |entry| entry.index);
        let mut entries = Vec::new();
        let mut bytes = 0u64;
        if low < cache_first {
            let stop = high.min(cache_first);
            let has_large = || self.large.iter().any(|large| (low..stop).contains(large));
            if handing == Some(Handing::Out) && has_large() {
                if low < self.first_given() {
                    // Damaged entries are not read repeatedly.
                    return Ok(Vec::new());
                }
                // The next turn hands out the rest.
                let range = Range { low, high: stop, max_bytes };
                return Ok(self.reads.borrow_mut().take_for_execution(range));
            }
            entries = self.reads.borrow().fetched(low, stop).to_vec();
            if entries.is_empty() && context.can_async() {
                self.reads.borrow_mut().want(Range { low, high: stop, max_bytes }, context);
                return Err(Error::Store(StorageError::LogTemporarilyUnavailable));
            }
            if entries.is_empty() {
                entries = self.read(low, stop, max_bytes);
            }
            if entries.len() as u64 != stop - low {
                return Ok(entries);
            }
            bytes = entries.iter().map(size_of).sum();
        }
        let mut index = low.max(cache_first);
        while let Some(entry) = self.cached(index).filter(|_| index < high) {
            bytes = bytes.saturating_add(size_of(entry));
            if bytes > max_bytes && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
            index += 1;
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index + 1 == self.first {
            return Ok(self.truncated_term);
        }
        if index < self.first {
            return Err(Error::Store(StorageError::Compacted));
        }
        if index == self.last {
            return Ok(self.last_term);
        }
        if let Some(entry) = self.cached(index) {
            return Ok(entry.term);
        }
        if index > self.last {
            return Err(Error::Store(StorageError::Unavailable));
        }
        self.store.term(self.region, index).map_err(|error| {
            self.fail(error);
            Error::Store(StorageError::Unavailable)
        })
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last)
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // The log must continue from the snapshot. Otherwise the receiver would need another
        // snapshot.
        let follows = |offer: &&Snapshot| {
            let index = offer.get_metadata().index;
            index + 1 >= self.first_given() && index >= request_index
        };
        self.offer.as_ref().filter(follows).cloned().ok_or_else(|| {
            self.snapshot_wanted.set(true);
            Error::Store(StorageError::SnapshotTemporarilyUnavailable)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::log_store::{HardState, LogBounds};

    /// A log with entries `1..=10` of term 1 that counts how often it is read.
    #[derive(Clone, Default)]
    struct Ten {
        reads: Rc<Cell<u32>>,
        broken: Rc<Cell<bool>>,
    }

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, data: vec![0; 100].into(), ..Entry::default() }
    }

    impl LogStore for Ten {
        fn hard_state(&self, _: RegionId) -> Result<Option<HardState>, LogError> {
            Ok(None)
        }

        fn bounds(&self, _: RegionId) -> Result<LogBounds, LogError> {
            Ok(LogBounds { first: 1, last: 10 })
        }

        fn term(&self, _: RegionId, index: LogIndex) -> Result<Term, LogError> {
            Ok(u64::from(index > 0))
        }

        fn entries(&self, region: RegionId, low: u64, high: u64, max: u64) -> Result<Vec<Entry>, LogError> {
            self.reads.set(self.reads.get() + 1);
            if self.broken.get() {
                return Err(LogError { region, reason: "broken".into(), damaged: None });
            }
            let most = (max / 164).max(1) as usize;
            Ok((low..high).take(most).map(|index| entry(index, 1)).collect())
        }
    }

    fn view() -> (Ten, LogView<Ten>) {
        let store = Ten::default();
        let logs = Logs { store: store.clone(), memory: Arc::new(EntryMemory::new(0)) };
        let view = LogView::open(logs, 1, RaftHardState::default(), ConfState::default()).unwrap();
        (store, view)
    }

    fn ids(view: &LogView<Ten>, low: u64, high: u64, max: u64) -> Vec<(u64, u64)> {
        let entries = view.entries(low, high, max, GetEntriesContext::empty(false)).unwrap();
        entries.iter().map(|entry| (entry.index, entry.term)).collect()
    }

    #[test]
    fn what_is_not_yet_written_is_read_from_memory_and_the_rest_from_the_log() {
        let (store, mut view) = view();
        view.append(&[entry(9, 2), entry(10, 2)]);
        assert_eq!(ids(&view, 7, 11, u64::MAX), vec![(7, 1), (8, 1), (9, 2), (10, 2)]);
        assert_eq!(store.reads.get(), 1);
        assert_eq!(ids(&view, 9, 11, u64::MAX), vec![(9, 2), (10, 2)]);
        assert_eq!(store.reads.get(), 1);
        assert_eq!(ids(&view, 7, 11, 3 * 164), vec![(7, 1), (8, 1), (9, 2)]);
        assert_eq!(ids(&view, 9, 11, 0), vec![(9, 2)]);
        assert_eq!((view.term(8).unwrap(), view.term(10).unwrap()), (1, 2));
    }

    #[test]
    fn what_followers_lack_is_read_by_others_and_given_when_it_is_asked_for_again() {
        let (store, mut view) = view();
        let ask = |view: &LogView<Ten>| view.entries(3, 9, 2 * 164, GetEntriesContext::empty(true));
        let is_to_come = |view: &LogView<Ten>| {
            matches!(ask(view), Err(Error::Store(StorageError::LogTemporarilyUnavailable)))
        };
        // Repeated requests cause one read.
        assert!(is_to_come(&view) && is_to_come(&view));
        let mut last = 0;
        let range = Range { low: 3, high: 9, max_bytes: 2 * 164 };
        assert_eq!(view.take_up_reads(&mut last), [(1, range)]);
        assert!(is_to_come(&view));
        assert_eq!((view.take_up_reads(&mut last), store.reads.get()), (vec![], 0));
        assert_eq!(view.fetched(1, Ok(vec![entry(3, 1), entry(4, 1)])).len(), 3);
        let given: Vec<u64> = ask(&view).unwrap().iter().map(|entry| entry.index).collect();
        assert_eq!(given, [3, 4]);
        view.forget_fetched();
        assert!(is_to_come(&view));
        assert_eq!(view.take_up_reads(&mut last).len(), 1);
        // A read does not return entries that were replaced meanwhile.
        view.append(&[entry(9, 2)]);
        assert!(!view.wants_read(2));
        assert!(view.fetched(2, Ok(vec![entry(3, 1)])).is_empty());
        // A read may fail if its entries were truncated meanwhile, and only then.
        assert!(is_to_come(&view));
        assert_eq!(view.take_up_reads(&mut last).len(), 1);
        let gone = || Err(LogError { region: 1, reason: "gone".into(), damaged: None });
        view.persisted(9, 2);
        view.truncate(3);
        assert_eq!((view.fetched(3, gone()).len(), view.take_failure()), (1, None));
        assert!(matches!(ask(&view), Err(Error::Store(StorageError::Compacted))));
        assert!(view.entries(4, 8, None, GetEntriesContext::empty(true)).is_err());
        assert_eq!(view.take_up_reads(&mut last).len(), 1);
        assert_eq!(view.fetched(4, gone()).len(), 1);
        assert!(view.take_failure().is_some());
    }

    #[test]
    fn a_follower_that_lacks_damaged_entries_needs_a_snapshot_from_behind_them() {
        let (_, mut view) = view();
        let ask = |view: &LogView<Ten>, low| view.entries(low, 11, None, GetEntriesContext::empty(true));
        assert!(ask(&view, 3).is_err());
        let mut last = 0;
        assert_eq!(view.take_up_reads(&mut last).len(), 1);
        let damaged = LogError { region: 1, reason: "damaged".into(), damaged: Some((5, 6)) };
        assert_eq!(view.fetched(1, Err(damaged)).len(), 1);
        assert_eq!(view.take_failure().and_then(|error| error.damaged), Some((5, 6)));
        assert!(matches!(ask(&view, 3), Err(Error::Store(StorageError::Compacted))));
        assert!(view.take_up_reads(&mut last).is_empty(), "it is not read again");
        let mut snapshot = Snapshot::default();
        for (index, is_offered) in [(5, false), (6, true)] {
            snapshot.mut_metadata().index = index;
            view.set_offer(Some(snapshot.clone()));
            assert_eq!(view.snapshot(0, 1).is_ok(), is_offered);
        }
        assert!(matches!(ask(&view, 7), Err(Error::Store(StorageError::LogTemporarilyUnavailable))));
        assert_eq!(ids(&view, 4, 6, u64::MAX), [(4, 1), (5, 1)], "the peer itself still reads them");
    }

    #[test]
    fn only_written_entries_are_evicted_and_what_is_held_is_counted() {
        let (_, mut view) = view();
        let memory = view.memory.clone();
        view.append(&[entry(11, 2), entry(12, 2)]);
        view.append(&[entry(12, 3), entry(13, 3)]);
        assert_eq!((memory.held(), view.evict(Trim::All, 0)), (3 * 164, false));
        view.persisted(12, 2);
        assert_eq!((view.stable, view.evict(Trim::All, 0)), (10, false));
        view.persisted(12, 3);
        assert_eq!((view.stable, view.evict(Trim::All, 0), view.cache.len()), (12, true, 1));
        assert!(!view.evict(Trim::All, 0));
        view.persisted(13, 3);
        assert!(view.evict(Trim::All, 0));
        assert_eq!((view.stable, view.cache.len(), memory.held()), (13, 0, 0));
        assert_eq!(view.term(13).unwrap(), 3);
        view.append(&[entry(14, 3), entry(15, 3)]);
        view.persisted(15, 3);
        assert!(view.evict(Trim::NotNext, 14) && !view.evict(Trim::NotNext, 14), "the last entry stays");
        view.truncate(14);
        assert_eq!(memory.held(), 164);
        drop(view);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn while_entries_are_withheld_none_is_given_to_execute() {
        let (store, mut view) = view();
        view.append(&[entry(11, 1)]);
        view.hand(Some(Handing::Withheld));
        assert_eq!(ids(&view, 9, 12, u64::MAX), []);
        assert!(!view.awaits_execution() && view.take_up_reads(&mut 0).is_empty());
        view.hand(None);
        assert_eq!(ids(&view, 9, 12, u64::MAX), [(9, 1), (10, 1), (11, 1)]);
        assert_eq!(store.reads.get(), 1);
    }

    /// A view with the written entries 11 and 12, neither in memory. Entry 12 is large.
    fn view_without_a_large_one() -> (Ten, LogView<Ten>) {
        let (store, mut view) = view();
        view.set_large_bytes(200);
        view.append(&[entry(11, 1), Entry { data: vec![0; 137].into(), ..entry(12, 1) }]);
        view.persisted(12, 1);
        assert!(view.evict(Trim::All, 10) && view.cache.is_empty());
        view.append(&[entry(13, 1)]);
        view.hand(Some(Handing::Out));
        (store, view)
    }

    #[test]
    fn what_is_executed_and_large_and_not_in_memory_is_read_by_others() {
        let (store, mut view) = view_without_a_large_one();
        assert_eq!(
            (ids(&view, 9, 12, 164), store.reads.get()),
            (vec![(9, 1)], 1),
            "small entries are read directly"
        );
        // Repeated requests cause one read. A concurrent request for a follower's missing entries
        // causes another.
        assert_eq!((ids(&view, 12, 14, 164), ids(&view, 12, 14, 164)), (vec![], vec![]));
        let follower = view.entries(12, 14, 164, GetEntriesContext::empty(true));
        assert!(follower.is_err() && view.awaits_execution());
        let mut last = 0;
        let range = Range { low: 12, high: 13, max_bytes: 164 };
        assert_eq!(view.take_up_reads(&mut last), [(1, range), (2, range)]);
        assert!(view.wants_read(1) && view.take_up_reads(&mut last).is_empty());
        assert!(view.fetched(1, Ok(vec![entry(12, 1)])).is_empty() && !view.awaits_execution());
        view.forget_fetched();
        assert_eq!(ids(&view, 12, 14, 164), [(12, 1)], "kept until it is handed out");
        assert_eq!((ids(&view, 13, 14, 164), store.reads.get()), (vec![(13, 1)], 1), "in memory");
        // A restarted log holds none of the entries.
        assert_eq!(ids(&view, 12, 14, 164), []);
        assert_eq!(view.take_up_reads(&mut last), [(3, range)]);
        view.restart(40, 2);
        assert!(view.fetched(3, Ok(vec![entry(12, 1)])).is_empty() && !view.awaits_execution());
        view.append(&[entry(41, 2)]);
        assert_eq!(ids(&view, 41, 42, 164), [(41, 2)]);
    }

    #[test]
    fn large_entries_that_were_handed_out_or_replaced_or_truncated_are_forgotten() {
        let (_, mut view) = view_without_a_large_one();
        view.append(&[Entry { data: vec![0; 137].into(), ..entry(12, 2) }]);
        assert!(view.large.is_empty());
        view.persisted(12, 2);
        assert!(view.evict(Trim::All, 12) && view.large.is_empty(), "the entry was handed out before");
        let (_, mut view) = view_without_a_large_one();
        view.persisted(13, 1);
        view.truncate(12);
        assert!(view.large.is_empty());
    }

    #[test]
    fn a_failed_read_for_execution_is_kept_for_the_worker() {
        let (_, view) = view_without_a_large_one();
        assert_eq!(ids(&view, 12, 13, 164), []);
        assert_eq!(view.take_up_reads(&mut 0).len(), 1);
        view.fetched(1, Err(LogError { region: 1, reason: "broken".into(), damaged: None }));
        assert_eq!(view.take_failure().map(|error| error.reason), Some("broken".into()));
    }

    #[test]
    fn the_term_of_the_last_truncated_entry_is_still_known() {
        let (_, mut view) = view();
        assert_eq!(view.truncate(4), Some(1));
        assert_eq!((view.first(), view.term(4).unwrap()), (5, 1));
        assert!(view.term(3).is_err());
        assert!(view.entries(4, 6, None, GetEntriesContext::empty(false)).is_err());
    }

    #[test]
    fn a_log_that_begins_anew_knows_nothing_of_the_old_one() {
        let (store, mut view) = view();
        view.append(&[entry(11, 2), entry(12, 2)]);
        view.restart(40, 3);
        assert_eq!((view.first(), view.last_index().unwrap(), view.term(40).unwrap()), (41, 40, 3));
        view.persisted(12, 2);
        assert!(view.term(12).is_err() && view.stable == 40);
        view.append(&[entry(41, 3)]);
        view.persisted(41, 3);
        assert_eq!((view.stable, store.reads.get()), (41, 0));
    }

    #[test]
    fn a_snapshot_is_offered_only_while_the_log_goes_on_from_it() {
        let (_, mut view) = view();
        let mut snapshot = Snapshot::default();
        snapshot.mut_metadata().index = 6;
        assert!(view.snapshot(0, 1).is_err() && view.take_snapshot_wanted() && !view.take_snapshot_wanted());
        view.set_offer(Some(snapshot));
        view.truncate(6);
        assert!(view.snapshot(0, 1).is_ok() && !view.take_snapshot_wanted());
        view.truncate(7);
        assert!(view.snapshot(0, 1).is_err() && view.take_snapshot_wanted());
    }

    #[test]
    fn a_failed_read_is_kept_for_the_worker_and_does_not_panic() {
        let (store, view) = view();
        store.broken.set(true);
        assert_eq!(ids(&view, 1, 5, u64::MAX), vec![]);
        assert_eq!(view.take_failure().map(|error| error.reason), Some("broken".into()));
    }
}
