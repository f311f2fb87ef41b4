//! One store without a cluster: an acknowledged write survives any end of the process.

mod stores;

use std::time::Duration;

use stores::ledger::{Load, Shape};
use stores::wire::Wire;
use stores::{alone, Plan, Stores};

#[test]
fn acknowledged_writes_survive_kill_9_under_load_again_and_again() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan::default());
    let mut ledgers = Vec::new();
    for life in 0..3 {
        let load = Load::start(&stores.clients(), &format!("life{life}"), Shape::WRITES);
        load.await_more(1500);
        // Under this load, batches are being written to the log all the time, so the kill
        // interrupts one.
        stores.all[0].kill();
        stores.all[0].restart();
        ledgers.push(load.finish());
        for ledger in &ledgers {
            ledger.check("kill -9");
        }
    }
    assert!(ledgers.iter().map(|ledger| ledger.acknowledged().len()).sum::<usize>() >= 4500);
    // Another restart without new writes finds the same data.
    stores.all[0].kill();
    stores.all[0].restart();
    ledgers.iter().for_each(|ledger| ledger.check("restarted twice"));
}

#[test]
fn sigterm_ends_a_loaded_store_cleanly_and_loses_nothing() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan::default());
    let load = Load::start(&stores.clients(), "term", Shape::WRITES);
    load.await_more(1000);
    let status = stores.all[0].terminate();
    assert_eq!(status.code(), Some(0), "{status}");
    stores.all[0].restart();
    let ledger = load.finish();
    ledger.check("SIGTERM");
}

#[test]
fn every_kind_of_row_its_expiry_and_deletions_come_back() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan::default());
    let mut wire = Wire::open(stores.all[0].client);
    wire.ok(&["SET", "string", "a\r\nb"]);
    wire.ok(&["SET", "gone", "x"]);
    assert_eq!(wire.int(&["DEL", "gone"]), 1);
    assert_eq!(wire.int(&["HSET", "hash", "f", "1", "g", "2"]), 2);
    assert_eq!(wire.int(&["HDEL", "hash", "g"]), 1);
    assert_eq!(wire.int(&["HSET", "dead", "f", "1"]), 1);
    assert_eq!(wire.int(&["UNLINK", "dead"]), 1);
    wire.ok(&["SET", "short", "x", "PX", "1"]);
    wire.ok(&["SET", "long", "x", "EX", "1000"]);
    wire.ok(&["SELECT", "3"]);
    wire.ok(&["SET", "elsewhere", "3"]);
    // The log of 200 values of 100 KB fills several memtables.
    let large = "v".repeat(100_000);
    let requests: Vec<Vec<String>> =
        (0..200).map(|n| vec!["SET".into(), format!("large:{n}"), format!("{n}{large}")]).collect();
    assert!(wire.call_all(&requests).iter().all(|reply| !reply.is_error()));

    stores.all[0].kill();
    std::thread::sleep(Duration::from_millis(2));
    stores.all[0].restart();

    let mut wire = Wire::open(stores.all[0].client);
    assert_eq!(wire.text(&["GET", "string"]).as_deref(), Some("a\r\nb"));
    assert_eq!(wire.int(&["EXISTS", "gone", "dead", "short"]), 0);
    assert_eq!(wire.text(&["HGET", "hash", "f"]).as_deref(), Some("1"));
    assert_eq!(wire.int(&["HLEN", "hash"]), 1);
    assert!((900..=1000).contains(&wire.int(&["TTL", "long"])));
    assert_eq!(wire.int(&["DBSIZE"]), 3);
    wire.ok(&["SELECT", "3"]);
    assert_eq!(wire.text(&["GET", "elsewhere"]).as_deref(), Some("3"));
    for n in [0, 99, 199] {
        assert_eq!(
            wire.int(&["STRLEN", &format!("large:{n}")]),
            large.len() as i64 + n.to_string().len() as i64
        );
    }
    assert_eq!(wire.int(&["DBSIZE"]), 201);
}
