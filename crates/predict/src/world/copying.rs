//! Copies of regions to another store, and removals: what `server::snapshot` and
//! `server::executor::lifecycle` do, file by file and sync by sync.
//!
//! ```text
//! copy     the learner's creation is logged ─▶ a sender of the leader: view, scan, sent, written
//!          ─▶ the log takes it in, the learner has caught up ─▶ lives: flush, ingest ─▶ it applies
//! removal  lives: flush, tombstone, rows deleted, flush, log deleted ─▶ maker: reclaim
//! ```
//!
//! Some threads of a store send snapshots. One thread, the maker, reclaims space. Another, `lives`,
//! takes in snapshots and deletes peers. Each thread does one thing at a time, and requests wait
//! for their turn.

use std::collections::VecDeque;

use super::background::{Job, CHUNK_BYTES};
use super::{Event, RegionAt, StoreAt, World};
use crate::device::Queues;

/// Number of copies that a store sends at a time (`server::snapshot::Limits`).
const SENDERS: usize = 4;

/// The maximum rate of a copy in bytes per second (`server::snapshot::Limits`).
const COPY_BYTES_PER_S: u64 = 100 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thread {
    Sender,
    Maker,
    Lifecycle,
}

impl Thread {
    /// Returns the number of such threads that a store has.
    fn count(self) -> usize {
        match self {
            Thread::Sender => SENDERS,
            Thread::Maker | Thread::Lifecycle => 1,
        }
    }
}

/// Threads that do one thing at a time, and the scripts that wait for one.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    taken: usize,
    waiting: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(StoreAt, Thread),
    Leave(StoreAt, Thread),
    /// Reads rows at the source and writes their files at the target.
    Carry(u64),
    Sync(StoreAt),
    Flush(StoreAt),
    Reclaim(StoreAt),
    /// Asks the region's present leader for a snapshot.
    Ask,
    /// Fixes the snapshot's contents: what is applied at this moment.
    View,
    Delivered,
    Loaded,
}

/// Syncs after the file of rows (`server::snapshot::streamed`): the file of the region's own rows,
/// the manifest, its directory, the directory above, and the log that takes in the snapshot.
const RECEIVED_SYNCS: usize = 5;
/// Syncs of an ingest: the files, their directory, RocksDB's manifest, and the peer's state in the
/// log.
const INGEST_SYNCS: usize = 4;

pub(super) struct Script {
    region: RegionAt,
    /// The store that sends the copy or deletes the peer.
    from: StoreAt,
    to: StoreAt,
    /// The region's part of all keys.
    part: f64,
    steps: VecDeque<Step>,
    /// The snapshot's index in the log, and its bytes.
    index: u32,
    bytes: u64,
}

