//! Whole clusters of workers in one thread, from one seed: virtual time, a network that loses, delays,
//! reorders, doubles and parts, disks that forget what was not written, engines that forget what was not
//! flushed, and processes that crash or stand still while their clocks run on.
//!
//! What must hold is checked after every event.

#![allow(dead_code)]

pub mod disk;
mod merging;
mod recovery;
mod rng;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use steelyard_replica::eraftpb::Message;
use steelyard_replica::{
    Action, Committed, Config, Input, LogBatch, LogStore, PeerSeed, RestartCause, Role, Truncation, Worker,
};
use types::{
    BootNanos, LogIndex, PeerChange, PeerId, PeerRole, RegionChange, RegionDescriptor, RegionId, SlotRange,
    StoreId, Term, FIRST_INDEX, FIRST_TERM,
};

use disk::{Disk, Life};
use rng::Rng;

pub const MILLISECOND: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    pub applied: (LogIndex, Term),
    /// Of all payloads in order.
    pub hash: u64,
    pub descriptor: RegionDescriptor,
}

impl Engine {
    fn founded(descriptor: RegionDescriptor) -> Engine {
        Engine { applied: (FIRST_INDEX, FIRST_TERM), hash: 0, descriptor }
    }
}

pub struct Store {
    pub worker: Option<Worker<Disk>>,
    pub disk: Disk,
    pub engines: BTreeMap<RegionId, Engine>,
    pub flushed: BTreeMap<RegionId, Engine>,
    pub writing: Option<LogBatch>,
    pub leases: BTreeMap<RegionId, BootNanos>,
    /// Snapshots that can be sent, and those that came: files, so a crash leaves them.
    made: BTreeMap<RegionId, Engine>,
    received: BTreeMap<(RegionId, LogIndex), Engine>,
    life: u64,
    drift_ppm: i64,
    paused_until: u64,
    held_inputs: Vec<Input>,
    apply_free_at: u64,
}

#[derive(Clone, Debug)]
enum Event {
    Tick {
        store: StoreId,
        life: u64,
    },
    Input {
        to: StoreId,
        input: Input,
    },
    Written {
        store: StoreId,
        life: u64,
    },
    Apply {
        store: StoreId,
        life: u64,
        region: RegionId,
        entries: Vec<Committed>,
    },
    Make {
        store: StoreId,
        life: u64,
        region: RegionId,
    },
    Deliver {
        from: StoreId,
        life: u64,
        to: StoreId,
        region: RegionId,
        message: Message,
        data: Option<Engine>,
    },
    Ingest {
        store: StoreId,
        life: u64,
        region: RegionId,
        index: LogIndex,
        descriptor: RegionDescriptor,
    },
    Delete {
        store: StoreId,
        life: u64,
        region: RegionId,
        peer: PeerId,
    },
    Clean {
        store: StoreId,
        life: u64,
        region: RegionId,
    },
    Resume {
        store: StoreId,
    },
    Restart {
        store: StoreId,
    },
    Heal,
    Flush {
        store: StoreId,
        life: u64,
    },
}

impl Event {
    /// The store whose threads this is a job of: it waits while the process stands still.
    fn job_of(&self) -> Option<StoreId> {
        match self {
            Event::Apply { store, .. }
            | Event::Make { store, .. }
            | Event::Flush { store, .. }
            | Event::Ingest { store, .. }
            | Event::Delete { store, .. }
            | Event::Clean { store, .. } => Some(*store),
            _ => None,
        }
    }
}

/// What is asked of the network and the clients; all zero for a quiet cluster.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    pub lost_percent: u64,
    pub doubled_percent: u64,
    pub slow_percent: u64,
    pub faults_per_thousand: u64,
    pub changes_per_thousand: u64,
    pub merges_per_thousand: u64,
}

#[derive(Default, Debug)]
pub struct Tally {
    pub acknowledged: u64,
    pub refused: u64,
    pub lost: u64,
    pub reads: u64,
    pub leases: u64,
    pub lease_reads: u64,
    pub truncations: u64,
    pub transfers: u64,
    pub aborted: u64,
    pub crashes: u64,
    pub leaders: u64,
    pub snapshots: u64,
    pub changes: u64,
    pub stale_changes: u64,
    pub splits: u64,
    pub joints: u64,
    pub destroyed: u64,
    pub seals: u64,
    pub rollbacks: u64,
    pub merges: u64,
    /// Ticks at which a store had a region that slept.
    pub slept: u64,
}

