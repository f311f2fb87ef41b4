use std::collections::BTreeSet;

use types::{RegionEpoch, SLOT_COUNT};

use super::*;

fn plan(stores: u64, regions: u16, replicas: usize) -> Vec<RegionDescriptor> {
    bootstrap_plan(&Layout { stores: (0..stores).collect(), regions, replicas })
}

fn spread(counts: impl IntoIterator<Item = u32>) -> u32 {
    let counts: Vec<u32> = counts.into_iter().collect();
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

const SHAPES: [(u64, u16, usize); 12] = [
    (1, 1, 3),
    (2, 5, 3),
    (3, 1, 3),
    (3, 48, 3),
    (4, 10, 3),
    (5, 7, 3),
    (6, 12, 3),
    (6, 48, 3),
    (7, 100, 3),
    (9, 64, 5),
    (12, 1000, 3),
    (50, 2000, 3),
];

#[test]
fn regions_cover_every_slot_once_and_the_meta_region_none() {
    for (stores, regions, replicas) in SHAPES {
        let plan = plan(stores, regions, replicas);
        assert_eq!(plan.len(), usize::from(regions) + 1);
        assert_eq!((plan[0].id, plan[0].slots), (META_REGION, None));
        let mut next = 0;
        for (region, id) in plan[1..].iter().zip(1..) {
            assert_eq!(region.id, id);
            let slots = region.slots.unwrap();
            assert_eq!(slots.first, next);
            next = slots.last + 1;
        }
        assert_eq!(next, SLOT_COUNT);
    }
}

#[test]
fn every_region_has_its_peers_on_different_stores() {
    for (stores, regions, replicas) in SHAPES {
        for region in plan(stores, regions, replicas) {
            let wanted = if region.id == META_REGION { 3 } else { replicas };
            assert_eq!(region.peers.len(), wanted.min(stores as usize));
            assert!(region.peers.windows(2).all(|pair| pair[0].store < pair[1].store));
            assert!(region.peers.iter().all(|peer| peer.role == PeerRole::Voter && peer.store < stores));
        }
    }
}

#[test]
fn the_meta_region_is_on_the_first_three_stores() {
    let stores = |n| plan(n, 1, 3)[0].voters().collect::<Vec<_>>();
    assert_eq!(stores(1), [0]);
    assert_eq!(stores(2), [0, 1]);
    assert_eq!(stores(6), [0, 1, 2]);
}

#[test]
fn peers_are_equal_in_number_over_the_stores() {
    for (stores, regions, replicas) in SHAPES {
        let plan = plan(stores, regions, replicas);
        let peers = |store| plan[1..].iter().filter(|region| region.has_peer_on(store)).count() as u32;
        assert!(spread((0..stores).map(peers)) <= 1, "{stores} stores, {regions} regions");
    }
}

#[test]
fn any_two_stores_share_about_as_many_regions_as_any_other_two() {
    for (stores, regions, replicas) in SHAPES.into_iter().filter(|shape| shape.0 > 1) {
        let plan = plan(stores, regions, replicas);
        let pairs = (0..stores).flat_map(|a| (a + 1..stores).map(move |b| (a, b)));
        let shared = |(a, b)| {
            plan[1..].iter().filter(|region| region.has_peer_on(a) && region.has_peer_on(b)).count() as u32
        };
        let spread = spread(pairs.map(shared));
        assert!(spread <= 2, "{stores} stores, {regions} regions: {spread}");
    }
}

#[test]
fn first_leaders_are_even_and_are_peers() {
    for (stores, regions, replicas) in SHAPES {
        let plan = plan(stores, regions, replicas);
        let leaders = first_leaders(&plan);
        assert_eq!(leaders.len(), usize::from(regions));
        assert!(plan[1..].iter().all(|region| region.has_peer_on(leaders[&region.id])));
        let counts =
            (0..stores).map(|store| leaders.values().filter(|&&leader| leader == store).count() as u32);
        assert!(spread(counts) <= 1, "{stores} stores, {regions} regions");
    }
}

/// A store uses this layout to find its peers at every start, so a different result would be a
/// different cluster.
#[test]
fn the_layout_of_given_inputs_never_changes() {
    let peers = |plan: &[RegionDescriptor]| -> Vec<Vec<u64>> {
        plan.iter().map(|region| region.voters().collect()).collect()
    };
    let six = plan(6, 8, 3);
    assert_eq!(
        peers(&six),
        [[0, 1, 2], [1, 2, 4], [1, 4, 5], [0, 1, 3], [0, 2, 5], [0, 3, 4], [2, 3, 5], [0, 1, 5], [2, 3, 4]]
    );
    assert!(six.iter().all(|region| region.epoch == RegionEpoch { conf_version: 1, version: 1 }));
    let digest = peers(&plan(7, 500, 3))
        .into_iter()
        .flatten()
        .fold(0u64, |digest, store| types::key_hash(&(digest ^ store).to_be_bytes()));
    assert_eq!(digest, 11058671819528896731);
}

#[test]
fn stores_need_not_be_numbered_without_gaps() {
    let layout = Layout { stores: vec![3, 17, 40_000, u64::MAX], regions: 20, replicas: 3 };
    let plan = bootstrap_plan(&layout);
    let used: BTreeSet<StoreId> = plan.iter().flat_map(|region| region.voters()).collect();
    assert_eq!(used.into_iter().collect::<Vec<_>>(), layout.stores);
    assert_eq!(first_leaders(&plan).len(), 20);
}
