//! A client that knows clusters: it sends each key's commands to the store that leads its slot.
//!
//! Its answer to a command is one of three: done (with the reply), not done (nothing was proposed: an
//! error said so, or no connection was to be had), or *unknown*. What is unknown may have happened or may
//! yet happen; only reads are asked again. A checker of acknowledged writes rests on this distinction.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use resp::Reply;
use types::{slot_of_key, Slot, SLOT_COUNT};

use crate::connection::Connection;

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The store's reply; an error among them is the command's own (WRONGTYPE, ...).
    Done(Reply),
    /// It had no effect and will have none.
    NotDone(String),
    Unknown(String),
}

impl Outcome {
    /// Whether a write was acknowledged.
    pub fn acknowledged(&self) -> bool {
        matches!(self, Outcome::Done(reply) if !reply.is_error())
    }
}

/// One command for one key.
#[derive(Clone, Debug)]
pub struct Call {
    pub key: Bytes,
    pub arguments: Vec<Bytes>,
    /// May be sent again when its outcome is unknown.
    pub read: bool,
}

impl Call {
    /// The key is the first argument after the command's name.
    pub fn new(arguments: Vec<Bytes>, read: bool) -> Call {
        let key = arguments.get(1).cloned().unwrap_or_default();
        Call { key, arguments, read }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For one connection to be made.
    pub connect: Duration,
    /// For a reply; then the outcome is unknown.
    pub reply: Duration,
    /// For a command as a whole, over redirections and waiting for a leader.
    pub whole: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let seconds = Duration::from_secs;
        Patience { connect: seconds(1), reply: seconds(8), whole: seconds(20) }
    }
}

pub struct ClusterClient {
    seeds: Vec<SocketAddr>,
    patience: Patience,
    routes: Mutex<Routes>,
    idle: Mutex<BTreeMap<SocketAddr, Vec<Connection>>>,
    redirections: AtomicU64,
}

#[derive(Default)]
struct Routes {
    /// Runs of slots with the same leader: last slot -> leader. Empty: nothing known.
    leaders: BTreeMap<Slot, SocketAddr>,
    /// From MOVED, newer than `leaders`.
    moved: BTreeMap<Slot, SocketAddr>,
    refreshed: Option<Instant>,
}

impl Routes {
    fn of(&self, slot: Slot) -> Option<SocketAddr> {
        let run = || self.leaders.range(slot..).next().map(|(_, leader)| *leader);
        self.moved.get(&slot).copied().or_else(run)
    }
}

/// Pause before a store is asked again after it said that it cannot serve now.
const PAUSE: Duration = Duration::from_millis(20);
/// Least time between two looks at the whole slot map.
const REFRESH_EVERY: Duration = Duration::from_millis(100);
/// MOVED replies after which a look at the whole map is cheaper.
const MOVED_MAX: usize = 16;
const IDLE_MAX: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside stays consistent: no code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What a reply means for the command it answers.
enum Meaning {
    Final(Outcome),
    Moved(Slot, SocketAddr),
    Later(String),
}

impl ClusterClient {
    /// Any store of the cluster, better several, as `seeds`.
    pub fn new(seeds: Vec<SocketAddr>, patience: Patience) -> ClusterClient {
        assert!(!seeds.is_empty(), "a client needs a store to ask");
        ClusterClient {
            seeds,
            patience,
            routes: Mutex::default(),
            idle: Mutex::default(),
            redirections: AtomicU64::new(0),
        }
    }

    /// MOVED replies so far.
    pub fn redirections(&self) -> u64 {
        self.redirections.load(Ordering::Relaxed)
    }

