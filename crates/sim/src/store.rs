//! A simulated store: its process, which a crash ends, and the data that survives it.
//!
//! The process does the work of a running store's threads. The worker carries out a turn's effects.
//! The log thread writes, syncs and then tells the worker. The apply thread executes waiting
//! entries and carries out their effects. Another thread carries out peer lifecycles. The flusher
//! reads the applied indexes before it flushes. A reader takes its view before it checks the lease.

mod apply;
mod checks;
mod clocks;
mod copies;
mod damage;
mod hang;
mod heartbeat;
mod lifecycle;
mod log;
mod members;
mod merged;
mod passing;
mod quarantine;
mod reads;
mod seek;
mod sessions;
mod snapshot;
mod stop;
mod unsynced;
mod weak_reads;
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cluster::{
    CheckBook, ClockLimit, Clocks, DeltaTracker, Driver, DriverConfig, Ledger, LedgerConfig, MetaState,
    Quarantine,
};
use node::bounded_staleness::Freshness;
use node::lifecycle::Step;
use node::merged::MergedWatch;
use node::reads::{Local, Proof};
use node::unsynced::Mark;
use node::{ApplyEffect, ApplyQueue, Backlog, Execution, Input, Leadership, Shard, Silence};
use replica::{Config, EntryMemory, PeerSeed, RelayCounts, Truncation, Worker};
use resp::Reply;
use storage::RegionState;
use types::{
    BootNanos, LogIndex, RegionDescriptor, RegionEpoch, RegionId, Slot, SlotRange, StoreId, Term, UnixMillis,
};

use crate::client::ConnectionId;
use crate::clock::{Clock, MILLISECOND, SECOND};
use crate::disk::Disk;
use crate::durable::{Durable, Snapshot};
use crate::observation::{Item, Observation};
use crate::world::{Event, Packet, Work, World};
pub use damage::Damaging;
pub use heartbeat::facts;
use log::ToLog;
use node::recovery::Recovered;
pub use passing::Call;
use passing::Passed;
use sessions::Connection;
pub use sessions::{Part, PartId};
pub use unsynced::{Fsync, Syncing};
use weak_reads::Reader;

/// Times of silence after which a store counts as down, and as lost.
const LEDGER: LedgerConfig = LedgerConfig { down_after_nanos: 3 * SECOND, replace_after_nanos: 8 * SECOND };

/// Maximum offset of a wall clock in milliseconds. Some jumps of the clocks are larger, and some
/// are not.
const MAX_CLOCK_OFFSET_MS: u64 = 4000;

/// Numbers of ticks after which an idle region hibernates: never, half a second, or two seconds.
const HIBERNATE_TICKS: [u32; 3] = [0, 5, 20];

/// The driver's settings. Operators must not take longer than a run.
const DRIVER: DriverConfig = DriverConfig {
    deadline_nanos: 5 * SECOND,
    data_deadline_nanos: 10 * SECOND,
    data_bytes_per_s: 4 << 20,
    repeat_nanos: 2 * SECOND,
    proposal_nanos: 2 * SECOND,
    cooldown_nanos: SECOND,
    caught_up_entries: 8,
    survey_nanos: SECOND,
};

pub struct Store {
    pub clock: Clock,
    pub durable: Durable,
    pub process: Option<Process>,
    pub slow_log_until: u64,
    /// The true time until which no write of the log returns.
    pub hung_until: u64,
    pub paused_until: u64,
    /// The time until which the device is below its reserve. Until then the store proposes no
    /// entries that add data, and reports this state.
    pub low_until: u64,
    /// The time until which the device is full. Until then nothing is written to the log or the
    /// rows.
    pub full_until: u64,
    pub fsync: Fsync,
    /// The number of times that its machine has started, and the mark in the store's directory.
    pub machine: u64,
    pub mark: Mark,
    /// True if the store never starts again.
    pub is_lost: bool,
    /// True if the store is no longer a member. It had no peers when it was removed.
    pub is_removed: bool,
    /// True if its program executes entries that order a failure like all other entries.
    pub is_upgraded: bool,
    life: u64,
}

