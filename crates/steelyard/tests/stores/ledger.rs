//! A load that keeps a ledger, and the claims that must hold whatever is killed during the load.
//!
//! Writers set keys that are written once. Many clients increment and read counters. Each operation
//! is done, not done or unknown (see `client::cluster_client`). Afterwards:
//!
//! - A key with an acknowledged write holds its value, and a key with a refused write does not
//!   exist.
//! - The history of each counter is linearizable. Every operation sees all operations that ended
//!   before it began, and no two acknowledged increments return the same number.
//! - A counter is at least the number of its acknowledged increments, and at most that number plus
//!   the unknown ones. So nothing was executed twice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::cluster_client::{Call, ClusterClient, Outcome, Patience};
use resp::Reply;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

#[derive(Clone, Copy)]
pub struct Shape {
    pub writers: usize,
    pub incrementers: usize,
    pub readers: usize,
    pub counters: usize,
    /// Minimum length in bytes of the values of written keys.
    pub value_bytes: usize,
}

impl Shape {
    pub const MIXED: Shape = Shape { writers: 12, incrementers: 6, readers: 6, counters: 3, value_bytes: 0 };
    pub const WRITES: Shape = Shape { writers: 32, incrementers: 0, readers: 0, counters: 0, value_bytes: 0 };
}

/// An operation on a counter, as its client saw it.
#[derive(Clone, Copy, Debug)]
struct Operation {
    began: Instant,
    ended: Instant,
    /// The number that the operation returned.
    number: i64,
    increment: bool,
}

#[derive(Default)]
struct Page {
    acknowledged: Vec<String>,
    not_done: Vec<String>,
    unknown: u64,
    /// The operations, by counter.
    operations: BTreeMap<String, Vec<Operation>>,
    unknown_increments: BTreeMap<String, u64>,
    /// Error replies. No command of this load may get one.
    errors: Vec<String>,
}

/// A load that runs until its ledger is requested.
pub struct Load {
    runtime: Runtime,
    clients: Vec<SocketAddr>,
    value_bytes: usize,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Page>>,
    probes: u64,
}

pub struct Ledger {
    runtime: Runtime,
    clients: Vec<SocketAddr>,
    value_bytes: usize,
    page: Page,
}

/// The waiting times of the clients. They are short, so that a stopped store does not delay clients
/// for long.
const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(1),
    reply: Duration::from_secs(3),
    whole: Duration::from_secs(8),
};

impl Load {
    /// Starts the tasks, each of which prefers another store. `name` keeps the keys of several
    /// loads apart.
    pub fn start(clients: &[SocketAddr], name: &str, shape: Shape) -> Load {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let mut load = Load {
            runtime: runtime.expect("a runtime"),
            clients: clients.to_vec(),
            value_bytes: shape.value_bytes,
            stop: Arc::default(),
            acknowledged: Arc::default(),
            tasks: Vec::new(),
            probes: 0,
        };
        for writer in 0..shape.writers {
            let (client, stop, count) = load.tools(writer);
            let name = format!("{name}:w{writer}");
            load.tasks.push(load.runtime.spawn(write(client, name, shape.value_bytes, stop, count)));
        }
        for number in 0..shape.incrementers {
            let (client, stop, count) = load.tools(number);
            let counter = format!("{name}:counter:{}", number % shape.counters);
            load.tasks.push(load.runtime.spawn(increment(client, counter, stop, count)));
        }
        for number in 0..shape.readers {
            let stop = load.stop.clone();
            // Each reader uses one store, which may not know yet that it has lost its leadership.
            let client = ClusterClient::new(vec![clients[number % clients.len()]], PATIENCE);
            let counter = format!("{name}:counter:{}", number % shape.counters);
            load.tasks.push(load.runtime.spawn(read(client, counter, stop)));
        }
        load
    }

    fn tools(&self, number: usize) -> (ClusterClient, Arc<AtomicBool>, Arc<AtomicU64>) {
        let mut seeds = self.clients.clone();
        let first = number % seeds.len();
        seeds.rotate_left(first);
        (ClusterClient::new(seeds, PATIENCE), self.stop.clone(), self.acknowledged.clone())
    }

    /// Returns the number of acknowledged operations so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits for `more` acknowledgements. Fails if that takes too long.
    pub fn await_more(&self, more: u64) {
        let goal = self.acknowledged() + more;
        super::eventually("writes go on", || (self.acknowledged() >= goal).then_some(()));
    }

    /// Returns the time until a new client can write.
    pub fn time_to_serve(&mut self, patience: Duration) -> Duration {
        self.probes += 1;
        let key = format!("probe:{}", self.probes);
        self.runtime.block_on(time_to_serve(&self.clients, &key, patience))
    }

    pub fn finish(self) -> Ledger {
        self.stop.store(true, Ordering::Relaxed);
        let mut page = Page::default();
        for task in self.tasks {
            page.add(self.runtime.block_on(task).expect("the load runs to its end"));
        }
        Ledger { runtime: self.runtime, clients: self.clients, value_bytes: self.value_bytes, page }
    }
}

