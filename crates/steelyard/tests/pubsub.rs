//! Channels of three stores: messages reach the clients of every store, a store that is away delays
//! nobody, shard channels move with their slots, and clients that do not read end. Events of keys,
//! and clients that cache keys.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "differential/connection.rs"]
mod connection;
mod stores;

use std::net::SocketAddr;
use std::time::Duration;

use client::admin::LeaderRequest;
use resp::Reply;

use connection::Connection;
use stores::{alone, eventually, Plan, Stores};

const REGION: u64 = 1;
const SILENCE: Duration = Duration::from_millis(100);

fn open(address: SocketAddr) -> Connection {
    Connection::open(address).expect("the store accepts connections")
}

fn subscriber(address: SocketAddr, words: &[&str]) -> Connection {
    let mut connection = open(address);
    let Reply::Array(parts) = connection.call(words).unwrap() else { panic!("no confirmation") };
    assert_eq!(parts[2], Reply::Int(1));
    connection
}

fn message(channel: &str, payload: &str) -> Reply {
    Reply::Array(["message", channel, payload].map(|word| Reply::bulk(word.to_owned())).to_vec())
}

#[test]
fn a_message_reaches_the_clients_of_every_store_once_and_in_order() {
    let _alone = alone();
    let stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    let mut subscribers: Vec<Connection> =
        stores.clients().into_iter().map(|address| subscriber(address, &["SUBSCRIBE", "news"])).collect();
    for (at, store) in stores.all.iter().enumerate() {
        let text = format!("from {at}");
        assert_eq!(open(store.client).call(&["PUBLISH", "news", &text]).unwrap(), Reply::Int(1));
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.reply().unwrap(), message("news", &text));
        }
    }
    let count = 2000;
    let requests: Vec<Vec<String>> =
        (0..count).map(|number| vec!["PUBLISH".into(), "news".into(), number.to_string()]).collect();
    assert!(open(stores.all[0].client).pipeline(&requests).unwrap().iter().all(|r| *r == Reply::Int(1)));
    for subscriber in &mut subscribers {
        for number in 0..count {
            assert_eq!(subscriber.reply().unwrap(), message("news", &number.to_string()));
        }
        assert_eq!(subscriber.reply_within(SILENCE).unwrap(), None);
    }
    // Large messages take other paths.
    let large = "x".repeat(3 << 20);
    open(stores.all[1].client).call(&["PUBLISH", "news", &large]).unwrap();
    for subscriber in &mut subscribers {
        assert!(subscriber.reply().unwrap() == message("news", &large));
    }
    // Without slots, shard channels are served by every store, too.
    let mut shard = subscriber(stores.all[2].client, &["SSUBSCRIBE", "s"]);
    open(stores.all[0].client).call(&["SPUBLISH", "s", "hi"]).unwrap();
    let Reply::Array(parts) = shard.reply().unwrap() else { panic!("no message") };
    assert_eq!(parts, [Reply::bulk("smessage"), Reply::bulk("s"), Reply::bulk("hi")]);
}

#[test]
fn a_store_that_is_away_delays_no_message_and_gets_them_again_when_it_is_back() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    let mut stays = subscriber(stores.all[1].client, &["SUBSCRIBE", "news"]);
    stores.all[2].kill();
    let mut publisher = open(stores.all[0].client);
    for number in 0..100 {
        let text = number.to_string();
        assert_eq!(publisher.call(&["PUBLISH", "news", &text]).unwrap(), Reply::Int(0));
        assert_eq!(stays.reply().unwrap(), message("news", &text));
    }
    eventually("the messages for the store that is away are counted", || {
        let dropped: u64 = stores.all[0].info("stats", "pubsub_messages_dropped")?.parse().ok()?;
        (dropped >= 50).then_some(())
    });
    stores.all[2].spawn();
    stores.all[2].await_ready();
    let mut back = subscriber(stores.all[2].client, &["SUBSCRIBE", "news"]);
    eventually("the store gets messages again", || {
        publisher.call(&["PUBLISH", "news", "again"]).ok()?;
        assert_eq!(stays.reply().unwrap(), message("news", "again"));
        let reply = back.reply_within(SILENCE).unwrap()?;
        assert_eq!(reply, message("news", "again"));
        Some(())
    });
}