    pub async fn call(&self, call: &Call) -> Outcome {
        let slot = slot_of_key(&call.key);
        let deadline = Instant::now() + self.patience.whole;
        let mut told = None;
        let mut attempt = 0usize;
        loop {
            let target = match told.take().or_else(|| lock(&self.routes).of(slot)) {
                Some(target) => target,
                None => {
                    self.refresh().await;
                    lock(&self.routes).of(slot).unwrap_or(self.seeds[attempt % self.seeds.len()])
                }
            };
            attempt += 1;
            let why = match self.attempt(target, call).await {
                Meaning::Final(Outcome::Unknown(_)) if call.read && Instant::now() < deadline => {
                    self.refresh().await;
                    continue;
                }
                Meaning::Final(outcome) => return outcome,
                Meaning::Moved(slot, leader) => {
                    self.learn(slot, leader);
                    told = Some(leader);
                    format!("sent on to {leader} again and again")
                }
                Meaning::Later(why) => {
                    tokio::time::sleep(PAUSE).await;
                    self.refresh().await;
                    why
                }
            };
            if Instant::now() >= deadline {
                return Outcome::NotDone(why);
            }
        }
    }

    /// Many commands at once: one pipeline per store, replies in the order of `calls`. Those that a store
    /// sends elsewhere are followed up one by one.
    pub async fn call_many(&self, calls: &[Call]) -> Vec<Outcome> {
        if lock(&self.routes).leaders.is_empty() {
            self.refresh().await;
        }
        let mut groups: BTreeMap<SocketAddr, Vec<usize>> = BTreeMap::new();
        for (index, call) in calls.iter().enumerate() {
            let target = lock(&self.routes).of(slot_of_key(&call.key)).unwrap_or(self.seeds[0]);
            groups.entry(target).or_default().push(index);
        }
        let mut outcomes: Vec<Option<Outcome>> = vec![None; calls.len()];
        let mut sent = Vec::new();
        for (target, members) in groups {
            // Without a connection nothing was sent: the follow-up below finds the way.
            let Ok(mut connection) = self.connect(target).await else { continue };
            members.iter().for_each(|&index| connection.queue(&calls[index].arguments));
            match connection.flush().await {
                Ok(()) => sent.push((target, members, connection)),
                Err(error) => members.iter().for_each(|&index| {
                    outcomes[index] = Some(Outcome::Unknown(error.to_string()));
                }),
            }
        }
        for (target, members, mut connection) in sent {
            let mut broken: Option<String> = None;
            for index in members {
                if broken.is_none() {
                    match tokio::time::timeout(self.patience.reply, connection.reply()).await {
                        Ok(Ok(reply)) => match meaning(reply, target) {
                            Meaning::Final(outcome) => outcomes[index] = Some(outcome),
                            Meaning::Moved(slot, leader) => self.learn(slot, leader),
                            Meaning::Later(_) => {}
                        },
                        Ok(Err(error)) => broken = Some(error.to_string()),
                        Err(_) => broken = Some("no reply in time".into()),
                    }
                }
                if let Some(why) = &broken {
                    outcomes[index] = Some(Outcome::Unknown(why.clone()));
                }
            }
            if broken.is_none() {
                self.give_back(target, connection);
            }
        }
        let mut all = Vec::with_capacity(calls.len());
        for (call, outcome) in calls.iter().zip(outcomes) {
            all.push(match outcome {
                Some(Outcome::Unknown(_)) if call.read => self.call(call).await,
                Some(outcome) => outcome,
                None => self.call(call).await,
            });
        }
        all
    }

    async fn attempt(&self, target: SocketAddr, call: &Call) -> Meaning {
        let mut connection = match self.connect(target).await {
            Ok(connection) => connection,
            Err(error) => {
                lock(&self.idle).remove(&target);
                return Meaning::Later(format!("{target}: {error}"));
            }
        };
        match tokio::time::timeout(self.patience.reply, connection.call(&call.arguments)).await {
            Ok(Ok(reply)) => {
                self.give_back(target, connection);
                meaning(reply, target)
            }
            Ok(Err(error)) => {
                // The store is gone or was restarted: its other connections are no better.
                lock(&self.idle).remove(&target);
                Meaning::Final(Outcome::Unknown(format!("{target}: {error}")))
            }
            Err(_) => Meaning::Final(Outcome::Unknown(format!("{target}: no reply in time"))),
        }
    }

    async fn connect(&self, target: SocketAddr) -> std::io::Result<Connection> {
        let pooled = lock(&self.idle).get_mut(&target).and_then(Vec::pop);
        match pooled {
            Some(connection) => Ok(connection),
            None => Connection::open(target, self.patience.connect).await,
        }
    }

