//! Identical stores, measured by a probe with noise, count as equal under every policy. Also tests
//! that an idle cluster keeps its leaders.

mod support;

use steelyard_placement::{explain_store, rate, Capability, ClusterView, PlanLimits, Policy, Spread};
use support::*;
use types::StoreId;

const MB: f64 = 1e6;
const BY_SPEED: [Policy; 3] = [Policy::LeaderOnly, Policy::Alor, Policy::Adaptive];

/// Empty regions with three peers each on neighbouring stores. The peer on the lowest store leads.
fn measured(mb_per_s: &[f64], spread: f64, regions: u64) -> ClusterView {
    let stores = mb_per_s.len() as u64;
    let regions = (0..regions).map(|at| {
        let mut peers = [at % stores, (at + 1) % stores, (at + 2) % stores];
        peers.sort_unstable();
        region(at + 1, peers[0], &peers)
    });
    let mut view = cluster(&vec![1; mb_per_s.len()], regions.collect());
    for (store, &mb) in view.stores.iter_mut().zip(mb_per_s) {
        store.capability = Capability { kv_bytes_per_s: mb * MB, ops_per_s: mb * 1000.0 };
        store.spread = Spread::all(spread);
    }
    view
}

fn leads(view: &ClusterView) -> Vec<u32> {
    leader_counts(view).into_values().collect()
}

fn peers(view: &ClusterView) -> Vec<u32> {
    peer_counts(view).into_values().collect()
}

/// Measured speeds in MB/s of four stores on one disk, from three real probes.
const PROBED: [[f64; 4]; 3] =
    [[100.0, 513.0, 356.0, 512.0], [248.0, 314.0, 76.0, 452.0], [200.0, 177.0, 503.0, 476.0]];

#[test]
fn equal_stores_that_were_measured_unequal_lead_and_hold_alike() {
    for probed in PROBED {
        for policy in BY_SPEED {
            let mut view = measured(&probed, 2.3, 16);
            settle(&mut view, policy, &PlanLimits::default(), 100);
            assert_eq!(leads(&view), [4; 4], "{policy} {probed:?}");
            assert_eq!(peers(&view), [12; 4], "{policy} {probed:?}");
            // A configured number is taken as exact.
            let mut view = measured(&probed, 1.0, 16);
            settle(&mut view, policy, &PlanLimits::default(), 100);
            assert!(leads(&view).contains(&0), "{policy} {probed:?} {:?}", leads(&view));
        }
    }
}

#[test]
fn syncs_that_were_measured_unequal_make_no_store_another() {
    let mut view = measured(&[300.0, 310.0, 320.0, 330.0], 1.2, 16);
    for (store, us) in view.stores.iter_mut().zip([160, 44, 116, 56]) {
        store.sync_ns = us * 1000;
        store.spread.sync = 2.0;
    }
    settle(&mut view, Policy::Adaptive, &PlanLimits::default(), 100);
    assert_eq!((leads(&view), peers(&view)), (vec![4; 4], vec![12; 4]));
}

#[test]
fn unequal_stores_that_are_measured_lie_as_those_that_were_told() {
    // The cluster is 1N2H3P, with a probe that is off by up to 15%.
    let told = [765.0, 312.0, 312.0, 68.0, 68.0, 68.0];
    let probed = [700.0, 340.0, 290.0, 61.0, 75.0, 68.0];
    for policy in BY_SPEED {
        let [told, probed] = [(told, 1.0), (probed, 1.2)].map(|(speeds, spread)| {
            let mut view = measured(&speeds, spread, 48);
            settle(&mut view, policy, &PlanLimits::default(), 1000);
            view
        });
        assert_eq!(leads(&told)[0], peers(&told)[0], "{policy}: the fastest leads all that it has");
        let layouts = [&told, &probed].map(|view| (leads(view), peers(view)));
        let off = |a: &[u32], b: &[u32]| a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(off(&layouts[0].0, &layouts[1].0) <= Some(1), "{policy}: {layouts:?}");
        // If the number of a class changes by a tenth, its share of the data changes.
        assert!(off(&layouts[0].1, &layouts[1].1) <= Some(5), "{policy}: {layouts:?}");
        for class in [&peers(&probed)[1..3], &peers(&probed)[3..6]] {
            assert!(class.iter().max().unwrap() - class.iter().min().unwrap() <= 1, "{policy}: {class:?}");
        }
    }
}

#[test]
fn a_store_that_is_not_measured_yet_loses_nothing_to_those_that_are() {
    for policy in BY_SPEED {
        let mut view = measured(&[300.0, 310.0, 1e-6, 330.0], 1.2, 16);
        view.stores[2].capability = Capability::UNKNOWN;
        view.stores[2].spread = Spread::UNKNOWN;
        settle(&mut view, policy, &PlanLimits::default(), 100);
        assert_eq!((leads(&view), peers(&view)), (vec![4; 4], vec![12; 4]), "{policy}");
    }
}

/// Passes the classes of the last round back in the view, as the caller of `plan` does.
fn remember(view: &mut ClusterView) {
    let ratings = rate(&view.stores);
    for (store, rating) in view.stores.iter_mut().zip(ratings) {
        store.previous = rating.classes;
    }
}

