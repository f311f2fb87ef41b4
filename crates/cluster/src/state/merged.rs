//! The permanent record of the regions that have merged away, in the meta region.
//!
//! A region's descriptor lists only the regions that it absorbed last (`types::ABSORBED_MAX`). A
//! store that was away for longer asks the meta region.

use std::collections::{BTreeMap, BTreeSet};

use types::{RegionDescriptor, RegionId, SlotRange, SECOND_VERSION};

use super::{MetaState, Object};

/// Number of regions in one row.
const CHUNK: u64 = 4096;

/// A set of regions, in chunks. Each chunk is a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedRegions(BTreeMap<u64, BTreeSet<u16>>);

impl MergedRegions {
    pub fn contains(&self, region: RegionId) -> bool {
        self.0.get(&(region / CHUNK)).is_some_and(|chunk| chunk.contains(&((region % CHUNK) as u16)))
    }

    /// Returns the number of the chunk if it has changed.
    fn insert(&mut self, region: RegionId) -> Option<u64> {
        let chunk = region / CHUNK;
        self.0.entry(chunk).or_default().insert((region % CHUNK) as u16).then_some(chunk)
    }

    pub(crate) fn chunk(&self, chunk: u64) -> Option<&BTreeSet<u16>> {
        self.0.get(&chunk)
    }

    /// Loads a chunk from its row. Returns false if it names a region of another chunk.
    pub(crate) fn take_chunk(&mut self, chunk: u64, regions: BTreeSet<u16>) -> bool {
        let fits = regions.last().is_none_or(|last| u64::from(*last) < CHUNK);
        if fits {
            self.0.insert(chunk, regions);
        }
        fits
    }
}

impl MetaState {
    /// Records the regions that have merged away according to the descriptors. Stores of the
    /// previous version do not know this record.
    pub(super) fn record_merged<'a>(
        &mut self,
        descriptors: impl IntoIterator<Item = &'a RegionDescriptor>,
        changed: &mut Vec<Object>,
    ) {
        if self.version < SECOND_VERSION {
            return;
        }
        let absorbed = descriptors.into_iter().flat_map(|region| &region.absorbed);
        changed.extend(absorbed.filter_map(|&region| self.merged.insert(region)).map(Object::Merged));
    }

    /// Returns the regions that own `slots` now, if `region` has merged away. A region that is
    /// unknown here may be a new one, so `None` does not mean that it exists.
    pub fn heirs_of(&self, region: RegionId, slots: SlotRange) -> Option<Vec<&RegionDescriptor>> {
        let overlaps = |heir: &&RegionDescriptor| {
            heir.slots.is_some_and(|own| own.first <= slots.last && slots.first <= own.last)
        };
        self.merged.contains(region).then(|| self.regions.values().filter(overlaps).collect())
    }
}

#[cfg(test)]
mod tests {
    use types::{RegionEpoch, NEWEST_VERSION};

    use super::*;
    use crate::state::tests::begun;
    use crate::{MetaCommand, MetaReply};

    /// Merges region 2 into region 1, whose list of absorbed regions drops it immediately.
    fn merge(state: &mut MetaState) {
        let mut heir = state.regions[&1].clone();
        heir.slots = Some(SlotRange::ALL);
        heir.epoch = RegionEpoch { version: heir.epoch.version + 9, ..heir.epoch };
        heir.absorbed = vec![2];
        let report = |heir: &RegionDescriptor| MetaCommand::ReportRegions { regions: vec![heir.clone()] };
        let taken = MetaReply::Reported { taken: vec![1], ignored: Vec::new() };
        assert_eq!(state.apply(&report(&heir), 1), Ok(taken.clone()));
        heir.absorbed = Vec::new();
        heir.epoch.version += 1;
        assert_eq!(state.apply(&report(&heir), 1), Ok(taken));
    }

    #[test]
    fn a_region_that_merged_away_is_known_for_good() {
        let mut state = begun(3, 2);
        state.version = NEWEST_VERSION;
        let old = state.regions[&2].clone();
        let slots = old.slots.expect("a user region");
        assert_eq!(state.heirs_of(2, slots), None, "it exists");
        merge(&mut state);
        assert!(!state.regions.contains_key(&2));
        let heirs = state.heirs_of(2, slots).expect("it has merged away");
        assert_eq!(heirs.iter().map(|heir| heir.id).collect::<Vec<_>>(), [1]);
        assert_eq!(state.heirs_of(1, slots), None);
        assert_eq!(state.heirs_of(77, slots), None, "a region without any report may be new");
    }

    #[test]
    fn a_rise_from_the_first_version_records_what_descriptors_still_name() {
        let mut state = begun(3, 2);
        let slots = state.regions[&2].slots.expect("a user region");
        let mut heir = state.regions[&1].clone();
        heir.slots = Some(SlotRange::ALL);
        heir.epoch.version += 9;
        heir.absorbed = vec![2];
        state.apply(&MetaCommand::ReportRegions { regions: vec![heir] }, 1).expect("it fits");
        assert_eq!(state.heirs_of(2, slots), None, "programs of the first version have no such record");
        let members_version = state.members_version;
        let raise = MetaCommand::RaiseVersion { version: SECOND_VERSION, members_version };
        state.apply(&raise, 1).expect("it rises");
        assert!(state.heirs_of(2, slots).is_some());
    }

    #[test]
    fn chunks_hold_what_they_are_for() {
        let mut merged = MergedRegions::default();
        assert_eq!(merged.insert(CHUNK - 1), Some(0));
        assert_eq!(merged.insert(CHUNK), Some(1));
        assert_eq!(merged.insert(CHUNK), None);
        assert!(merged.contains(CHUNK - 1) && merged.contains(CHUNK) && !merged.contains(0));
        assert!(!merged.take_chunk(1, BTreeSet::from([CHUNK as u16])));
    }
}
