//! Transactions and scripts of many clients at three stores, while the leader is killed. Each
//! client reads a counter, and writes the next number and appends it to a list: by a transaction if
//! nobody else has changed the counter, or by a script. If a watch were lost, or a transaction or a
//! script executed in part or twice, the list would lack a number or have one twice.
//!
//! Libraries of functions and thresholds of collections must also be known at every store.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "differential/connection.rs"]
mod connection;
mod stores;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use resp::Reply;

use connection::Connection;
use stores::{alone, eventually, say, Plan, Stores};

const CLIENTS: usize = 6;
const REGION: u64 = 1;

/// The results of all clients.
#[derive(Default)]
struct Results {
    /// Numbers whose transaction was acknowledged.
    written: Mutex<Vec<u64>>,
    acknowledged: AtomicU64,
    stopped: AtomicU64,
    unknown: AtomicU64,
    is_over: AtomicBool,
}

/// The end of a transaction.
enum End {
    Written(u64),
    Stopped,
    /// Nothing was executed.
    Refused,
    Unknown,
}

fn increment(connection: &mut Connection) -> End {
    let mut simple = |words: &[&str]| connection.call(words).ok().filter(|reply| !reply.is_error());
    if simple(&["WATCH", "{c}n"]).is_none() {
        return End::Refused;
    }
    let next = match simple(&["GET", "{c}n"]) {
        Some(Reply::Nil) => 1,
        Some(Reply::Bulk(text)) => std::str::from_utf8(&text).unwrap().parse::<u64>().unwrap() + 1,
        _ => return End::Refused,
    };
    let text = next.to_string();
    let queued = [&["MULTI"][..], &["SET", "{c}n", &text], &["RPUSH", "{c}list", &text]];
    if queued.iter().any(|words| simple(words).is_none()) {
        return End::Refused;
    }
    match connection.call(&["EXEC"]) {
        Ok(Reply::Array(replies)) => {
            assert_eq!(replies, [Reply::OK, Reply::Int(next as i64)], "the list has every number");
            End::Written(next)
        }
        Ok(Reply::NilArray) => End::Stopped,
        Ok(Reply::Error(text)) if !text.starts_with("UNKNOWN ") => End::Refused,
        Ok(Reply::Error(_)) | Err(_) => End::Unknown,
        Ok(other) => panic!("{other:?}"),
    }
}

/// Increments by a script, which each store learns when it first gets it.
fn increment_by_script(connection: &mut Connection) -> End {
    const SCRIPT: &str = "local n = (tonumber(redis.call('GET', KEYS[1])) or 0) + 1
        redis.call('SET', KEYS[1], n)
        return {n, redis.call('RPUSH', KEYS[2], n)}";
    const DIGEST: &str = "d6dddb8144e81f2817b3367b4d20b8960817520a";
    let mut call = |name: &str, script: &str| connection.call(&[name, script, "2", "{c}n", "{c}list"]);
    let reply = match call("EVALSHA", DIGEST) {
        Ok(Reply::Error(text)) if text.starts_with("NOSCRIPT ") => call("EVAL", SCRIPT),
        reply => reply,
    };
    match reply {
        Ok(Reply::Array(numbers)) => {
            let [Reply::Int(next), Reply::Int(length)] = numbers[..] else { panic!("{numbers:?}") };
            assert_eq!(next, length, "the list has every number");
            End::Written(next as u64)
        }
        Ok(Reply::Error(text)) if !text.starts_with("UNKNOWN ") => {
            assert!(!text.contains("user_script"), "{text}");
            End::Refused
        }
        Ok(Reply::Error(_)) | Err(_) => End::Unknown,
        Ok(other) => panic!("{other:?}"),
    }
}

type Increment = fn(&mut Connection) -> End;

