//! Region descriptors: a slot range, its peers, and the epoch that orders the descriptors of a
//! region.

use crate::{LogIndex, RegionId, Slot, SlotRange, StoreId};

mod change;
mod codec;
mod end;
mod quorum_loss;

pub use change::{ChangeError, Changed, PeerChange, RegionChange};
pub use codec::DescriptorError;
pub use end::PeerEnd;
pub use quorum_loss::{Recovery, RECOVERIES_MAX, RECOVERY_LEAP};

/// The number of a peer of a region, which is also its id in Raft. Numbers begin at 1, and a region
/// never uses one twice. If a store loses its peer and later receives another one, the new peer is
/// therefore not taken for the previous one.
pub type PeerId = u64;

/// Orders the descriptors of one region. A request made for another epoch is stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionEpoch {
    /// Incremented by every membership change.
    pub conf_version: u64,
    /// Incremented by every split and merge.
    pub version: u64,
}

impl RegionEpoch {
    /// Returns true if a descriptor of this epoch contains a change that one of `other` does not.
    /// Of two descriptors of one region at most one is newer, because membership and range change
    /// in the order of one log.
    pub fn is_newer_than(self, other: RegionEpoch) -> bool {
        self.conf_version > other.conf_version || self.version > other.version
    }
}

/// The role of a peer. Joint consensus has two configurations at a time; outside of it every peer
/// is a voter or a learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerRole {
    /// Votes; in a joint configuration, in both the old and the new one.
    Voter,
    /// Holds the log and the rows, but does not vote.
    Learner,
    /// Votes in the new configuration only. Becomes a voter when the joint configuration is left.
    Incoming,
    /// Votes in the old configuration only. Becomes a learner when the joint configuration is left.
    Outgoing,
}

/// A region's replica on a store. A store holds at most one peer of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    pub store: StoreId,
    pub id: PeerId,
    pub role: PeerRole,
}

/// A prepared merge. From the entry that prepared it, the region takes no commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Merging {
    /// The neighbour that will take over the region's slots.
    pub into: RegionId,
    /// The index of that entry in the region's log. Applied up to there, the region has all that it
    /// will ever hold, unless the merge is rolled back.
    pub sealed_at: LogIndex,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionDescriptor {
    pub id: RegionId,
    /// `None` for the meta region, which has no slots.
    pub slots: Option<SlotRange>,
    pub epoch: RegionEpoch,
    /// Sorted by store, without duplicates.
    pub peers: Vec<Peer>,
    /// The number of the next peer. It is larger than that of any earlier peer.
    pub next_peer: PeerId,
    pub merging: Option<Merging>,
    /// The latest [`ABSORBED_MAX`] regions that merged into this one, or into a region that merged
    /// into it or that it was split from. The newest is last. A store that was down learns from
    /// this list what has become of its peers of these regions.
    pub absorbed: Vec<RegionId>,
    /// The latest [`RECOVERIES_MAX`] recoveries of this region, and of those that it was split from
    /// or that merged into it. The newest is last.
    pub recoveries: Vec<Recovery>,
}

/// Maximum number of absorbed regions in a descriptor.
pub const ABSORBED_MAX: usize = 32;

/// Maximum number of peers of one region, and of peer changes in one entry: several times the
/// number of replicas that can be configured.
pub const PEERS_MAX: usize = 64;

impl RegionDescriptor {
    /// Makes the first descriptor of a region: a voter on each of `stores`, which must ascend.
    pub fn founded(id: RegionId, slots: Option<SlotRange>, stores: &[StoreId]) -> RegionDescriptor {
        assert!(stores.windows(2).all(|pair| pair[0] < pair[1]), "stores ascend");
        let numbered = stores.iter().zip(1..);
        let peers = numbered.map(|(&store, id)| Peer { store, id, role: PeerRole::Voter }).collect();
        let epoch = RegionEpoch { conf_version: 1, version: 1 };
        let next_peer = stores.len() as PeerId + 1;
        RegionDescriptor {
            id,
            slots,
            epoch,
            peers,
            next_peer,
            merging: None,
            absorbed: Vec::new(),
            recoveries: Vec::new(),
        }
    }

    /// Returns the stores whose peers vote and will continue to vote.
    pub fn voters(&self) -> impl Iterator<Item = StoreId> + '_ {
        let votes = |peer: &&Peer| matches!(peer.role, PeerRole::Voter | PeerRole::Incoming);
        self.peers.iter().filter(votes).map(|peer| peer.store)
    }

    pub fn peer_on(&self, store: StoreId) -> Option<&Peer> {
        self.peers.binary_search_by_key(&store, |peer| peer.store).ok().map(|at| &self.peers[at])
    }

    pub fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    pub fn has_peer_on(&self, store: StoreId) -> bool {
        self.peer_on(store).is_some()
    }

    /// Returns true if no store but this one has a voter.
    pub fn is_alone_on(&self, store: StoreId) -> bool {
        self.voters().eq([store])
    }

    /// Returns true if the region is in a joint configuration.
    pub fn is_joint(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.role, PeerRole::Incoming | PeerRole::Outgoing))
    }

    pub fn contains(&self, slot: Slot) -> bool {
        self.slots.is_some_and(|range| range.contains(slot))
    }
}
