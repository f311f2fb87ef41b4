use bytes::Bytes;
use command::entry::Builder;
use storage::Txn;
use types::UnixMillis;

use super::*;
use crate::fixture::Fixture;
use crate::region::inbox::ToWorker;
use crate::region::shared::Leadership;

/// Long ago: what expires at this time plus a little has expired.
const STAMP_MS: UnixMillis = 1_000_000;

fn lead(fixture: &Fixture, regions: &[RegionId]) {
    for region in regions {
        let led = Leadership { term: 1, leader: Some(fixture.store.id) };
        assert!(fixture.store.regions.get(*region).unwrap().set_leadership(led));
    }
}

/// Makes rows of commands as a region's apply does.
fn apply(fixture: &Fixture, region: RegionId, commands: &[&str]) {
    let region = &fixture.store.regions.get(region).unwrap();
    let engine = &fixture.store.engine;
    let mut entry = Builder::new();
    for command in commands {
        let args: Vec<Bytes> = command.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        entry.push(0, false, &args);
    }
    let mut txn = Txn::begin(engine.flash(), region.id()).expect("rows are read");
    let slots = region.slots_or_all();
    let replies = command::entry::apply(&entry.finish(STAMP_MS, 1), &mut txn, slots).expect("it applies");
    assert!(replies.iter().flatten().all(|reply| !reply.is_error()), "{replies:?}");
    txn.state_mut().applied_index += 1;
    let (writes, state) = txn.finish();
    region.note_garbage(&writes, state.applied_index);
    engine.write(&writes).expect("rows are written");
    engine.publish_counts(region.id(), &state);
    region.set_applied(state.applied_index, state.last_stamp_ms);
}

/// One round, and what it would propose.
fn round(keeper: &mut Keeper, fixture: &Fixture, now: Instant) -> Vec<(RegionId, Maintenance)> {
    let looks = keeper.begin(&fixture.store, now);
    let looked = look_at_all(&fixture.store, looks).expect("rows are read");
    keeper.end(looked, now).into_iter().map(|(region, found)| (region.id(), found)).collect()
}

#[test]
fn what_is_due_and_what_is_garbage_is_found() {
    let fixture = Fixture::new();
    lead(&fixture, &[1]);
    let mut keeper = Keeper::default();
    let now = Instant::now();
    assert!(round(&mut keeper, &fixture, now).is_empty());
    apply(&fixture, 1, &["SET gone 1 PX 5", "SET stays 1", "SET later 1 PXAT 99999999999999"]);
    // More elements than a deletion takes with it.
    let fields: String = (0..2000).map(|field| format!(" {field} x")).collect();
    apply(&fixture, 1, &[&format!("HSET hash{fields}"), "DEL hash"]);
    let found = round(&mut keeper, &fixture, now + SWEEP_REST_MAX);
    let [(1, found)] = &found[..] else { panic!("one region has work") };
    assert_eq!(found.expire, [types::slot_of_key(b"gone")]);
    assert_eq!(found.sweep, [types::slot_of_key(b"hash")]);
}

#[test]
fn a_region_is_searched_for_garbage_once_and_from_then_on_when_some_was_left() {
    let fixture = Fixture::new();
    lead(&fixture, &[1]);
    apply(&fixture, 1, &["SET k v"]);
    let mut keeper = Keeper::default();
    let mut now = Instant::now();
    assert_eq!(keeper.begin(&fixture.store, now).len(), 1);
    assert!(round(&mut keeper, &fixture, now).is_empty());
    // A small hash goes with its elements.
    apply(&fixture, 1, &["SET k w", "DEL k", "HSET small f v", "DEL small"]);
    now += 100 * SWEEP_REST_MAX;
    assert!(keeper.begin(&fixture.store, now).is_empty());
    let fields: String = (0..2000).map(|field| format!(" {field} x")).collect();
    apply(&fixture, 1, &[&format!("HSET hash{fields}"), "DEL hash"]);
    let looks = keeper.begin(&fixture.store, now);
    assert!(looks.len() == 1 && looks[0].sweep.is_some() && looks[0].expiry.is_none());
    assert_eq!(round(&mut keeper, &fixture, now)[0].1.sweep, [types::slot_of_key(b"hash")]);
    // Until a search has found nothing, whatever is applied meanwhile.
    apply(&fixture, 1, &["SET k v"]);
    now += SWEEP_REST_MAX;
    assert_eq!(round(&mut keeper, &fixture, now).len(), 1);
}

/// As after a merge, whose rows nobody here has looked through.
#[test]
fn a_region_in_which_garbage_may_have_come_is_searched_through_that_entry() {
    let fixture = Fixture::new();
    lead(&fixture, &[1]);
    let mut keeper = Keeper::default();
    let now = Instant::now();
    assert!(round(&mut keeper, &fixture, now).is_empty());
    apply(&fixture, 1, &["SET k v"]);
    let later = now + SWEEP_REST_MAX;
    assert!(keeper.begin(&fixture.store, later).is_empty());
    let region = fixture.store.regions.get(1).unwrap();
    region.expect_garbage(region.applied());
    assert!(round(&mut keeper, &fixture, later).is_empty());
    assert!(keeper.begin(&fixture.store, later + SWEEP_REST_MAX).is_empty(), "it was looked through");
    region.expect_garbage(region.applied() + 1);
    assert_eq!(keeper.begin(&fixture.store, later + SWEEP_REST_MAX).len(), 1);
}