impl Page {
    fn add(&mut self, other: Page) {
        self.acknowledged.extend(other.acknowledged);
        self.not_done.extend(other.not_done);
        self.unknown += other.unknown;
        self.errors.extend(other.errors);
        for (counter, operations) in other.operations {
            self.operations.entry(counter).or_default().extend(operations);
        }
        for (counter, unknown) in other.unknown_increments {
            *self.unknown_increments.entry(counter).or_default() += unknown;
        }
    }
}

/// Returns the time until a new client can write a key. Fails if that takes longer than `patience`.
pub async fn time_to_serve(clients: &[SocketAddr], key: &str, patience: Duration) -> Duration {
    let began = Instant::now();
    while began.elapsed() < patience {
        let client =
            ClusterClient::new(clients.to_vec(), Patience { reply: Duration::from_secs(1), ..PATIENCE });
        if client.call(&call(&["SET", key, "x"], false)).await.acknowledged() {
            return began.elapsed();
        }
    }
    panic!("no write was served for {} s", patience.as_secs());
}

fn call(words: &[&str], read: bool) -> Call {
    Call::new(words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect(), read)
}

/// Returns the value of a key. No other key has the same value.
fn value_of(key: &str, bytes: usize) -> String {
    let mut value = key.to_owned();
    while value.len() < bytes {
        value.push('/');
        value.push_str(key);
    }
    value
}

async fn write(
    client: ClusterClient,
    name: String,
    value_bytes: usize,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
) -> Page {
    let mut page = Page::default();
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let key = format!("{name}:{number}");
        number += 1;
        match client.call(&call(&["SET", &key, &value_of(&key, value_bytes)], false)).await {
            Outcome::Done(Reply::Error(text)) => page.errors.push(text.into_owned()),
            Outcome::Done(_) => {
                page.acknowledged.push(key);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::NotDone(_) => page.not_done.push(key),
            Outcome::Unknown(_) => page.unknown += 1,
        }
    }
    page
}

async fn increment(client: ClusterClient, key: String, stop: Arc<AtomicBool>, count: Arc<AtomicU64>) -> Page {
    let mut page = Page::default();
    let operations = page.operations.entry(key.clone()).or_default();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        match client.call(&call(&["INCR", &key], false)).await {
            Outcome::Done(Reply::Int(number)) => {
                operations.push(Operation { began, ended: Instant::now(), number, increment: true });
                count.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Done(other) => page.errors.push(format!("{other:?}")),
            Outcome::NotDone(_) => {}
            Outcome::Unknown(_) => *page.unknown_increments.entry(key.clone()).or_default() += 1,
        }
    }
    page
}

