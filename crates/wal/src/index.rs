//! The in-memory index of the log: the state of each region, and the location of its entries.
//!
//! Entries are indexed by runs. A run covers the entries of one section: first index, count, term
//! and place. Invariant: the runs of a region are ascending and do not overlap. The first run may
//! begin below the truncated index, as its section does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{HardState, LogBounds};
use types::{LogIndex, RegionId, Term};

use crate::block::{Place, Update};
use crate::error::{LogError, Result};
use crate::records::{LogState, PeerLifecycle, Record};
use losses::Damage;
pub use losses::{Loss, Span};

mod losses;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: LogIndex,
    pub count: u32,
    pub term: Term,
    pub place: Place,
}

impl Run {
    pub(crate) fn end(&self) -> LogIndex {
        self.first + u64::from(self.count)
    }
}

fn cut_from(runs: &mut VecDeque<Run>, first: LogIndex) {
    while runs.back().is_some_and(|run| run.first >= first) {
        runs.pop_back();
    }
    if let Some(run) = runs.back_mut().filter(|run| run.end() > first) {
        run.count = (first - run.first) as u32;
    }
}

fn drop_through(runs: &mut VecDeque<Run>, index: LogIndex) {
    while runs.front().is_some_and(|run| run.end() <= index + 1) {
        runs.pop_front();
    }
}

/// Replaces the location of the entries in a carried section. Entries around them do not change.
fn carry(runs: &mut VecDeque<Run>, carried: Run) {
    let mut at = runs.partition_point(|run| run.end() <= carried.first);
    if let Some(run) = runs.get_mut(at).filter(|run| run.first < carried.first) {
        run.count = (carried.first - run.first) as u32;
        at += 1;
    }
    // A carried section holds the needed entries of one older section and of no other.
    let is_covered = |run: &&Run| run.first < carried.end();
    match runs.range(at..).take_while(is_covered).count() {
        1 => runs[at] = carried,
        covered => {
            runs.drain(at..at + covered);
            runs.insert(at, carried);
        }
    }
}

#[derive(Clone, Debug, Default)]
struct RegionIndex {
    truncated: LogState,
    hard_state: Option<HardState>,
    /// The sequences of the blocks that hold `truncated` and `hard_state`.
    truncated_at: u64,
    hard_state_at: u64,
    runs: VecDeque<Run>,
    damage: Option<Damage>,
}

impl RegionIndex {
    fn bounds(&self) -> LogBounds {
        let truncated = self.truncated.truncated_index;
        let last = self.runs.back().map_or(truncated, |run| (run.end() - 1).max(truncated));
        LogBounds { first: truncated + 1, last }
    }

    fn run_at(&self, index: LogIndex) -> Option<&Run> {
        let after = self.runs.partition_point(|run| run.first <= index);
        self.runs.get(after.checked_sub(1)?).filter(|run| index < run.end())
    }

    /// Drops the entries from `first` on.
    fn cut_from(&mut self, first: LogIndex) {
        cut_from(&mut self.runs, first);
    }

    fn drop_through(&mut self, index: LogIndex) {
        drop_through(&mut self.runs, index);
    }

    /// Replaces the location of entries that a carried section holds.
    fn carry(&mut self, carried: Run) {
        carry(&mut self.runs, carried);
        if let Some(before) = self.damage.as_mut().and_then(|damage| damage.before.as_mut()) {
            carry(before, carried);
        }
        self.drop_through(self.truncated.truncated_index);
    }

    fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.hard_state.is_none() && self.truncated == LogState::default()
    }
}

/// The part of the log that would be lost with the blocks through some sequence.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needed {
    pub records: Vec<(RegionId, Vec<Record>)>,
    /// The needed entries `low..high` of a section, as (region, run, low, high).
    pub entries: Vec<(RegionId, Run, LogIndex, LogIndex)>,
    /// Total bytes of those sections.
    pub entry_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Index {
    regions: BTreeMap<RegionId, RegionIndex>,
    lifecycles: BTreeMap<RegionId, (PeerLifecycle, u64)>,
    values: BTreeMap<Vec<u8>, (Bytes, u64)>,
    /// Regions with a truncation that no block holds yet.
    pending: BTreeSet<RegionId>,
    /// Regions whose newest lifecycle record is damaged, and its place.
    damaged_lives: BTreeMap<RegionId, Place>,
    /// The place of a damaged value of the store.
    damaged_value: Option<Place>,
}

