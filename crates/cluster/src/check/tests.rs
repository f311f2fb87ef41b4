use types::{PeerRole, SlotRange};

use super::*;

fn descriptor(stores: &[StoreId]) -> RegionDescriptor {
    RegionDescriptor::founded(1, Some(SlotRange::ALL), stores)
}

fn rows(checksum: u64) -> CheckOutcome {
    CheckOutcome::Rows(RowsChecksum { checksum, rows: 3, bytes: 30 })
}

fn verdict(descriptor: &RegionDescriptor, reports: &[(StoreId, CheckOutcome)]) -> Verdict {
    judge(descriptor, &reports.iter().copied().collect())
}

#[test]
fn equal_rows_of_all_peers_are_equal_and_of_some_incomplete() {
    let of = descriptor(&[0, 1, 2]);
    assert_eq!(verdict(&of, &[(0, rows(1)), (1, rows(1)), (2, rows(1))]), Verdict::Equal);
    assert_eq!(verdict(&of, &[(0, rows(1)), (1, rows(1))]), Verdict::Incomplete { missing: vec![2] });
    let skipped = [(0, rows(1)), (1, rows(1)), (2, CheckOutcome::Skipped)];
    assert_eq!(verdict(&of, &skipped), Verdict::Incomplete { missing: vec![2] });
    assert_eq!(verdict(&of, &[]), Verdict::Incomplete { missing: vec![0, 1, 2] });
    assert_eq!(verdict(&descriptor(&[4]), &[(4, rows(1))]), Verdict::Equal);
}

#[test]
fn a_majority_of_the_voters_puts_the_others_in_the_minority_before_all_have_reported() {
    let of = descriptor(&[0, 1, 2]);
    let minority = |stores: &[StoreId]| Verdict::Minority { stores: stores.to_vec() };
    assert_eq!(verdict(&of, &[(0, rows(2)), (1, rows(1)), (2, rows(1))]), minority(&[0]));
    assert_eq!(verdict(&of, &[(0, CheckOutcome::Unreadable), (1, rows(1)), (2, rows(1))]), minority(&[0]));
    let of = descriptor(&[0, 1, 2, 3, 4]);
    assert_eq!(verdict(&of, &[(0, rows(1)), (1, rows(2)), (2, rows(1)), (3, rows(1))]), minority(&[1]));
    // Rows differ if their checksums differ for equal counts, or if their counts differ for equal
    // checksums.
    let counted = CheckOutcome::Rows(RowsChecksum { checksum: 1, rows: 2, bytes: 30 });
    assert_eq!(verdict(&descriptor(&[0, 1, 2]), &[(0, counted), (1, rows(1)), (2, rows(1))]), minority(&[0]));
}

#[test]
fn without_a_majority_nothing_is_decided() {
    let two = descriptor(&[0, 1]);
    assert_eq!(verdict(&two, &[(0, rows(1)), (1, rows(2))]), Verdict::NoMajority);
    let three = descriptor(&[0, 1, 2]);
    assert_eq!(verdict(&three, &[(0, rows(1)), (1, rows(2))]), Verdict::NoMajority);
    assert_eq!(verdict(&three, &[(0, rows(1)), (1, rows(2)), (2, rows(3))]), Verdict::NoMajority);
    assert_eq!(verdict(&three, &[(0, CheckOutcome::Unreadable)]), Verdict::NoMajority);
}

#[test]
fn learners_are_compared_and_do_not_count_for_a_majority() {
    let mut of = descriptor(&[0, 1, 2]);
    of.peers[2].role = PeerRole::Learner;
    assert_eq!(verdict(&of, &[(0, rows(1)), (1, rows(2)), (2, rows(1))]), Verdict::NoMajority);
    let minority = Verdict::Minority { stores: vec![2] };
    assert_eq!(verdict(&of, &[(0, rows(1)), (1, rows(1)), (2, rows(2))]), minority);
}

fn report(number: u64, index: LogIndex, checksum: u64) -> CheckReport {
    CheckReport { region: 1, number, index, outcome: rows(checksum) }
}

#[test]
fn reports_of_other_checks_are_not_compared_and_older_ones_are_not_taken() {
    let of = descriptor(&[0, 1, 2]);
    let mut book = CheckBook::default();
    book.report(0, report(7, 50, 1), of.clone(), 10);
    assert_eq!(book.hear(1, &[report(6, 40, 9)], 11), [1]);
    let (own, _, comparison) = book.compare_own(1).unwrap();
    assert_eq!((own.number, comparison.index), (7, 50));
    assert_eq!(comparison.verdict, Verdict::Incomplete { missing: vec![1, 2] });
    book.hear(1, &[report(7, 50, 1)], 12);
    book.hear(2, &[report(7, 50, 1)], 13);
    assert_eq!(book.compare_own(1).unwrap().2.verdict, Verdict::Equal);
    assert!(
        book.hear(2, &[report(6, 40, 1)], 14).is_empty(),
        "the report is of an old order that was executed again"
    );
    assert_eq!(book.compare_own(1).unwrap().2.verdict, Verdict::Equal);
    assert_eq!(book.last(1), Some(10));
}

#[test]
fn a_report_is_told_for_a_while_and_no_longer_than_its_rows_last() {
    let of = descriptor(&[0, 1, 2]);
    let mut book = CheckBook::default();
    book.report(0, report(7, 50, 1), of, 10);
    assert_eq!(book.tell(TOLD_NANOS), [report(7, 50, 1)]);
    assert!(book.tell(TOLD_NANOS + 10).is_empty());
    book.withdraw(0, 1);
    assert!(book.tell(11).is_empty() && book.compare_own(1).is_none());
    assert_eq!(book.last(1), Some(10), "the check is still known");
}
