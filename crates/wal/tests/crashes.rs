//! Loss of power at any operation, keeping any subset of the unsynced sectors. Recovery must find
//! all synced data, and no data that was never written. Then the log continues and power is lost
//! again.

mod support;

use support::life::{live, live_on, Counts};
use support::MemoryDisk;

/// Name of the environment variable with the number of seeds, for long runs.
const ROUNDS: &str = "STEELYARD_WAL_ROUNDS";

#[test]
fn a_loss_of_power_at_any_operation_leaves_what_was_synced_and_nothing_that_was_not_there() {
    let rounds = std::env::var(ROUNDS).map_or(300, |text| text.parse().expect("a number of rounds"));
    let mut counts = Counts::default();
    for seed in 0..rounds {
        counts += live(seed, false).unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{rounds} seeds: {counts:?}");
    assert_eq!(counts.losses, rounds * 6);
    assert!(
        counts.released > rounds && counts.carried > rounds / 4 && counts.cuts > rounds / 2,
        "{counts:?}"
    );
}

#[test]
fn an_encrypted_log_whose_keys_change_loses_no_more() {
    let mut counts = Counts::default();
    for seed in 0..60 {
        counts += live_on(MemoryDisk::encrypted(), seed).unwrap_or_else(|why| panic!("{why}"));
    }
    assert!(counts.losses == 360 && counts.released > 60 && counts.cuts > 30, "{counts:?}");
}

#[test]
fn a_disk_that_ignores_syncs_is_found_out() {
    let found = (0..100).filter(|seed| live(*seed, true).is_err()).count();
    assert!(found > 60, "found in {found} of 100 lives");
}