#[test]
fn a_probe_that_comes_out_a_little_further_off_moves_nothing() {
    for policy in BY_SPEED {
        let mut view = measured(&[300.0, 310.0, 320.0, 330.0], 1.1, 16);
        settle(&mut view, policy, &PlanLimits::default(), 100);
        for mb in [220.0, 230.0, 220.0, 300.0, 440.0, 450.0, 440.0] {
            remember(&mut view);
            view.stores[3].capability = Capability { kv_bytes_per_s: mb * MB, ops_per_s: mb * 1000.0 };
            let moves = settle(&mut view, policy, &PlanLimits::default(), 100);
            assert_eq!(moves, 0, "{policy}: {mb}");
        }
        remember(&mut view);
        view.stores[3].capability.kv_bytes_per_s = 1500.0 * MB;
        assert!(settle(&mut view, policy, &PlanLimits::default(), 100) > 0, "{policy}: surely faster");
        assert_eq!(leads(&view)[3], peers(&view)[3], "{policy}: it leads all that it has");
        // Once two stores are apart, they stay apart until they are closer.
        for mb in [450.0, 440.0, 450.0] {
            remember(&mut view);
            view.stores[3].capability = Capability { kv_bytes_per_s: mb * MB, ops_per_s: mb * 1000.0 };
            let limits = PlanLimits { data_moves_max: 0, ..PlanLimits::default() };
            assert_eq!(settle(&mut view, policy, &limits, 100), 0, "{policy}: {mb}");
        }
    }
}

/// Four stores with data and without load.
fn idle(mb_per_s: &[f64], spread: f64) -> ClusterView {
    let mut view = measured(mb_per_s, spread, 16);
    view.regions.iter_mut().for_each(|region| region.bytes = 50_000_000);
    fill_up(&mut view);
    settle(&mut view, Policy::Even, &PlanLimits::default(), 100);
    assert_eq!(leads(&view), [4; 4]);
    view
}

#[test]
fn capability_alone_moves_no_leader_of_an_idle_cluster() {
    for (speeds, spread) in [([300.0, 310.0, 320.0, 330.0], 1.2), ([700.0, 300.0, 70.0, 65.0], 1.1)] {
        let mut view = idle(&speeds, spread);
        let leaders = |view: &ClusterView| -> Vec<Option<StoreId>> {
            view.regions.iter().map(|region| region.leader).collect()
        };
        let before = leaders(&view);
        // Peers do not move: otherwise data would follow the weights, and a leader's peer might
        // move with it.
        let limits = PlanLimits { data_moves_max: 0, ..PlanLimits::default() };
        settle(&mut view, Policy::Adaptive, &limits, 100);
        assert_eq!(leaders(&view), before, "{speeds:?}");
        // A store slows down, or is measured again, while the cluster is idle.
        for store in 0..4 {
            let able = view.stores[store].capability;
            view.stores[store].capability.kv_bytes_per_s /= 5.0;
            view.stores[store].sync_ns = 10_000_000;
            assert_eq!(settle(&mut view, Policy::Adaptive, &limits, 100), 0, "{speeds:?}: {store}");
            view.stores[store].capability = able;
            view.stores[store].sync_ns = 0;
        }
        // Regions under load are led from the store with the shortest wait for their writes.
        for region in &mut view.regions {
            (region.write_rate, region.write_bytes_rate) = (10.0, 10_000.0);
        }
        let moves = settle(&mut view, Policy::Adaptive, &limits, 100);
        assert_eq!(moves > 0, spread == 1.1, "{speeds:?}: {moves}");
        if spread == 1.1 {
            assert_eq!(leads(&view)[0], 12, "all that it has: {:?}", leads(&view));
        }
    }
}

#[test]
fn leaders_of_an_idle_cluster_are_evened_out_within_a_class() {
    let mut view = idle(&[700.0, 300.0, 310.0, 320.0], 1.1);
    for region in &mut view.regions {
        // The state after store 0 was down: its regions are led by their next peers.
        region.leader = region.peers.iter().map(|peer| peer.store).find(|store| *store != 0);
    }
    assert_eq!(leads(&view), [0, 12, 4, 0]);
    let limits = PlanLimits { data_moves_max: 0, ..PlanLimits::default() };
    settle(&mut view, Policy::Adaptive, &limits, 100);
    let leads = leads(&view);
    assert!(leads[1..].iter().all(|leads| (3..=5).contains(leads)), "{leads:?}");
}

#[test]
fn an_explanation_says_which_stores_count_as_equal_and_why() {
    let mut view = measured(&[100.0, 513.0, 356.0, 512.0], 2.3, 16);
    let said = |view: &ClusterView, store| {
        let explained = explain_store(view, Policy::Adaptive, &PlanLimits::default(), store).unwrap();
        explained.to_string().lines().find(|line| line.contains("counts for")).map(str::to_owned)
    };
    assert_eq!(
        said(&view, 0).unwrap(),
        "  measured to within a factor of 2.30; counts for 434.0 MB/s; equal to store 1, 2, 3: none of them is \
         surely 1.25 times as fast as another"
    );
    view.stores[0].spread = Spread::all(1.1);
    view.stores[0].capability.kv_bytes_per_s = 10.0 * MB;
    assert_eq!(
        said(&view, 0).unwrap(),
        "  measured to within a factor of 1.10; counts for 10.0 MB/s; no other store is as fast, or as slow, within \
         1.25 times"
    );
    view.stores[0].spread = Spread::UNKNOWN;
    assert_eq!(
        said(&view, 0).unwrap(),
        "  not measured yet: counts for 512.0 MB/s, as the slowest of those that are known"
    );
    assert_eq!(said(&measured(&[100.0; 4], 1.0, 16), 0), None, "a configured number needs no explanation");
}
