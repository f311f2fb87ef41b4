//! ALOR §3.1, leader migration in Raft groups (policy `leader-only`): one test per claim.

mod support;

use steelyard_placement::{plan, Capability, Operator, PlanLimits, Policy, StoreState};
use support::*;

const NVM: u64 = 625_000_000;
const HIGH: u64 = 250_000_000;
const PLAIN: u64 = 62_500_000;

/// Limits under which peers do not move, because these tests concern only leaders.
fn limits() -> PlanLimits {
    PlanLimits { data_moves_max: 0, ..PlanLimits::default() }
}

fn moves(operators: &[Operator]) -> Vec<(u64, u64, u64)> {
    operators.iter().map(|o| (o.region(), o.from().unwrap(), o.to().unwrap())).collect()
}

/// Six stores as in the paper's cluster, with a region on every triple.
fn papers_cluster() -> steelyard_placement::ClusterView {
    let mut regions = Vec::new();
    for a in 0..6u64 {
        for b in a + 1..6 {
            for c in b + 1..6 {
                let id = regions.len() as u64 + 1;
                regions.push(region(id, [a, b, c][id as usize % 3], &[a, b, c]));
            }
        }
    }
    cluster(&[PLAIN, HIGH, PLAIN, NVM, HIGH, PLAIN], regions)
}

#[test]
fn every_leader_ends_on_its_most_capable_peer() {
    let mut view = papers_cluster();
    settle(&mut view, Policy::LeaderOnly, &limits(), 100);
    for region in &view.regions {
        let speed = |store| view.store(store).unwrap().capability.speed();
        let best = region.peers.iter().map(|peer| speed(peer.store)).max().unwrap();
        assert_eq!(speed(region.leader.unwrap()), best, "region {}", region.id);
    }
}

#[test]
fn the_largest_performance_gap_goes_first() {
    let regions = vec![
        region(1, 2, &[1, 2]), // HIGH over PLAIN
        region(2, 1, &[0, 1]), // NVM over HIGH
        region(3, 2, &[0, 2]), // NVM over PLAIN
    ];
    let view = cluster(&[NVM, HIGH, PLAIN], regions);
    assert_eq!(moves(&plan(&view, Policy::LeaderOnly, &limits())), [(3, 2, 0), (2, 1, 0), (1, 2, 1)]);
    let one = PlanLimits { in_flight_max: 1, ..limits() };
    assert_eq!(moves(&plan(&view, Policy::LeaderOnly, &one)), [(3, 2, 0)]);
}

#[test]
fn of_equal_gaps_the_busiest_region_goes_first() {
    let mut view = cluster(&[NVM, PLAIN], vec![region(1, 1, &[0, 1]), region(2, 1, &[0, 1])]);
    view.regions[1].write_rate = 100.0;
    assert_eq!(moves(&plan(&view, Policy::LeaderOnly, &limits())), [(2, 1, 0), (1, 1, 0)]);
}

#[test]
fn data_stays_where_it_is() {
    let mut view = papers_cluster();
    let before: Vec<_> = view.regions.iter().map(|region| region.peers.clone()).collect();
    assert!(settle(&mut view, Policy::LeaderOnly, &limits(), 100) > 0);
    let after: Vec<_> = view.regions.iter().map(|region| region.peers.clone()).collect();
    assert_eq!(before, after);
}

#[test]
fn the_meta_regions_leader_moves_too() {
    let view = cluster(&[PLAIN, NVM], vec![region(0, 0, &[0, 1])]);
    assert_eq!(moves(&plan(&view, Policy::LeaderOnly, &limits())), [(0, 0, 1)]);
    assert_eq!(plan(&view, Policy::Even, &limits()), []);
}

#[test]
fn equals_and_small_gains_move_nothing() {
    let regions = || vec![region(1, 0, &[0, 1]), region(2, 1, &[0, 1])];
    for other in [PLAIN - 1, PLAIN, PLAIN / 100 * 104] {
        assert_eq!(plan(&cluster(&[PLAIN, other], regions()), Policy::LeaderOnly, &limits()), [], "{other}");
    }
    let slower = cluster(&[PLAIN, 0], vec![region(1, 0, &[0, 1]), region(2, 0, &[0, 1])]);
    assert_eq!(plan(&slower, Policy::LeaderOnly, &limits()), []);
    let better = cluster(&[PLAIN, PLAIN / 100 * 105], regions());
    assert_eq!(moves(&plan(&better, Policy::LeaderOnly, &limits())), [(1, 0, 1)]);
}

