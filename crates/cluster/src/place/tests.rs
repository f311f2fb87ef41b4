use super::*;
use crate::{LedgerConfig, Turn};

const HOST: u64 = 7;
const MS: u64 = 1_000_000;

/// Returns the heartbeat of a store that has measured `mb` MB/s to within `spread`.
fn measured(store: StoreId, device: u64, mb: f64, spread: f64) -> StoreHeartbeat {
    StoreHeartbeat {
        store,
        incarnation: 1,
        seq: 1,
        place: Place { host: HOST, device },
        capability: Capability { kv_bytes_per_s: mb * 1e6, ops_per_s: mb * 1e3 },
        correction: 1.0,
        sync_ns: 2 * MS,
        spread: Spread::all(spread),
        load_ops_per_s: 10.0,
        ..StoreHeartbeat::default()
    }
}

fn ledger(heartbeats: &[StoreHeartbeat]) -> Ledger {
    let mut ledger = Ledger::new(0, LedgerConfig::default());
    for heartbeat in heartbeats {
        ledger.hear(heartbeat.clone(), 0);
    }
    ledger
}

fn mb(ledger: &Ledger, store: StoreId) -> f64 {
    (ledger.standing(store, 0).unwrap().capability.kv_bytes_per_s / 1e4).round() / 100.0
}

#[test]
fn stores_on_one_device_each_have_their_part_of_what_they_measured_together() {
    let all = [measured(0, 1, 100.0, 1.3), measured(1, 1, 81.0, 1.2), measured(2, 2, 50.0, 1.1)];
    let ledger = ledger(&all);
    let (one, other) = (ledger.standing(0, 0).unwrap(), ledger.standing(1, 0).unwrap());
    assert_eq!([mb(&ledger, 0), mb(&ledger, 1), mb(&ledger, 2)], [45.0, 45.0, 50.0]);
    assert!((one.capability.ops_per_s - 45e3).abs() < 1.0);
    assert_eq!((one.capability, one.spread, one.sync_ns), (other.capability, other.spread, other.sync_ns));
    assert_eq!((one.spread.kv_bytes_per_s, one.sync_ns), (1.3, 2 * MS), "a sync is not divided");
    assert_eq!((&one.shares_device_with[..], &one.shares_host_with[..]), (&[1][..], &[1, 2][..]));
    assert!(ledger.standing(2, 0).unwrap().shares_device_with.is_empty());
    assert_eq!(ledger.standing(3, 0), None);
}

#[test]
fn one_bad_estimate_of_three_changes_nothing_and_two_that_differ_are_not_sure() {
    let all = [measured(0, 1, 90.0, 1.1), measured(1, 1, 90.0, 1.1), measured(2, 1, 9.0, 1.1)];
    let ledger_of_three = ledger(&all);
    for store in 0..3 {
        assert_eq!(mb(&ledger_of_three, store), 30.0);
        assert_eq!(ledger_of_three.standing(store, 0).unwrap().spread.kv_bytes_per_s, 1.1);
    }
    let two = ledger(&all[1..]);
    let spread = two.standing(2, 0).unwrap().spread.kv_bytes_per_s;
    assert!((spread - 10f64.sqrt()).abs() < 1e-9, "{spread}");
}

#[test]
fn what_is_told_is_not_divided_and_its_store_has_its_part_all_the_same() {
    let told = StoreHeartbeat { told: true, spread: Spread::EXACT, ..measured(1, 1, 300.0, 1.0) };
    let ledger = ledger(&[measured(0, 1, 100.0, 1.3), told]);
    assert_eq!([mb(&ledger, 0), mb(&ledger, 1)], [50.0, 300.0]);
    assert_eq!(ledger.standing(1, 0).unwrap().shares_device_with, [0]);
}

#[test]
fn a_store_that_has_not_measured_yet_takes_the_estimate_of_the_others() {
    let unknown = StoreHeartbeat {
        capability: Capability::UNKNOWN,
        spread: Spread::UNKNOWN,
        sync_ns: 0,
        ..measured(1, 1, 0.0, 0.0)
    };
    let both = ledger(&[measured(0, 1, 100.0, 1.3), unknown.clone()]);
    assert_eq!([mb(&both, 0), mb(&both, 1)], [50.0, 50.0]);
    assert_eq!(both.standing(1, 0).unwrap().sync_ns, 2 * MS);
    let nothing = ledger(&[StoreHeartbeat { store: 0, ..unknown.clone() }, unknown]);
    assert_eq!(nothing.standing(0, 0).unwrap().capability, Capability::UNKNOWN);
    assert_eq!(nothing.standing(0, 0).unwrap().spread, Spread::UNKNOWN);
}

