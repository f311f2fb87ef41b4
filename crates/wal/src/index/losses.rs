//! Losses of the regions' logs by damaged sections.
//!
//! The head of a damaged section names its region and its kind; nothing else is known of it. A
//! damaged section of entries may have replaced any entries before it. So the runs before it are
//! set aside, and the runs after it are collected separately. If at the end these are the whole
//! log, because the older entries were truncated or rewritten, nothing is lost.

use std::collections::{BTreeMap, VecDeque};

use replica::HardState;
use types::{LogIndex, RegionId, Term};

use super::{cut_from, drop_through, Index, RegionIndex, Run};
use crate::block::Place;
use crate::error::{LogError, Result};
use crate::layout::Kind;
use crate::records::LogState;

/// Entries `first..=last`, all of one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: LogIndex,
    pub last: LogIndex,
    pub term: Term,
}

/// The missing part of a region's log, or of the log's records about the region's peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// The location of the first damaged section in the log, for human readers.
    pub place: String,
    pub truncated: LogState,
    /// The last hard state that could be read.
    pub hard_state: Option<HardState>,
    /// The entries after the last truncated one, up to the first missing one, without a gap. If no
    /// entry is missing, this is the whole log. If the last of these entries were not committed,
    /// missing entries may have replaced them.
    pub before: Vec<Span>,
    /// True if entries are missing.
    pub has_gap: bool,
    /// The entries after the last missing one, up to the end of the log, without a gap. Empty if
    /// the whole log is truncated, and the index of the truncation is unknown. `None` if the end of
    /// the log is unknown, because the last entry may be missing.
    pub after: Option<Vec<Span>>,
    /// True if a later term or vote may be missing.
    pub promise: bool,
    /// True if the peer's lifecycle is missing.
    pub life: bool,
}

impl Loss {
    /// Returns the last index before the first missing entry.
    pub fn whole_through(&self) -> LogIndex {
        self.before.last().map_or(self.truncated.truncated_index, |span| span.last)
    }
}

/// The damage to one region's log while the log is read.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    place: Place,
    /// The runs before the first damaged section of entries. `None` if there is no such section.
    pub before: Option<VecDeque<Run>>,
    /// True if the last entry of the log is not a damaged one.
    pub is_end_known: bool,
    /// True if a later truncation than the known one may be damaged.
    pub takes_begin: bool,
    pub takes_promise: bool,
}

impl Damage {
    /// A truncation was written after the damage.
    pub fn truncated_through(&mut self, index: LogIndex) {
        self.takes_begin = false;
        if let Some(before) = &mut self.before {
            drop_through(before, index);
        }
    }

    /// Entries from `first` on were written after the damaged ones.
    pub fn replaced_from(&mut self, first: LogIndex) {
        self.is_end_known = true;
        if let Some(before) = &mut self.before {
            cut_from(before, first);
        }
    }
}

impl RegionIndex {
    fn damage(&mut self, place: Place) -> &mut Damage {
        let new =
            || Damage { place, before: None, is_end_known: true, takes_begin: false, takes_promise: false };
        self.damage.get_or_insert_with(new)
    }

    /// Returns what is missing, or `None` if nothing is.
    fn loss(&self, damage: &Damage) -> Option<Loss> {
        let begin = self.truncated.truncated_index + 1;
        let is_contiguous = spans_from(&self.runs, begin).1;
        // Without entries, the last truncated one is the end of the log.
        let has_end = damage.is_end_known && !(damage.takes_begin && self.runs.is_empty());
        let has_gap = !(is_contiguous && has_end);
        if !has_gap && !damage.takes_promise {
            return None;
        }
        let before = damage.before.as_ref().filter(|_| has_gap).unwrap_or(&self.runs);
        Some(Loss {
            place: place_of(&damage.place),
            truncated: self.truncated,
            hard_state: self.hard_state,
            before: spans_from(before, begin).0,
            has_gap,
            after: (has_gap && damage.is_end_known).then(|| last_spans(&self.runs)),
            promise: damage.takes_promise,
            life: false,
        })
    }
}

fn place_of(place: &Place) -> String {
    format!("block {}, at {} in segment {:08}", place.sequence, place.offset, place.segment)
}

fn span_of(run: &Run, begin: LogIndex) -> Span {
    Span { first: run.first.max(begin), last: run.end() - 1, term: run.term }
}

/// Returns the consecutive runs from `begin` on, and true if these are all runs.
fn spans_from(runs: &VecDeque<Run>, begin: LogIndex) -> (Vec<Span>, bool) {
    let mut spans: Vec<Span> = Vec::new();
    for run in runs {
        let next = spans.last().map_or(begin, |span| span.last + 1);
        if run.first > next {
            return (spans, false);
        }
        if run.end() > begin {
            spans.push(span_of(run, begin));
        }
    }
    (spans, true)
}

