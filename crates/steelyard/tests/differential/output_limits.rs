//! Clients that do not read their replies, under `client-output-buffer-limit normal`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use resp::Reply;

use crate::connection::Connection;
use crate::stores::within;

const VALUE_BYTES: usize = 1 << 20;
/// Number of unread replies. They are more than any socket holds.
const READS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);
/// The time above the soft limit, and the time for which a client without a limit is watched.
const SOFT: Duration = Duration::from_secs(1);
const WATCHED: Duration = Duration::from_millis(1500);

/// Checks which clients a server disconnects.
pub fn check(server: &str, address: SocketAddr) {
    let mut control = Connection::open(address).unwrap();
    assert_eq!(control.call(&["SET", "large", &"x".repeat(VALUE_BYTES)]).unwrap(), Reply::OK);
    let limit = |control: &mut Connection, limits: &str| {
        let set = ["CONFIG", "SET", "client-output-buffer-limit", limits];
        assert_eq!(control.call(&set).unwrap(), Reply::OK, "{server}: {limits}");
    };
    limit(&mut control, "normal 8mb 0 0");
    let slow = Slow::begin(address);
    assert!(slow.ends(&mut control, PATIENCE).is_some(), "{server}: the hard limit");
    let mut reader = Connection::open(address).unwrap();
    for _ in 0..16 {
        assert!(
            matches!(reader.call(&["GET", "large"]).unwrap(), Reply::Bulk(value) if value.len() == VALUE_BYTES)
        );
    }
    limit(&mut control, "normal 0 4mb 1");
    let slow = Slow::begin(address);
    let time = slow.ends(&mut control, PATIENCE);
    assert!(time.is_some_and(|time| time >= SOFT), "{server}: the soft limit: {time:?}");
    assert!(
        matches!(reader.call(&["GET", "large"]).unwrap(), Reply::Bulk(_)),
        "{server}: a client that reads"
    );
    limit(&mut control, "normal 0 0 0");
    let slow = Slow::begin(address);
    assert!(slow.ends(&mut control, WATCHED).is_none(), "{server}: no limit");
    // A limit that is set later counts for clients that have stopped reading.
    limit(&mut control, "normal 100kb 0 0");
    assert!(slow.ends(&mut control, PATIENCE).is_some(), "{server}: a new limit");
    limit(&mut control, "normal 0 0 0");
}

/// A client that sends requests and reads no replies.
struct Slow {
    id: i64,
    began: Instant,
    _connection: Connection,
}

impl Slow {
    fn begin(address: SocketAddr) -> Slow {
        let mut connection = Connection::open(address).unwrap();
        let Reply::Int(id) = connection.call(&["CLIENT", "ID"]).unwrap() else { panic!("no number") };
        let mut requests = BytesMut::new();
        (0..READS).for_each(|_| resp::encode_request(&["GET", "large"], &mut requests));
        let began = Instant::now();
        connection.send(&requests).unwrap();
        Slow { id, began, _connection: connection }
    }

    /// Returns the time after which the server has disconnected the client.
    fn ends(&self, control: &mut Connection, patience: Duration) -> Option<Duration> {
        let listed = |control: &mut Connection| match control.call(&["CLIENT", "LIST"]).unwrap() {
            Reply::Bulk(text) | Reply::Verbatim(_, text) => String::from_utf8_lossy(&text).into_owned(),
            other => panic!("{other:?}"),
        };
        let name = format!("id={} ", self.id);
        within(patience, || {
            let is_there = listed(control).lines().any(|line| line.starts_with(&name));
            (!is_there).then(|| self.began.elapsed())
        })
    }
}