/// An index that one thread reads while another appends. A simulation uses a cell.
pub trait SharedIndex {
    fn with<R>(&self, act: impl FnOnce(&mut Index) -> R) -> R;
}

impl Index {
    /// Updates the index with a section that was written or recovered.
    pub fn apply(&mut self, update: &Update) {
        match update {
            Update::Entries { region, first, term, count, place, is_carried } => {
                let run = Run { first: *first, count: *count, term: *term, place: *place };
                let of = self.regions.entry(*region).or_default();
                if *is_carried {
                    of.carry(run);
                } else {
                    of.cut_from(run.first);
                    if let Some(damage) = &mut of.damage {
                        damage.replaced_from(run.first);
                    }
                    of.runs.push_back(run);
                }
            }
            Update::Record { region, record, sequence } => self.apply_record(*region, record, *sequence),
            Update::Damaged { region, kind, place } => self.damaged(*region, *kind, *place),
        }
    }

    fn apply_record(&mut self, region: RegionId, record: &Record, sequence: u64) {
        match record {
            Record::HardState(state) => {
                let of = self.regions.entry(region).or_default();
                (of.hard_state, of.hard_state_at) = (Some(*state), sequence);
                if let Some(damage) = &mut of.damage {
                    damage.takes_promise = false;
                }
            }
            Record::Truncated(state) => {
                let of = self.regions.entry(region).or_default();
                if state.truncated_index >= of.truncated.truncated_index {
                    (of.truncated, of.truncated_at) = (*state, sequence);
                    of.drop_through(state.truncated_index);
                    if let Some(damage) = &mut of.damage {
                        damage.truncated_through(state.truncated_index);
                    }
                    self.pending.remove(&region);
                }
            }
            Record::Begun(state) => {
                let of = RegionIndex { truncated: *state, truncated_at: sequence, ..RegionIndex::default() };
                self.regions.insert(region, of);
                self.pending.remove(&region);
            }
            Record::Forgotten => {
                self.regions.remove(&region);
                self.pending.remove(&region);
            }
            Record::Cut(index) => {
                let of = self.regions.entry(region).or_default();
                if let Some(damage) = &mut of.damage {
                    (damage.is_end_known, damage.takes_begin) = (true, false);
                    of.runs = damage.before.take().unwrap_or_else(|| std::mem::take(&mut of.runs));
                }
                of.cut_from(index + 1);
            }
            Record::Life(life) => {
                self.damaged_lives.remove(&region);
                self.lifecycles.insert(region, (life.clone(), sequence));
            }
            Record::Value { name, value } => {
                self.values.insert(name.clone(), (value.clone(), sequence));
            }
        }
    }

    /// Drops a region's entries through an index in memory. A later block records the truncation on
    /// disk.
    pub fn truncate(&mut self, region: RegionId, state: LogState) {
        // The peer may have been removed before its truncation arrives.
        let Some(of) = self.regions.get_mut(&region) else { return };
        if state.truncated_index > of.truncated.truncated_index {
            of.truncated = state;
            of.drop_through(state.truncated_index);
            self.pending.insert(region);
        }
    }

    /// Returns truncations that no block holds yet, at most `at_most` of them.
    pub fn pending(&self, at_most: usize) -> Vec<(RegionId, LogState)> {
        let of = |region: &RegionId| Some((*region, self.regions.get(region)?.truncated));
        self.pending.iter().filter_map(of).take(at_most).collect()
    }

    /// Returns the regions with any state or entries in the log, ascending.
    pub fn regions(&self) -> Vec<RegionId> {
        self.regions.iter().filter(|(_, of)| !of.is_empty()).map(|(region, _)| *region).collect()
    }

