//! Chained replication with real stores: entries leave the leader once, and a follower that passes
//! them on is stopped and killed under load.

mod stores;

use stores::ledger::{Load, Shape};
use stores::wire::Wire;
use stores::{alone, eventually, Plan, Stores};

const REGION: u64 = 1;
const VALUE_BYTES: usize = 32 << 10;
const VALUES: u64 = 300;

fn chained() -> Stores {
    let stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    stores.replicate("chained");
    stores
}

#[test]
fn values_leave_the_leader_once() {
    let _alone = alone();
    let stores = chained();
    let leader = stores.leader(REGION);
    let count = |name: &str| stores.all[leader].count(name);
    let sent = count("raft_entry_bytes_sent");
    let mut wire = Wire::open(stores.all[leader].client);
    let value = "v".repeat(VALUE_BYTES);
    for number in 0..VALUES {
        wire.ok(&["SET", &format!("key:{number}"), &value]);
    }
    stores.await_no_lag(REGION);
    let bytes = VALUES * VALUE_BYTES as u64;
    let sent = count("raft_entry_bytes_sent") - sent;
    assert!(sent < bytes * 5 / 4, "{sent} bytes of entries left the leader for {bytes} bytes of values");
    // These counters are published with the status, every tenth of a second.
    eventually("most bytes did not have to leave the leader", || {
        (count("chained_bytes") > bytes * 3 / 4).then_some(())
    });
    eventually("most bytes were passed on", || {
        let relayed: u64 = stores.all.iter().map(|store| store.count("relayed_bytes")).sum();
        (relayed > bytes * 3 / 4).then_some(())
    });
}

#[test]
fn every_acknowledged_write_survives_followers_that_stop_passing_on() {
    let _alone = alone();
    let mut stores = chained();
    let load = Load::start(&stores.clients(), "chains", Shape::MIXED);
    for victim in 0..3 {
        load.await_more(200);
        stores.all[victim].signal("-STOP");
        load.await_more(200);
        stores.all[victim].signal("-CONT");
        load.await_more(200);
        stores.all[victim].kill();
        load.await_more(200);
        stores.all[victim].restart();
        stores.await_no_lag(REGION);
    }
    load.finish().check("followers that stop passing on");
    let relayed: u64 = stores.all.iter().map(|store| store.count("relayed_appends")).sum();
    assert!(relayed > 0, "nothing was passed on");
    stores.replicate("direct");
}
