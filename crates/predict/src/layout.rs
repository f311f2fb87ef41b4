//! Layouts: executes the plans of [`placement::plan`] on its own view until nothing is planned.

use placement::{
    plan, sheds, ClusterView, Operator, PeerView, PlanLimits, Policy, RegionView, StoreState, StoreView,
};
use types::StoreId;

use crate::{PredictError, Question, Store};

/// A layout for which nothing is planned, and the operators that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rested {
    pub view: ClusterView,
    pub operators: Vec<Operator>,
}

/// Maximum number of rounds. A policy that needs more oscillates; placement's own tests allow
/// fewer.
const ROUNDS_MAX: usize = 2_000;

/// Computes the layout to which a policy brings the initial regions if there is no load.
pub fn at_rest(question: &Question, policy: Policy) -> Result<Rested, PredictError> {
    let regions = question.regions.iter().map(|region| RegionView {
        id: region.id,
        bytes: region.bytes,
        first_slot: region.slots.first,
        last_slot: region.slots.last,
        slots: region.slots.len() as u32,
        leader: Some(region.leader),
        peers: region.peers.iter().map(|store| caught_up(*store)).collect(),
        ..RegionView::default()
    });
    let view = view(&question.stores, regions.collect(), question.replicas);
    settle(view, policy)
}

pub(crate) fn settle(mut view: ClusterView, policy: Policy) -> Result<Rested, PredictError> {
    let limits = PlanLimits::default();
    let mut operators = Vec::new();
    for _ in 0..ROUNDS_MAX {
        remember_shedding(&mut view, &limits);
        let planned = plan(&view, policy, &limits);
        if planned.is_empty() {
            return left(&view).map_or(Ok(Rested { view, operators }), Err);
        }
        for operator in planned {
            execute(&mut view, &operator);
            operators.push(operator);
        }
    }
    Err(PredictError::Restless { policy, rounds: ROUNDS_MAX })
}

/// Returns an error if a store that should leave still has a peer.
fn left(view: &ClusterView) -> Option<PredictError> {
    let leaves = |id: StoreId| view.store(id).is_some_and(|store| store.state == StoreState::Draining);
    view.regions.iter().find_map(|region| {
        let peer = region.peers.iter().find(|peer| leaves(peer.store))?;
        Some(PredictError::Stays { store: peer.store, region: region.id })
    })
}

pub(crate) fn remember_shedding(view: &mut ClusterView, limits: &PlanLimits) {
    for store in &mut view.stores {
        store.shedding = sheds(store, limits);
    }
}

pub(crate) fn caught_up(store: StoreId) -> PeerView {
    PeerView { store, voter: true, lag: Some(0), unclean: false, lost_rows: false }
}

/// Makes a view in which all stores are up except those that leave. The used bytes of a store are
/// the sum of its peers.
pub(crate) fn view(stores: &[Store], mut regions: Vec<RegionView>, replicas: usize) -> ClusterView {
    for region in &mut regions {
        region.peers.sort_by_key(|peer| peer.store);
    }
    let held = |id: StoreId| {
        let here = regions.iter().filter(|region| region.peers.iter().any(|peer| peer.store == id));
        here.map(|region| region.bytes).sum()
    };
    let stores = stores.iter().map(|store| StoreView {
        id: store.id,
        capability: store.capability,
        spread: store.spread,
        sync_ns: store.device.cache.map_or(store.device.sync_ns, |cache| cache.sync_ns),
        capacity_bytes: store.capacity_bytes,
        used_bytes: held(store.id),
        data_weight: store.data_weight,
        leader_weight: store.leader_weight,
        state: if store.leaving { StoreState::Draining } else { StoreState::Up },
        ..StoreView::default()
    });
    let stores = stores.collect();
    ClusterView { stores, regions, replicas, ..ClusterView::default() }
}

/// Executes an operator at once. The cluster's driver would need time for it. An operator whose
/// region does not exist changes nothing, since the driver would refuse it.
fn execute(view: &mut ClusterView, operator: &Operator) {
    let Ok(at) = view.regions.binary_search_by_key(&operator.region(), |region| region.id) else { return };
    match *operator {
        Operator::TransferLeader { to, .. } => view.regions[at].leader = Some(to),
        Operator::AddPeer { to, .. } => add(view, at, to),
        Operator::RemovePeer { from, .. } => remove(view, at, from, None),
        Operator::MovePeer { from, to, .. } => {
            add(view, at, to);
            remove(view, at, from, Some(to));
        }
        // The limits disable these, as they do by default in a cluster.
        Operator::Split { .. } | Operator::Merge { .. } | Operator::Unseal { .. } => {}
    }
}

fn add(view: &mut ClusterView, at: usize, to: StoreId) {
    let region = &mut view.regions[at];
    if region.peers.iter().any(|peer| peer.store == to) {
        return;
    }
    region.peers.push(caught_up(to));
    region.peers.sort_by_key(|peer| peer.store);
    let bytes = region.bytes;
    if let Some(store) = view.stores.iter_mut().find(|store| store.id == to) {
        store.used_bytes += bytes;
    }
}

fn remove(view: &mut ClusterView, at: usize, from: StoreId, newcomer: Option<StoreId>) {
    let region = &mut view.regions[at];
    if region.leader == Some(from) {
        region.leader = heir(region.peers.iter().map(|peer| peer.store), from, newcomer);
    }
    region.peers.retain(|peer| peer.store != from);
    let bytes = region.bytes;
    if let Some(store) = view.stores.iter_mut().find(|store| store.id == from) {
        store.used_bytes = store.used_bytes.saturating_sub(bytes);
    }
}

/// Returns the store that leads after the leader's peer on `from` has gone. An old voter is
/// preferred, because the newcomer becomes a voter only in the same step.
pub(crate) fn heir(
    peers: impl Iterator<Item = StoreId> + Clone,
    from: StoreId,
    newcomer: Option<StoreId>,
) -> Option<StoreId> {
    let mut old = peers.filter(|store| *store != from && Some(*store) != newcomer);
    old.next().or(newcomer)
}
