//! Three stores with one region. Stores are killed and stopped under load: one, two or all at once.
//!
//! `STEELYARD_KILLS=20` selects the long run of the first test, and `STEELYARD_PAUSES=20` that of
//! the last.

mod stores;

use std::time::{Duration, Instant};

use client::admin::LeaderRequest;
use resp::Reply;
use stores::ledger::{Load, Shape};
use stores::wire::Wire;
use stores::{alone, eventually, say, Plan, Stores, PATIENCE};

const REGION: u64 = 1;

/// Maximum time until the cluster serves again. The aim is 3 s, and the measured time is printed.
const SERVES_AGAIN: Duration = Duration::from_secs(10);

fn three() -> Stores {
    Stores::start(&Plan { stores: 3, ..Plan::default() })
}

/// Waits until no peer of the region is behind its leader.
fn await_no_lag(stores: &Stores) {
    eventually("every peer holds what the leader holds", || {
        let leader = stores.all[0].leader_of(REGION)?;
        let rows = stores.all[leader as usize].regions()?;
        let peers = &rows.iter().find(|row| row.id == REGION)?.peers;
        (peers.len() == 3 && peers.iter().all(|peer| peer.lag == Some(0))).then_some(())
    });
}

#[test]
fn every_acknowledged_write_survives_kills_of_the_leader_under_load() {
    let _alone = alone();
    let kills: u32 =
        std::env::var("STEELYARD_KILLS").map_or(3, |text| text.parse().expect("a number of kills"));
    let mut stores = three();
    let mut load = Load::start(&stores.clients(), "kills", Shape::MIXED);
    let mut times = Vec::new();
    for kill in 1..=kills {
        load.await_more(400);
        let leader = stores.leader(REGION);
        stores.all[leader].kill();
        let time = load.time_to_serve(SERVES_AGAIN);
        say(&format!("kill {kill} of {kills}: store {leader}, service after {:.2} s", time.as_secs_f64()));
        times.push(time);
        load.await_more(200);
        stores.all[leader].restart();
        await_no_lag(&stores);
    }
    let ledger = load.finish();
    ledger.check("kill -9 of the leader");
    let slowest = times.iter().max().expect("there was a kill");
    say(&format!(
        "{kills} kills of the leader: service resumed after {:.2} s at the most",
        slowest.as_secs_f64()
    ));

    // Every store holds all writes, including the stores that were killed.
    for store in &stores.all {
        let mut wire = Wire::open(store.client);
        wire.ok(&["READONLY"]);
        for keys in ledger.acknowledged().chunks(500) {
            let mut request = vec!["EXISTS".to_owned()];
            request.extend(keys.iter().cloned());
            let held = wire.call_all(&[request]).remove(0);
            assert_eq!(held, resp::Reply::Int(keys.len() as i64), "store {} lacks writes", store.id);
        }
    }
}

#[test]
fn every_acknowledged_write_survives_a_kill_of_all_stores_at_once() {
    let _alone = alone();
    let mut stores = three();
    let mut load = Load::start(&stores.clients(), "all", Shape::MIXED);
    load.await_more(800);
    stores.kill_all();
    stores.all.iter_mut().for_each(|store| store.spawn());
    let time = load.time_to_serve(PATIENCE);
    say(&format!("all stores killed and started: service after {:.2} s", time.as_secs_f64()));
    stores.await_ready();
    load.await_more(200);
    load.finish().check("kill -9 of all");
}

