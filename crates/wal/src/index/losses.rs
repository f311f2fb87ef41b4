//! Losses of the regions' logs by damaged sections.
//!
//! A damaged section names its region and its kind in its head, and nothing else is known of it. A
//! damaged section of entries may have replaced any entries before it. So the runs before it are
//! set aside, and the runs after it are collected by themselves. If they are the whole log at the
//! end, because the older entries were truncated or written once more, the damage has taken
//! nothing.

use std::collections::{BTreeMap, VecDeque};

use replica::HardState;
use types::{LogIndex, RegionId, Term};

use super::{cut_from, Index, RegionIndex, Run};
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

/// The part that is missing of a region's log, or of what the log says of the region's peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// The place of the first damaged section in the log, for people.
    pub place: String,
    pub truncated: LogState,
    /// The last hard state that could be read.
    pub hard_state: Option<HardState>,
    /// The entries from the last truncated one to the first missing one, contiguous: all of the
    /// log if no entries are missing. The last of them may have been replaced by missing ones, if
    /// they were not committed.
    pub before: Vec<Span>,
    /// True if entries are missing.
    pub has_gap: bool,
    /// The entries behind the last missing one to the end of the log, contiguous. `None` if the end
    /// is not known, because it may be among the missing entries.
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
    pub takes_promise: bool,
}

impl Damage {
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
        let new = || Damage { place, before: None, is_end_known: true, takes_promise: false };
        self.damage.get_or_insert_with(new)
    }

    /// Returns what is missing, or `None` if nothing is.
    fn loss(&self, damage: &Damage) -> Option<Loss> {
        let begin = self.truncated.truncated_index + 1;
        let is_contiguous = spans_from(&self.runs, begin).1;
        let has_gap = !(is_contiguous && damage.is_end_known);
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

/// Returns the runs that follow each other from `begin` on, and whether these are all.
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

/// Returns the last runs that follow each other.
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
            // Carried entries are copies. If the originals are gone, there is a gap.
            Kind::Carried | Kind::Truncated => drop(self.regions.entry(region).or_default().damage(place)),
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

    /// Returns what damaged sections took, by region. Returns an error if they took a value of the
    /// store, or if the entries of another region do not follow its truncation or have a gap.
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

    /// Lowers commit indexes beyond the last entry that is left, and returns the hard states that
    /// changed. A loss of power removed these entries before they were synced. The hard states must
    /// be written before any new entries, because other entries may later take those indexes.
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