fn run(number: usize, stores: &[SocketAddr], results: &Results, increment: Increment) {
    let mut at = number;
    let mut connection = None;
    while !results.is_over.load(Ordering::Relaxed) {
        let Some(open) = &mut connection else {
            at += 1;
            connection = Connection::open(stores[at % stores.len()]).ok();
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        match increment(open) {
            End::Written(number) => {
                results.written.lock().unwrap().push(number);
                results.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            End::Stopped => drop(results.stopped.fetch_add(1, Ordering::Relaxed)),
            End::Refused => connection = None,
            End::Unknown => {
                results.unknown.fetch_add(1, Ordering::Relaxed);
                connection = None;
            }
        }
    }
}

#[test]
fn no_transaction_misses_a_change_or_is_executed_in_part_while_leaders_are_killed() {
    assert!(count_while_leaders_are_killed(increment) > 0, "clients were in each other's way");
}

#[test]
fn no_script_is_executed_in_part_or_twice_while_leaders_are_killed() {
    count_while_leaders_are_killed(increment_by_script);
}

/// Lets clients increment while leaders are killed, and checks the list. Returns the number of
/// transactions that a watch stopped.
fn count_while_leaders_are_killed(increment: Increment) -> u64 {
    let _alone = alone();
    let mut stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    let addresses = stores.clients();
    for address in &addresses {
        eventually("the store knows transactions", || {
            let mut connection = Connection::open(*address).ok()?;
            connection.call(&["WATCH", "x"]).ok().filter(|reply| *reply == Reply::OK)
        });
    }
    let results = Arc::new(Results::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (addresses, results) = (addresses.clone(), results.clone());
            std::thread::spawn(move || run(number, &addresses, &results, increment))
        })
        .collect();
    let await_more = |count: u64| {
        let until = results.acknowledged.load(Ordering::Relaxed) + count;
        eventually("transactions are acknowledged", || {
            (results.acknowledged.load(Ordering::Relaxed) >= until).then_some(())
        });
    };
    for _ in 0..3 {
        await_more(60);
        let leader = stores.leader(REGION);
        stores.all[leader].kill();
        await_more(60);
        stores.all[leader].restart();
    }
    results.is_over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("a client's numbers are right"));
    let (stopped, unknown) =
        (results.stopped.load(Ordering::Relaxed), results.unknown.load(Ordering::Relaxed));
    let written = results.written.lock().unwrap();
    say(&format!("{} increments, {stopped} stopped, {unknown} of unknown outcome", written.len()));
    let mut connection = Connection::open(addresses[0]).unwrap();
    let list = eventually("the list is read", || match connection.call(&["LRANGE", "{c}list", "0", "-1"]) {
        Ok(Reply::Array(list)) => Some(list),
        _ => None,
    });
    let number = |reply: &Reply| match reply {
        Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse::<u64>().unwrap(),
        other => panic!("{other:?}"),
    };
    let list: Vec<u64> = list.iter().map(number).collect();
    assert_eq!(list, (1..=list.len() as u64).collect::<Vec<_>>());
    assert!(written.iter().all(|number| *number as usize <= list.len()));
    assert!(written.len() <= list.len() && list.len() <= written.len() + unknown as usize);
    stopped
}

/// Calls a function at a store.
fn fcall(stores: &Stores, at: usize, words: &[&str]) -> Option<Reply> {
    Connection::open(stores.all[at].client).ok()?.call(words).ok()
}

#[test]
fn a_library_is_known_at_every_store_and_after_kills() {
    const CODE: &str = "#!lua name=counter
        redis.register_function('add', function(keys, args)
            redis.call('PUBLISH', 'added', args[1])
            return redis.call('INCRBY', keys[1], args[1])
        end)";
    let _alone = alone();
    let mut stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    let load = |stores: &Stores, at, code: &str| fcall(stores, at, &["FUNCTION", "LOAD", "REPLACE", code]);
    for at in 0..3 {
        eventually("the store has the version with scripts", || {
            fcall(&stores, at, &["EVAL", "return 1", "0"]).filter(|reply| *reply == Reply::Int(1))
        });
    }
    eventually("the cluster has the version with libraries", || {
        load(&stores, 0, CODE).filter(|reply| *reply == Reply::bulk("counter"))
    });
    // Every store has it when the answer comes, and a message reaches the clients of every store.
    let mut listeners: Vec<Connection> = stores
        .clients()
        .into_iter()
        .map(|address| {
            let mut connection = Connection::open(address).unwrap();
            connection.call(&["SUBSCRIBE", "added"]).unwrap();
            connection
        })
        .collect();
    for at in 0..3 {
        let added = fcall(&stores, at, &["FCALL", "add", "1", "{c}f", "1"]);
        assert_eq!(added, Some(Reply::Int(at as i64 + 1)));
    }
    for listener in &mut listeners {
        for _ in 0..3 {
            let message = Reply::Array(["message", "added", "1"].map(Reply::bulk).to_vec());
            assert_eq!(listener.reply().unwrap(), message, "once each");
        }
        assert_eq!(listener.reply_within(Duration::from_millis(50)).unwrap(), None);
    }
    // A store that is away gets what it missed.
    let leader = stores.leader(REGION);
    let other = (leader + 1) % 3;
    stores.all[leader].kill();
    let twice = CODE.replace("keys[1], args[1])", "keys[1], 2 * args[1])");
    eventually("the other stores go on", || {
        load(&stores, other, &twice).filter(|reply| *reply == Reply::bulk("counter"))
    });
    let sum =
        eventually("a call succeeds", || match fcall(&stores, other, &["FCALL", "add", "1", "{c}f", "5"]) {
            Some(Reply::Int(sum)) => Some(sum),
            _ => None,
        });
    // A call whose outcome was unknown may have been executed.
    assert!(sum > 3 && (sum - 3) % 10 == 0, "{sum}");
    stores.all[leader].spawn();
    stores.all[leader].await_ready();
    let added = eventually("the store has the newer library", || {
        match fcall(&stores, leader, &["FCALL", "add", "1", "{c}f", "0"]) {
            Some(Reply::Int(value)) => Some(value),
            _ => None,
        }
    });
    assert_eq!(added, sum);
    // All stores are killed: the entries with the older code are executed again where rows lack
    // them, and the library is there.
    stores.kill_all();
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    for at in 0..3 {
        let code = eventually("the store has the library again", || {
            match fcall(&stores, at, &["FUNCTION", "LIST", "WITHCODE"]) {
                Some(Reply::Array(libraries)) if !libraries.is_empty() => Some(format!("{libraries:?}")),
                _ => None,
            }
        });
        assert!(code.contains("2 * args[1]"), "{code}");
    }
    eventually("the replicas are equal", || {
        let table = stores::ctl(&stores, 0, &["check", "--region", "1"]).ok()?;
        (table.matches("equal").count() == 3).then_some(())
    });
    assert_eq!(fcall(&stores, 0, &["FUNCTION", "DELETE", "counter"]), Some(Reply::OK));
    for at in 0..3 {
        let gone = fcall(&stores, at, &["FCALL", "add", "1", "{c}f", "1"]);
        assert_eq!(gone, Some(Reply::error("ERR Function not found")));
    }
}

