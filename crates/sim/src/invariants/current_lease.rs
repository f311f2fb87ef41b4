//! A store with a lease has applied every entry that any store has answered for.

use std::collections::BTreeMap;

use types::{LogIndex, RegionId};

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct CurrentLease {
    answered: BTreeMap<RegionId, LogIndex>,
}

impl Invariant for CurrentLease {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match *seen {
            Observation::Acknowledged { region, index, .. } => {
                let answered = self.answered.entry(region).or_default();
                *answered = (*answered).max(index);
            }
            Observation::Leased { store, region, applied } => {
                let answered = self.answered.get(&region).copied().unwrap_or(0);
                if applied < answered {
                    return Err(format!(
                        "store {store} has a lease of region {region} at {applied}, and {answered} is answered"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
