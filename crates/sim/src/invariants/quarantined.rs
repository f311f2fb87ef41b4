//! A quarantined peer executes, serves and leads nothing until it is released. This holds from the
//! moment at which its store would know of the quarantine after a crash.

use std::collections::BTreeMap;

use types::{LogIndex, RegionId, StoreId};

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct Quarantined {
    held: BTreeMap<(StoreId, RegionId), LogIndex>,
}

impl Invariant for Quarantined {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::Held { store, region, index } => {
                self.held.insert((*store, *region), *index);
            }
            Observation::Released { store, region } => {
                self.held.remove(&(*store, *region));
            }
            Observation::Rows { store, region, index, .. } => {
                if let Some(held) = self.held.get(&(*store, *region)).filter(|held| **held <= *index) {
                    return Err(format!(
                        "store {store} has applied region {region} through {index}, and is quarantined at {held}"
                    ));
                }
            }
            Observation::Leased { store, region, applied } if self.held.contains_key(&(*store, *region)) => {
                return Err(format!(
                    "store {store} has a lease of region {region} at {applied}, and is quarantined"
                ));
            }
            _ => {}
        }
        Ok(())
    }
}
