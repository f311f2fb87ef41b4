//! Wall clocks that jump. Leases go by another clock, and a region's time never goes back.

use std::time::Instant;

use crate::disk::{under_all, Disk};
use crate::stores::wire::Wire;
use crate::stores::{eventually, Store};
use crate::{await_operations, judge, load, move_leader, pause, rounds, three, warm_up, Stores, REGION};

const HOUR_NS: i64 = 3_600_000_000_000;

fn config(store: &Store, name: &str, value: &str) {
    let words = ["config", name, value];
    eventually("a setting is taken up", || store.host().ctl(&words).ok().map(drop));
    eventually("every store goes by it", || {
        let rows = store.host().ctl(&["config"]).ok()?;
        let row = rows.as_array()?.iter().find(|row| row["name"] == name)?.clone();
        (row["value"] == value && !row["note"].as_str()?.contains("not known")).then_some(())
    });
}

fn three_on_devices() -> (Stores, Vec<Disk>) {
    let mut stores = Stores::prepare(&three());
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    (stores, disks)
}

#[test]
fn histories_stay_linearizable_while_wall_clocks_jump_by_hours() {
    let _place = crate::place();
    let (stores, disks) = three_on_devices();
    let load = load(&stores, "clocks");
    warm_up(&load);
    for round in 0..rounds(4) as i64 {
        let leader = stores.leader(REGION);
        let offset = [HOUR_NS, -HOUR_NS, 30 * 24 * HOUR_NS, 0][round as usize % 4];
        disks[leader].control.set_wall_offset(offset);
        await_operations(&load, 200);
        move_leader(&stores.all[leader], (leader + 1) % 3);
        await_operations(&load, 200);
    }
    judge(load.finish());
}

#[test]
fn a_key_that_has_expired_stays_gone_under_a_leader_whose_clock_is_behind() {
    let _place = crate::place();
    let (stores, disks) = three_on_devices();
    let leader = stores.leader(REGION);
    let mut wire = Wire::open(stores.all[leader].client);
    wire.ok(&["SET", "short", "x", "EX", "600"]);
    wire.ok(&["SET", "kept", "x", "EX", "100000"]);
    assert_eq!(wire.text(&["GET", "short"]).as_deref(), Some("x"));
    disks[leader].control.set_wall_offset(HOUR_NS);
    assert_eq!(wire.text(&["GET", "short"]), None, "an hour later it is over");

    let next = (leader + 1) % 3;
    disks[next].control.set_wall_offset(-HOUR_NS);
    move_leader(&stores.all[leader], next);
    eventually("the store whose clock is behind leads", || (stores.leader(REGION) == next).then_some(()));
    let mut wire = Wire::open(stores.all[next].client);
    assert_eq!(wire.text(&["GET", "short"]), None, "it came back");
    assert_eq!(wire.int(&["EXISTS", "short"]), 0);
    // The region's time stands until that clock has caught up, two hours from now: nothing is set to expire
    // in the past, and nothing that lives is lost.
    wire.ok(&["SET", "later", "x", "EX", "600"]);
    assert_eq!(wire.text(&["GET", "later"]).as_deref(), Some("x"));
    assert_eq!(wire.text(&["GET", "kept"]).as_deref(), Some("x"));
}

/// A paused virtual machine does not count the time for which it stood still, so that its leases outlive it.
#[test]
fn a_store_on_a_paused_machine_answers_no_read_from_its_past_where_reads_are_proven_one_by_one() {
    let _place = crate::place();
    let (mut stores, disks) = three_on_devices();
    config(&stores.all[0], "strong-reads", "read-index");
    for round in 0..rounds(3) {
        let leader = stores.leader(REGION);
        let others: Vec<usize> = (0..3).filter(|&store| store != leader).collect();
        let key = format!("paused:{round}");
        let mut at_leader = Wire::open(stores.all[leader].client);
        at_leader.ok(&["SET", &key, "old"]);
        assert_eq!(at_leader.text(&["GET", &key]).as_deref(), Some("old"));

        stores.all[leader].signal("-STOP");
        let stopped = Instant::now();
        let successor = eventually("another leader", || {
            let leaders: Vec<_> = others.iter().map(|&i| stores.all[i].leader_of(REGION)).collect();
            let new = leaders[0].filter(|new| *new != leader as u64 && leaders[1] == Some(*new))?;
            Some(new as usize)
        });
        Wire::open(stores.all[successor].client).ok(&["SET", &key, "new"]);
        // The stopped process finds this request first of all when it goes on, and its clock where it was.
        let read = std::thread::scope(|scope| {
            let asked = scope.spawn(|| at_leader.text(&["GET", &key]));
            pause(100);
            let stood_still = stopped.elapsed().as_nanos() as i64;
            let before = disks[leader].control.block().boot_offset_ns();
            disks[leader].control.set_boot_offset(before - stood_still);
            stores.all[leader].signal("-CONT");
            asked.join().expect("the read is answered")
        });
        assert_eq!(read.as_deref(), Some("new"), "round {round}: a read older than an acknowledged write");
        stores.await_ready();
    }
}
