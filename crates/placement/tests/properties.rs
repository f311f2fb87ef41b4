//! What holds for every view.

mod support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use steelyard_placement::{
    plan, ClusterView, Operator, PeerView, PlanLimits, Policy, Reason, RegionView, StoreState,
};
use support::*;
use types::META_REGION;

/// Clusters with down stores, learners, lagging peers, leaderless and cooling regions, moves in flight.
fn any_view() -> impl Strategy<Value = ClusterView> {
    (1..7usize).prop_flat_map(|stores| {
        let stores_strategy = prop::collection::vec((1..5u64, prop::bool::weighted(0.85)), stores);
        let peer = (prop::bool::weighted(0.9), prop::option::weighted(0.9, 0..1500u64));
        let region = (
            prop::collection::btree_map(0..stores as u64, peer, 1..=stores.min(4)),
            prop::option::weighted(0.95, any::<prop::sample::Index>()),
            0..1000u32,
            prop::bool::weighted(0.1),
            prop::option::weighted(0.1, any::<prop::sample::Index>()),
        );
        (stores_strategy, prop::collection::vec(region, 0..30)).prop_map(|(stores, regions)| {
            let mut view = cluster(&[], Vec::new());
            for ((speed, up), id) in stores.into_iter().zip(0..) {
                let state = if up { StoreState::Up } else { StoreState::Down };
                view.stores.push(steelyard_placement::StoreView { state, ..store(id, speed) });
            }
            for ((peers, leader, rate, cooldown, flight), id) in regions.into_iter().zip(0..) {
                let peers: Vec<PeerView> =
                    peers.into_iter().map(|(store, (voter, lag))| PeerView { store, voter, lag }).collect();
                let leader = leader.map(|at| at.get(&peers).store);
                if let (Some(from), Some(at)) = (leader, flight) {
                    let to = at.get(&peers).store;
                    let reason = Reason::Requested;
                    if to != from {
                        view.in_flight.push(Operator::TransferLeader { region: id, from, to, reason });
                    }
                }
                view.regions.push(RegionView {
                    write_rate: f64::from(rate),
                    cooldown,
                    peers,
                    leader,
                    ..region_of(id)
                });
            }
            view
        })
    })
}

fn region_of(id: u64) -> RegionView {
    region(id, 0, &[])
}

