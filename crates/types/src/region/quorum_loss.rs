//! Recovery of a region whose majority of voters is lost for good, by order of an operator.
//!
//! The entry that recovers a region is forced into the log of one surviving peer, the *keeper*, and
//! counts as committed although no majority has it. Everything in the keeper's log before it counts
//! as committed, too. From that entry on the keeper is the only voter. The other survivors are
//! learners: they follow the keeper's log under Raft's usual rules. The lost peers are removed.

use super::{ChangeError, Changed, Peer, PeerRole, RegionDescriptor};
use crate::{LogIndex, StoreId, UnixMillis};

/// The amount by which a recovery raises both counters of the epoch and the number of the next
/// peer. The lost majority may have made changes that no survivor knows of. Their epochs and peer
/// numbers stay below those after the recovery, so that nothing of the lost stores is ever newer.
pub const RECOVERY_LEAP: u64 = 1 << 20;

/// Maximum number of recoveries that a descriptor keeps.
pub const RECOVERIES_MAX: usize = 8;

/// The record of a recovery. It is part of the region's descriptor, so that every peer has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovery {
    /// The number of the operator's order, which may have recovered several regions.
    pub order: u64,
    /// The time of the order, in Unix milliseconds.
    pub at_ms: UnixMillis,
    /// The store of the keeper.
    pub keeper: StoreId,
    /// The stores that were declared lost and had a peer of the region, and those from which its
    /// peer was removed without the survivors' knowledge. Sorted, without duplicates.
    pub lost: Vec<StoreId>,
    /// The last entry that a survivor knew to be committed.
    pub committed: LogIndex,
    /// The last entry of the keeper's log. Entries between `committed` and `last` may never have
    /// been acknowledged. Entries after `last` that the lost stores acknowledged are lost.
    pub last: LogIndex,
}

impl RegionDescriptor {
    /// Returns the result of a recovery. The recovery takes effect in every state of the region,
    /// sealed regions and joint configurations included.
    pub fn recovered(&self, recovery: &Recovery) -> Result<Changed, ChangeError> {
        if !self.has_peer_on(recovery.keeper) {
            return Err(ChangeError::NoKeeper);
        }
        let mut region = self.clone();
        let is_lost = |peer: &Peer| recovery.lost.binary_search(&peer.store).is_ok();
        region.peers.retain(|peer| !is_lost(peer));
        for peer in &mut region.peers {
            let is_keeper = peer.store == recovery.keeper;
            peer.role = if is_keeper { PeerRole::Voter } else { PeerRole::Learner };
        }
        region.epoch.conf_version += RECOVERY_LEAP;
        region.epoch.version += RECOVERY_LEAP;
        region.next_peer += RECOVERY_LEAP;
        region.recoveries.push(recovery.clone());
        region.forget_old_recoveries();
        Ok(Changed { region, split_off: None, absorbed: None })
    }

    /// Takes over the records of a region that merged into this one.
    pub(super) fn inherit_recoveries(&mut self, source: &RegionDescriptor) {
        let missing = source.recoveries.iter().filter(|of_source| !self.recoveries.contains(of_source));
        let missing: Vec<Recovery> = missing.cloned().collect();
        self.recoveries.extend(missing);
        self.recoveries.sort_by_key(|recovery| recovery.at_ms);
        self.forget_old_recoveries();
    }

    fn forget_old_recoveries(&mut self) {
        let old = self.recoveries.len().saturating_sub(RECOVERIES_MAX);
        self.recoveries.drain(..old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PeerChange, RegionChange, SlotRange};

    fn region() -> RegionDescriptor {
        RegionDescriptor::founded(1, Some(SlotRange { first: 0, last: 99 }), &[0, 1, 2])
    }

    fn recovery(order: u64, keeper: StoreId, lost: &[StoreId]) -> Recovery {
        Recovery { order, at_ms: order, keeper, lost: lost.to_vec(), committed: 10, last: 12 }
    }

    fn after(region: &RegionDescriptor, change: RegionChange) -> RegionDescriptor {
        region.after(&change).unwrap().region
    }

    #[test]
    fn a_recovery_leaves_one_voter_whatever_the_region_was_about_to_do() {
        assert_eq!(region().recovered(&recovery(77, 7, &[1, 2])), Err(ChangeError::NoKeeper));
        let added = after(&region(), RegionChange::Peers(vec![PeerChange::AddLearner(7)]));
        let swap = vec![PeerChange::Promote(7), PeerChange::Demote(1)];
        let joint = after(&added, RegionChange::Peers(swap));
        let sealed = region().after_entry(&RegionChange::PrepareMerge { into: 8 }, 7).unwrap().region;
        for before in [region(), joint, sealed] {
            let recovered = before.recovered(&recovery(77, 0, &[1, 2])).unwrap().region;
            assert_eq!(recovered.voters().collect::<Vec<_>>(), [0], "{before:?}");
            assert!(!recovered.is_joint() && !recovered.has_peer_on(1) && !recovered.has_peer_on(2));
            let mut others = recovered.peers.iter().filter(|peer| peer.store != 0);
            assert!(others.all(|peer| peer.role == PeerRole::Learner), "{recovered:?}");
            assert_eq!(recovered.has_peer_on(7), before.has_peer_on(7));
            assert_eq!(recovered.peer_on(0).unwrap().id, before.peer_on(0).unwrap().id);
            // Changes that only the lost stores know are older than this.
            assert!(recovered.epoch.conf_version > before.epoch.conf_version + 1000);
            assert!(recovered.epoch.version > before.epoch.version + 1000);
            assert!(recovered.next_peer > before.next_peer + 1000);
            assert_eq!(recovered.merging, before.merging);
            assert_eq!(recovered.recoveries, [recovery(77, 0, &[1, 2])]);
        }
    }

    #[test]
    fn the_record_of_a_recovery_stays_with_the_data() {
        let mut left = region();
        for order in 1..=10 {
            left = left.recovered(&recovery(order, 0, &[])).unwrap().region;
        }
        let orders = |region: &RegionDescriptor| -> Vec<u64> {
            region.recoveries.iter().map(|recovery| recovery.order).collect()
        };
        assert_eq!(orders(&left), [3, 4, 5, 6, 7, 8, 9, 10]);
        let split = left.after(&RegionChange::Split { at: 40, new_region: 8 }).unwrap();
        let (left, right) = (split.region, split.split_off.unwrap());
        assert_eq!(orders(&left), orders(&right));
        let right = right.recovered(&recovery(11, 0, &[])).unwrap().region;
        let sealed = right.after_entry(&RegionChange::PrepareMerge { into: 1 }, 7).unwrap().region;
        let merge = RegionChange::CommitMerge { source: Box::new(sealed), source_index: 7 };
        assert_eq!(orders(&after(&left, merge)), [4, 5, 6, 7, 8, 9, 10, 11]);
    }
}