async fn read(client: ClusterClient, key: String, stop: Arc<AtomicBool>) -> Page {
    let mut page = Page::default();
    let operations = page.operations.entry(key.clone()).or_default();
    while !stop.load(Ordering::Relaxed) {
        // The client may repeat a read. The time counts from the first attempt, which weakens the
        // claim.
        let began = Instant::now();
        let number = match client.call(&call(&["GET", &key], true)).await {
            Outcome::Done(Reply::Bulk(text)) => std::str::from_utf8(&text).ok().and_then(|t| t.parse().ok()),
            Outcome::Done(Reply::Nil) => Some(0),
            Outcome::Done(other) => {
                page.errors.push(format!("{other:?}"));
                continue;
            }
            Outcome::NotDone(_) | Outcome::Unknown(_) => continue,
        };
        match number {
            Some(number) => {
                operations.push(Operation { began, ended: Instant::now(), number, increment: false });
            }
            None => page.errors.push("a counter that is no number".into()),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    page
}

impl Ledger {
    /// Reads all data back, checks it, and prints the sums.
    pub fn check(&self, name: &str) {
        let page = &self.page;
        assert!(page.errors.is_empty(), "errors: {:?}", &page.errors[..page.errors.len().min(5)]);
        let client = ClusterClient::new(self.clients.clone(), Patience::default());
        let mut lost = Vec::new();
        for keys in page.acknowledged.chunks(512) {
            for (key, found) in keys.iter().zip(self.get_all(&client, keys)) {
                let expected = value_of(key, self.value_bytes);
                if found.as_deref() != Some(expected.as_bytes()) {
                    let start = found.map(|value| value.slice(..value.len().min(64)));
                    lost.push(format!("{key} -> {start:?}"));
                }
            }
        }
        let (first, sum) = (&lost[..lost.len().min(5)], page.acknowledged.len());
        assert!(lost.is_empty(), "{} of {sum} acknowledged writes are lost: {first:?}", lost.len());
        for keys in page.not_done.chunks(512) {
            for (key, found) in keys.iter().zip(self.get_all(&client, keys)) {
                assert_eq!(found, None, "{key} was refused and yet took effect");
            }
        }
        let mut increments = 0;
        for (counter, operations) in &page.operations {
            let last = self.get_all(&client, std::slice::from_ref(counter)).pop().flatten();
            let last = last.map_or(0, |text| String::from_utf8_lossy(&text).parse().expect("a number"));
            let unknown = page.unknown_increments.get(counter).copied().unwrap_or(0);
            increments += check_counter(counter, operations, unknown, last);
        }
        let unknown = page.unknown + page.unknown_increments.values().sum::<u64>();
        let refused = page.not_done.len();
        super::say(&format!(
            "{name}: {sum} acknowledged writes and {increments} increments found, {unknown} unknown, {refused} refused"
        ));
        assert!(sum > 0, "the load did nothing");
    }

    /// Returns the number of operations that were not done, and of those whose outcome is unknown.
    pub fn failures(&self) -> (u64, u64) {
        let unknown = self.page.unknown_increments.values().sum::<u64>() + self.page.unknown;
        (self.page.not_done.len() as u64, unknown)
    }

    pub fn acknowledged(&self) -> &[String] {
        &self.page.acknowledged
    }

    fn get_all(&self, client: &ClusterClient, keys: &[String]) -> Vec<Option<Bytes>> {
        let calls: Vec<Call> = keys.iter().map(|key| call(&["GET", key], true)).collect();
        let outcomes = self.runtime.block_on(client.call_many(&calls));
        let found = |outcome| match outcome {
            Outcome::Done(Reply::Bulk(value)) => Some(value),
            Outcome::Done(Reply::Nil) => None,
            other => panic!("a read failed: {other:?}"),
        };
        outcomes.into_iter().map(found).collect()
    }
}

/// Checks a counter and returns the number of its acknowledged increments.
fn check_counter(name: &str, operations: &[Operation], unknown: u64, last: i64) -> i64 {
    let increments: Vec<&Operation> = operations.iter().filter(|operation| operation.increment).collect();
    let numbers: BTreeSet<i64> = increments.iter().map(|operation| operation.number).collect();
    assert_eq!(numbers.len(), increments.len(), "{name}: an increment's result came twice");
    let acknowledged = increments.len() as i64;
    let most = acknowledged + unknown as i64;
    assert!(
        (acknowledged..=most).contains(&last),
        "{name}: {acknowledged} acknowledged and {unknown} unknown increments made {last}"
    );
    if let Some((before, after)) = out_of_order(operations) {
        panic!("{name}: {after:?} does not see {before:?}, which ended before it began");
    }
    acknowledged
}

/// Returns two operations of which the later one does not see the earlier one. A counter only
/// grows, so its history is linearizable if results respect real time.
fn out_of_order(operations: &[Operation]) -> Option<(Operation, Operation)> {
    let mut by_end: Vec<&Operation> = operations.iter().collect();
    by_end.sort_by_key(|operation| operation.ended);
    let mut by_begin: Vec<&Operation> = operations.iter().collect();
    by_begin.sort_by_key(|operation| operation.began);
    let mut ended = by_end.into_iter().peekable();
    let mut largest: Option<&Operation> = None;
    for operation in by_begin {
        while let Some(before) = ended.next_if(|before| before.ended < operation.began) {
            if largest.is_none_or(|largest| before.number > largest.number) {
                largest = Some(before);
            }
        }
        if let Some(largest) = largest {
            let seen = match operation.increment {
                true => operation.number > largest.number,
                false => operation.number >= largest.number,
            };
            if !seen {
                return Some((*largest, *operation));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns operations from (began, ended, number, increment), with times in milliseconds.
    fn history(operations: &[(u64, u64, i64, bool)]) -> Vec<Operation> {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let operation = |&(began, ended, number, increment): &(u64, u64, i64, bool)| Operation {
            began: at(began),
            ended: at(ended),
            number,
            increment,
        };
        operations.iter().map(operation).collect()
    }

    #[test]
    fn histories_that_respect_real_time_pass() {
        let overlapping =
            history(&[(0, 10, 2, true), (5, 12, 1, true), (6, 9, 0, false), (13, 14, 2, false)]);
        assert!(out_of_order(&overlapping).is_none());
        assert_eq!(check_counter("c", &overlapping, 1, 3), 2);
    }

    #[test]
    fn a_stale_read_and_a_lost_increment_are_found() {
        assert!(out_of_order(&history(&[(0, 10, 5, true), (11, 12, 4, false)])).is_some());
        assert!(out_of_order(&history(&[(0, 10, 5, false), (11, 12, 5, true)])).is_some());
        assert!(out_of_order(&history(&[(0, 10, 5, false), (11, 12, 5, false)])).is_none());
    }

    #[test]
    #[should_panic(expected = "came twice")]
    fn a_number_given_twice_is_found() {
        check_counter("c", &history(&[(0, 10, 1, true), (0, 10, 1, true)]), 0, 2);
    }

    #[test]
    #[should_panic(expected = "2 acknowledged and 1 unknown increments made 4")]
    fn an_increment_executed_twice_is_found() {
        check_counter("c", &history(&[(0, 10, 1, true), (11, 12, 2, true)]), 1, 4);
    }
}
