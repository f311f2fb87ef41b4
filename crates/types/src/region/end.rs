//! The proof that a peer's life has ended.
//!
//! A store that was away may have peers that no longer exist. Descriptors tell it: in
//! announcements, heartbeats and snapshots, and in the rows of its own regions after a restart. In
//! each case [`RegionDescriptor::end_of`] decides.

use super::{PeerId, RegionDescriptor};

/// The outcome of a peer's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// Its region continues without it.
    Removed,
    /// Its region merged away.
    Merged,
}

impl RegionDescriptor {
    /// Returns how the peer with the number `peer` ended, if this descriptor proves that it did.
    /// `last` is the newest descriptor that the peer knows of its own region.
    ///
    /// Only a positive statement is a proof: a newer membership of the peer's region without it, or
    /// the name of its region in the list of merged regions. Slots and versions prove nothing: a
    /// region that takes over its left neighbour may give away all of its original slots and still
    /// exist. A missing name proves nothing either, because the list has the latest merges only.
    pub fn end_of(&self, last: &RegionDescriptor, peer: PeerId) -> Option<PeerEnd> {
        if self.has_absorbed(last) {
            return Some(PeerEnd::Merged);
        }
        // A number below the next one has been given out, and no number is given out twice.
        let is_without = self.peer(peer).is_none() && peer < self.next_peer;
        let is_later = self.id == last.id && self.epoch.conf_version > last.epoch.conf_version;
        (is_later && is_without).then_some(PeerEnd::Removed)
    }

    /// Returns true if this descriptor proves that the region of `other` merged away, and thereby
    /// the end of all its peers.
    pub fn has_absorbed(&self, other: &RegionDescriptor) -> bool {
        self.absorbed.contains(&other.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Peer, PeerRole, RegionEpoch, SlotRange};

    fn later() -> RegionDescriptor {
        let region = RegionDescriptor::founded(7, Some(SlotRange::ALL), &[1, 2, 3]);
        RegionDescriptor { epoch: RegionEpoch { conf_version: 2, version: 1 }, ..region }
    }

    fn without(mut region: RegionDescriptor, id: PeerId) -> RegionDescriptor {
        region.peers.retain(|peer| peer.id != id);
        region
    }

    #[test]
    fn a_newer_membership_without_the_peer_ends_it() {
        let last = RegionDescriptor::founded(7, Some(SlotRange::ALL), &[1, 2, 3]);
        assert_eq!(without(later(), 3).end_of(&last, 3), Some(PeerEnd::Removed));
        assert_eq!(without(later(), 3).end_of(&last, 2), None, "it is still a member");
        assert_eq!(without(last.clone(), 3).end_of(&last, 3), None, "no newer membership");
        assert_eq!(without(later(), 3).end_of(&last, 4), None, "a number that was not given out yet");
        let other = RegionDescriptor { id: 8, ..without(later(), 3) };
        assert_eq!(other.end_of(&last, 3), None, "another region's membership");
    }

    #[test]
    fn a_later_peer_on_the_same_store_ends_the_earlier_one() {
        let last = RegionDescriptor::founded(7, Some(SlotRange::ALL), &[1, 2, 3]);
        let mut again = without(later(), 3);
        again.peers.push(Peer { store: 3, id: 4, role: PeerRole::Learner });
        again.next_peer = 5;
        assert_eq!(again.end_of(&last, 3), Some(PeerEnd::Removed));
        assert_eq!(again.end_of(&last, 4), None);
    }

    #[test]
    fn only_a_name_in_the_list_ends_a_region() {
        let last = RegionDescriptor::founded(7, Some(SlotRange::ALL), &[1, 2, 3]);
        let mut heir = RegionDescriptor { id: 8, ..later() };
        heir.epoch.version += 9;
        assert_eq!(heir.end_of(&last, 1), None, "its slots and its version prove nothing");
        heir.absorbed = vec![7];
        assert_eq!(heir.end_of(&last, 1), Some(PeerEnd::Merged));
    }
}
