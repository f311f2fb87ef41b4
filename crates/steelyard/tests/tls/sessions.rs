//! Sessions of clients with TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use client::process::free_ports;
use resp::Reply;
use tempfile::TempDir;

use crate::certificates::Authority;
use crate::client_with_tls::{config, TlsClient};
use crate::connection::Connection;
use crate::stores::{alone, eventually, say, Plan, Stores};

/// A store with a port for TLS, and an authority that has signed its certificate.
pub struct Secured {
    pub stores: Stores,
    pub tls: SocketAddr,
    pub authority: Authority,
    pub dir: TempDir,
}

impl Secured {
    /// Starts a store that does not ask for certificates unless `flags` say so.
    pub fn start(flags: &[(&str, &str)]) -> Secured {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::new(dir.path(), "authority");
        let (certificate, key) = authority.sign("store");
        let port = free_ports(1).expect("a free port")[0].to_string();
        let file = authority.file();
        let mut all = vec![
            ("--tls-port", port.as_str()),
            ("--tls-cert-file", certificate.as_str()),
            ("--tls-key-file", key.as_str()),
            ("--tls-ca-cert-file", file.as_str()),
            ("--tls-auth-clients", "no"),
        ];
        all.extend_from_slice(flags);
        let stores = Stores::start(&Plan { flags: &all, ..Plan::default() });
        let tls = SocketAddr::new(stores.all[0].client.ip(), port.parse().expect("a port"));
        Secured { stores, tls, authority, dir }
    }

    pub fn connect(&self) -> TlsClient {
        TlsClient::open(self.tls, config(&self.authority.file(), None)).expect("the store accepts the client")
    }

    /// Returns true if the store serves clients on both ports.
    pub fn serves(&self) -> bool {
        let plain = Connection::open(self.stores.all[0].client).and_then(|mut client| client.call(&["PING"]));
        let pong = Reply::Simple("PONG".into());
        plain.is_ok_and(|reply| reply == pong)
            && self.connect().call(&["PING"]).is_ok_and(|reply| reply == pong)
    }
}