    pub fn bounds(&self, region: RegionId) -> LogBounds {
        self.regions.get(&region).map_or(LogBounds { first: 1, last: 0 }, RegionIndex::bounds)
    }

    pub fn hard_state(&self, region: RegionId) -> Option<HardState> {
        self.regions.get(&region)?.hard_state
    }

    pub fn term(&self, region: RegionId, index: LogIndex) -> Result<Term> {
        let of = self.regions.get(&region);
        let truncated = of.map(|of| of.truncated).unwrap_or_default();
        if index == truncated.truncated_index {
            return Ok(truncated.truncated_term);
        }
        match of.and_then(|of| of.run_at(index)).filter(|_| index > truncated.truncated_index) {
            Some(run) => Ok(run.term),
            None => Err(self.out_of_range(region, format!("no term of {index}"))),
        }
    }

    /// Returns the run that holds this entry.
    pub fn run_at(&self, region: RegionId, index: LogIndex) -> Option<Run> {
        self.regions.get(&region)?.run_at(index).copied()
    }

    pub fn check_read(&self, region: RegionId, low: LogIndex, high: LogIndex) -> Result<()> {
        let bounds = self.bounds(region);
        if low < bounds.first || high > bounds.last + 1 {
            return Err(self.out_of_range(region, format!("no entries {low}..{high}")));
        }
        Ok(())
    }

