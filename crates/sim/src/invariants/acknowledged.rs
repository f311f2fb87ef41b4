//! When a store answers for an entry, a majority of its region's voters have it synced in their logs.
//!
//! A change of voters may be committed and not yet applied when an entry behind it is committed by the old
//! ones, so the last few configurations count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{LogIndex, RegionId, StoreId, Term};

use super::Invariant;
use crate::observation::Observation;

const CONFIGURATIONS: usize = 3;

#[derive(Default)]
pub struct Acknowledged {
    synced: BTreeMap<(RegionId, LogIndex, Term), BTreeSet<StoreId>>,
    voters: BTreeMap<RegionId, VecDeque<Vec<StoreId>>>,
}

impl Invariant for Acknowledged {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::Synced { store, region, entries } => {
                for entry in *entries {
                    self.synced.entry((*region, entry.index, entry.term)).or_default().insert(*store);
                }
                Ok(())
            }
            Observation::Acknowledged { store, region, index, term, voters } => {
                let known = self.voters.entry(*region).or_default();
                if known.front().map(Vec::as_slice) != Some(*voters) {
                    known.push_front(voters.to_vec());
                    known.truncate(CONFIGURATIONS);
                }
                let none = BTreeSet::new();
                let synced = self.synced.get(&(*region, *index, *term)).unwrap_or(&none);
                let holds = |voters: &Vec<StoreId>| {
                    2 * voters.iter().filter(|voter| synced.contains(voter)).count() > voters.len()
                };
                if !known.iter().any(holds) {
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
