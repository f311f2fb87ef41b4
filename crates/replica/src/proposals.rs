//! This store's pending proposals by log index, so that each is answered at most once.
//!
//! The outcome of a proposal is known when an entry is applied at its index. If that entry has the
//! proposal's term, it is the proposal, because the leader of a term writes each index once.
//! Otherwise it is another leader's entry. The outcome is known earlier if another leader's entries
//! replace the proposal in this store's log. The loss of leadership decides nothing: the next
//! leader may still commit the entry, so its token stays.

use std::collections::BTreeMap;

use types::{LogIndex, Term};

#[derive(Default)]
pub(crate) struct Proposals {
    waiting: BTreeMap<LogIndex, (Term, u64)>,
}

impl Proposals {
    pub fn insert(&mut self, index: LogIndex, term: Term, token: u64) {
        let before = self.waiting.insert(index, (term, token));
        assert!(before.is_none(), "an index is proposed once, or freed by being replaced");
    }

    /// Handles the replacement of the log from `first` on by entries with the given terms. Returns
    /// the tokens of the proposals that were lost.
    pub fn replaced(&mut self, first: LogIndex, term_of: impl Fn(LogIndex) -> Option<Term>) -> Vec<u64> {
        let lost: Vec<LogIndex> = self
            .waiting
            .range(first..)
            .filter(|(&index, &(term, _))| term_of(index) != Some(term))
            .map(|(&index, _)| index)
            .collect();
        lost.iter().filter_map(|index| self.waiting.remove(index)).map(|(_, token)| token).collect()
    }

    /// Removes the proposal at an applied index. Returns `Ok` with its token if the applied entry
    /// is the proposal's, or `Err` with its token if another entry took its place.
    pub fn applied(&mut self, index: LogIndex, term: Term) -> Result<Option<u64>, u64> {
        match self.waiting.remove(&index) {
            None => Ok(None),
            Some((proposed, token)) if proposed == term => Ok(Some(token)),
            Some((_, token)) => Err(token),
        }
    }

    /// Removes and returns all tokens. Used when the log is replaced, which leaves the outcome of
    /// its entries unknown here.
    pub fn take_all(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting).into_values().map(|(_, token)| token).collect()
    }

    pub fn forget(&mut self, token: u64) {
        self.waiting.retain(|_, &mut (_, waiting)| waiting != token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_answered_once_whatever_happens_to_its_entry() {
        let mut proposals = Proposals::default();
        for index in 5..9 {
            proposals.insert(index, 2, index * 10);
        }
        // Entry 6 stays, entry 7 is replaced, and entry 8 is removed.
        let term_of = |index| match index {
            6 => Some(2),
            7 => Some(3),
            _ => None,
        };
        assert_eq!(proposals.replaced(6, term_of), vec![70, 80]);
        assert_eq!(proposals.applied(5, 2), Ok(Some(50)));
        assert_eq!(proposals.applied(6, 3), Err(60));
        for index in 5..9 {
            assert_eq!(proposals.applied(index, 2), Ok(None));
        }
    }

    #[test]
    fn a_forgotten_proposal_is_not_answered() {
        let mut proposals = Proposals::default();
        proposals.insert(5, 2, 50);
        proposals.forget(50);
        assert_eq!(proposals.applied(5, 2), Ok(None));
    }
}
