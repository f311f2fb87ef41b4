//! A majority of a region's voters have synced an entry to their logs when a store answers for it.
//!
//! An entry that was proposed before a change of voters was applied may be committed by the old
//! voters.

use std::collections::{BTreeMap, BTreeSet};

use types::{LogIndex, RegionId, StoreId, Term};

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct Acknowledged {
    synced: BTreeMap<(RegionId, LogIndex, Term), BTreeSet<StoreId>>,
}

impl Invariant for Acknowledged {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::Synced { store, region, entries, .. } => {
                for entry in *entries {
                    self.synced.entry((*region, entry.index, entry.term)).or_default().insert(*store);
                }
                Ok(())
            }
            Observation::Acknowledged { store, region, index, term, voters } => {
                let none = BTreeSet::new();
                let synced = self.synced.get(&(*region, *index, *term)).unwrap_or(&none);
                let holds = |voters: &Vec<StoreId>| {
                    2 * voters.iter().filter(|voter| synced.contains(voter)).count() > voters.len()
                };
                if !voters.iter().any(holds) {
                    return Err(format!(
                        "store {store} answers for entry {index} of region {region}, which {synced:?} have synced"
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
