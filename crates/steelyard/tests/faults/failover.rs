//! Leaders that are killed, stopped or moved.

use crate::{await_operations, judge, load, move_leader, pause, rounds, three, warm_up, Stores, REGION};

#[test]
fn a_command_whose_client_was_cut_off_by_a_failover_takes_effect_at_most_once() {
    // Counters and journals in the histories reveal a command that took effect twice. No client
    // repeats a command.
    let _place = crate::place();
    let mut stores = Stores::start(&three());
    let load = load(&stores, "failover");
    for _ in 0..rounds(2) {
        warm_up(&load);
        let leader = stores.leader(REGION);
        stores.all[leader].kill();
        await_operations(&load, 300);
        stores.all[leader].restart();
    }
    judge(load.finish());
}

#[test]
fn reads_during_and_after_transfers_see_every_write_before_them() {
    let _place = crate::place();
    let stores = Stores::start(&three());
    let load = load(&stores, "transfers");
    warm_up(&load);
    for _ in 0..rounds(6) {
        let leader = stores.leader(REGION);
        move_leader(&stores, (leader + 1) % 3);
        await_operations(&load, 100);
    }
    judge(load.finish());
}

#[test]
fn a_leader_stopped_past_its_lease_answers_nothing_from_its_past() {
    let _place = crate::place();
    let mut stores = Stores::start(&three());
    let load = load(&stores, "stopped");
    for round in 0..rounds(1) {
        warm_up(&load);
        let leader = stores.leader(REGION);
        stores.all[leader].signal("-STOP");
        // The lease ends after 617.5 ms, and another store leads after 0.75 to 1.5 s.
        pause(1700 + round % 5 * 200);
        await_operations(&load, 100);
        stores.all[leader].signal("-CONT");
        await_operations(&load, 300);
    }
    stores.await_ready();
    judge(load.finish());
}

#[test]
fn all_stores_killed_and_started_in_staggered_majorities_have_everything() {
    let _place = crate::place();
    let mut stores = Stores::start(&three());
    let load = load(&stores, "staggered");
    for round in 0..rounds(1) as usize {
        warm_up(&load);
        stores.kill_all();
        // Start two stores, each pair in turn. The third one starts when they serve.
        let last = round % 3;
        (0..3).filter(|&i| i != last).for_each(|i| stores.all[i].spawn());
        await_operations(&load, 200);
        stores.all[last].spawn();
        // One of the two is killed before the third has caught up.
        pause(50);
        let gone = (last + 1) % 3;
        stores.all[gone].kill();
        await_operations(&load, 200);
        stores.all[gone].restart();
    }
    judge(load.finish());
}
