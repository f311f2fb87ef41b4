//! Reads of followers, within the bound that `READONLY MAXLAG` sets.

mod stores;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resp::Reply;
use stores::wire::Wire;
use stores::{alone, eventually, say, Plan, Stores};

/// The only user region. Without cluster mode it has all keys.
const REGION: u64 = 1;

fn three() -> Stores {
    Stores::start(&Plan { stores: 3, ..Plan::default() })
}

fn followers(stores: &Stores, leader: usize) -> Vec<usize> {
    (0..stores.all.len()).filter(|store| *store != leader).collect()
}

/// Writes ascending numbers and records the time of each acknowledgement.
struct Writer {
    ended: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<(Instant, u64)>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    fn start(address: SocketAddr) -> Writer {
        let (ended, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (end, told) = (ended.clone(), acknowledged.clone());
        let thread = std::thread::spawn(move || {
            let mut wire = Wire::open(address);
            for number in 1u64.. {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                wire.ok(&["SET", "number", &number.to_string()]);
                told.lock().unwrap().push((Instant::now(), number));
            }
        });
        Writer { ended, acknowledged, thread: Some(thread) }
    }

    /// Returns the last number that was acknowledged before a moment.
    fn as_of(&self, moment: Instant) -> u64 {
        let acknowledged = self.acknowledged.lock().unwrap();
        acknowledged[..acknowledged.partition_point(|(at, _)| *at < moment)].last().map_or(0, |(_, n)| *n)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()), "the writer failed");
    }
}

fn number(reply: &Reply) -> u64 {
    match reply {
        Reply::Nil => 0,
        Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_follower_within_its_bound_shows_what_was_acknowledged_before_it() {
    let _alone = alone();
    let stores = three();
    let leader = stores.leader(REGION);
    let follower = &stores.all[followers(&stores, leader)[0]];
    let writer = Writer::start(stores.all[leader].client);
    for (max_lag_ms, reads) in [("0", 300), ("50", 2000), ("1000", 2000)] {
        let max_lag = Duration::from_millis(max_lag_ms.parse().unwrap());
        let mut wire = Wire::open(follower.client);
        wire.ok(&["READONLY", "MAXLAG", max_lag_ms]);
        let (asked, began) = (follower.count("weak_read_questions"), Instant::now());
        for _ in 0..reads {
            let begun = Instant::now();
            let read = number(&wire.call(&["GET", "number"]));
            if let Some(moment) = begun.checked_sub(max_lag) {
                let floor = writer.as_of(moment);
                assert!(read >= floor, "MAXLAG {max_lag_ms}: {read} was read, {floor} was acknowledged");
            }
        }
        let (questions, ms) =
            (follower.count("weak_read_questions") - asked, began.elapsed().as_millis() as u64);
        say(&format!("MAXLAG {max_lag_ms}: {reads} reads in {ms} ms, {questions} questions to the leader"));
        // A question is sent when half of the bound has passed, and again if its answer is late.
        let most = match max_lag.as_millis() as u64 {
            0 => reads,
            lag => 4 * ms / lag + 4,
        };
        assert!(questions <= most, "{questions} questions, at most {most} were expected");
    }
    assert_eq!(follower.count("weak_reads_refused"), 0);
}

#[test]
fn a_follower_that_hears_no_leader_refuses_reads_beyond_the_bound() {
    let _alone = alone();
    let stores = three();
    let leader = stores.leader(REGION);
    let [follower, other] = followers(&stores, leader)[..] else { panic!("three stores") };
    Wire::open(stores.all[leader].client).ok(&["SET", "key", "value"]);
    let address = stores.all[follower].client;
    let open = |words: &[&str]| {
        let mut wire = Wire::open(address);
        wire.ok(words);
        wire
    };
    let mut bounded = open(&["READONLY", "MAXLAG", "200"]);
    let mut by_entries = open(&["READONLY", "MAXLAG", "200", "MAXENTRIES", "10"]);
    let mut unbounded = open(&["READONLY"]);
    for wire in [&mut bounded, &mut by_entries] {
        assert_eq!(wire.text(&["GET", "key"]).as_deref(), Some("value"));
    }
    eventually("the write reaches the follower", || unbounded.text(&["GET", "key"]));

    stores.all[leader].signal("-STOP");
    stores.all[other].signal("-STOP");
    // The last answer may serve for a while.
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    let text = "MASTERDOWN This store's copy may be more than 200 ms behind its leader, and READONLY \
                allows this connection no older reads";
    assert_eq!(bounded.error(&["GET", "key"]), text);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(200), "refused after {waited:?}");
    say(&format!("refused after {} ms", waited.as_millis()));
    assert!(by_entries
        .error(&["GET", "key"])
        .starts_with("MASTERDOWN This store's copy may be more than 200 ms or 10 entries"));
    assert_eq!(unbounded.text(&["GET", "key"]).as_deref(), Some("value"));
    // The connection may lift its bound.
    bounded.ok(&["READONLY", "MAXLAG", "-1"]);
    assert_eq!(bounded.text(&["GET", "key"]).as_deref(), Some("value"));
    bounded.ok(&["READONLY", "MAXLAG", "200"]);

    stores.all[leader].signal("-CONT");
    stores.all[other].signal("-CONT");
    eventually("bounded reads are answered again", || match bounded.call(&["GET", "key"]) {
        Reply::Bulk(value) => (value == "value").then_some(()),
        Reply::Error(text) if text.starts_with("MASTERDOWN ") => None,
        other => panic!("{other:?}"),
    });
    let refused = stores.all[follower].count("weak_reads_refused");
    assert!(refused >= 2, "{refused}");
}

#[test]
fn the_setting_bounds_connections_that_name_no_bound() {
    let _alone = alone();
    let stores =
        Stores::start(&Plan { stores: 3, flags: &[("--weak-read-max-lag", "300")], ..Plan::default() });
    let leader = stores.leader(REGION);
    let follower = &stores.all[followers(&stores, leader)[0]];
    let mut wire = Wire::open(follower.client);
    assert_eq!(
        wire.call(&["CONFIG", "GET", "weak-read-max-lag"]),
        Reply::Array(vec![Reply::bulk("weak-read-max-lag"), Reply::bulk("300"),])
    );
    let questions = || follower.count("weak_read_questions");
    let before = questions();
    wire.ok(&["READONLY"]);
    wire.call(&["GET", "key"]);
    assert_eq!(questions(), before + 1);
    wire.ok(&["CONFIG", "SET", "weak-read-max-lag", "-1"]);
    wire.ok(&["READONLY"]);
    std::thread::sleep(Duration::from_millis(400));
    wire.call(&["GET", "key"]);
    assert_eq!(questions(), before + 1, "reads of any age need no question");
    for (words, error) in [
        (&["READONLY", "MAXLAG"][..], "ERR syntax error"),
        (&["READONLY", "MAXLAG", "-2"], "ERR MAXLAG must be between -1 and 4294967295 inclusive"),
        (&["READONLY", "MAXLAG", "soon"], "ERR value is not an integer or out of range"),
    ] {
        assert_eq!(wire.error(words), error);
    }
    let error = wire.error(&["CONFIG", "SET", "weak-read-max-lag", "-2"]);
    assert!(error.ends_with("argument must be between -1 and 4294967295 inclusive"), "{error}");
}
