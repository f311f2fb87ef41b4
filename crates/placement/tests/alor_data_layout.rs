//! ALOR §3.2, skewed data layout via cold data migration (policy `alor`): one test per claim.

mod support;

use std::collections::BTreeMap;

use steelyard_placement::{plan, sheds, ClusterView, Operator, PlanLimits, Policy, Reason, RegionView};
use support::*;
use types::StoreId;

const NVM: u64 = 625_000_000;
const HIGH: u64 = 250_000_000;
const PLAIN: u64 = 62_500_000;
const MB: u64 = 1_000_000;

fn limits() -> PlanLimits {
    PlanLimits::default()
}

/// `count` regions of `bytes` with three peers each, on neighbouring stores in turn, so that data
/// is even.
fn spread_out(speeds: &[u64], count: u64, bytes: u64) -> ClusterView {
    let stores = speeds.len() as u64;
    let regions = (0..count).map(|at| {
        let mut peers = [at % stores, (at + 1) % stores, (at + 2) % stores];
        peers.sort_unstable();
        RegionView { bytes, heat: 1.0, ..region(at + 1, peers[at as usize % 3], &peers) }
    });
    let mut view = cluster(speeds, regions.collect());
    fill_up(&mut view);
    view
}

fn parts(view: &ClusterView) -> BTreeMap<StoreId, f64> {
    let data = data(view);
    let total: u64 = data.values().sum();
    data.into_iter().map(|(store, bytes)| (store, bytes as f64 / total as f64)).collect()
}

#[test]
fn performance_of_3_3_2_2_1_1_gives_data_in_about_that_ratio() {
    let mut view = spread_out(&[300, 300, 200, 200, 100, 100].map(|speed| speed * MB), 240, 10 * MB);
    settle(&mut view, Policy::Alor, &limits(), 2000);
    for (part, expected) in parts(&view).into_values().zip([3.0, 3.0, 2.0, 2.0, 1.0, 1.0]) {
        let expected = expected / 12.0;
        assert!((part - expected).abs() < 0.02, "{part:.3} of the data where {expected:.3} is in proportion");
    }
}

/// §4.5 scales from 4 to 6 stores. A store whose share would exceed a third of the data has one
/// peer of every region, which is exactly a third. The other data is in proportion.
#[test]
fn at_4_5_and_6_stores_data_is_in_proportion_as_far_as_three_peers_allow() {
    for speeds in [
        vec![HIGH, PLAIN, PLAIN, PLAIN],
        vec![NVM, HIGH, PLAIN, PLAIN, PLAIN],
        vec![NVM, HIGH, HIGH, PLAIN, PLAIN, PLAIN],
    ] {
        let mut view = spread_out(&speeds, 120, 10 * MB);
        settle(&mut view, Policy::Alor, &limits(), 5000);
        let mut expected: Vec<f64> = vec![0.0; speeds.len()];
        let mut capped = vec![false; speeds.len()];
        // Stores above a third are limited to it one by one, and the remaining data is distributed
        // again.
        loop {
            let left = 1.0 - capped.iter().filter(|capped| **capped).count() as f64 / 3.0;
            let weights: u64 =
                speeds.iter().zip(&capped).filter(|(_, capped)| !**capped).map(|(speed, _)| *speed).sum();
            for at in 0..speeds.len() {
                expected[at] = if capped[at] { 1.0 / 3.0 } else { left * speeds[at] as f64 / weights as f64 };
            }
            let Some(over) = (0..speeds.len()).find(|&at| !capped[at] && expected[at] > 1.0 / 3.0) else {
                break;
            };
            capped[over] = true;
        }
        for (part, expected) in parts(&view).into_values().zip(expected) {
            assert!(
                (part - expected).abs() < 0.02,
                "{speeds:?}: {part:.3} of the data, {expected:.3} in proportion"
            );
        }
    }
}

/// Eq. 1, with ≥ instead of > (see `data`). It follows that no move is worth its reverse.
#[test]
fn data_moves_only_by_equation_1() {
    let mut view = spread_out(&[NVM, HIGH, HIGH, PLAIN, PLAIN, PLAIN], 60, 10 * MB);
    for (at, region) in view.regions.iter_mut().enumerate() {
        region.bytes += at as u64 * MB / 3;
    }
    fill_up(&mut view);
    let mut moved = 0;
    // The test executes one operator at a time, so that each is planned for the present view.
    let one = PlanLimits { in_flight_max: 1, ..limits() };
    loop {
        let operators = plan(&view, Policy::Alor, &one);
        let Some(operator) = operators.first() else { break };
        if let Operator::MovePeer { region, from, to, .. } = *operator {
            moved += 1;
            let held = data(&view);
            let weight = |store: StoreId| view.store(store).unwrap().capability.kv_bytes_per_s;
            let s_m = view.region(region).unwrap().bytes as f64;
            let (s_a, s_b) = (held[&from] as f64, held[&to] as f64);
            assert!((s_a - s_m) / weight(from) * (1.0 + 1e-9) >= (s_b + s_m) / weight(to), "{operator}");
            let back = (s_b + s_m - s_m) / weight(to) >= (s_a - s_m + s_m) / weight(from);
            assert!(!back, "{operator} would go back");
        }
        execute(&mut view, operator);
    }
    assert!(moved > 20);
}

#[test]
fn leaders_are_where_leader_only_has_them() {
    let mut view = spread_out(&[NVM, HIGH, HIGH, PLAIN, PLAIN, PLAIN], 60, 10 * MB);
    settle(&mut view, Policy::Alor, &limits(), 2000);
    for region in &view.regions {
        let speed = |store| view.store(store).unwrap().capability.speed();
        let best = region.peers.iter().map(|peer| speed(peer.store)).max().unwrap();
        assert_eq!(speed(region.leader.unwrap()), best, "region {}", region.id);
    }
}

