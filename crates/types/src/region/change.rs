//! Changes of a region, and the descriptors that result from them. Every replica computes the same
//! result.

use super::{Merging, Peer, PeerRole, RegionDescriptor, ABSORBED_MAX, PEERS_MAX};
use crate::{LogIndex, RegionId, Slot, SlotRange, StoreId, META_REGION};

/// One change of a region, made by an entry of its log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegionChange {
    /// A single change takes effect at once. Several, at least one of which promotes or demotes a
    /// peer, go through a joint configuration, in which both the old and the new majority are
    /// needed.
    Peers(Vec<PeerChange>),
    /// Leaves the joint configuration for the new one.
    LeaveJoint,
    /// Splits off the slots from `at` on as a new region, with peers on the same stores.
    Split { at: Slot, new_region: RegionId },
    /// Seals the region. It accepts no more commands, and its rows will belong to its neighbour
    /// `into`.
    PrepareMerge { into: RegionId },
    /// Rolls back a prepared merge.
    RollbackMerge,
    /// Takes over the slots of `source`, which is sealed. Every peer of `source` must hold its log
    /// at least up to `source_index`, the entry that sealed it.
    CommitMerge { source: Box<RegionDescriptor>, source_index: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerChange {
    AddLearner(StoreId),
    /// Makes a learner a voter.
    Promote(StoreId),
    /// Makes a voter a learner.
    Demote(StoreId),
    /// Removes a learner.
    Remove(StoreId),
}

impl PeerChange {
    pub fn store(self) -> StoreId {
        match self {
            PeerChange::AddLearner(store)
            | PeerChange::Promote(store)
            | PeerChange::Demote(store)
            | PeerChange::Remove(store) => store,
        }
    }
}

/// The descriptors after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub region: RegionDescriptor,
    /// The region made by a split.
    pub split_off: Option<RegionDescriptor>,
    /// The region that merged into this one, as it was when it was sealed.
    pub absorbed: Option<RegionDescriptor>,
}

/// The reason why a change is not possible in the present state of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("the region is in a joint configuration")]
    Joint,
    #[error("the region is not in a joint configuration")]
    NotJoint,
    #[error("invalid peer changes: none, too many, a store twice, or several that change no vote")]
    NoChange,
    #[error("store {0} already has a peer")]
    HasPeer(StoreId),
    #[error("store {0} has no learner")]
    NoLearner(StoreId),
    #[error("store {0} has no voter")]
    NoVoter(StoreId),
    #[error("no voter would be left")]
    NoVoters,
    #[error("the region cannot be split at slot {0}")]
    BadSlot(Slot),
    #[error("the regions are not neighbours with peers on the same stores")]
    NotMergeable,
    #[error("the region is sealed for a merge into another region")]
    Merging,
    #[error("no merge of the region is prepared")]
    NotMerging,
    #[error("the store whose log was to count has no peer")]
    NoKeeper,
}

impl RegionDescriptor {
    /// Returns the result of a change that is not in a log yet; see
    /// [`RegionDescriptor::after_entry`].
    pub fn after(&self, change: &RegionChange) -> Result<Changed, ChangeError> {
        self.after_entry(change, 0)
    }