/// A region on a store, as shared by the store's threads.
#[derive(Debug)]
pub struct Shared {
    pub descriptor: RegionDescriptor,
    /// True if the store has a peer of the region with rows.
    pub is_local: bool,
    /// True while a snapshot replaces the rows.
    is_replaced: bool,
    pub leadership: Leadership,
    pub lease: Option<BootNanos>,
    pub applied: LogIndex,
    /// The largest commit index that this store has announced to others.
    announced: LogIndex,
    pub last_stamp_ms: UnixMillis,
    lease_wanted: BootNanos,
    freshness: Freshness,
    /// The number of times that the rows were replaced or removed by means other than entries.
    replacements: u64,
    pub quarantine: Option<Quarantine>,
}

impl Local for Shared {
    type Token = u64;

    fn rows(&self) -> Option<u64> {
        let is_kept = self.quarantine.as_ref().is_some_and(|quarantine| !quarantine.read_only);
        (self.is_local && !self.is_replaced && !is_kept).then_some(self.replacements)
    }

    fn lease_holds(&self, now: BootNanos) -> bool {
        self.lease.is_some_and(|until| now < until)
    }

    fn announced(&self) -> LogIndex {
        self.announced
    }

    fn applied(&self) -> LogIndex {
        self.applied
    }

    fn slots_here(&self) -> SlotRange {
        self.descriptor.slots.unwrap_or(SlotRange::ALL)
    }

    fn version_here(&self) -> u64 {
        self.descriptor.epoch.version
    }
}

/// The source of a submission, which waits for the outcome.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    /// A client's commands, by the client's names for them.
    Part { part: PartId, items: Arc<[Item]> },
    /// The store itself, which deletes expired keys of the slot.
    Upkeep(Slot),
    /// The store itself, which deletes rows that belong to no key.
    Sweep,
    /// The store itself, which plans.
    Meta,
}

type ToShard = Input<Asker, Reader>;

pub struct Process {
    pub shard: Shard<Disk, Asker, Reader>,
    /// The log entries that the shard holds in memory, and the number of appends refused up to the
    /// last turn.
    memory: Arc<EntryMemory>,
    appends_refused: u64,
    relays: RelayCounts,
    pub regions: BTreeMap<RegionId, Shared>,
    stopping: Option<stop::Stopping>,
    inbox: VecDeque<ToShard>,
    has_turn: bool,
    connections: BTreeMap<ConnectionId, Connection>,
    /// The commands that other stores have passed on to this one, by the numbers of the calls.
    passed: BTreeMap<ConnectionId, Passed>,
    /// The parts of this store's clients that it has passed on, by the numbers of the calls.
    calls: BTreeMap<ConnectionId, PartId>,
    log: VecDeque<ToLog>,
    log_is_busy: bool,
    device: hang::DeviceWatch,
    /// True if a sync of writes that are not synced yet is due.
    has_sync: bool,
    apply_queue: ApplyQueue<Asker>,
    backlog: Backlog<Asker>,
    has_apply: bool,
    /// Steps of peer lifecycles, in order. They run in parallel with execution.
    lifecycle_steps: VecDeque<(RegionId, Step)>,
    has_life: bool,
    /// True between the deletion of the rows that a snapshot replaces and the ingestion of its own.
    is_replacing: bool,
    execution: Execution,
    /// The remaining effects of executed entries.
    applying: VecDeque<ApplyEffect<Asker>>,
    /// The regions of these entries, and the entries whose outcome a submitter on this store
    /// awaits.
    executed: Vec<RegionId>,
    acknowledged: Vec<(RegionId, LogIndex, Term)>,
    pub meta: MetaState,
    ledger: Ledger,
    driver: Driver,
    book: DeltaTracker,
    checks: CheckBook,
    silence: Silence,
    link: seek::Link,
    merged: MergedWatch,
    clocks: Clocks,
    /// The result of the last look at the clocks.
    limit: ClockLimit,
    is_clock_off: bool,
    incarnation: u64,
    seq: u64,
    made: BTreeMap<RegionId, Snapshot>,
    /// The epochs for which this store proposed changes, by token.
    expected: BTreeMap<u64, RegionEpoch>,
    /// The voters before the last changes, and the last entry for which they may still count.
    voters_before: BTreeMap<RegionId, Vec<(LogIndex, Vec<StoreId>)>>,
}

