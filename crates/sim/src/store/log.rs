//! The log's thread: one write and one sync for each batch, then, and not before, the worker is told. And the
//! flusher, which decides what of the log is not needed any more.

use replica::{Input, LogBatch};
use types::{LogIndex, RegionId, StoreId, Term};

use crate::clock::MILLISECOND;
use crate::observation::Observation;
use crate::world::{Work, World};

pub(super) enum ToLog {
    Append(LogBatch),
    Truncate { region: RegionId, index: LogIndex, term: Term },
}

impl World {
    pub(super) fn log(&mut self, id: StoreId, job: ToLog) {
        let Some(process) = self.process(id) else { return };
        process.log.push_back(job);
        self.next_log_job(id);
    }

    fn next_log_job(&mut self, id: StoreId) {
        loop {
            let disk = self.stores[&id].disk.clone();
            let Some(process) = self.process(id).filter(|process| !process.log_is_busy) else { return };
            match process.log.front() {
                None => return,
                Some(ToLog::Truncate { region, index, term }) => {
                    disk.truncate(*region, *index, *term);
                    process.log.pop_front();
                }
                Some(ToLog::Append(batch)) => {
                    process.log_is_busy = true;
                    let batch = batch.clone();
                    disk.append(&batch);
                    let delay = self.log_delay(id);
                    self.schedule_work(id, delay, Work::Logged);
                }
            }
        }
    }

    /// The write at the head of the queue is synced.
    pub(super) fn logged(&mut self, id: StoreId) {
        self.stores[&id].disk.sync();
        let Some(process) = self.process(id) else { return };
        process.log_is_busy = false;
        let Some(ToLog::Append(batch)) = process.log.pop_front() else { return };
        let disk = self.stores[&id].disk.clone();
        for write in batch.writes.iter().filter(|write| !write.entries.is_empty()) {
            let (region, entries) = (write.region, &write.entries[..]);
            let before = disk.with(region, |log| log.term(entries[0].index - 1));
            self.observe(&Observation::Synced { store: id, region, entries, before });
        }
        self.input(id, Input::Persisted { batch: batch.number });
        self.next_log_job(id);
    }

    /// How far everything is applied is read before the flush begins.
    pub(super) fn flush(&mut self, id: StoreId) {
        let pause = self.rng.between(300, 3000) * MILLISECOND;
        self.schedule_work(id, pause, Work::Flush);
        self.flush_now(id);
    }

    pub(super) fn flush_now(&mut self, id: StoreId) {
        let writes = self.stores[&id].engine.unflushed();
        let Some(process) = self.process(id) else { return };
        let here = process.regions.iter().filter(|(_, shared)| shared.is_local);
        let applied: Vec<_> = here.map(|(&region, shared)| (region, shared.applied)).collect();
        let delay = self.rng.between(1, 200) * MILLISECOND;
        self.schedule_work(id, delay, Work::Flushed { applied, writes });
    }

    pub(super) fn flushed(&mut self, id: StoreId, applied: Vec<(RegionId, LogIndex)>, writes: usize) {
        self.store_mut(id).engine.flush_oldest(writes);
        for (region, index) in applied {
            self.input(id, Input::Flushed { region, index });
        }
    }
}
