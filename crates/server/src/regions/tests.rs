use futures::FutureExt;
use node::reads::Local;

use super::*;

const THIS: StoreId = 7;
const OTHER: StoreId = 8;

/// Returns two regions, of which the first has a peer here.
fn regions() -> Regions {
    let founded =
        |id, first, last| RegionDescriptor::founded(id, Some(SlotRange { first, last }), &[THIS, OTHER]);
    let (here, elsewhere) = (founded(1, 0, 99), founded(2, 100, 199));
    Regions::new(THIS, &[here], &[elsewhere], Arc::default(), Gauge::default())
}

fn led(term: Term, leader: StoreId) -> Leadership {
    Leadership { term, leader: Some(leader) }
}

#[test]
fn a_new_leader_is_counted_reported_and_told_of() {
    let regions = regions();
    let changed = regions.leader_changes.notified();
    tokio::pin!(changed);
    changed.as_mut().enable();
    regions.lead(1, led(5, THIS));
    assert!(changed.now_or_never().is_some() && regions.report_soon.notified().now_or_never().is_some());
    assert_eq!((regions.leaders.get(), regions.take_touched()), (1, vec![1]));
    regions.lead(1, led(5, THIS));
    assert_eq!((regions.leaders.get(), regions.take_touched()), (1, vec![]), "the leader is known");
    regions.lead(1, led(6, OTHER));
    assert_eq!((regions.leaders.get(), regions.take_touched()), (0, vec![1]));
    // A change between other leaders can wait for the next heartbeat.
    assert!(regions.report_soon.notified().now_or_never().is_some());
    let two = regions.get(2).unwrap();
    regions.hear_leader(&two, 3, OTHER);
    assert_eq!((two.leader(), regions.leaders.get()), (Some(OTHER), 0));
    assert!(regions.report_soon.notified().now_or_never().is_none());
}

#[test]
fn a_lease_counts_in_its_term_and_ends_with_the_lead() {
    let regions = regions();
    let one = regions.get(1).unwrap();
    regions.lease(1, 5, Some(100));
    assert!(!one.lease_holds(1), "this store does not lead");
    regions.lead(1, led(5, THIS));
    regions.lease(1, 4, Some(100));
    assert!(!one.lease_holds(1), "the lease is of another term");
    regions.lease(1, 5, Some(100));
    assert!(one.lease_holds(99) && !one.lease_holds(100));
    regions.lead(1, led(6, OTHER));
    assert!(!one.lease_holds(1));
}

#[test]
fn silent_leaders_are_forgotten_where_they_are_known_by_hearsay() {
    let regions = regions();
    let (one, two) = (regions.get(1).unwrap(), regions.get(2).unwrap());
    regions.lead(1, led(5, OTHER));
    regions.hear_leader(&two, 5, OTHER);
    regions.forget_leaders(|store| store == THIS);
    assert_eq!((one.leader(), two.leader()), (Some(OTHER), Some(OTHER)));
    regions.forget_leaders(|store| store == OTHER);
    assert_eq!((one.leader(), two.leader()), (Some(OTHER), None), "this store's own peer reports the leader");
}

#[test]
fn a_peer_that_goes_takes_its_lead_with_it() {
    let regions = regions();
    regions.lead(1, led(5, THIS));
    regions.lease(1, 5, Some(100));
    regions.remove_local(1);
    let one = regions.get(1).unwrap();
    assert_eq!((one.leader(), one.is_local(), one.lease_holds(1)), (None, false, false));
    assert_eq!((regions.leaders.get(), regions.local()), (0, vec![]));
}
