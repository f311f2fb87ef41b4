use std::time::{Duration, Instant};

use storage::rows::{region_descriptor_row, region_state_row};
use storage::{KeyRef, RegionState, WriteSet};

use super::*;
use crate::fixture::Fixture;

const REGION: RegionId = 1;

fn write(fixture: &Fixture, applied: LogIndex, value: &str) {
    let descriptor = fixture.store.regions.get(REGION).unwrap().descriptor();
    let mut state = RegionState::default();
    state.applied_index = applied;
    let key = KeyRef::new(0, b"k").meta_row();
    let rows = vec![
        (region_state_row(REGION), Some(state.encode())),
        (region_descriptor_row(REGION), Some(descriptor.encode())),
        (key, Some(bytes::Bytes::copy_from_slice(value.as_bytes()))),
    ];
    fixture.store.engine.write(WriteSet { ranges_deleted: Vec::new(), rows });
}

fn order(index: LogIndex) -> Order {
    Order { region: REGION, index, number: index }
}

/// Returns the outcome of the store's own check.
fn outcome(checks: &Checks, order: Order) -> CheckOutcome {
    let descriptor = checks.regions.get(order.region).unwrap().descriptor();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let found = checks.compare(order, &descriptor).reports.get(&checks.this).copied();
        if let Some(outcome) = found {
            return outcome;
        }
        assert!(Instant::now() < deadline, "the check does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_view_is_of_the_order_s_index_whatever_is_written_since() {
    let fixture = Fixture::new();
    let checks = &fixture.store.checks;
    write(&fixture, 9, "old");
    checks.begin(order(9));
    write(&fixture, 10, "new");
    let first = outcome(checks, order(9));
    assert!(matches!(first, CheckOutcome::Rows(rows) if rows.rows == 3), "{first:?}");
    checks.begin(order(10));
    let second = outcome(checks, order(10));
    assert_ne!(first, second);
    write(&fixture, 9, "old");
    checks.begin(Order { number: 11, ..order(11) });
    assert_eq!(outcome(checks, order(11)), CheckOutcome::Skipped, "the rows are of index 9");
}

#[test]
fn a_report_of_rows_that_were_replaced_meanwhile_is_not_told() {
    let fixture = Fixture::new();
    let checks = &fixture.store.checks;
    write(&fixture, 9, "old");
    checks.begin(order(9));
    outcome(checks, order(9));
    assert_eq!(checks.tell().len(), 1);
    checks.withdraw(REGION);
    assert!(checks.tell().is_empty());
}

#[test]
fn a_peer_in_the_minority_counts_it_and_so_does_the_region_s_leader_once() {
    let fixture = Fixture::new();
    let checks = &fixture.store.checks;
    let descriptor = RegionDescriptor::founded(REGION, Some(types::SlotRange::ALL), &[0, 1, 2]);
    let rows = |checksum| CheckOutcome::Rows(storage::RowsChecksum { checksum, rows: 3, bytes: 9 });
    checks.report(order(9).report(rows(1)), &descriptor);
    checks.hear(1, &[order(9).report(rows(2))]);
    assert_eq!(checks.metrics.checks_different.get(), 0, "with two copies either may be right");
    checks.hear(2, &[order(9).report(rows(2))]);
    checks.hear(2, &[order(9).report(rows(2))]);
    assert_eq!(checks.metrics.checks_different.get(), 1);
    let comparison = checks.compare(order(9), &descriptor);
    let text = in_words(&comparison);
    assert!(text.contains("store 0") && text.contains("0000000000000002"), "{text}");
}
