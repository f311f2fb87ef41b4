//! The two servers that are compared. Each has its own directory and free ports, and ends when it
//! is dropped.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use client::process::{free_ports, Child};
use tempfile::TempDir;

use crate::connection::Connection;

/// Maximum time until a server's first answer.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Dropping it ends the child first and then removes its directory.
pub struct Server {
    pub address: SocketAddr,
    child: Child,
    dir: TempDir,
}

impl Server {
    pub fn connect(&self) -> Connection {
        Connection::open(self.address).expect("the server accepts connections")
    }

    #[allow(dead_code, reason = "only the tests of the protocol look at the process")]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    #[allow(dead_code, reason = "only the tests of transfers look for files")]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the contents of the server's files, with its log.
    #[allow(dead_code, reason = "only the tests of users look for secrets")]
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut files, mut dirs) = (Vec::new(), vec![self.dir.path().to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).expect("a directory of our own").flatten() {
                match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    true => dirs.push(entry.path()),
                    false => files.extend(std::fs::read(entry.path()).ok().map(|text| (entry.path(), text))),
                }
            }
        }
        files
    }
}

/// Starts one Steelyard store with `flags` in addition to its ports and directory.
pub fn steelyard(flags: &[&str]) -> Server {
    start("steelyard", 3, |ports, dir| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steelyard"));
        command.arg("serve");
        for (flag, port) in ["--port", "--peer-port", "--admin-port"].iter().zip(ports) {
            command.args([flag, port.to_string().as_str()]);
        }
        // Only answers are compared, so the store need not sync.
        command.arg("--dir").arg(dir.join("data")).args(["--fsync", "no", "--probe", "no"]).args(flags);
        command
    })
}

/// Starts Redis without persistence. Prints a message and returns `None` if it is not installed.
pub fn redis(flags: &[&str]) -> Option<Server> {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        // A macro cannot be used: the test harness captures its output when a test passes.
        let told = writeln!(
            std::io::stderr(),
            "\n*** SKIPPED: redis-server is not installed, so nothing was compared with it. ***\n"
        );
        told.expect("stderr is open");
        return None;
    }
    Some(start("redis-server", 2, |ports, dir| {
        let mut command = Command::new("redis-server");
        command.args(["--port", &ports[0].to_string(), "--save", "", "--appendonly", "no"]);
        command.args(["--daemonize", "no", "--dir"]).arg(dir).args(flags);
        // Without it the port of the cluster's bus is 10,000 higher, which may be none.
        if flags.contains(&"--cluster-enabled") {
            command.args(["--cluster-port", &ports[1].to_string()]);
        }
        command
    }))
}

/// Starts the command that `command` makes from free ports and a directory.
fn start(name: &str, ports: usize, command: impl Fn(&[u16], &Path) -> Command) -> Server {
    let dir = TempDir::new().expect("a temporary directory");
    let ports = free_ports(ports).expect("free ports");
    let log_path = dir.path().join("log");
    let log = File::create(&log_path).expect("a log file");
    let mut command = command(&ports, dir.path());
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log file")).stderr(log);
    let mut child = Child::spawn(name, &mut command).expect("the server starts");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[0]));
    let deadline = Instant::now() + START_PATIENCE;
    while child.ended().is_none() && Instant::now() < deadline {
        if answers(address) {
            return Server { address, child, dir };
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{name} does not answer:\n{}", std::fs::read_to_string(&log_path).unwrap_or_default());
}

/// Returns true if the server answers commands, also those of the newest version of the cluster. It
/// may answer that it requires a password, or that it has no slots yet.
fn answers(address: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::open(address) else { return false };
    match connection.call(&["SCARD", "is anyone there"]) {
        Ok(resp::Reply::Error(text)) => {
            ["NOAUTH", "CLUSTERDOWN Hash slot not served"].iter().any(|way| text.starts_with(way))
        }
        Ok(_) => true,
        Err(_) => false,
    }
}
