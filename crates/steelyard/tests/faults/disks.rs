//! Devices that fail and devices that are full.

use device::Fault;

use crate::disk::{on_devices, Disk};
use crate::stores::eventually;
use crate::stores::wire::Wire;
use crate::{await_operations, judge, load, pause, rounds, three, warm_up, Plan, REGION};

fn a_leader_with_a_failing_device_stops(name: &str, fault: Fault) {
    let _place = crate::place();
    let (mut stores, disks) = on_devices(&three());
    let load = load(&stores, name);
    for _ in 0..rounds(1) {
        warm_up(&load);
        let leader = stores.leader(REGION);
        disks[leader].fail(fault);
        let status = stores.all[leader].await_end();
        assert!(!status.success(), "{status}");
        disks[leader].repair();
        await_operations(&load, 200);
        stores.all[leader].restart();
        await_operations(&load, 200);
    }
    judge(load.finish());
}

#[test]
fn a_leader_whose_log_cannot_be_synced_stops_and_nothing_is_lost() {
    a_leader_with_a_failing_device_stops("sync-error", Fault::SyncEio);
}

#[test]
fn a_leader_whose_log_cannot_be_written_stops_and_nothing_is_lost() {
    a_leader_with_a_failing_device_stops("write-error", Fault::WriteEio);
}

#[test]
fn full_devices_of_a_leader_and_then_of_all_lose_nothing_and_are_waited_out() {
    let _place = crate::place();
    let plan = Plan { flags: &[("--reserve", "0"), ("--request-timeout", "500")], ..three() };
    let (mut stores, disks) = on_devices(&plan);
    let load = load(&stores, "full");
    for _ in 0..rounds(1) {
        warm_up(&load);
        let leader = stores.leader(REGION);
        disks[leader].leave_room(0);
        pause(1500);
        disks.iter().for_each(|disk| disk.leave_room(0));
        pause(1500);
        disks.iter().for_each(Disk::leave_all_room);
        await_operations(&load, 500);
    }
    judge(load.finish());
    // Nothing that a full device has broken in a store ends it later.
    for store in &mut stores.all {
        let status = store.terminate();
        assert!(status.success(), "store {}: {status}", store.id);
    }
}

#[test]
fn a_store_killed_on_a_full_device_starts_there_or_says_why_not_and_has_everything_with_room() {
    let _place = crate::place();
    let plan = Plan { flags: &[("--reserve", "0")], ..three() };
    let (mut stores, disks) = on_devices(&plan);
    let load = load(&stores, "full-recovery");
    for round in 0..rounds(3) {
        warm_up(&load);
        let store = round as usize % 3;
        stores.all[store].kill();
        // The room ranges from none to the size of the engines' first files, so recovery stops at a
        // different point each time.
        disks[store].leave_room([0, 100 << 10, 3 << 20][round as usize % 3]);
        stores.all[store].spawn();
        pause(1000);
        await_operations(&load, 200);
        // The store either runs or has ended with an error in its log. It is killed in both cases.
        stores.all[store].kill();
        disks[store].leave_all_room();
        stores.all[store].restart();
    }
    judge(load.finish());
    for store in &stores.all {
        let mut weak = Wire::open(store.client);
        weak.ok(&["READONLY"]);
        eventually("every store holds as much as every other", || {
            let mut strong = Wire::open(stores.any().client);
            (weak.int(&["DBSIZE"]) == strong.int(&["DBSIZE"])).then_some(())
        });
    }
}
