//! Clients that wait for elements at three stores, while leaders change.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "differential/connection.rs"]
mod connection;
mod stores;

use std::net::SocketAddr;

use client::admin::LeaderRequest;
use resp::Reply;

use connection::Connection;
use stores::{alone, eventually, Plan, Store, Stores};

const REGION: u64 = 1;

fn open(address: SocketAddr) -> Connection {
    Connection::open(address).expect("the store accepts connections")
}

fn send(connection: &mut Connection, words: &[&str]) {
    let mut bytes = bytes::BytesMut::new();
    resp::encode_request(words, &mut bytes);
    connection.send(&bytes).unwrap();
}

fn await_version(addresses: &[SocketAddr]) {
    for address in addresses {
        eventually("the store knows the commands of the newest version", || {
            let reply = open(*address).call(&["RPOP", "{q}none"]).ok()?;
            match reply {
                Reply::Error(text) if !text.starts_with("MOVED ") => None,
                _ => Some(()),
            }
        });
    }
}

fn await_blocked(store: &Store, count: usize) {
    eventually("clients are blocked", || {
        let shown = store.info("clients", "blocked_clients")?;
        (shown == count.to_string()).then_some(())
    });
}

/// Clients of each store wait for entries of a stream, as themselves and as consumers of a group.
fn each_store_reads_new_entries(stores: &Stores) {
    let mut adder = open(stores.all[0].client);
    assert_eq!(adder.call(&["XGROUP", "CREATE", "{q}s", "g", "$", "MKSTREAM"]).unwrap(), Reply::OK);
    let (mut readers, mut consumers) = (Vec::new(), Vec::new());
    for (number, store) in stores.all.iter().enumerate() {
        let mut reader = open(store.client);
        send(&mut reader, &["XREAD", "BLOCK", "0", "STREAMS", "{q}s", "$"]);
        readers.push(reader);
        let mut consumer = open(store.client);
        let name = format!("c{number}");
        let reader = ["XREADGROUP", "GROUP", "g", &name];
        let options = ["COUNT", "1", "BLOCK", "0", "STREAMS", "{q}s", ">"];
        send(&mut consumer, &[&reader[..], &options[..]].concat());
        consumers.push(consumer);
        await_blocked(store, 2);
    }
    for id in ["1-1", "2-1", "3-1"] {
        assert_eq!(adder.call(&["XADD", "{q}s", id, "f", "v"]).unwrap(), Reply::bulk(id));
    }
    let read = |connection: &mut Connection| format!("{:?}", connection.reply().unwrap());
    for reader in &mut readers {
        assert!(read(reader).contains("1-1"));
    }
    let all: Vec<String> = consumers.iter_mut().map(read).collect();
    for id in ["1-1", "2-1", "3-1"] {
        assert_eq!(all.iter().filter(|got| got.contains(id)).count(), 1, "{id}: {all:?}");
    }
    stores.all.iter().for_each(|store| await_blocked(store, 0));
}

#[test]
fn clients_of_all_stores_wait_through_the_death_of_a_leader_and_each_element_is_taken_once() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    await_version(&stores.clients());
    each_store_reads_new_entries(&stores);
    let mut waiting: Vec<Vec<Connection>> = Vec::new();
    for store in &stores.all {
        let mut here: Vec<Connection> = (0..2).map(|_| open(store.client)).collect();
        here.iter_mut().for_each(|connection| send(connection, &["BLPOP", "{q}a", "{q}b", "0"]));
        waiting.push(here);
        await_blocked(store, 2);
    }
    let leader = stores.leader(REGION);
    let mut pusher = open(stores.all[(leader + 1) % 3].client);
    // Elements that come while the leader lives go to clients of any store.
    assert_eq!(pusher.call(&["RPUSH", "{q}b", "1"]).unwrap(), Reply::Int(1));
    eventually("a client is served", || {
        let shown = |store: &Store| store.info("clients", "blocked_clients")?.parse::<usize>().ok();
        let blocked: Option<usize> = stores.all.iter().map(shown).sum();
        (blocked? == 5).then_some(())
    });
    // The attempts of the other stores end.
    std::thread::sleep(std::time::Duration::from_millis(500));
    stores.all[leader].kill();
    let left: Vec<usize> = (0..3).filter(|store| *store != leader).collect();
    let count = |stores: &Stores| -> Option<usize> {
        let shown = |at: &usize| stores.all[*at].info("clients", "blocked_clients")?.parse::<usize>().ok();
        left.iter().map(shown).sum()
    };
    let blocked = count(&stores).expect("the stores answer");
    assert!((3..=4).contains(&blocked), "{blocked}");
    for number in 0..blocked {
        let text = number.to_string();
        eventually("the element is pushed", || {
            let mut pusher = open(stores.all[left[number % 2]].client);
            matches!(pusher.call(&["RPUSH", "{q}a", &text]), Ok(Reply::Int(_))).then_some(())
        });
    }
    eventually("all clients are served", || (count(&stores)? == 0).then_some(()));
    let mut taken = Vec::new();
    for connection in left.iter().flat_map(|store| waiting[*store].drain(..).collect::<Vec<_>>()) {
        let mut connection = connection;
        match connection.reply().unwrap() {
            Reply::Array(parts) => taken.push(format!("{parts:?}")),
            // The leader died while it executed an attempt.
            Reply::Error(text) if text.starts_with("UNKNOWN ") => {}
            other => panic!("{other:?}"),
        }
    }
    let all = taken.len();
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), all, "no element was taken twice");
}

#[test]
fn in_cluster_mode_a_client_is_sent_to_the_new_leader() {
    let _alone = alone();
    let stores = Stores::start(&Plan { stores: 3, cluster_enabled: true, ..Plan::default() });
    await_version(&stores.clients());
    let leader = stores.leader(REGION);
    let mut waiting = open(stores.all[leader].client);
    send(&mut waiting, &["BLPOP", "{q}a", "0"]);
    await_blocked(&stores.all[leader], 1);
    let forward = stores.all[leader].forward.expect("cluster mode has one");
    let mut plain = open(forward);
    send(&mut plain, &["BLPOP", "{q}b", "0"]);
    await_blocked(&stores.all[leader], 2);
    let to = (leader + 1) % 3;
    eventually("the leadership moves", || {
        let _ = stores.any().admin().ask_of(REGION, &LeaderRequest { store: to as u64 });
        (stores.all[leader].leader_of(REGION)? == to as u64).then_some(())
    });
    match waiting.reply().unwrap() {
        Reply::Error(text) => assert!(text.starts_with("MOVED "), "{text}"),
        other => panic!("{other:?}"),
    }
    // The client of the forward port goes on waiting.
    let mut pusher = open(stores.all[to].client);
    assert_eq!(pusher.call(&["RPUSH", "{q}b", "x"]).unwrap(), Reply::Int(1));
    let expected = Reply::Array(vec![Reply::bulk("{q}b"), Reply::bulk("x")]);
    assert_eq!(plain.reply().unwrap(), expected);
    await_blocked(&stores.all[leader], 0);
}
