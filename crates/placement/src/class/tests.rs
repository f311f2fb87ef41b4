use proptest::prelude::*;

use super::*;

fn store(id: StoreId, value: f64, spread: f64) -> StoreView {
    StoreView {
        id,
        capability: Capability { kv_bytes_per_s: value, ops_per_s: value },
        spread: Spread::all(spread),
        ..StoreView::default()
    }
}

fn stores(values: &[(f64, f64)]) -> Vec<StoreView> {
    values.iter().zip(0..).map(|(&(value, spread), id)| store(id, value, spread)).collect()
}

/// Returns the write class of each store, named by its lowest id.
fn classes(stores: &[StoreView]) -> Vec<Option<StoreId>> {
    rate(stores).iter().map(|rating| rating.classes.writes).collect()
}

fn values(stores: &[StoreView]) -> Vec<f64> {
    rate(stores).iter().map(|rating| rating.capability.kv_bytes_per_s).collect()
}

fn of(values: &[(f64, f64)]) -> Vec<u64> {
    classes(&stores(values)).into_iter().map(Option::unwrap).collect()
}

#[test]
fn what_overlaps_counts_as_equal_and_for_the_median() {
    let four = stores(&[(100.0, 1.6), (513.0, 1.6), (356.0, 1.6), (150.0, 1.6)]);
    assert_eq!(classes(&four), [Some(0), Some(1), Some(1), Some(0)], "the ends are apart: {four:?}");
    let four = stores(&[(308.0, 1.2), (413.0, 1.2), (350.0, 1.2), (320.0, 1.2)]);
    assert_eq!(classes(&four), [Some(0); 4]);
    assert_eq!(values(&four), [335.0; 4]);
    assert_eq!(values(&four[..3]), [350.0; 3]);
}

#[test]
fn told_numbers_are_apart_whenever_they_differ_and_count_as_they_are() {
    let told = stores(&[(100.0, 1.0), (101.0, 1.0), (100.0, 1.0), (0.0, 1.0)]);
    assert_eq!(classes(&told), [Some(0), Some(1), Some(0), Some(3)]);
    assert_eq!(values(&told), [100.0, 101.0, 100.0, 0.0]);
}

#[test]
fn a_measured_store_joins_the_nearer_told_one_and_counts_for_what_that_was_told() {
    let mixed = stores(&[(100.0, 1.0), (118.0, 1.2), (130.0, 1.0)]);
    assert_eq!(classes(&mixed), [Some(0), Some(1), Some(1)]);
    assert_eq!(values(&mixed), [100.0, 130.0, 130.0]);
}

#[test]
fn a_chain_of_overlapping_estimates_is_cut_at_its_widest_gap() {
    assert_eq!(of(&[(100.0, 1.1), (140.0, 1.1), (190.0, 1.1)]), [0, 1, 1]);
    assert_eq!(of(&[(100.0, 1.1), (130.0, 1.1), (190.0, 1.1)]), [0, 0, 2]);
    assert_eq!(of(&[(190.0, 1.1), (130.0, 1.1), (100.0, 1.1)]), [0, 1, 1], "whatever the ids");
}

#[test]
fn a_badly_measured_store_joins_the_nearest_class_and_the_others_stay_as_they_are() {
    let wide = (100.0, 10.0);
    assert_eq!(of(&[(500.0, 1.1), (500.0, 1.1), wide, (60.0, 1.1), (61.0, 1.1)]), [0, 0, 2, 2, 2]);
    assert_eq!(values(&stores(&[(500.0, 1.1), wide, (60.0, 1.1)]))[0], 500.0);
}

#[test]
fn devices_that_differ_by_far_are_told_apart_however_they_were_measured() {
    let paper = [765.0, 312.0, 305.0, 68.0, 70.0, 66.0].map(|mb| (mb * 1e6, 1.25));
    assert_eq!(of(&paper), [0, 1, 1, 3, 3, 3]);
}

#[test]
fn nothing_known_counts_as_the_slowest_and_as_itself_where_nobody_is_known() {
    let unknown = (1.0, 0.0);
    let joined = stores(&[(300.0, 1.2), unknown, (310.0, 1.2), (60.0, 1.2)]);
    assert_eq!(values(&joined), [305.0, 60.0, 305.0, 60.0]);
    assert_eq!(classes(&joined)[1], None);
    assert_eq!(values(&stores(&[(300.0, 1.2), unknown, (310.0, 1.2)])), [305.0; 3]);
    assert_eq!(values(&stores(&[unknown, unknown])), [1.0; 2]);
    assert!(rate(&[]).is_empty());
}

