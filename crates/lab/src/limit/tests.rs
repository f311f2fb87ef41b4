//! Tests of the limit in threads of this process. The threads end with the process.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::*;
use client::process::free_ports;

/// Maximum time to wait on a slow machine. No passing test waits this long.
const PATIENCE: Duration = Duration::from_secs(30);
const LOG_BYTES: u64 = 256 << 10;

fn start(dir: &Path, role: Role) -> (SocketAddr, JoinHandle<anyhow::Result<()>>) {
    let listen = SocketAddr::from(([127, 0, 0, 1], free_ports(1).unwrap()[0]));
    let options = Options { listen, dir: dir.to_owned(), log_bytes: LOG_BYTES, role };
    (listen, std::thread::spawn(move || serve(&options)))
}

fn connect(address: SocketAddr) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ask(stream: &mut TcpStream, requests: &[&[&[u8]]]) {
    let mut bytes = BytesMut::new();
    requests.iter().for_each(|request| resp::encode_request(request, &mut bytes));
    stream.write_all(&bytes).unwrap();
}

fn expect(stream: &mut TcpStream, replies: &[u8]) {
    let mut heard = vec![0; replies.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(replies));
}

#[test]
fn requests_of_a_connection_are_answered_in_order_and_from_what_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let (address, _) = start(dir.path(), Role::Leader { followers: Vec::new() });
    let mut client = connect(address);
    ask(
        &mut client,
        &[&[b"GET", b"a"], &[b"SET", b"a", b"1"], &[b"set", b"a", b"22"], &[b"GET", b"a"], &[b"PING"]],
    );
    expect(&mut client, b"$-1\r\n+OK\r\n+OK\r\n$2\r\n22\r\n+PONG\r\n");
    ask(&mut client, &[&[b"DBSIZE"], &[b"SET", b"b"], &[b"DBSIZE"]]);
    expect(
        &mut client,
        b":1\r\n-ERR unknown command 'SET': the limit serves SET key value, GET, PING and DBSIZE\r\n:1\r\n",
    );
    // Write more than the log holds, so that it wraps around.
    let value = vec![b'x'; 5000];
    for number in 0..2 * LOG_BYTES as usize / value.len() {
        let key = number.to_string();
        ask(&mut client, &[&[b"SET", key.as_bytes(), &value]]);
        expect(&mut client, b"+OK\r\n");
    }
    let mut other = connect(address);
    ask(&mut other, &[&[b"GET", b"3"]]);
    expect(&mut other, &[b"$5000\r\n", &value[..], b"\r\n"].concat());
    assert_eq!(std::fs::metadata(dir.path().join("LOG")).unwrap().len(), LOG_BYTES);
    // The server closes the connection of a client that breaks the protocol, and no other.
    other.write_all(b"*1\r\n!\r\n").unwrap();
    let end = other.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    ask(&mut client, &[&[b"PING"]]);
    expect(&mut client, b"+PONG\r\n");
}

#[test]
fn what_is_answered_is_in_the_logs_of_a_majority() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let (first, _) = start(dirs[1].path(), Role::Follower);
    let (second, _) = start(dirs[2].path(), Role::Follower);
    // A follower accepts only one connection, so the test does not try to connect. A follower
    // preallocates its log before it accepts.
    let is_ready = |dir: &Path| std::fs::metadata(dir.join("LOG")).is_ok_and(|log| log.len() == LOG_BYTES);
    while !dirs[1..].iter().all(|dir| is_ready(dir.path())) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (leader, _) = start(dirs[0].path(), Role::Leader { followers: vec![first, second] });
    let mut client = connect(leader);
    for number in 0..20 {
        let value = format!("the value of number {number}");
        ask(&mut client, &[&[b"SET", b"key", value.as_bytes()]]);
        expect(&mut client, b"+OK\r\n");
        let has = |dir: &Path| {
            let log = std::fs::read(dir.join("LOG")).unwrap();
            log.windows(value.len()).any(|bytes| bytes == value.as_bytes())
        };
        assert!(dirs.iter().filter(|dir| has(dir.path())).count() >= 2, "{number}");
    }
}

#[test]
fn one_acknowledgement_of_two_is_enough_and_none_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let followers = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let (address, running) = start(dir.path(), Role::Leader { followers });
    let [mut first, second] = listeners.map(|listener| listener.accept().unwrap().0);
    let mut client = connect(address);
    ask(&mut client, &[&[b"SET", b"key", b"value"], &[b"GET", b"key"]]);
    let mut received = Vec::new();
    let found = loop {
        let mut some = [0; 100];
        let bytes = first.read(&mut some).unwrap();
        received.extend_from_slice(&some[..bytes]);
        if let Some(found) = batch::find(&received).unwrap() {
            break found;
        }
    };
    assert_eq!((found.number, found.committed), (1, 0));
    assert_eq!(batch::entries(&received).collect::<Vec<_>>(), [(&b"key"[..], &b"value"[..])]);
    client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let silent = client.read(&mut [0]).unwrap_err().kind();
    assert!(matches!(silent, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silent}");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    first.write_all(&found.number.to_le_bytes()).unwrap();
    expect(&mut client, b"+OK\r\n$5\r\nvalue\r\n");
    // The leader fails when it loses a copy.
    drop(second);
    assert!(running.join().unwrap().is_err());
}
