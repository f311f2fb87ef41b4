//! `maxmemory` limits the process: its resident set stays within 125% of it, whatever clients and
//! other stores do.
//!
//! The ignored tests run for minutes, with the smallest `maxmemory` and with ten thousand clients.
//! `make test-large` runs them.

mod stores;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use stores::wire::Wire;
use stores::{alone, eventually, say, Plan, Stores};
use types::Draw;

const MIB: u64 = 1 << 20;

/// Returns the maximum number of resident bytes for a `maxmemory`.
fn bound(maxmemory: u64) -> u64 {
    maxmemory + maxmemory / 4
}

fn assert_bounded(stores: &Stores, maxmemory: u64, what: &str) {
    for store in &stores.all {
        let peak = store.peak_rss();
        say(&format!("{what}: store {} held at most {} MiB of {}", store.id, peak / MIB, maxmemory / MIB));
        assert!(peak <= bound(maxmemory), "{what}: store {} held {} MiB", store.id, peak / MIB);
    }
}

/// Connections that alternate between writing and reading, from one thread.
struct Crowd {
    connections: Vec<TcpStream>,
    draw: Draw,
    /// True if errors count as answers, because stores may be stopped or gone.
    may_fail: bool,
}

impl Crowd {
    fn open(address: SocketAddr, connections: usize) -> Crowd {
        let open = |_| {
            let stream = TcpStream::connect(address).expect("a connection");
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            stream.set_nodelay(true).expect("a socket");
            stream
        };
        let connections = (0..connections).map(open).collect();
        Crowd { connections, draw: Draw::new(1), may_fail: false }
    }

    /// Sends `pipeline` requests on each connection. Each sets a random key out of `keys` to a
    /// value of `value_bytes`, and then reads as many keys.
    fn set_and_get(&mut self, keys: u64, value_bytes: usize, pipeline: usize) {
        let value = vec![b'v'; value_bytes];
        for stream in &mut self.connections {
            let mut bytes = Vec::new();
            for _ in 0..pipeline {
                let key = format!("key:{:012}", self.draw.below(keys));
                set(&mut bytes, &key, &value);
            }
            stream.write_all(&bytes).expect("it reads");
        }
        for stream in &mut self.connections {
            for _ in 0..pipeline {
                let reply = read_line(stream);
                assert!(reply == "+OK" || self.may_fail && reply.starts_with('-'), "{reply}");
            }
        }
        for stream in &mut self.connections {
            let key = format!("key:{:012}", self.draw.below(keys));
            stream.write_all(&request(&["GET", &key])).expect("it reads");
        }
        for stream in &mut self.connections {
            let head = read_line(stream);
            if head == "$-1" || self.may_fail && head.starts_with('-') {
                continue;
            }
            assert_eq!(head, format!("${value_bytes}"));
            let mut value = vec![0; value_bytes + 2];
            stream.read_exact(&mut value).expect("a value");
            assert!(value[..value_bytes].iter().all(|&byte| byte == b'v'));
        }
    }
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

fn set(bytes: &mut Vec<u8>, key: &str, value: &[u8]) {
    bytes.extend(format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len()).bytes());
    bytes.extend(value);
    bytes.extend(b"\r\n");
}

/// Reads a line and returns it without its line end.
fn read_line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply");
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line[..line.len() - 2]).into_owned()
}

/// Writes small values from several threads until `bytes` are written or the time limit has passed.
fn write_small(
    address: SocketAddr,
    clients: usize,
    bytes: u64,
    keys: u64,
    at_most: Duration,
    may_fail: bool,
) {
    const THREADS: usize = 4;
    const VALUE_BYTES: usize = 1024;
    const PIPELINE: usize = 4;
    let end = Instant::now() + at_most;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut crowd = Crowd::open(address, clients / THREADS);
                (crowd.draw, crowd.may_fail) = (Draw::new(thread as u64), may_fail);
                let each = (clients / THREADS * PIPELINE * VALUE_BYTES) as u64;
                for _ in 0..bytes / THREADS as u64 / each {
                    crowd.set_and_get(keys, VALUE_BYTES, PIPELINE);
                    if Instant::now() >= end {
                        break;
                    }
                }
            });
        }
    });
}

