//! Attempts to do harm before a login, and with bytes that are no TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use resp::Reply;
use rustls::pki_types::ServerName;
use rustls::ClientConnection;

use crate::client_with_tls::{config, TlsClient};
use crate::sessions::Secured;
use crate::stores::{alone, eventually};

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends bytes, and reads until the store ends the connection. Returns what it sent, or `None` if
/// it does not end the connection.
fn sent_and_ended(address: std::net::SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).expect("the store accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // The store may have ended the connection before it took everything.
    let _ = stream.write_all(bytes);
    let (mut answer, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Some(answer),
            Ok(read) => answer.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Some(answer),
            Err(_) => return None,
        }
    }
}

/// Returns the first flight of a client's handshake.
fn hello(store: &Secured) -> Vec<u8> {
    let name = ServerName::from(store.tls.ip());
    let mut tls = ClientConnection::new(config(&store.authority.file(), None), name).unwrap();
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).unwrap();
    bytes
}

fn connected(store: &Secured) -> u64 {
    store.stores.all[0].admin().gauge("connections").unwrap_or(u64::MAX)
}

#[test]
fn plain_text_at_the_tls_port_ends_the_connection_and_executes_nothing() {
    let _alone = alone();
    let store = Secured::start(&[]);
    for bytes in [
        &b"SET attacked yes\r\n"[..],
        b"*3\r\n$3\r\nSET\r\n$8\r\nattacked\r\n$3\r\nyes\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let answer = sent_and_ended(store.tls, bytes).expect("the connection ends");
        assert!(
            !answer.starts_with(b"+") && !answer.starts_with(b"-"),
            "no answer in plain text: {answer:?}"
        );
    }
    assert_eq!(store.connect().call(&["GET", "attacked"]).unwrap(), Reply::Nil);
    assert!(store.serves());
}

#[test]
fn tls_at_the_plain_port_is_no_request() {
    let _alone = alone();
    let store = Secured::start(&[]);
    let plain = store.stores.all[0].client;
    let mut stream = TcpStream::connect(plain).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    stream.write_all(&hello(&store)).unwrap();
    // The store takes it for the beginning of a line or for an error: it executes nothing.
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"-"), "{answer:?}");
    drop(stream);
    let stalls = TcpStream::connect(plain).unwrap();
    stalls.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(store.serves());
}

#[test]
fn cut_damaged_and_oversized_handshakes_end_their_connection_alone() {
    let _alone = alone();
    let store = Secured::start(&[]);
    let whole = hello(&store);
    // Cut: the client ends its stream in the middle.
    for cut in [1, 3, 5, 6, whole.len() / 2, whole.len() - 1] {
        let mut stream = TcpStream::connect(store.tls).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&whole[..cut]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        assert!(stream.read_to_end(&mut rest).is_ok(), "cut at {cut}");
    }
    // Damaged: every byte of the header and some of the message. What is still a handshake waits.
    for at in (0..9).chain((9..whole.len()).step_by(17)) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        let mut stream = TcpStream::connect(store.tls).unwrap();
        let _ = stream.write_all(&damaged);
    }
    // Oversized: a record longer than TLS allows, and a message of the handshake that never ends.
    assert!(sent_and_ended(store.tls, &[&[22, 3, 1, 0xff, 0xff][..], &vec![0; 70_000]].concat()).is_some());
    let mut endless = Vec::new();
    for number in 0..40 {
        endless.extend_from_slice(&[22, 3, 1, 0x40, 0]);
        let mut record = vec![0; 0x4000];
        if number == 0 {
            // A ClientHello of 16 MiB.
            record[..4].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
        }
        endless.extend_from_slice(&record);
    }
    assert!(sent_and_ended(store.tls, &endless).is_some(), "a handshake has a maximum of bytes");
    // Random bytes.
    let mut draw = random(3);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..draw(200)).map(|_| draw(256) as u8).collect();
        let mut stream = TcpStream::connect(store.tls).unwrap();
        let _ = stream.write_all(&bytes);
    }
    assert!(store.serves());
}

/// Returns random numbers below a bound.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |bound| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

/// Returns true if the store has ended the connection.
fn has_ended(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match (&*stream).read(&mut [0; 1]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// The memory of clients has room for about twenty of these handshakes. The rest of their first
/// message never comes.
#[test]
fn long_handshakes_end_while_memory_is_short() {
    let _alone = alone();
    let store = Secured::start(&[("--maxmemory", "64mb")]);
    let before = connected(&store);
    let mut message = vec![0; 60_000];
    // A ClientHello of 61,440 bytes.
    message[..4].copy_from_slice(&[1, 0, 0xf0, 0]);
    let records = message.chunks(0x3000).flat_map(|part| {
        let [high, low] = (part.len() as u16).to_be_bytes();
        [&[22, 3, 1, high, low][..], part].concat()
    });
    let records: Vec<u8> = records.collect();
    let long = (0..80).map(|_| {
        let mut stream = TcpStream::connect(store.tls).unwrap();
        // The store may have ended the connection before it took everything.
        let _ = stream.write_all(&records);
        stream
    });
    let long: Vec<TcpStream> = long.collect();
    eventually("most of them are ended", || {
        (long.iter().filter(|stream| has_ended(stream)).count() > 40).then_some(())
    });
    drop(long);
    eventually("the others have gone", || (connected(&store) <= before).then_some(()));
    assert!(store.serves());
}

#[test]
fn slow_handshakes_are_ended_and_do_not_delay_others() {
    let _alone = alone();
    // There is memory for about ninety handshakes.
    let store = Secured::start(&[("--maxmemory", "64mb")]);
    let whole = hello(&store);
    let before = connected(&store);
    let slow = |count: usize| -> Vec<TcpStream> {
        let begun = (0..count).map(|at| {
            let mut stream = TcpStream::connect(store.tls).unwrap();
            stream.write_all(&whole[..at % whole.len()]).unwrap();
            stream
        });
        begun.collect()
    };
    let few = slow(30);
    assert!(store.serves(), "others are served meanwhile");
    eventually("they have their places", || (connected(&store) >= before + 30).then_some(()));
    let many = slow(120);
    let began = Instant::now();
    eventually("the oldest are ended, because others wait", || store.serves().then_some(()));
    assert!(began.elapsed() < PATIENCE);
    assert!(few.iter().all(has_ended), "no slow handshake keeps its place then");
    drop(many);
    assert!(store.serves());
}

#[test]
fn a_login_is_needed_behind_tls_as_well_and_a_reset_in_the_middle_harms_nothing() {
    let _alone = alone();
    let store = Secured::start(&[("--requirepass", "open sesame")]);
    let trusted: Arc<_> = config(&store.authority.file(), None);
    let mut client = TlsClient::open(store.tls, trusted.clone()).unwrap();
    assert!(matches!(client.call(&["GET", "k"]).unwrap(), Reply::Error(text) if text.starts_with("NOAUTH")));
    assert_eq!(client.call(&["AUTH", "open sesame"]).unwrap(), Reply::OK);
    assert_eq!(client.call(&["GET", "k"]).unwrap(), Reply::Nil);
    for _ in 0..50 {
        let mut client = TlsClient::open(store.tls, trusted.clone()).unwrap();
        client.send(&["AUTH", "open sesame"]).unwrap();
        // Dropping a socket with unread bytes resets the connection.
        drop(client);
    }
    assert_eq!(client.call(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
}
