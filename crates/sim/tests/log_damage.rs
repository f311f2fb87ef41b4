//! A start with a damaged log, over the simulated disk and rows.

use std::collections::BTreeMap;

use node::damage::EVERY_PEER;
use node::recovery::{Recovered, StoredState};
use node::unsynced::Damaged;
use replica::eraftpb::Entry;
use replica::{HardState, LogBatch, LogStore, RegionWrite, Restart, RestartCause};
use sim::disk::Wound;
use sim::durable::Durable;
use storage::RegionState;
use types::{RegionDescriptor, RegionId, SlotRange, FIRST_INDEX, FIRST_TERM};
use wal::{PeerLifecycle, Record};

const STORE: u64 = 1;

fn region(id: RegionId, first: u16) -> RegionDescriptor {
    RegionDescriptor::founded(id, Some(SlotRange { first, last: first + 99 }), &[0, 1, 2])
}

fn write(durable: &Durable, write: RegionWrite) {
    durable.disk.append(&LogBatch { number: 1, writes: vec![write], must_sync: true });
    durable.disk.sync();
}

/// A store with regions 1 and 2, whose rows end at entry 8 of a log that ends at 15.
fn store() -> Durable {
    let mut durable = Durable::default();
    for id in [1, 2] {
        let descriptor = region(id, id as u16 * 100);
        durable.disk.found(descriptor.clone());
        let entry = |index| Entry { index, term: FIRST_TERM, ..Entry::default() };
        let entries = (FIRST_INDEX + 1..=15).map(entry).collect();
        let hard_state = Some(HardState { term: FIRST_TERM, vote: Some(2), commit: 15 });
        write(&durable, RegionWrite { region: id, restart: None, entries, hard_state });
        let mut state = RegionState::default();
        (state.applied_index, state.applied_term) = (8, FIRST_TERM);
        durable.set_own_rows(&descriptor, &state).unwrap();
    }
    durable.engine.flush();
    durable
}

fn recover(durable: &mut Durable) -> Recovered {
    durable.recover(STORE, &BTreeMap::new()).unwrap()
}

fn wound(durable: &Durable, id: RegionId, wound: Wound) {
    durable.disk.wound(id, wound);
}

fn entry(index: u64) -> Wound {
    Wound { entry: Some((index, FIRST_TERM)), ..Wound::default() }
}

fn regions(recovered: &Recovered) -> Vec<RegionId> {
    recovered.seeds.iter().map(|seed| seed.descriptor.id).collect()
}

#[test]
fn only_the_damaged_regions_peer_is_unclean_and_its_log_is_made_consistent() {
    let mut durable = store();
    wound(&durable, 1, entry(12));
    let recovered = recover(&mut durable);
    let damaged = Damaged { peer: 2, first: 12, place: "in the log".into() };
    assert_eq!(recovered.damages.unclean, BTreeMap::from([(1, damaged)]));
    assert_eq!(regions(&recovered), [1, 2]);
    assert_eq!(durable.disk.bounds(1).unwrap().last, 15, "nothing is written before the mark");
    assert_eq!(
        recover(&mut durable).damages.unclean,
        recovered.damages.unclean,
        "after a crash the damage is found again"
    );
    durable.disk.repair(recovered.damages.repairs);
    assert_eq!(durable.disk.bounds(1).unwrap().last, 11);
    assert_eq!(durable.disk.hard_state(1).unwrap().map(|state| state.commit), Some(8));
    assert_eq!(durable.disk.bounds(2).unwrap().last, 15);
    assert!(recover(&mut durable).damages.unclean.is_empty(), "the mark records it");
}