#[test]
fn a_threshold_of_collections_counts_at_every_store_after_kills_and_restarts() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    for at in 0..3 {
        eventually("the store has the version with transactions", || {
            fcall(&stores, at, &["EVAL", "return 1", "0"]).filter(|reply| *reply == Reply::Int(1))
        });
    }
    const NAME: &str = "hash-max-listpack-entries";
    let set = |stores: &Stores, at, value: &str| {
        fcall(stores, at, &["CONFIG", "SET", NAME, value]).filter(|reply| *reply == Reply::OK)
    };
    let shown = |stores: &Stores, at| match fcall(stores, at, &["CONFIG", "GET", "hash-max-*list*-entries"]) {
        Some(Reply::Array(words)) => Some(words.iter().skip(1).step_by(2).cloned().collect::<Vec<_>>()),
        _ => None,
    };
    // The encoding by a read and by a transaction, whose entry every replica executes.
    let encodings = |stores: &Stores, at: usize| -> Option<[Reply; 2]> {
        let mut connection = Connection::open(stores.all[at].client).ok()?;
        let question = ["OBJECT", "ENCODING", "{c}h"];
        let read = connection.call(&question).ok()?;
        let queued = connection.call(&["MULTI"]).ok()? == Reply::OK && connection.call(&question).is_ok();
        match connection.call(&["EXEC"]).ok()? {
            Reply::Array(replies) if queued => Some([read, replies[0].clone()]),
            _ => None,
        }
    };
    let both = |encoding: &'static str| Some([Reply::bulk(encoding), Reply::bulk(encoding)]);
    eventually("the cluster has the version with thresholds", || set(&stores, 2, "2"));
    assert!(fcall(&stores, 1, &["HSET", "{c}h", "a", "1", "b", "2", "c", "3"]).is_some());
    // Every store has the threshold when the answer comes.
    for at in 0..3 {
        assert_eq!(shown(&stores, at), Some(vec![Reply::bulk("2"), Reply::bulk("2")]));
        assert_eq!(encodings(&stores, at), both("hashtable"));
    }
    eventually("the threshold is set at another store", || set(&stores, 0, "3"));
    for at in 0..3 {
        assert_eq!(encodings(&stores, at), both("listpack"), "regardless of the history");
    }
    let listed = stores::ctl(&stores, 1, &["config", NAME]).unwrap();
    assert_eq!(listed.trim(), "3");
    let refused = stores::ctl(&stores, 1, &["config", NAME, "many"]).unwrap_err();
    assert!(refused.contains("a number from 0 to"), "{refused}");
    stores::ctl(&stores, 1, &["config", NAME, "2"]).unwrap();
    let audit = stores::ctl(&stores, 1, &["audit"]).unwrap();
    assert!(audit.contains("config set") && audit.contains(NAME), "{audit}");
    // Another store leads, and the one that led has missed a change.
    let leader = stores.leader(REGION);
    let other = (leader + 1) % 3;
    eventually("the store has the setting of ctl", || {
        (encodings(&stores, other) == both("hashtable")).then_some(())
    });
    stores.all[leader].kill();
    eventually("the other stores go on", || set(&stores, other, "1"));
    eventually("the collection is written", || {
        fcall(&stores, other, &["HSET", "{c}h", "d", "4"]).filter(|reply| matches!(reply, Reply::Int(_)))
    });
    assert_eq!(encodings(&stores, other), both("hashtable"));
    stores.all[leader].spawn();
    stores.all[leader].await_ready();
    eventually("the store has the change that it missed", || {
        (shown(&stores, leader) == Some(vec![Reply::bulk("1"), Reply::bulk("1")])).then_some(())
    });
    stores.kill_all();
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    for at in 0..3 {
        // A store knows it from its directory, before it hears from others.
        assert_eq!(shown(&stores, at), Some(vec![Reply::bulk("1"), Reply::bulk("1")]));
        eventually("the store answers again", || (encodings(&stores, at) == both("hashtable")).then_some(()));
    }
    eventually("the replicas are equal", || {
        let table = stores::ctl(&stores, 0, &["check", "--region", "1"]).ok()?;
        (table.matches("equal").count() == 3).then_some(())
    });
}