fn start(maxmemory: &str, more: &[(&str, &str)]) -> Stores {
    let mut flags = vec![("--maxmemory", maxmemory), ("--probe", "no")];
    flags.extend(more);
    Stores::start(&Plan { flags: &flags, ..Plan::default() })
}

/// The size of a test.
struct Size {
    maxmemory: &'static str,
    bytes: u64,
    clients: usize,
    written: u64,
    keys: u64,
}

const SMALL: Size =
    Size { maxmemory: "96mb", bytes: 96 * MIB, clients: 100, written: 400 * MIB, keys: 400_000 };
const SMALLEST: Size =
    Size { maxmemory: "64mb", bytes: 64 * MIB, clients: 100, written: u64::MAX, keys: 640_000 };
const MANY: Size =
    Size { maxmemory: "256mb", bytes: 256 * MIB, clients: 10_000, written: u64::MAX, keys: 2_500_000 };

fn many_times_the_memory_is_written(size: &Size, at_most: Duration) {
    let _alone = alone();
    // Ten thousand pipelines may queue for seconds.
    let mut stores = start(size.maxmemory, &[("--request-timeout", "20000")]);
    write_small(stores.all[0].client, size.clients, size.written, size.keys, at_most, false);
    assert_bounded(&stores, size.bytes, "writing");
    // At the restart the log to replay is larger than the memory.
    stores.all[0].kill();
    stores.all[0].restart();
    assert_bounded(&stores, size.bytes, "after a kill -9");
    write_small(stores.all[0].client, 20, 10 * MIB, size.keys, Duration::from_secs(60), false);
    assert_bounded(&stores, size.bytes, "and writing again");
}

#[test]
fn data_and_log_may_be_many_times_the_memory() {
    many_times_the_memory_is_written(&SMALL, Duration::from_secs(60));
}

#[test]
#[ignore = "ten minutes"]
fn ten_minutes_of_writes_with_the_smallest_maxmemory() {
    many_times_the_memory_is_written(&SMALLEST, Duration::from_secs(600));
}

#[test]
#[ignore = "ten minutes, and ten thousand connections"]
fn ten_minutes_of_writes_by_ten_thousand_clients() {
    many_times_the_memory_is_written(&MANY, Duration::from_secs(600));
}

#[test]
fn large_values_of_many_clients_wait_for_each_other() {
    const VALUE_BYTES: usize = 1 << 20;
    let _alone = alone();
    let stores = start("96mb", &[]);
    let address = stores.all[0].client;
    std::thread::scope(|scope| {
        for client in 0..100 {
            // Together the values are much larger than the budget of the clients, and parts of all
            // values arrive before any value is complete.
            scope.spawn(move || {
                let mut bytes = Vec::new();
                set(&mut bytes, &format!("key:{client}"), &vec![b'v'; VALUE_BYTES]);
                let mut stream = Crowd::open(address, 1).connections.remove(0);
                for part in bytes.chunks(VALUE_BYTES / 4) {
                    stream.write_all(part).expect("it reads in the end");
                    std::thread::sleep(Duration::from_millis(100));
                }
                let mut reply = [0; 5];
                stream.read_exact(&mut reply).expect("a reply");
                assert_eq!(&reply, b"+OK\r\n");
            });
        }
    });
    assert_bounded(&stores, 96 * MIB, "large values");
}