    /// Returns the result of a change that is the entry `index` of the region's log.
    pub fn after_entry(&self, change: &RegionChange, index: LogIndex) -> Result<Changed, ChangeError> {
        if self.merging.is_some() && !matches!(change, RegionChange::RollbackMerge) {
            return Err(ChangeError::Merging);
        }
        let mut region = self.clone();
        let (mut split_off, mut absorbed) = (None, None);
        match change {
            RegionChange::Peers(changes) => {
                region.change_peers(changes)?;
                region.epoch.conf_version += changes.len() as u64;
            }
            RegionChange::LeaveJoint => {
                if !self.is_joint() {
                    return Err(ChangeError::NotJoint);
                }
                for peer in &mut region.peers {
                    peer.role = match peer.role {
                        PeerRole::Incoming => PeerRole::Voter,
                        PeerRole::Outgoing => PeerRole::Learner,
                        role => role,
                    };
                }
                region.epoch.conf_version += 1;
            }
            RegionChange::Split { at, new_region } => {
                let range = self.slots.filter(|range| range.first < *at && *at <= range.last);
                let range = range.ok_or(ChangeError::BadSlot(*at))?;
                if self.is_joint() || *new_region == META_REGION || *new_region == self.id {
                    return Err(ChangeError::Joint);
                }
                region.epoch.version += 1;
                region.slots = Some(SlotRange { first: range.first, last: at - 1 });
                let slots = Some(SlotRange { first: *at, last: range.last });
                split_off = Some(RegionDescriptor { id: *new_region, slots, ..region.clone() });
            }
            RegionChange::PrepareMerge { into } => {
                if self.is_joint() {
                    return Err(ChangeError::Joint);
                }
                if self.slots.is_none() || *into == META_REGION || *into == self.id {
                    return Err(ChangeError::NotMergeable);
                }
                region.merging = Some(Merging { into: *into, sealed_at: index });
                // Both counters rise, since a sealed region excludes membership and range changes.
                region.epoch.version += 1;
                region.epoch.conf_version += 1;
            }
            RegionChange::RollbackMerge => {
                region.merging.take().ok_or(ChangeError::NotMerging)?;
                region.epoch.version += 1;
            }
            RegionChange::CommitMerge { source, .. } => {
                region.slots = Some(self.joined(source).ok_or(ChangeError::NotMergeable)?);
                region.epoch.version = self.epoch.version.max(source.epoch.version) + 1;
                // Both regions may have been split from a region that had absorbed others.
                region.absorbed.retain(|id| !source.absorbed.contains(id));
                region.absorbed.extend(source.absorbed.iter().chain([&source.id]));
                let old = region.absorbed.len().saturating_sub(ABSORBED_MAX);
                region.absorbed.drain(..old);
                region.inherit_recoveries(source);
                absorbed = Some((**source).clone());
            }
        }
        Ok(Changed { region, split_off, absorbed })
    }

    /// Returns the slots of both regions together if they are neighbours with peers of the same
    /// roles on the same stores.
    pub fn joined(&self, other: &RegionDescriptor) -> Option<SlotRange> {
        let kin = |peers: &[Peer]| peers.iter().map(|peer| (peer.store, peer.role)).collect::<Vec<_>>();
        let (mine, others) = (self.slots?, other.slots?);
        let fits = !self.is_joint() && !other.is_joint() && kin(&self.peers) == kin(&other.peers);
        match fits {
            true if mine.last + 1 == others.first => Some(SlotRange { first: mine.first, last: others.last }),
            true if others.last + 1 == mine.first => Some(SlotRange { first: others.first, last: mine.last }),
            _ => None,
        }
    }

