use bytes::Bytes;
use command::entry::Builder;
use storage::Txn;
use types::UnixMillis;

use super::*;
use crate::fixture::Fixture;
use crate::loops::ToWorker;
use node::Leadership;

/// A time long ago. Keys that expire shortly after it have expired.
const STAMP_MS: UnixMillis = 1_000_000;

fn lead(fixture: &Fixture, regions: &[RegionId]) {
    for region in regions {
        let led = Leadership { term: 1, leader: Some(fixture.store.id) };
        fixture.store.regions.lead(*region, led);
    }
}

/// Writes the rows that these commands create, as a region's apply does.
fn apply(fixture: &Fixture, region: RegionId, commands: &[&str]) {
    let region = &fixture.store.regions.get(region).unwrap();
    let engine = &fixture.store.engine;
    let mut entry = Builder::new();
    for command in commands {
        let args: Vec<Bytes> = command.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        entry.push(0, false, &args);
    }
    let mut txn = Txn::begin(engine.rows(), region.id()).expect("rows are read");
    let slots = region.slots_or_all();
    let replies = command::entry::apply(&entry.finish(STAMP_MS, 1), &mut txn, slots).expect("it applies");
    assert!(replies.iter().flatten().all(|reply| !reply.is_error()), "{replies:?}");
    txn.state_mut().applied_index += 1;
    let (writes, state) = txn.finish();
    engine.write(writes);
    engine.publish_counts(region.id(), &state);
    fixture.store.regions.set_applied(region.id(), state.applied_index, state.last_stamp_ms);
}

/// Runs one round. Returns its proposals.
fn round(keeper: &mut Keeper, fixture: &Fixture, clock_ms: UnixMillis) -> Vec<(RegionId, Maintenance)> {
    let looks = keeper.begin(&fixture.store.expirer(), Instant::now(), clock_ms);
    let looked = look_at_all(&fixture.store.engine, looks).expect("rows are read");
    keeper.end(looked).into_iter().map(|(region, found)| (region.id(), found)).collect()
}

/// Runs rounds until every slot has been searched. Nothing must be found.
fn settle(keeper: &mut Keeper, fixture: &Fixture, clock_ms: UnixMillis) {
    while !keeper.begin(&fixture.store.expirer(), Instant::now(), clock_ms).is_empty() {
        assert!(round(keeper, fixture, clock_ms).is_empty());
    }
}

fn large_hash() -> String {
    // A deletion does not remove this many elements directly.
    let fields: String = (0..2000).map(|field| format!(" {field} x")).collect();
    format!("HSET hash{fields}")
}

#[test]
fn what_is_due_and_what_is_garbage_is_found() {
    let fixture = Fixture::new();
    lead(&fixture, &[1]);
    let mut keeper = Keeper::default();
    settle(&mut keeper, &fixture, STAMP_MS);
    apply(&fixture, 1, &["SET gone 1 PX 5", "SET stays 1", "SET later 1 PXAT 99999999999999"]);
    apply(&fixture, 1, &[&large_hash(), "DEL hash"]);
    // Keys with an expiry time are new here, so no slot has a known time.
    let mut found = Maintenance::default();
    for _ in 0..usize::from(types::SLOT_COUNT) / EXPIRY_PROBES + 1 {
        for (_, more) in round(&mut keeper, &fixture, STAMP_MS + 5) {
            found.expire.extend(more.expire);
            found.sweep.extend(more.sweep);
        }
    }
    found.expire.dedup();
    found.sweep.dedup();
    assert_eq!(found.expire, [types::slot_of_key(b"gone")]);
    assert_eq!(found.sweep, [types::slot_of_key(b"hash")]);
}

#[test]
fn slots_are_looked_at_once_and_then_when_a_key_of_theirs_is_due() {
    let fixture = Fixture::new();
    lead(&fixture, &[1]);
    apply(&fixture, 1, &["SET soon 1 PX 5000", "SET late 1 PX 9000"]);
    let mut keeper = Keeper::default();
    settle(&mut keeper, &fixture, STAMP_MS);
    let looks = |keeper: &mut Keeper, clock_ms| {
        let looks = keeper.begin(&fixture.store.expirer(), Instant::now(), clock_ms);
        looks.into_iter().flat_map(|look| look.expiry).collect::<Vec<_>>()
    };
    assert!(looks(&mut keeper, STAMP_MS + 4999).is_empty());
    let rest = keeper.rests_until.unwrap() - Instant::now();
    assert!(rest < Duration::from_millis(2), "the pause ends when the key is due: {rest:?}");
    assert_eq!(looks(&mut keeper, STAMP_MS + 5000), [types::slot_of_key(b"soon")]);
    // The key gets a later expiry time, so that it is no longer the first.
    apply(&fixture, 1, &["PEXPIRE soon 20000", "SET sooner 1 PX 100"]);
    assert_eq!(looks(&mut keeper, STAMP_MS + 100), [types::slot_of_key(b"sooner")]);
    let found = round(&mut keeper, &fixture, STAMP_MS + 5000);
    assert_eq!(found[0].1.expire, [types::slot_of_key(b"sooner")], "`soon` is no longer due");
    apply(&fixture, 1, &["DEL sooner"]);
    settle(&mut keeper, &fixture, STAMP_MS + 8999);
    assert_eq!(looks(&mut keeper, STAMP_MS + 9000), [types::slot_of_key(b"late")]);
    assert_eq!(looks(&mut keeper, STAMP_MS + 20000).len(), 2);
}

