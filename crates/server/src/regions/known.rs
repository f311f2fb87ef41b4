//! The known regions of the cluster, and the region that owns each slot.
//!
//! ```text
//!   readers ── one load ──▶ Table { by slot, by id } ──▶ RegionShared ── one load ──▶ descriptor
//!                             ▲ replaced when a range or the set of regions changes
//! ```
//!
//! There are two sources: this store's own peers, as they apply their logs, and the heartbeats of
//! leaders. Overlapping ranges are of different times. Every split and merge gives the moved slots
//! a higher version than any region that owned them before. So the region with the highest version
//! owns a slot.
//!
//! Invariant: the descriptor of a local region is the one that its own peer has applied, whatever
//! heartbeats report. Reports only decide where commands are sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use types::{RegionDescriptor, RegionId, Slot, SlotRange, META_REGION, SLOT_COUNT};

use super::shared::RegionShared;

/// The regions that this store knows from reports or has a peer of.
pub struct Known {
    /// The meta region. It is always known, at first only by its id.
    meta: Arc<RegionShared>,
    table: ArcSwap<Table>,
    /// Locked while a thread creates the next table.
    changing: Mutex<()>,
}

/// The regions at one moment.
pub struct Table {
    by_id: BTreeMap<RegionId, Arc<RegionShared>>,
    by_slot: Vec<Option<Arc<RegionShared>>>,
}

impl Known {
    /// Creates the table from the regions with a peer here (`local`) and others that are known
    /// already.
    pub fn new(local: &[RegionDescriptor], others: &[RegionDescriptor]) -> Known {
        let of_meta = |descriptors: &[RegionDescriptor]| {
            descriptors.iter().find(|descriptor| descriptor.id == META_REGION).cloned()
        };
        let meta = match (of_meta(local), of_meta(others)) {
            (Some(descriptor), _) => RegionShared::new(descriptor, true),
            (None, Some(descriptor)) => RegionShared::new(descriptor, false),
            (None, None) => RegionShared::new(unheard_meta(), false),
        };
        let meta = Arc::new(meta);
        let by_id = BTreeMap::from([(META_REGION, meta.clone())]);
        let known = Known { meta, table: ArcSwap::from_pointee(Table::of(by_id)), changing: Mutex::new(()) };
        known.learn(others);
        known.set_local(local);
        known
    }

    pub fn meta(&self) -> &Arc<RegionShared> {
        &self.meta
    }

