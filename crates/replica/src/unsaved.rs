//! What one peer wants written, and what waits for the write.
//!
//! The consensus code hands out its work in numbered *readies*. While a batch is in flight they keep being
//! taken, so that a leader's entries reach its followers without waiting for an earlier write; what they
//! want written gathers here for the next batch. That is allowed because the log view answers for entries
//! on their way, and because messages that vouch for a write leave only after the batch that holds it.

use raft::eraftpb::{Entry, Message};
use types::{LogIndex, Term};

use crate::action::Restart;
use crate::log_store::HardState;

#[derive(Default)]
pub(crate) struct Unsaved {
    /// Before the entries.
    pub restart: Option<Restart>,
    pub entries: Vec<Entry>,
    pub hard_state: Option<HardState>,
    /// Entries, a term or a vote are in it: it needs a batch. A commit index alone rides along.
    pub is_urgent: bool,
    /// A term or a vote is in it.
    pub must_sync: bool,
    /// The last ready that it holds; 0 for none.
    pub ready: u64,
    /// Not before the write.
    pub messages: Vec<Message>,
}

impl Unsaved {
    pub fn append(&mut self, entries: Vec<Entry>) {
        let Some(head) = entries.first() else { return };
        self.is_urgent = true;
        let keep = self.entries.iter().take_while(|entry| entry.index < head.index).count();
        self.entries.truncate(keep);
        assert!(self.entries.last().is_none_or(|last| last.index + 1 == head.index), "no holes in a log");
        self.entries.extend(entries);
    }

    /// What was to be written of the old log does not matter any more.
    pub fn restart(&mut self, restart: Restart) {
        self.entries.clear();
        self.restart = Some(restart);
        self.is_urgent = true;
        self.must_sync = true;
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.hard_state.is_none() && self.restart.is_none()
    }
}

/// The part of the batch in flight that is this peer's.
pub(crate) struct InFlight {
    pub ready: u64,
    /// The log begins anew after a snapshot that is to be applied once this is written.
    pub snapshot: Option<Restart>,
    /// The term that is in it.
    pub term: Option<Term>,
    pub last: Option<(LogIndex, Term)>,
    pub messages: Vec<Message>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_entries_replace_those_they_overlap() {
        let entry = |index, term| Entry { index, term, ..Entry::default() };
        let mut unsaved = Unsaved::default();
        unsaved.append(vec![entry(5, 1), entry(6, 1), entry(7, 1)]);
        unsaved.append(vec![entry(6, 2)]);
        unsaved.append(vec![entry(7, 2)]);
        let held: Vec<_> = unsaved.entries.iter().map(|entry| (entry.index, entry.term)).collect();
        assert_eq!(held, vec![(5, 1), (6, 2), (7, 2)]);
        unsaved.append(vec![entry(3, 3)]);
        assert_eq!(unsaved.entries.len(), 1);
    }
}
