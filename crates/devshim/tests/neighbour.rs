//! A foreign program under the library: a Redis that syncs every write, if one is installed.

mod bench;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use bench::Device;
use device::preload_env;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_redis_that_syncs_always_has_its_log_on_the_device() {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: no redis-server");
        return;
    }
    let device = Device::new("nvm", 1.0);
    let socket = device.outside("redis.sock");
    let child = Command::new("redis-server")
        .envs(preload_env(device.control.path(), &device.data()).unwrap())
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"])
        .args(["--port", "0", "--unixsocket", &socket])
        .args(["--dir", &device.data().display().to_string()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Server(child);
    let mut client = loop {
        if let Ok(client) = UnixStream::connect(&socket) {
            break BufReader::new(client);
        }
        assert!(server.0.try_wait().unwrap().is_none(), "the server ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let mut set = |value: &str| {
        let command = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len());
        client.get_mut().write_all(command.as_bytes()).unwrap();
        let mut reply = String::new();
        client.read_line(&mut reply).unwrap();
        assert_eq!(reply, "+OK\r\n");
        command.len() as u64
    };
    set("warm");
    let before = device.control.stats();
    let sent: u64 = (0..50).map(|_| set(&"v".repeat(1000))).sum();
    let after = device.control.stats();
    // The log holds exactly the commands as sent. Meanwhile Redis writes nothing else to a file:
    // its replies go to a socket, its messages to standard output.
    assert_eq!(after.bytes_written - before.bytes_written, sent);
    assert_eq!(after.syncs - before.syncs, 50);
}
