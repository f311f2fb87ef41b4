//! Planned stops of stores by SIGTERM or `SHUTDOWN`, with clients that behave like Redis clients.

mod stores;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use client::admin::RegionRow;
use resp::{Reply, ReplyDecoder};
use stores::wire::Wire;
use stores::{alone, eventually, say, Plan, Stores};
use types::{slot_of_key, Slot};

const REGIONS: u16 = 9;
const STORES: u16 = 3;

/// Number of clients that follow `MOVED`. Each sends one request per period. Together they send 800
/// per second.
const CLUSTER_CLIENTS: usize = 16;
const PERIOD: Duration = Duration::from_millis(20);
/// Number of clients of forward ports, which know nothing of clusters. Each sends its next request
/// as soon as it has an answer.
const PLAIN_CLIENTS: usize = 3;
/// Maximum time until a reply. A later one is a failure.
const HANG: Duration = Duration::from_secs(15);
/// Divisor of the number of requests for those that may reach a connection while a store closes it.
const LATE_PART: u64 = 2_000;
/// The pause of a client that finds no store to connect to.
const PAUSE: Duration = Duration::from_millis(5);

fn three() -> Stores {
    Stores::start(&Plan { stores: STORES, regions: REGIONS, cluster_enabled: true, ..Plan::default() })
}

/// Waits until no voter of any region is behind its leader, according to every store.
fn await_no_lag(stores: &Stores) {
    let is_even = |store: &stores::Store| {
        let rows = store.regions()?;
        let holds =
            |row: &RegionRow| row.peers.len() == 3 && row.peers.iter().all(|peer| peer.lag == Some(0));
        (rows.len() == usize::from(REGIONS) + 1 && rows.iter().all(holds)).then_some(())
    };
    eventually("every peer holds what its leader holds", || {
        stores.all.iter().map(is_even).collect::<Option<()>>()
    });
}

/// The failures that clients saw.
type Failures = Arc<Mutex<Vec<String>>>;

/// A client that behaves like Redis clients. It keeps connections open. Before sending it checks
/// whether a connection was closed, and then opens another. It follows `MOVED`.
///
/// A store may close a connection between the check and the request. Such a request is not
/// executed, so the client repeats it, and its counters would show an execution. This must be rare.
/// A connection that ends in another way with an outstanding request counts as a failure.
struct Client {
    name: String,
    seeds: Vec<SocketAddr>,
    routes: BTreeMap<Slot, SocketAddr>,
    connections: BTreeMap<SocketAddr, TcpStream>,
    failures: Failures,
    /// Number of requests that found their connection closed, of all clients.
    late: Arc<AtomicU64>,
    turn: usize,
}

/// The reason why a request has no reply.
enum Failed {
    /// The request was not sent.
    NoConnection,
    /// The store closed the connection at the same moment.
    Late,
    Outstanding(String),
}

impl Client {
    fn fail(&self, what: String) {
        self.failures.lock().unwrap().push(format!("{}: {what}", self.name));
    }

    /// Returns the reply to a command for one key, following redirections.
    fn ask(&mut self, words: &[&str]) -> Option<Reply> {
        let slot = slot_of_key(words[1].as_bytes());
        loop {
            let seed = self.seeds[self.turn % self.seeds.len()];
            let at = self.routes.get(&slot).copied().unwrap_or(seed);
            match self.ask_at(at, words) {
                Ok(Reply::Error(text)) if text.starts_with("MOVED ") => {
                    let to = text.rsplit(' ').next().and_then(|address| address.parse().ok());
                    self.routes.insert(slot, to.expect("MOVED names an address"));
                }
                Ok(Reply::Error(text)) => {
                    self.fail(format!("{words:?} at {at}: {text}"));
                    return None;
                }
                Ok(reply) => return Some(reply),
                Err(Failed::NoConnection) => {
                    // Ask another store for the current leader.
                    self.routes.retain(|_, leader| *leader != at);
                    self.turn += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(Failed::Late) => drop(self.late.fetch_add(1, Ordering::Relaxed)),
                Err(Failed::Outstanding(why)) => {
                    self.fail(format!("{words:?} at {at} got no reply: {why}"));
                    return None;
                }
            }
        }
    }

    fn ask_at(&mut self, at: SocketAddr, words: &[&str]) -> Result<Reply, Failed> {
        let kept = self.connections.remove(&at).filter(is_open);
        let mut stream = match kept {
            Some(stream) => stream,
            None => connect(at).map_err(|_| Failed::NoConnection)?,
        };
        let reply = converse(&mut stream, words).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Failed::Late,
            _ => Failed::Outstanding(error.to_string()),
        })?;
        self.connections.insert(at, stream);
        Ok(reply)
    }
}

