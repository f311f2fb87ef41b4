//! A majority that is lost for good.

use super::*;

/// Creates a region of five stores. Stores 0 and 1 have `more` entries that the others lack. The
/// leader has stepped down.
pub(super) fn two_of_five(more: u64) -> Trio {
    let mut trio = Trio::led_of(5);
    trio.propose(0, 1, b"everywhere");
    trio.settle();
    for token in 0..more {
        trio.propose(0, 10 + token, b"on two stores");
    }
    trio.settle_only(|to, _| to == 1);
    while trio.role(0) == Role::Leader {
        trio.tick(0, 1);
        trio.settle_only(|_, _| false);
    }
    trio.clear();
    trio
}

pub(super) fn report(trio: &mut Trio, store: usize) -> steelyard_replica::PeerReport {
    let now = trio.now;
    trio.nodes[store].worker.reports(now).remove(0)
}

pub(super) fn recovery(keeper: StoreId, lost: &[StoreId], committed: u64, last: u64) -> types::Recovery {
    types::Recovery { order: 99, at_ms: 1, keeper, lost: lost.to_vec(), committed, last }
}

pub(super) fn promise(trio: &mut Trio, store: usize, term: u64, keeper: u64) -> Result<(), RecoveryRefusal> {
    let now = trio.now;
    let outcome = trio.nodes[store].worker.promise_recovery(REGION, term, keeper, now);
    trio.turn(store);
    outcome
}

pub(super) fn recover(
    trio: &mut Trio,
    store: usize,
    term: u64,
    of: &types::Recovery,
) -> Result<(), RecoveryRefusal> {
    let now = trio.now;
    let outcome = trio.nodes[store].worker.recover(REGION, term, of, now);
    trio.turn(store);
    outcome
}

#[test]
fn a_recovered_region_goes_on_from_its_keepers_whole_log_and_the_other_survivor_follows() {
    let mut trio = two_of_five(3);
    let (kept, other) = (report(&mut trio, 0), report(&mut trio, 1));
    assert!(kept.commit < kept.last && kept.last == other.last && kept.unfit.is_none() && !kept.leads);
    assert_eq!(kept.runs[0].1, other.runs[0].1, "the last entries are of one term");
    let term = kept.term.max(other.term) + 9;
    let order = recovery(0, &[2, 3, 4], kept.commit, kept.last);
    assert_eq!(recover(&mut trio, 0, term, &order), Err(RecoveryRefusal::NotPromised));
    for store in [0, 1] {
        assert_eq!(promise(&mut trio, store, term, 1), Ok(()));
        let promised = report(&mut trio, store);
        assert!(promised.is_saved && (promised.term, promised.vote) == (term, Some(1)));
    }
    let stale = recovery(0, &[2, 3, 4], kept.commit, kept.last - 1);
    assert_eq!(recover(&mut trio, 0, term, &stale), Err(RecoveryRefusal::Moved { last: kept.last }));
    assert_eq!(recover(&mut trio, 0, term, &order), Ok(()));
    assert_eq!(trio.role(0), Role::Leader, "it is the only voter, and leads at once");
    let status = trio.nodes[0].worker.status(REGION, trio.now).unwrap();
    assert_eq!(status.descriptor.voters().collect::<Vec<_>>(), [0]);
    assert_eq!(status.descriptor.recoveries, std::slice::from_ref(&order));
    assert!(status.applied > kept.last, "all of its log counts as committed");
    assert_eq!(recover(&mut trio, 0, term, &order), Ok(()), "an order that is repeated changes nothing");
    trio.settle_only(|to, _| to < 2);
    for _ in 0..20 {
        trio.tick(0, 1);
        trio.settle_only(|to, _| to < 2);
    }
    let follower = trio.nodes[1].worker.status(REGION, trio.now).unwrap();
    assert_eq!(follower.descriptor, status.descriptor);
    let leader = trio.nodes[0].worker.status(REGION, trio.now).unwrap();
    assert_eq!((follower.leader, follower.applied), (Some(0), leader.applied));
    trio.propose(0, 77, b"after it");
    trio.settle_only(|to, _| to < 2);
    assert!(trio.saw(0, |action| matches!(action, Action::Apply { entries, .. }
        if entries.iter().any(|entry| entry.token == Some(77)))));
}

