//! What a store believes of who leads a region: its own peer's word, and that of others.

use types::{StoreId, Term};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    pub term: Term,
    pub leader: Option<StoreId>,
}

impl Leadership {
    /// Whether the word of this store's own peer is news: it is believed as it stands, unless a later term is known.
    pub fn yields_to(&self, own: Leadership) -> bool {
        own.term >= self.term && *self != own
    }

    /// Whether it is news what another store says of its own leadership: it counts when its term is later, or when
    /// no leader of that term is known yet.
    pub fn yields_to_hearsay(&self, term: Term) -> bool {
        term > self.term || (term == self.term && self.leader.is_none())
    }

    /// Whether a lease that `store` holds as the leader of `term` counts.
    pub fn is_of(&self, store: StoreId, term: Term) -> bool {
        *self == Leadership { term, leader: Some(store) }
    }
}
