//! Claims about a quarantined peer: it appends and votes, and leads at most to commit orders.

use super::*;
use steelyard_replica::Unfit;

fn quarantine(trio: &mut Trio, store: usize, index: u64) {
    trio.step(store, Input::Quarantine { region: REGION, index, may_lead: true });
}

/// Ticks every store until the condition holds.
fn tick_until(trio: &mut Trio, what: &str, holds: impl Fn(&Trio) -> bool) {
    for _ in 0..600 {
        if holds(trio) {
            return;
        }
        (0..3).for_each(|store| trio.tick(store, 1));
        trio.settle();
    }
    panic!("{what}");
}

#[test]
fn a_quarantined_leader_hands_over_and_goes_on_appending() {
    let mut trio = Trio::led();
    let held = trio.last_and_term(0).0 + 1;
    quarantine(&mut trio, 0, held);
    trio.settle();
    let leads = |trio: &Trio| (1..3).find(|store| trio.role(*store) == Role::Leader);
    tick_until(&mut trio, "another store leads", |trio| leads(trio).is_some());
    let leader = leads(&trio).unwrap();
    trio.propose(leader, 1, b"one");
    trio.settle();
    // Without store 0 there is no majority, so it must append and acknowledge.
    let silent = 3 - leader;
    trio.propose(leader, 2, b"two");
    trio.settle_only(|to, _| to != silent as u64);
    tick_until(&mut trio, "both are committed", |trio| {
        let status = |store: usize| trio.nodes[store].worker.status(REGION, trio.now).unwrap();
        status(leader).commit == status(leader).last && status(0).commit == status(leader).commit
    });
    let status = trio.nodes[0].worker.status(REGION, trio.now).unwrap();
    assert!(status.is_quarantined && status.applied < held && status.commit > held, "{status:?}");
    let shown = |payload: &[u8]| {
        trio.saw(0, |action| {
            matches!(action, Action::Withheld { entries, .. } if entries.iter().any(|(_, data)| data == payload))
        })
    };
    assert!(shown(b"one") && shown(b"two"));
    trio.step(0, Input::Release { region: REGION });
    let status = trio.nodes[0].worker.status(REGION, trio.now).unwrap();
    assert_eq!(status.applied, status.commit, "everything is handed out once it is released");
}

#[test]
fn a_quarantined_peer_executes_what_lies_before_the_entry_as_after_a_restart() {
    let mut trio = Trio::led();
    let last = trio.last_and_term(0).0;
    quarantine(&mut trio, 1, last + 2);
    trio.step(2, Input::Quarantine { region: REGION, index: last + 2, may_lead: false });
    trio.propose(0, 1, b"before");
    trio.propose(0, 2, b"held");
    trio.settle();
    tick_until(&mut trio, "both are committed", |trio| {
        (0..3).all(|store| trio.nodes[store].worker.status(REGION, trio.now).unwrap().commit == last + 2)
    });
    let applied = |store: usize| trio.nodes[store].worker.status(REGION, trio.now).unwrap().applied;
    assert_eq!((applied(0), applied(1)), (last + 2, last + 1));
    assert_eq!(applied(2), last, "nothing is executed on unsound rows");
}

#[test]
fn a_peer_that_waits_for_its_split_is_quarantined_once_it_is_made() {
    const CHILD: RegionId = REGION + 1;
    let mut alone = Trio::new(1);
    let status = |alone: &Trio, region| alone.nodes[0].worker.status(region, alone.now);
    let tick_until_led = |alone: &mut Trio, region| {
        for _ in 0..100 {
            if status(alone, region).is_some_and(|status| status.role == Role::Leader) {
                return;
            }
            alone.tick(0, 1);
        }
        panic!("region {region} is not led: {:?}", status(alone, region));
    };
    tick_until_led(&mut alone, REGION);
    let before = status(&alone, REGION).unwrap();
    let change = RegionChange::Split { at: 1500, new_region: CHILD };
    alone.step(0, Input::ChangeRegion { region: REGION, token: 1, expect: before.descriptor.epoch, change });
    tick_until_led(&mut alone, CHILD);
    let child = status(&alone, CHILD).unwrap();
    let held = child.last + 1;
    for (token, payload) in [(2, "fails"), (3, "later")] {
        let payload = Bytes::from_static(payload.as_bytes());
        alone.step(0, Input::Propose { region: CHILD, token, payload });
    }
    assert_eq!(status(&alone, CHILD).unwrap().commit, held + 1);
    // The store restarts without the rows of the split.
    let mut seeds = seed(1);
    let (descriptor, parent) = (child.descriptor, Some((REGION, before.last + 1)));
    seeds.push(PeerSeed { descriptor, applied: None, parent, unclean: Unclean::No });
    let disk = alone.nodes[0].disk.clone();
    alone.nodes[0].worker = Worker::new(config(0, 5), disk, seeds, BTreeMap::new(), alone.now).unwrap();
    alone.nodes[0].seen.clear();
    assert!(status(&alone, CHILD).is_none(), "it waits");
    alone.step(0, Input::Quarantine { region: CHILD, index: held, may_lead: true });
    tick_until_led(&mut alone, CHILD);
    assert!(status(&alone, CHILD).unwrap().is_quarantined);
    let executed = |alone: &Trio| {
        let last = |action: &Action| match action {
            Action::Apply { region: CHILD, entries } => entries.last().map(|entry| entry.index),
            _ => None,
        };
        alone.nodes[0].seen.iter().filter_map(last).max()
    };
    assert_eq!(executed(&alone), Some(held - 1));
    alone.step(0, Input::Release { region: CHILD });
    assert!(executed(&alone) > Some(held), "{:?} of {held}", executed(&alone));
}