#[test]
fn who_asks_for_much_and_does_not_read_is_ended_once_others_wait() {
    const VALUE_BYTES: usize = 1 << 20;
    let _alone = alone();
    let stores = start("96mb", &[("--request-timeout", "2000")]);
    let address = stores.all[0].client;
    let mut wire = Wire::open(address);
    wire.ok(&["SET", "large", &"v".repeat(VALUE_BYTES)]);
    // Ask for two gibibytes of replies.
    let mut deaf = Crowd::open(address, 50).connections;
    for stream in &mut deaf {
        stream.write_all(&request(&["GET", "large"]).repeat(40)).expect("a small request");
    }
    // Other clients are served meanwhile.
    for round in 0..20 {
        wire.ok(&["SET", "small", &round.to_string()]);
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut crowd = Crowd::open(address, 4);
    crowd.set_and_get(4, VALUE_BYTES, 1);
    eventually("the clients that do not read are disconnected", || {
        let info = wire.text(&["INFO", "memory"]).expect("a text");
        let used = info.lines().find_map(|line| line.strip_prefix("mem_clients_normal:")).expect("a field");
        (used.parse::<u64>().expect("a number") < 12 * MIB).then_some(())
    });
    assert_bounded(&stores, 96 * MIB, "replies that no client reads");
}

#[test]
fn stores_that_were_away_or_are_slow_bring_nobody_out_of_bounds() {
    let _alone = alone();
    let flags = [("--maxmemory", "128mb"), ("--probe", "no"), ("--raft-log-size", "1gb")];
    let plan = Plan { stores: 3, regions: 24, cluster_enabled: true, flags: &flags, ..Plan::default() };
    let mut stores = Stores::start(&plan);
    let address = |stores: &Stores, store: usize| stores.all[store].forward.expect("a forward port");
    write_small(address(&stores, 0), 20, 20 * MIB, 200_000, Duration::from_secs(60), true);
    stores.all[2].signal("-STOP");
    write_small(address(&stores, 0), 40, 200 * MIB, 200_000, Duration::from_secs(120), true);
    stores.all[2].signal("-CONT");
    // The store catches up with all regions at once while they are written to.
    write_small(address(&stores, 1), 40, 60 * MIB, 200_000, Duration::from_secs(120), true);
    stores.all[1].kill();
    stores.all[1].restart();
    write_small(address(&stores, 2), 20, 20 * MIB, 200_000, Duration::from_secs(120), true);
    assert_bounded(&stores, 128 * MIB, "catching up");
}

/// Allocated memory that `CONFIG SET maxmemory` takes back is given back, and the limit holds from
/// then on. No write is lost, before and after more is given again.
#[test]
fn maxmemory_is_changed_while_the_store_runs() {
    let _alone = alone();
    let mut stores = start("512mb", &[("--rocksdb", "row_cache_bytes=1gb")]);
    let address = stores.all[0].client;
    let mut wire = Wire::open(address);
    let write = || write_small(address, 40, 300 * MIB, 300_000, Duration::from_secs(60), false);
    write();
    let keys = wire.int(&["DBSIZE"]);
    let used = |wire: &mut Wire| {
        let info = wire.text(&["INFO", "memory"]).expect("a text");
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a field");
        used.parse::<u64>().expect("a number")
    };
    assert!(used(&mut wire) > 128 * MIB, "the rest proves nothing");
    let refused = wire.call(&["CONFIG", "SET", "timeout", "7", "maxmemory", "63mb"]);
    assert!(format!("{refused:?}").contains("maxmemory is at least 64mb"), "{refused:?}");
    assert!(wire.text(&["INFO", "memory"]).expect("a text").contains("\r\nmaxmemory:536870912\r\n"));
    wire.ok(&["CONFIG", "SET", "maxmemory", "96mb"]);
    let info = wire.text(&["INFO", "memory"]).expect("a text");
    assert!(info.contains(&format!("\r\nmaxmemory:{}\r\n", 96 * MIB)), "{info}");
    eventually("memory is given back", || (used(&mut wire) <= 96 * MIB).then_some(()));
    write();
    assert!(used(&mut wire) <= 96 * MIB, "the limit holds");
    wire.ok(&["CONFIG", "SET", "maxmemory", "256mb"]);
    write();
    assert!(used(&mut wire) <= 256 * MIB, "the limit holds");
    assert!(wire.int(&["DBSIZE"]) >= keys);
    let keys = wire.int(&["DBSIZE"]);
    stores.all[0].kill();
    stores.all[0].restart();
    assert_eq!(Wire::open(stores.all[0].client).int(&["DBSIZE"]), keys);
}

#[test]
fn a_maxmemory_that_leaves_nothing_is_refused() {
    let mut command = stores::steelyard();
    let dir = tempfile::tempdir().expect("a directory");
    command.args(["serve", "--maxmemory", "63mb", "--dir"]).arg(dir.path());
    let output = client::process::output(command.stderr(std::process::Stdio::piped())).expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("maxmemory is at least 64mb"), "{said}");
}
