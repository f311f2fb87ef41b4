//! Attempts at the ports of a running cluster whose stores use TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use ::steelyard::authority::Owner;
use bytes::{Bytes, BytesMut};
use resp::Reply;
use rustls::pki_types::ServerName;
use server::frame::{self, Frame};

use crate::client_with_tls::{config, TlsClient};
use crate::stores::wire::Wire;
use crate::stores::{alone, eventually, terms, Plan, Stores, CLUSTER};

const PATIENCE: Duration = Duration::from_secs(20);

struct Cluster {
    stores: Stores,
}

impl Cluster {
    fn start(flags: &[(&str, &str)]) -> Cluster {
        let mut stores = Stores::prepare(&Plan { stores: 3, in_ram: true, flags, ..Plan::default() });
        let authority = stores.secure();
        authority.sign(Owner::Client, &terms()).expect("a certificate");
        stores.all.iter_mut().for_each(|store| store.spawn());
        stores.await_ready();
        Cluster { stores }
    }

    fn file(&self, name: &str) -> String {
        self.stores.tls_dir().join(name).to_str().expect("a plain path").to_owned()
    }

    fn pair(&self, stem: &str) -> (String, String) {
        (self.file(&format!("{stem}.crt")), self.file(&format!("{stem}.key")))
    }

    /// Completes a handshake with store 0 with a certificate, as far as the caller can tell.
    fn dial(&self, own: Option<&(String, String)>) -> std::io::Result<TlsClient> {
        let name = ServerName::try_from(format!("store-0.{CLUSTER}.steelyard")).expect("a name");
        TlsClient::open_to(self.peer(), config(&self.file("ca.crt"), own), name)
    }

    fn peer(&self) -> SocketAddr {
        self.stores.all[0].peer()
    }

    /// Returns true if every store takes part in serving.
    fn serves(&self) -> bool {
        let leader = self.stores.leader(1);
        let mut client = Wire::open(self.stores.all[leader].client);
        client.ok(&["SET", "still", "there"]);
        (0..3).all(|i| Wire::open(self.stores.all[i].client).text(&["GET", "still"]).is_some())
    }
}

/// Returns the beginning of what a store says to a connection that sends `frame` through TLS, and
/// nothing if it only ends the connection.
fn heard_after(client: &mut TlsClient, frame: &Frame) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frame::encode(frame, &mut bytes).unwrap();
    let _ = client.stream.write_all(&bytes).and_then(|()| client.stream.flush());
    let mut answer = vec![0; 4096];
    let read = client.stream.read(&mut answer).unwrap_or(0);
    answer.truncate(read);
    answer
}

/// Sends bytes in plain text. Returns what comes back until the end.
fn plain_answer(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the store accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frame::encode(frame, &mut bytes).unwrap();
    bytes.to_vec()
}

fn raft() -> Frame {
    Frame::Raft(vec![(1, Bytes::from_static(b"\x08\x03\x10\x01\x18\x02"))])
}

#[test]
fn callers_without_a_stores_certificate_hear_nothing_from_the_peer_port() {
    let _alone = alone();
    let cluster = Cluster::start(&[]);
    let dir = cluster.stores.tls_dir();
    let other = crate::certificates::Authority::new(&dir, "other");
    let stranger = other.sign_store("stranger", 1, CLUSTER);
    let client = cluster.pair("client");
    for (what, own) in
        [("no certificate", None), ("another authority", Some(&stranger)), ("a client", Some(&client))]
    {
        // With TLS 1.3 the caller completes its handshake before the store has judged it.
        let heard = cluster.dial(own).map(|mut client| heard_after(&mut client, &raft())).unwrap_or_default();
        assert!(heard.is_empty(), "{what}: {heard:?}");
    }
    // Plain text: frames of stores, requests of clients and of browsers.
    for bytes in [encoded(&raft()), b"*1\r\n$4\r\nPING\r\n".to_vec(), b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let heard = plain_answer(cluster.peer(), &bytes);
        // At most an alert of TLS.
        assert!(heard.len() <= 7 && heard.first().is_none_or(|kind| *kind == 21), "{heard:?}");
    }
    assert!(cluster.serves());
}

#[test]
fn frames_of_stores_from_one_with_a_certificate_and_no_proof_change_nothing() {
    let _alone = alone();
    let cluster = Cluster::start(&[]);
    let own = cluster.pair("store-1");
    for frame in [
        raft(),
        Frame::Heartbeat(Bytes::from_static(b"x")),
        Frame::Order(Bytes::from_static(b"x")),
        Frame::Announce(Bytes::from_static(b"x")),
        Frame::Request { id: 1, kind: 1, body: Bytes::from_static(b"x") },
    ] {
        let mut client = cluster.dial(Some(&own)).expect("it has a certificate");
        assert!(heard_after(&mut client, &frame).is_empty(), "{frame:?}");
    }
    assert!(cluster.serves());
}