    /// Returns an error if the entries do not follow the region's log, or the restart (`begun`)
    /// that comes with them.
    pub fn check_append(&self, region: RegionId, begun: Option<LogIndex>, entries: &[Entry]) -> Result<()> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let (first, last) = (first.index, last.index);
        let bounds = match begun {
            Some(index) => LogBounds { first: index + 1, last: index },
            None => self.bounds(region),
        };
        let is_contiguous =
            entries.windows(2).all(|pair| pair[0].index.checked_add(1) == Some(pair[1].index));
        if first >= bounds.first && first <= bounds.last + 1 && is_contiguous {
            return Ok(());
        }
        let asked = format!("{} entries {first}..={last} cannot be appended", entries.len());
        Err(LogError::Range { region, first: bounds.first, last: bounds.last, asked })
    }

    fn out_of_range(&self, region: RegionId, asked: String) -> LogError {
        let LogBounds { first, last } = self.bounds(region);
        LogError::Range { region, first, last, asked }
    }

    /// Returns the lifecycles of all peers that this store has or had, ascending by region.
    pub fn lifecycles(&self) -> Vec<(RegionId, PeerLifecycle)> {
        self.lifecycles.iter().map(|(region, (life, _))| (*region, life.clone())).collect()
    }

    pub fn value(&self, name: &[u8]) -> Option<Bytes> {
        self.values.get(name).map(|(value, _)| value.clone())
    }

    /// Returns the records and entries of the blocks through `sequence` that are still needed.
    pub fn needed_through(&self, sequence: u64) -> Needed {
        let mut needed = Needed::default();
        for (region, of) in &self.regions {
            let mut records = Vec::new();
            if of.truncated != LogState::default() && of.truncated_at <= sequence {
                records.push(Record::Truncated(of.truncated));
            }
            if let Some(state) = of.hard_state.filter(|_| of.hard_state_at <= sequence) {
                records.push(Record::HardState(state));
            }
            if !records.is_empty() {
                needed.records.push((*region, records));
            }
            let begin = of.truncated.truncated_index + 1;
            for run in of.runs.iter().filter(|run| run.place.sequence <= sequence && run.end() > begin) {
                needed.entries.push((*region, *run, run.first.max(begin), run.end()));
                needed.entry_bytes += u64::from(run.place.length);
            }
        }
        for (region, (life, at)) in &self.lifecycles {
            if *at <= sequence {
                needed.records.push((*region, vec![Record::Life(life.clone())]));
            }
        }
        for (name, (value, at)) in &self.values {
            if *at <= sequence {
                let record = Record::Value { name: name.clone(), value: value.clone() };
                needed.records.push((0, vec![record]));
            }
        }
        needed
    }

    /// Returns the total bytes of sections that hold needed entries.
    pub fn entry_bytes(&self) -> u64 {
        let of =
            |region: &RegionIndex| region.runs.iter().map(|run| u64::from(run.place.length)).sum::<u64>();
        self.regions.values().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(sequence: u64) -> Place {
        Place { segment: 1, offset: sequence * 512, length: 100, sequence }
    }

    fn entries(first: LogIndex, count: u32, sequence: u64, is_carried: bool) -> Update {
        Update::Entries { region: 1, first, term: 7, count, place: place(sequence), is_carried }
    }

    fn runs(index: &Index) -> Vec<(LogIndex, u32, u64)> {
        let of = |run: &Run| (run.first, run.count, run.place.sequence);
        index.regions[&1].runs.iter().map(of).collect()
    }

    fn state(index: LogIndex) -> LogState {
        LogState { truncated_index: index, truncated_term: 7 }
    }

    #[test]
    fn entries_replace_what_follows_and_carried_ones_only_themselves() {
        let mut index = Index::default();
        for update in [entries(1, 10, 1, false), entries(11, 10, 2, false), entries(5, 3, 3, false)] {
            index.apply(&update);
        }
        assert_eq!(runs(&index), [(1, 4, 1), (5, 3, 3)]);
        index.apply(&entries(8, 4, 4, false));
        index.apply(&entries(2, 3, 5, true));
        assert_eq!(runs(&index), [(1, 1, 1), (2, 3, 5), (5, 3, 3), (8, 4, 4)]);
        index.truncate(1, state(4));
        index.apply(&entries(1, 4, 6, true));
        assert_eq!(runs(&index), [(5, 3, 3), (8, 4, 4)]);
        assert_eq!(index.bounds(1), LogBounds { first: 5, last: 11 });
    }

    #[test]
    fn a_carried_beginning_is_put_before_what_was_found_first() {
        let mut index = Index::default();
        for update in [entries(20, 5, 2, false), entries(10, 5, 3, true), entries(15, 5, 3, true)] {
            index.apply(&update);
        }
        index.apply(&Update::Record { region: 1, record: Record::Truncated(state(9)), sequence: 3 });
        assert_eq!(runs(&index), [(10, 5, 3), (15, 5, 3), (20, 5, 2)]);
        assert_eq!(index.losses(), Ok(BTreeMap::new()));
        index.apply(&entries(26, 1, 4, false));
        assert!(matches!(index.losses(), Err(LogError::Corrupt(_))));
    }

    #[test]
    fn what_is_needed_of_old_blocks_is_what_no_later_one_holds() {
        let mut index = Index::default();
        let hard = |commit| Record::HardState(HardState { term: 1, vote: None, commit });
        let record = |region, record, sequence| Update::Record { region, record, sequence };
        for update in [
            record(1, hard(1), 1),
            record(2, hard(2), 1),
            record(2, Record::Life(PeerLifecycle::Tombstone { peer: 3 }), 1),
            entries(1, 10, 1, false),
            record(1, hard(3), 2),
            entries(11, 1, 2, false),
        ] {
            index.apply(&update);
        }
        index.truncate(1, state(6));
        assert_eq!(index.pending(9), [(1, state(6))]);
        let needed = index.needed_through(1);
        let run = index.run_at(1, 7).unwrap();
        assert_eq!(needed.entries, [(1, run, 7, 11)]);
        let tombstone = Record::Life(PeerLifecycle::Tombstone { peer: 3 });
        assert_eq!(
            needed.records,
            [(1, vec![Record::Truncated(state(6))]), (2, vec![hard(2)]), (2, vec![tombstone])]
        );
        index.apply(&record(1, Record::Truncated(state(6)), 3));
        assert!(index.pending(9).is_empty());
        index.apply(&record(2, Record::Forgotten, 3));
        assert_eq!(index.needed_through(1).records.len(), 1, "a life outlives its region's log");
    }
}
