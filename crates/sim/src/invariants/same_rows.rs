//! Two stores that have applied a region up to the same index have the same rows of it. A store
//! that was excluded when an entry was skipped may have executed that entry.

use std::collections::BTreeMap;

use types::{LogIndex, RegionId, StoreId};

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct SameRows {
    digests: BTreeMap<(RegionId, LogIndex), (StoreId, u64)>,
}

impl Invariant for SameRows {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let (store, region, index, digest) = match seen {
            &Observation::Rows { store, region, index, digest } => (store, region, index, digest),
            Observation::SkipOrdered { region, index, given_up } => {
                self.digests.retain(|(of, at), (store, _)| {
                    (of, *at >= *index) != (region, true) || !given_up.contains(store)
                });
                return Ok(());
            }
            _ => return Ok(()),
        };
        match *self.digests.entry((region, index)).or_insert((store, digest)) {
            (_, known) if known == digest => Ok(()),
            (other, _) => {
                Err(format!("stores {other} and {store} differ in region {region} at index {index}"))
            }
        }
    }
}
