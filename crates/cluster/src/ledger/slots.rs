//! A map from slots to regions, built from reports. It shows which regions no longer exist. The
//! reports need not be consistent with each other.
//!
//! Whenever a slot moves to another region, that region has a higher version than the one before.
//! So of two overlapping ranges, the one with the higher version is newer, whatever the order of
//! arrival.

use std::collections::{BTreeMap, BTreeSet};

use types::{RegionDescriptor, RegionId, Slot, SlotRange};

#[derive(Clone, Debug, Default)]
pub struct SlotMap {
    /// Ranges without overlap, by their first slots.
    ranges: BTreeMap<Slot, Held>,
    /// The last reported range of each region. It contains all of the region's entries in `ranges`.
    claims: BTreeMap<RegionId, SlotRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    last: Slot,
    region: RegionId,
    version: u64,
}

/// The changes that a descriptor caused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// True if the region owns a slot now.
    pub owns: bool,
    /// Regions that lost their last slot to this one, ascending.
    pub displaced: Vec<RegionId>,
}

impl SlotMap {
    /// Returns the slot's region; `None` if it is unknown.
    pub fn region_of(&self, slot: Slot) -> Option<RegionId> {
        let (_, held) = self.ranges.range(..=slot).next_back()?;
        (slot <= held.last).then_some(held.region)
    }

    /// Returns first slot, last slot and region of each range, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, Slot, RegionId)> + '_ {
        self.ranges.iter().map(|(&first, held)| (first, held.last, held.region))
    }

    /// Records a descriptor, which must be the region's newest. Slots that the region gave up have
    /// no region until another region's descriptor claims them.
    pub fn learn(&mut self, region: &RegionDescriptor) -> Learned {
        let Some(slots) = region.slots else { return Learned::default() };
        let version = region.epoch.version;
        let claimed = self.claims.insert(region.id, slots);
        // Touched ranges are removed, and their remainders are inserted again.
        let mut touched: BTreeMap<Slot, Held> = self.within(slots).collect();
        touched.extend(
            claimed
                .iter()
                .flat_map(|&claimed| self.within(claimed))
                .filter(|(_, held)| held.region == region.id),
        );
        let mut displaced = BTreeSet::new();
        let mut next = Some(slots.first);
        let mut owns = false;
        for first in touched.keys() {
            self.ranges.remove(first);
        }
        for (first, held) in touched.into_iter().filter(|(_, held)| held.region != region.id) {
            if held.version >= version {
                self.ranges.insert(first, held);
                if let Some(from) = next.filter(|&from| from < first) {
                    self.ranges.insert(from, Held { last: first - 1, region: region.id, version });
                    owns = true;
                }
                next = next.max(held.last.checked_add(1)).filter(|_| held.last < slots.last);
                continue;
            }
            displaced.insert(held.region);
            if first < slots.first {
                self.ranges.insert(first, Held { last: slots.first - 1, ..held });
            }
            if held.last > slots.last {
                self.ranges.insert(slots.last + 1, held);
            }
        }
        if let Some(from) = next.filter(|&from| from <= slots.last) {
            self.ranges.insert(from, Held { last: slots.last, region: region.id, version });
            owns = true;
        }
        displaced.retain(|gone| {
            let claimed = self.claims[gone];
            let is_gone = !self.within(claimed).any(|(_, held)| held.region == *gone);
            if is_gone {
                self.claims.remove(gone);
            }
            is_gone
        });
        if !owns {
            self.claims.remove(&region.id);
        }
        Learned { owns, displaced: displaced.into_iter().collect() }
    }

    /// Returns the ranges that share a slot with `slots`.
    fn within(&self, slots: SlotRange) -> impl Iterator<Item = (Slot, Held)> + '_ {
        let before =
            self.ranges.range(..slots.first).next_back().filter(|(_, held)| held.last >= slots.first);
        before
            .into_iter()
            .chain(self.ranges.range(slots.first..=slots.last))
            .map(|(&first, &held)| (first, held))
    }
}

#[cfg(test)]
mod tests;