    fn change_peers(&mut self, changes: &[PeerChange]) -> Result<(), ChangeError> {
        if self.is_joint() {
            return Err(ChangeError::Joint);
        }
        let named = |at: usize| changes[..at].iter().any(|earlier| earlier.store() == changes[at].store());
        let is_many = self.peers.len() + changes.len() > PEERS_MAX;
        if changes.is_empty() || is_many || (0..changes.len()).any(named) {
            return Err(ChangeError::NoChange);
        }
        let is_joint = changes.len() > 1;
        let votes = |change: &PeerChange| matches!(change, PeerChange::Promote(_) | PeerChange::Demote(_));
        if is_joint && !changes.iter().any(votes) {
            // Without such a change no role would show that the configuration is joint.
            return Err(ChangeError::NoChange);
        }
        for &change in changes {
            let store = change.store();
            let at = self.peers.binary_search_by_key(&store, |peer| peer.store);
            let role = at.ok().map(|at| self.peers[at].role);
            match (change, at) {
                (PeerChange::AddLearner(_), Err(at)) => {
                    let id = self.next_peer;
                    self.next_peer += 1;
                    self.peers.insert(at, Peer { store, id, role: PeerRole::Learner });
                }
                (PeerChange::AddLearner(_), Ok(_)) => return Err(ChangeError::HasPeer(store)),
                (PeerChange::Promote(_), Ok(at)) if role == Some(PeerRole::Learner) => {
                    self.peers[at].role = if is_joint { PeerRole::Incoming } else { PeerRole::Voter };
                }
                (PeerChange::Demote(_), Ok(at)) if role == Some(PeerRole::Voter) => {
                    self.peers[at].role = if is_joint { PeerRole::Outgoing } else { PeerRole::Learner };
                }
                (PeerChange::Remove(_), Ok(at)) if role == Some(PeerRole::Learner) => {
                    self.peers.remove(at);
                }
                (PeerChange::Demote(_), _) => return Err(ChangeError::NoVoter(store)),
                (PeerChange::Promote(_) | PeerChange::Remove(_), _) => {
                    return Err(ChangeError::NoLearner(store))
                }
            }
        }
        if self.voters().next().is_none() {
            return Err(ChangeError::NoVoters);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionEpoch;

    fn region() -> RegionDescriptor {
        RegionDescriptor::founded(1, Some(SlotRange { first: 0, last: 99 }), &[0, 1, 2])
    }

    fn after(region: &RegionDescriptor, change: RegionChange) -> RegionDescriptor {
        region.after(&change).unwrap().region
    }

    #[test]
    fn a_peer_is_replaced_through_a_learner_and_a_joint_configuration() {
        let added = after(&region(), RegionChange::Peers(vec![PeerChange::AddLearner(7)]));
        assert_eq!(added.peer_on(7), Some(&Peer { store: 7, id: 4, role: PeerRole::Learner }));
        let swap = vec![PeerChange::Promote(7), PeerChange::Demote(1)];
        let joint = after(&added, RegionChange::Peers(swap.clone()));
        assert!(joint.is_joint());
        assert_eq!(joint.voters().collect::<Vec<_>>(), [0, 2, 7]);
        assert_eq!(joint.after(&RegionChange::Peers(swap)), Err(ChangeError::Joint));
        let left = after(&joint, RegionChange::LeaveJoint);
        assert_eq!(left.peer_on(1).map(|peer| peer.role), Some(PeerRole::Learner));
        let removed = after(&left, RegionChange::Peers(vec![PeerChange::Remove(1)]));
        assert!(!removed.has_peer_on(1));
        let back = after(&removed, RegionChange::Peers(vec![PeerChange::AddLearner(1)]));
        assert_eq!(back.peer_on(1).map(|peer| peer.id), Some(5));
        assert_eq!(back.epoch, RegionEpoch { conf_version: 7, version: 1 });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |changes: &[PeerChange]| region().after(&RegionChange::Peers(changes.to_vec()));
        assert_eq!(refused(&[]), Err(ChangeError::NoChange));
        let many: Vec<PeerChange> = (10..200_000).map(PeerChange::AddLearner).collect();
        assert_eq!(refused(&many), Err(ChangeError::NoChange));
        assert_eq!(refused(&[PeerChange::AddLearner(1)]), Err(ChangeError::HasPeer(1)));
        assert_eq!(refused(&[PeerChange::Remove(1)]), Err(ChangeError::NoLearner(1)));
        assert_eq!(refused(&[PeerChange::Promote(1)]), Err(ChangeError::NoLearner(1)));
        assert_eq!(refused(&[PeerChange::Demote(9)]), Err(ChangeError::NoVoter(9)));
        let all = [0, 1, 2].map(PeerChange::Demote);
        assert_eq!(refused(&all), Err(ChangeError::NoVoters));
        assert_eq!(region().after(&RegionChange::LeaveJoint), Err(ChangeError::NotJoint));
    }

    #[test]
    fn a_split_cuts_the_slots_in_two_and_a_merge_joins_them() {
        for at in [0, 100] {
            let cut = region().after(&RegionChange::Split { at, new_region: 8 });
            assert_eq!(cut, Err(ChangeError::BadSlot(at)));
        }
        let Changed { region: left, split_off, .. } =
            region().after(&RegionChange::Split { at: 40, new_region: 8 }).unwrap();
        let right = split_off.unwrap();
        assert_eq!(left.slots, Some(SlotRange { first: 0, last: 39 }));
        assert_eq!((right.id, right.slots), (8, Some(SlotRange { first: 40, last: 99 })));
        assert!(left.epoch == right.epoch && left.epoch.is_newer_than(region().epoch));
        let merge = RegionChange::CommitMerge { source: Box::new(right), source_index: 9 };
        let whole = after(&left, merge.clone());
        assert_eq!(whole.slots, region().slots);
        assert_eq!(whole.after(&merge), Err(ChangeError::NotMergeable));
    }

    #[test]
    fn a_sealed_region_changes_no_more_until_it_is_taken_back() {
        let prepare = RegionChange::PrepareMerge { into: 8 };
        let sealed = region().after_entry(&prepare, 7).unwrap().region;
        assert_eq!(sealed.merging, Some(Merging { into: 8, sealed_at: 7 }));
        assert!(sealed.epoch.is_newer_than(region().epoch));
        for change in [
            prepare,
            RegionChange::Peers(vec![PeerChange::AddLearner(7)]),
            RegionChange::Split { at: 40, new_region: 9 },
            RegionChange::CommitMerge { source: Box::new(region()), source_index: 9 },
        ] {
            assert_eq!(sealed.after(&change), Err(ChangeError::Merging), "{change:?}");
        }
        let open = after(&sealed, RegionChange::RollbackMerge);
        assert!(open.merging.is_none() && open.epoch.is_newer_than(sealed.epoch));
        assert_eq!(open.after(&RegionChange::RollbackMerge), Err(ChangeError::NotMerging));
        for into in [META_REGION, 1] {
            assert_eq!(open.after(&RegionChange::PrepareMerge { into }), Err(ChangeError::NotMergeable));
        }
    }

    #[test]
    fn whoever_has_merged_away_is_superseded_and_named() {
        let Changed { region: left, split_off, .. } =
            region().after(&RegionChange::Split { at: 40, new_region: 8 }).unwrap();
        let right = split_off.unwrap();
        assert!(!right.has_absorbed(&left) && !left.has_absorbed(&right));
        assert!(!left.has_absorbed(&region()) && !right.has_absorbed(&region()), "a part is not the whole");
        let source = Box::new(after(&right, RegionChange::PrepareMerge { into: 1 }));
        let changed = left.after(&RegionChange::CommitMerge { source, source_index: 9 }).unwrap();
        let whole = changed.region;
        assert!(whole.has_absorbed(&right) && !right.has_absorbed(&whole));
        assert_eq!(
            (whole.absorbed.as_slice(), changed.absorbed.map(|region| region.id)),
            (&[8][..], Some(8))
        );
        let again = whole.after(&RegionChange::Split { at: 40, new_region: 9 }).unwrap().split_off.unwrap();
        assert_eq!(again.absorbed, [8]);
        assert!(again.has_absorbed(&right));
        let mut many = whole;
        for id in 100..200 {
            let next = many.after(&RegionChange::Split { at: 40, new_region: id }).unwrap();
            let source = Box::new(next.split_off.unwrap());
            many = after(&next.region, RegionChange::CommitMerge { source, source_index: 9 });
        }
        assert_eq!(many.absorbed.len(), ABSORBED_MAX);
        assert_eq!(many.absorbed.last(), Some(&199));
    }
}
