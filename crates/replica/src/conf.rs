//! Conversion of region descriptors and region changes to the consensus library's configuration and
//! configuration changes.

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use types::{PeerChange, PeerRole, RegionChange, RegionDescriptor};

pub(crate) fn conf_state_of(descriptor: &RegionDescriptor) -> ConfState {
    let with = |roles: &[PeerRole]| -> Vec<u64> {
        descriptor.peers.iter().filter(|peer| roles.contains(&peer.role)).map(|peer| peer.id).collect()
    };
    let mut state = ConfState {
        voters: with(&[PeerRole::Voter, PeerRole::Incoming]),
        learners: with(&[PeerRole::Learner]),
        ..ConfState::default()
    };
    if descriptor.is_joint() {
        state.voters_outgoing = with(&[PeerRole::Voter, PeerRole::Outgoing]);
        state.learners_next = with(&[PeerRole::Outgoing]);
    }
    state
}

/// Returns the library's form of a membership change, or `None` for any other change. `before` and
/// `after` are the region's descriptors before and after it.
pub(crate) fn conf_change_of(
    change: &RegionChange,
    before: &RegionDescriptor,
    after: &RegionDescriptor,
) -> Option<ConfChangeV2> {
    let mut conf_change = ConfChangeV2::default();
    match change {
        RegionChange::LeaveJoint => {}
        RegionChange::Peers(changes) => {
            if changes.len() > 1 {
                conf_change.set_transition(ConfChangeTransition::Explicit);
            }
            let single = |change: &PeerChange| {
                let (kind, of) = match change {
                    PeerChange::AddLearner(_) => (ConfChangeType::AddLearnerNode, after),
                    PeerChange::Promote(_) => (ConfChangeType::AddNode, after),
                    PeerChange::Demote(_) => (ConfChangeType::AddLearnerNode, after),
                    PeerChange::Remove(_) => (ConfChangeType::RemoveNode, before),
                };
                let mut single = ConfChangeSingle::default();
                single.set_change_type(kind);
                single.node_id = of.peer_on(change.store()).map_or(0, |peer| peer.id);
                single
            };
            conf_change.set_changes(changes.iter().map(single).collect::<Vec<_>>().into());
        }
        _ => return None,
    }
    Some(conf_change)
}

/// Returns the changes that force a configuration on the library, to be applied in this order: the
/// library leaves a joint configuration, then enters and leaves another one to reach the new roles.
pub(crate) fn recovery_conf_changes(
    before: &RegionDescriptor,
    after: &RegionDescriptor,
) -> Vec<ConfChangeV2> {
    let leave = ConfChangeV2::default;
    let mut conf_changes = Vec::new();
    if before.is_joint() {
        conf_changes.push(leave());
    }
    let votes = |role| matches!(role, PeerRole::Voter | PeerRole::Incoming);
    let single = |peer: &types::Peer| {
        let kind = match after.peer(peer.id).map(|peer| votes(peer.role)) {
            None => ConfChangeType::RemoveNode,
            Some(is_voter) if is_voter == votes(peer.role) => return None,
            Some(true) => ConfChangeType::AddNode,
            Some(false) => ConfChangeType::AddLearnerNode,
        };
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = peer.id;
        Some(single)
    };
    let changes: Vec<ConfChangeSingle> = before.peers.iter().filter_map(single).collect();
    if !changes.is_empty() {
        let mut enter = ConfChangeV2::default();
        enter.set_transition(ConfChangeTransition::Explicit);
        enter.set_changes(changes.into());
        conf_changes.extend([enter, leave()]);
    }
    conf_changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(state: &ConfState, voters: &[u64], outgoing: &[u64], learners: &[u64], next: &[u64]) {
        assert_eq!(&state.voters[..], voters);
        assert_eq!(&state.voters_outgoing[..], outgoing);
        assert_eq!(&state.learners[..], learners);
        assert_eq!(&state.learners_next[..], next);
    }

    #[test]
    fn roles_are_the_librarys_sets() {
        let founded = RegionDescriptor::founded(1, None, &[10, 20, 30]);
        same(&conf_state_of(&founded), &[1, 2, 3], &[], &[], &[]);
        let after = |region: &RegionDescriptor, change: &RegionChange| region.after(change).unwrap().region;
        let added = after(&founded, &RegionChange::Peers(vec![PeerChange::AddLearner(5)]));
        same(&conf_state_of(&added), &[1, 2, 3], &[], &[4], &[]);
        let swap = RegionChange::Peers(vec![PeerChange::Promote(5), PeerChange::Demote(20)]);
        let joint = after(&added, &swap);
        let conf_change = conf_change_of(&swap, &added, &joint).unwrap();
        assert_eq!(conf_change.enter_joint(), Some(false));
        same(&conf_state_of(&joint), &[4, 1, 3], &[1, 2, 3], &[], &[2]);
        let left = after(&joint, &RegionChange::LeaveJoint);
        same(&conf_state_of(&left), &[4, 1, 3], &[], &[2], &[]);
        assert!(conf_change_of(&RegionChange::LeaveJoint, &joint, &left).unwrap().leave_joint());
    }
}
