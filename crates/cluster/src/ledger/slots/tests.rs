use proptest::prelude::*;
use types::{RegionEpoch, SlotRange, SLOT_COUNT};

use super::*;

fn region(id: RegionId, version: u64, first: Slot, last: Slot) -> RegionDescriptor {
    let mut region = RegionDescriptor::founded(id, Some(SlotRange { first, last }), &[0]);
    region.epoch = RegionEpoch { conf_version: 1, version };
    region
}

fn ranges(map: &SlotMap) -> Vec<(Slot, Slot, RegionId)> {
    map.iter().collect()
}

#[test]
fn a_split_and_a_merge_are_learned_in_any_order() {
    let story = [region(1, 1, 0, 99), region(1, 2, 0, 39), region(2, 2, 40, 99), region(3, 1, 100, 199)];
    let end = [region(3, 3, 40, 199)];
    let all: Vec<&RegionDescriptor> = story.iter().chain(&end).collect();
    let expected = [(0, 39, 1), (40, 199, 3)];
    let mut order = [0, 1, 2, 3, 4];
    // Heap's algorithm generates all orders of the five.
    let mut counters = [0; 5];
    let check = |order: &[usize]| {
        let (mut map, mut newest) = (SlotMap::default(), BTreeMap::new());
        for &at in order {
            let known: Option<&RegionEpoch> = newest.get(&all[at].id);
            if known.is_none_or(|known| all[at].epoch.is_newer_than(*known)) {
                newest.insert(all[at].id, all[at].epoch);
                map.learn(all[at]);
            }
        }
        assert_eq!(ranges(&map), expected, "{order:?}");
    };
    check(&order);
    let mut at = 0;
    while at < 5 {
        if counters[at] < at {
            order.swap(if at % 2 == 0 { 0 } else { counters[at] }, at);
            check(&order);
            counters[at] += 1;
            at = 0;
        } else {
            counters[at] = 0;
            at += 1;
        }
    }
}

#[test]
fn slots_that_were_given_up_have_nobody_until_somebody_has_them() {
    let mut map = SlotMap::default();
    map.learn(&region(1, 1, 0, 99));
    assert_eq!([0, 99, 100].map(|slot| map.region_of(slot)), [Some(1), Some(1), None]);
    map.learn(&region(1, 2, 0, 39));
    assert_eq!([39, 40].map(|slot| map.region_of(slot)), [Some(1), None]);
}

#[test]
fn who_lost_the_last_slot_is_named() {
    let mut map = SlotMap::default();
    map.learn(&region(1, 1, 0, 99));
    map.learn(&region(2, 1, 100, 199));
    assert_eq!(map.learn(&region(3, 2, 50, 120)), Learned { owns: true, displaced: vec![] });
    assert_eq!(ranges(&map), [(0, 49, 1), (50, 120, 3), (121, 199, 2)]);
    assert_eq!(map.learn(&region(4, 3, 0, 199)), Learned { owns: true, displaced: vec![1, 2, 3] });
    assert_eq!(map.learn(&region(1, 2, 0, 9)), Learned::default(), "the descriptor is outdated");
    assert_eq!(ranges(&map), [(0, 199, 4)]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares with one entry per slot.
    #[test]
    fn a_slot_is_the_highest_versions(
        claims in prop::collection::vec((1..6u64, 0..400u16, 0..400u16), 1..20)
    ) {
        let (mut map, mut slots) = (SlotMap::default(), vec![None; usize::from(SLOT_COUNT)]);
        for (version, (id, a, b)) in claims.into_iter().enumerate() {
            // Versions increase, but some are late.
            let version = if version % 3 == 2 { version as u64 - 2 } else { version as u64 };
            let claim = region(id, version, a.min(b), a.max(b));
            map.learn(&claim);
            slots.iter_mut().for_each(|held| *held = held.filter(|&(owner, _)| owner != id));
            for held in &mut slots[usize::from(a.min(b))..=usize::from(a.max(b))] {
                if held.is_none_or(|(_, held)| held < version) {
                    *held = Some((id, version));
                }
            }
            for slot in 0..410u16 {
                let expected = slots[usize::from(slot)].map(|(owner, _)| owner);
                prop_assert_eq!(map.region_of(slot), expected, "slot {}", slot);
            }
        }
    }
}
