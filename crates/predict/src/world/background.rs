//! What goes on behind: flushes and compactions, and copies of regions on their way to other stores. All of
//! it takes its turns on the same device queues as the log and the reads.

use placement::Operator;

use super::{Event, RegionAt, StoreAt, World};
use crate::device::Queues;
use crate::tree;

/// RocksDB's `writable_file_max_buffer_size`: what one write of a table file carries.
const CHUNK_BYTES: u64 = 1 << 20;
/// `rocks::Options`: `compaction_readahead_size`.
const READ_AHEAD_BYTES: u64 = 2 << 20;
/// At a job's end the directory and the manifest are synced (`CompactionJob::Install`, `VersionSet::LogAndApply`).
const LAST_SYNCS: u32 = 2;
/// `server::snapshot`: bytes per second of a copy.
const COPY_BYTES_PER_S: u64 = 100 << 20;

pub(super) enum Job {
    Tree { store: StoreAt, job: tree::Job, read: u64, written: u64, file: u64, last_syncs: u32 },
    Copy { operator: Operator, region: RegionAt, from: StoreAt, to: StoreAt, left: u64 },
}

impl World<'_> {
    pub(super) fn start_background(&mut self, store: StoreAt) {
        if let Some(job) = self.stores[store].tree.next_flush() {
            self.start(tree_job(store, job));
        }
        loop {
            let running = self.jobs.values().filter(|job| is_compaction(job, store)).count();
            if running >= self.stores[store].tree.compactions_max() {
                return;
            }
            match self.stores[store].tree.next_compaction() {
                Some(job) => self.start(tree_job(store, job)),
                None => return,
            }
        }
    }

    fn start(&mut self, job: Job) {
        let id = self.next_job;
        self.next_job += 1;
        self.jobs.insert(id, job);
        self.work(id);
    }

    /// An operator that fills a store with a copy of a region.
    pub(super) fn start_copy(&mut self, operator: Operator, region: RegionAt, to: StoreAt) {
        let (from, left) = (self.regions[region].leader, self.regions[region].bytes);
        self.start(Job::Copy { operator, region, from, to, left });
    }

    /// The job's next step, which is over when its event comes.
    pub(super) fn work(&mut self, id: usize) {
        let Some(mut job) = self.jobs.remove(&id) else { return };
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
            Job::Tree { store, job, read, written, file, last_syncs } => {
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
                        // Of the first, nothing was read ahead.
                        let youngest = store.tree.bytes_down_to(job);
                        let done = store.device.read_tables(*now, bytes, *read > 0, youngest);
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
            Job::Copy { from, to, left, .. } => {
                if *left == 0 {
                    return None;
                }
                let bytes = CHUNK_BYTES.min(*left);
                *left -= bytes;
                // The source's rows become table files, which are read and sent; the target writes and
                // syncs them, and takes them over by links.
                let source = &mut self.stores[*from].device;
                let made = source.read(self.now, bytes, true).max(source.write(self.now, bytes));
                let read = source.read(made, bytes, true);
                let target = &mut self.stores[*to].device;
                let written = target.write(read, bytes);
                let done = if *left == 0 { target.sync(written, part) } else { written };
                Some(done.max(self.now + bytes * super::SECOND / COPY_BYTES_PER_S))
            }
        }
    }

    fn finish(&mut self, job: Job) {
        match job {
            Job::Tree { store, job, .. } => {
                let (parts, into) = self.stores[store].tree.replaced(&job);
                self.stores[store].device.replaced(&parts, into, job.writes);
                self.stores[store].tree.finish(&job);
                self.resume_apply(store);
                self.start_background(store);
            }
            Job::Copy { operator, region, to, .. } => self.copied(operator, region, to),
        }
    }
}

fn tree_job(store: StoreAt, job: tree::Job) -> Job {
    Job::Tree { store, job, read: 0, written: 0, file: 0, last_syncs: LAST_SYNCS }
}

fn is_compaction(job: &Job, at: StoreAt) -> bool {
    matches!(job, Job::Tree { store, job, .. } if *store == at && job.kind != tree::Kind::Flush)
}
