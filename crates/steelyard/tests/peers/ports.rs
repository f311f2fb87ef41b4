//! The admin and forward ports with TLS, and the programs that speak it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::steelyard::authority::{Authority, Owner};
use client::tls::ClientTls;
use resp::Reply;

use crate::client_with_tls::{config, TlsClient};
use crate::stores::{alone, eventually, terms, Plan, Stores};

/// A cluster of one store with TLS at its client, forward and admin ports, and its authority.
struct Secured {
    stores: Stores,
    authority: Authority,
    dir: PathBuf,
}

fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

impl Secured {
    fn start() -> Secured {
        let plan = Plan { cluster_enabled: true, regions: 2, in_ram: true, ..Plan::default() };
        let mut stores = Stores::prepare(&plan);
        let authority = stores.secure();
        authority.sign(Owner::Client, &terms()).expect("a certificate");
        let dir = stores.tls_dir();
        let port = stores.all[0].client.port().to_string();
        let all = [("--tls-port", port.as_str()), ("--tls-forward", "yes"), ("--tls-admin", "yes")];
        stores.all[0].change(&all);
        stores.all[0].use_tls(ClientTls::of_directory(&dir).expect("certificates"));
        stores.all[0].spawn();
        stores.await_ready();
        Secured { stores, authority, dir }
    }

    fn admin(&self) -> SocketAddr {
        self.stores.all[0].admin().address()
    }

    fn own(&self) -> (String, String) {
        let files = self.authority.files(Owner::Client);
        (text(&files.certificate), text(&files.key))
    }

    fn ca(&self) -> String {
        text(&self.authority.certificate_file())
    }

    fn connect(&self, address: SocketAddr) -> std::io::Result<TlsClient> {
        TlsClient::open(address, config(&self.ca(), Some(&self.own())))
    }

