//! The load: threads that send an operation, wait for the answer, and send the next, as YCSB's do.

use super::{Event, Operation, StoreAt, ThreadAt, World, SECOND};
use crate::draw::{kind, Kind};
use crate::Workload;

/// Time without an answer after which a phase ends: an operation waits for something that will not
/// happen.
const STUCK: u64 = 600 * SECOND;

pub(super) struct Progress {
    workload: Workload,
    began: u64,
    /// No operation begins after this, and none that is answered later counts.
    deadline: u64,
    last_answer: u64,
    /// Operations still to begin, including the warm-up.
    left: u64,
    warming: u64,
    running: usize,
    pub operations: Vec<Option<Operation>>,
    pub counted: u64,
    pub latencies_ns: Vec<u64>,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress {
            workload: Workload::Load,
            began: 0,
            deadline: 0,
            last_answer: 0,
            left: 0,
            warming: 0,
            running: 0,
            operations: Vec::new(),
            counted: 0,
            latencies_ns: Vec::new(),
        }
    }
}

impl Progress {
    pub fn is_over(&self, now: u64) -> bool {
        self.running == 0 || now.saturating_sub(self.last_answer.max(self.began)) > STUCK
    }

    /// Returns the seconds from the first operation that counts to the last answer or the deadline.
    pub fn seconds(&self) -> f64 {
        let end = self.last_answer.min(self.deadline);
        end.saturating_sub(self.began).max(1) as f64 / SECOND as f64
    }
}

impl World<'_> {
    pub(super) fn begin(&mut self, workload: Workload) {
        let load = &self.question.load;
        let inserts = workload.read_percent().is_none();
        let warming = if inserts { 0 } else { load.warm_up };
        self.phase = Progress {
            workload,
            began: self.now,
            deadline: if inserts || warming > 0 { u64::MAX } else { self.now + load.at_most_ns },
            left: if inserts { load.records } else { load.operations + warming },
            warming,
            running: load.threads,
            operations: vec![None; load.threads],
            ..Progress::default()
        };
        for thread in 0..load.threads {
            self.schedule(self.now, Event::Issue(thread));
        }
    }

    pub(super) fn issue(&mut self, thread: ThreadAt) {
        if self.phase.left == 0 || self.now >= self.phase.deadline {
            self.phase.running -= 1;
            return;
        }
        let kind = kind(self.phase.workload, &mut self.draw);
        let record = match kind {
            Kind::Insert => (self.question.load.records - self.phase.left) as u32,
            _ => self.choose(),
        };
        self.phase.left -= 1;
        let counts = self.phase.warming == 0;
        if !counts {
            self.phase.warming -= 1;
            if self.phase.warming == 0 {
                self.phase.began = self.now;
                self.phase.deadline = self.now + self.question.load.at_most_ns;
            }
        }
        self.phase.operations[thread] = Some(Operation { kind, record, began: self.now, counts });
        let sent = match self.question.processors.shared {
            true => self.compute(0, self.question.processors.client_ns),
            false => self.now,
        };
        self.schedule(sent + self.question.network_ns, Event::Arrive(thread));
    }

    /// The operation arrives at the leader's store and takes CPU time first.
    pub(super) fn arrive(&mut self, thread: ThreadAt) {
        let Some(operation) = self.phase.operations[thread] else { return };
        let leader = self.regions[self.region_of(operation.record)].leader;
        let processors = &self.question.processors;
        let nanos = match operation.kind {
            Kind::Read => processors.read_ns,
            // The apply thread's part is charged in the apply turn.
            _ => processors.lead_ns.saturating_sub(crate::question::APPLY_NS),
        };
        let ready = self.compute(leader, nanos);
        self.schedule(ready, Event::Serve(thread));
    }

    pub(super) fn serve(&mut self, thread: ThreadAt) {
        let Some(operation) = self.phase.operations[thread] else { return };
        let at = self.region_of(operation.record);
        let region = &mut self.regions[at];
        let leader = region.leader;
        if operation.kind != Kind::Read {
            // Counted where it arrives, and once more where it is passed on to
            // (`server::dispatch`).
            region.writes += 1;
            self.stores[leader].queue.push((at, thread));
            return self.turn(leader);
        }
        region.reads += 1;
        let store = &mut self.stores[leader];
        store.counts.reads += 1;
        if store.finds_in_ram(operation.record) {
            store.counts.hits += 1;
            return self.schedule(self.now + self.question.network_ns, Event::Answer(thread));
        }
        region.misses += 1;
        let done = self.read_row(leader, operation.record);
        self.schedule(done, Event::ReadDone(thread));
    }

    pub(super) fn read_done(&mut self, thread: ThreadAt) {
        let Some(operation) = self.phase.operations[thread] else { return };
        let leader = self.regions[self.region_of(operation.record)].leader;
        self.take_row(leader, operation.record);
        self.schedule(self.now + self.question.network_ns, Event::Answer(thread));
    }

    pub(super) fn answered(&mut self, thread: ThreadAt) {
        let Some(operation) = self.phase.operations[thread].take() else { return };
        self.phase.last_answer = self.now;
        if operation.counts {
            self.phase.latencies_ns.push(self.now - operation.began);
            self.phase.counted += u64::from(self.now <= self.phase.deadline);
        }
        self.issue(thread);
    }

    /// Reads a row that is neither in the row cache nor in a memtable. Returns when it has been
    /// read, which is at once if its block is in the block cache.
    pub(super) fn read_row(&mut self, at: StoreAt, record: u32) -> u64 {
        let bytes = self.question.tuning.block_read_bytes(self.row_bytes);
        let store = &mut self.stores[at];
        if store.blocks.finds(self.block_of[record as usize]) {
            return self.now;
        }
        let (tree, written_in) = (&store.tree, store.written_in[record as usize]);
        store.device.read_row(self.now, bytes, record, || tree.place_of(written_in))
    }

    /// Puts a row that was read, and its block, into their caches.
    pub(super) fn take_row(&mut self, at: StoreAt, record: u32) {
        let store = &mut self.stores[at];
        if !store.is_in_memtable(record) {
            store.cache.put(record);
        }
        store.blocks.take(self.block_of[record as usize], store.tree.live_bytes);
    }

    pub(super) fn region_of(&self, record: u32) -> usize {
        usize::from(self.region_of[record as usize])
    }
}

impl super::Store {
    /// Looks for a row in the memtables, and then in the row cache, where this counts as a use.
    pub(super) fn finds_in_ram(&self, record: u32) -> bool {
        self.is_in_memtable(record) || self.cache.finds(record)
    }

    fn is_in_memtable(&self, record: u32) -> bool {
        self.written_in[record as usize] > self.tree.flushed
    }

    /// Moves the rows of flushed memtables to the row cache (`RamTier::settle`).
    pub(super) fn settle(&mut self) {
        let flushed = self.tree.flushed;
        let count = self.in_memtables.partition_point(|(memtable, _)| *memtable <= flushed);
        for (_, record) in self.in_memtables.drain(..count) {
            self.cache.put(record);
        }
        self.cache.evict();
    }
}
