//! Detection of stores that have fallen silent. A hibernating region gets no messages from its
//! leader, so the heartbeats of the leader's store decide for all regions that it leads.

use std::collections::BTreeSet;

use types::StoreId;

/// The stores that were silent at the last look.
#[derive(Debug, Default)]
pub struct Silence {
    silent: BTreeSet<StoreId>,
}

impl Silence {
    /// Takes all stores, each with a flag that is true if its heartbeats arrive. Returns the stores
    /// that are silent now and were not silent at the last look. A store that is silent now and was
    /// unknown at the last look is included.
    pub fn look(&mut self, stores: impl IntoIterator<Item = (StoreId, bool)>) -> Vec<StoreId> {
        let silent = stores.into_iter().filter(|(_, is_heard)| !is_heard).map(|(store, _)| store).collect();
        let before = std::mem::replace(&mut self.silent, silent);
        self.silent.difference(&before).copied().collect()
    }

    pub fn is_silent(&self, store: StoreId) -> bool {
        self.silent.contains(&store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_falls_silent_is_told_of_once_for_each_time() {
        let mut silence = Silence::default();
        assert_eq!(silence.look([(1, true), (2, false)]), [2]);
        assert!(silence.look([(1, true), (2, false)]).is_empty());
        assert_eq!(silence.look([(1, false), (2, true)]), [1]);
        assert!(silence.is_silent(1) && !silence.is_silent(2));
        // Store 1 leaves the cluster and comes back.
        assert_eq!(silence.look([(2, false)]), [2]);
        assert_eq!(silence.look([(1, false), (2, false)]), [1]);
    }
}