fn any_limits() -> impl Strategy<Value = PlanLimits> {
    (1..6usize, 1..4usize, 0..20u32).prop_map(|(in_flight_max, per_target_max, gain_percent_min)| {
        PlanLimits { in_flight_max, per_target_max, gain_percent_min, ..PlanLimits::default() }
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(Policy::ALL.to_vec())
}

/// The smallest spread that any assignment of leaders to peers has, by trying all.
fn best_spread_by_force(view: &ClusterView) -> u32 {
    fn try_from(view: &mut ClusterView, at: usize) -> u32 {
        if at == view.regions.len() {
            return spread(view);
        }
        let here = view.regions[at].leader;
        let mut best = u32::MAX;
        let peers: Vec<u64> = view.regions[at].peers.iter().map(|peer| peer.store).collect();
        for store in peers {
            view.regions[at].leader = Some(store);
            best = best.min(try_from(view, at + 1));
        }
        view.regions[at].leader = here;
        best
    }
    try_from(&mut view.clone(), 0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_operator_breaks_a_constraint(view in any_view(), policy in any_policy(), limits in any_limits()) {
        let operators = plan(&view, policy, &limits);
        let busy: BTreeSet<u64> = view.in_flight.iter().map(Operator::region).collect();
        let mut seen = BTreeSet::new();
        for operator in &operators {
            let Operator::TransferLeader { region, from, to, .. } = *operator else { panic!("{operator}") };
            let region = view.region(region).unwrap();
            prop_assert!(seen.insert(region.id), "one operator per region");
            prop_assert!(!busy.contains(&region.id) && !region.cooldown);
            prop_assert!(policy != Policy::Even || region.id != META_REGION);
            prop_assert_eq!(region.leader, Some(from));
            prop_assert_ne!(from, to);
            for store in [from, to] {
                prop_assert_eq!(view.store(store).unwrap().state, StoreState::Up);
            }
            let peer = region.peers.iter().find(|peer| peer.store == to).unwrap();
            prop_assert!(peer.voter && peer.lag.unwrap() <= limits.lag_entries_max);
        }
        prop_assert!(operators.is_empty() || operators.len() + view.in_flight.len() <= limits.in_flight_max);
        for store in &view.stores {
            let new = operators.iter().filter(|operator| operator.to() == Some(store.id)).count();
            let all = new + view.in_flight.iter().filter(|operator| operator.to() == Some(store.id)).count();
            prop_assert!(new == 0 || all <= limits.per_target_max);
        }
    }

    #[test]
    fn planning_ends_in_quiet(mut view in any_view(), policy in any_policy(), limits in any_limits()) {
        // What is in flight first comes to its end.
        for operator in std::mem::take(&mut view.in_flight) {
            execute(&mut view, &operator);
        }
        settle(&mut view, policy, &limits, 1000);
    }

    #[test]
    fn lost_operators_do_not_oscillate(mut view in any_view(), policy in any_policy(), executed in any::<u64>()) {
        // Any subset of each round's operators happens; the others are lost. Still it ends.
        view.in_flight.clear();
        for round in 0..200u32 {
            let operators = plan(&view, policy, &PlanLimits::default());
            if operators.is_empty() {
                return Ok(());
            }
            for (at, operator) in operators.iter().enumerate() {
                if round % 4 == 3 || executed.rotate_left(round + at as u32) & 1 == 1 {
                    execute(&mut view, operator);
                }
            }
        }
        prop_assert!(false, "not quiet after 200 rounds");
    }

    #[test]
    fn in_flight_counts_as_done(view in any_view(), policy in any_policy()) {
        // Planning again before anything has happened asks for nothing twice. (`even` may still find that
        // another region, with those in flight held fast, makes the counts more even.)
        let limits = PlanLimits { in_flight_max: 1000, per_target_max: 1000, ..PlanLimits::default() };
        let mut view = view;
        view.in_flight.clear();
        view.in_flight = plan(&view, policy, &limits);
        if policy == Policy::LeaderOnly {
            prop_assert_eq!(plan(&view, policy, &limits), vec![]);
        }
        let regions: BTreeSet<u64> = view.in_flight.iter().map(Operator::region).collect();
        prop_assert!(plan(&view, policy, &limits).iter().all(|operator| !regions.contains(&operator.region())));
    }

    #[test]
    fn even_counts_differ_by_at_most_one_when_peers_are_everywhere(
        stores in 1..9u64, leaders in prop::collection::vec(any::<u64>(), 0..80), limits in any_limits()
    ) {
        let peers: Vec<u64> = (0..stores).collect();
        let regions =
            leaders.iter().zip(1..).map(|(leader, id)| region(id, leader % stores, &peers)).collect();
        let mut view = cluster(&vec![1; stores as usize], regions);
        settle(&mut view, Policy::Even, &limits, 1000);
        prop_assert!(spread(&view) <= 1);
    }

    #[test]
    fn even_counts_are_as_even_as_the_peers_allow(
        places in prop::collection::vec((prop::collection::btree_set(0..5u64, 1..=3), any::<prop::sample::Index>()), 0..8),
        limits in any_limits()
    ) {
        let regions = places
            .iter()
            .zip(1..)
            .map(|((peers, leader), id)| {
                let peers: Vec<u64> = peers.iter().copied().collect();
                region(id, *leader.get(&peers), &peers)
            })
            .collect();
        let mut view = cluster(&[1; 5], regions);
        settle(&mut view, Policy::Even, &limits, 1000);
        prop_assert_eq!(spread(&view), best_spread_by_force(&view));
    }
}