/// Returns the last consecutive runs.
fn last_spans(runs: &VecDeque<Run>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for run in runs.iter().rev() {
        if spans.last().is_some_and(|later| run.end() < later.first) {
            break;
        }
        spans.push(span_of(run, 0));
    }
    spans.reverse();
    spans
}

impl Index {
    /// Notes a section whose content is damaged.
    pub(super) fn damaged(&mut self, region: RegionId, kind: Kind, place: Place) {
        match kind {
            Kind::Value => drop(self.damaged_value.get_or_insert(place)),
            Kind::Life => drop(self.damaged_lives.entry(region).or_insert(place)),
            Kind::Forgotten => {}
            Kind::Entries | Kind::Cut => {
                let of = self.regions.entry(region).or_default();
                let runs = std::mem::take(&mut of.runs);
                let damage = of.damage(place);
                damage.is_end_known = false;
                damage.before.get_or_insert(runs);
            }
            // Carried entries are copies. If the originals are missing, there is a gap, or the end
            // of the log is missing.
            Kind::Carried => self.regions.entry(region).or_default().damage(place).is_end_known = false,
            // If the damaged truncation covers entries that the log still has, the log is longer
            // than before.
            Kind::Truncated => self.regions.entry(region).or_default().damage(place).takes_begin = true,
            Kind::HardState => self.regions.entry(region).or_default().damage(place).takes_promise = true,
            Kind::Begun => {
                let of = self.regions.entry(region).or_default();
                (of.runs, of.hard_state) = (VecDeque::new(), None);
                let damage = of.damage(place);
                damage.before = Some(VecDeque::new());
                (damage.is_end_known, damage.takes_promise) = (false, true);
            }
        }
    }

    /// Forgets a region's damage, because its log was made consistent again.
    pub(crate) fn repaired(&mut self, region: RegionId) {
        if let Some(of) = self.regions.get_mut(&region) {
            of.damage = None;
        }
    }

    /// Returns the losses by damaged sections, by region. Returns an error if a value of the store
    /// is lost, or if the entries of another region do not follow its truncation or have a gap.
    pub(crate) fn losses(&mut self) -> Result<BTreeMap<RegionId, Loss>> {
        if let Some(place) = &self.damaged_value {
            return Err(LogError::Corrupt(format!(
                "a value of the store as a whole is damaged ({}), and no region's peers can replace it",
                place_of(place)
            )));
        }
        let mut losses = BTreeMap::new();
        for (region, of) in &mut self.regions {
            of.drop_through(of.truncated.truncated_index);
            match of.damage.as_ref().map(|damage| of.loss(damage)) {
                Some(Some(loss)) => {
                    losses.insert(*region, loss);
                    continue;
                }
                Some(None) => of.damage = None,
                None => {}
            }
            let begin = of.bounds().first;
            let (spans, is_contiguous) = spans_from(&of.runs, begin);
            if !is_contiguous {
                let next = spans.last().map_or(begin, |span| span.last + 1);
                return Err(LogError::Corrupt(format!(
                    "region {region} is truncated at {}, but its entries from {next} on are missing",
                    begin - 1
                )));
            }
        }
        for (region, place) in &self.damaged_lives {
            let of = self.regions.get(region);
            let loss = losses.entry(*region).or_insert_with(|| Loss {
                place: place_of(place),
                truncated: of.map(|of| of.truncated).unwrap_or_default(),
                hard_state: of.and_then(|of| of.hard_state),
                before: of.map(|of| spans_from(&of.runs, of.bounds().first).0).unwrap_or_default(),
                ..Loss::default()
            });
            loss.life = true;
        }
        Ok(losses)
    }