    /// Returns the regions at this moment. Later changes do not appear in the result.
    pub fn table(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    pub fn get(&self, region: RegionId) -> Option<Arc<RegionShared>> {
        self.table().get(region).cloned()
    }

    /// Returns the region that owns a slot, as far as this store knows.
    pub fn of_slot(&self, slot: Slot) -> Option<Arc<RegionShared>> {
        self.table().of_slot(slot).cloned()
    }

    /// Returns all regions, to be held for longer than a moment.
    pub fn all(&self) -> Vec<Arc<RegionShared>> {
        self.table().iter().cloned().collect()
    }

    /// Processes the descriptors that leaders report. Returns true if slots have moved or a region
    /// is new.
    pub fn learn(&self, heard: &[RegionDescriptor]) -> bool {
        let _changing = self.changing.lock();
        let table = self.table.load_full();
        let mut fresh: BTreeMap<RegionId, Arc<RegionShared>> = BTreeMap::new();
        let mut moved = false;
        for descriptor in heard {
            let known = fresh.get(&descriptor.id).or_else(|| table.get(descriptor.id));
            match known {
                Some(region) => moved |= region.learn(descriptor),
                // A range that other regions have taken over is outdated.
                None if table.is_overtaken(descriptor) => {}
                None => {
                    fresh.insert(descriptor.id, Arc::new(RegionShared::new(descriptor.clone(), false)));
                }
            }
        }
        if !moved && fresh.is_empty() {
            return false;
        }
        let mut by_id = table.by_id.clone();
        by_id.extend(fresh);
        self.table.store(Arc::new(Table::of(by_id)));
        true
    }

    /// Sets the descriptors that peers of this store have applied or start with. Descriptors that
    /// are passed together, as by a split, become visible together.
    pub fn set_local(&self, descriptors: &[RegionDescriptor]) {
        let _changing = self.changing.lock();
        let table = self.table.load_full();
        let mut by_id = table.by_id.clone();
        let mut moved = false;
        for descriptor in descriptors {
            match by_id.get(&descriptor.id) {
                Some(region) => moved |= region.set_local(descriptor),
                None => {
                    by_id.insert(descriptor.id, Arc::new(RegionShared::new(descriptor.clone(), true)));
                    moved = true;
                }
            }
        }
        if moved {
            self.table.store(Arc::new(Table::of(by_id)));
        }
    }

    /// Records that this store's peer of a region was removed. The region stays known while it owns
    /// slots.
    pub fn remove_local(&self, region: RegionId) {
        let _changing = self.changing.lock();
        let table = self.table.load_full();
        if let Some(shared) = table.get(region) {
            shared.remove_local();
            self.table.store(Arc::new(Table::of(table.by_id.clone())));
        }
    }
}

/// Returns the meta region's descriptor for a joining store that has received none yet.
fn unheard_meta() -> RegionDescriptor {
    RegionDescriptor { epoch: Default::default(), ..RegionDescriptor::founded(META_REGION, None, &[]) }
}

impl Table {
    /// Gives every slot to the region with the highest version. Regions without a slot and without
    /// a peer here have been merged into others and are dropped.
    fn of(mut by_id: BTreeMap<RegionId, Arc<RegionShared>>) -> Table {
        let mut by_version: Vec<_> = by_id
            .values()
            .filter_map(|region| {
                let known = region.newest();
                Some((known.epoch.version, region, known.slots?))
            })
            .collect();
        by_version.sort_by_key(|(version, region, _)| (*version, region.id()));
        let mut by_slot: Vec<Option<&Arc<RegionShared>>> = vec![None; usize::from(SLOT_COUNT)];
        for (_, region, SlotRange { first, last }) in by_version {
            by_slot[usize::from(first)..=usize::from(last)].fill(Some(region));
        }
        let by_slot: Vec<_> = by_slot.into_iter().map(|region| region.cloned()).collect();
        let mut has_slots: Vec<RegionId> = by_slot.iter().flatten().map(|region| region.id()).collect();
        has_slots.dedup();
        has_slots.sort_unstable();
        by_id.retain(|id, region| {
            *id == META_REGION || region.is_local() || has_slots.binary_search(id).is_ok()
        });
        Table { by_id, by_slot }
    }

    pub fn get(&self, region: RegionId) -> Option<&Arc<RegionShared>> {
        self.by_id.get(&region)
    }

    pub fn of_slot(&self, slot: Slot) -> Option<&Arc<RegionShared>> {
        self.by_slot[usize::from(slot)].as_ref()
    }

    /// Returns the regions by id, the meta region first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RegionShared>> {
        self.by_id.values()
    }

    /// Returns the runs of slots with one region, in the order of slots. The region is `None` if it
    /// is unknown.
    pub fn ranges(&self) -> Vec<(SlotRange, Option<&Arc<RegionShared>>)> {
        let mut runs: Vec<(SlotRange, Option<&Arc<RegionShared>>)> = Vec::new();
        for (slot, region) in (0..SLOT_COUNT).zip(&self.by_slot) {
            let id = |region: Option<&Arc<RegionShared>>| region.map(|region| region.id());
            match runs.last_mut() {
                Some((range, of)) if id(*of) == id(region.as_ref()) => range.last = slot,
                _ => runs.push((SlotRange { first: slot, last: slot }, region.as_ref())),
            }
        }
        runs
    }

    /// Returns true if every slot has a known region.
    pub fn covers_all(&self) -> bool {
        self.by_slot.iter().all(Option::is_some)
    }

    /// Returns true if later regions own all slots of a region that is not in the table.
    fn is_overtaken(&self, descriptor: &RegionDescriptor) -> bool {
        let Some(SlotRange { first, last }) = descriptor.slots else { return false };
        self.by_slot[usize::from(first)..=usize::from(last)].iter().all(|region| {
            region.as_ref().is_some_and(|region| region.newest().epoch.version > descriptor.epoch.version)
        })
    }
}

#[cfg(test)]
mod tests;
