//! A store's knowledge of a region's leader, from its own peer and from other stores.

use types::{StoreId, Term};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    pub term: Term,
    pub leader: Option<StoreId>,
}

impl Leadership {
    /// Returns true if a report of this store's own peer replaces this one. It does if it differs,
    /// unless a later term is known.
    pub fn yields_to(&self, own: Leadership) -> bool {
        own.term >= self.term && *self != own
    }

    /// Returns true if another store's report of its own leadership replaces this one. It does if
    /// its term is later, or if no leader of its term is known yet.
    pub fn yields_to_hearsay(&self, term: Term) -> bool {
        term > self.term || (term == self.term && self.leader.is_none())
    }

    /// Returns whether a lease that `store` holds as the leader of `term` is valid.
    pub fn is_of(&self, store: StoreId, term: Term) -> bool {
        *self == Leadership { term, leader: Some(store) }
    }
}