impl Shared {
    fn new(descriptor: RegionDescriptor) -> Shared {
        Shared {
            descriptor,
            is_local: false,
            is_replaced: false,
            leadership: Leadership::default(),
            lease: None,
            applied: 0,
            announced: 0,
            last_stamp_ms: 0,
            lease_wanted: 0,
            freshness: Freshness::default(),
            replacements: 0,
            quarantine: None,
        }
    }
}

impl Process {
    /// Notes a region that has rows here, with the descriptor from its rows.
    fn set_local(&mut self, descriptor: &RegionDescriptor) {
        let shared = self.regions.entry(descriptor.id).or_insert_with(|| Shared::new(descriptor.clone()));
        shared.descriptor = descriptor.clone();
        shared.is_local = true;
    }

    fn set_applied(&mut self, region: RegionId, state: &RegionState) {
        if let Some(shared) = self.regions.get_mut(&region) {
            (shared.applied, shared.last_stamp_ms) = (state.applied_index, state.last_stamp_ms);
        }
    }

    /// Notes that the region's rows were replaced.
    fn load(&mut self, descriptor: &RegionDescriptor, state: RegionState) {
        self.set_local(descriptor);
        self.set_applied(descriptor.id, &state);
        if let Some(shared) = self.regions.get_mut(&descriptor.id) {
            shared.replacements += 1;
            shared.is_replaced = false;
        }
        self.execution.load(descriptor.id, state, descriptor.slots);
    }

    /// Learns a region's descriptor from another store. It is ignored if this store has rows of the
    /// region.
    fn learn(&mut self, descriptor: &RegionDescriptor) {
        self.ledger.learn_descriptor(descriptor);
        let shared = self.regions.entry(descriptor.id).or_insert_with(|| Shared::new(descriptor.clone()));
        if !shared.is_local && descriptor.epoch.is_newer_than(shared.descriptor.epoch) {
            shared.descriptor = descriptor.clone();
        }
    }

    /// Returns the region of a slot according to the newest descriptor.
    fn region_of(&self, slot: Slot) -> Option<RegionId> {
        let of_slot = self.regions.iter().filter(|(_, shared)| shared.descriptor.contains(slot));
        of_slot.max_by_key(|(_, shared)| shared.descriptor.epoch.version).map(|(&region, _)| region)
    }
}

impl Store {
    pub fn new(clock: Clock) -> Store {
        Store {
            clock,
            durable: Durable::default(),
            process: None,
            slow_log_until: 0,
            hung_until: 0,
            paused_until: 0,
            low_until: 0,
            full_until: 0,
            fsync: Fsync::Always,
            machine: 0,
            mark: Mark::default(),
            is_lost: false,
            is_removed: false,
            is_upgraded: false,
            life: 0,
        }
    }

    pub fn is_alive(&self, life: u64) -> bool {
        self.process.is_some() && self.life == life
    }

    pub fn paused_until(&self, now: u64) -> Option<u64> {
        (self.process.is_some() && now < self.paused_until).then_some(self.paused_until)
    }

    pub fn has_rows_of(&self, region: RegionId) -> bool {
        self.process.as_ref().is_some_and(|process| process.execution.state(region).is_some())
    }

    /// Returns the regions that this store believes it leads.
    pub fn led(&self) -> Vec<RegionId> {
        let Some(process) = &self.process else { return Vec::new() };
        let leads = |region: &RegionId| {
            process.shard.status(*region, 0).is_some_and(|status| status.role == replica::Role::Leader)
        };
        process.shard.regions().filter(leads).collect()
    }
}

