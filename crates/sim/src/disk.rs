//! A store's log device: its records, the synced ones among them, and the state after a crash.
//!
//! All records are in one sequence. A sync makes all earlier records durable. A crash keeps the
//! synced records and a random number of the bytes after them. Complete records survive. A torn
//! record fails its checksum and ends the log. A watermark beside the log gives the number of
//! synced records, so a log that ends before it is refused.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use cluster::Mark;
use replica::eraftpb::Entry;
use replica::{HardState, LogBatch, LogBounds, LogError, LogStore, RegionWrite, Restart, RestartCause};
use types::{LogIndex, RegionDescriptor, RegionId, Term, FIRST_INDEX, FIRST_TERM};
use wal::{LogState, Loss, PeerLifecycle, Span};

use crate::rng::Rng;

#[derive(Clone, Debug, Default)]
pub struct RegionLog {
    pub hard_state: Option<HardState>,
    /// Index and term of the last entry that was dropped from the front.
    pub truncated: (LogIndex, Term),
    pub entries: BTreeMap<LogIndex, Entry>,
}

impl RegionLog {
    pub fn last(&self) -> LogIndex {
        self.entries.keys().next_back().copied().unwrap_or(self.truncated.0)
    }

    /// Returns true unless the log is that of a blank peer, which holds only a term and a vote.
    fn has_begun(&self) -> bool {
        self.last() > 0
    }

    pub fn term(&self, index: LogIndex) -> Option<Term> {
        let kept = (index == self.truncated.0).then_some(self.truncated.1);
        kept.or_else(|| self.entries.get(&index).map(|entry| entry.term))
    }
}

/// The regions' hard states, and whether their logs had begun.
pub type Promises = BTreeMap<RegionId, (HardState, bool)>;

#[derive(Clone, Debug, Default)]
struct Logs {
    regions: BTreeMap<RegionId, RegionLog>,
    lifecycles: BTreeMap<RegionId, PeerLifecycle>,
    marks: BTreeMap<RegionId, Mark>,
}

#[derive(Clone, Debug)]
enum Record {
    Batch(LogBatch),
    Truncate {
        region: RegionId,
        index: LogIndex,
        term: Term,
    },
    Life {
        region: RegionId,
        life: PeerLifecycle,
    },
    /// Writes the mark of the peer; `None` deletes it.
    Mark {
        region: RegionId,
        mark: Option<Mark>,
    },
    /// Deletes all of the region's log.
    Forget {
        region: RegionId,
    },
    /// Makes a damaged log consistent again.
    Repair {
        region: RegionId,
        records: Vec<wal::Record>,
    },
}

/// Damage to one region's sections of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wound {
    /// Index and term of an entry.
    pub entry: Option<(LogIndex, Term)>,
    pub promise: bool,
    pub life: bool,
}

#[derive(Debug, Default)]
struct State {
    wounds: BTreeMap<RegionId, Wound>,
    /// The logs as the process reads them.
    current: Logs,
    synced: Logs,
    unsynced: VecDeque<Record>,
    /// The number of records synced so far, according to the watermark and according to the log
    /// itself.
    watermark: u64,
    readable: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Disk(Rc<RefCell<State>>);

/// The log ends before its watermark, so it was damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostTail;

impl Disk {
    /// Writes without syncing.
    pub fn append(&self, batch: &LogBatch) {
        self.write(Record::Batch(batch.clone()));
    }

    pub fn truncate(&self, region: RegionId, index: LogIndex, term: Term) {
        self.write(Record::Truncate { region, index, term });
    }

    /// Writes the log and the lifecycle record of a peer with which the cluster begins.
    pub fn found(&self, descriptor: RegionDescriptor) {
        let region = descriptor.id;
        let cause = RestartCause::Snapshot;
        let restart = Restart { index: FIRST_INDEX, term: FIRST_TERM, descriptor: descriptor.clone(), cause };
        let hard_state = Some(HardState::begun(self.with(region, |log| log.hard_state)));
        let write = RegionWrite { region, restart: Some(restart), entries: Vec::new(), hard_state };
        self.write(Record::Batch(LogBatch { number: 0, writes: vec![write], must_sync: true }));
        self.set_life(region, PeerLifecycle::Exists { descriptor, parent: None });
    }

    /// Writes a lifecycle record. It is durable on return, with everything written before.
    pub fn set_life(&self, region: RegionId, life: PeerLifecycle) {
        self.write(Record::Life { region, life });
        self.sync();
    }

    /// See `set_life`.
    pub fn set_mark(&self, region: RegionId, mark: Option<Mark>) {
        self.write(Record::Mark { region, mark });
        self.sync();
    }

