//! The apply thread. One turn takes everything that waits, of all regions. An update reads the row
//! that it replaces, from the device if it is not in RAM. Bloom filters spare most inserts a read.
//! Then the rows go into the memtable, if one has room, and the leader answers the clients.

use super::{Event, RegionAt, StoreAt, World};
use crate::question::APPLY_NS;

/// Maximum number of bytes of one turn (`server::executor::apply`, while rows are read ahead).
const BATCH_BYTES_MAX: u64 = 8 << 20;

/// Rate of false positives of a filter with 10 bits per key (RocksDB, `NewBloomFilterPolicy`).
const FALSE_POSITIVES: f64 = 0.01;

pub(super) struct Turn {
    parts: Vec<(RegionAt, u32, u32)>,
    commands: u64,
    bytes: u64,
    /// Rows to read before the turn can execute, and the number of reads in progress.
    missing: Vec<u32>,
    under_way: usize,
    /// The turn has executed and waits for a memtable.
    waits: bool,
}

impl World<'_> {
    pub(super) fn start_apply(&mut self, at: StoreAt) {
        let store = &mut self.stores[at];
        if store.turn.is_some() {
            return;
        }
        let mut turn = Turn {
            parts: Vec::new(),
            commands: 0,
            bytes: 0,
            missing: Vec::new(),
            under_way: 0,
            waits: false,
        };
        let files_asked = store.tree.files_asked() as i32;
        while turn.bytes < BATCH_BYTES_MAX {
            let Some((region, begin, end)) = store.to_apply.pop_front() else { break };
            for entry in &self.regions[region].entries[begin as usize..end as usize] {
                turn.bytes += entry.bytes;
                turn.commands += entry.writes.len() as u64;
                for write in &entry.writes {
                    let is_read = match write.inserts {
                        true => self.chance.fraction() >= (1.0 - FALSE_POSITIVES).powi(files_asked),
                        false => !store.finds_in_ram(write.record),
                    };
                    if is_read {
                        turn.missing.push(write.record);
                    }
                }
            }
            turn.parts.push((region, begin, end));
        }
        if turn.parts.is_empty() {
            return;
        }
        turn.missing.sort_unstable();
        turn.missing.dedup();
        store.turn = Some(turn);
        for _ in 0..self.question.tuning.apply_reads {
            self.read_ahead(at);
        }
        self.execute(at);
    }

    fn read_ahead(&mut self, at: StoreAt) {
        let Some(turn) = &mut self.stores[at].turn else { return };
        if let Some(record) = turn.missing.pop() {
            turn.under_way += 1;
            let done = self.read_row(at, record);
            // A separate thread looks up the row, as it would for a client.
            let looked_up = self.compute(at, self.question.processors.read_ns);
            self.schedule(done.max(looked_up), Event::ApplyRead(at, record));
        }
    }

    pub(super) fn apply_read(&mut self, at: StoreAt, record: u32) {
        self.take_row(at, record);
        if let Some(turn) = &mut self.stores[at].turn {
            turn.under_way -= 1;
        }
        self.read_ahead(at);
        self.execute(at);
    }

    fn execute(&mut self, at: StoreAt) {
        let Some(turn) = &self.stores[at].turn else { return };
        if turn.under_way > 0 {
            return;
        }
        let nanos = turn.commands * APPLY_NS;
        self.stores[at].counts.apply_ns += nanos;
        // One thread does this, however many CPUs there are.
        let done = self.compute(at, nanos).max(self.now + nanos);
        self.schedule(done, Event::Applied(at));
    }

    pub(super) fn applied(&mut self, at: StoreAt) {
        if self.stores[at].tree.is_stalled() {
            if let Some(turn) = &mut self.stores[at].turn {
                turn.waits = true;
            }
            return;
        }
        let Some(turn) = self.stores[at].turn.take() else { return };
        let row_bytes = self.row_bytes;
        self.stores[at].cache.evict();
        for (region, begin, end) in turn.parts {
            let log = &mut self.regions[region];
            let store = &mut self.stores[at];
            for entry in &log.entries[begin as usize..end as usize] {
                store.to_apply_bytes = store.to_apply_bytes.saturating_sub(entry.bytes);
                for write in &entry.writes {
                    let memtable = store.tree.memtable;
                    let before = std::mem::replace(&mut store.written_in[write.record as usize], memtable);
                    if before != memtable {
                        store.in_memtables.push_back((memtable, write.record));
                    }
                    store.tree.write(row_bytes, before);
                    store.counts.rows_bytes += row_bytes;
                    if write.inserts {
                        store.tree.live_bytes += row_bytes;
                    }
                }
            }
            if let Some(peer) = log.peer(at) {
                peer.applied = peer.applied.max(end);
            }
            self.regions[region].size(self.row_bytes);
            self.answer(region);
        }
        self.start_background(at);
        self.start_apply(at);
        // The store may have been behind until this turn.
        self.turn(at);
    }

    /// Resumes a turn that waited for a memtable, after a flush.
    pub(super) fn resume_apply(&mut self, at: StoreAt) {
        let waits = self.stores[at].turn.as_mut().is_some_and(|turn| std::mem::take(&mut turn.waits));
        if waits {
            self.applied(at);
        }
    }

    /// Answers the commands that the leader has applied.
    pub(super) fn answer(&mut self, region: RegionAt) {
        let log = &mut self.regions[region];
        let leader = log.leader;
        let Some(applied) = log.peer(leader).map(|peer| peer.applied) else { return };
        let begin = log.answered.min(applied) as usize;
        log.answered = log.answered.max(applied);
        let threads: Vec<usize> = log.entries[begin..applied as usize]
            .iter()
            .flat_map(|entry| entry.writes.iter().map(|write| write.thread as usize))
            .collect();
        for thread in threads {
            self.schedule(self.now + self.question.network_ns, Event::Answer(thread));
        }
    }
}