#[test]
fn a_leader_that_was_stopped_answers_no_read_from_its_past() {
    let _alone = alone();
    let mut stores = three();
    for round in 0..2 {
        let leader = stores.leader(REGION);
        let others: Vec<usize> = (0..3).filter(|&store| store != leader).collect();
        let (key, old, new) = (format!("stale:{round}"), "old", "new");
        let mut at_leader = Wire::open(stores.all[leader].client);
        at_leader.ok(&["SET", &key, old]);
        // The row is in the leader's RAM and its lease is fresh. This is the read that is most
        // likely to be wrong.
        assert_eq!(at_leader.text(&["GET", &key]).as_deref(), Some(old));

        stores.all[leader].signal("-STOP");
        let stopped = Instant::now();
        // Ask the store of the new leader, where a command does not wait for another store.
        let successor = eventually("another leader", || {
            let leaders: Vec<_> = others.iter().map(|&i| stores.all[i].leader_of(REGION)).collect();
            let new = leaders[0].filter(|new| *new != leader as u64 && leaders[1] == Some(*new))?;
            Some(new as usize)
        });
        let mut elsewhere = Wire::open(stores.all[successor].client);
        elsewhere.ok(&["SET", &key, new]);
        let time = stopped.elapsed();
        // When the stopped process continues, it finds this request first.
        let asked = std::thread::scope(|scope| {
            let asked = scope.spawn(|| at_leader.text(&["GET", &key]));
            std::thread::sleep(Duration::from_millis(100));
            stores.all[leader].signal("-CONT");
            asked.join().expect("the read is answered")
        });
        assert_eq!(asked.as_deref(), Some(new), "a read older than an acknowledged write");
        say(&format!("leader stopped: another led and wrote after {:.2} s", time.as_secs_f64()));
        stores.await_ready();
        await_no_lag(&stores);
    }
    // Another store may lead before a second has passed, so only this pause is certainly long
    // enough to be reported.
    let noticed = |stores: &Stores| stores.all[0].log_text().matches("stood still").count();
    let before = noticed(&stores);
    stores.all[0].signal("-STOP");
    std::thread::sleep(Duration::from_secs(2));
    stores.all[0].signal("-CONT");
    eventually("it notices that it stood still", || (noticed(&stores) > before).then_some(()));
}

#[test]
fn histories_stay_linearizable_while_the_leader_is_stopped_and_moved() {
    let _alone = alone();
    let stores = three();
    let pauses: u64 =
        std::env::var("STEELYARD_PAUSES").map_or(2, |text| text.parse().expect("a number of pauses"));
    let load = Load::start(&stores.clients(), "pauses", Shape::MIXED);
    for pause in 0..pauses {
        load.await_more(300);
        let leader = stores.leader(REGION);
        stores.all[leader].signal("-STOP");
        // The pause is about as long as the lease and an election, and shorter than clients wait.
        std::thread::sleep(Duration::from_millis(2000 - pause % 5 * 350));
        stores.all[leader].signal("-CONT");
        load.await_more(300);
        let leader = stores.leader(REGION);
        let to = (leader as u64 + 1) % 3;
        let moved = stores.any().admin().ask_of(REGION, &LeaderRequest { store: to });
        if let Err(refused) = moved {
            say(&format!("leadership not moved to store {to}: {refused}"));
        }
    }
    load.await_more(300);
    load.finish().check("pauses and moves");
}

/// Returns the number of reads that a store has answered under its lease, and by asking a majority.
fn reads_of(store: &stores::Store) -> (u64, u64) {
    (store.count("reads_by_lease"), store.count("reads_by_read_index"))
}

/// Sends writes of keys that do not exist to the leader, between others. Returns the number of
/// those that needed no entry of the log.
fn writes_of_nothing(stores: &Stores, writes: u64) -> u64 {
    let leader = &stores.all[stores.leader(REGION)];
    let mut wire = Wire::open(leader.client);
    eventually("the cluster has the version that sets need", || {
        (wire.call(&["SADD", "any", "member"]) == Reply::Int(1)).then(|| wire.int(&["DEL", "any"]))
    });
    let before = leader.count("writes_of_nothing");
    for number in 0..writes {
        assert_eq!(wire.int(&["DEL", "gone", &number.to_string()]), 0);
    }
    let after = leader.count("writes_of_nothing") - before;
    // Those behind a write of the same pipeline see it.
    let pipeline =
        ["SADD s a", "SPOP s", "SPOP s", "LPOP s", "LPUSH l a", "DEL s l", "DEL s l", "EXPIRE l 9"];
    let requests = pipeline.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<String>>());
    for _ in 0..20 {
        let [added, popped, none, no_list, pushed, deleted, again, expires] =
            wire.call_all(&requests).try_into().expect("a reply for each");
        assert_eq!((added, popped, none), (Reply::Int(1), Reply::bulk("a"), Reply::Nil));
        assert_eq!((no_list, pushed), (Reply::Nil, Reply::Int(1)));
        assert_eq!((deleted, again, expires), (Reply::Int(1), Reply::Int(0), Reply::Int(0)));
    }
    after
}