    pub fn mark(&self, region: RegionId) -> Option<Mark> {
        self.0.borrow().current.marks.get(&region).cloned()
    }

    pub fn lifecycles(&self) -> Vec<(RegionId, PeerLifecycle)> {
        self.0.borrow().current.lifecycles.iter().map(|(&region, life)| (region, life.clone())).collect()
    }

    /// Returns the regions whose logs have begun.
    pub fn regions(&self) -> Vec<RegionId> {
        let state = self.0.borrow();
        let begun = state.current.regions.iter().filter(|(_, log)| log.has_begun());
        begun.map(|(&region, _)| region).collect()
    }

    pub fn forget(&self, region: RegionId) {
        self.write(Record::Forget { region });
    }

    /// Returns the terms and votes of all regions.
    pub fn promises(&self) -> Promises {
        let state = self.0.borrow();
        let promise =
            |(&region, log): (&RegionId, &RegionLog)| Some((region, (log.hard_state?, log.has_begun())));
        state.current.regions.iter().filter_map(promise).collect()
    }

    /// Panics if recovery lost a term or a vote. A peer whose log had begun may have been
    /// destroyed.
    pub fn assert_kept(&self, promised: &Promises) {
        let lifecycles = self.0.borrow().current.lifecycles.clone();
        for (&region, &(was, had_begun)) in promised {
            let is_destroyed =
                matches!(lifecycles.get(&region), Some(PeerLifecycle::Tombstone { .. })) && had_begun;
            if !is_destroyed {
                let now = self.with(region, |log| log.hard_state).unwrap_or_default();
                assert_goes_on(region, was, now);
            }
        }
    }

    /// Damages sections of the region's log, unless some of them are already damaged.
    pub fn wound(&self, region: RegionId, wound: Wound) {
        self.0.borrow_mut().wounds.entry(region).or_insert(wound);
    }

    /// Returns true if sections of the region's log are damaged and no start has detected that yet.
    pub fn is_wounded(&self, region: RegionId) -> bool {
        self.0.borrow().wounds.contains_key(&region)
    }

    /// Returns the losses that the damaged sections cause.
    pub fn losses(&self) -> BTreeMap<RegionId, Loss> {
        let wounds = self.0.borrow().wounds.clone();
        let loss = |(region, wound): (RegionId, Wound)| {
            let loss = self.with(region, |log| loss_of(log, &wound))?;
            Some((region, loss))
        };
        wounds.into_iter().filter_map(loss).collect()
    }

    /// Writes the records that make damaged logs consistent. They are durable on return.
    pub fn repair(&self, repairs: Vec<(RegionId, Vec<wal::Record>)>) {
        for (region, records) in repairs {
            self.write(Record::Repair { region, records });
        }
        self.sync();
    }

    fn write(&self, record: Record) {
        let mut state = self.0.borrow_mut();
        heal(&mut state.wounds, &record);
        apply(&mut state.current, &record);
        state.unsynced.push_back(record);
    }

    pub fn sync(&self) {
        let state = &mut *self.0.borrow_mut();
        for record in std::mem::take(&mut state.unsynced) {
            apply(&mut state.synced, &record);
            state.watermark += 1;
            state.readable += 1;
        }
    }

    /// Leaves the synced records for the next start, and the other records that are complete up to
    /// a random byte.
    pub fn crash(&self, rng: &mut Rng) {
        let bytes: u64 = self.0.borrow().unsynced.iter().map(size_of).sum();
        self.tear(rng.below(bytes + 1));
    }

    /// Ends the process while the machine continues. The written batches stay. If the process
    /// `loses_last`, the batch in flight is lost.
    pub fn kill(&self, loses_last: bool) {
        let state = &mut *self.0.borrow_mut();
        if loses_last && matches!(state.unsynced.back(), Some(Record::Batch(_))) {
            state.unsynced.pop_back();
        }
        state.current = state.synced.clone();
        state.unsynced.iter().for_each(|record| apply(&mut state.current, record));
    }

    /// Crashes, and keeps `kept` of the bytes that were not synced. A record that lacks a byte is
    /// lost.
    pub fn tear(&self, mut kept: u64) {
        let state = &mut *self.0.borrow_mut();
        for record in std::mem::take(&mut state.unsynced) {
            let size = size_of(&record);
            if kept < size {
                break;
            }
            kept -= size;
            apply(&mut state.synced, &record);
            state.watermark += 1;
            state.readable += 1;
        }
        state.current = state.synced.clone();
    }

    /// Damages the last synced record. Returns false if there is none.
    pub fn damage_tail(&self) -> bool {
        let state = &mut *self.0.borrow_mut();
        let is_there = state.readable > 0;
        state.readable -= u64::from(is_there);
        is_there
    }

