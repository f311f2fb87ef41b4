//! An in-memory log engine whose content survives the simulated crashes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use steelyard_replica::eraftpb::Entry;
use steelyard_replica::{HardState, LogBatch, LogBounds, LogError, LogStore};
use types::{LogIndex, RegionDescriptor, RegionId, Term, FIRST_INDEX, FIRST_TERM};

#[derive(Clone, Default)]
pub struct RegionLog {
    pub hard_state: Option<HardState>,
    pub truncated: (LogIndex, Term),
    pub entries: BTreeMap<LogIndex, Entry>,
}

impl RegionLog {
    pub fn last(&self) -> LogIndex {
        self.entries.keys().next_back().copied().unwrap_or(self.truncated.0)
    }
}

#[derive(Clone, Default)]
pub struct Disk {
    pub regions: Rc<RefCell<BTreeMap<RegionId, RegionLog>>>,
    /// Entries that fail their checksum.
    pub damaged: Rc<RefCell<BTreeSet<(RegionId, LogIndex)>>>,
}

impl Disk {
    pub fn found(&self, descriptor: &RegionDescriptor) {
        let log = RegionLog {
            hard_state: Some(HardState { term: FIRST_TERM, vote: None, commit: FIRST_INDEX }),
            truncated: (FIRST_INDEX, FIRST_TERM),
            entries: BTreeMap::new(),
        };
        self.regions.borrow_mut().insert(descriptor.id, log);
    }

    pub fn write(&self, batch: &LogBatch) {
        let mut regions = self.regions.borrow_mut();
        for write in &batch.writes {
            let log = regions.entry(write.region).or_default();
            if let Some(restart) = &write.restart {
                *log = RegionLog { truncated: (restart.index, restart.term), ..RegionLog::default() };
                assert!(
                    write.hard_state.is_some() && batch.must_sync,
                    "the beginning of a log has a hard state and is synced"
                );
            }
            if let Some(head) = write.entries.first() {
                assert!(head.index > log.truncated.0 && head.index <= log.last() + 1, "a hole in the log");
                log.entries.split_off(&head.index);
            }
            for entry in &write.entries {
                assert!(entry.index == log.last() + 1, "a hole in a batch");
                log.entries.insert(entry.index, entry.clone());
            }
            if let Some(state) = write.hard_state {
                if let Some(old) = log.hard_state {
                    assert!(old.term <= state.term && old.commit <= state.commit, "a hard state regressed");
                }
                assert!(state.commit <= log.last(), "committed beyond the log");
                log.hard_state = Some(state);
            }
        }
    }

    pub fn truncate(&self, region: RegionId, index: LogIndex, term: Term) {
        let mut regions = self.regions.borrow_mut();
        let log = regions.get_mut(&region).expect("a truncated log exists");
        assert_eq!(log.entries[&index].term, term);
        log.truncated = (index, term);
        log.entries = log.entries.split_off(&(index + 1));
    }

    fn with<T>(&self, region: RegionId, read: impl FnOnce(&RegionLog) -> T) -> T {
        read(self.regions.borrow().get(&region).unwrap_or(&RegionLog::default()))
    }
}

impl LogStore for Disk {
    fn hard_state(&self, region: RegionId) -> Result<Option<HardState>, LogError> {
        Ok(self.with(region, |log| log.hard_state))
    }

    fn bounds(&self, region: RegionId) -> Result<LogBounds, LogError> {
        Ok(self.with(region, |log| LogBounds { first: log.truncated.0 + 1, last: log.last() }))
    }

    fn term(&self, region: RegionId, index: LogIndex) -> Result<Term, LogError> {
        self.with(region, |log| {
            let kept = (index == log.truncated.0).then_some(log.truncated.1);
            kept.or_else(|| log.entries.get(&index).map(|entry| entry.term)).ok_or_else(|| LogError {
                region,
                reason: format!("no term of {index}"),
                damaged: None,
            })
        })
    }

    fn entries(&self, region: RegionId, low: u64, high: u64, max: u64) -> Result<Vec<Entry>, LogError> {
        if let Some(&(_, index)) = self.damaged.borrow().range((region, low)..(region, high)).next() {
            let reason = format!("entry {index} is damaged");
            return Err(LogError { region, reason, damaged: Some((index, index)) });
        }
        self.with(region, |log| {
            let mut bytes = 0;
            let found = log.entries.range(low..high).map(|(_, entry)| entry.clone());
            let fits = |entry: &Entry| {
                let is_first = bytes == 0;
                bytes += entry.data.len() as u64 + 64;
                is_first || bytes <= max
            };
            Ok(found.take_while(fits).collect())
        })
    }
}