#[test]
fn frames_of_stores_at_the_client_ports_are_no_commands() {
    let _alone = alone();
    let cluster = Cluster::start(&[]);
    let client = cluster.stores.all[0].client;
    for frame in [raft(), Frame::Request { id: 1, kind: 1, body: Bytes::from_static(b"SET k v") }] {
        let mut stream = TcpStream::connect(client).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        stream.write_all(&encoded(&frame)).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"-"), "{answer:?}");
    }
    assert!(cluster.serves());
}

#[test]
fn a_recorded_connection_of_a_store_cannot_be_played_again() {
    let _alone = alone();
    let mut cluster = Cluster::start(&[]);
    // Store 1 reaches store 0 through a process that records the bytes of all connections.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (between, to) = (listener.local_addr().unwrap(), cluster.peer());
    let (records, recorded) = mpsc::channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let (far, records) = (TcpStream::connect(to).unwrap(), records.clone());
            let (mut back_from, mut back_to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
            std::thread::spawn(move || {
                let (mut near, mut far, mut all, mut chunk) = (near, far, Vec::new(), [0; 8192]);
                while let Ok(read @ 1..) = near.read(&mut chunk) {
                    all.extend_from_slice(&chunk[..read]);
                    if far.write_all(&chunk[..read]).is_err() {
                        break;
                    }
                    if all.len() < 1 << 20 {
                        let _ = records.send(all.clone());
                    }
                }
            });
        }
    });
    let arguments = cluster.stores.all[1].arguments_with(&[]);
    let list = arguments[arguments.iter().position(|a| a == "--stores").unwrap() + 1].clone();
    let own = cluster.peer().port().to_string();
    let changed = list.replacen(&format!(":{own}:"), &format!(":{}:", between.port()), 1);
    cluster.stores.all[1].kill();
    cluster.stores.all[1].change(&[("--stores", &changed)]);
    cluster.stores.all[1].restart();
    assert!(cluster.serves());
    let longest =
        eventually("a connection with messages", || recorded.try_iter().find(|bytes| bytes.len() > 8000));
    // Nothing in the record is readable: neither the names of the handshake's frames nor keys.
    assert!(!longest.windows(4).any(|bytes| bytes == b"SYLD"));
    let before = cluster.stores.all[0].count("raft_messages_refused");
    let heard = plain_answer(cluster.peer(), &longest);
    // The store says its part of a new handshake, and ends when the old messages do not fit.
    assert!(!heard.windows(4).any(|bytes| bytes == b"SYLD"));
    assert_eq!(cluster.stores.all[0].count("raft_messages_refused"), before);
    assert!(cluster.serves());
}

#[test]
fn a_crowd_of_silent_and_slow_connections_does_not_stop_a_cluster() {
    let _alone = alone();
    let mut cluster = Cluster::start(&[]);
    let mut crowd: Vec<TcpStream> =
        (0..300).filter_map(|_| TcpStream::connect(cluster.peer()).ok()).collect();
    for (at, stream) in crowd.iter_mut().enumerate() {
        let _ = stream.write_all(&[22, 3, 1, 0, 200, 1, 0][..at % 7]);
    }
    assert!(cluster.serves(), "connections that are open go on");
    let leader = cluster.stores.leader(1);
    cluster.stores.all[leader].kill();
    cluster.stores.all[leader].restart();
    eventually("the store takes part again", || {
        crowd.retain(|stream| stream.peer_addr().is_ok());
        cluster.stores.all[leader].leader_of(1)
    });
    assert!(cluster.serves());
    for mut stream in crowd {
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let ended = stream.read_to_end(&mut Vec::new());
        let reset = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(ended.map_or_else(reset, |_| true), "the store ends every silent connection");
    }
}

#[test]
fn a_certificate_of_a_store_is_no_login_of_a_client() {
    let _alone = alone();
    let port = client::process::free_ports(1).unwrap()[0].to_string();
    let mut stores = Stores::prepare(&Plan {
        in_ram: true,
        flags: &[("--requirepass", "open sesame"), ("--tls-port", &port)],
        ..Plan::default()
    });
    let authority = stores.secure();
    let files = authority.sign(Owner::Store(1), &terms()).unwrap();
    stores.all[0].spawn();
    stores.await_ready();
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let own = (text(&files.certificate), text(&files.key));
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse::<u16>().unwrap()));
    let ca = text(&authority.certificate_file());
    let mut client = TlsClient::open(address, config(&ca, Some(&own))).unwrap();
    let reply = client.call(&["GET", "k"]).unwrap();
    assert!(matches!(&reply, Reply::Error(text) if text.starts_with("NOAUTH")), "{reply:?}");
    // CONFIG GET names files and shows no key.
    client.call(&["AUTH", "open sesame"]).unwrap();
    let shown = format!("{:?}", client.call(&["CONFIG", "GET", "tls-*"]).unwrap());
    assert!(shown.contains("store-0.key") && !shown.contains("PRIVATE"), "{shown}");
}