    /// Runs `steelyard ctl stores` with these flags.
    fn ctl(&self, flags: &[&str]) -> Result<String, String> {
        let mut command = crate::stores::steelyard();
        command.args(["ctl", "stores", "--admin", &self.admin().to_string()]).args(flags);
        let output = client::process::output(&mut command).expect("ctl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }
}

/// Sends bytes without TLS. Returns what comes back until the store ends the connection.
fn plain_answer(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the store accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn programs_with_a_certificate_are_served_at_the_admin_port_and_no_others() {
    let _alone = alone();
    let store = Secured::start();
    let dir = text(&store.dir);
    let shown = store.ctl(&["--tls", &dir]).expect("ctl speaks TLS");
    assert!(shown.contains("up"), "{shown}");
    // By the variable, too.
    let mut command = crate::stores::steelyard();
    command.env("STEELYARD_TLS", &dir).args(["ctl", "status", "--admin", &store.admin().to_string()]);
    assert!(client::process::output(&mut command).unwrap().status.success());
    // Without TLS there is no answer.
    assert!(store.ctl(&[]).unwrap_err().contains("no answer"));
    let answer = plain_answer(store.admin(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // Nor with the certificate of another authority, or with none, or if the store is not trusted.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Authority::open(elsewhere.path()).unwrap();
    other.sign(Owner::Client, &terms()).unwrap();
    assert!(store.ctl(&["--tls", &text(elsewhere.path())]).unwrap_err().contains("TLS"));
    std::fs::copy(store.dir.join("ca.crt"), elsewhere.path().join("ca.crt")).unwrap();
    assert!(store.ctl(&["--tls", &text(elsewhere.path())]).is_err(), "a client of another authority");
    std::fs::remove_file(elsewhere.path().join("client.crt")).unwrap();
    assert!(store.ctl(&["--tls", &text(elsewhere.path())]).is_err(), "a client without a certificate");
    assert!(store.ctl(&["--tls", "/nowhere"]).unwrap_err().contains("ca.crt"));
    assert!(store.ctl(&["--tls", &dir]).is_ok());
}

#[test]
fn slow_handshakes_at_the_admin_port_do_not_delay_other_programs() {
    let _alone = alone();
    let store = Secured::start();
    let mut slow: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(store.admin()).unwrap()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(&[22, 3, 1, 0, 200]).unwrap());
    assert!(store.ctl(&["--tls", &text(&store.dir)]).is_ok());
    for mut stream in slow {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The store ends the connection, with or without a word.
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(ended.is_ok() || ended.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn the_forward_port_serves_clients_with_tls_and_executes_nothing_in_plain_text() {
    let _alone = alone();
    let store = Secured::start();
    let forward = store.stores.all[0].forward.expect("a forward port");
    let mut client = store.connect(forward).expect("the store accepts the client");
    assert_eq!(client.call(&["SET", "k", "v"]).unwrap(), Reply::OK);
    assert_eq!(client.call(&["GET", "k"]).unwrap(), Reply::bulk("v"));
    let answer = plain_answer(forward, b"SET k attacked\r\n");
    assert!(!answer.starts_with(b"+") && !answer.starts_with(b"-"), "{answer:?}");
    let without = TlsClient::open(forward, config(&store.ca(), None));
    assert!(without.and_then(|mut client| client.call(&["GET", "k"])).is_err());
    assert_eq!(client.call(&["GET", "k"]).unwrap(), Reply::bulk("v"));
    let shown = format!("{:?}", client.call(&["CONFIG", "GET", "tls-forward"]).unwrap());
    assert!(shown.contains("yes"), "{shown}");
}

/// Returns a port for the first store of a playground such that all ports of its stores are free.
/// They are below those of outgoing connections, which take theirs at any time.
fn port_of_a_playground() -> u16 {
    let free = |port: u16| client::process::port_is_free(SocketAddr::from(([127, 0, 0, 1], port)));
    let start = std::process::id() as u16 % 170;
    let ports = (0..170).map(|i| 11_000 + (start + i) % 170 * 10);
    let mut usable = ports.filter(|port| (0..9).all(|i| free(port + i / 3 * 10_000 + i % 3)));
    usable.next().expect("ports for a playground")
}

#[test]
fn a_playground_with_tls_is_reached_by_programs_with_its_certificates() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let port = port_of_a_playground();
    let mut command = crate::stores::steelyard();
    command.args(["playground", "--tls", "--port", &port.to_string(), "--dir"]).arg(dir.path().join("data"));
    command.args(["--", "--probe", "no", "--reserve", "16mb"]);
    let said = dir.path().join("said");
    let errors = std::fs::File::create(&said).unwrap();
    let mut playground = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
    let lines = BufReader::new(playground.stdout.take().unwrap()).lines();
    let lines: Vec<String> = lines.map_while(Result::ok).take_while(|line| line != "ready").collect();
    let tls = lines.iter().find_map(|line| line.strip_prefix("tls ")).map(PathBuf::from);
    let asked = tls.map(|tls| {
        let mut command = crate::stores::steelyard();
        command.args(["ctl", "stores", "--port", &port.to_string(), "--tls"]).arg(&tls);
        let shown = client::process::output(&mut command).unwrap();
        let own = (text(&tls.join("client.crt")), text(&tls.join("client.key")));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let client = TlsClient::open(address, config(&text(&tls.join("ca.crt")), Some(&own)));
        let pong = client.and_then(|mut client| client.call(&["PING"]));
        (String::from_utf8_lossy(&shown.stdout).into_owned(), pong.ok())
    });
    let _ = std::process::Command::new("kill").arg(playground.id().to_string()).status();
    let _ = playground.wait();
    let said = std::fs::read_to_string(&said).unwrap_or_default();
    let (shown, pong) = asked.unwrap_or_else(|| panic!("no line names the certificates: {lines:?}, {said}"));
    assert!(shown.contains("tls"), "{shown}");
    assert_eq!(pong, Some(Reply::Simple("PONG".into())));
}

#[test]
fn an_authority_of_development_is_made_and_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let init = |flags: &[&str]| {
        let mut command = crate::stores::steelyard();
        command.args(["ctl", "tls", "init", "--dir"]).arg(dir.path().join("tls")).args(flags);
        let output = client::process::output(&mut command).expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (done, said) = init(&["--stores", "2", "--host", "10.0.0.1,db.example"]);
    assert!(done && said.contains("store-1.crt") && said.contains("--tls-cluster yes"), "{said}");
    let read = |name: &str| std::fs::read(dir.path().join("tls").join(name)).unwrap();
    let before = (read("ca.crt"), read("store-0.key"), read("store-0.crt"));
    assert!(init(&["--stores", "3"]).0);
    assert_eq!((read("ca.crt"), read("store-0.key")), (before.0, before.1));
    assert_ne!(read("store-0.crt"), before.2);
    assert!(!init(&["--cluster-name", "Not good"]).0 && !init(&["--days", "0"]).0);
    eventually("all files are there", || dir.path().join("tls/any-store.key").exists().then_some(()));
}
