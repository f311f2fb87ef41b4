//! One peer's pending log writes, and the messages that wait for them.
//!
//! The consensus code hands out its work in numbered *readies*. The peer keeps taking them while a
//! batch is in flight, so that a leader's entries reach its followers without waiting for an
//! earlier write. Their writes are collected here for the next batch. This is safe because the log
//! view serves entries that are not written yet, and because a message that vouches for a write is
//! sent only after the batch that contains it.

use raft::eraftpb::{Entry, Message};
use types::{LogIndex, Term};

use crate::action::Restart;
use crate::log_store::HardState;

#[derive(Default)]
pub(crate) struct Unsaved {
    /// Replaces the log before the entries are appended.
    pub restart: Option<Restart>,
    pub entries: Vec<Entry>,
    pub hard_state: Option<HardState>,
    /// True if the write contains entries, a restart of the log, a term or a vote, so that it needs
    /// a batch. A commit index alone waits for a batch that is written anyway.
    pub is_urgent: bool,
    /// True if the write must be synced in every mode: it contains a term, a vote, a restart of the
    /// log, a change of the region, or entries of the meta region.
    pub must_sync: bool,
    /// Number of the last ready included; 0 for none.
    pub ready: u64,
    /// Messages to send after the write.
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

    /// Begins the log at `restart`. Pending entries of the old log are discarded.
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

/// One peer's part of the batch in flight.
pub(crate) struct InFlight {
    pub ready: u64,
    /// The snapshot at which the log begins, to be applied once this is written.
    pub snapshot: Option<Restart>,
    /// The term that is written.
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
