//! Transactions and scripts of many clients at three stores, while the leader is killed. Each
//! client reads a counter, and writes the next number and appends it to a list: by a transaction if
//! nobody else has changed the counter, or by a script. If a watch were lost, or a transaction or a
//! script executed in part or twice, the list would lack a number or have one twice.

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
