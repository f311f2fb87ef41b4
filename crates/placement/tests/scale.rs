//! Measures one planning round at the size that placement is designed for: 1,000 stores and
//! 1,000,000 regions. Run it with `make bench-plan`.

mod support;

use std::time::Instant;

use steelyard_placement::{
    plan, Capability, ClusterView, PlanLimits, Policy, RegionView, StoreState, StoreView,
};
use support::*;
use types::Draw;

const STORES: u64 = 1_000;
const REGIONS: u64 = 1_000_000;

/// Regions under load with random sizes and three random peers each. The stores are in 20 zones and
/// have three different speeds.
fn large(leader: impl Fn(u64, &[u64]) -> u64) -> ClusterView {
    let mut draw = Draw::new(1);
    let regions = (1..=REGIONS)
        .map(|id| {
            let mut peers = Vec::new();
            while peers.len() < 3 {
                let store = draw.below(STORES);
                if !peers.iter().any(|peer| peer % 20 == store % 20) {
                    peers.push(store);
                }
            }
            peers.sort_unstable();
            let (write_rate, read_rate) = (draw.below(100) as f64, draw.below(100) as f64);
            RegionView {
                bytes: 50_000_000 + draw.below(50_000_000),
                write_rate,
                read_rate,
                miss_rate: read_rate,
                write_bytes_rate: write_rate * 1000.0,
                heat: write_rate + read_rate,
                ..region(id, leader(id, &peers), &peers)
            }
        })
        .collect();
    let speeds: Vec<u64> = (0..STORES).map(|id| [625, 250, 62][id as usize % 3] * 1_000_000).collect();
    let mut view = cluster(&speeds, regions);
    view.domain_label = Some("zone".into());
    for store in &mut view.stores {
        store.labels.insert("zone".into(), (store.id % 20).to_string());
        store.capability.ops_per_s = store.capability.kv_bytes_per_s / 1000.0;
    }
    fill_up(&mut view);
    view
}

#[allow(clippy::disallowed_methods)] // This test measures time.
fn time(name: &str, view: &ClusterView, policy: Policy, limits: &PlanLimits) {
    let began = Instant::now();
    let operators = plan(view, policy, limits);
    println!("{name}: {policy}: {} operators in {:?}", operators.len(), began.elapsed());
}

#[test]
#[ignore = "measures; asserts nothing"]
fn one_round_at_full_size() {
    let lowest = large(|_, peers| peers[0]);
    let spread_out = large(|id, peers| peers[id as usize % peers.len()]);
    // As under `leader-only`, the slow third of the stores leads almost nothing.
    let fastest = large(|_, peers| *peers.iter().min_by_key(|&&store| store % 3).unwrap());
    // Ten stores are lost, ten drain and ten are empty.
    let mut troubled = spread_out.clone();
    for at in 0..10 {
        troubled.stores[at].state = StoreState::Lost;
        troubled.stores[at + 10].state = StoreState::Draining;
        troubled.stores.push(StoreView { id: STORES + at as u64, ..troubled.stores[at + 20].clone() });
    }
    // The stores have equal capability and no load: almost nothing must be done, but everything is
    // examined.
    let mut calm = spread_out.clone();
    calm.stores.iter_mut().for_each(|store| store.capability = Capability::UNKNOWN);
    for region in &mut calm.regions {
        (region.write_rate, region.write_bytes_rate) = (0.0, 0.0);
        (region.read_rate, region.miss_rate) = (0.0, 0.0);
    }
    // Two thirds of the stores are shedding and the others are almost full.
    let mut full = spread_out.clone();
    for store in &mut full.stores {
        let percent = if store.id % 3 == 0 { 84 } else { 92 };
        (store.capacity_bytes, store.shedding) = (store.used_bytes / percent * 100, percent > 90);
    }
    // No store has room for a copy, even one that replaces another: pairs are weighed without
    // result.
    let mut tight = fastest.clone();
    for store in &mut tight.stores {
        store.capacity_bytes = store.used_bytes / 95 * 100 + 1000;
        store.sync_ns = [5_000, 20_000, 1_000_000][store.id as usize % 3];
    }
    let views = [
        ("leaders on the lowest ids", lowest),
        ("leaders at random", spread_out),
        ("leaders on the fastest", fastest),
        ("stores lost, draining and empty", troubled),
        ("equal and idle", calm),
    ];
    for policy in Policy::ALL {
        for (name, view) in &views {
            time(name, view, policy, &PlanLimits::default());
        }
        time("stores without room", &tight, policy, &PlanLimits::default());
        // Leaders may not move, so that budget for other operators is left.
        time("full stores", &full, policy, &PlanLimits { per_target_max: 0, ..PlanLimits::default() });
    }
}