/// Returns true if nothing shows that the other end has closed the connection. go-redis and
/// redis-py check the same before they send.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let is_open = stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).expect("a socket");
    is_open
}

fn connect(at: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, HANG)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANG))?;
    Ok(stream)
}

fn send(stream: &mut TcpStream, words: &[&str]) -> std::io::Result<()> {
    let mut request = BytesMut::new();
    resp::encode_request(words, &mut request);
    stream.write_all(&request)
}

fn converse(stream: &mut TcpStream, words: &[&str]) -> std::io::Result<Reply> {
    send(stream, words)?;
    receive(stream)
}

fn receive(stream: &mut TcpStream) -> std::io::Result<Reply> {
    let (mut decoder, mut input, mut part) = (ReplyDecoder::default(), BytesMut::new(), vec![0; 64 << 10]);
    loop {
        match decoder.decode(&mut input) {
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) => {}
            Err(error) => return Err(std::io::Error::other(error.to_string())),
        }
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            bytes => input.extend_from_slice(&part[..bytes]),
        }
    }
}

/// Clients that increment counters. Each has its own counters and knows their values.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failures: Failures,
    late: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(stores: &Stores) -> Load {
        let (stop, answered, failures) = (Arc::default(), Arc::default(), Failures::default());
        let mut load = Load { stop, answered, failures, late: Arc::default(), clients: Vec::new() };
        let cluster: Vec<SocketAddr> = stores.clients();
        let forward: Vec<SocketAddr> = stores.all.iter().filter_map(|store| store.forward).collect();
        for number in 0..CLUSTER_CLIENTS {
            load.add(format!("cluster client {number}"), &cluster, number, PERIOD);
        }
        for number in 0..PLAIN_CLIENTS {
            load.add(format!("plain client {number}"), &forward, number, Duration::ZERO);
        }
        load
    }

    fn add(&mut self, name: String, seeds: &[SocketAddr], turn: usize, period: Duration) {
        let mut client = Client {
            name,
            seeds: seeds.to_vec(),
            routes: BTreeMap::new(),
            connections: BTreeMap::new(),
            failures: self.failures.clone(),
            late: self.late.clone(),
            turn,
        };
        let (stop, answered) = (self.stop.clone(), self.answered.clone());
        self.clients.push(std::thread::spawn(move || {
            let mut counted = BTreeMap::new();
            let mut due = Instant::now();
            for number in 0u64.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // The counters are in many regions. Each is written and then read.
                let key = format!("{}:{}", client.name, number / 2 % 32);
                let count: &mut i64 = counted.entry(key.clone()).or_default();
                let (command, expected) = if number % 2 == 0 {
                    *count += 1;
                    ("INCR", Reply::Int(*count))
                } else {
                    ("GET", Reply::bulk(count.to_string()))
                };
                match client.ask(&[command, &key]) {
                    Some(reply) if reply == expected => drop(answered.fetch_add(1, Ordering::Relaxed)),
                    Some(reply) => client.fail(format!("{command} {key} is {reply:?}, not {expected:?}")),
                    None => return,
                }
                due = (due + period).max(Instant::now());
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }));
    }

    fn await_more(&self, more: u64) {
        let goal = self.answered.load(Ordering::Relaxed) + more;
        eventually("clients are served", || {
            let has_failed = !self.failures.lock().unwrap().is_empty();
            (has_failed || self.answered.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    /// Ends the clients. Returns the number of requests with the right answer, and the failures.
    ///
    /// # Panics
    /// If many requests were repeated.
    fn finish(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().expect("a client runs to its end"));
        let failures = std::mem::take(&mut *self.failures.lock().unwrap());
        let (answered, late) = (self.answered.load(Ordering::Relaxed), self.late.load(Ordering::Relaxed));
        assert!(
            late <= 1 + answered / LATE_PART,
            "{late} of {answered} requests found their connection closed"
        );
        (answered, failures)
    }
}

#[test]
fn a_rolling_restart_fails_no_request_and_leaves_none_unknown() {
    let _alone = alone();
    let rounds: usize =
        std::env::var("STEELYARD_ROUNDS").map_or(2, |text| text.parse().expect("a number of rounds"));
    let mut stores = three();
    await_no_lag(&stores);
    let load = Load::start(&stores);
    for round in 0..rounds {
        for store in 0..stores.all.len() {
            load.await_more(500);
            let began = Instant::now();
            let status = stores.all[store].terminate();
            let took = began.elapsed().as_secs_f64();
            assert_eq!(status.code(), Some(0), "{status}");
            let log = stores.all[store].log_text();
            say(&format!("round {round}: store {store} stopped within {took:.2} s"));
            for line in log.lines().skip_while(|line| !line.contains("SIGTERM")) {
                assert!(!line.contains("WARN") && !line.contains("ERROR"), "{line}");
            }
            stores.all[store].restart();
            await_no_lag(&stores);
        }
    }
    let (answered, failures) = load.finish();
    let first = &failures[..failures.len().min(10)];
    assert!(failures.is_empty(), "{} of {answered} requests failed: {first:#?}", failures.len());
    say(&format!("{rounds} rolling restarts: {answered} requests answered, 0 failed, 0 unknown"));
    for store in &stores.all {
        let text = store.host().ctl(&["status"]).expect("the store reports its status");
        let counters = text["counters"].as_array().expect("counters").clone();
        let unknown = counters.iter().find(|counter| counter[0] == "unknown_outcomes");
        assert_eq!(unknown.map(|counter| counter[1].clone()), Some(0.into()), "store {}", store.id);
    }
}

/// Size of a reply in bytes. It exceeds the sockets' buffers of both ends, so the reply waits for
/// its client.
const LARGE: usize = 24 << 20;

/// Writes a large value and asks for it on a connection that does not read the reply. Returns the
/// leader of the value's region, and the connection.
fn ask_for_large(stores: &Stores) -> (usize, TcpStream) {
    let leader = eventually("every region has a leader", || {
        let rows = stores.all[0].regions()?;
        let slot = slot_of_key(b"large");
        let has = |row: &&RegionRow| {
            row.first_slot.is_some_and(|first| first <= slot)
                && row.last_slot.is_some_and(|last| slot <= last)
        };
        Some(rows.iter().find(has)?.leader? as usize)
    });
    let mut stream = connect(stores.all[leader].client).expect("a connection");
    let value = "v".repeat(LARGE);
    assert_eq!(converse(&mut stream, &["SET", "large", &value]).expect("a reply"), Reply::OK);
    send(&mut stream, &["GET", "large"]).expect("it is sent");
    (leader, stream)
}

fn state_of(stores: &Stores, store: usize, asked: usize) -> Option<String> {
    let rows = stores.all[asked].host().ctl(&["stores"]).ok()?;
    let row = rows.as_array()?.iter().find(|row| row["id"] == store as u64)?.clone();
    row["state"].as_str().map(str::to_owned)
}

/// Waits until a store that was told to stop is reported as stopping, leads nothing and accepts no
/// connections.
fn await_stopping(stores: &Stores, leader: usize, asked: usize) {
    eventually("the store is reported as stopping", || {
        (state_of(stores, leader, asked).as_deref() == Some("stopping")).then_some(())
    });
    eventually("others lead", || {
        let leaders = stores.leaders(asked)?;
        leaders.iter().all(|of| *of != leader as u64).then_some(())
    });
    eventually("its port closes", || TcpStream::connect(stores.all[leader].client).is_err().then_some(()));
    assert!(!stores.all[leader].answers(), "a stopping store must not report itself healthy");
}

#[test]
fn a_stopping_store_is_shown_as_such_and_waits_for_a_reply_to_be_taken() {
    let _alone = alone();
    let mut stores = three();
    await_no_lag(&stores);
    let (leader, mut stream) = ask_for_large(&stores);
    stores.all[leader].signal("-TERM");
    await_stopping(&stores, leader, (leader + 1) % 3);
    assert!(stores.all[leader].ended().is_none(), "a client waits for its reply");
    assert_eq!(receive(&mut stream).expect("the reply"), Reply::bulk("v".repeat(LARGE)));
    assert!(!is_open(&stream) || stream.read(&mut [0]).is_ok_and(|bytes| bytes == 0), "then the end");
    drop(stream);
    assert_eq!(stores.all[leader].await_end().code(), Some(0));
}

#[test]
fn a_second_signal_ends_the_waiting() {
    let _alone = alone();
    let mut stores = three();
    await_no_lag(&stores);
    let (leader, stream) = ask_for_large(&stores);
    stores.all[leader].signal("-TERM");
    await_stopping(&stores, leader, (leader + 1) % 3);
    stores.all[leader].signal("-INT");
    assert_eq!(stores.all[leader].await_end().code(), Some(0));
    let log = stores.all[leader].log_text();
    assert!(log.contains("before these were answered"), "{log}");
    drop(stream);
}

#[test]
fn shutdown_stops_the_store_that_is_asked_and_gives_no_reply() {
    let _alone = alone();
    let mut stores = three();
    await_no_lag(&stores);
    let mut wire = Wire::open(stores.all[0].client);
    assert_eq!(wire.error(&["SHUTDOWN", "ABORT"]), "ERR No shutdown in progress.");
    assert_eq!(wire.error(&["SHUTDOWN", "SOON"]), "ERR syntax error");
    for (store, words) in [(0, &["SHUTDOWN"][..]), (1, &["SHUTDOWN", "NOSAVE", "NOW"])] {
        let mut stream = connect(stores.all[store].client).expect("a connection");
        let end = converse(&mut stream, words).expect_err("no reply");
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof, "{end}");
        assert_eq!(stores.all[store].await_end().code(), Some(0));
        stores.all[store].restart();
        await_no_lag(&stores);
    }
}

#[test]
fn a_lone_store_answers_what_is_outstanding_before_it_stops() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan::default());
    let failures = Failures::default();
    let answered = Arc::<AtomicU64>::default();
    let client = |number: usize| {
        let (failures, answered) = (failures.clone(), answered.clone());
        let at = stores.all[0].client;
        std::thread::spawn(move || {
            let mut stream = connect(at).expect("a connection");
            let key = format!("key:{number}");
            for count in 1.. {
                if !is_open(&stream) {
                    return count - 1;
                }
                match converse(&mut stream, &["INCR", &key]) {
                    Ok(Reply::Int(n)) if n == count => drop(answered.fetch_add(1, Ordering::Relaxed)),
                    other => {
                        failures.lock().unwrap().push(format!("client {number}: {other:?}, not {count}"))
                    }
                }
            }
            unreachable!("the store stops")
        })
    };
    let clients: Vec<JoinHandle<i64>> = (0..8).map(client).collect();
    eventually("clients are served", || (answered.load(Ordering::Relaxed) > 500).then_some(()));
    assert_eq!(stores.all[0].terminate().code(), Some(0));
    let counts: Vec<i64> = clients.into_iter().map(|client| client.join().expect("it ends")).collect();
    assert!(failures.lock().unwrap().is_empty(), "{:?}", failures.lock().unwrap());
    stores.all[0].restart();
    let mut wire = Wire::open(stores.all[0].client);
    for (number, count) in counts.iter().enumerate() {
        assert_eq!(wire.text(&["GET", &format!("key:{number}")]), Some(count.to_string()), "once each");
    }
}
