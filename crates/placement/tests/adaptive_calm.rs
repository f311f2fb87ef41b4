//! `adaptive` acts on measurements, which differ each time. A small difference must cause no move,
//! and a lasting change must be followed once.

mod support;

use steelyard_placement::{Capability, ClusterView, PlanLimits, Policy, RegionView};
use support::*;
use types::Draw;

/// Returns a number from −1 to 1.
fn swing(draw: &mut Draw) -> f64 {
    2.0 * draw.fraction() - 1.0
}

/// Six stores as in the paper's cluster, with regions on neighbouring stores under a skewed load.
fn loaded(speeds: &[u64], regions: u64, skew: f64) -> ClusterView {
    let stores = speeds.len() as u64;
    let regions = (0..regions).map(|at| {
        let mut peers = [at % stores, (at + 1) % stores, (at + 2) % stores];
        peers.sort_unstable();
        let part = 1.0 / (1.0 + (at * 7 % regions) as f64).powf(skew);
        let (write_rate, read_rate) = (20_000.0 * part, 20_000.0 * part);
        RegionView {
            bytes: 50_000_000,
            write_rate,
            read_rate,
            miss_rate: read_rate,
            write_bytes_rate: write_rate * 1000.0,
            heat: write_rate + read_rate,
            ..region(at + 1, at % stores, &peers)
        }
    });
    let mut view = cluster(speeds, regions.collect());
    for store in &mut view.stores {
        store.capability.ops_per_s = store.capability.kv_bytes_per_s / 1000.0;
    }
    fill_up(&mut view);
    view
}

/// Returns the number of moves in `rounds` rounds. In each round every rate and capability is off
/// by up to the fraction `noise`.
fn moves_under_noise(view: &ClusterView, noise: f64, rounds: usize) -> usize {
    let mut draw = Draw::new(3);
    let mut view = view.clone();
    let calm = view.clone();
    let mut moves = 0;
    for _ in 0..rounds {
        for (region, calm) in view.regions.iter_mut().zip(&calm.regions) {
            let factor = 1.0 + noise * swing(&mut draw);
            region.write_rate = calm.write_rate * factor;
            region.write_bytes_rate = calm.write_bytes_rate * factor;
            region.read_rate = calm.read_rate * (1.0 + noise * swing(&mut draw));
            region.miss_rate = region.read_rate;
        }
        for (store, calm) in view.stores.iter_mut().zip(&calm.stores) {
            let factor = 1.0 + noise / 2.0 * swing(&mut draw);
            let Capability { kv_bytes_per_s, ops_per_s } = calm.capability;
            store.capability =
                Capability { kv_bytes_per_s: kv_bytes_per_s * factor, ops_per_s: ops_per_s * factor };
            // Sync times measured for one second scatter more.
            store.sync_ns = (calm.sync_ns as f64 * (1.0 + 10.0 * noise * swing(&mut draw))) as u64;
        }
        let operators = steelyard_placement::plan(&view, Policy::Adaptive, &PlanLimits::default());
        moves += operators.len();
        operators.iter().for_each(|operator| execute(&mut view, operator));
    }
    moves
}

const MB: u64 = 1_000_000;
const PAPER: [u64; 6] = [625 * MB, 250 * MB, 250 * MB, 62 * MB, 62 * MB, 62 * MB];
const EQUAL: [u64; 6] = [250 * MB; 6];

/// The speeds of the stores, and the skew of the load.
const CASES: [(&str, [u64; 6], f64); 4] = [
    ("paper", PAPER, 0.0),
    ("paper, skewed", PAPER, 0.6),
    ("equal", EQUAL, 0.0),
    ("equal, skewed", EQUAL, 0.6),
];

#[test]
fn noise_moves_next_to_nothing() {
    for (name, speeds, skew) in CASES {
        for regions in [48, 480] {
            let mut view = loaded(&speeds, regions, skew);
            let first = settle(&mut view, Policy::Adaptive, &PlanLimits::default(), 2000);
            let moves = moves_under_noise(&view, 0.03, 300);
            println!("{name}, {regions} regions: {first} moves to settle, {moves} in 300 rounds of noise");
            assert!(moves <= regions as usize / 12, "{name}: {moves} moves in 300 rounds of noise");
        }
    }
}

/// No store takes a copy and sync times are known, so peers can only change places.
#[test]
fn on_full_stores_noise_moves_next_to_nothing() {
    for (name, speeds, skew) in CASES {
        for regions in [48, 480] {
            // The load is so small that no store needs relief.
            let mut view = loaded(&speeds, regions, skew);
            let part = 4.8 / regions as f64;
            for region in &mut view.regions {
                region.write_rate *= part;
                region.write_bytes_rate *= part;
                region.read_rate *= part;
                region.miss_rate *= part;
            }
            for store in &mut view.stores {
                store.capacity_bytes = store.used_bytes * 100 / 86;
                store.sync_ns = match store.capability.speed() / MB {
                    625 => 20_000,
                    250 => 150_000,
                    _ => 1_000_000,
                };
            }
            let first = settle(&mut view, Policy::Adaptive, &PlanLimits::default(), 2000);
            assert!(first > 0 || name.starts_with("equal"), "{name}: there is something to gain");
            let moves = moves_under_noise(&view, 0.03, 300);
            println!(
                "full, {name}, {regions} regions: {first} moves to settle, {moves} in 300 rounds of noise"
            );
            assert!(moves <= regions as usize / 12, "{name}: {moves} moves in 300 rounds of noise");
        }
    }
}

#[test]
fn on_equal_stores_under_an_even_load_nothing_moves_that_even_would_not() {
    let mut view = loaded(&EQUAL, 48, 0.0);
    settle(&mut view, Policy::Even, &PlanLimits::default(), 2000);
    assert_eq!(settle(&mut view, Policy::Adaptive, &PlanLimits::default(), 10), 0);
}