#[test]
fn what_one_of_them_notices_of_the_device_holds_for_all() {
    let mut slow = measured(1, 1, 100.0 * 0.1, 1.3 * 1.2);
    (slow.correction, slow.sync_ns) = (0.1, 20 * MS);
    let ledger = ledger(&[measured(0, 1, 100.0, 1.3), slow]);
    for store in 0..2 {
        let standing = ledger.standing(store, 0).unwrap();
        assert!((standing.capability.kv_bytes_per_s - 5e6).abs() < 1.0, "{standing:?}");
        assert_eq!((standing.correction, standing.sync_ns), (0.1, 20 * MS));
    }
}

#[test]
fn writes_that_wait_for_no_sync_wait_for_none_on_a_shared_device() {
    let never = StoreHeartbeat { sync_ns: 1, ..measured(1, 1, 100.0, 1.3) };
    let ledger = ledger(&[measured(0, 1, 100.0, 1.3), never]);
    assert_eq!([0, 1].map(|store| ledger.standing(store, 0).unwrap().sync_ns), [2 * MS, 1]);
}

#[test]
fn a_sharer_counts_until_it_is_lost_and_an_unknown_place_is_shared_by_nobody() {
    let all = [measured(0, 1, 100.0, 1.3), measured(1, 1, 100.0, 1.3)];
    let mut both = ledger(&all);
    let LedgerConfig { down_after_nanos, replace_after_nanos } = LedgerConfig::default();
    let mut hear = |now| {
        both.hear(StoreHeartbeat { seq: now, ..all[0].clone() }, now);
        both.standing(0, now).unwrap().capability.kv_bytes_per_s
    };
    let steps = (1..).map(|step| step * down_after_nanos / 2);
    let each: Vec<f64> = steps.take_while(|now| *now <= replace_after_nanos).map(&mut hear).collect();
    assert!(each.iter().all(|half| *half == 50e6), "a restart changes nothing");
    assert_eq!(hear(replace_after_nanos + 1), 100e6);

    for place in [Place::default(), Place { host: HOST, device: 0 }, Place { host: 0, device: 1 }] {
        let of = |store| StoreHeartbeat { place, ..measured(store, 1, 100.0, 1.3) };
        let ledger = ledger(&[of(0), of(1)]);
        assert_eq!(mb(&ledger, 0), 100.0, "{place:?}");
    }
    let elsewhere = StoreHeartbeat { place: Place { host: 8, device: 1 }, ..all[1].clone() };
    assert_eq!(mb(&ledger(&[all[0].clone(), elsewhere]), 0), 100.0);
}

#[test]
fn what_the_others_on_the_device_do_is_known() {
    let sits = Turn { state: TurnState::Sits, number: 1, millis: 0 };
    let all = [
        measured(0, 1, 100.0, 1.3),
        measured(1, 1, 100.0, 1.3),
        StoreHeartbeat { turn: sits, ..measured(2, 1, 100.0, 1.3) },
        StoreHeartbeat { turn: sits, ..measured(3, 2, 100.0, 1.3) },
    ];
    let ledger = ledger(&all);
    let of = |store, now| ledger.neighbours(store, now);
    assert_eq!(of(0, 0), Neighbours { sharers: 3, sitting: true, load_ops_per_s: 20.0 });
    assert_eq!(of(2, 0), Neighbours { sharers: 3, sitting: false, load_ops_per_s: 20.0 });
    assert_eq!(of(3, 0), Neighbours { sharers: 1, sitting: false, load_ops_per_s: 0.0 });
    assert_eq!(of(9, 0).sharers, 1);
    let hangs = Turn { millis: SITTING_MAX_NANOS / 1_000_000 + 1, ..sits };
    let hung = StoreHeartbeat { turn: hangs, ..all[2].clone() };
    assert!(!self::ledger(&[all[0].clone(), hung]).neighbours(0, 0).sitting);
    let later = LedgerConfig::default().down_after_nanos + 1;
    assert_eq!(of(0, later), Neighbours { sharers: 3, ..Neighbours::default() }, "no heartbeat came since");
}
