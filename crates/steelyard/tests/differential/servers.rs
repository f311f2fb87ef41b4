//! The two servers under comparison: each in a directory of its own, on ports that were free, ended by drop.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bench::process::{free_ports, Child};
use tempfile::TempDir;

use crate::connection::Connection;

/// How long a server may take to its first answer.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// A running server. The child goes first when it is dropped, then its directory.
pub struct Server {
    pub address: SocketAddr,
    _child: Child,
    _dir: TempDir,
}

impl Server {
    pub fn connect(&self) -> Connection {
        Connection::open(self.address).expect("the server accepts connections")
    }
}

/// This repository's server: one store, and `flags` besides its ports and directory.
pub fn steelyard(flags: &[&str]) -> Server {
    let dir = TempDir::new().expect("a temporary directory");
    let ports = free_ports(3).expect("free ports");
    let mut command = Command::new(env!("CARGO_BIN_EXE_steelyard"));
    command.arg("serve");
    for (flag, port) in ["--port", "--peer-port", "--admin-port"].iter().zip(&ports) {
        command.args([flag, port.to_string().as_str()]);
    }
    // What is compared is what is answered; the disk's own sync time would only slow the comparison.
    command.arg("--dir").arg(dir.path().join("data")).args(["--fsync", "no"]).args(flags);
    start("steelyard", command, ports[0], dir)
}

/// The neighbour, without persistence. `None`, and a loud word about it, where it is not installed.
pub fn redis(flags: &[&str]) -> Option<Server> {
    let dir = TempDir::new().expect("a temporary directory");
    let port = free_ports(1).expect("a free port")[0];
    let mut command = Command::new("redis-server");
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("\n*** SKIPPED: redis-server is not installed, so nothing was compared with it. ***\n");
        return None;
    }
    let port_text = port.to_string();
    command.args(["--port", &port_text, "--save", "", "--appendonly", "no", "--daemonize", "no"]);
    command.arg("--dir").arg(dir.path()).args(flags);
    Some(start("redis-server", command, port, dir))
}

fn start(name: &str, mut command: Command, port: u16, dir: TempDir) -> Server {
    let log_path = dir.path().join("log");
    let log = File::create(&log_path).expect("a log file");
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log file")).stderr(log);
    let mut child = Child::spawn(name, &mut command).expect("the server starts");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let deadline = Instant::now() + START_PATIENCE;
    while !answers(address) {
        if child.ended().is_some() || Instant::now() > deadline {
            panic!("{name} does not serve:\n{}", log_of(&log_path));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Server { address, _child: child, _dir: dir }
}

/// Whether commands are answered, be it by a demand for a password.
fn answers(address: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::open(address) else { return false };
    match connection.call(&["GET", "is anyone there"]) {
        Ok(resp::Reply::Error(text)) => text.starts_with("NOAUTH"),
        Ok(_) => true,
        Err(_) => false,
    }
}

fn log_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
