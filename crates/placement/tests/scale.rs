//! How long one round takes at the size that placement is meant for: 1,000 stores, 1,000,000 regions.
//! `cargo test --release -p steelyard-placement --test scale -- --ignored --nocapture`

mod support;

use std::time::Instant;

use steelyard_placement::{plan, ClusterView, PlanLimits, Policy};
use support::*;

const STORES: u64 = 1_000;
const REGIONS: u64 = 1_000_000;

fn large(leader: impl Fn(u64, &[u64]) -> u64) -> ClusterView {
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let regions = (1..=REGIONS)
        .map(|id| {
            let mut peers = vec![random(STORES), random(STORES), random(STORES)];
            peers.sort_unstable();
            peers.dedup();
            region(id, leader(id, &peers), &peers)
        })
        .collect();
    let speeds: Vec<u64> = (0..STORES).map(|id| [625, 250, 62][id as usize % 3] * 1_000_000).collect();
    cluster(&speeds, regions)
}

#[allow(clippy::disallowed_methods)] // It measures.
fn time(name: &str, view: &ClusterView, policy: Policy) {
    let began = Instant::now();
    let operators = plan(view, policy, &PlanLimits::default());
    println!("{name}: {policy}: {} operators in {:?}", operators.len(), began.elapsed());
}

#[test]
#[ignore = "measures; asserts nothing"]
fn one_round_at_full_size() {
    let lowest = large(|_, peers| peers[0]);
    let spread_out = large(|id, peers| peers[id as usize % peers.len()]);
    // As under `leader-only`: the slow third leads next to nothing.
    let fastest = large(|_, peers| *peers.iter().min_by_key(|&&store| store % 3).unwrap());
    for policy in Policy::ALL {
        time("leaders on the lowest ids", &lowest, policy);
        time("leaders at random", &spread_out, policy);
        time("leaders on the fastest", &fastest, policy);
    }
}