#[test]
fn in_cluster_mode_shard_channels_are_those_of_the_leader_and_move_with_it() {
    let _alone = alone();
    let stores = Stores::start(&Plan { stores: 3, cluster_enabled: true, ..Plan::default() });
    let leader = stores.leader(REGION);
    let other = (leader + 1) % 3;
    let refused = |reply: Reply| match reply {
        Reply::Error(text) => assert!(text.starts_with("MOVED "), "{text}"),
        other => panic!("{other:?}"),
    };
    let mut elsewhere = open(stores.all[other].client);
    refused(elsewhere.call(&["SSUBSCRIBE", "{q}a"]).unwrap());
    refused(elsewhere.call(&["SPUBLISH", "{q}a", "x"]).unwrap());
    assert_eq!(
        elsewhere.call(&["SSUBSCRIBE", "a", "b"]).unwrap(),
        Reply::error("CROSSSLOT Keys in request don't hash to the same slot")
    );
    let mut here = subscriber(stores.all[leader].client, &["SSUBSCRIBE", "{q}a"]);
    let mut third = open(stores.all[leader].client);
    third.call(&["HELLO", "3"]).unwrap();
    third.call(&["SSUBSCRIBE", "{q}a", "{q}b"]).unwrap();
    third.reply().unwrap();
    assert_eq!(open(stores.all[leader].client).call(&["SPUBLISH", "{q}a", "x"]).unwrap(), Reply::Int(2));
    let words = |words: [&'static str; 3]| words.map(Reply::bulk).to_vec();
    assert_eq!(here.reply().unwrap(), Reply::Array(words(["smessage", "{q}a", "x"])));
    assert_eq!(third.reply().unwrap(), Reply::Push(words(["smessage", "{q}a", "x"])));
    // A forward port passes a message on to the leader's store.
    let forward = stores.all[other].forward.expect("cluster mode has one");
    assert_eq!(open(forward).call(&["SPUBLISH", "{q}a", "y"]).unwrap(), Reply::Int(0));
    assert_eq!(here.reply().unwrap(), Reply::Array(words(["smessage", "{q}a", "y"])));
    third.reply().unwrap();
    eventually("the leadership moves", || {
        let _ = stores.any().admin().ask_of(REGION, &LeaderRequest { store: other as u64 });
        (stores.all[leader].leader_of(REGION)? == other as u64).then_some(())
    });
    let ended = |name: &str, left| vec![Reply::bulk("sunsubscribe"), Reply::bulk(name.to_owned()), left];
    assert_eq!(here.reply().unwrap(), Reply::Array(ended("{q}a", Reply::Int(0))));
    let mut names: Vec<String> = (0..2)
        .map(|_| match third.reply().unwrap() {
            Reply::Push(parts) => format!("{:?}", parts[1]),
            other => panic!("{other:?}"),
        })
        .collect();
    names.sort();
    assert_eq!(names, ["Bulk(b\"{q}a\")", "Bulk(b\"{q}b\")"]);
    // The client is no subscriber any more.
    assert!(matches!(here.call(&["CLIENT", "ID"]).unwrap(), Reply::Int(_)));
    let mut again = subscriber(stores.all[other].client, &["SSUBSCRIBE", "{q}a"]);
    assert_eq!(open(stores.all[other].client).call(&["SPUBLISH", "{q}a", "z"]).unwrap(), Reply::Int(1));
    assert_eq!(again.reply().unwrap(), Reply::Array(words(["smessage", "{q}a", "z"])));
}

#[test]
fn clients_that_do_not_read_end_and_hold_no_memory_while_others_get_everything() {
    let _alone = alone();
    let flags = [("--maxmemory", "64mb"), ("--fsync", "no")];
    let stores = Stores::start(&Plan { stores: 1, flags: &flags, ..Plan::default() });
    let address = stores.all[0].client;
    let slow: Vec<Connection> = (0..20).map(|_| subscriber(address, &["SUBSCRIBE", "news"])).collect();
    let mut fast = subscriber(address, &["SUBSCRIBE", "news"]);
    let (count, payload) = (6000, "x".repeat(50_000));
    let publishing = std::thread::spawn({
        let payload = payload.clone();
        move || {
            let mut publisher = open(address);
            let request = vec!["PUBLISH", "news", &payload];
            for _ in 0..count / 20 {
                let replies = publisher.pipeline(&vec![request.clone(); 20]).unwrap();
                assert!(replies.iter().all(|reply| matches!(reply, Reply::Int(1..))));
            }
        }
    });
    for _ in 0..count {
        assert!(fast.reply().unwrap() == message("news", &payload));
    }
    publishing.join().unwrap();
    eventually("the slow clients end", || {
        (stores.all[0].info("stats", "pubsub_clients_ended")? == "20").then_some(())
    });
    assert_eq!(open(address).call(&["PUBLISH", "news", "last"]).unwrap(), Reply::Int(1));
    assert_eq!(fast.reply().unwrap(), message("news", "last"));
    let peak = stores.all[0].peak_rss();
    assert!(peak <= 80 << 20, "the store held {} MiB", peak >> 20);
    drop(slow);
}

/// Returns a client that caches what it reads.
fn caching(address: SocketAddr) -> Connection {
    let mut connection = open(address);
    connection.call(&["HELLO", "3"]).unwrap();
    assert_eq!(connection.call(&["CLIENT", "TRACKING", "ON"]).unwrap(), Reply::OK);
    connection
}

fn invalidated(keys: &[&'static str]) -> Reply {
    let keys = keys.iter().map(|key| Reply::bulk(*key)).collect();
    Reply::Push(vec![Reply::bulk("invalidate"), Reply::Array(keys)])
}

fn await_version(address: SocketAddr) {
    eventually("the store knows the commands of the newest version", || {
        open(address).call(&["SCARD", "{q}none"]).ok().filter(|reply| *reply == Reply::Int(0))
    });
}

#[test]
fn a_client_that_caches_never_keeps_a_value_that_has_changed() {
    let _alone = alone();
    let stores = Stores::start(&Plan { stores: 1, flags: &[("--fsync", "no")], ..Plan::default() });
    let address = stores.all[0].client;
    let (mut reader, mut writer) = (caching(address), open(address));
    let (mut cached, mut kept, mut lost) = (None, 0, 0);
    for round in 0..3000 {
        let value = round.to_string();
        let (mut read, mut write) = (bytes::BytesMut::new(), bytes::BytesMut::new());
        resp::encode_request(&["GET", "k"], &mut read);
        resp::encode_request(&["SET", "k", &value], &mut write);
        let writes = round % 3 > 0;
        if round % 2 == 0 {
            reader.send(&read).unwrap();
        }
        if writes {
            writer.send(&write).unwrap();
        }
        if round % 2 == 1 {
            reader.send(&read).unwrap();
        }
        if writes {
            assert_eq!(writer.reply().unwrap(), Reply::OK);
        }
        let Reply::Bulk(current) = writer.call(&["GET", "k"]).unwrap_or(Reply::Nil) else {
            // Nothing was written yet.
            reader.reply().unwrap();
            continue;
        };
        let mut ping = bytes::BytesMut::new();
        resp::encode_request(&["PING"], &mut ping);
        reader.send(&ping).unwrap();
        loop {
            match reader.reply().unwrap() {
                Reply::Bulk(value) => cached = Some(value),
                Reply::Push(_) => {
                    lost += usize::from(cached.is_some());
                    cached = None;
                }
                Reply::Simple(_) => break,
                Reply::Nil => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(cached.as_ref().is_none_or(|cached| *cached == current), "round {round}: {cached:?}");
        kept += usize::from(cached.is_some());
    }
    assert!(kept > 500 && lost > 500, "{kept} {lost}");
}

#[test]
fn a_client_that_caches_is_told_by_every_store_and_of_expiry() {
    let _alone = alone();
    let stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    stores.clients().into_iter().for_each(await_version);
    let mut readers: Vec<Connection> = stores.clients().into_iter().map(caching).collect();
    let mut writer = open(stores.all[0].client);
    for round in 0..3 {
        let value = round.to_string();
        assert_eq!(writer.call(&["SET", "k", &value]).unwrap(), Reply::OK);
        for reader in &mut readers {
            // A store that does not lead executes the change later, and then tells of it.
            eventually("the client has the value", || {
                let mut reply = reader.call(&["GET", "k"]).unwrap();
                while let Reply::Push(_) = reply {
                    reply = reader.reply().unwrap();
                }
                assert_eq!(reply, Reply::bulk(value.clone()));
                std::thread::sleep(Duration::from_millis(20));
                match reader.reply_within(SILENCE).unwrap() {
                    None => Some(()),
                    Some(_) => None,
                }
            });
        }
        let change: &[&str] = if round == 2 { &["PEXPIRE", "k", "30"] } else { &["DEL", "k"] };
        assert_eq!(writer.call(change).unwrap(), Reply::Int(1));
        for reader in &mut readers {
            assert_eq!(reader.reply().unwrap(), invalidated(&["k"]));
        }
        if round == 2 {
            for reader in &mut readers {
                // It is there again, or has expired already.
                let mut reply = reader.call(&["GET", "k"]).unwrap();
                while let Reply::Push(_) = reply {
                    reply = reader.reply().unwrap();
                }
                if reply != Reply::Nil {
                    assert_eq!(reader.reply().unwrap(), invalidated(&["k"]));
                }
            }
        }
    }
}

#[test]
fn in_cluster_mode_keys_are_told_when_another_store_leads_them() {
    let _alone = alone();
    let stores = Stores::start(&Plan { stores: 3, cluster_enabled: true, ..Plan::default() });
    let leader = stores.leader(REGION);
    eventually("the store knows the commands of the newest version", || {
        let reply = open(stores.all[leader].client).call(&["SCARD", "{q}none"]).ok()?;
        (reply == Reply::Int(0)).then_some(())
    });
    let mut reader = caching(stores.all[leader].client);
    assert_eq!(reader.call(&["GET", "{q}k"]).unwrap(), Reply::Nil);
    open(stores.all[leader].client).call(&["SET", "{q}k", "1"]).unwrap();
    assert_eq!(reader.reply().unwrap(), invalidated(&["{q}k"]));
    assert_eq!(reader.call(&["GET", "{q}k"]).unwrap(), Reply::bulk("1"));
    let to = (leader + 1) % 3;
    eventually("the leadership moves", || {
        let _ = stores.any().admin().ask_of(REGION, &LeaderRequest { store: to as u64 });
        (stores.all[leader].leader_of(REGION)? == to as u64).then_some(())
    });
    // This store may have missed changes of any key.
    assert_eq!(reader.reply().unwrap(), Reply::Push(vec![Reply::bulk("invalidate"), Reply::Nil]));
}

#[test]
fn events_of_keys_come_from_the_store_that_leads_them_and_once() {
    let _alone = alone();
    let flags = [("--notify-keyspace-events", "KEA")];
    let stores = Stores::start(&Plan { stores: 3, flags: &flags, ..Plan::default() });
    stores.clients().into_iter().for_each(await_version);
    let leader = stores.leader(REGION);
    let mut listeners: Vec<Connection> = stores
        .clients()
        .into_iter()
        .map(|address| subscriber(address, &["PSUBSCRIBE", "__keyevent@0__:*"]))
        .collect();
    let mut writer = open(stores.all[(leader + 1) % 3].client);
    for number in 0..20 {
        assert_eq!(writer.call(&["SET", "k", &number.to_string()]).unwrap(), Reply::OK);
    }
    writer.call(&["SET", "gone", "x", "PX", "20"]).unwrap();
    let mut events = Vec::new();
    while events.last().is_none_or(|event| event != "expired gone") {
        let Reply::Array(parts) = listeners[leader].reply().unwrap() else { panic!("no event") };
        let text = |part: &Reply| match part {
            Reply::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        };
        let name = text(&parts[2]);
        events.push(format!("{} {}", name.trim_start_matches("__keyevent@0__:"), text(&parts[3])));
    }
    let mut expected = vec!["set k"; 20];
    expected.extend(["set gone", "expire gone", "expired gone"]);
    assert_eq!(events, expected);
    for at in (0..3).filter(|at| *at != leader) {
        assert_eq!(listeners[at].reply_within(SILENCE).unwrap(), None, "store {at} does not lead");
    }
}