#[test]
fn clients_with_tls_are_served_like_those_without() {
    let _alone = alone();
    let store = Secured::start(&[]);
    let mut client = store.connect();
    assert_eq!(client.call(&["SET", "k", "v"]).unwrap(), Reply::OK);
    assert_eq!(client.call(&["GET", "k"]).unwrap(), Reply::bulk("v"));
    // Values that are larger than records, sockets' buffers and what is written at once.
    for size in [1, 16 << 10, (16 << 10) + 1, 300 << 10, 9 << 20] {
        let value = "x".repeat(size);
        assert_eq!(client.call(&["SET", "large", &value]).unwrap(), Reply::OK, "{size}");
        assert_eq!(client.call(&["GET", "large"]).unwrap(), Reply::bulk(value), "{size}");
    }
    // A long pipeline, whose replies are read only after all of it was sent.
    for number in 0..3000 {
        client.send(&["SET", &format!("k{number}"), &number.to_string()]).unwrap();
    }
    for _ in 0..3000 {
        assert_eq!(client.reply().unwrap(), Reply::OK);
    }
    for number in 0..3000 {
        client.send(&["GET", &format!("k{number}")]).unwrap();
    }
    for number in 0..3000 {
        assert_eq!(client.reply().unwrap(), Reply::bulk(number.to_string()));
    }
    // A client that asks for much and reads late.
    for _ in 0..8 {
        client.send(&["GET", "large"]).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    for _ in 0..8 {
        assert!(matches!(client.reply().unwrap(), Reply::Bulk(value) if value.len() == 9 << 20));
    }
    // Idle connections with TLS count as clients' memory.
    let others: Vec<TlsClient> = (0..20).map(|_| store.connect()).collect();
    let text = format!("{:?}", client.call(&["INFO", "memory"]).unwrap());
    let held =
        text.split("mem_clients_normal:").nth(1).and_then(|rest| rest.split("\\r").next()).expect("a field");
    assert!(held.parse::<u64>().expect("a number") >= 21 * (12 << 10), "{held}");
    drop(others);
    assert_eq!(client.call(&["QUIT"]).unwrap(), Reply::OK);
    assert!(client.call(&["PING"]).is_err(), "the connection has ended");
}

#[test]
fn without_a_plain_port_only_clients_with_tls_are_served() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    let (certificate, key) = authority.sign("store");
    let mut stores = Stores::prepare(&Plan::default());
    let port = stores.all[0].client.port().to_string();
    stores.all[0].change(&[
        ("--tls-port", &port),
        ("--tls-cert-file", &certificate),
        ("--tls-key-file", &key),
        ("--tls-auth-clients", "no"),
    ]);
    stores.all[0].spawn();
    let address = stores.all[0].client;
    let mut client =
        eventually("the store serves", || TlsClient::open(address, config(&authority.file(), None)).ok());
    assert_eq!(client.call(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
    let text = format!("{:?}", client.call(&["CONFIG", "GET", "port"]).unwrap());
    assert!(text.contains("b\"0\""), "{text}");
    let plain = Connection::open(address).and_then(|mut client| client.call(&["PING"]));
    assert!(plain.is_err(), "{plain:?}");
}

#[test]
fn a_client_shows_the_certificate_that_is_asked_for() {
    let _alone = alone();
    for (mode, without, with) in [("yes", false, true), ("optional", true, true), ("no", true, true)] {
        let store = Secured::start(&[("--tls-auth-clients", mode)]);
        let own = store.authority.sign("client");
        let stranger = Authority::new(store.dir.path(), "stranger").sign("of-a-stranger");
        let expired = store.authority.sign_until("expired", 2020);
        let works = |own: Option<&(String, String)>| {
            let client = TlsClient::open(store.tls, config(&store.authority.file(), own));
            // With TLS 1.3 the client completes its handshake before the store has judged it.
            client.and_then(|mut client| client.call(&["PING"])).is_ok()
        };
        assert_eq!((works(None), works(Some(&own))), (without, with), "tls-auth-clients {mode}");
        if mode != "no" {
            assert!(!works(Some(&stranger)) && !works(Some(&expired)), "tls-auth-clients {mode}");
        }
    }
}

#[test]
fn a_client_does_not_trust_a_wrong_or_expired_certificate_of_a_store() {
    let _alone = alone();
    let store = Secured::start(&[]);
    let stranger = Authority::new(store.dir.path(), "stranger");
    assert!(TlsClient::open(store.tls, config(&stranger.file(), None)).is_err());
    let (certificate, key) = store.authority.sign_until("store-expired", 2020);
    let mut admin = Connection::open(store.stores.all[0].client).unwrap();
    let set = ["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key];
    assert_eq!(admin.call(&set).unwrap(), Reply::OK);
    assert!(TlsClient::open(store.tls, config(&store.authority.file(), None)).is_err());
}

/// Returns the name in the certificate that the store shows.
fn shown(store: &Secured) -> Vec<u8> {
    let client = store.connect();
    client.stream.conn.peer_certificates().expect("a certificate")[0].to_vec()
}

#[test]
fn certificates_are_renewed_without_a_restart() {
    let _alone = alone();
    let store = Secured::start(&[]);
    let first = shown(&store);
    let mut open = store.connect();
    // By CONFIG SET. A pair that does not fit changes nothing.
    let (certificate, key) = store.authority.sign("second");
    let (other, _) = store.authority.sign("other");
    let mut admin = Connection::open(store.stores.all[0].client).unwrap();
    let bad = admin.call(&["CONFIG", "SET", "tls-cert-file", &other, "tls-key-file", &key]).unwrap();
    let text = "ERR CONFIG SET failed (possibly related to argument 'tls-cert-file') - Unable to update TLS configuration. Check server logs.";
    assert_eq!(bad, Reply::error(text));
    assert_eq!(shown(&store), first);
    let good = admin.call(&["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key]).unwrap();
    assert_eq!(good, Reply::OK);
    let second = shown(&store);
    assert_ne!(second, first);
    // By other files under the same names.
    store.authority.sign("second");
    let third = eventually("the store notices the changed files", || {
        Some(shown(&store)).filter(|now| *now != second)
    });
    // A damaged file is not used.
    std::fs::write(Path::new(&certificate), "no certificate").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(shown(&store), third);
    assert_eq!(open.call(&["PING"]).unwrap(), Reply::Simple("PONG".into()), "open connections continue");
    for (name, value) in [("tls-ciphers", "ALL"), ("tls-key-file-pass", "x"), ("tls-protocols", "TLSv1")] {
        assert!(admin.call(&["CONFIG", "SET", name, value]).unwrap().is_error(), "{name}");
    }
}

#[test]
fn redis_cli_and_redis_benchmark_work_with_tls() {
    let _alone = alone();
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return say("\n*** SKIPPED: redis-cli is not installed. ***\n");
    }
    let store = Secured::start(&[("--tls-auth-clients", "yes")]);
    let (certificate, key) = store.authority.sign("client");
    let authority = store.authority.file();
    let port = store.tls.port().to_string();
    let flags = ["-p", &port, "--tls", "--cacert", &authority, "--cert", &certificate, "--key", &key];
    let run = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(flags).args(words).output().expect("the program runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for (words, answer) in [(&["SET", "k", "v"][..], "OK\n"), (&["GET", "k"], "v\n"), (&["PING"], "PONG\n")] {
        assert_eq!(run("redis-cli", words), (true, answer.to_owned()), "{words:?}");
    }
    let (done, text) =
        run("redis-benchmark", &["-t", "set,get", "-n", "20000", "-c", "20", "-P", "8", "-d", "300", "-q"]);
    assert!(done && text.contains("SET:") && text.contains("GET:"), "{text}");
}
