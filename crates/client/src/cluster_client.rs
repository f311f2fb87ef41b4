//! A client that knows clusters: it sends each command to the store that leads the slot of its key.
//!
//! A command has one of three outcomes: done, with the store's reply; not done, because an error
//! said that nothing was proposed or there was no connection; or *unknown*. A command with an
//! unknown outcome may have taken effect, or may still take effect. Only reads are then sent again.
//! The checkers of acknowledged writes depend on this distinction.

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
    /// The store's reply. It may be an error of the command itself (WRONGTYPE, ...).
    Done(Reply),
    /// The command had no effect and will have none.
    NotDone(String),
    Unknown(String),
}

impl Outcome {
    /// Returns true if a write was acknowledged.
    pub fn acknowledged(&self) -> bool {
        matches!(self, Outcome::Done(reply) if !reply.is_error())
    }
}

/// One command for one key.
#[derive(Clone, Debug)]
pub struct Call {
    pub key: Bytes,
    pub arguments: Vec<Bytes>,
    /// True if the command may be sent again when its outcome is unknown.
    pub read: bool,
}

impl Call {
    /// Creates a call whose key is the first argument after the command's name.
    pub fn new(arguments: Vec<Bytes>, read: bool) -> Call {
        let key = arguments.get(1).cloned().unwrap_or_default();
        Call { key, arguments, read }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Maximum time to make a connection.
    pub connect: Duration,
    /// Maximum time to wait for a reply. After it, the outcome is unknown.
    pub reply: Duration,
    /// Maximum time for a command with all its redirections and waits for a leader.
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
    /// The leaders of runs of slots, by the last slot of the run. Empty if nothing is known.
    leaders: BTreeMap<Slot, SocketAddr>,
    /// The leaders that MOVED replies named. They are newer than `leaders`.
    moved: BTreeMap<Slot, SocketAddr>,
    refreshed: Option<Instant>,
}

impl Routes {
    fn of(&self, slot: Slot) -> Option<SocketAddr> {
        let run = || self.leaders.range(slot..).next().map(|(_, leader)| *leader);
        self.moved.get(&slot).copied().or_else(run)
    }
}

/// The pause after a store said that it cannot serve now.
const PAUSE: Duration = Duration::from_millis(20);
/// Minimum time between two requests for the slot map.
const REFRESH_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of MOVED replies to remember. With more, a new slot map is cheaper.
const MOVED_MAX: usize = 16;
const IDLE_MAX: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned value is still consistent: no code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The meaning of a reply for its command.
enum Meaning {
    Final(Outcome),
    Moved(Slot, SocketAddr),
    Later(String),
}

impl ClusterClient {
    /// Creates a client. `seeds` are one or, better, several stores of the cluster.
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

    /// Returns the number of MOVED replies so far.
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
                    format!("redirected to {leader} again and again")
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

    /// Sends many commands in one pipeline per store and returns the outcomes in the order of
    /// `calls`. Redirected commands are then sent one by one.
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
            // Without a connection nothing was sent. The calls are sent one by one below.
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
                // The store ended or was restarted. Its other connections are broken as well.
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

    /// Reads the slot map of the first store that answers, at most once per [`REFRESH_EVERY`].
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

/// Parses `MOVED slot host:port`. An empty host means the store that answered.
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

/// Parses the reply to CLUSTER SLOTS: `[first, last, [ip, port, ...], ...]` for each run, with the
/// leader first. A run without a leader is counted to the next run, whose store then answers MOVED
/// or CLUSTERDOWN.
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
mod tests;