#[test]
fn damage_to_what_the_rows_hold_is_harmless_unless_the_end_of_the_log_is_unknown() {
    let mut durable = store();
    wound(&durable, 1, entry(7));
    wound(&durable, 2, entry(15));
    let recovered = recover(&mut durable);
    assert_eq!(recovered.damages.harmless.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(recovered.damages.unclean.keys().collect::<Vec<_>>(), [&2]);
    durable.disk.repair(recovered.damages.repairs);
    let bounds = durable.disk.bounds(1).unwrap();
    assert_eq!((bounds.first, bounds.last), (9, 15));
}

#[test]
fn a_peer_whose_lifecycle_is_lost_is_known_by_its_rows_and_without_rows_it_never_comes_back() {
    let mut durable = store();
    wound(&durable, 1, Wound { life: true, ..Wound::default() });
    // A founded region whose rows were never flushed.
    durable.disk.found(region(3, 900));
    wound(&durable, 3, Wound { life: true, ..Wound::default() });
    // A blank peer that voted.
    let hard_state = Some(HardState { term: 9, vote: Some(1), commit: 0 });
    write(&durable, RegionWrite { region: 4, restart: None, entries: Vec::new(), hard_state });
    wound(&durable, 4, Wound { promise: true, ..Wound::default() });
    let recovered = recover(&mut durable);
    assert_eq!(regions(&recovered), [1, 2]);
    assert_eq!(recovered.damages.unclean.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(recovered.damages.barred.keys().collect::<Vec<_>>(), [&3, &4]);
    assert_eq!([3, 4].map(|of| recovered.tombstones[&of]), [EVERY_PEER; 2]);
    durable.disk.repair(recovered.damages.repairs);
    let again = recover(&mut durable);
    assert_eq!([3, 4].map(|of| again.tombstones[&of]), [EVERY_PEER; 2]);
    assert_eq!(again.damages.barred.len(), 2, "each start reports it");
    assert_eq!(regions(&again), [1, 2]);
}

#[test]
fn a_region_whose_split_is_lost_before_its_rows_are_flushed_is_named_as_unclean() {
    let mut durable = store();
    let descriptor = region(5, 500);
    let cause = RestartCause::Split { parent: 1, at: 13 };
    let restart = Restart { index: FIRST_INDEX, term: FIRST_TERM, descriptor, cause };
    let hard_state = Some(HardState::begun(None));
    write(&durable, RegionWrite { region: 5, restart: Some(restart), entries: Vec::new(), hard_state });
    assert_eq!(regions(&recover(&mut durable)), [1, 2, 5]);
    wound(&durable, 1, entry(12));
    let recovered = recover(&mut durable);
    assert_eq!(regions(&recovered), [1, 2]);
    assert_eq!(recovered.damages.unborn, [5]);
    assert_eq!(recovered.damages.unclean.keys().collect::<Vec<_>>(), [&1, &5]);
    let gone = Record::Life(PeerLifecycle::Tombstone { peer: 2 });
    assert!(recovered.damages.repairs.contains(&(5, vec![Record::Forgotten, gone])));
    // The mark names a peer that could not be opened until the region has a later one here.
    let mark = node::unsynced::Mark::default().noting(&recovered.damages.unclean);
    let started = mark.started(None, BTreeMap::from([(1, 2)]), &recovered.tombstones);
    assert_eq!(started.unclean, BTreeMap::from([(1, 2), (5, 2)]));
    let later = started.started(None, BTreeMap::new(), &BTreeMap::from([(5, 7)]));
    assert_eq!((later.unclean, later.damaged), (BTreeMap::new(), BTreeMap::new()));
}

#[test]
fn a_peer_that_was_known_to_be_damaged_is_opened_after_its_rows() {
    let mut durable = store();
    let known = BTreeMap::from([(1, Damaged { peer: 2, first: 7, place: String::new() })]);
    durable.disk.repair(vec![(1, vec![Record::Cut(6)])]);
    let recovered = durable.recover(STORE, &known).unwrap();
    durable.disk.repair(recovered.damages.repairs);
    let bounds = durable.disk.bounds(1).unwrap();
    assert_eq!((bounds.first, bounds.last, durable.disk.term(1, 8)), (9, 8, Ok(FIRST_TERM)));
}