    fn give_back(&self, target: SocketAddr, connection: Connection) {
        let mut idle = lock(&self.idle);
        let idle = idle.entry(target).or_default();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn learn(&self, slot: Slot, leader: SocketAddr) {
        self.redirections.fetch_add(1, Ordering::Relaxed);
        let mut routes = lock(&self.routes);
        routes.moved.insert(slot, leader);
        if routes.moved.len() > MOVED_MAX {
            routes.leaders.clear();
            routes.moved.clear();
        }
    }

    /// Looks at the slot map of the first store that answers, at most every [`REFRESH_EVERY`].
    async fn refresh(&self) {
        let known: Vec<SocketAddr> = {
            let mut routes = lock(&self.routes);
            if routes.refreshed.is_some_and(|at| at.elapsed() < REFRESH_EVERY) && !routes.leaders.is_empty() {
                return;
            }
            routes.refreshed = Some(Instant::now());
            routes.leaders.values().copied().collect()
        };
        for target in self.seeds.iter().copied().chain(known) {
            let Ok(mut connection) = self.connect(target).await else { continue };
            let asked = tokio::time::timeout(self.patience.connect, connection.call(&["CLUSTER", "SLOTS"]));
            let leaders = match asked.await {
                Ok(Ok(Reply::Error(_))) => BTreeMap::from([(SLOT_COUNT - 1, target)]),
                Ok(Ok(reply)) => slot_map(&reply, target),
                _ => continue,
            };
            self.give_back(target, connection);
            if !leaders.is_empty() {
                let mut routes = lock(&self.routes);
                routes.leaders = leaders;
                routes.moved.clear();
                return;
            }
        }
    }
}

fn meaning(reply: Reply, target: SocketAddr) -> Meaning {
    let Reply::Error(text) = &reply else { return Meaning::Final(Outcome::Done(reply)) };
    match text.split(' ').next().unwrap_or("") {
        "MOVED" => match moved(text, target) {
            Some((slot, leader)) => Meaning::Moved(slot, leader),
            None => Meaning::Final(Outcome::NotDone(text.to_string())),
        },
        "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" => Meaning::Later(text.to_string()),
        "UNKNOWN" => Meaning::Final(Outcome::Unknown(text.to_string())),
        _ => Meaning::Final(Outcome::Done(reply)),
    }
}

/// `MOVED slot host:port`; an empty host is the store that answered.
fn moved(text: &str, target: SocketAddr) -> Option<(Slot, SocketAddr)> {
    let mut words = text.split(' ').skip(1);
    let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOT_COUNT)?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    let ip = match host {
        "" => target.ip(),
        host => host.trim_matches(['[', ']']).parse().ok()?,
    };
    Some((slot, SocketAddr::new(ip, port.parse().ok()?)))
}

/// CLUSTER SLOTS: `[first, last, [ip, port, ...], ...]` per run, the leader first. Runs without a leader
/// are left to the neighbours' run, whose store then says MOVED or CLUSTERDOWN.
fn slot_map(reply: &Reply, target: SocketAddr) -> BTreeMap<Slot, SocketAddr> {
    let Reply::Array(runs) = reply else { return BTreeMap::new() };
    let run = |run: &Reply| {
        let Reply::Array(fields) = run else { return None };
        let (Reply::Int(last), Reply::Array(leader)) = (fields.get(1)?, fields.get(2)?) else { return None };
        let ip = match leader.first().and_then(crate::connection::text) {
            Some(ip) if !ip.is_empty() => std::str::from_utf8(&ip).ok()?.parse().ok()?,
            _ => target.ip(),
        };
        let Some(Reply::Int(port)) = leader.get(1) else { return None };
        let last = u16::try_from(*last).ok().filter(|last| *last < SLOT_COUNT)?;
        Some((last, SocketAddr::new(ip, u16::try_from(*port).ok()?)))
    };
    runs.iter().filter_map(run).collect()
}

#[cfg(test)]
pub(crate) mod tests;
