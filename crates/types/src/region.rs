//! What a region is: a slot range, its peers, and the epoch that orders its descriptors.

use crate::{RegionId, SlotRange, StoreId};

/// Orders the descriptors of one region. A request made for another epoch is stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionEpoch {
    /// Rises with every membership change.
    pub conf_version: u64,
    /// Rises with every split and merge.
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerRole {
    Voter,
    Learner,
}

/// A region's replica on a store. A store holds at most one peer of a region, so the store's
/// number names the peer too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    pub store: StoreId,
    pub role: PeerRole,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionDescriptor {
    pub id: RegionId,
    /// `None` for the meta region, which holds no slots.
    pub slots: Option<SlotRange>,
    pub epoch: RegionEpoch,
    /// Sorted by store, no store twice.
    pub peers: Vec<Peer>,
}

impl RegionDescriptor {
    pub fn voters(&self) -> impl Iterator<Item = StoreId> + '_ {
        self.peers.iter().filter(|p| p.role == PeerRole::Voter).map(|p| p.store)
    }

    pub fn has_peer_on(&self, store: StoreId) -> bool {
        self.peers.iter().any(|p| p.store == store)
    }
}
