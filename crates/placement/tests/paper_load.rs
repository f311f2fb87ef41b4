//! A model of the paper's load on the paper's cluster (ALOR §4.2) that counts the copies of each
//! policy during the load. Six stores of equal capacity have a quarter of headroom. There are three
//! copies, and the data grows evenly in all regions. Copies take a bounded part of the time in
//! which data is loaded.

mod support;

use steelyard_placement::{plan, Capability, ClusterView, PlanLimits, Policy, RegionView};
use support::*;

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;
const REGIONS: u64 = 120;
const LOADED: u64 = 10 * GB;
const CAPACITY: u64 = 5 * GB * 5 / 4;

fn beginning() -> ClusterView {
    let speeds = [625, 250, 250, 62, 62, 62].map(|speed| speed * 1_000_000u64);
    let regions = (0..REGIONS).map(|at| {
        let mut peers = [at % 6, (at + 1 + at / 6 % 2) % 6, (at + 3) % 6];
        peers.sort_unstable();
        RegionView { heat: (1 + at * 37 % REGIONS) as f64, ..region(at + 1, at % 6, &peers) }
    });
    let mut view = cluster(&speeds, regions.collect());
    for store in &mut view.stores {
        store.capacity_bytes = CAPACITY;
        store.capability = Capability { ops_per_s: 1e5, ..store.capability };
    }
    view
}

struct Copied {
    empty_moves: usize,
    moves: usize,
    bytes: u64,
    fullest_percent: u64,
}

/// Loads the data under a policy. With `before`, the layout is established while the cluster is
/// empty.
fn load(policy: Policy, before: bool) -> Copied {
    let limits = PlanLimits::default();
    let mut view = beginning();
    let mut copied = Copied { empty_moves: 0, moves: 0, bytes: 0, fullest_percent: 0 };
    if before {
        copied.empty_moves = settle(&mut view, policy, &limits, 5000);
    }
    // While 60 MB are loaded, at most two regions leave each store and two arrive.
    let step = 60 * MB / REGIONS;
    while view.regions[0].bytes * REGIONS < LOADED {
        for region in &mut view.regions {
            region.bytes += step;
            region.write_bytes_rate = step as f64;
            region.write_rate = step as f64 / 1000.0;
        }
        fill_up(&mut view);
        remember_shedding(&mut view, &limits);
        for operator in plan(&view, policy, &limits) {
            if operator.moves_data() {
                copied.moves += 1;
                copied.bytes += view.region(operator.region()).unwrap().bytes;
            }
            execute(&mut view, &operator);
        }
        let fullest = view.stores.iter().map(|store| store.used_bytes * 100 / CAPACITY).max().unwrap();
        copied.fullest_percent = copied.fullest_percent.max(fullest);
    }
    let moves = settle(&mut view, policy, &limits, 5000);
    copied.moves += moves;
    assert!(data(&view).values().all(|held| held * 100 <= CAPACITY * 95), "{policy}: {:?}", data(&view));
    copied
}

#[test]
fn what_is_copied_is_a_part_of_what_is_loaded() {
    for before in [true, false] {
        for policy in Policy::ALL {
            let Copied { empty_moves, moves, bytes, fullest_percent } = load(policy, before);
            println!(
                "| {policy} | {} | {empty_moves} | {moves} | {:.1} GB | {fullest_percent}% |",
                if before { "while empty" } else { "as it is loaded" },
                bytes as f64 / GB as f64
            );
            assert!(fullest_percent <= 98, "{policy}");
            assert!(bytes <= 3 * LOADED / 2, "{policy}: half of all copies at the most");
        }
    }
}