#[test]
fn equals_share_the_leaders_as_under_even() {
    for stores in [[PLAIN, PLAIN, PLAIN], [PLAIN, PLAIN / 100 * 104, PLAIN / 100 * 102]] {
        let regions = || (1..=9).map(|id| region(id, 0, &[0, 1, 2])).collect();
        let mut even = cluster(&stores, regions());
        let mut leader_only = even.clone();
        let moved = settle(&mut even, Policy::Even, &limits(), 10);
        assert_eq!(settle(&mut leader_only, Policy::LeaderOnly, &limits(), 10), moved, "no move more");
        assert_eq!(leader_counts(&leader_only), leader_counts(&even));
    }
}

#[test]
fn equally_capable_targets_share_the_leaders() {
    let regions = (1..=10).map(|id| region(id, 0, &[0, 1, 2])).collect();
    let mut view = cluster(&[PLAIN, NVM, NVM], regions);
    settle(&mut view, Policy::LeaderOnly, &limits(), 100);
    assert_eq!(leader_counts(&view).into_values().collect::<Vec<_>>(), [0, 5, 5]);
}

#[test]
fn a_full_target_is_waited_for_rather_than_replaced_by_a_slower_one() {
    let regions = (1..=3).map(|id| region(id, 0, &[0, 1, 2])).collect();
    let mut view = cluster(&[PLAIN, HIGH, NVM], regions);
    let limits = PlanLimits { per_target_max: 1, ..limits() };
    view.in_flight = plan(&view, Policy::LeaderOnly, &limits);
    assert_eq!(moves(&view.in_flight), [(1, 0, 2)]);
    assert_eq!(plan(&view, Policy::LeaderOnly, &limits), []);
}

#[test]
fn down_stores_learners_and_laggards_are_passed_over() {
    let stores = [PLAIN, NVM, HIGH];
    let base = || cluster(&stores, vec![region(1, 0, &[0, 1, 2])]);
    let planned = |view: &_| moves(&plan(view, Policy::LeaderOnly, &limits()));
    assert_eq!(planned(&base()), [(1, 0, 1)]);

    let mut down = base();
    down.stores[1].state = StoreState::Down;
    assert_eq!(planned(&down), [(1, 0, 2)]);
    let mut learner = base();
    learner.regions[0].peers[1].voter = false;
    assert_eq!(planned(&learner), [(1, 0, 2)]);
    for lag in [None, Some(limits().lag_entries_max + 1)] {
        let mut behind = base();
        behind.regions[0].peers[1].lag = lag;
        assert_eq!(planned(&behind), [(1, 0, 2)]);
    }
    let mut leaderless = base();
    leaderless.stores[0].state = StoreState::Down;
    assert_eq!(planned(&leaderless), []);
}

#[test]
fn a_store_that_slows_down_loses_its_leaders() {
    let regions = (1..=4).map(|id| region(id, 0, &[0, 1])).collect();
    let mut view = cluster(&[NVM, HIGH], regions);
    assert_eq!(plan(&view, Policy::LeaderOnly, &limits()), []);
    view.stores[0].capability = Capability { kv_bytes_per_s: NVM as f64 / 10.0, ops_per_s: 1.0 };
    settle(&mut view, Policy::LeaderOnly, &limits(), 10);
    assert!(view.regions.iter().all(|region| region.leader == Some(1)));
}

#[test]
fn senseless_capabilities_count_as_no_speed() {
    for speed in [f64::NAN, -1.0, f64::NEG_INFINITY] {
        assert_eq!(Capability { kv_bytes_per_s: speed, ops_per_s: 1.0 }.speed(), 0);
    }
    assert_eq!(Capability { kv_bytes_per_s: f64::INFINITY, ops_per_s: 1.0 }.speed(), u64::MAX);
}
