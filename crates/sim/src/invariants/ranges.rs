//! By the newest epochs that any store has applied, every slot has exactly one region.
//!
//! A region whose slots another region of a later version has is no more: it was merged into it.

use std::collections::BTreeMap;

use types::{RegionDescriptor, RegionId, SlotRange};

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct Ranges {
    newest: BTreeMap<RegionId, RegionDescriptor>,
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
        if !is_news || self.is_gone(region) {
            return Ok(());
        }
        self.newest.insert(region.id, (*region).clone());
        if let Some(child) = split_off {
            self.newest.insert(child.id, (*child).clone());
        }
        let covers =
            |range: SlotRange| region.slots.is_some_and(|s| s.first <= range.first && range.last <= s.last);
        self.newest.retain(|&id, other| {
            let is_older = other.epoch.version < region.epoch.version;
            id == region.id || !is_older || !other.slots.is_some_and(covers)
        });
        let mut ranges: Vec<SlotRange> = self.newest.values().filter_map(|region| region.slots).collect();
        ranges.sort_unstable();
        let gap = ranges.windows(2).find(|pair| pair[0].last + 1 != pair[1].first);
        match gap {
            // Regions of the beginning are described one after the other.
            _ if self.newest.values().any(|region| region.epoch == Default::default()) => Ok(()),
            None => Ok(()),
            Some(pair) => {
                Err(format!("after {region:?} the ranges {:?} and {:?} do not meet", pair[0], pair[1]))
            }
        }
    }
}

impl Ranges {
    fn is_gone(&self, region: &RegionDescriptor) -> bool {
        let Some(slots) = region.slots else { return false };
        self.newest.values().any(|other| {
            let covers = other.slots.is_some_and(|s| s.first <= slots.first && slots.last <= s.last);
            other.id != region.id && covers && other.epoch.version > region.epoch.version
        })
    }
}
