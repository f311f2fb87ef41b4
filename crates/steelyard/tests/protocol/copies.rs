//! Copies of large collections, which are executed in parts.

use std::time::{Duration, Instant};

use resp::Reply;

use crate::connection::Connection;
use crate::servers;

const ELEMENTS: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a hash that is copied in parts.
fn create(client: &mut Connection) {
    for from in (0..ELEMENTS).step_by(10_000) {
        let pairs = (from..from + 10_000).flat_map(|number| [format!("f{number}"), "v".to_owned()]);
        let args: Vec<String> = ["HSET".to_owned(), "h".to_owned()].into_iter().chain(pairs).collect();
        client.call(&args).unwrap();
    }
}

fn send(client: &mut Connection, line: &str) {
    let mut bytes = bytes::BytesMut::new();
    resp::encode_request(&line.split(' ').collect::<Vec<_>>(), &mut bytes);
    client.send(&bytes).unwrap();
}

/// Returns the number of clients whose last command is `COPY`.
fn copying(client: &mut Connection) -> usize {
    match client.call(&["CLIENT", "LIST"]).unwrap() {
        Reply::Bulk(text) => String::from_utf8_lossy(&text).matches("cmd=copy").count(),
        other => panic!("{other:?}"),
    }
}

fn length(client: &mut Connection, key: &str) -> Reply {
    client.call(&["HLEN", key]).unwrap()
}

#[test]
fn copies_go_on_after_their_clients_have_left_and_take_turns() {
    let server = servers::steelyard(&[]);
    let mut client = server.connect();
    create(&mut client);
    let copies: Vec<String> = (0..9).map(|number| format!("copy{number}")).collect();
    let mut others: Vec<Connection> = copies.iter().map(|_| server.connect()).collect();
    for (other, copy) in others.iter_mut().zip(&copies) {
        send(other, &format!("COPY h {copy}"));
    }
    let began = Instant::now();
    while copying(&mut client) < copies.len() {
        assert!(began.elapsed() < PATIENCE, "not all commands are taken");
    }
    drop(others);
    for copy in &copies {
        while length(&mut client, copy) == Reply::Int(0) {
            assert!(began.elapsed() < PATIENCE, "{copy} is not there");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(length(&mut client, copy), Reply::Int(ELEMENTS as i64));
    }
    assert_eq!(client.call(&["HGET", "copy8", "f99999"]).unwrap(), Reply::bulk("v"));
}

#[test]
fn a_pause_of_writes_also_holds_a_copy_that_has_begun() {
    let server = servers::steelyard(&[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    create(&mut client);
    send(&mut other, "RENAME h g");
    // No client can see that a copy has begun. The copy takes far longer than this sleep.
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(client.call(&["CLIENT", "PAUSE", "600000", "WRITE"]).unwrap(), Reply::OK);
    // What was proposed before the pause may still be executed.
    std::thread::sleep(Duration::from_millis(100));
    let seen = length(&mut client, "g");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(length(&mut client, "g"), seen, "nothing is renamed during the pause");
    assert_eq!(client.call(&["CLIENT", "UNPAUSE"]).unwrap(), Reply::OK);
    assert_eq!(other.reply().unwrap(), Reply::OK);
    assert_eq!(length(&mut client, "g"), Reply::Int(ELEMENTS as i64));
    assert_eq!(length(&mut client, "h"), Reply::Int(0));
}

#[test]
fn results_of_large_sets_are_stored_in_parts() {
    let server = servers::steelyard(&[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    let mut add = |name: &str, key: &str, range: std::ops::Range<usize>| {
        let elements = range.flat_map(|number| match name {
            "SADD" => vec![format!("m{number}")],
            _ => vec![(number % 100).to_string(), format!("m{number}")],
        });
        let args: Vec<String> = [name, key].map(String::from).into_iter().chain(elements).collect();
        client.call(&args).unwrap();
    };
    add("SADD", "a", 0..30_000);
    add("SADD", "b", 10_000..40_000);
    add("ZADD", "z", 20_000..50_000);
    for (line, count) in [
        ("SUNIONSTORE new a b", 40_000),
        ("SINTERSTORE new a b", 20_000),
        ("SDIFFSTORE new a b", 10_000),
        ("ZUNIONSTORE new 3 a b z WEIGHTS 1 1 0.5", 50_000),
        ("ZINTERSTORE new 2 b z AGGREGATE MAX", 20_000),
        ("ZDIFFSTORE new 2 z a", 20_000),
        ("ZRANGESTORE new z 5000 -1", 25_000),
        ("SUNIONSTORE a a b", 40_000),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(other.call(&words).unwrap(), Reply::Int(count), "{line}");
        let counts = if words[0].starts_with('Z') { "ZCARD" } else { "SCARD" };
        assert_eq!(other.call(&[counts, words[1]]).unwrap(), Reply::Int(count), "{line}");
    }
    // 300 members have each score.
    assert_eq!(
        other.call(&["ZRANGE", "new", "0", "0", "WITHSCORES"]).unwrap(),
        Reply::Array(vec![Reply::bulk("m40016"), Reply::bulk("16"),])
    );
    // The store copies the 18,000 members that stay. The command behind the removal waits.
    assert_eq!(other.call(&["EXPIREAT", "z", "4000000000"]).unwrap(), Reply::Int(1));
    send(&mut other, "ZREMRANGEBYSCORE z 20 (60");
    send(&mut other, "ZCARD z");
    assert_eq!(other.reply().unwrap(), Reply::Int(12_000));
    assert_eq!(other.reply().unwrap(), Reply::Int(18_000));
    assert_eq!(other.call(&["ZCOUNT", "z", "20", "60"]).unwrap(), Reply::Int(300));
    assert_eq!(other.call(&["ZSCORE", "z", "m20020"]).unwrap(), Reply::Nil);
    assert_eq!(other.call(&["EXPIRETIME", "z"]).unwrap(), Reply::Int(4_000_000_000));
    assert_eq!(
        other.call(&["SUNIONSTORE", "a", "z", "b"]).unwrap(),
        Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value")
    );
    assert_eq!(other.call(&["SINTERSTORE", "a", "b", "absent"]).unwrap(), Reply::Int(0));
    assert_eq!(other.call(&["EXISTS", "a"]).unwrap(), Reply::Int(0));
}
