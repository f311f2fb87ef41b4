//! The simulation: one virtual clock and a queue of events.
//!
//! ```text
//! thread ─Arrive─▶ leader ─ read: row cache, memtable, or device ─▶ Answer
//!                    │ write: waits while a log batch is in progress, then one entry per region
//!                    ├─ Append ─▶ followers: their own batch ─ Ack ─▶ ┐
//!                    └─ LogWritten, LogSynced, LogMarked ─────────────┴▶ commit ─▶ apply ─▶ Answer
//!                                                                       └─ Commit ─▶ followers
//! ```
//!
//! There is a file for each thread of a store: `log` (the worker and the log thread), `apply`,
//! `background` (flushes and compactions) and `copying` (snapshots of regions). `placing` and
//! `moving` do planning rounds and carry out operators, `client` generates the load, and `measure`
//! collects results.

mod apply;
mod background;
mod client;
mod copying;
mod log;
mod measure;
mod moving;
mod placing;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use placement::{ClusterView, Policy};
use storage::tier::CACHE_ENTRY_OVERHEAD_BYTES;
use types::RegionId;

use crate::answer::Prediction;
use crate::blocks::{blocks_of, BlockCache};
use crate::cache::RowCache;
use crate::device::Queues;
use crate::draw::{popular, slot_of, Draw, Kind};
use crate::tree::Tree;
use crate::{PredictError, Question, Workload};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Positions in the question's lists.
pub(crate) type StoreAt = usize;
pub(crate) type RegionAt = usize;
pub(crate) type ThreadAt = usize;

/// Bytes of a row besides its value: space, slot, table, database, hash, lengths, key and the head
/// of the value (docs/FORMAT.md). Counted in stores: 1084 bytes for a value of 1024 with a key of
/// 16.
const ROW_OVERHEAD_BYTES: u64 = 60;
/// Bytes of a log entry besides its commands: its head, and its part of the batch's framing.
const ENTRY_OVERHEAD_BYTES: u64 = 64;
/// Time without any activity after which the cluster counts as being at rest
/// (`reproduce::laboratory::settle`).
const REST_QUIET: u64 = 2 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Issue(ThreadAt),
    Arrive(ThreadAt),
    Serve(ThreadAt),
    ReadDone(ThreadAt),
    Answer(ThreadAt),
    LogWritten(StoreAt),
    LogSynced(StoreAt),
    LogMarked(StoreAt),
    Append {
        store: StoreAt,
        region: RegionAt,
        end: u32,
    },
    Ack {
        region: RegionAt,
        from: StoreAt,
        end: u32,
    },
    Commit {
        store: StoreAt,
        region: RegionAt,
        end: u32,
    },
    ApplyRead(StoreAt, u32),
    Applied(StoreAt),
    Background(usize),
    Round,
    /// Every store flushes, so that its Raft log can be truncated.
    FlushAll,
}

/// The operation that a thread waits for.
#[derive(Clone, Copy, Debug)]
struct Operation {
    kind: Kind,
    record: u32,
    began: u64,
    /// It began after the warm-up.
    counts: bool,
}

/// One command in an entry.
#[derive(Clone, Copy, Debug)]
struct Write {
    record: u32,
    thread: u32,
    inserts: bool,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    writes: Vec<Write>,
    bytes: u64,
}

/// A peer. Its state is counted in entries of the region's log.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    store: StoreAt,
    voter: bool,
    /// Its rows have not arrived yet, so nothing is given to its apply thread.
    loading: bool,
    /// Entries sent to it.
    sent: u32,
    persisted: u32,
    /// Entries persisted as far as the leader knows.
    acknowledged: u32,
    /// Entries committed as far as the peer knows.
    committed: u32,
    /// Entries given to its apply thread.
    handed: u32,
    applied: u32,
}

impl Peer {
    /// A peer that has all of the log up to an entry.
    fn at(store: StoreAt, end: u32) -> Peer {
        Peer {
            store,
            sent: end,
            persisted: end,
            acknowledged: end,
            committed: end,
            handed: end,
            applied: end,
            ..Peer::default()
        }
    }
}

