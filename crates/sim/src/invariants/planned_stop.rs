//! A planned stop of a store leaves no client without an answer, unless the store has waited as
//! long as clients do. Once its peers know of the stop, none of them becomes leader, except a peer
//! that was already a candidate.

use std::collections::{BTreeMap, BTreeSet};

use types::{RegionId, StoreId};

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct PlannedStop {
    /// The stores that are stopping, with the regions in which they were candidates.
    stopping: BTreeMap<StoreId, BTreeSet<RegionId>>,
}

impl Invariant for PlannedStop {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::StopBegun { store, standing } => {
                self.stopping.insert(*store, (*standing).clone());
            }
            Observation::StopEnded { store, unanswered, has_waited } => {
                self.stopping.remove(store);
                if *unanswered > 0 && !has_waited {
                    return Err(format!("store {store} stopped while {unanswered} clients waited for it"));
                }
            }
            Observation::LedBesideOthers { store, region, term } => {
                let stood = self.stopping.get_mut(store).map(|standing| standing.remove(region));
                if stood == Some(false) {
                    return Err(format!("store {store} is stopping and led region {region} in term {term}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
