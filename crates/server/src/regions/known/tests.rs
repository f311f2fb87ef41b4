use types::{RegionChange, RegionEpoch};

use super::*;

fn founded(id: RegionId, first: Slot, last: Slot) -> RegionDescriptor {
    RegionDescriptor::founded(id, Some(SlotRange { first, last }), &[0, 1, 2])
}

fn split(region: &RegionDescriptor, at: Slot, new_region: RegionId) -> [RegionDescriptor; 2] {
    let changed = region.after(&RegionChange::Split { at, new_region }).unwrap();
    [changed.region, changed.split_off.unwrap()]
}

fn merge(target: &RegionDescriptor, source: &RegionDescriptor) -> RegionDescriptor {
    let source = Box::new(source.after(&RegionChange::PrepareMerge { into: target.id }).unwrap().region);
    target.after(&RegionChange::CommitMerge { source, source_index: 9 }).unwrap().region
}

/// Returns runs as (first slot, region).
fn runs(known: &Known) -> Vec<(Slot, Option<RegionId>)> {
    let table = known.table();
    let run =
        |(range, region): (SlotRange, Option<&Arc<RegionShared>>)| (range.first, region.map(|r| r.id()));
    table.ranges().into_iter().map(run).collect()
}

#[test]
fn a_store_that_joins_learns_the_slots_from_leaders() {
    let known = Known::new(&[], &[]);
    assert_eq!(runs(&known), [(0, None)]);
    assert!(!known.table().covers_all());
    assert!(!known.meta().is_local());
    let meta = RegionDescriptor::founded(META_REGION, None, &[0, 1]);
    assert!(known.learn(&[founded(1, 0, 99), meta.clone()]));
    assert_eq!(*known.meta().descriptor(), meta);
    assert_eq!(runs(&known), [(0, Some(1)), (100, None)]);
    assert!(known.learn(&[founded(2, 100, SLOT_COUNT - 1)]));
    assert!(known.table().covers_all());
    assert!(!known.learn(&[founded(2, 100, SLOT_COUNT - 1)]), "no news");
}

#[test]
fn after_a_split_old_words_take_no_slot_back() {
    let whole = founded(1, 0, SLOT_COUNT - 1);
    let [left, right] = split(&whole, 500, 7);
    // The report of the new region arrives first, while the old one still claims all slots.
    let known = Known::new(&[], std::slice::from_ref(&whole));
    assert!(known.learn(std::slice::from_ref(&right)));
    assert_eq!(runs(&known), [(0, Some(1)), (500, Some(7))]);
    assert!(known.learn(std::slice::from_ref(&left)));
    assert!(!known.learn(std::slice::from_ref(&whole)));
    assert_eq!(runs(&known), [(0, Some(1)), (500, Some(7))]);

    // A merge gives all slots back, in either order of the reports.
    let joined = merge(&left, &right);
    assert!(known.learn(std::slice::from_ref(&joined)));
    assert_eq!(runs(&known), [(0, Some(1))]);
    assert!(known.get(7).is_none(), "the merged region is dropped");
    assert!(!known.learn(&[right.clone(), left.clone()]));
    assert_eq!(runs(&known), [(0, Some(1))]);
}

#[test]
fn what_own_peers_apply_is_seen_together() {
    let whole = founded(1, 0, SLOT_COUNT - 1);
    let known = Known::new(std::slice::from_ref(&whole), &[]);
    let one = known.get(1).unwrap();
    let [left, right] = split(&whole, 500, 7);
    // The report of the region arrives first, as at a lagging store. Commands are sent there, and
    // execution here does not change.
    assert!(known.learn(std::slice::from_ref(&right)));
    assert_eq!(runs(&known), [(0, Some(1)), (500, Some(7))]);
    assert_eq!(one.slots(), Some(SlotRange::ALL));
    assert!(!known.get(7).unwrap().is_local());
    known.set_local(&[left, right]);
    assert_eq!(one.slots(), Some(SlotRange { first: 0, last: 499 }));
    assert!(known.get(7).unwrap().is_local());
    assert!(Arc::ptr_eq(&one, &known.get(1).unwrap()), "holders of the region see the change");
}

#[test]
fn a_region_whose_peer_is_gone_is_known_while_it_has_slots() {
    let whole = founded(1, 0, SLOT_COUNT - 1);
    let [left, right] = split(&whole, 500, 7);
    let known = Known::new(&[left.clone(), right.clone()], &[]);
    known.remove_local(7);
    assert!(!known.get(7).unwrap().is_local());
    assert_eq!(runs(&known), [(0, Some(1)), (500, Some(7))]);
    known.set_local(std::slice::from_ref(&right));
    assert!(known.get(7).unwrap().is_local());
    known.set_local(&[merge(&left, &right)]);
    assert!(known.get(7).is_some(), "the region's peer is still here");
    known.remove_local(7);
    assert!(known.get(7).is_none());
}

#[test]
fn a_change_of_peers_keeps_the_table() {
    let known = Known::new(&[], &[founded(1, 0, SLOT_COUNT - 1)]);
    let mut moved = founded(1, 0, SLOT_COUNT - 1);
    moved.peers.remove(0);
    moved.epoch = RegionEpoch { conf_version: 4, version: 1 };
    assert!(!known.learn(std::slice::from_ref(&moved)), "no slot has moved");
    assert_eq!(*known.get(1).unwrap().descriptor(), moved);
}

/// The order and number of reports does not affect the final owners of the slots.
#[test]
fn the_order_of_words_does_not_matter() {
    let whole = founded(1, 0, SLOT_COUNT - 1);
    let [a, b] = split(&whole, 8000, 2);
    let [b, c] = split(&b, 12000, 3);
    let [a, d] = split(&a, 4000, 4);
    let bc = merge(&b, &c);
    let words = [whole, a, b, c, d, bc];
    let expected = [(0, Some(1)), (4000, Some(4)), (8000, Some(2))];
    // Heap's algorithm generates all orders.
    fn permute(words: &mut [RegionDescriptor], k: usize, check: &mut dyn FnMut(&[RegionDescriptor])) {
        if k <= 1 {
            return check(words);
        }
        for i in 0..k {
            permute(words, k - 1, check);
            words.swap(if k % 2 == 0 { i } else { 0 }, k - 1);
        }
    }
    let mut orders = 0;
    let mut words = words;
    let count = words.len();
    permute(&mut words, count, &mut |words| {
        let known = Known::new(&[], &[]);
        for word in words {
            known.learn(std::slice::from_ref(word));
        }
        assert_eq!(runs(&known), expected);
        orders += 1;
    });
    assert_eq!(orders, 720);
}