struct Region {
    id: RegionId,
    leader: StoreAt,
    peers: Vec<Peer>,
    entries: Vec<Entry>,
    committed: u32,
    answered: u32,
    /// Bytes of the rows that the leader has applied, and the number of entries that they come
    /// from.
    bytes: u64,
    sized: u32,
    reads: u64,
    misses: u64,
    writes: u64,
    rates: placing::Rates,
}

impl Region {
    fn peer(&mut self, store: StoreAt) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.store == store)
    }

    /// Counts the region's bytes by what its leader has applied. After a change of leaders this may
    /// be less than before.
    fn size(&mut self, row_bytes: u64) {
        let leader = self.leader;
        let Some(applied) = self.peer(leader).map(|peer| peer.applied) else { return };
        let (first, last) = (applied.min(self.sized) as usize, applied.max(self.sized) as usize);
        let writes = self.entries[first..last].iter().flat_map(|entry| &entry.writes);
        let bytes = writes.filter(|write| write.inserts).count() as u64 * row_bytes;
        self.bytes = if applied > self.sized { self.bytes + bytes } else { self.bytes - bytes };
        self.sized = applied;
    }

    fn end(&self) -> u32 {
        self.entries.len() as u32
    }
}

struct Store {
    device: Queues,
    /// The time at which each of the store's own CPUs is free.
    cpus: Vec<u64>,
    /// Commands that wait for the current log batch to end.
    queue: Vec<(RegionAt, ThreadAt)>,
    /// Entries from leaders that wait for the current log batch to end: the last one by region.
    incoming: BTreeMap<RegionAt, u32>,
    batch: Option<Vec<(RegionAt, u32)>>,
    to_apply: VecDeque<(RegionAt, u32, u32)>,
    to_apply_bytes: u64,
    turn: Option<apply::Turn>,
    tree: Tree,
    cache: RowCache,
    blocks: BlockCache,
    /// By record: the number of the memtable in which it was last written. 0: never.
    written_in: Vec<u32>,
    /// The rows in memtables, with the number of the memtable, oldest first.
    in_memtables: VecDeque<(u32, u32)>,
    senders: copying::Turns,
    maker: copying::Turns,
    lifecycle: copying::Turns,
    /// Scripts that wait for a flush of a memtable, and scripts that wait for space to be
    /// reclaimed, with the part of all keys.
    flushes: Vec<(u32, usize)>,
    reclaims: VecDeque<(f64, usize)>,
    counts: measure::Counts,
}

pub(crate) struct World<'a> {
    question: &'a Question,
    policy: Policy,
    now: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    stores: Vec<Store>,
    regions: Vec<Region>,
    /// By record.
    region_of: Vec<u16>,
    block_of: Vec<u32>,
    /// Set if the question gives weights to regions: the records of each region, and the running
    /// sums of the weights.
    weighted: Option<(Vec<Vec<u32>>, Vec<f64>)>,
    /// The time at which each CPU is free, if stores and the client share CPUs.
    cpus: Vec<u64>,
    cpu_ns: u64,
    jobs: BTreeMap<usize, background::Job>,
    next_job: usize,
    /// Operators in flight, at most one per region.
    moving: BTreeMap<RegionAt, moving::Move>,
    planning: placing::Planning,
    shedding: Vec<bool>,
    moves: u64,
    draw: Draw,
    /// Random numbers for events other than the clients' choices.
    chance: Draw,
    phase: client::Progress,
    row_bytes: u64,
}

pub(crate) fn run(
    question: &Question,
    policy: Policy,
    workloads: &[Workload],
) -> Result<Prediction, PredictError> {
    let mut world = World::new(question, policy);
    world.come_to_rest()?;
    world.schedule(world.period(), Event::Round);
    let first = world.chance.below(world.flush_period());
    world.schedule(first, Event::FlushAll);
    let mut phases = Vec::new();
    for workload in workloads {
        phases.push(world.phase(*workload));
        world.rest();
    }
    Ok(Prediction { policy, phases, layout: world.layout(), stores: world.holdings(), moves: world.moves })
}

