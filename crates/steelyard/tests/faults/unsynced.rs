//! Machines crash under stores that acknowledge before they sync.
//!
//! A crash is a kill of the process, a loss of power of the emulated device, and another boot in
//! the file that names the boot.

use device::Survival;
use faults::workload::Shape;
use serde_json::Value;

use crate::disk::{under_all, Disk};
use crate::log_damage::{await_replaced, info, voter_on, REPLACED};
use crate::stores::wire::Wire;
use crate::stores::{within, Store};
use crate::{await_operations, judge, load_on, pause, rounds, warm_up, Plan, Stores, REGION};

/// Writes that each round of a test makes and looks for afterwards.
const KEYS: usize = 200;

fn boot(store: &mut Store, number: u64) {
    let file = store.dir.with_extension("boot");
    std::fs::write(&file, format!("{number}\n")).expect("a boot");
    store.change(&[("--boot-id-file", file.to_str().expect("a plain path"))]);
}

/// Stores that have not been started, on devices that can lose their power.
fn prepare(stores: u16, fsync: &'static str) -> (Stores, Vec<Disk>) {
    let flags: &[(&str, &str)] =
        if fsync == "no" { &[("--fsync", "no")] } else { &[("--fsync", "everysec")] };
    let mut stores = Stores::prepare(&Plan { stores, in_ram: true, flags, ..Plan::default() });
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(|store| boot(store, 1));
    (stores, disks)
}

fn start(stores: &mut Stores) {
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
}

fn crash(store: &mut Store, disk: &Disk, survival: Survival, boot_number: u64) {
    store.kill();
    disk.lose_power(survival);
    boot(store, boot_number);
}

fn write_keys(store: &Store) {
    let mut wire = Wire::open(store.client);
    (0..KEYS).for_each(|key| wire.ok(&["SET", &format!("key:{key}"), "written"]));
}

fn keys_missing(store: &Store) -> usize {
    let mut wire = Wire::open(store.client);
    let is_missing = |key: &usize| wire.text(&["GET", &format!("key:{key}")]).as_deref() != Some("written");
    (0..KEYS).filter(is_missing).count()
}

#[test]
fn machines_that_crash_one_after_another_lose_nothing_under_everysec() {
    let _place = crate::place();
    let (mut stores, disks) = prepare(3, "everysec");
    start(&mut stores);
    let load = load_on(&stores.clients(), "unsynced", Shape::default());
    for round in 0..rounds(2) {
        warm_up(&load);
        // The leader's machine first, then another one's.
        let leader = stores.leader(REGION);
        let victim = if round == 0 { leader } else { (leader + 1) % 3 };
        let before = voter_on(&stores.all[leader], victim, REGION).expect("a voter");
        let survival = if round == 0 { Survival::Synced } else { Survival::Torn(round) };
        crash(&mut stores.all[victim], &disks[victim], survival, round + 2);
        await_operations(&load, 100);
        stores.all[victim].restart();
        await_replaced(&stores, victim, REGION, before);
        assert_eq!(info(&stores.all[victim], "unclean_peers"), "0");
    }
    judge(load.finish());
}

/// Kills one of three stores and writes to the other two. Then the follower of these loses its
/// power, the leader is killed, and the two stores other than the leader start. Returns the leader,
/// the store that was killed first, and the store that lost its power.
fn lose_one_and_stop_the_other(boot_after: u64) -> (Stores, Vec<Disk>, [usize; 3]) {
    let (mut stores, disks) = prepare(3, "no");
    start(&mut stores);
    let leader = stores.leader(REGION);
    let (away, victim) = ((leader + 1) % 3, (leader + 2) % 3);
    Wire::open(stores.all[leader].client).ok(&["SET", "before", "x"]);
    stores.all[away].kill();
    write_keys(&stores.all[leader]);
    crash(&mut stores.all[victim], &disks[victim], Survival::Synced, boot_after);
    stores.all[leader].kill();
    stores.all[away].spawn();
    stores.all[victim].spawn();
    (stores, disks, [leader, away, victim])
}

/// Returns true if the store refuses a write because the region has no leader, and `None` if the
/// store does not answer yet.
fn is_refused(store: &Store) -> Option<bool> {
    let replies = Wire::ask(store.client, &[&["SET", "without a majority", "x"]])?;
    Some(matches!(&replies[0], resp::Reply::Error(text) if text.starts_with("CLUSTERDOWN ")))
}

