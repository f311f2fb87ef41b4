//! Wall clocks that jump. Leases go by another clock, and a region's time never goes back.

use crate::disk::{under_all, Disk};
use crate::stores::eventually;
use crate::stores::wire::Wire;
use crate::{await_operations, judge, load, move_leader, rounds, three, warm_up, Stores, REGION};

const HOUR_NS: i64 = 3_600_000_000_000;

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
