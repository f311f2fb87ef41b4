//! Background work: flushes and compactions. They share the device queues with the log, the reads,
//! and the copies and removals of regions (`copying`).

use super::copying::Script;
use super::{Event, StoreAt, World, SECOND};
use crate::device::Queues;
use crate::tree;

/// The bytes of one write to a table file (RocksDB's `writable_file_max_buffer_size`).
pub(super) const CHUNK_BYTES: u64 = 1 << 20;
/// The bytes that a compaction reads ahead (`compaction_readahead_size` in `rocks::Options`).
const READ_AHEAD_BYTES: u64 = 2 << 20;
/// The period of flushes that keep the log short (`server::executor::flusher`).
const FLUSH_PERIOD: u64 = 60 * SECOND;
/// Syncs at the end of a job: the directory and the manifest (`CompactionJob::Install`,
/// `VersionSet::LogAndApply`).
const LAST_SYNCS: u32 = 2;

pub(super) enum Job {
    Tree {
        store: StoreAt,
        job: tree::Job,
        read: u64,
        written: u64,
        file: u64,
        last_syncs: u32,
        /// The script that waits for the job.
        then: Option<usize>,
    },
    Script(Script),
}

impl World<'_> {
    pub(super) fn start_background(&mut self, store: StoreAt) {
        if let Some(job) = self.stores[store].tree.next_flush() {
            self.start(tree_job(store, job, None));
        }
        // Requested reclaims come before ordinary compactions.
        if let Some((part, then)) = self.stores[store].reclaims.front().copied() {
            if let Some(job) = self.stores[store].tree.next_reclaim(part) {
                self.stores[store].reclaims.pop_front();
                self.start(tree_job(store, job, Some(then)));
            }
            return;
        }
        loop {
            let running = self.jobs.values().filter(|job| is_compaction(job, store)).count();
            if running >= self.stores[store].tree.compactions_max() {
                return;
            }
            match self.stores[store].tree.next_compaction() {
                Some(job) => self.start(tree_job(store, job, None)),
                None => return,
            }
        }
    }

    pub(super) fn flush_period(&self) -> u64 {
        self.scaled(FLUSH_PERIOD)
    }

    /// Flushes all stores at the same time, since stores that were started together flush together.
    /// The time of the first flush is random.
    pub(super) fn flush_all(&mut self) {
        for store in 0..self.stores.len() {
            self.stores[store].tree.seal_for_log();
            self.start_background(store);
        }
        self.schedule(self.now + self.flush_period(), Event::FlushAll);
    }

    pub(super) fn start(&mut self, job: Job) {
        let id = self.next_job;
        self.next_job += 1;
        self.jobs.insert(id, job);
        self.work(id);
    }

    /// Begins the next step of a job. The step ends with its event.
    pub(super) fn work(&mut self, id: usize) {
        let Some(job) = self.jobs.remove(&id) else { return };
        match job {
            Job::Script(script) => self.perform(id, script),
            Job::Tree { .. } => self.compact(id, job),
        }
    }

    fn compact(&mut self, id: usize, mut job: Job) {
        match self.next_step(&mut job) {
            Some(done) => {
                self.jobs.insert(id, job);
                self.schedule(done, Event::Background(id));
            }
            None => self.finish(job),
        }
    }

    fn next_step(&mut self, job: &mut Job) -> Option<u64> {
        let part = self.question.tuning.background_sync_part;
        match job {
            Job::Script(_) => None,
            Job::Tree { store, job, read, written, file, last_syncs, .. } => {
                let Self { stores, now, .. } = self;
                let store = &mut stores[*store];
                let is_flush = job.kind == tree::Kind::Flush;
                if *written < job.writes {
                    if *file >= store.tree.table_file_bytes() {
                        *file = 0;
                        return Some(store.device.sync(*now, part));
                    }
                    if !is_flush && *read <= *written {
                        let bytes = READ_AHEAD_BYTES.min(job.reads - *read);
                        // The first read was not read ahead.
                        let (parts, _) = store.tree.replaced(job);
                        let done = store.device.read_tables(*now, bytes, *read > 0, &parts, job.reads);
                        *read += bytes;
                        return Some(done);
                    }
                    let bytes = CHUNK_BYTES.min(job.writes - *written);
                    *written += bytes;
                    *file += bytes;
                    if !is_flush {
                        store.counts.compaction_bytes += bytes;
                    }
                    return Some(Queues::buffered(store.device.write_table(*now, bytes)));
                }
                if *file > 0 {
                    *file = 0;
                    return Some(store.device.sync(*now, part));
                }
                if *last_syncs > 0 {
                    *last_syncs -= 1;
                    return Some(store.device.sync(*now, part));
                }
                None
            }
        }
    }

    fn finish(&mut self, job: Job) {
        let Job::Tree { store, job, then, .. } = job else { return };
        let (parts, into) = self.stores[store].tree.replaced(&job);
        let of_last = parts.iter().find(|(level, _)| *level == tree::LEVELS - 1);
        self.stores[store].blocks.replaced(of_last.map_or(0.0, |(_, part)| *part), &mut self.chance);
        self.stores[store].device.replaced(&parts, into, job.reads, job.writes);
        self.stores[store].tree.finish(&job);
        if job.kind == tree::Kind::Flush {
            self.stores[store].settle();
        }
        self.resume_apply(store);
        if let Some(waiting) = then {
            self.schedule(self.now, Event::Background(waiting));
        }
        self.wake_flushed(store);
        self.start_background(store);
    }
}

fn tree_job(store: StoreAt, job: tree::Job, then: Option<usize>) -> Job {
    Job::Tree { store, job, read: 0, written: 0, file: 0, last_syncs: LAST_SYNCS, then }
}

fn is_compaction(job: &Job, at: StoreAt) -> bool {
    matches!(job, Job::Tree { store, job, .. } if *store == at && job.kind != tree::Kind::Flush)
}
