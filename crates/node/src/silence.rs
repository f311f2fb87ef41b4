//! Detection of stores that have fallen silent or restarted. A hibernating region gets no messages
//! from its leader, so the heartbeats of the leader's store decide for all regions that it leads.
//!
//! A store may restart faster than it counts as silent. Its own peers then wake the regions that it
//! led, but a peer that takes no part in elections wakes none. So a restart counts as silence.

use std::collections::BTreeMap;

use types::StoreId;

/// The stores at the last look, each with its incarnation, or `None` if it was silent.
#[derive(Debug, Default)]
pub struct Silence {
    stores: BTreeMap<StoreId, Option<u64>>,
}

impl Silence {
    /// Takes all stores, each with the incarnation of its process if its heartbeats arrive, and
    /// `None` if they do not. Returns the stores that fell silent or restarted since the last look.
    /// A store that is silent now and was unknown at the last look is included.
    pub fn look(&mut self, stores: impl IntoIterator<Item = (StoreId, Option<u64>)>) -> Vec<StoreId> {
        let before = std::mem::replace(&mut self.stores, stores.into_iter().collect());
        let has_stopped = |store: &StoreId, heard: &Option<u64>| match (before.get(store), heard) {
            (None | Some(Some(_)), None) => true,
            (Some(Some(before)), Some(now)) => before != now,
            (Some(None), None) | (None | Some(None), Some(_)) => false,
        };
        let stopped = self.stores.iter().filter(|(store, heard)| has_stopped(store, heard));
        stopped.map(|(&store, _)| store).collect()
    }

    pub fn is_silent(&self, store: StoreId) -> bool {
        self.stores.get(&store) == Some(&None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_falls_silent_is_told_of_once_for_each_time() {
        let mut silence = Silence::default();
        let up = Some(7);
        assert_eq!(silence.look([(1, up), (2, None)]), [2]);
        assert!(silence.look([(1, up), (2, None)]).is_empty());
        assert_eq!(silence.look([(1, None), (2, up)]), [1]);
        assert!(silence.is_silent(1) && !silence.is_silent(2));
        // Store 1 leaves the cluster and comes back.
        assert_eq!(silence.look([(2, None)]), [2]);
        assert_eq!(silence.look([(1, None), (2, None)]), [1]);
    }

    #[test]
    fn a_store_that_restarts_between_two_looks_is_told_of() {
        let mut silence = Silence::default();
        assert!(silence.look([(1, Some(7)), (2, Some(3))]).is_empty());
        assert_eq!(silence.look([(1, Some(8)), (2, Some(3))]), [1]);
        assert!(!silence.is_silent(1));
        assert!(silence.look([(1, Some(8)), (2, Some(3))]).is_empty());
        // It was told of when it fell silent.
        assert_eq!(silence.look([(1, None), (2, Some(3))]), [1]);
        assert!(silence.look([(1, Some(9)), (2, Some(3))]).is_empty());
    }
}
