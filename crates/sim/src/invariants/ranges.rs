//! By the newest epochs that any store has applied, every slot has exactly one region.
//!
//! A region that another region has absorbed no longer exists, even if a store learns of the merge
//! late or the other region has changed since.
//!
//! The loss of a majority may undo a merge: the absorbed region is recovered on its own, perhaps
//! later than the other one. From then on slots may be without a region for a while; the requests
//! at the end of the run find whether they remain so. No slot may have two regions.

use std::collections::{BTreeMap, BTreeSet};

use types::{RegionDescriptor, RegionId, SlotRange};

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct Ranges {
    newest: BTreeMap<RegionId, RegionDescriptor>,
    merged: BTreeSet<RegionId>,
    may_lack: bool,
}

impl Invariant for Ranges {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let Observation::Described { store, region, split_off } = seen else { return Ok(()) };
        let known = self.newest.get(&region.id);
        if known.is_some_and(|known| known.epoch == region.epoch && known != *region) {
            return Err(format!(
                "store {store} has another region {} of epoch {:?}",
                region.id, region.epoch
            ));
        }
        let is_news = known.is_none_or(|known| region.epoch.is_newer_than(known.epoch));
        self.merged.extend(&region.absorbed);
        if !is_news || self.merged.contains(&region.id) {
            return Ok(());
        }
        self.newest.insert(region.id, (*region).clone());
        if let Some(child) = split_off {
            self.newest.insert(child.id, (*child).clone());
        }
        self.newest.retain(|id, _| !self.merged.contains(id));
        let mut ranges: Vec<SlotRange> = self.newest.values().filter_map(|region| region.slots).collect();
        ranges.sort_unstable();
        let may_lack = self.may_lack;
        let do_meet = |pair: &&[SlotRange]| match may_lack {
            true => pair[0].last < pair[1].first,
            false => pair[0].last + 1 == pair[1].first,
        };
        let gap = ranges.windows(2).find(|pair| !do_meet(pair));
        match gap {
            // At the start regions are described one after the other.
            _ if self.newest.values().any(|region| region.epoch == Default::default()) => Ok(()),
            None => Ok(()),
            Some(pair) => {
                Err(format!("after {region:?} the ranges {:?} and {:?} do not meet", pair[0], pair[1]))
            }
        }
    }

    fn allow_loss(&mut self) {
        self.may_lack = true;
    }
}