/// Returns the number of commands, of `times` sent to a store, that the leader has answered without
/// an entry.
fn without_entry(stores: &Stores, store: usize, times: u64, command: &[&str]) -> u64 {
    let leader = &stores.all[stores.leader(REGION)];
    let before = leader.count("writes_of_nothing");
    let mut wire = Wire::open(stores.all[store].client);
    (0..times).for_each(|_| assert!(matches!(wire.call(command), Reply::Int(0) | Reply::NilArray)));
    leader.count("writes_of_nothing") - before
}

#[test]
fn no_store_answers_by_a_lease_once_the_cluster_has_agreed_on_read_index() {
    const READS: u64 = 200;
    let _alone = alone();
    let mut stores = three();
    let config = |stores: &Stores, words: &[&str]| stores.all[1].host().ctl(&[&["config"], words].concat());
    let row = |stores: &Stores| {
        let rows = config(stores, &[]).expect("settings are told");
        rows.as_array().unwrap().iter().find(|row| row["name"] == "strong-reads").unwrap().clone()
    };
    let read_at = |stores: &Stores, leader: usize| {
        let before = reads_of(&stores.all[leader]);
        let mut wire = Wire::open(stores.all[leader].client);
        wire.ok(&["SET", "k", "v"]);
        for _ in 0..READS {
            assert_eq!(wire.text(&["GET", "k"]).as_deref(), Some("v"));
        }
        let after = reads_of(&stores.all[leader]);
        (after.0 - before.0, after.1 - before.1)
    };
    let read_at_leader = |stores: &Stores| read_at(stores, stores.leader(REGION));
    assert_eq!(row(&stores)["value"], "lease");
    let (by_lease, _) = read_at_leader(&stores);
    assert!(by_lease > READS / 2, "{by_lease} of {READS} by lease");
    let of_nothing = writes_of_nothing(&stores, READS);
    assert!(of_nothing > READS / 2, "{of_nothing} of {READS} without an entry");
    let leader = stores.leader(REGION);
    let follower = (leader + 1) % 3;
    let polling = ["BLPOP", "gone", "none", "0.001"];
    for (store, command) in
        [leader, follower].iter().flat_map(|at| [(*at, &polling[..]), (*at, &["DEL", "gone"])])
    {
        let found = without_entry(&stores, store, READS, command);
        assert!(found > READS / 2, "{found} of {READS} {command:?} without an entry");
    }

    assert!(config(&stores, &["strong-reads", "leases"])
        .unwrap_err()
        .contains("lease, read-index or epoch-check"));
    config(&stores, &["strong-reads", "read-index"]).unwrap();
    assert_eq!(row(&stores)["value"], "read-index");
    eventually("every store knows", || (!row(&stores)["note"].as_str()?.contains("not known")).then_some(()));
    assert_eq!(read_at_leader(&stores), (0, READS));
    assert_eq!(writes_of_nothing(&stores, READS), 0);
    // The setting also holds under the next leaders and after restarts.
    for round in 0..2 {
        let leader = stores.leader(REGION);
        stores.all[leader].kill();
        let others: Vec<usize> = (0..3).filter(|&store| store != leader).collect();
        eventually("another leader", || {
            let now = stores.all[others[0]].leader_of(REGION)?;
            (now != leader as u64 && stores.all[others[1]].leader_of(REGION) == Some(now)).then_some(())
        });
        stores.all[leader].restart();
        assert_eq!(read_at_leader(&stores), (0, READS), "round {round}");
    }
    stores.kill_all();
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    assert_eq!(read_at_leader(&stores), (0, READS), "after a restart of all");
    assert!(stores.all.iter().all(|store| reads_of(store).0 == 0), "no store has used its lease since");

    eventually("the cluster's version allows it", || config(&stores, &["strong-reads", "epoch-check"]).ok());
    eventually("every store knows", || (!row(&stores)["note"].as_str()?.contains("not known")).then_some(()));
    assert_eq!(read_at_leader(&stores), (0, READS), "by epoch check");
    // Without either follower, the other one is asked.
    let leader = stores.leader(REGION);
    for follower in (0..3).filter(|&store| store != leader) {
        stores.all[follower].kill();
        assert_eq!(read_at(&stores, leader), (0, READS), "without store {follower}");
        stores.all[follower].restart();
        stores.await_ready();
    }

    config(&stores, &["strong-reads", "lease"]).unwrap();
    eventually("every store knows", || (!row(&stores)["note"].as_str()?.contains("not known")).then_some(()));
    let (by_lease, _) = read_at_leader(&stores);
    assert!(by_lease > READS / 2, "{by_lease} of {READS} by lease again");
}