pub struct Cluster {
    pub now: u64,
    pub rng: Rng,
    pub stores: Vec<Store>,
    pub weather: Weather,
    pub tally: Tally,
    /// FNV-1a of every action, when asked for.
    pub trace: Option<u64>,
    /// The newest descriptor of every region there ever was.
    pub regions: BTreeMap<RegionId, RegionDescriptor>,
    seed: u64,
    hibernate_ticks: u32,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    next_token: u64,
    next_region: RegionId,
    /// Merges under way, by their sources, and what became of those that are done.
    merges: BTreeMap<RegionId, merging::Merge>,
    merged: BTreeMap<RegionId, RegionDescriptor>,
    cut: BTreeSet<(StoreId, StoreId)>,
    leaders: BTreeMap<(RegionId, Term), StoreId>,
    /// What any store applied, by index, with the state after it.
    history: BTreeMap<(RegionId, LogIndex), (Term, Bytes, u64)>,
    acknowledged: BTreeMap<RegionId, LogIndex>,
    answered: BTreeSet<u64>,
    /// Tokens of proposals that were refused or lost: their payloads must never be applied.
    void: BTreeSet<u64>,
    /// What a read must see.
    reads: BTreeMap<u64, LogIndex>,
}

pub fn descriptor(id: RegionId, stores: u64) -> RegionDescriptor {
    let slots = Some(SlotRange {
        first: (id as u16).wrapping_mul(1000) % 16_000,
        last: (id as u16).wrapping_mul(1000) % 16_000 + 999,
    });
    RegionDescriptor::founded(id, slots, &(0..stores).collect::<Vec<_>>())
}

pub fn config(store: StoreId, seed: u64) -> Config {
    Config {
        max_message_bytes: 512,
        max_inflight_messages: 8,
        max_uncommitted_bytes: 4096,
        max_apply_bytes: 1024,
        hibernate_ticks: 8,
        entry_cache_bytes: 1024,
        truncation: Truncation {
            keep_entries: 6,
            keep_bytes: 1 << 20,
            step_entries: 4,
            step_bytes: 1 << 20,
            lag_bytes: 30 * 64,
        },
        ..Config::new(store, seed)
    }
}

impl Cluster {
    pub fn new(seed: u64, stores: u64, regions: u64) -> Cluster {
        Cluster::with_spares(seed, stores, 0, regions)
    }

    /// Its regions never sleep.
    pub fn sleepless(seed: u64, stores: u64, regions: u64) -> Cluster {
        Cluster::founded(seed, stores, 0, regions, 0)
    }

    /// `spares`: stores that begin without peers.
    pub fn with_spares(seed: u64, stores: u64, spares: u64, regions: u64) -> Cluster {
        Cluster::founded(seed, stores, spares, regions, 8)
    }

    fn founded(seed: u64, stores: u64, spares: u64, regions: u64, hibernate_ticks: u32) -> Cluster {
        let mut rng = Rng::new(seed + 1);
        let drifts: Vec<i64> = (0..stores + spares).map(|_| rng.below(1801) as i64 - 900).collect();
        let store = |drift_ppm| Store {
            worker: None,
            disk: Disk::default(),
            engines: BTreeMap::new(),
            flushed: BTreeMap::new(),
            writing: None,
            leases: BTreeMap::new(),
            made: BTreeMap::new(),
            received: BTreeMap::new(),
            life: 0,
            drift_ppm,
            paused_until: 0,
            held_inputs: Vec::new(),
            apply_free_at: 0,
        };
        let mut cluster = Cluster {
            now: 1_000_000 * MILLISECOND,
            rng,
            stores: drifts.into_iter().map(store).collect(),
            weather: Weather::default(),
            tally: Tally::default(),
            trace: None,
            regions: (1..=regions).map(|id| (id, descriptor(id, stores))).collect(),
            seed,
            hibernate_ticks,
            events: BTreeMap::new(),
            next_event: 0,
            next_token: 0,
            next_region: regions,
            merges: BTreeMap::new(),
            merged: BTreeMap::new(),
            cut: BTreeSet::new(),
            leaders: BTreeMap::new(),
            history: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            answered: BTreeSet::new(),
            void: BTreeSet::new(),
            reads: BTreeMap::new(),
        };
        for store in 0..stores {
            for descriptor in cluster.regions.values() {
                cluster.stores[store as usize].disk.found(descriptor.clone());
            }
        }
        for store in 0..stores + spares {
            cluster.restart(store);
        }
        cluster
    }