    /// Lowers commit indexes that exceed the last remaining entry, and returns the hard states that
    /// changed. A loss of power removed these entries before they were synced. The hard states must
    /// be written before any new entries, because other entries may later get those indexes.
    pub(crate) fn lower_commits(&mut self) -> Vec<(RegionId, HardState)> {
        let mut corrected = Vec::new();
        for (region, of) in self.regions.iter_mut().filter(|(_, of)| of.damage.is_none()) {
            let last = of.bounds().last;
            if let Some(state) = of.hard_state.as_mut().filter(|state| state.commit > last) {
                state.commit = last;
                corrected.push((*region, *state));
            }
        }
        corrected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Update;
    use crate::records::Record;

    fn place(sequence: u64) -> Place {
        Place { segment: 0, offset: sequence * 512, length: 9, sequence }
    }

    fn entries(first: LogIndex, count: u32, sequence: u64, is_carried: bool) -> Update {
        Update::Entries { region: 1, first, term: 2, count, place: place(sequence), is_carried }
    }

    fn damaged(kind: Kind, sequence: u64) -> Update {
        Update::Damaged { region: 1, kind, place: place(sequence) }
    }

    fn truncated(index: LogIndex, sequence: u64) -> Update {
        let record = Record::Truncated(LogState { truncated_index: index, truncated_term: 2 });
        Update::Record { region: 1, record, sequence }
    }

    fn hard_state(sequence: u64) -> Update {
        let record = Record::HardState(HardState { term: 2, vote: None, commit: 1 });
        Update::Record { region: 1, record, sequence }
    }

    fn span(first: LogIndex, last: LogIndex) -> Span {
        Span { first, last, term: 2 }
    }

    /// Returns the last index before the gap, and the entries after it; `None` if nothing is lost.
    fn gap(updates: &[Update]) -> Option<(LogIndex, Option<Vec<Span>>)> {
        let mut index = Index::default();
        updates.iter().for_each(|update| index.apply(update));
        let losses = index.losses().unwrap();
        losses.get(&1).filter(|loss| loss.has_gap).map(|loss| (loss.whole_through(), loss.after.clone()))
    }

    #[test]
    fn damaged_entries_matter_unless_later_sections_are_the_whole_log() {
        let begin = || [entries(1, 5, 1, false), damaged(Kind::Entries, 2)];
        assert_eq!(gap(&begin()), Some((5, None)));
        let then = |rest: &[Update]| gap(&[&begin(), rest].concat());
        assert_eq!(then(&[entries(9, 2, 3, false)]), Some((5, Some(vec![span(9, 10)]))));
        assert_eq!(then(&[entries(6, 2, 3, false)]), Some((5, Some(vec![span(6, 7)]))), "5 may be replaced");
        assert_eq!(then(&[entries(3, 2, 3, false)]), Some((2, Some(vec![span(3, 4)]))));
        assert_eq!(then(&[entries(9, 2, 3, false), truncated(8, 4)]), None);
        assert_eq!(then(&[entries(1, 9, 3, false)]), None);
        assert_eq!(then(&[entries(1, 5, 3, true)]), Some((5, None)), "copies say nothing of the end");
        let carried = [entries(2, 4, 3, true), entries(9, 1, 4, false), truncated(1, 5)];
        assert_eq!(then(&carried), Some((5, Some(vec![span(9, 9)]))));
    }

    #[test]
    fn a_damaged_copy_takes_the_end_of_the_log_unless_entries_follow() {
        assert_eq!(gap(&[damaged(Kind::Carried, 2)]), Some((0, None)));
        assert_eq!(gap(&[damaged(Kind::Carried, 2), truncated(4, 3)]), Some((4, None)));
        let follows = [damaged(Kind::Carried, 2), entries(7, 2, 3, false), truncated(4, 4)];
        assert_eq!(gap(&follows), Some((4, Some(vec![span(7, 8)]))));
        let whole = [entries(1, 5, 1, false), damaged(Kind::Carried, 2), entries(6, 2, 3, false)];
        assert_eq!(gap(&whole), None, "the originals are there");
    }

    #[test]
    fn without_a_truncation_the_log_is_longer_or_its_end_is_that_of_the_rows() {
        assert_eq!(gap(&[entries(1, 5, 1, false), damaged(Kind::Truncated, 2)]), None);
        assert_eq!(
            gap(&[entries(4, 2, 1, false), damaged(Kind::Truncated, 2)]),
            Some((0, Some(vec![span(4, 5)])))
        );
        assert_eq!(gap(&[truncated(3, 1), damaged(Kind::Truncated, 2)]), Some((3, Some(Vec::new()))));
        assert_eq!(gap(&[damaged(Kind::Truncated, 1), truncated(9, 2)]), None);
    }

    #[test]
    fn a_lost_beginning_takes_the_vote_and_a_later_hard_state_gives_it_back() {
        let promise = |updates: &[Update]| {
            let mut index = Index::default();
            updates.iter().for_each(|update| index.apply(update));
            index.losses().unwrap().get(&1).is_some_and(|loss| loss.promise)
        };
        assert!(promise(&[hard_state(1), damaged(Kind::Begun, 2)]));
        assert!(promise(&[hard_state(1), damaged(Kind::HardState, 2)]));
        assert!(!promise(&[damaged(Kind::HardState, 1), hard_state(2)]));
        assert_eq!(gap(&[entries(1, 5, 1, false), damaged(Kind::Begun, 2)]), Some((0, None)));
    }
}