#[test]
fn where_every_voter_is_quarantined_one_leads_for_orders_and_for_nothing_else() {
    let mut trio = Trio::led();
    let held = trio.last_and_term(0).0 + 1;
    (0..3).for_each(|store| quarantine(&mut trio, store, held));
    trio.settle();
    // The state is as after a restart of all stores: the previous leader no longer leads.
    trio.nodes[0].seen.clear();
    let isolated: Vec<(StoreId, StoreId, Message)> = std::mem::take(&mut trio.wire);
    drop(isolated);
    let mut token = 10;
    let committed = |trio: &Trio| {
        let is_order = |action: &Action| matches!(action, Action::Withheld { entries, .. } if entries.iter().any(|(_, data)| data == "order"));
        (0..3).all(|store| trio.saw(store, is_order))
    };
    for _ in 0..600 {
        if committed(&trio) {
            break;
        }
        if let Some(leader) = (0..3).find(|store| trio.role(*store) == Role::Leader) {
            token += 1;
            trio.propose(leader, token, b"command");
            assert!(trio.refusal(leader, token).is_some(), "no command is accepted");
            let payload = Bytes::from_static(b"order");
            trio.step(leader, Input::ProposeOrder { region: REGION, token: 1000 + token, payload });
        }
        (0..3).for_each(|store| trio.tick(store, 1));
        trio.settle();
    }
    assert!(committed(&trio), "an order is committed");
    assert!(
        (0..3).all(|store| !trio.saw(store, |action| matches!(action, Action::Lease { until: Some(_), .. })))
    );
    (0..3).for_each(|store| trio.step(store, Input::Release { region: REGION }));
    let status = |store: usize| trio.nodes[store].worker.status(REGION, trio.now).unwrap();
    assert!((0..3).all(|store| status(store).applied == status(store).commit && status(store).commit >= held));
}

#[test]
fn no_region_is_recovered_from_a_quarantined_peer_and_one_that_survives_follows() {
    let mut trio = quorum_loss::two_of_five(0);
    let held = trio.last_and_term(0).0 + 1;
    trio.step(0, Input::Quarantine { region: REGION, index: held, may_lead: true });
    let (quarantined, kept) = (quorum_loss::report(&mut trio, 0), quorum_loss::report(&mut trio, 1));
    assert_eq!(quarantined.unfit, Some(Unfit::Quarantined { index: held }));
    assert_eq!((kept.unfit, quarantined.ends_as), (None, kept.ends_as.clone()));
    let term = kept.term.max(quarantined.term) + 9;
    let own = quorum_loss::recovery(0, &[2, 3, 4], kept.commit, kept.last);
    quorum_loss::promise(&mut trio, 0, term, 1).unwrap();
    let refused = Err(RecoveryRefusal::Unfit(Unfit::Quarantined { index: held }));
    assert_eq!(quorum_loss::recover(&mut trio, 0, term, &own), refused);
    // It promises itself to a sound keeper, and follows that one's log.
    for store in [0, 1] {
        quorum_loss::promise(&mut trio, store, term + 9, 2).unwrap();
    }
    let order = quorum_loss::recovery(1, &[2, 3, 4], kept.commit, kept.last);
    quorum_loss::recover(&mut trio, 1, term + 9, &order).unwrap();
    for _ in 0..20 {
        trio.tick(1, 1);
        trio.settle_only(|to, _| to < 2);
    }
    assert_eq!(trio.role(1), Role::Leader);
    let status = |trio: &Trio, store: usize| trio.nodes[store].worker.status(REGION, trio.now).unwrap();
    let (follower, leader) = (status(&trio, 0), status(&trio, 1));
    assert_eq!((follower.commit, follower.leader), (leader.commit, Some(1)));
    assert!(follower.is_quarantined && follower.applied < held, "{follower:?}");
    // The recovery counts in what its log ends as, although nothing of it is executed.
    assert_eq!(quorum_loss::report(&mut trio, 0).ends_as.recoveries, std::slice::from_ref(&order));
}

#[test]
fn a_region_is_not_recovered_from_rows_that_differ() {
    let mut trio = quorum_loss::two_of_five(0);
    let index = trio.last_and_term(0).0 + 1;
    trio.step(0, Input::Quarantine { region: REGION, index, may_lead: false });
    assert_eq!(quorum_loss::report(&mut trio, 0).unfit, Some(Unfit::RowsDiffer));
}