#[test]
fn ctl_and_the_log_show_how_a_restarted_store_catches_up() {
    const WRITES: usize = 500;
    let _alone = alone();
    let mut stores = three();
    let leader = stores.leader(REGION);
    let away = (leader + 1) % 3;
    let row = |stores: &Stores| {
        let rows = stores.all[leader].host().ctl(&["catch-up"]).expect("any store answers");
        rows.as_array().unwrap().iter().find(|row| row["store"] == away as u64).unwrap().clone()
    };
    let numbers = |stores: &Stores| {
        let row = row(stores);
        ["behind", "entries", "unknown"].map(|name| row[name].as_u64().unwrap())
    };
    eventually("nobody is behind", || (numbers(&stores) == [0, 0, 0]).then_some(()));
    let caught_up = "the peers of this store have caught up with their leaders";
    eventually("the store says so", || stores.all[away].log_text().contains(caught_up).then_some(()));
    // A stopped process is behind; its leader knows by how much until it counts as inactive.
    stores.all[away].signal("-STOP");
    let mut wire = Wire::open(stores.all[leader].client);
    for number in 0..WRITES {
        wire.ok(&["SET", &format!("k{number}"), "v"]);
    }
    eventually("the store is behind", || {
        let [behind, entries, unknown] = numbers(&stores);
        (behind > 0 && entries > 0 || unknown > 0).then_some(())
    });
    stores.all[away].kill();
    eventually("nobody knows where the store is", || (numbers(&stores)[2] > 0).then_some(()));
    stores.all[away].restart();
    eventually("the store has caught up", || (numbers(&stores) == [0, 0, 0]).then_some(()));
    // The log of a store that starts again is empty at first.
    eventually("it says so again", || stores.all[away].log_text().contains(caught_up).then_some(()));
}

#[test]
fn wait_counts_the_stores_that_have_synced_the_clients_writes() {
    let _alone = alone();
    let mut stores = three();
    let leader = stores.leader(REGION);
    let mut wire = Wire::open(stores.all[leader].client);
    wire.ok(&["SET", "a", "1"]);
    assert_eq!(wire.int(&["WAIT", "2", "0"]), 2);
    let counts = |local, copies| Reply::Array(vec![Reply::Int(local), Reply::Int(copies)]);
    assert_eq!(wire.call(&["WAITAOF", "1", "2", "0"]), counts(1, 2));
    let away = (leader + 1) % 3;
    stores.all[away].kill();
    wire.ok(&["SET", "a", "2"]);
    assert_eq!(wire.int(&["WAIT", "1", "0"]), 1, "the majority");
    assert_eq!(wire.int(&["WAIT", "2", "100"]), 1);
    assert_eq!(wire.call(&["WAITAOF", "1", "2", "100"]), counts(1, 1));
    // A transaction does not wait.
    wire.ok(&["MULTI"]);
    wire.call(&["WAIT", "2", "0"]);
    wire.call(&["WAITAOF", "1", "2", "0"]);
    assert_eq!(wire.call(&["EXEC"]), Reply::Array(vec![Reply::Int(1), counts(1, 1)]));
    stores.all[away].restart();
    assert_eq!(wire.int(&["WAIT", "2", "0"]), 2, "the store has caught up");
    // Another store does not know more than that the write is acknowledged.
    let mut other = Wire::open(stores.all[away].client);
    other.ok(&["SET", "a", "3"]);
    assert_eq!(other.int(&["WAIT", "1", "0"]), 1);
    // A client that takes an element has written.
    let pushed = || matches!(wire.call(&["RPUSH", "queue", "one"]), Reply::Int(_)).then_some(());
    eventually("the cluster has lists", pushed);
    let mut worker = Wire::open(stores.all[away].client);
    worker.call(&["BLPOP", "queue", "0"]);
    assert_eq!(worker.int(&["WAIT", "1", "0"]), 1);
}
