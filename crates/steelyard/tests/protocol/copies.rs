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