    pub fn recover(&self) -> Result<(), LostTail> {
        let state = self.0.borrow();
        if state.readable < state.watermark {
            return Err(LostTail);
        }
        Ok(())
    }

    pub fn with<T>(&self, region: RegionId, read: impl FnOnce(&RegionLog) -> T) -> T {
        match self.0.borrow().current.regions.get(&region) {
            Some(log) => read(log),
            None => read(&RegionLog::default()),
        }
    }
}

fn size_of(record: &Record) -> u64 {
    let of_write = |write: &RegionWrite| {
        32 + write.entries.iter().map(|entry| entry.data.len() as u64 + 24).sum::<u64>()
    };
    match record {
        Record::Batch(batch) => 16 + batch.writes.iter().map(of_write).sum::<u64>(),
        Record::Truncate { .. } | Record::Forget { .. } => 40,
        Record::Life { .. } | Record::Mark { .. } | Record::Repair { .. } => 100,
    }
}

fn apply(logs: &mut Logs, record: &Record) {
    match record {
        Record::Batch(batch) => batch.writes.iter().for_each(|write| apply_write(logs, write)),
        Record::Life { region, life } => drop(logs.lifecycles.insert(*region, life.clone())),
        Record::Mark { region, mark: Some(mark) } => drop(logs.marks.insert(*region, mark.clone())),
        Record::Mark { region, mark: None } => drop(logs.marks.remove(region)),
        Record::Forget { region } => drop(logs.regions.remove(region)),
        Record::Repair { region, records } => {
            records.iter().for_each(|record| apply_repair(logs, *region, record));
        }
        Record::Truncate { region, index, term } => {
            let Some(log) = logs.regions.get_mut(region) else { return };
            if *index > log.truncated.0 {
                assert_eq!(log.term(*index), Some(*term), "a cut names an entry of the log");
                log.truncated = (*index, *term);
                log.entries = log.entries.split_off(&(index + 1));
            }
        }
    }
}

fn apply_repair(logs: &mut Logs, region: RegionId, record: &wal::Record) {
    let log = logs.regions.entry(region).or_default();
    match record {
        wal::Record::HardState(state) => log.hard_state = Some(*state),
        wal::Record::Truncated(LogState { truncated_index, truncated_term }) => {
            log.truncated = (*truncated_index, *truncated_term);
            log.entries = log.entries.split_off(&(truncated_index + 1));
        }
        wal::Record::Begun(LogState { truncated_index, truncated_term }) => {
            *log = RegionLog { truncated: (*truncated_index, *truncated_term), ..RegionLog::default() };
        }
        wal::Record::Cut(index) => drop(log.entries.split_off(&(index + 1))),
        wal::Record::Forgotten => drop(logs.regions.remove(&region)),
        wal::Record::Life(life) => drop(logs.lifecycles.insert(region, life.clone())),
        wal::Record::Value { .. } => {}
    }
}

/// Removes damage to the data that the record replaces.
fn heal(wounds: &mut BTreeMap<RegionId, Wound>, record: &Record) {
    match record {
        Record::Forget { region } | Record::Repair { region, .. } => drop(wounds.remove(region)),
        Record::Life { region, .. } => {
            if let Some(wound) = wounds.get_mut(region) {
                wound.life = false;
            }
        }
        Record::Truncate { region, index, .. } => {
            if let Some(wound) = wounds.get_mut(region) {
                wound.entry = wound.entry.filter(|(wounded, _)| wounded > index);
            }
        }
        Record::Batch(batch) => {
            for write in &batch.writes {
                let Some(wound) = wounds.get_mut(&write.region) else { continue };
                if write.restart.is_some() {
                    *wound = Wound::default();
                }
                let from = write.entries.first().map_or(LogIndex::MAX, |entry| entry.index);
                wound.entry = wound.entry.filter(|(wounded, _)| *wounded < from);
                wound.promise &= write.hard_state.is_none();
            }
        }
        Record::Mark { .. } => {}
    }
    wounds.retain(|_, wound| *wound != Wound::default());
}

/// Returns the loss that the damage causes. `None` if the damaged part is no longer in the log.
fn loss_of(log: &RegionLog, wound: &Wound) -> Option<Loss> {
    let wounded = wound.entry.filter(|(index, term)| log.term(*index) == Some(*term));
    let wounded = wounded.map(|(index, _)| index).filter(|index| *index > log.truncated.0);
    if wounded.is_none() && !wound.promise && !wound.life {
        return None;
    }
    let span = |(&index, entry): (&LogIndex, &Entry)| Span { first: index, last: index, term: entry.term };
    let gap = wounded.unwrap_or(LogIndex::MAX);
    let after: Vec<Span> = log.entries.range(gap..).skip(1).map(span).collect();
    Some(Loss {
        place: "in the log".to_owned(),
        truncated: LogState { truncated_index: log.truncated.0, truncated_term: log.truncated.1 },
        hard_state: log.hard_state.filter(|_| !wound.promise),
        before: log.entries.range(..gap).map(span).collect(),
        has_gap: wounded.is_some(),
        after: Some(after).filter(|after| !after.is_empty()),
        promise: wound.promise,
        life: wound.life,
    })
}

fn apply_write(logs: &mut Logs, write: &RegionWrite) {
    let promised = logs.regions.get(&write.region).and_then(|log| log.hard_state);
    if let Some(restart) = &write.restart {
        let Restart { index, term, descriptor, cause } = restart.clone();
        let life = match cause {
            RestartCause::Split { parent, at } => {
                PeerLifecycle::Exists { descriptor, parent: Some((parent, at)) }
            }
            RestartCause::Snapshot => PeerLifecycle::Applying { descriptor, index, term },
        };
        logs.lifecycles.insert(write.region, life);
        let log = RegionLog { truncated: (index, term), ..RegionLog::default() };
        logs.regions.insert(write.region, log);
    }
    let log = logs.regions.entry(write.region).or_default();
    if let Some(head) = write.entries.first() {
        assert!(head.index > log.truncated.0 && head.index <= log.last() + 1, "a hole in the log");
        log.entries.split_off(&head.index);
    }
    for entry in &write.entries {
        assert!(entry.index == log.last() + 1, "a hole in a batch");
        log.entries.insert(entry.index, entry.clone());
    }
    if let Some(state) = write.hard_state {
        if let Some(old) = promised {
            assert_goes_on(write.region, old, state);
        }
        assert!(state.commit <= log.last(), "committed beyond the log");
        log.hard_state = Some(state);
    }
}

/// Panics if the new hard state lowers a term or a commit index, or changes a vote in the same
/// term.
fn assert_goes_on(region: RegionId, old: HardState, new: HardState) {
    let keeps_vote = old.term < new.term || old.vote.is_none() || old.vote == new.vote;
    let goes_on = old.term <= new.term && old.commit <= new.commit && keeps_vote;
    assert!(goes_on, "region {region}: {old:?} is followed by {new:?}");
}

impl LogStore for Disk {
    fn hard_state(&self, region: RegionId) -> Result<Option<HardState>, LogError> {
        Ok(self.with(region, |log| log.hard_state))
    }

