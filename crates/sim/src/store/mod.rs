//! A simulated store: its process, which a crash ends, and what outlives it.
//!
//! The process does what a running store's threads do, in the same order: the worker carries out a turn's
//! actions, sends first and hands the log its jobs afterwards; the log thread writes, syncs and then tells the
//! worker; the apply thread executes everything that waits in one write set, publishes how far it came, and
//! answers last; the flusher reads how far everything is applied before it flushes; a reader takes its view
//! before it looks at the lease.

mod apply;
mod heartbeat;
mod log;
mod reads;
mod worker;

use std::collections::{BTreeMap, VecDeque};

use cluster::{Driver, DriverConfig, Ledger, MetaState};
use replica::{Committed, Config, Input, PeerSeed, Truncation, Worker};
use storage::{MemoryKeyspace, RegionState};
use types::{BootNanos, LogIndex, RegionDescriptor, RegionId, StoreId, Term, UnixMillis};

use crate::client::ClientId;
use crate::clock::{Clock, MILLISECOND, SECOND};
use crate::disk::Disk;
use crate::observation::{EntryId, OpId};
use crate::world::{Event, Work, World};
use log::ToLog;

/// A store that was not heard of for this long counts as down.
const DOWN_AFTER: u64 = 3 * SECOND;

pub struct Store {
    pub clock: Clock,
    pub disk: Disk,
    pub engine: MemoryKeyspace,
    pub process: Option<Process>,
    pub slow_log_until: u64,
    pub paused_until: u64,
    life: u64,
}

/// What a region's name means on a store, as its threads share it.
#[derive(Debug)]
pub struct Shared {
    pub descriptor: RegionDescriptor,
    pub term: Term,
    pub leader: Option<StoreId>,
    pub lease: Option<BootNanos>,
    pub applied: LogIndex,
    pub last_stamp_ms: UnixMillis,
    lease_wanted: BootNanos,
}

/// Something asked of the worker's thread.
enum ToWorker {
    Input(Input),
    Submit { region: RegionId, submit: Submit },
    ReadIndex { region: RegionId, client: ClientId, op: OpId },
}

/// What waits to be in the next entry of a region.
#[derive(Clone)]
enum Submit {
    Command { client: ClientId, op: OpId, since: u64 },
    ExpireDue(types::Slot),
    Meta(bytes::Bytes),
}

/// An entry that was proposed here, and who waits for it.
struct Waiting {
    region: RegionId,
    entry: EntryId,
    clients: Vec<Option<(ClientId, OpId)>>,
    since: u64,
}

struct Reader {
    region: RegionId,
    client: ClientId,
    op: OpId,
    since: u64,
}

type ToApply = (Committed, Option<Waiting>);

pub struct Process {
    pub worker: Worker<Disk>,
    pub regions: BTreeMap<RegionId, Shared>,
    inbox: VecDeque<ToWorker>,
    has_turn: bool,
    log: VecDeque<ToLog>,
    log_is_busy: bool,
    to_apply: VecDeque<(RegionId, Vec<ToApply>)>,
    has_apply: bool,
    states: BTreeMap<RegionId, RegionState>,
    queues: BTreeMap<RegionId, Vec<Submit>>,
    waiting: BTreeMap<u64, Waiting>,
    readers: BTreeMap<u64, Reader>,
    next_token: u64,
    pub meta: MetaState,
    ledger: Ledger,
    driver: Driver,
    incarnation: u64,
    seq: u64,
}

impl Store {
    pub fn new(clock: Clock) -> Store {
        Store {
            clock,
            disk: Disk::default(),
            engine: MemoryKeyspace::default(),
            process: None,
            slow_log_until: 0,
            paused_until: 0,
            life: 0,
        }
    }

    pub fn is_alive(&self, life: u64) -> bool {
        self.process.is_some() && self.life == life
    }

    pub fn paused_until(&self, now: u64) -> Option<u64> {
        (self.process.is_some() && now < self.paused_until).then_some(self.paused_until)
    }

    /// Regions that this store takes itself for the leader of.
    pub fn led(&self) -> Vec<RegionId> {
        let Some(process) = &self.process else { return Vec::new() };
        let leads = |region: &RegionId| {
            process.worker.status(*region, 0).is_some_and(|status| status.role == replica::Role::Leader)
        };
        process.worker.regions().filter(leads).collect()
    }
}

fn config(store: StoreId, seed: u64) -> Config {
    Config {
        max_message_bytes: 512,
        max_inflight_messages: 8,
        max_uncommitted_bytes: 4096,
        max_apply_bytes: 1024,
        entry_cache_bytes: 1024,
        truncation: Truncation { keep_entries: 6, keep_bytes: 1 << 20, step_entries: 4, step_bytes: 1 << 20 },
        ..Config::new(store, seed)
    }
}

impl World {
    pub fn store_mut(&mut self, store: StoreId) -> &mut Store {
        self.stores.get_mut(&store).expect("a store of this cluster")
    }