#[test]
fn only_regions_led_here_are_searched_and_a_new_leader_starts_afresh() {
    let fixture = Fixture::new();
    apply(&fixture, 1, &["SET gone 1 PX 5"]);
    let mut keeper = Keeper::default();
    let now = Instant::now();
    assert!(keeper.begin(&fixture.store, now).is_empty());
    lead(&fixture, &[1]);
    assert_eq!(round(&mut keeper, &fixture, now).len(), 1);
    assert!(fixture.store.regions.get(1).unwrap().set_leadership(Leadership { term: 2, leader: None }));
    assert!(keeper.begin(&fixture.store, now).is_empty());
    assert!(keeper.searches.is_empty());
}

#[test]
fn one_rounds_seeks_are_shared_by_its_regions() {
    let fixture = Fixture::with(|config| {
        config.cluster_enabled = true;
        config.regions = 7;
    });
    lead(&fixture, &[1, 2, 3, 4, 5, 6, 7]);
    let looks = Keeper::default().begin(&fixture.store, Instant::now());
    assert_eq!(looks.len(), 7);
    let probes: usize = looks.iter().filter_map(|look| look.sweep).map(|part| part.probes).sum();
    assert!(probes <= SWEEP_PROBES && probes > SWEEP_PROBES / 2, "{probes}");
    let mut crowd = vec![Part { from: 0, probes: 0 }; SWEEP_PROBES * 2];
    share(SWEEP_PROBES, crowd.iter_mut().collect());
    assert!(crowd.iter().all(|part| part.probes == 1), "a search always goes on");
}

#[test]
fn fruitless_searches_rest_ever_longer_up_to_a_bound_and_a_find_ends_that() {
    let mut now = Instant::now();
    let mut search = Search::new(now, EXPIRY_REST_MAX);
    let nothing = Looked { slots: Vec::new(), next: None };
    let mut rests = Vec::new();
    for _ in 0..8 {
        assert!(search.took(&nothing, now), "it was looked through and there was nothing");
        assert!(!search.is_due(now));
        rests.push(search.due - now);
        now = search.due;
        assert!(search.is_due(now));
    }
    assert_eq!(rests[..3], [PERIOD, 2 * PERIOD, 4 * PERIOD]);
    assert_eq!(rests[7], EXPIRY_REST_MAX);
    // A find in the first part of a search: the search as a whole was worth it.
    assert!(!search.took(&Looked { slots: vec![5], next: Some(6) }, now));
    assert!(search.is_due(now) && search.from == 6);
    assert!(!search.took(&nothing, now));
    assert!(search.is_due(now) && search.from == 0);
    assert!(search.took(&nothing, now));
    assert_eq!(search.due - now, PERIOD);
}

#[test]
fn what_one_proposal_does_not_hold_is_where_the_next_look_begins() {
    let slots: Vec<Slot> = (0..100).collect();
    let looked = cut(command::Found { slots: slots.clone(), next: None });
    assert_eq!(looked, Looked { slots: slots[..SLOTS_MAX].to_vec(), next: Some(64) });
    let looked = cut(command::Found { slots: slots[..SLOTS_MAX].to_vec(), next: Some(200) });
    assert_eq!(looked, Looked { slots: slots[..SLOTS_MAX].to_vec(), next: Some(200) });
}

/// The worker of the fixture answers nothing, as that of a region without a quorum.
#[tokio::test]
async fn a_region_whose_proposal_waits_holds_up_no_other() {
    let fixture = Fixture::with(|config| {
        config.cluster_enabled = true;
        config.regions = 2;
    });
    lead(&fixture, &[1, 2]);
    // Slots of `a` and `b` are of different regions.
    let (a, b) = (types::slot_of_key(b"a"), types::slot_of_key(b"b"));
    let region_of = |slot| fixture.store.regions.of_slot(slot).expect("regions cover all slots").id();
    assert_ne!(region_of(a), region_of(b));
    apply(&fixture, region_of(a), &["SET a 1 PX 5"]);
    let task = tokio::spawn(run(fixture.store.clone()));
    let mut waiting = Vec::new();
    let proposed = async |waiting: &mut Vec<ToWorker>| loop {
        let told = fixture.told().next();
        if let Some(told) = told {
            let ToWorker::Submit(submit) = &told else { panic!("expiry only proposes") };
            let region = submit.region;
            waiting.push(told);
            return region;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(proposed(&mut waiting).await, region_of(a));
    apply(&fixture, region_of(b), &["SET b 1 PX 5"]);
    assert_eq!(proposed(&mut waiting).await, region_of(b));
    task.abort();
}