    pub fn clock(&self, store: StoreId) -> BootNanos {
        let drift = i128::from(self.now) * i128::from(self.stores[store as usize].drift_ppm) / 1_000_000;
        (i128::from(self.now) + drift) as u64
    }

    fn schedule(&mut self, delay: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now + delay, self.next_event), event);
    }

    fn store(&mut self, store: StoreId) -> &mut Store {
        &mut self.stores[store as usize]
    }

    pub fn restart(&mut self, id: StoreId) {
        if self.store(id).worker.is_some() {
            return;
        }
        let clock = self.clock(id);
        let config = Config { hibernate_ticks: self.hibernate_ticks, ..config(id, self.seed) };
        let store = self.store(id);
        store.life += 1;
        let life = store.life;
        let (seeds, tombstones) = store.recover(id);
        let worker = Worker::new(config, store.disk.clone(), seeds, tombstones, clock).expect("recovery");
        store.worker = Some(worker);
        self.schedule(0, Event::Tick { store: id, life });
        self.turn(id);
    }

    pub fn crash(&mut self, id: StoreId) {
        let written = self.rng.chance(50);
        let store = self.store(id);
        if store.worker.take().is_none() {
            return;
        }
        store.life += 1;
        if let Some(batch) = store.writing.take().filter(|_| written) {
            store.disk.write(&batch);
        }
        store.engines = store.flushed.clone();
        store.leases.clear();
        store.held_inputs.clear();
        store.paused_until = 0;
        store.apply_free_at = 0;
        self.tally.crashes += 1;
        self.fall_silent(id);
    }

    /// What stores' own heartbeats tell each other: after a second without any they say so.
    fn fall_silent(&mut self, id: StoreId) {
        for other in (0..self.stores.len() as u64).filter(|&other| other != id) {
            for (to, store) in [(other, id), (id, other)] {
                let delay = (1000 + self.rng.below(300)) * MILLISECOND;
                self.schedule(delay, Event::Input { to, input: Input::StoreSilent { store } });
            }
        }
    }

    pub fn pause(&mut self, id: StoreId, length: u64) {
        let until = self.now + length;
        let store = self.store(id);
        store.paused_until = until.max(store.paused_until);
        let left = self.stores[id as usize].paused_until - self.now;
        self.schedule(left, Event::Resume { store: id });
        self.fall_silent(id);
    }

    fn is_paused(&self, id: StoreId) -> bool {
        self.now < self.stores[id as usize].paused_until
    }

    pub fn partition(&mut self, alone: StoreId, length: u64) {
        for other in 0..self.stores.len() as u64 {
            self.cut.insert((alone, other));
            if self.rng.chance(80) {
                self.cut.insert((other, alone));
            }
        }
        self.schedule(length, Event::Heal);
        self.fall_silent(alone);
    }

    pub fn input(&mut self, to: StoreId, input: Input) {
        if self.is_paused(to) {
            return self.store(to).held_inputs.push(input);
        }
        let clock = self.clock(to);
        if let Some(worker) = &mut self.store(to).worker {
            worker.step(input, clock);
        }
    }

    pub fn turn(&mut self, id: StoreId) {
        let clock = self.clock(id);
        while let Some(worker) = &mut self.store(id).worker {
            for action in worker.turn(clock).expect("no store is lost") {
                self.execute(id, action);
            }
            if !self.store(id).worker.as_ref().is_some_and(Worker::has_work) {
                break;
            }
        }
    }

    fn answer(&mut self, token: u64) {
        assert!(self.answered.insert(token), "token {token} is answered twice");
    }

    fn execute(&mut self, id: StoreId, action: Action) {
        if let Some(trace) = &mut self.trace {
            let text = format!("{id} {action:?}");
            *trace = text
                .bytes()
                .fold(*trace, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        }
        let life = self.store(id).life;

        match action {
            Action::Send { to, region, message, .. } => {
                self.send(id, to, Input::Message { from: id, region, message })
            }
            Action::Announce { to, descriptor } => {
                self.send(id, to, Input::Announced { from: id, descriptor })
            }
            Action::ReadLog { region, number, low, high, max_bytes } => {
                let entries = self.stores[id as usize].disk.entries(region, low, high, max_bytes);
                self.input(id, Input::LogRead { region, number, entries });
            }
            Action::MakeSnapshot { region } => {
                let delay = self.rng.below(200) * MILLISECOND;
                self.schedule(delay, Event::Make { store: id, life, region });
            }
            Action::SendSnapshot { region, to, message } => {
                let index = message.get_snapshot().get_metadata().index;
                let made = self.stores[id as usize].made.get(&region).cloned();
                let data = made.filter(|engine| engine.applied.0 == index);
                let delay = self.rng.below(1000) * MILLISECOND;
                self.schedule(delay, Event::Deliver { from: id, life, to, region, message, data });
            }
            Action::ApplySnapshot { region, index, descriptor, .. } => {
                let at = self.apply_slot(id, 300);
                self.schedule(at, Event::Ingest { store: id, life, region, index, descriptor });
            }
            Action::Destroy { region, peer } => {
                let at = self.apply_slot(id, 100);
                self.schedule(at, Event::Delete { store: id, life, region, peer });
            }
            Action::Persist(batch) => {
                assert!(self.store(id).writing.replace(batch).is_none(), "two batches in flight");
                let delay = (1 + self.rng.below(15)) * MILLISECOND;
                self.schedule(delay, Event::Written { store: id, life });
            }
            Action::Apply { region, entries } => {
                let at = self.apply_slot(id, 4);
                self.schedule(at, Event::Apply { store: id, life, region, entries });
            }
            Action::Refused { token, .. } => {
                self.answer(token);
                self.void.insert(token);
                self.tally.refused += 1;
            }
            Action::Lost { token, .. } => {
                self.answer(token);
                self.tally.lost += 1;
            }
            Action::ReadReady { region, token } => {
                self.answer(token);
                let seen = self.stores[id as usize].engines[&region].applied.0;
                assert!(seen >= self.reads[&token], "a read saw {seen}, not {}", self.reads[&token]);
                self.tally.reads += 1;
            }
            Action::Leadership { region, term, is_self, .. } => {
                if is_self {
                    let leader = *self.leaders.entry((region, term)).or_insert(id);
                    assert_eq!(leader, id, "two leaders in term {term}");
                    self.tally.leaders += 1;
                }
            }
            Action::Lease { region, until: Some(until), .. } => {
                self.store(id).leases.insert(region, until);
                self.tally.leases += 1;
            }
            Action::Lease { region, until: None, .. } => {
                self.store(id).leases.remove(&region);
            }
            Action::Truncate { region, index, term } => {
                let flushed =
                    self.stores[id as usize].flushed.get(&region).map_or(0, |engine| engine.applied.0);
                assert!(index <= flushed, "truncated beyond the flush");
                self.store(id).disk.truncate(region, index, term);
                self.tally.truncations += 1;
            }
            Action::FlushSoon => {
                let delay = self.rng.below(2000) * MILLISECOND;
                self.schedule(delay, Event::Flush { store: id, life });
            }
            Action::TransferDone { .. } => self.tally.transfers += 1,
            Action::TransferAborted { .. } => self.tally.aborted += 1,
            Action::Dropped { region, from, reason } => {
                panic!("store {id} drops what store {from} sent of region {region}: {reason}")
            }
        }
    }

    /// How long from now until this store's apply thread comes to a job that takes up to `most` ms.
    fn apply_slot(&mut self, id: StoreId, most: u64) -> u64 {
        let at = self.stores[id as usize].apply_free_at.max(self.now) + self.rng.below(most) * MILLISECOND;
        self.store(id).apply_free_at = at;
        at - self.now
    }

    fn send(&mut self, from: StoreId, to: StoreId, input: Input) {
        let copies = 1 + u64::from(self.rng.chance(self.weather.doubled_percent));
        for _ in 0..copies {
            if self.cut.contains(&(from, to)) || self.rng.chance(self.weather.lost_percent) {
                continue;
            }
            let slow = self.rng.chance(self.weather.slow_percent);
            let span = if slow { 4000 } else { 8 };
            let delay = MILLISECOND / 2 + self.rng.below(span * 100) * (MILLISECOND / 100);
            self.schedule(delay, Event::Input { to, input: input.clone() });
        }
    }

    fn apply(&mut self, id: StoreId, region: RegionId, entries: Vec<Committed>) {
        let last = entries.last().expect("entries to apply").index;
        for entry in entries {
            let mut engine = self.store(id).engines[&region].clone();
            assert_eq!(entry.index, engine.applied.0 + 1, "applied out of order");
            engine.applied = (entry.index, entry.term);
            // An entry without a payload leaves the rows as they are.
            let bytes = entry.payload.iter();
            engine.hash =
                bytes.fold(engine.hash, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
            if let Some(changed) = entry.change {
                if let Some(source) = &changed.absorbed {
                    engine.hash = self.absorb(id, source, engine.hash);
                }
                self.count_seals(&engine.descriptor, &changed.region);
                engine.descriptor = changed.region.clone();
                self.learn(&changed.region);
                self.tally.changes += 1;
                self.tally.joints += u64::from(changed.region.is_joint());
                if let Some(child) = changed.split_off {
                    self.learn(&child);
                    self.tally.splits += 1;
                    let born = Engine { hash: engine.hash, ..Engine::founded(child) };
                    self.store(id).engines.entry(born.descriptor.id).or_insert(born);
                }
            }
            let same = (entry.term, entry.payload.clone(), engine.hash);
            self.store(id).engines.insert(region, engine);
            let known = self.history.entry((region, entry.index)).or_insert_with(|| same.clone());
            assert_eq!(*known, same, "stores differ at {}", entry.index);
            if let Ok(token) = <[u8; 8]>::try_from(&entry.payload[..]).map(u64::from_be_bytes) {
                assert!(!self.void.contains(&token), "a refused proposal was applied");
                assert!(entry.token.is_none_or(|own| own == token), "a proposal got another's token");
            }
            if let Some(token) = entry.token {
                self.answer(token);
                let sealed_at = self.merged.get(&region).and_then(|source| source.merging);
                let is_command = !entry.payload.is_empty();
                let is_before = |index| sealed_at.is_none_or(|sealed| index < sealed.sealed_at);
                assert!(!is_command || is_before(entry.index), "done behind the seal");
                if is_command {
                    let acknowledged = self.acknowledged.entry(region).or_default();
                    *acknowledged = (*acknowledged).max(entry.index);
                }
                self.tally.acknowledged += 1;
            }
        }
        self.input(id, Input::Applied { region, index: last });
        self.turn(id);
    }

    fn learn(&mut self, descriptor: &RegionDescriptor) {
        if self.merged.contains_key(&descriptor.id) {
            return;
        }
        let known = self.regions.entry(descriptor.id).or_insert_with(|| descriptor.clone());
        if descriptor.epoch.is_newer_than(known.epoch) {
            *known = descriptor.clone();
        }
    }

    pub fn change(&mut self, id: StoreId, region: RegionId, change: RegionChange) {
        let clock = self.clock(id);
        let Some(status) = self.stores[id as usize].worker.as_ref().and_then(|w| w.status(region, clock))
        else {
            return;
        };
        let mut expect = status.descriptor.epoch;
        if self.rng.chance(5) {
            expect.conf_version = expect.conf_version.wrapping_sub(1);
        }
        self.next_token += 1;
        self.input(id, Input::ChangeRegion { region, token: self.next_token, expect, change });
    }

    /// A change that may or may not fit.
    fn some_change(&mut self, region: RegionId) -> RegionChange {
        let descriptor = self.regions[&region].clone();
        let stores = self.stores.len() as u64;
        let learner =
            descriptor.peers.iter().find(|peer| peer.role == PeerRole::Learner).map(|peer| peer.store);
        let voters: Vec<StoreId> = descriptor.voters().collect();
        let voter = voters[self.rng.below(voters.len() as u64) as usize];
        match (self.rng.below(10), learner) {
            (0, _) if self.regions.len() < 8 => {
                let slots = descriptor.slots.expect("user regions have slots");
                let at = slots.first + self.rng.below(slots.len() as u64) as u16;
                self.next_region += 1;
                RegionChange::Split { at, new_region: self.next_region }
            }
            (1..=3, Some(learner)) => {
                RegionChange::Peers(vec![PeerChange::Promote(learner), PeerChange::Demote(voter)])
            }
            (4..=5, Some(learner)) => RegionChange::Peers(vec![PeerChange::Promote(learner)]),
            (6..=7, Some(learner)) => RegionChange::Peers(vec![PeerChange::Remove(learner)]),
            (8, _) if voters.len() > 2 => RegionChange::Peers(vec![PeerChange::Demote(voter)]),
            _ => RegionChange::Peers(vec![PeerChange::AddLearner(self.rng.below(stores))]),
        }
    }

    pub fn propose(&mut self, id: StoreId, region: RegionId) -> Option<u64> {
        self.store(id).worker.as_ref()?;
        self.next_token += 1;
        let (token, payload) = (self.next_token, Bytes::copy_from_slice(&self.next_token.to_be_bytes()));
        self.input(id, Input::Propose { region, token, payload });
        Some(token)
    }

    pub fn read(&mut self, id: StoreId, region: RegionId) -> Option<u64> {
        self.store(id).worker.as_ref()?;
        self.next_token += 1;
        let must_see = match self.merged.contains_key(&region) {
            // Somebody else may have served its slots since.
            true => LogIndex::MAX,
            false => self.acknowledged.get(&region).copied().unwrap_or(0),
        };
        self.reads.insert(self.next_token, must_see);
        self.input(id, Input::ReadIndex { region, token: self.next_token });
        Some(self.next_token)
    }

    pub fn flush(&mut self, id: StoreId) {
        let clock = self.clock(id);
        let Some(worker) = &self.store(id).worker else { return };
        let regions: Vec<_> = worker.regions().collect();
        self.store(id).flushed = self.store(id).engines.clone();
        for region in regions {
            let index = self.stores[id as usize].engines.get(&region).map_or(0, |engine| engine.applied.0);
            self.input(id, Input::Flushed { region, index });
            let worker = self.stores[id as usize].worker.as_ref();
            let status = worker.and_then(|worker| worker.status(region, clock));
            if let Some(index) = status.map(|status| status.truncate_to).filter(|&index| index > 0) {
                for to in (0..self.stores.len() as u64).filter(|&to| to != id) {
                    let delay = self.rng.below(3000) * MILLISECOND;
                    self.schedule(delay, Event::Input { to, input: Input::TruncateHint { region, index } });
                    // Leaders' reports reach every store, peers or not.
                    let engine = &self.stores[id as usize].engines[&region];
                    let descriptor = engine.descriptor.clone();
                    self.schedule(
                        delay,
                        Event::Input { to, input: Input::Announced { from: id, descriptor } },
                    );
                }
            }
        }
    }

    pub fn leader(&self, region: RegionId) -> Option<StoreId> {
        let mut best: Option<(Term, StoreId)> = None;
        for (id, store) in self.stores.iter().enumerate() {
            let status = store.worker.as_ref().and_then(|worker| worker.status(region, 0));
            if let Some(status) = status.filter(|status| status.role == Role::Leader) {
                best = best.max(Some((status.term, id as u64)));
            }
        }
        best.map(|(_, id)| id)
    }

    /// Handles the next event; virtual time jumps to it.
    pub fn event(&mut self) {
        let ((at, _), event) = self.events.pop_first().expect("ticks never end");
        self.now = at;
        if let Some(store) = event.job_of().filter(|&store| self.is_paused(store)) {
            let left = self.stores[store as usize].paused_until - self.now;
            return self.schedule(left, event);
        }
        match event {
            Event::Tick { store, life } => {
                if self.store(store).life == life {
                    if !self.is_paused(store) {
                        self.input(store, Input::Tick);
                        self.turn(store);
                        let worker = self.stores[store as usize].worker.as_ref();
                        let sleeps =
                            |worker: &Worker<Disk>| worker.awake().count() < worker.regions().count();
                        self.tally.slept += u64::from(worker.is_some_and(sleeps));
                    }
                    let jitter = self.rng.below(20) * MILLISECOND;
                    self.schedule(90 * MILLISECOND + jitter, Event::Tick { store, life });
                }
            }
            Event::Input { to, input } => {
                self.input(to, input);
                if !self.is_paused(to) {
                    self.turn(to);
                }
            }
            Event::Written { store, life } => {
                if self.store(store).life != life {
                    return;
                }
                let batch = self.store(store).writing.take().expect("a batch in flight");
                self.store(store).disk.write(&batch);
                self.input(store, Input::Persisted { batch: batch.number });
                if !self.is_paused(store) {
                    self.turn(store);
                }
            }
            Event::Apply { store, life, region, entries } => {
                if self.store(store).life == life {
                    self.apply(store, region, entries);
                }
            }
            Event::Flush { store, life } => {
                if self.store(store).life == life {
                    self.flush(store);
                    self.turn(store);
                }
            }
            Event::Make { store, life, region } => {
                if self.store(store).life != life {
                    return;
                }
                let view = self.stores[store as usize].engines.get(&region).cloned();
                let input = match view.filter(|_| !self.rng.chance(10)) {
                    Some(engine) => {
                        let (index, term) = engine.applied;
                        let descriptor = engine.descriptor.clone();
                        self.store(store).made.insert(region, engine);
                        Input::SnapshotMade { region, index, term, descriptor }
                    }
                    None => Input::SnapshotFailed { region },
                };
                self.input(store, input);
                self.turn(store);
            }
            Event::Deliver { from, life, to, region, message, data } => {
                let reachable = !self.cut.contains(&(from, to)) && self.store(to).worker.is_some();
                let data = data.filter(|_| reachable && !self.rng.chance(10));
                let delivered = data.is_some();
                if let Some(data) = data {
                    self.store(to).received.insert((region, data.applied.0), data);
                    self.input(to, Input::Message { from, region, message });
                    if !self.is_paused(to) {
                        self.turn(to);
                    }
                }
                if self.store(from).life == life {
                    self.input(from, Input::SnapshotSent { region, to, delivered });
                    if !self.is_paused(from) {
                        self.turn(from);
                    }
                }
            }
            Event::Ingest { store, life, region, index, descriptor } => {
                if self.store(store).life != life {
                    return;
                }
                assert_eq!(self.stores[store as usize].received[&(region, index)].descriptor, descriptor);
                self.store(store).ingest(region, index);
                self.tally.snapshots += 1;
                // The crash may come before the log says that it is done.
                if self.rng.chance(10) {
                    self.crash(store);
                    return self.schedule(300 * MILLISECOND, Event::Restart { store });
                }
                self.store(store).disk.lives.borrow_mut().insert(region, Life::Exists(descriptor));
                self.input(store, Input::SnapshotApplied { region });
                self.turn(store);
            }
            Event::Delete { store, life, region, peer } => {
                if self.store(store).life != life {
                    return;
                }
                self.flush(store);
                if self.rng.chance(20) {
                    self.crash(store);
                    return self.schedule(300 * MILLISECOND, Event::Restart { store });
                }
                let life = Life::Tombstone(peer);
                self.store(store).disk.lives.borrow_mut().insert(region, life);
                self.tally.destroyed += 1;
                if self.rng.chance(20) {
                    self.crash(store);
                    return self.schedule(300 * MILLISECOND, Event::Restart { store });
                }
                self.store(store).engines.remove(&region);
                let delay = self.rng.below(500) * MILLISECOND;
                let life = self.store(store).life;
                self.schedule(delay, Event::Clean { store, life, region });
            }
            Event::Clean { store, life, region } => {
                if self.store(store).life != life {
                    return;
                }
                self.flush(store);
                self.store(store).disk.regions.borrow_mut().remove(&region);
                self.input(store, Input::Destroyed { region });
                self.turn(store);
            }
            Event::Resume { store } => {
                if !self.is_paused(store) {
                    for input in std::mem::take(&mut self.store(store).held_inputs) {
                        self.input(store, input);
                    }
                    self.turn(store);
                }
            }
            Event::Restart { store } => self.restart(store),
            Event::Heal => self.cut.clear(),
        }
        self.check_leases();
    }

    /// A read under a lease, on any store at this moment, sees every write that was acknowledged.
    fn check_leases(&mut self) {
        for id in 0..self.stores.len() as u64 {
            if self.is_paused(id) {
                continue;
            }
            let clock = self.clock(id);
            let store = &self.stores[id as usize];
            for (region, _) in store.leases.iter().filter(|(_, &until)| clock < until) {
                let seen = store.engines.get(region).map_or(0, |engine| engine.applied.0);
                let must_see = self.acknowledged.get(region).copied().unwrap_or(0);
                assert!(seen >= must_see, "store {id}: a lease read of {region} sees {seen}, not {must_see}");
                // What another region has of its slots, and acknowledged writes to, is not read here.
                let slots = store.engines.get(region).and_then(|engine| engine.descriptor.slots);
                let others = self.acknowledged.keys().filter(|other| *other != region);
                for other in others.filter_map(|other| self.regions.get(other)) {
                    let meets = |a: SlotRange, b: SlotRange| a.first <= b.last && b.first <= a.last;
                    let overlap = slots.zip(other.slots).is_some_and(|(a, b)| meets(a, b));
                    assert!(!overlap, "store {id}: a lease on {region} over slots of {}", other.id);
                }
                self.tally.lease_reads += 1;
            }
        }
    }

    /// Equal index and term means equal entries from there down.
    pub fn check_logs(&self) {
        for region in self.regions.values() {
            let logs: Vec<_> = self.stores.iter().map(|store| store.disk.regions.borrow()).collect();
            for (i, a) in logs.iter().enumerate() {
                for b in &logs[i + 1..] {
                    let (Some(a), Some(b)) = (a.get(&region.id), b.get(&region.id)) else { continue };
                    let mut must_match = false;
                    for (index, entry) in a.entries.iter().rev() {
                        let Some(other) = b.entries.get(index) else { continue };
                        must_match |= entry.term == other.term;
                        assert!(!must_match || entry == other, "logs of {} differ at {index}", region.id);
                    }
                }
            }
        }
    }

    pub fn run_for(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while self.events.first_key_value().is_some_and(|(&(at, _), _)| at <= end) {
            self.event();
        }
        self.now = end;
    }

    /// One client's or fate's whim.
    pub fn whim(&mut self) {
        let stores = self.stores.len() as u64;
        let nth = self.rng.below(self.regions.len() as u64) as usize;
        let region = self.regions.keys().copied().nth(nth).expect("a region");
        if self.rng.below(1000) < self.weather.merges_per_thousand {
            return self.drive_merges(region);
        }
        if self.rng.below(1000) < self.weather.changes_per_thousand {
            let change = self.some_change(region);
            if !self.is_at_liberty(region, &change) {
                return;
            }
            let id = self.leader(region).unwrap_or_else(|| self.rng.below(stores));
            self.change(id, region, change);
            if !self.is_paused(id) {
                self.turn(id);
            }
            return;
        }
        let id = match self.leader(region) {
            Some(leader) if self.rng.chance(85) => leader,
            _ => self.rng.below(stores),
        };
        if self.rng.below(1000) < self.weather.faults_per_thousand {
            let length = (50 + self.rng.below(3000)) * MILLISECOND;
            match self.rng.below(8) {
                0 | 1 => {
                    self.crash(id);
                    self.schedule(length, Event::Restart { store: id });
                }
                2 => {
                    for store in 0..stores {
                        self.crash(store);
                        self.schedule(length / (store + 1), Event::Restart { store });
                    }
                }
                3 | 4 => self.partition(id, length),
                5 => self.pause(id, length),
                _ => {
                    let to = self.rng.below(stores);
                    self.input(id, Input::TransferLeader { region, to });
                    // Sometimes the one who is told to take over stands still with the word unread.
                    if self.rng.chance(30) {
                        self.pause(to, length);
                    }
                }
            }
            if !self.is_paused(id) {
                self.turn(id);
            }
            return;
        }
        if self.rng.chance(5) {
            self.ask_a_merged_region();
        }
        match self.rng.below(10) {
            0..=4 => drop(self.propose(id, region)),
            5 | 6 => drop(self.read(id, region)),
            7 | 8 => self.input(id, Input::WantLease { region }),
            _ => self.flush(id),
        }
        if !self.is_paused(id) {
            self.turn(id);
        }
    }

    /// Ends all trouble; every store must serve, hold what was acknowledged, and agree.
    pub fn settle(&mut self) {
        self.weather = Weather::default();
        self.cut.clear();
        for store in 0..self.stores.len() as u64 {
            self.restart(store);
        }
        self.finish_merges();
        for _ in 0..8 {
            self.run_for(5_000 * MILLISECOND);
            (0..self.stores.len() as u64).for_each(|store| self.flush(store));
        }
        for region in self.regions.keys().copied().collect::<Vec<_>>() {
            // Whoever was woken by a late alarm may just be electing.
            for _ in 0..20 {
                if self.leader(region).is_none() {
                    self.run_for(500 * MILLISECOND);
                }
            }
            let leader = self.leader(region).expect("a leader");
            let token = self.propose(leader, region).expect("the leader is up");
            self.turn(leader);
            let read = self.read(leader, region).expect("the leader is up");
            self.turn(leader);
            self.run_for(2_000 * MILLISECOND);
            assert!(self.answered.contains(&token) && !self.void.contains(&token), "no progress");
            assert!(self.answered.contains(&read) && !self.void.contains(&read), "no reads");
            let descriptor = self.regions[&region].clone();
            assert!(!descriptor.is_joint(), "a joint configuration was not left");
            let ends: BTreeSet<_> = self
                .stores
                .iter()
                .enumerate()
                .filter(|&(id, _)| descriptor.has_peer_on(id as u64))
                .map(|(id, store)| {
                    let engine = store.engines.get(&region);
                    let engine = engine.unwrap_or_else(|| panic!("store {id} has no rows of {region}"));
                    assert_eq!(engine.descriptor, descriptor, "store {id}");
                    (engine.applied.0, engine.hash)
                })
                .collect();
            assert_eq!(ends.len(), 1, "not all stores caught up: {ends:?}");
            let acknowledged = self.acknowledged.get(&region).copied().unwrap_or(0);
            assert!(ends.first().unwrap().0 >= acknowledged, "an acknowledged write is gone");
            for (id, store) in self.stores.iter().enumerate() {
                let has = store.engines.contains_key(&region);
                assert_eq!(has, descriptor.has_peer_on(id as u64), "store {id} and region {region}");
            }
        }
        self.check_merged();
        self.check_logs();
    }
}