#[test]
fn lost_stores_that_come_back_are_told_and_elect_nobody_with_a_survivor() {
    let mut trio = two_of_five(0);
    let kept = report(&mut trio, 0);
    let term = kept.term + 9;
    for store in [0, 1] {
        promise(&mut trio, store, term, 1).unwrap();
    }
    recover(&mut trio, 0, term, &recovery(0, &[2, 3, 4], kept.commit, kept.last)).unwrap();
    for _ in 0..10 {
        trio.tick(0, 1);
        trio.settle_only(|to, _| to < 2);
    }
    trio.clear();
    // Two of the lost stores return. Either survivor and they would have a majority of the previous
    // voters.
    for _ in 0..60 {
        for store in [2, 3] {
            trio.tick(store, 1);
        }
        trio.settle_only(|to, _| to != 4);
        for store in [0, 1] {
            let announced = trio.nodes[store].seen.iter().filter_map(|action| match action {
                Action::Announce { to, descriptor } if (2..4).contains(to) => Some((*to, descriptor.clone())),
                _ => None,
            });
            for (to, descriptor) in announced.collect::<Vec<_>>() {
                if trio.nodes[to as usize].worker.status(REGION, trio.now).is_some() {
                    trio.step(to as usize, Input::Announced { from: store as u64, descriptor });
                }
            }
        }
        let leads = |store: usize| {
            let status = trio.nodes[store].worker.status(REGION, trio.now);
            status.is_some_and(|status| status.role == Role::Leader)
        };
        assert!(leads(0) && !leads(1) && !leads(2) && !leads(3));
    }
    for store in [2, 3] {
        assert!(trio.nodes[store].worker.status(REGION, trio.now).is_none(), "store {store} was told");
        assert!(trio.saw(store, |action| matches!(action, Action::Destroy { .. })));
    }
}

#[test]
fn a_survivor_promises_itself_to_one_keeper_in_a_term_and_only_while_nobody_leads() {
    let mut trio = Trio::led();
    let term = report(&mut trio, 0).term;
    assert_eq!(promise(&mut trio, 0, term + 9, 1), Err(RecoveryRefusal::Leads));
    assert_eq!(promise(&mut trio, 1, term, 2), Err(RecoveryRefusal::Promised { term }));
    trio.nodes[1].holds_writes = true;
    assert_eq!(promise(&mut trio, 1, term + 9, 2), Ok(()));
    assert!(!report(&mut trio, 1).is_saved, "its log write is pending");
    let at_once = recovery(1, &[0, 2], 6, report(&mut trio, 1).last);
    assert_eq!(recover(&mut trio, 1, term + 9, &at_once), Err(RecoveryRefusal::NotPromised));
    trio.finish_write(1);
    assert!(report(&mut trio, 1).is_saved);
    assert_eq!(promise(&mut trio, 1, term + 9, 2), Ok(()), "a repeated promise succeeds");
    assert_eq!(promise(&mut trio, 1, term + 9, 1), Err(RecoveryRefusal::Promised { term: term + 9 }));
    // Messages of the previous leader no longer count.
    let last = report(&mut trio, 1).last;
    trio.propose(0, 5, b"late");
    trio.settle_only(|to, _| to == 1);
    assert_eq!(report(&mut trio, 1).last, last);
}

#[test]
fn a_keeper_that_crashes_goes_on_from_what_its_log_has() {
    let mut trio = two_of_five(2);
    let kept = report(&mut trio, 0);
    let term = kept.term + 9;
    for store in [0, 1] {
        promise(&mut trio, store, term, 1).unwrap();
    }
    trio.nodes[0].holds_writes = true;
    let order = recovery(0, &[2, 3, 4], kept.commit, kept.last);
    recover(&mut trio, 0, term, &order).unwrap();
    assert_ne!(trio.role(0), Role::Leader, "the order has no effect before it is written");
    for is_written in [false, true] {
        if is_written {
            let batch = trio.nodes[0].writing.remove(0);
            trio.nodes[0].disk.write(&batch);
        }
        let disk = trio.nodes[0].disk.clone();
        let mut again = Worker::new(config(0, 5), disk, seed(5), BTreeMap::new(), trio.now).unwrap();
        let report = again.reports(trio.now).remove(0);
        assert_eq!((report.term, report.vote), (term, Some(1)), "the promise outlives the crash");
        assert_eq!(report.last, kept.last + u64::from(is_written));
        assert_eq!(report.commit == report.last, is_written);
        let recovers = report.ends_as.recoveries.contains(&order);
        assert_eq!(recovers, is_written);
    }
}
