//! The consequences of refusals by other stores.
//!
//! A member that refuses has proved its identity, but it may lie, because any store that has joined
//! is a member. So no single other store can stop this one, as long as this store holds a list of
//! stores with its own key. The exception is a store that was declared lost, because two such
//! stores would believe each other.

use std::collections::BTreeMap;

use types::StoreId;

use crate::transport::frame::{Refusal, RefusalReason};

/// The action that follows a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    Nothing,
    /// Log the refusal for the operator.
    Tell,
    /// The other store reports that this one was removed. Wait for more such reports.
    Await,
    /// This store was removed, so it performs a planned stop.
    End,
    /// The cluster knows another directory under this store's number, so the store must stop
    /// immediately.
    Fatal,
}

/// The facts that this store knows about itself and the others.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// True if its list of stores holds its key.
    pub is_agreed: bool,
    /// Number of other members on its list.
    pub others: usize,
}

/// The last refusal of each store.
#[derive(Default)]
pub struct Refusals {
    last: BTreeMap<StoreId, Refusal>,
    has_ended: bool,
}

impl Refusals {
    pub fn hear(&mut self, by: StoreId, refusal: &Refusal, own: Own) -> Consequence {
        let is_news = self.last.get(&by) != Some(refusal);
        self.last.insert(by, refusal.clone());
        let tell = if is_news { Consequence::Tell } else { Consequence::Nothing };
        match refusal.reason {
            // An agreed key stays. The other store is wrong or lies.
            RefusalReason::OtherKey if own.is_agreed => tell,
            RefusalReason::OtherKey => Consequence::Fatal,
            RefusalReason::Removed if self.has_ended => Consequence::Nothing,
            RefusalReason::Removed if 2 * self.removed() > own.others => {
                self.has_ended = true;
                Consequence::End
            }
            RefusalReason::Removed if is_news => Consequence::Await,
            RefusalReason::Removed => Consequence::Nothing,
            // The stores that could confirm this report may also have been declared lost. Together
            // with this store, they would be the majority of regions that continue without it. So
            // this store ends at the first report of a member.
            RefusalReason::DeclaredLost if self.has_ended => Consequence::Nothing,
            RefusalReason::DeclaredLost => {
                self.has_ended = true;
                Consequence::End
            }
            RefusalReason::Wrong => tell,
            RefusalReason::NotYetKnown => Consequence::Nothing,
        }
    }

    /// Returns the number of stores whose last refusal says that this store was removed.
    fn removed(&self) -> usize {
        self.last.values().filter(|refusal| refusal.reason == RefusalReason::Removed).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(reason: RefusalReason) -> Refusal {
        Refusal { reason, text: format!("{reason:?}") }
    }

    #[test]
    fn a_store_whose_key_is_agreed_on_is_ended_by_no_single_other() {
        let own = Own { is_agreed: true, others: 3 };
        let mut refusals = Refusals::default();
        for by in 1..=3 {
            assert_eq!(refusals.hear(by, &refusal(RefusalReason::OtherKey), own), Consequence::Tell);
            assert_eq!(refusals.hear(by, &refusal(RefusalReason::OtherKey), own), Consequence::Nothing);
        }
        let removed = refusal(RefusalReason::Removed);
        assert_eq!(refusals.hear(1, &removed, own), Consequence::Await);
        for _ in 0..10 {
            assert_eq!(refusals.hear(1, &removed, own), Consequence::Nothing, "one store says it often");
        }
        // One store withdraws its report and another makes one, so there is still one.
        assert_eq!(refusals.hear(1, &refusal(RefusalReason::Wrong), own), Consequence::Tell);
        assert_eq!(refusals.hear(2, &removed, own), Consequence::Await);
        assert_eq!(refusals.hear(3, &removed, own), Consequence::End, "two of three");
        assert_eq!(refusals.hear(1, &removed, own), Consequence::Nothing, "the stop is in progress");
    }

    #[test]
    fn a_store_that_was_declared_lost_heeds_the_first_survivor() {
        let own = Own { is_agreed: true, others: 2 };
        let mut refusals = Refusals::default();
        let lost = refusal(RefusalReason::DeclaredLost);
        assert_eq!(refusals.hear(1, &lost, own), Consequence::End);
        assert_eq!(refusals.hear(1, &lost, own), Consequence::Nothing, "the stop is in progress");
    }

    #[test]
    fn a_store_with_an_empty_directory_heeds_the_first() {
        let own = Own { is_agreed: false, others: 2 };
        let other_key = refusal(RefusalReason::OtherKey);
        assert_eq!(Refusals::default().hear(1, &other_key, own), Consequence::Fatal);
        let known = Own { is_agreed: true, others: 1 };
        assert_eq!(Refusals::default().hear(1, &refusal(RefusalReason::Removed), known), Consequence::End);
        let not_yet = refusal(RefusalReason::NotYetKnown);
        assert_eq!(Refusals::default().hear(1, &not_yet, known), Consequence::Nothing);
    }
}
