//! Clusters for tests: a short way to make one, and a model that executes what was planned.
#![allow(dead_code)] // Each test binary uses its part.

use std::collections::BTreeMap;

use steelyard_placement::{
    plan, Capability, ClusterView, Operator, PeerView, PlanLimits, Policy, RegionView, StoreState, StoreView,
};
use types::StoreId;

pub fn store(id: StoreId, speed: u64) -> StoreView {
    StoreView {
        id,
        capability: Capability { kv_bytes_per_s: speed as f64, ops_per_s: speed as f64 },
        capacity_bytes: 1 << 30,
        ..StoreView::default()
    }
}

/// Caught-up voters on `peers`.
pub fn region(id: u64, leader: StoreId, peers: &[StoreId]) -> RegionView {
    RegionView {
        id,
        leader: Some(leader),
        peers: peers.iter().map(|&store| PeerView { store, voter: true, lag: Some(0) }).collect(),
        ..RegionView::default()
    }
}

pub fn cluster(speeds: &[u64], regions: Vec<RegionView>) -> ClusterView {
    let stores = speeds.iter().zip(0..).map(|(&speed, id)| store(id, speed)).collect();
    ClusterView { stores, regions, ..ClusterView::default() }
}

pub fn execute(view: &mut ClusterView, operator: &Operator) {
    let Operator::TransferLeader { region, from, to, .. } = *operator else { panic!("{operator}") };
    let at = view.regions.binary_search_by_key(&region, |region| region.id).unwrap();
    assert_eq!(view.regions[at].leader, Some(from));
    view.regions[at].leader = Some(to);
}

/// Plans and executes until nothing is planned; the number of moves. More rounds than `rounds_max` fail.
pub fn settle(view: &mut ClusterView, policy: Policy, limits: &PlanLimits, rounds_max: usize) -> usize {
    let mut moves = 0;
    for _ in 0..rounds_max {
        let operators = plan(view, policy, limits);
        if operators.is_empty() {
            return moves;
        }
        moves += operators.len();
        operators.iter().for_each(|operator| execute(view, operator));
    }
    panic!("not quiet after {rounds_max} rounds: {:?}", plan(view, policy, limits));
}

/// User regions led by each live store.
pub fn leader_counts(view: &ClusterView) -> BTreeMap<StoreId, u32> {
    let live = view.stores.iter().filter(|store| store.state == StoreState::Up);
    let mut counts: BTreeMap<StoreId, u32> = live.map(|store| (store.id, 0)).collect();
    for region in view.regions.iter().filter(|region| region.id != types::META_REGION) {
        if let Some(count) = region.leader.and_then(|leader| counts.get_mut(&leader)) {
            *count += 1;
        }
    }
    counts
}

pub fn spread(view: &ClusterView) -> u32 {
    let counts = leader_counts(view);
    counts.values().max().unwrap_or(&0) - counts.values().min().unwrap_or(&0)
}
