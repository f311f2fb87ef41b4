//! Decides which peers may exist on this store. Nothing else does.
//!
//! Evidence comes in descriptors, whether they arrive in an announcement, in a heartbeat or with a
//! snapshot, and in answers of the meta region. [`Existence::end_of`] judges all of it.
//! [`Existence::bars`] judges whether a peer may be created. The worker only carries out what
//! follows: it removes the peer, lets it yield to a snapshot, or answers with the proof.

use std::collections::{BTreeMap, BTreeSet};

use types::{PeerEnd, PeerId, RegionDescriptor, RegionId};

/// The knowledge of this store about peers and regions that no longer exist.
#[derive(Debug)]
pub struct Existence {
    /// The largest number of a removed peer, by region. The log has it, too.
    removed: BTreeMap<RegionId, PeerId>,
    /// Regions that merged away according to the meta region, and the regions that have their slots
    /// now. Kept while a peer of the region is here.
    merged: BTreeMap<RegionId, BTreeSet<RegionId>>,
}

impl Existence {
    pub fn new(tombstones: BTreeMap<RegionId, PeerId>) -> Existence {
        Existence { removed: tombstones, merged: BTreeMap::new() }
    }

    /// Returns how the peer `peer` ended, if `heard`, together with what the meta region has
    /// answered, proves that it did. `last` is the newest descriptor that the peer knows.
    pub fn end_of(&self, last: &RegionDescriptor, peer: PeerId, heard: &RegionDescriptor) -> Option<PeerEnd> {
        let has_merged = self.merged.get(&last.id).is_some_and(|heirs| heirs.contains(&heard.id));
        has_merged.then_some(PeerEnd::Merged).or_else(|| heard.end_of(last, peer))
    }

    /// Returns the number under which a peer of the region was removed last if a peer with the
    /// number `peer` may not be created. A number that was removed never comes back.
    pub fn bars(&self, region: RegionId, peer: Option<PeerId>) -> Option<PeerId> {
        let last = *self.removed.get(&region)?;
        peer.is_none_or(|peer| peer <= last).then_some(last)
    }

    /// Returns the largest number under which each region's peer was removed.
    pub fn removed(&self) -> &BTreeMap<RegionId, PeerId> {
        &self.removed
    }

    /// Records that a peer was removed.
    pub fn bury(&mut self, region: RegionId, peer: PeerId) {
        let last = self.removed.entry(region).or_insert(0);
        *last = peer.max(*last);
    }

    /// Records the meta region's answer that the region merged away.
    pub fn record_merge(&mut self, region: RegionId, heirs: &[RegionDescriptor]) {
        self.merged.insert(region, heirs.iter().map(|heir| heir.id).collect());
    }

    /// Forgets the answers about regions without a peer here.
    pub fn keep_merges(&mut self, is_here: impl Fn(RegionId) -> bool) {
        self.merged.retain(|&region, _| is_here(region));
    }
}

#[cfg(test)]
mod tests {
    use types::SlotRange;

    use super::*;

    #[test]
    fn a_removed_number_and_those_before_it_are_barred() {
        let mut existence = Existence::new(BTreeMap::from([(7, 3)]));
        assert_eq!(existence.bars(7, Some(3)), Some(3));
        assert_eq!(existence.bars(7, Some(4)), None);
        assert_eq!(existence.bars(7, None), Some(3), "a store without a number in the descriptor");
        assert_eq!(existence.bars(8, Some(1)), None);
        existence.bury(7, 5);
        existence.bury(7, 2);
        assert_eq!(existence.bars(7, Some(5)), Some(5));
    }

    #[test]
    fn the_meta_regions_answer_counts_like_a_name_in_a_heirs_list() {
        let of = |id| RegionDescriptor::founded(id, Some(SlotRange::ALL), &[1, 2, 3]);
        let mut existence = Existence::new(BTreeMap::new());
        assert_eq!(existence.end_of(&of(7), 1, &of(8)), None);
        existence.record_merge(7, &[of(8)]);
        assert_eq!(existence.end_of(&of(7), 1, &of(8)), Some(PeerEnd::Merged));
        assert_eq!(existence.end_of(&of(7), 1, &of(9)), None, "not one of its heirs");
        existence.keep_merges(|region| region != 7);
        assert_eq!(existence.end_of(&of(7), 1, &of(8)), None);
        let named = RegionDescriptor { absorbed: vec![7], ..of(8) };
        assert_eq!(existence.end_of(&of(7), 1, &named), Some(PeerEnd::Merged));
    }
}
