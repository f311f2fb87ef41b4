//! The steps of a start for peers whose log is damaged.
//!
//! A damaged section of the log names its region. Only that region's peer is affected. If the rows
//! hold all missing entries and every later entry is intact, the peer lost nothing that it
//! promised, and its log restarts after the entries in the rows. Otherwise the peer is *unclean*:
//! it may have lost entries, a term or a vote that it had acknowledged, and it takes part again
//! only under another number ([`crate::unsynced`]). Its log is made consistent so that it can be
//! opened: it ends before the first missing entry, or restarts after the rows.
//!
//! ```text
//!  recover (reads) ─▶ the mark names the unclean peers (synced) ─▶ the log is repaired (synced)
//! ```
//!
//! After a crash between the steps, the next start finds the damage again.

use std::collections::BTreeMap;

use replica::HardState;
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, Term};
use wal::{LogState, Loss, PeerLifecycle, Record, Span};

use crate::unsynced::Damaged;

/// A peer number larger than all others. A tombstone with this number prevents the region from ever
/// having a peer on this store again.
pub const EVERY_PEER: PeerId = PeerId::MAX;

/// The damage that was found at start, and its consequences.
#[derive(Clone, Debug, Default)]
pub struct Damages {
    /// The peers that are unclean from now on. This must be durable before `repairs` are written.
    pub unclean: BTreeMap<RegionId, Damaged>,
    /// The regions whose damaged entries are all in the rows, with the locations of the damage.
    /// Nothing is lost.
    pub harmless: BTreeMap<RegionId, String>,
    /// The regions whose peer's number is unknown, with the locations of the damage. The store no
    /// longer has peers of these regions and accepts none.
    pub barred: BTreeMap<RegionId, String>,
    /// The regions that were created by a split, and whose rows are lost with the split's entry.
    pub unborn: Vec<RegionId>,
    /// The records that make the log consistent, in order.
    pub repairs: Vec<(RegionId, Vec<Record>)>,
}

/// The consequence of damage for one peer with rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Harmless(Vec<Record>),
    /// Entries from `first` on may be missing.
    Unclean {
        first: LogIndex,
        records: Vec<Record>,
    },
}

fn term_at(spans: &[Span], index: LogIndex) -> Option<Term> {
    spans.iter().find(|span| (span.first..=span.last).contains(&index)).map(|span| span.term)
}

/// Judges the loss of a peer whose rows hold every entry through `applied`.
///
/// `is_alone` is true if the cluster has no other store. In that case the rest of the log is
/// executed. Otherwise no entry after the rows is executed: the rest of the log may hold entries
/// that were never committed and that other entries have replaced.
pub(crate) fn judge(loss: &Loss, applied: (LogIndex, Term), is_alone: bool) -> Verdict {
    let (index, term) = applied;
    let begins = LogState { truncated_index: index, truncated_term: term };
    let is_whole_after = |after: &Vec<Span>| match (after.first(), after.last()) {
        (Some(first), Some(last)) if first.first <= index => {
            index <= last.last && term_at(after, index) == Some(term)
        }
        (Some(first), _) => first.first == index + 1,
        // Everything is truncated, so the rows hold it.
        (None, _) => index >= loss.truncated.truncated_index,
    };
    let is_in_rows = loss.has_gap && loss.after.as_ref().is_some_and(is_whole_after);
    if is_in_rows && !loss.promise && !loss.life {
        return Verdict::Harmless(vec![Record::Truncated(begins)]);
    }
    let through = loss.whole_through();
    let in_log = match index == loss.truncated.truncated_index {
        true => Some(loss.truncated.truncated_term),
        false => term_at(&loss.before, index),
    };
    let can_go_on = in_log == Some(term);
    let commit = match is_alone && can_go_on && loss.has_gap {
        true => through,
        false => index,
    };
    let known = loss.hard_state.unwrap_or_default();
    // The term of an unclean peer is no longer a promise. Raft requires it to be at least the term
    // of every entry.
    let spans = loss.before.iter().chain(loss.after.iter().flatten());
    let newest = spans.map(|span| span.term).max().unwrap_or(0).max(term).max(known.term);
    let vote = known.vote.filter(|_| newest == known.term);
    let hard_state = HardState { term: newest, vote, commit };
    let mut records = Vec::new();
    if loss.has_gap || !can_go_on {
        records.push(if can_go_on { Record::Cut(through) } else { Record::Begun(begins) });
        records.push(Record::HardState(hard_state));
    } else if loss.promise {
        let commit = known.commit.clamp(index, through.max(index));
        records.push(Record::HardState(HardState { commit, ..hard_state }));
    }
    let first = if can_go_on { through + 1 } else { index + 1 };
    Verdict::Unclean { first, records }
}