/// Bytes of log entries that a store holds in memory.
const ENTRY_MEMORY_BYTES: u64 = 1024;
/// Maximum size of a leader's uncommitted proposals, in bytes. The proposal that exceeds it is not
/// counted.
const UNCOMMITTED_BYTES: u64 = 4096;
/// Maximum size of the entries in memory: the budget, the proposals beyond it, and two entries that
/// exceed either.
pub(super) const ENTRIES_HELD_MAX: u64 = ENTRY_MEMORY_BYTES + UNCOMMITTED_BYTES + 2 * 1024;
/// Bytes by which two pipelines of pushes are larger.
pub(super) const PUSHED_BYTES: u64 = 2 * 2048;

/// Maximum number of bytes that wait to be executed. Above it, no more entries are handed out.
const EXECUTION_BYTES: u64 = 1500;

fn config(store: StoreId, seed: u64, window: u64) -> Config {
    Config {
        max_uncommitted_entries: window,
        max_message_bytes: 512,
        max_inflight_messages: 8,
        max_uncommitted_bytes: UNCOMMITTED_BYTES,
        max_apply_bytes: 1024,
        hibernate_ticks: HIBERNATE_TICKS[(seed % 3) as usize],
        entry_memory_bytes: ENTRY_MEMORY_BYTES,
        truncation: Truncation {
            keep_entries: 6,
            keep_bytes: 1 << 20,
            step_entries: 4,
            step_bytes: 1 << 20,
            lag_bytes: 2500,
        },
        ..Config::new(store, seed)
    }
}

impl Process {
    /// Returns the bytes of committed entries that wait for their execution.
    pub(crate) fn bytes_to_apply(&self) -> u64 {
        self.apply_queue.bytes()
    }

