//! Clients that load a cluster and record what they saw, and the verdict over it.
//!
//! Every client works on objects of several kinds, chosen from a seed. An object is used for a
//! limited number of operations and then replaced by a new one, so that each history is short
//! enough to be judged exactly. All objects are read once more at the end, so that data lost late
//! is found too.

mod client;
mod report;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::client::cluster_client::{ClusterClient, Patience};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub use client::Kind;
pub use report::{Judged, Report, HISTORIES_ENV};

use crate::history::History;

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub clients: u32,
    /// The number of objects of each kind that are used at a time.
    pub lanes: u32,
    /// The number of operations after which an object is replaced.
    pub per_object: u64,
    /// The pause of a client between two operations.
    pub rest: Duration,
    /// The length to which a register's value is padded.
    pub value_bytes: usize,
    pub patience: Patience,
}

impl Default for Shape {
    fn default() -> Shape {
        let patience = Patience {
            connect: Duration::from_millis(500),
            reply: Duration::from_secs(2),
            whole: Duration::from_secs(3),
        };
        let rest = Duration::from_millis(2);
        Shape { clients: 20, lanes: 2, per_object: 150, rest, value_bytes: 0, patience }
    }
}

/// The state that all clients of a load share.
struct Shared {
    name: String,
    shape: Shape,
    /// Operations begun, by kind and lane. Determines the object in use.
    begun: Vec<AtomicU64>,
    stop: AtomicBool,
    acknowledged: AtomicU64,
    start: Instant,
}

/// The records of one client, or of all together.
#[derive(Default)]
struct Notes {
    objects: BTreeMap<Object, History>,
    refused: u64,
    /// Replies that no command of this load may have.
    errors: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    kind: Kind,
    lane: u32,
    generation: u64,
}

/// A load that runs until [`finish`](Workload::finish) is called.
pub struct Workload {
    runtime: Runtime,
    stores: Vec<SocketAddr>,
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Notes>>,
}

/// The records of a load.
pub struct Recording {
    runtime: Runtime,
    stores: Vec<SocketAddr>,
    shared: Arc<Shared>,
    notes: Notes,
    lasted: Duration,
}

impl Workload {
    /// Starts the clients. Every client begins at a different store. Every third client knows this
    /// store only: it goes on asking a store that may be deposed or cut off, and does not learn of
    /// a better one. `name` separates the keys of several loads.
    pub fn start(stores: &[SocketAddr], name: &str, shape: Shape, seed: u64) -> Workload {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let lanes = Kind::ALL.len() * shape.lanes as usize;
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            shape,
            begun: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            start: Instant::now(),
        });
        let client = |number: u32| {
            let mut seeds = stores.to_vec();
            seeds.rotate_left(number as usize % stores.len());
            if number % 3 == 0 {
                seeds.truncate(1);
            }
            let connections = ClusterClient::new(seeds, shape.patience);
            runtime.spawn(client::run(number, connections, shared.clone(), seed ^ u64::from(number) << 32))
        };
        let clients = (0..shape.clients).map(client).collect();
        Workload { stores: stores.to_vec(), shared, clients, runtime }
    }

    /// Returns the number of operations so far whose result is known.
    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits for this many more results. Returns false if they do not arrive in time.
    #[must_use]
    pub fn await_more(&self, more: u64, patience: Duration) -> bool {
        let (goal, deadline) = (self.acknowledged() + more, Instant::now() + patience);
        while self.acknowledged() < goal {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Lets every client finish its current operation.
    pub fn finish(self) -> Recording {
        self.shared.stop.store(true, Ordering::Relaxed);
        let lasted = self.shared.start.elapsed();
        let mut notes = Notes::default();
        for client in self.clients {
            notes.add(self.runtime.block_on(client).expect("a client goes on to its end"));
        }
        Recording { runtime: self.runtime, stores: self.stores, shared: self.shared, notes, lasted }
    }
}

impl Notes {
    fn add(&mut self, other: Notes) {
        for (object, history) in other.objects {
            self.objects.entry(object).or_default().extend(history);
        }
        self.refused += other.refused;
        self.errors.extend(other.errors);
    }
}

impl Recording {
    /// Reads every object once more, through any store, and judges all histories.
    pub fn judge(mut self) -> Report {
        let objects: Vec<Object> = self.notes.objects.keys().copied().collect();
        let patience = Patience { whole: Duration::from_secs(30), ..self.shared.shape.patience };
        let client = ClusterClient::new(self.stores.clone(), patience);
        let read = client::read_back(&client, &self.shared, &objects);
        self.notes.add(self.runtime.block_on(read));
        report::judge(&self.shared.name, self.notes, self.lasted)
    }
}