/// Returns the records that delete all log data of a region, and that prevent peers up to number
/// `peer` from returning.
pub(crate) fn buried(peer: PeerId) -> Vec<Record> {
    vec![Record::Forgotten, Record::Life(PeerLifecycle::Tombstone { peer })]
}

/// Returns the records for a peer that was already known to be unclean, if its log ends before its
/// rows.
pub(crate) fn begin_after_rows((index, term): (LogIndex, Term), known: Option<HardState>) -> Vec<Record> {
    let known = known.unwrap_or_default();
    let begins = LogState { truncated_index: index, truncated_term: term };
    let vote = known.vote.filter(|_| known.term >= term);
    let hard_state = HardState { term: known.term.max(term), vote, commit: index };
    vec![Record::Begun(begins), Record::HardState(hard_state)]
}

/// Returns the lifecycle state of a peer whose record is damaged, from its rows' descriptor.
pub(crate) fn life_of_rows(descriptor: &RegionDescriptor) -> PeerLifecycle {
    PeerLifecycle::Exists { descriptor: descriptor.clone(), parent: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: LogIndex, last: LogIndex, term: Term) -> Span {
        Span { first, last, term }
    }

    /// A log that was truncated at 5, and lost entries after 20.
    fn loss(after: Option<Vec<Span>>) -> Loss {
        Loss {
            place: "block 7".into(),
            truncated: LogState { truncated_index: 5, truncated_term: 2 },
            hard_state: Some(HardState { term: 4, vote: Some(1), commit: 35 }),
            before: vec![span(6, 10, 2), span(11, 20, 3)],
            has_gap: true,
            after,
            promise: false,
            life: false,
        }
    }

    fn state(index: LogIndex, term: Term) -> LogState {
        LogState { truncated_index: index, truncated_term: term }
    }

    fn hard_state(term: Term, vote: Option<PeerId>, commit: LogIndex) -> Record {
        Record::HardState(HardState { term, vote, commit })
    }

    #[test]
    fn entries_that_the_rows_hold_are_no_loss_if_all_later_ones_are_whole() {
        let after = || Some(vec![span(31, 40, 4)]);
        let harmless = |index, term| Verdict::Harmless(vec![Record::Truncated(state(index, term))]);
        assert_eq!(judge(&loss(after()), (30, 3), false), harmless(30, 3), "the rows end just before");
        assert_eq!(judge(&loss(after()), (36, 4), false), harmless(36, 4));
        assert_eq!(judge(&loss(Some(Vec::new())), (25, 3), false), harmless(25, 3), "all is truncated");
        let is_unclean =
            |loss: &Loss, applied| matches!(judge(loss, applied, false), Verdict::Unclean { .. });
        assert!(is_unclean(&loss(after()), (29, 3)), "entry 30 is lost");
        assert!(is_unclean(&loss(after()), (36, 3)), "the rows have another entry");
        assert!(is_unclean(&loss(after()), (41, 4)), "the log ends before the rows");
        assert!(is_unclean(&loss(None), (36, 4)), "entries behind may be lost");
        assert!(is_unclean(&Loss { promise: true, ..loss(after()) }, (36, 4)));
        assert!(is_unclean(&Loss { life: true, ..loss(after()) }, (36, 4)));
    }

    #[test]
    fn the_log_of_an_unclean_peer_ends_before_the_gap_or_begins_after_the_rows() {
        let unclean = |first, records| Verdict::Unclean { first, records };
        let cut = |commit| vec![Record::Cut(20), hard_state(4, Some(1), commit)];
        assert_eq!(judge(&loss(None), (12, 3), false), unclean(21, cut(12)));
        assert_eq!(judge(&loss(None), (12, 3), true), unclean(21, cut(20)), "no store has other entries");
        assert_eq!(judge(&loss(None), (5, 2), false), unclean(21, cut(5)));
        let begun = vec![Record::Begun(state(25, 3)), hard_state(4, Some(1), 25)];
        assert_eq!(judge(&loss(None), (25, 3), true), unclean(26, begun));
        let diverged = vec![Record::Begun(state(12, 2)), hard_state(4, Some(1), 12)];
        assert_eq!(judge(&loss(None), (12, 2), false), unclean(13, diverged));
    }

    #[test]
    fn a_term_is_never_below_that_of_an_entry_and_a_vote_counts_in_its_term_only() {
        let whole = Loss { has_gap: false, promise: true, ..loss(None) };
        let known = |term| Some(HardState { term, vote: Some(1), commit: 15 });
        let records = |hard_state| match judge(&Loss { hard_state, ..whole.clone() }, (12, 3), false) {
            Verdict::Unclean { records, .. } => records,
            Verdict::Harmless(_) => panic!("the vote is lost"),
        };
        assert_eq!(records(known(2)), [hard_state(3, None, 15)]);
        assert_eq!(records(known(3)), [hard_state(3, Some(1), 15)]);
        assert_eq!(records(None), [hard_state(3, None, 12)]);
    }
}