#[test]
fn stores_that_were_told_apart_are_so_until_they_are_closer() {
    let mut two = stores(&[(100.0, 1.1), (145.0, 1.1)]);
    assert_eq!(classes(&two), [Some(0); 2], "1.2 times apart");
    two[1].capability.kv_bytes_per_s = 155.0;
    assert_eq!(classes(&two), [Some(0), Some(1)], "1.28 times apart");
    (two[0].previous.writes, two[1].previous.writes) = (Some(0), Some(1));
    two[1].capability.kv_bytes_per_s = 145.0;
    assert_eq!(classes(&two), [Some(0), Some(1)], "they were of two");
    two[1].capability.kv_bytes_per_s = 130.0;
    assert_eq!(classes(&two), [Some(0); 2], "1.07 times apart");
    // The class of a joining store is unknown.
    two[1].previous.writes = None;
    two[1].capability.kv_bytes_per_s = 145.0;
    assert_eq!(classes(&two), [Some(0); 2]);
}

#[test]
fn each_quantity_has_classes_of_its_own() {
    let mut two = stores(&[(100.0, 1.1), (100.0, 1.1)]);
    (two[0].sync_ns, two[1].sync_ns) = (50_000, 1_000_000);
    two[1].capability.ops_per_s = 500.0;
    let [one, other] = [0, 1].map(|at| rate(&two)[at].classes);
    assert_eq!((one.writes, other.writes), (Some(0), Some(0)));
    assert_eq!((one.reads, other.reads), (Some(0), Some(1)));
    assert_eq!((one.syncs, other.syncs), (Some(0), Some(1)));
    (two[0].sync_ns, two[1].sync_ns) = (44_000, 0);
    assert_eq!(rate(&two).iter().map(|rating| rating.sync_ns).collect::<Vec<_>>(), [44_000, 0]);
    two[1].sync_ns = 60_001;
    assert_eq!(rate(&two).iter().map(|rating| rating.sync_ns).collect::<Vec<_>>(), [52_001; 2]);
}

#[test]
fn numbers_that_make_no_sense_have_a_class_all_the_same() {
    let odd = [f64::NAN, -1.0, f64::INFINITY, 0.0, f64::MIN_POSITIVE];
    let odd: Vec<(f64, f64)> = odd
        .into_iter()
        .flat_map(|value| [1.0, 1.5, f64::INFINITY, f64::NAN].map(|spread| (value, spread)))
        .collect();
    assert_eq!(rate(&stores(&odd)).len(), odd.len());
}

proptest! {
    /// Checks the definition with classes found in a different way, over all pairs.
    #[test]
    fn no_two_of_a_class_are_apart_and_no_two_neighbours_could_be_one(
        measured in prop::collection::vec((1.0..1000.0f64, prop::option::of(1.01..2.0f64)), 1..12),
    ) {
        let stores = stores(&measured.iter().map(|&(value, spread)| (value, spread.unwrap_or(1.0))).collect::<Vec<_>>());
        let estimate = |store: &StoreView| Estimate {
            value: store.capability.kv_bytes_per_s,
            spread: store.spread.kv_bytes_per_s,
            previous: None,
        };
        let apart = |one: &StoreView, other: &StoreView| {
            let (one, other) = (estimate(one), estimate(other));
            if one.value <= other.value { are_apart(&one, &other) } else { are_apart(&other, &one) }
        };
        let classes = classes(&stores);
        let mut by_class: std::collections::BTreeMap<_, Vec<&StoreView>> = Default::default();
        for (class, store) in classes.iter().zip(&stores) {
            by_class.entry(class.unwrap()).or_default().push(store);
        }
        for members in by_class.values() {
            prop_assert!(members.iter().all(|one| members.iter().all(|other| !apart(one, other))));
        }
        let least = |members: &[&StoreView]| {
            members.iter().map(|store| store.capability.kv_bytes_per_s).fold(f64::INFINITY, f64::min)
        };
        let mut groups: Vec<Vec<&StoreView>> = by_class.into_values().collect();
        groups.sort_by(|a, b| least(a).total_cmp(&least(b)));
        for pair in groups.windows(2) {
            let parted = pair[0].iter().any(|one| pair[1].iter().any(|other| apart(one, other)));
            prop_assert!(parted, "two neighbours in different classes could be one class");
        }
    }

    #[test]
    fn the_order_of_ids_makes_no_difference(
        measured in prop::collection::vec((1.0..1000.0f64, 1.01..2.0f64), 1..12),
        turn in 0usize..12,
    ) {
        let mut turned = measured.clone();
        turned.rotate_left(turn % measured.len());
        let mut values = values(&stores(&measured));
        values.rotate_left(turn % measured.len());
        prop_assert_eq!(values, super::tests::values(&stores(&turned)));
    }
}
