//! Clients whose connections move between loops, because another number of loops serves them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use resp::Reply;

use crate::chance::Chance;
use crate::connection::{is_closed, Connection};
use crate::servers::{steelyard, Server};

const CLIENTS: usize = 24;
/// Number of changes of the number of loops.
const CHANGES: usize = 200;

/// Lets `count` loops serve the clients.
fn serve_with(admin: &mut Connection, count: &str) {
    assert_eq!(admin.call(&["CONFIG", "SET", "io-threads", count]).unwrap(), Reply::Simple("OK".into()));
    match admin.call(&["INFO", "stats"]).unwrap() {
        Reply::Bulk(text) => {
            let shown = format!("io_threads_active:{count}\r\n");
            assert!(String::from_utf8_lossy(&text).contains(&shown), "{text:?}");
        }
        other => panic!("{other:?}"),
    }
}

fn started() -> Server {
    steelyard(&["--io-threads", "2"])
}

/// Increments the client's own key until `ends`, in pipelines that are sent in two pieces. Returns
/// the number of increments.
fn count_up(server: &Server, number: usize, ends: &AtomicBool) -> i64 {
    let mut client = server.connect();
    let mut chance = Chance::new(number as u64);
    let key = format!("counter {number}");
    let mut count = 0;
    while !ends.load(Ordering::Relaxed) {
        let mut output = BytesMut::new();
        let requests = 1 + chance.below(20);
        for request in 0..requests {
            match request % 2 {
                0 => resp::encode_request(&["INCR", &key], &mut output),
                _ => resp::encode_request(&["GET", &key], &mut output),
            }
        }
        let piece = chance.below(output.len());
        client.send(&output[..piece]).unwrap();
        if chance.below(4) == 0 {
            std::thread::sleep(Duration::from_millis(chance.below(30) as u64));
        }
        client.send(&output[piece..]).unwrap();
        for request in 0..requests {
            let reply = client.reply().unwrap();
            match request % 2 {
                0 => {
                    count += 1;
                    assert_eq!(reply, Reply::Int(count));
                }
                _ => assert_eq!(reply, Reply::Bulk(count.to_string().into())),
            }
        }
    }
    count
}

#[test]
fn no_request_is_lost_or_repeated_when_connections_move_between_loops() {
    let server = started();
    let ends = AtomicBool::new(false);
    let counts: Vec<i64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (server, ends) = (&server, &ends);
                scope.spawn(move || count_up(server, number, ends))
            })
            .collect();
        let mut admin = server.connect();
        for change in 0..CHANGES {
            serve_with(&mut admin, if change % 2 == 0 { "1" } else { "2" });
            std::thread::sleep(Duration::from_millis(20));
        }
        ends.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    let mut admin = server.connect();
    for (number, count) in counts.iter().enumerate() {
        let reply = admin.call(&["GET", &format!("counter {number}")]).unwrap();
        assert_eq!(reply, Reply::Bulk(count.to_string().into()));
    }
}

#[test]
fn a_connection_that_has_moved_keeps_its_session_and_can_be_killed() {
    let server = started();
    let mut admin = server.connect();
    serve_with(&mut admin, "1");
    let mut clients: Vec<Connection> = (0..8).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.call(&["SELECT", "5"]).unwrap();
    }
    let ids: Vec<Reply> = clients.iter_mut().map(|client| client.call(&["CLIENT", "ID"]).unwrap()).collect();
    for count in ["2", "1", "2"] {
        serve_with(&mut admin, count);
        for client in &mut clients {
            client.call(&["INCR", "in database 5"]).unwrap();
        }
    }
    admin.call(&["SELECT", "5"]).unwrap();
    assert_eq!(admin.call(&["GET", "in database 5"]).unwrap(), Reply::Bulk("24".into()));
    for (client, id) in clients.iter_mut().zip(ids) {
        assert_eq!(client.call(&["CLIENT", "ID"]).unwrap(), id);
        let Reply::Int(id) = id else { panic!("{id:?} is no id") };
        assert_eq!(admin.call(&["CLIENT", "KILL", "ID", &id.to_string()]).unwrap(), Reply::Int(1));
        let error = client.reply().expect_err("the connection is closed");
        assert!(is_closed(&error), "{error}");
    }
}

#[test]
fn the_number_of_loops_is_checked() {
    let server = started();
    let mut admin = server.connect();
    for count in ["3", "-1", "all"] {
        match admin.call(&["CONFIG", "SET", "io-threads", count]).unwrap() {
            Reply::Error(text) => assert!(text.starts_with("ERR CONFIG SET failed"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    let shown = admin.call(&["CONFIG", "GET", "io-threads"]).unwrap();
    assert_eq!(shown, Reply::Array(vec![Reply::Bulk("io-threads".into()), Reply::Bulk("2".into())]));
}