/// A store filled to 99% with regions of 3 MB, from hot to cold, and two empty stores of almost no
/// weight. Data moves there only for lack of space.
fn full_store() -> ClusterView {
    let mut view = cluster(&[NVM, PLAIN, PLAIN], Vec::new());
    view.replicas = 1;
    for store in &mut view.stores {
        store.capacity_bytes = 100 * MB;
        store.data_weight = Some(if store.id == 0 { 1e6 } else { 1.0 });
    }
    view.regions = (1..=33)
        .map(|id| RegionView { bytes: 3 * MB, heat: ((id * 7) % 33) as f64, ..region(id, 0, &[0]) })
        .collect();
    fill_up(&mut view);
    view
}

#[test]
fn above_its_threshold_a_store_sheds_the_coldest_until_below_the_band_and_then_stops() {
    let mut view = full_store();
    let mut last_heat = -1.0;
    let mut shed = 0;
    let one = PlanLimits { in_flight_max: 1, ..limits() };
    loop {
        remember_shedding(&mut view, &one);
        let operators = plan(&view, Policy::Alor, &one);
        let Some(operator) = operators.first() else { break };
        if let (Operator::MovePeer { region, from: 0, .. }, Reason::Full { .. }) =
            (operator, operator.reason())
        {
            let region = view.region(*region).unwrap();
            let left = view.regions.iter().filter(|other| other.peers[0].store == 0);
            let coldest = left.map(|other| other.heat).fold(f64::INFINITY, f64::min);
            assert_eq!(region.heat, coldest, "of what is left, the coldest");
            assert!(region.heat > last_heat);
            (last_heat, shed) = (region.heat, shed + 1);
        }
        execute(&mut view, operator);
    }
    assert_eq!((shed, view.stores[0].used_bytes), (3, 90 * MB), "three of 3 MB, from 99 to the lower end");
    assert!(!sheds(&view.stores[0], &one));
}

/// The paper's cluster, full, with regions under equal load, so that noise decides which is the
/// coldest. All regions were on three fast stores, and each of these stores must shed half of them.
/// No region may end up only on slow stores.
#[test]
fn of_regions_as_cold_none_is_left_without_a_fast_store() {
    for seed in 0..50 {
        let mut view = cluster(&[NVM, HIGH, HIGH, PLAIN, PLAIN, PLAIN], Vec::new());
        let peers: [StoreId; 3] = [0, 1, 2];
        view.regions = (1..=24)
            .map(|id| RegionView {
                bytes: 10 * MB,
                heat: 100.0 + ((id * (seed + 5)) % 9) as f64,
                ..region(id, 0, &peers)
            })
            .collect();
        view.stores.iter_mut().for_each(|store| store.capacity_bytes = 150 * MB);
        fill_up(&mut view);
        settle(&mut view, Policy::Alor, &limits(), 200);
        for region in &view.regions {
            let fast = region.peers.iter().filter(|peer| peer.store < 3).count();
            assert!(fast > 0, "seed {seed}: region {} is only on slow stores", region.id);
        }
        let held = data(&view);
        assert!((0..3).all(|store| held[&store] <= 140 * MB), "seed {seed}: {held:?}");
    }
}

#[test]
fn a_store_at_its_threshold_sheds_nothing() {
    let mut view = full_store();
    // This is 95 MB, exactly the threshold.
    view.regions.truncate(31);
    view.regions[0].bytes = 5 * MB;
    fill_up(&mut view);
    assert_eq!(view.stores[0].used_bytes, 95 * MB);
    assert_eq!(plan(&view, Policy::Alor, &limits()), []);
    view.regions[0].bytes += 1;
    fill_up(&mut view);
    assert!(!plan(&view, Policy::Alor, &limits()).is_empty());
}

#[test]
fn when_no_store_is_below_weights_are_normal_again() {
    let mut view = full_store();
    for (store, id) in [(1, 34), (2, 35)] {
        view.regions.push(RegionView { bytes: 96 * MB, heat: 1.0, ..region(id, store, &[store]) });
    }
    fill_up(&mut view);
    assert!(view.stores.iter().all(|store| sheds(store, &limits())));
    assert_eq!(plan(&view, Policy::Alor, &limits()), [], "nowhere to shed to, and the reserve is kept");
}

/// "All stores may have the same capacity, so fast ones fill first." Then the others take the rest:
/// no write fails for lack of space while a store has room.
#[test]
fn as_data_grows_fast_stores_fill_first_and_none_overflows_while_one_has_room() {
    let mut view = spread_out(&[NVM, HIGH, HIGH, PLAIN, PLAIN, PLAIN], 120, 0);
    for store in &mut view.stores {
        store.capacity_bytes = 5_000 * MB;
    }
    let mut fastest_was_ahead = false;
    // The data grows up to 90% of the total capacity. Beyond that no store is below the band.
    while data(&view).values().sum::<u64>() < 27_000 * MB {
        for region in &mut view.regions {
            region.bytes += MB / 2;
        }
        fill_up(&mut view);
        settle(&mut view, Policy::Alor, &limits(), 2000);
        let used: Vec<u64> = view.stores.iter().map(|store| store.used_bytes).collect();
        fastest_was_ahead |= used[0] > 4_000 * MB && used[3] < 2_000 * MB;
        assert!(used.iter().all(|used| *used <= 4_900 * MB), "{used:?}");
    }
    assert!(fastest_was_ahead);
    let data = data(&view);
    assert!(data.values().all(|bytes| *bytes > 4_000 * MB), "all stores end about equally full: {data:?}");
}
