use types::RegionDescriptor;

use super::*;

fn report(region: RegionId, keys: u64) -> LeadReport {
    LeadReport { keys, ..LeadReport::blank(RegionDescriptor::founded(region, None, &[]), 1) }
}

fn told(leads: &Leads) -> Vec<(RegionId, u64)> {
    leads.reports.iter().map(|lead| (lead.region(), lead.keys)).collect()
}

#[test]
fn what_has_changed_since_the_last_full_report_is_told_until_the_next() {
    let mut book = DeltaTracker::default();
    (1..=3).for_each(|region| book.put(report(region, 0)));
    let first = book.tell(10, false);
    assert_eq!(
        (first.since, told(&first)),
        (10, vec![(1, 0), (2, 0), (3, 0)]),
        "the first heartbeat is full"
    );
    assert_eq!(told(&book.tell(11, false)), [], "idle regions are not reported");

    book.put(report(2, 5));
    book.remove(3);
    for seq in 12..15 {
        let delta = book.tell(seq, false);
        assert_eq!((delta.since, told(&delta), delta.gone), (10, vec![(2, 5)], vec![3]));
    }
    book.put(report(3, 6));
    let delta = book.tell(15, false);
    assert_eq!((told(&delta), delta.gone), (vec![(2, 5), (3, 6)], vec![]));
    let full = book.tell(16, true);
    assert_eq!((full.since, told(&full)), (16, vec![(1, 0), (2, 5), (3, 6)]));
    assert_eq!(book.tell(17, false), Leads { since: 16, ..Leads::default() });
}

#[test]
fn a_rate_that_fades_is_told_now_and_then_and_its_end_always() {
    let mut book = DeltaTracker::default();
    book.put(LeadReport { write_rate: 1000.0, ..report(1, 0) });
    book.tell(1, true);
    let (mut rate, mut sent) = (1000.0, 0);
    for seq in 2..200 {
        rate *= 0.96;
        book.put(LeadReport { write_rate: rate, ..report(1, 0) });
        sent += book.tell(seq, true).reports.iter().filter(|lead| lead.write_rate == rate).count();
    }
    assert!((20..80).contains(&sent), "{sent} of 198");
    book.put(LeadReport { write_rate: 0.0, ..report(1, 0) });
    assert_eq!(book.get(1).unwrap().write_rate, 0.0);
}

#[test]
fn ten_thousand_idle_regions_are_a_heartbeat_of_a_few_bytes() {
    let mut book = DeltaTracker::default();
    (1..=10_000).for_each(|region| book.put(report(region, 1)));
    let mut bytes = |seq, full| {
        let leads = book.tell(seq, full);
        crate::StoreHeartbeat { seq, leads, ..Default::default() }.encode(types::NEWEST_VERSION).len()
    };
    assert!(bytes(1, true) > 500_000);
    assert!(bytes(2, false) < 128);
}