#[test]
fn what_is_due_is_found_again_until_it_is_gone() {
    let fixture = Fixture::new();
    lead(&fixture, &[1]);
    let mut keeper = Keeper::default();
    apply(&fixture, 1, &["SET k v PX 5", &large_hash(), "DEL hash"]);
    for _ in 0..usize::from(types::SLOT_COUNT) / SWEEP_PROBES + 1 {
        round(&mut keeper, &fixture, STAMP_MS);
    }
    for _ in 0..3 {
        let found = round(&mut keeper, &fixture, STAMP_MS + 5);
        assert_eq!(found[0].1.expire, [types::slot_of_key(b"k")]);
        assert_eq!(found[0].1.sweep, [types::slot_of_key(b"hash")]);
    }
    apply(&fixture, 1, &["DEL k"]);
    assert!(round(&mut keeper, &fixture, STAMP_MS + 5)[0].1.expire.is_empty());
}

#[test]
fn small_collections_go_with_their_elements_and_leave_nothing_to_look_for() {
    let fixture = Fixture::new();
    lead(&fixture, &[1]);
    let mut keeper = Keeper::default();
    settle(&mut keeper, &fixture, STAMP_MS);
    apply(&fixture, 1, &["SET k w", "DEL k", "HSET small f v", "DEL small"]);
    assert!(keeper.begin(&fixture.store.expirer(), Instant::now(), STAMP_MS).is_empty());
}

/// The rows arrived with a snapshot.
#[test]
fn rows_that_came_from_elsewhere_are_looked_at() {
    let fixture = Fixture::new();
    lead(&fixture, &[1]);
    apply(&fixture, 1, &["SET k v PX 5000"]);
    let mut keeper = Keeper::default();
    settle(&mut keeper, &fixture, STAMP_MS);
    fixture.store.engine.rows_came(types::SlotRange { first: 100, last: 109 });
    let looks = keeper.begin(&fixture.store.expirer(), Instant::now(), STAMP_MS);
    let of_slots: Vec<Slot> = (100..110).collect();
    assert!(looks.len() == 1 && looks[0].expiry == of_slots && looks[0].sweep == of_slots);
}

/// The knowledge about a slot concerns this store's rows, whichever store led their region when
/// they were written.
#[test]
fn only_regions_led_here_are_searched() {
    let fixture = Fixture::new();
    let mut keeper = Keeper::default();
    lead(&fixture, &[1]);
    apply(&fixture, 1, &["SET k v PX 5000"]);
    settle(&mut keeper, &fixture, STAMP_MS);
    fixture.store.regions.lead(1, Leadership { term: 2, leader: None });
    apply(&fixture, 1, &["SET gone 1 PX 5"]);
    assert!(round(&mut keeper, &fixture, STAMP_MS + 5).is_empty() && keeper.searches.is_empty());
    fixture.store.regions.lead(1, Leadership { term: 3, leader: Some(fixture.store.id) });
    let looks = keeper.begin(&fixture.store.expirer(), Instant::now(), STAMP_MS + 5);
    assert_eq!(looks[0].expiry, [types::slot_of_key(b"gone")]);
}

#[test]
fn one_rounds_seeks_are_shared_by_its_regions() {
    let fixture = Fixture::with(|config| {
        config.cluster_enabled = true;
        config.regions = 7;
    });
    lead(&fixture, &[1, 2, 3, 4, 5, 6, 7]);
    let looks = Keeper::default().begin(&fixture.store.expirer(), Instant::now(), STAMP_MS);
    assert_eq!(looks.len(), 7);
    let probes: usize = looks.iter().map(|look| look.sweep.len()).sum();
    assert!(probes <= SWEEP_PROBES && probes > SWEEP_PROBES / 2, "{probes}");
    let mut crowd = vec![vec![1, 2, 3]; SWEEP_PROBES * 2];
    share(SWEEP_PROBES, crowd.iter_mut());
    assert!(crowd.iter().all(|slots| slots.len() == 1), "every search continues");
}

#[test]
fn what_one_proposal_does_not_hold_is_where_the_next_look_begins() {
    let times = SlotTimes::unknown();
    let slots: Vec<Slot> = (100..200).collect();
    let looked =
        look_at(&times, take(&times, slots.clone()), 9, |slot| Ok(Some(Slot::into(slot % 2)))).unwrap();
    assert_eq!(looked, Looked { slots: slots[..SLOTS_MAX].to_vec(), next: 164 });
    let left = times.due(types::SlotRange { first: 100, last: 199 }, looked.next, 9, 1000);
    assert_eq!((left.len(), left[0], left[36]), (100, 164, 100), "no slot is lost");
    let looked = look_at(&times, take(&times, slots), 9, |_| Ok(None)).unwrap();
    assert_eq!(looked, Looked { slots: Vec::new(), next: 200 });
    assert_eq!(times.earliest(types::SlotRange { first: 100, last: 199 }), crate::slot_times::NEVER);
}

/// The worker of the fixture does not answer, like that of a region without a quorum.
#[tokio::test]
async fn a_region_whose_proposal_waits_holds_up_no_other() {
    let fixture = Fixture::with(|config| {
        config.cluster_enabled = true;
        config.regions = 2;
    });
    lead(&fixture, &[1, 2]);
    // The slots of `a` and `b` belong to different regions.
    let (a, b) = (types::slot_of_key(b"a"), types::slot_of_key(b"b"));
    let region_of = |slot| fixture.store.regions.of_slot(slot).expect("regions cover all slots").id();
    assert_ne!(region_of(a), region_of(b));
    apply(&fixture, region_of(a), &["SET a 1 PX 5"]);
    let task = tokio::spawn(run(fixture.store.expirer()));
    let mut waiting = Vec::new();
    let proposed = async |waiting: &mut Vec<ToWorker>| loop {
        let told = fixture.told().next();
        if let Some(told) = told {
            let ToWorker::Shard(node::Input::Submit(submit)) = &told else { panic!("expiry only proposes") };
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
