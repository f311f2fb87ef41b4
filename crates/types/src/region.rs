//! What a region is: a slot range, its peers, and the epoch that orders its descriptors.

use crate::{LogIndex, RegionId, Slot, SlotRange, StoreId};

mod change;
mod codec;

pub use change::{ChangeError, Changed, PeerChange, RegionChange};
pub use codec::DescriptorError;

/// Names one peer of a region, and is its id within Raft. From 1; a region never uses a number twice, so
/// a store that lost its peer and got another one later is not taken for the former.
pub type PeerId = u64;

/// Orders the descriptors of one region. A request made for another epoch is stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionEpoch {
    /// Rises with every membership change.
    pub conf_version: u64,
    /// Rises with every split and merge.
    pub version: u64,
}

impl RegionEpoch {
    /// Whether a descriptor of this epoch tells something that one of `other` does not. Of two descriptors
    /// of one region at most one is newer: membership and range change in the order of one log.
    pub fn is_newer_than(self, other: RegionEpoch) -> bool {
        self.conf_version > other.conf_version || self.version > other.version
    }
}

/// Joint consensus has two configurations at a time; outside of it every peer is a voter or a learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerRole {
    /// Votes, in both configurations of a joint one.
    Voter,
    /// Holds the log and the rows, and has no vote.
    Learner,
    /// Votes in the new configuration only; a voter once the joint one is left.
    Incoming,
    /// Votes in the old configuration only; a learner once the joint one is left.
    Outgoing,
}

/// A region's replica on a store. A store holds at most one peer of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    pub store: StoreId,
    pub id: PeerId,
    pub role: PeerRole,
}

/// A merge that is prepared: from the entry that prepared it on, the region takes no commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Merging {
    /// The neighbour that is to take over the region's slots.
    pub into: RegionId,
    /// That entry's index in the region's log. What is applied there is all that the region will ever hold,
    /// unless the merge is taken back.
    pub sealed_at: LogIndex,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionDescriptor {
    pub id: RegionId,
    /// `None` for the meta region, which holds no slots.
    pub slots: Option<SlotRange>,
    pub epoch: RegionEpoch,
    /// Sorted by store, no store twice.
    pub peers: Vec<Peer>,
    /// The number that the next peer gets: larger than that of any peer there ever was.
    pub next_peer: PeerId,
    pub merging: Option<Merging>,
    /// The latest [`ABSORBED_MAX`] regions that merged into this one, or into one that did or that it was split
    /// from; the newest last. A store that was away learns by it what has become of its peers of them.
    pub absorbed: Vec<RegionId>,
}

/// Regions that merged away of which a descriptor tells.
pub const ABSORBED_MAX: usize = 32;

/// Peers of one region, and changes of them in one entry: several times the replicas that can be asked for.
pub const PEERS_MAX: usize = 64;

impl RegionDescriptor {
    /// As a cluster begins: a voter on each of `stores`, which ascend.
    pub fn founded(id: RegionId, slots: Option<SlotRange>, stores: &[StoreId]) -> RegionDescriptor {
        assert!(stores.windows(2).all(|pair| pair[0] < pair[1]), "stores ascend");
        let numbered = stores.iter().zip(1..);
        let peers = numbered.map(|(&store, id)| Peer { store, id, role: PeerRole::Voter }).collect();
        let epoch = RegionEpoch { conf_version: 1, version: 1 };
        let next_peer = stores.len() as PeerId + 1;
        RegionDescriptor { id, slots, epoch, peers, next_peer, merging: None, absorbed: Vec::new() }
    }

    /// Stores whose peers vote, and will go on voting.
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

    /// Whether it is between two configurations.
    pub fn is_joint(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.role, PeerRole::Incoming | PeerRole::Outgoing))
    }

    /// Whether this tells that `other`, whose descriptor may be of long ago, has merged away. Slots and versions
    /// do not tell: a region that takes over its left neighbour may give away all that it began with, and live.
    pub fn supersedes(&self, other: &RegionDescriptor) -> bool {
        self.absorbed.contains(&other.id)
    }

    pub fn contains(&self, slot: Slot) -> bool {
        self.slots.is_some_and(|range| range.contains(slot))
    }
}