#[test]
fn a_store_that_may_have_forgotten_makes_no_majority_with_one_that_never_knew() {
    let _place = crate::place();
    let (mut stores, _disks, [leader, away, victim]) = lose_one_and_stop_the_other(2);
    // This is longer than leases, vote holds and some elections.
    pause(5000);
    assert!(within(REPLACED, || is_refused(&stores.all[away])).expect("it answers"));
    assert_eq!(info(&stores.all[victim], "unclean_peers"), "1");
    let before = 1 + victim as u64;
    stores.all[leader].restart();
    await_replaced(&stores, victim, REGION, before);
    for store in [leader, away, victim] {
        assert_eq!(keys_missing(&stores.all[store]), 0, "on store {store}");
    }
}

#[test]
fn a_crash_that_goes_unnoticed_loses_what_was_acknowledged() {
    // This proves that the test above can fail: the machine that crashed reports the same boot.
    let _place = crate::place();
    let (stores, _disks, [_, away, _]) = lose_one_and_stop_the_other(1);
    let led = within(REPLACED, || {
        let replies = Wire::ask(stores.all[away].client, &[&["SET", "with a majority", "x"]])?;
        matches!(&replies[0], resp::Reply::Simple(text) if text == "OK").then_some(())
    });
    assert!(led.is_some(), "the two stores elect a leader");
    assert!(keys_missing(&stores.all[away]) > 0, "nothing was lost");
}

#[test]
fn a_lone_store_starts_and_says_what_may_be_missing() {
    let _place = crate::place();
    let (mut stores, disks) = prepare(1, "everysec");
    start(&mut stores);
    let mut wire = Wire::open(stores.all[0].client);
    wire.ok(&["SET", "synced", "x"]);
    pause(2500);
    (0..50).for_each(|key| wire.ok(&["SET", &format!("late:{key}"), "x"]));
    crash(&mut stores.all[0], &disks[0], Survival::Synced, 2);
    stores.all[0].restart();
    let store = &mut stores.all[0];
    assert!(store.log_text().contains("may be missing"), "{}", store.log_text());
    assert_eq!(info(store, "incomplete_regions"), "1");
    let end = info(store, "incomplete_region_1");
    assert!(end.starts_with("index=") && !end.ends_with("time_ms=0"), "{end}");
    assert_eq!(store.admin().gauge("incomplete_regions").expect("a gauge"), 1);
    let mut wire = Wire::open(store.client);
    assert_eq!(wire.text(&["GET", "synced"]).as_deref(), Some("x"));
    wire.ok(&["SET", "goes on", "x"]);
    // A planned stop syncs.
    assert!(store.terminate().success());
    disks[0].lose_power(Survival::Synced);
    boot(store, 3);
    store.restart();
    assert_eq!(info(store, "incomplete_regions"), "0");
    assert_eq!(Wire::open(store.client).text(&["GET", "goes on"]).as_deref(), Some("x"));
}

#[test]
fn after_a_crash_of_all_machines_an_operator_decides() {
    let _place = crate::place();
    let (mut stores, disks) = prepare(3, "no");
    start(&mut stores);
    write_keys(&stores.all[stores.leader(REGION)]);
    stores.kill_all();
    for (store, disk) in stores.all.iter_mut().zip(&disks) {
        disk.lose_power(Survival::Synced);
        boot(store, 2);
        store.spawn();
    }
    let waits = |store: &Store| within(REPLACED, || is_refused(store)) == Some(true);
    pause(3000);
    assert!(stores.all.iter().all(waits), "a store serves without an order");
    let accept = |store: &Store| store.host().ctl(&["accept-loss"]);
    let taken = accept(&stores.all[0]).expect("the order is taken");
    assert_eq!(taken.as_array().map(Vec::len), Some(1), "{taken}");
    assert_eq!((&taken[0]["store"], &taken[0]["region"]), (&Value::from(0), &Value::from(REGION)));
    assert!(accept(&stores.all[0]).is_err(), "it was taken already");
    pause(2000);
    assert!(stores.all.iter().all(waits), "one of three is no majority");
    accept(&stores.all[1]).expect("the order is taken");
    stores.await_ready();
    Wire::open(stores.all[0].client).ok(&["SET", "goes on", "x"]);
    await_replaced(&stores, 2, REGION, 3);
    let refused = accept(&stores.all[2]).expect_err("there is nothing to accept any more");
    assert!(refused.contains("may have forgotten"), "{refused}");
    assert_eq!((0..3).map(|at| info(&stores.all[at], "accepted_losses")).collect::<String>(), "110");
    // An accepted loss stays accepted after a restart.
    stores.kill_all();
    start(&mut stores);
    assert_eq!(Wire::open(stores.all[2].client).text(&["GET", "goes on"]).as_deref(), Some("x"));
}