impl<'a> World<'a> {
    fn new(question: &'a Question, policy: Policy) -> World<'a> {
        let Question { stores, regions, load, tuning, processors, .. } = question;
        let at = |id| stores.iter().position(|store| store.id == id).expect("checked");
        let row_bytes = load.value_bytes + ROW_OVERHEAD_BYTES;
        let block_bytes = tuning.block_read_bytes(row_bytes);
        let own_cpus = if processors.shared { 0 } else { processors.cpus };
        let store = |store: &crate::Store| Store {
            device: Queues::new(store.device).with_rows(load.records, row_bytes, block_bytes),
            cpus: vec![0; own_cpus],
            queue: Vec::new(),
            incoming: BTreeMap::new(),
            batch: None,
            to_apply: VecDeque::new(),
            to_apply_bytes: 0,
            turn: None,
            tree: Tree::new(tuning),
            cache: RowCache::new(
                load.records,
                tuning.row_cache_bytes,
                row_bytes + CACHE_ENTRY_OVERHEAD_BYTES,
            ),
            blocks: BlockCache::new(tuning.block_cache_bytes, row_bytes, block_bytes),
            written_in: vec![0; load.records as usize],
            in_memtables: VecDeque::new(),
            senders: copying::Turns::default(),
            maker: copying::Turns::default(),
            lifecycle: copying::Turns::default(),
            flushes: Vec::new(),
            reclaims: VecDeque::new(),
            counts: measure::Counts::default(),
        };
        let region = |region: &crate::Region| Region {
            id: region.id,
            leader: at(region.leader),
            peers: region
                .peers
                .iter()
                .map(|store| Peer { store: at(*store), voter: true, ..Peer::default() })
                .collect(),
            entries: Vec::new(),
            committed: 0,
            answered: 0,
            bytes: region.bytes,
            sized: 0,
            reads: 0,
            misses: 0,
            writes: 0,
            rates: placing::Rates::default(),
        };
        let mut world = World {
            question,
            policy,
            now: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            stores: stores.iter().map(store).collect(),
            regions: regions.iter().map(region).collect(),
            region_of: regions_of(question),
            block_of: blocks_of(load.records, block_bytes / row_bytes.max(1)),
            weighted: None,
            cpus: vec![0; if processors.shared { processors.cpus } else { 0 }],
            cpu_ns: 0,
            jobs: BTreeMap::new(),
            next_job: 0,
            moving: BTreeMap::new(),
            planning: placing::Planning::default(),
            shedding: vec![false; stores.len()],
            moves: 0,
            draw: Draw::new(question.seed),
            chance: Draw::new(!question.seed),
            phase: client::Progress::default(),
            row_bytes,
        };
        world.weighted = world.weights();
        for store in 0..world.stores.len() {
            let files = world.chance.below(tuning.level0_trigger.min(tuning.level0_stop) as u64) as u32;
            let part = world.chance.fraction();
            world.stores[store].tree.begin(files, part);
        }
        for region in 0..world.regions.len() {
            let bytes = world.regions[region].bytes;
            for peer in world.regions[region].peers.clone() {
                world.stores[peer.store].tree.ingest(bytes);
            }
        }
        world
    }

    fn weights(&self) -> Option<(Vec<Vec<u32>>, Vec<f64>)> {
        if self.question.regions.iter().all(|region| region.weight.is_none()) {
            return None;
        }
        let mut records = vec![Vec::new(); self.regions.len()];
        for (record, region) in self.region_of.iter().enumerate() {
            records[usize::from(*region)].push(record as u32);
        }
        let mut sum = 0.0;
        let sums = self.question.regions.iter().zip(&records).map(|(region, records)| {
            // A region without records cannot receive operations.
            let weight = region.weight.filter(|weight| weight.is_finite() && *weight > 0.0);
            sum += if records.is_empty() { 0.0 } else { weight.unwrap_or(0.0) };
            sum
        });
        let sums: Vec<f64> = sums.collect();
        (sum > 0.0).then_some((records, sums))
    }

    /// Draws the record of the next read or update.
    fn choose(&mut self) -> u32 {
        match &self.weighted {
            None => popular(self.question.load.records, &mut self.draw) as u32,
            Some((records, sums)) => {
                let at = self.draw.fraction() * sums[sums.len() - 1];
                let region = sums.partition_point(|sum| *sum <= at).min(records.len() - 1);
                let records = &records[region];
                records[popular(records.len() as u64, &mut self.draw) as usize]
            }
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at.max(self.now), self.sequence, event)));
    }

    fn step(&mut self) -> bool {
        let Some(Reverse((at, _, event))) = self.events.pop() else { return false };
        self.now = at;
        match event {
            Event::Issue(thread) => self.issue(thread),
            Event::Arrive(thread) => self.arrive(thread),
            Event::Serve(thread) => self.serve(thread),
            Event::ReadDone(thread) => self.read_done(thread),
            Event::Answer(thread) => self.answered(thread),
            Event::LogWritten(store) => self.log_written(store),
            Event::LogSynced(store) => self.log_synced(store),
            Event::LogMarked(store) => self.log_marked(store),
            Event::Append { store, region, end } => self.append(store, region, end),
            Event::Ack { region, from, end } => self.acknowledged(region, from, end),
            Event::Commit { store, region, end } => self.learn_commit(store, region, end),
            Event::ApplyRead(store, record) => self.apply_read(store, record),
            Event::Applied(store) => self.applied(store),
            Event::Background(job) => self.work(job),
            Event::Round => {
                self.round();
                self.schedule(self.now + self.period(), Event::Round);
            }
            Event::FlushAll => self.flush_all(),
        }
        true
    }

    /// Takes CPU time for an operation at a store. Returns the time at which it is done.
    fn compute(&mut self, store: StoreAt, nanos: u64) -> u64 {
        let shared = self.question.processors.shared;
        let free = if shared { &mut self.cpus } else { &mut self.stores[store].cpus };
        // The CPUs that are always busy slow down all CPUs equally.
        let left = (1.0 - self.question.processors.idle / free.len().max(1) as f64).max(0.05);
        let Some(first) = free.iter_mut().min() else { return self.now };
        *first = self.now.max(*first) + (nanos as f64 / left) as u64;
        let done = *first;
        if shared {
            self.cpu_ns += nanos;
        } else {
            self.stores[store].counts.cpu_ns += nanos;
        }
        done
    }

    /// Runs until nothing has moved, lagged or been flushed or compacted for a while, or until the
    /// maximum time for rest is over.
    fn rest(&mut self) {
        let most = self.now + self.question.load.rest_at_most_ns;
        let mut quiet_since = self.now;
        while self.now < most && self.now - quiet_since < REST_QUIET {
            if !self.step() {
                return;
            }
            if !self.moving.is_empty() || !self.jobs.is_empty() || self.lags() {
                quiet_since = self.now;
            }
        }
    }

    /// Brings the layout to rest without load. This takes no simulated time, since nothing is
    /// measured meanwhile.
    fn come_to_rest(&mut self) -> Result<(), PredictError> {
        let rested = crate::layout::settle(self.resting_view(), self.policy)?;
        self.moves += rested.operators.len() as u64;
        self.adopt(&rested.view);
        Ok(())
    }

    fn lags(&self) -> bool {
        self.regions.iter().any(|region| region.peers.iter().any(|peer| peer.applied < region.end()))
    }

    fn resting_view(&self) -> ClusterView {
        let mut view = self.view();
        view.in_flight.clear();
        for region in &mut view.regions {
            (region.write_rate, region.write_bytes_rate) = (0.0, 0.0);
            (region.read_rate, region.miss_rate) = (0.0, 0.0);
        }
        view
    }
}

/// Returns the region of each record.
fn regions_of(question: &Question) -> Vec<u16> {
    let mut by_slot = vec![0u16; usize::from(types::SLOT_COUNT)];
    for (at, region) in question.regions.iter().enumerate() {
        for slot in region.slots.first..=region.slots.last {
            by_slot[usize::from(slot)] = at as u16;
        }
    }
    (0..question.load.records).map(|record| by_slot[usize::from(slot_of(record))]).collect()
}