impl World<'_> {
    pub(super) fn start_copy(&mut self, region: RegionAt, to: StoreAt) {
        // The creation of the peer is logged before it answers.
        let steps = [Step::Sync(to), Step::Ask];
        self.start_script(region, self.regions[region].leader, to, steps.into());
    }

    pub(super) fn start_removal(&mut self, region: RegionAt, store: StoreAt) {
        use Thread::{Lifecycle, Maker};
        let steps = [
            Step::Take(store, Lifecycle),
            Step::Flush(store),
            // The tombstone.
            Step::Sync(store),
            Step::Flush(store),
            // The deletion of the log.
            Step::Sync(store),
            Step::Leave(store, Lifecycle),
            Step::Take(store, Maker),
            Step::Reclaim(store),
            Step::Leave(store, Maker),
        ];
        self.start_script(region, store, store, steps.into());
    }

    fn start_script(&mut self, region: RegionAt, from: StoreAt, to: StoreAt, steps: VecDeque<Step>) {
        let slots = self.question.regions[region].slots.len() as f64;
        let part = slots / f64::from(types::SLOT_COUNT);
        self.start(Job::Script(Script { region, from, to, part, steps, index: 0, bytes: 0 }));
    }

    /// Performs steps until one takes time or waits.
    pub(super) fn perform(&mut self, id: usize, mut script: Script) {
        while let Some(step) = script.steps.pop_front() {
            if let Some(until) = self.step_of(id, &mut script, step) {
                self.jobs.insert(id, Job::Script(script));
                if let Some(done) = until {
                    self.schedule(done, Event::Background(id));
                }
                return;
            }
        }
    }

    /// Performs one step. Returns `None` if it is done, `Some(Some(time))` if it ends at that time,
    /// and `Some(None)` if another event resumes the script.
    fn step_of(&mut self, id: usize, script: &mut Script, step: Step) -> Option<Option<u64>> {
        let sync_part = self.question.tuning.background_sync_part;
        let Script { region, from, to, .. } = *script;
        let now = self.now;
        match step {
            Step::Take(store, thread) => {
                let turns = self.stores[store].turns(thread);
                if turns.taken == thread.count() {
                    turns.waiting.push_back(id);
                    return Some(None);
                }
                turns.taken += 1;
                None
            }
            Step::Leave(store, thread) => {
                let turns = self.stores[store].turns(thread);
                match turns.waiting.pop_front() {
                    Some(next) => self.schedule(now, Event::Background(next)),
                    None => turns.taken -= 1,
                }
                None
            }
            Step::Carry(left) => {
                let bytes = CHUNK_BYTES.min(left);
                rest(script, left - bytes, Step::Carry);
                let read = self.stores[from].device.read(now, bytes, true);
                let written = Queues::buffered(self.stores[to].device.write(read, bytes));
                Some(Some(written.max(now + bytes * super::SECOND / COPY_BYTES_PER_S)))
            }
            Step::Sync(store) => Some(Some(self.stores[store].device.sync(now, sync_part))),
            Step::Flush(store) => {
                let memtable = self.stores[store].tree.seal_for_flush();
                self.stores[store].flushes.push((memtable, id));
                self.start_background(store);
                Some(None)
            }
            Step::Reclaim(store) => {
                self.stores[store].reclaims.push_back((script.part, id));
                self.start_background(store);
                Some(None)
            }
            Step::Ask => {
                script.from = self.regions[region].leader;
                script.steps = [Step::Take(script.from, Thread::Sender), Step::View].into();
                None
            }
            Step::View => {
                let log = &mut self.regions[region];
                script.bytes = log.bytes;
                let committed = log.committed;
                script.index = log.peer(from).map_or(committed, |peer| peer.applied);
                script.steps = copy(from, to, script.bytes);
                None
            }
            Step::Delivered => {
                self.delivered(region, to, script.index);
                None
            }
            Step::Loaded => {
                self.stores[to].tree.ingest(script.bytes);
                self.loaded(region, to);
                None
            }
        }
    }

    /// Resumes the scripts whose flushes are done.
    pub(super) fn wake_flushed(&mut self, store: StoreAt) {
        let flushed = self.stores[store].tree.flushed;
        let waiting = std::mem::take(&mut self.stores[store].flushes);
        let (done, left) = waiting.into_iter().partition(|(memtable, _)| *memtable <= flushed);
        self.stores[store].flushes = left;
        let done: Vec<(u32, usize)> = done;
        for (_, id) in done {
            self.schedule(self.now, Event::Background(id));
        }
    }
}

/// Returns the steps from the view of the region's rows to the learner that has them.
fn copy(from: StoreAt, to: StoreAt, bytes: u64) -> VecDeque<Step> {
    use Thread::{Lifecycle, Sender};
    let syncs = |store: StoreAt, count: usize| (0..count).map(move |_| Step::Sync(store));
    // The offer is written before it is answered.
    let mut steps = VecDeque::from([Step::Sync(to), Step::Carry(bytes), Step::Sync(to)]);
    steps.extend(syncs(to, RECEIVED_SYNCS));
    steps.push_back(Step::Leave(from, Sender));
    steps.extend([Step::Delivered, Step::Take(to, Lifecycle), Step::Flush(to)]);
    steps.extend(syncs(to, INGEST_SYNCS));
    steps.extend([Step::Loaded, Step::Leave(to, Lifecycle)]);
    steps
}

/// Puts the rest of a step back in front.
fn rest(script: &mut Script, left: u64, step: impl FnOnce(u64) -> Step) {
    if left > 0 {
        script.steps.push_front(step(left));
    }
}

impl super::Store {
    fn turns(&mut self, thread: Thread) -> &mut Turns {
        match thread {
            Thread::Sender => &mut self.senders,
            Thread::Maker => &mut self.maker,
            Thread::Lifecycle => &mut self.lifecycle,
        }
    }
}