    fn bounds(&self, region: RegionId) -> Result<LogBounds, LogError> {
        Ok(self.with(region, |log| LogBounds { first: log.truncated.0 + 1, last: log.last() }))
    }

    fn term(&self, region: RegionId, index: LogIndex) -> Result<Term, LogError> {
        let missing = || LogError { region, reason: format!("no term of {index}"), damaged: None };
        self.with(region, |log| log.term(index).ok_or_else(missing))
    }

    fn entries(&self, region: RegionId, low: u64, high: u64, max: u64) -> Result<Vec<Entry>, LogError> {
        let wounded = self.0.borrow().wounds.get(&region).and_then(|wound| wound.entry);
        self.with(region, |log| {
            let is_wounded = |(index, term)| log.term(index) == Some(term) && (low..high).contains(&index);
            if let Some((index, _)) = wounded.filter(|wounded| is_wounded(*wounded)) {
                let reason = format!("entry {index} is damaged");
                return Err(LogError { region, reason, damaged: Some((index, index)) });
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: u64, index: LogIndex) -> LogBatch {
        let entry = Entry { index, term: 1, ..Entry::default() };
        let write = RegionWrite { region: 1, restart: None, entries: vec![entry], hard_state: None };
        LogBatch { number, writes: vec![write], must_sync: true }
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest() {
        let mut seen = [false; 4];
        for seed in 0..64 {
            let disk = Disk::default();
            disk.append(&batch(1, 1));
            disk.sync();
            disk.append(&batch(2, 2));
            disk.append(&batch(3, 3));
            assert_eq!(disk.with(1, RegionLog::last), 3);
            disk.crash(&mut Rng::new(seed));
            seen[disk.with(1, RegionLog::last) as usize] = true;
            assert_eq!(disk.recover(), Ok(()));
        }
        assert_eq!(seen, [false, true, true, true]);
    }

    #[test]
    fn a_log_that_lost_what_was_synced_is_refused() {
        let disk = Disk::default();
        disk.append(&batch(1, 1));
        disk.sync();
        assert!(disk.damage_tail());
        assert_eq!(disk.recover(), Err(LostTail));
    }
}
