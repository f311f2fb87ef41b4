//! Operators that administrators request. They are checked against the known state before they are
//! proposed.

use placement::Operator;
use types::{BootNanos, PeerRole, RegionId, StoreId, META_REGION};

use super::steps::Remaining;
use super::{is_current, touches, Driver};
use crate::state::MemberState;
use crate::{Ledger, MetaCommand, MetaError, MetaState};

/// The reason why a requested operator was not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("region {0} has no known leader")]
    NoLeader(RegionId),
    #[error("store {store} already leads region {region}")]
    LeadsAlready { region: RegionId, store: StoreId },
    #[error("store {store} has no voting peer of region {region}")]
    NotAVoter { region: RegionId, store: StoreId },
    #[error("store {store} already has a voting peer of region {region}")]
    HasPeer { region: RegionId, store: StoreId },
    #[error("store {store} has no peer of region {region}")]
    NoPeer { region: RegionId, store: StoreId },
    #[error("regions {region} and {into} are not neighbours with peers on the same stores")]
    NotNeighbours { region: RegionId, into: RegionId },
    #[error("store {0} is down")]
    Down(StoreId),
    #[error(
        "without its peer on store {store}, region {region} would have no majority until its unclean peer on \
         store {unclean} is replaced; try again later"
    )]
    AwaitsRepair { region: RegionId, store: StoreId, unclean: StoreId },
    #[error("region {0} is changing; try again later")]
    Changing(RegionId),
    #[error(transparent)]
    Refused(#[from] MetaError),
}

/// The reason why a store cannot be drained now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    #[error("only {live} of the stores that would stay are alive, and a region has {replicas} replicas")]
    TooFewLive { live: usize, replicas: usize },
    #[error("without store {store} region {region} would have no majority of its voters alive")]
    NoQuorum { store: StoreId, region: RegionId },
    #[error(transparent)]
    Refused(#[from] MetaError),
}

impl Driver {
    /// Returns the command that begins a requested operator. A policy may later plan the opposite.
    pub fn request(
        &mut self,
        meta: &MetaState,
        ledger: &Ledger,
        operator: Operator,
        now: BootNanos,
    ) -> Result<MetaCommand, StartError> {
        self.forget_old_proposals(meta, now);
        meta.check_operator(&operator)?;
        let id = operator.region();
        let involved = [Some(id), operator.into_region()].into_iter().flatten();
        for region in involved.clone() {
            if self.beginning().any(|other| touches(other, region)) {
                return Err(MetaError::RegionBusy(region).into());
            }
            ledger.routes().get(region).ok_or(StartError::NoLeader(region))?;
        }
        let leader = ledger.routes().get(id).map(|route| route.leader);
        let descriptor = ledger.lead(id).map_or(&meta.regions[&id], |lead| &lead.descriptor);
        let role_on = |store| descriptor.peer_on(store).map(|peer| peer.role);
        let merging = ledger.lead(id).is_some_and(|lead| lead.merging_into().is_some());
        if descriptor.is_joint() || merging || !is_current(meta, ledger, &operator) {
            return Err(StartError::Changing(id));
        }
        match &operator {
            Operator::TransferLeader { region, to, .. } => {
                let (region, store) = (*region, *to);
                if leader == Some(store) {
                    return Err(StartError::LeadsAlready { region, store });
                }
                if role_on(store) != Some(PeerRole::Voter) {
                    return Err(StartError::NotAVoter { region, store });
                }
            }
            Operator::AddPeer { .. } | Operator::RemovePeer { .. } | Operator::MovePeer { .. } => {
                if let Some(store) = operator.to().filter(|&to| role_on(to) == Some(PeerRole::Voter)) {
                    return Err(StartError::HasPeer { region: id, store });
                }
                if let Some(store) = operator.from().filter(|&from| role_on(from).is_none()) {
                    return Err(StartError::NoPeer { region: id, store });
                }
            }
            Operator::Split { .. } | Operator::Unseal { .. } => {}
            Operator::Merge { region, into, .. } => {
                if meta.regions[into].joined(&meta.regions[region]).is_none() {
                    return Err(StartError::NotNeighbours { region: *region, into: *into });
                }
                let stores = descriptor.peers.iter().map(|peer| peer.store);
                if let Some(down) = stores.into_iter().find(|&store| !ledger.is_up(store, now)) {
                    return Err(StartError::Down(down));
                }
            }
        }
        let source = match &operator {
            // The peer of a dead store can be removed and moved without the store's help.
            Operator::RemovePeer { .. } | Operator::MovePeer { .. } => None,
            _ => operator.from(),
        };
        let down = source.filter(|&from| !ledger.is_up(from, now));
        if let Some(down) = down.or(operator.to().filter(|&to| !ledger.takes_on(to, now))) {
            return Err(StartError::Down(down));
        }
        // Otherwise the operator would end at once, and the repair would have to wait again.
        if let (Operator::RemovePeer { from, .. } | Operator::MovePeer { from, .. }, Some(lead)) =
            (&operator, ledger.lead(id))
        {
            let remaining = Remaining::voters(ledger, lead, *from, operator.to(), now);
            if let Remaining::AwaitsRepair(unclean) = remaining {
                return Err(StartError::AwaitsRepair { region: id, store: *from, unclean });
            }
        }
        Ok(self.begin(meta, operator, now))
    }
}

/// Checks that every region with a peer on `store` stays available without it, as far as this store
/// knows. [`MetaCommand::SetStoreState`] repeats the checks that depend only on agreed state.
pub fn may_drain(
    meta: &MetaState,
    ledger: &Ledger,
    store: StoreId,
    now: BootNanos,
) -> Result<(), DrainError> {
    meta.member(store)?;
    let is_live = |other: StoreId| other != store && ledger.is_up(other, now);
    let staying = meta.members().filter(|other| other.state == MemberState::Up && is_live(other.id));
    let (live, replicas) = (staying.count(), meta.replicas());
    if live < replicas {
        return Err(DrainError::TooFewLive { live, replicas });
    }
    // The meta region comes first, because nothing else can be moved without it.
    debug_assert!(meta.regions.keys().next() == Some(&META_REGION));
    for region in meta.regions.values().filter(|region| region.has_peer_on(store)) {
        let others: Vec<StoreId> = region.voters().filter(|&other| other != store).collect();
        let live = others.iter().filter(|&&other| is_live(other)).count();
        // A lone voter transfers its leadership to its replacement before it leaves.
        if !others.is_empty() && live < others.len() / 2 + 1 {
            return Err(DrainError::NoQuorum { store, region: region.id });
        }
    }
    Ok(())
}