    pub(crate) fn schedule_work(&mut self, store: StoreId, delay: u64, work: Work) {
        let life = self.stores[&store].life;
        self.schedule(delay, Event::Of { store, life, work });
    }

    /// Recovery: what the disk and the rows say is all there is.
    pub fn start(&mut self, id: StoreId) {
        let now = self.now;
        let (layout, seed) = (self.layout.clone(), self.seed);
        let store = self.store_mut(id);
        if store.process.is_some() {
            return;
        }
        if store.disk.recover().is_err() {
            return;
        }
        store.life += 1;
        let boot = store.clock.boot(now);
        let incarnation = store.life;
        let mut regions = BTreeMap::new();
        let mut states = BTreeMap::new();
        let mut seeds = Vec::new();
        for descriptor in layout {
            let region = descriptor.id;
            let state = match storage::load_state(&store.engine, region) {
                Ok(state) => state,
                Err(error) => return self.violate("recovery", format!("store {id}: {error}")),
            };
            let shared = Shared {
                descriptor: descriptor.clone(),
                term: 0,
                leader: None,
                lease: None,
                applied: state.applied_index,
                last_stamp_ms: state.last_stamp_ms,
                lease_wanted: 0,
            };
            regions.insert(region, shared);
            if descriptor.has_peer_on(id) {
                let applied = (state.applied_index, state.applied_term);
                seeds.push(PeerSeed { descriptor, applied });
                states.insert(region, state);
            }
        }
        let worker = match Worker::new(config(id, seed), store.disk.clone(), seeds, boot) {
            Ok(worker) => worker,
            Err(fatal) => return self.violate("recovery", format!("store {id}: {fatal}")),
        };
        let meta = match MetaState::load(&store.engine) {
            Ok(meta) => meta,
            Err(error) => return self.violate("recovery", format!("store {id}: {error}")),
        };
        store.process = Some(Process {
            worker,
            regions,
            inbox: VecDeque::new(),
            has_turn: false,
            log: VecDeque::new(),
            log_is_busy: false,
            to_apply: VecDeque::new(),
            has_apply: false,
            states,
            queues: BTreeMap::new(),
            waiting: BTreeMap::new(),
            readers: BTreeMap::new(),
            next_token: 0,
            meta,
            ledger: Ledger::new(boot, DOWN_AFTER),
            driver: Driver::new(DriverConfig::default()),
            incarnation,
            seq: 0,
        });
        self.say(&format!("store {id} starts"));
        for work in [Work::Turn, Work::Tick, Work::Heartbeat, Work::Flush] {
            let delay = self.rng.below(50 * MILLISECOND);
            self.schedule_work(id, delay, work);
        }
    }

    /// The process ends. When the machine does too, its clock begins anew.
    pub fn crash(&mut self, id: StoreId, is_power: bool) {
        let (now, mut rng) = (self.now, self.rng.clone());
        let store = self.store_mut(id);
        if store.process.take().is_none() {
            return;
        }
        store.disk.crash(&mut rng);
        store.engine.crash();
        store.paused_until = 0;
        store.slow_log_until = 0;
        if is_power {
            store.clock.reboot(now);
        }
        self.rng = rng;
        self.reset_clients(id);
    }

    pub(crate) fn work(&mut self, id: StoreId, work: Work) {
        match work {
            Work::Tick => self.tick(id),
            Work::Turn => self.turn(id),
            Work::Logged => self.logged(id),
            Work::Apply => self.apply(id),
            Work::Flush => self.flush(id),
            Work::Flushed { applied, writes } => self.flushed(id, applied, writes),
            Work::Heartbeat => self.heartbeat(id),
            Work::Read { region, client, op, reply, read_ms } => {
                self.read_under_lease(id, region, client, op, reply, read_ms)
            }
            Work::ProvenRead { region, client, op } => self.proven_read(id, region, client, op),
        }
    }

    pub(crate) fn process(&mut self, id: StoreId) -> Option<&mut Process> {
        self.store_mut(id).process.as_mut()
    }

    pub(crate) fn boot(&self, id: StoreId) -> BootNanos {
        self.stores[&id].clock.boot(self.now)
    }

    /// A store whose clock is below a lease's end would answer from its rows right now.
    pub(crate) fn check_leases(&mut self) {
        let now = self.now;
        let mut leased = Vec::new();
        for (&id, store) in &self.stores {
            let Some(process) = store.process.as_ref().filter(|_| now >= store.paused_until) else {
                continue;
            };
            let boot = store.clock.boot(now);
            for (&region, shared) in &process.regions {
                if shared.lease.is_some_and(|until| boot < until) {
                    leased.push((id, region, shared.applied));
                }
            }
        }
        for (store, region, applied) in leased {
            self.observe(&crate::observation::Observation::Leased { store, region, applied });
        }
    }
}