    pub(super) fn room(&self) -> u64 {
        EXECUTION_BYTES.saturating_sub(self.bytes_to_apply())
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

    /// Starts the store. Recovery reads only the disk and the rows.
    pub fn start(&mut self, id: StoreId) {
        if self.is_absent(id) {
            return;
        }
        let (now, seed, layout) = (self.now, self.seed, self.layout.clone());
        self.damage_at_start(id);
        let store = self.store_mut(id);
        if store.process.is_some() || store.is_lost || store.is_removed {
            return;
        }
        if store.durable.disk.recover().is_err() {
            // An acknowledged tail is damaged, so the store never starts again.
            store.is_lost = true;
            return;
        }
        store.life += 1;
        // A running store uses its wall clock. Here two starts may happen within the same
        // millisecond.
        let incarnation = store.clock.wall_ms(now) * 1000 + store.life % 1000;
        let boot = store.clock.boot(now);
        // The next process syncs the writes of a killed one.
        store.durable.disk.sync();
        let known = store.mark.damaged.clone();
        let Recovered { mut seeds, tombstones, marks, damages } = match store.durable.recover(id, &known) {
            Ok(recovered) => recovered,
            Err(what) => return self.violate("recovery", format!("store {id}: {what}")),
        };
        // A quarantine is over once its end is recorded or a snapshot has replaced the rows. The
        // store may have crashed before it reported the end.
        let disk = &store.durable.disk;
        let is_over = |seed: &&PeerSeed| {
            let applied = seed.applied.map_or(0, |(index, _)| index);
            let held = disk.mark(seed.descriptor.id).and_then(|mark| mark.held);
            held.is_none_or(|held| held.index <= applied)
        };
        let over: Vec<RegionId> = seeds.iter().filter(is_over).map(|seed| seed.descriptor.id).collect();
        for region in over {
            self.observe(&Observation::Released { store: id, region });
        }
        let store = self.store_mut(id);
        store.mark = store.mark.noting(&damages.unclean);
        let (damaged, healed) = (damages.unclean.len() as u64, damages.harmless.len() as u64);
        if damaged + healed > 0 && self.crashes_in_repair(id) {
            return;
        }
        let (window, elections, replication) = (self.plan.window, self.elections(), self.replication());
        let store = self.store_mut(id);
        store.durable.disk.repair(damages.repairs);
        let machine = store.machine.to_string();
        store.mark.judge(&machine, id, &mut seeds);
        let peers = seeds.clone();
        let gone = tombstones.clone();
        let worker = match Worker::new(
            Config { elections, replication, ..config(id, seed, window) },
            store.durable.disk.clone(),
            seeds,
            tombstones,
            boot,
        ) {
            Ok(worker) => worker,
            Err(fatal) => return self.violate("recovery", format!("store {id}: {fatal}")),
        };
        let acknowledges_unsynced = (store.fsync != Fsync::Always).then_some(machine.as_str());
        store.mark = store.mark.started(acknowledges_unsynced, worker.unclean(), &gone);
        let unclean = store.mark.unclean.len() as u64;
        let mut process = Process {
            memory: worker.entry_memory(),
            appends_refused: 0,
            relays: RelayCounts::default(),
            shard: Shard::new(worker),
            regions: BTreeMap::new(),
            stopping: None,
            inbox: VecDeque::new(),
            has_turn: false,
            connections: BTreeMap::new(),
            passed: BTreeMap::new(),
            calls: BTreeMap::new(),
            log: VecDeque::new(),
            log_is_busy: false,
            device: hang::DeviceWatch::default(),
            has_sync: false,
            apply_queue: ApplyQueue::default(),
            backlog: Backlog::default(),
            has_apply: false,
            lifecycle_steps: VecDeque::new(),
            has_life: false,
            is_replacing: false,
            execution: Execution::new(id, !store.is_upgraded),
            applying: VecDeque::new(),
            executed: Vec::new(),
            acknowledged: Vec::new(),
            meta: MetaState::default(),
            ledger: Ledger::new(boot, LEDGER),
            driver: Driver::new(DRIVER),
            book: DeltaTracker::default(),
            checks: CheckBook::default(),
            silence: Silence::default(),
            link: seek::Link::new(id),
            merged: MergedWatch::default(),
            clocks: Clocks::new(MAX_CLOCK_OFFSET_MS),
            limit: ClockLimit::NONE,
            is_clock_off: false,
            incarnation,
            seq: 0,
            made: BTreeMap::new(),
            expected: BTreeMap::new(),
            voters_before: BTreeMap::new(),
        };
        for descriptor in &layout {
            process.learn(descriptor);
        }
        for peer in peers {
            process.learn(&peer.descriptor);
            if let Some((state, descriptor)) = store.durable.described(peer.descriptor.id) {
                process.load(&descriptor, state);
            }
        }
        store.process = Some(process);
        self.tally.unclean += unclean;
        self.tally.damaged += damaged;
        self.tally.damage_healed += healed;
        self.load_meta(id);
        self.load_marks(id, marks);
        self.show_recovered(id);
        self.say(&format!("store {id} starts"));
        for work in [Work::Turn, Work::Tick, Work::Heartbeat, Work::Flush] {
            let delay = self.rng.below(50 * MILLISECOND);
            self.schedule_work(id, delay, work);
        }
    }

    /// Shows the invariants the recovered logs. Unsynced entries that survived are durable from now
    /// on.
    fn show_recovered(&mut self, id: StoreId) {
        let disk = self.stores[&id].durable.disk.clone();
        for region in disk.regions() {
            let entries: Vec<_> = disk.with(region, |log| log.entries.values().cloned().collect());
            let before = Some(disk.with(region, |log| log.truncated.1));
            self.observe(&Observation::Synced { store: id, region, entries: &entries, before });
        }
    }

    /// Loads the cluster's state from this store's rows.
    fn load_meta(&mut self, id: StoreId) {
        match MetaState::load(&self.stores[&id].durable.engine) {
            Ok(meta) => {
                if let Some(process) = self.process(id) {
                    process.meta = meta;
                }
            }
            Err(error) => self.violate("recovery", format!("store {id}: {error}")),
        }
    }

    /// Lets the store crash here, with the probability of the plan. Returns true if it crashed.
    fn may_crash(&mut self, id: StoreId, where_: &'static str) -> bool {
        if self.plan.is_over || !self.rng.chance(self.plan.step_crash_percent) {
            return false;
        }
        self.tally.fault(where_);
        self.say(&format!("{where_}: store {id}"));
        self.crash(id, false);
        let down = self.rng.between(100, 1500) * MILLISECOND;
        self.schedule(down, Event::Start { store: id });
        true
    }

    /// Ends the process. If the machine loses power, its clock restarts as well.
    pub fn crash(&mut self, id: StoreId, is_power: bool) {
        let (now, mut rng) = (self.now, self.rng.clone());
        let store = self.store_mut(id);
        let Some(process) = store.process.take() else { return };
        match store.fsync {
            Fsync::EverySecond | Fsync::Never if !is_power => {
                store.durable.disk.kill(process.log_is_busy && rng.chance(50));
            }
            _ => store.durable.disk.crash(&mut rng),
        }
        store.machine += u64::from(is_power);
        store.durable.engine.crash();
        store.paused_until = 0;
        (store.slow_log_until, store.hung_until) = (0, 0);
        if is_power {
            store.clock.reboot(now);
        }
        self.rng = rng;
        if process.stopping.is_some() {
            self.observe(&Observation::StopEnded { store: id, unanswered: 0, has_waited: false });
        }
        self.reset_clients(id);
    }

    pub(crate) fn work(&mut self, id: StoreId, work: Work) {
        match work {
            Work::Tick => self.tick(id),
            Work::Turn => self.turn(id),
            Work::Logged => self.logged(id),
            Work::Sync => self.sync(id),
            Work::Apply => self.apply(id),
            Work::Flush => self.flush(id),
            Work::Flushed { applied, memtables } => self.flushed(id, applied, memtables),
            Work::Heartbeat => self.heartbeat(id),
            Work::Stop => self.stop_step(id),
            Work::Refuse { part } => self.refuse(id, part),
            Work::Own { part } => self.answer_part(id, part, vec![Reply::Simple("PONG".into())]),
            Work::AwaitCopy { part, max, arrived } => self.await_copy(id, part, max, arrived),
            Work::TellApplied { to, question, index } => {
                self.send(id, to, Packet::Applied { question, index })
            }
            Work::NoAnswer { question } => self.no_answer(id, question),
            Work::NoReplies { call } => self.no_replies(id, call),
            Work::View { part, read } => self.take_view(id, part, read),
            Work::Read { part, replies, read_ms, read } => self.viewed(id, part, (replies, read_ms), &read),
            Work::Nothing { part, views, read } => self.found_nothing(id, part, views, &read),
            Work::ProvenRead { part } => self.read_rows(id, part, Proof::AlreadyThere),
            Work::ReadLog { region, number, low, high, max_bytes } => {
                self.read_log(id, region, number, (low, high, max_bytes))
            }
            Work::MakeSnapshot { region } => self.make_snapshot(id, region),
            Work::SnapshotMade { snapshot } => self.snapshot_made(id, snapshot),
            Work::Checked { view, number, replaced } => self.checked(id, *view, number, replaced),
            Work::SnapshotSent { region, to, message, made } => {
                self.snapshot_sent(id, region, to, *message, made)
            }
            Work::Life => self.live(id),
            Work::FlushSoon => self.flush_now(id),
            Work::CoordinatorMessage(news) => self.hear_coordinator(id, news),
            Work::LearnElections => self.input(id, replica::Input::SetElections(self.elections())),
            Work::LearnReplication => {
                self.input(id, replica::Input::SetReplication(self.replication()));
            }
            Work::DamageRecorded { region } => self.damage_recorded(id, region),
        }
    }

    pub(crate) fn process(&mut self, id: StoreId) -> Option<&mut Process> {
        self.store_mut(id).process.as_mut()
    }

    pub(crate) fn boot(&self, id: StoreId) -> BootNanos {
        self.stores[&id].clock.boot(self.now)
    }

    /// Shows the invariants every store whose clock is below a lease's end. It would now answer
    /// from its rows.
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
            self.observe(&Observation::Leased { store, region, applied });
        }
    }
}
