//! The log's thread, which writes and syncs each batch once and only then tells the worker, and the
//! worker's own writes in some runs. Also the flusher, which decides which part of the log is no
//! longer needed.

use replica::{Input, LogBatch, LogStore};
use types::{LogIndex, RegionId, StoreId, Term};

use super::Fsync;
use crate::clock::MILLISECOND;
use crate::observation::Observation;
use crate::world::{Work, World};

/// Interval at which a hanging write is checked again.
const HANG_LOOK: u64 = 200 * MILLISECOND;

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

    /// Writes a batch in the middle of the worker's turn, as the loop of a store does when the
    /// write is short. Returns the batch if the log's thread must write it.
    pub(super) fn log_at_once(&mut self, id: StoreId, batch: LogBatch) -> Result<(), LogBatch> {
        let drawn = types::mix(self.seed ^ types::mix(id) ^ batch.number);
        let may_wait = self.plan.logs_at_once && drawn.is_multiple_of(2);
        let is_quick = self.stores[&id].hung_until <= self.now && self.without_room(id).is_none();
        let process = self.process(id).filter(|process| !process.log_is_busy && process.log.is_empty());
        if !may_wait || !is_quick || process.is_none() {
            return Err(batch);
        }
        self.stores[&id].durable.disk.append(&batch);
        self.sync_written(id, &batch);
        self.tally.logged_at_once += 1;
        let boot = self.boot(id);
        let Some(process) = self.process(id) else { return Ok(()) };
        process.shard.step(node::Input::Raft(Input::Persisted { batch: batch.number }), boot);
        Ok(())
    }

    fn next_log_job(&mut self, id: StoreId) {
        loop {
            let disk = self.stores[&id].durable.disk.clone();
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
                    // At a full device the write is tried again until there is room.
                    let without_room = self.without_room(id).unwrap_or(0);
                    let delay = self.log_delay(id) + without_room;
                    self.log_write_began(id, without_room);
                    self.schedule_work(id, delay, Work::Logged);
                }
            }
        }
    }

    /// Completes the write at the head of the queue, and its sync if it must be synced.
    pub(super) fn logged(&mut self, id: StoreId) {
        if let Some(left) = self.stores[&id].hung_until.checked_sub(self.now).filter(|&left| left > 0) {
            return self.schedule_work(id, left.min(HANG_LOOK), Work::Logged);
        }
        let Some(process) = self.process(id) else { return };
        process.log_is_busy = false;
        process.device.log_write_ended();
        let Some(ToLog::Append(batch)) = process.log.pop_front() else { return };
        self.sync_written(id, &batch);
        self.input(id, Input::Persisted { batch: batch.number });
        self.next_log_job(id);
    }

    /// Completes the write of a batch: syncs it if it must be synced.
    fn sync_written(&mut self, id: StoreId, batch: &LogBatch) {
        match self.stores[&id].fsync == Fsync::Always || batch.must_sync {
            true => self.stores[&id].durable.disk.sync(),
            false => self.sync_soon(id),
        }
        let disk = self.stores[&id].durable.disk.clone();
        for write in batch.writes.iter().filter(|write| !write.entries.is_empty()) {
            let (region, entries) = (write.region, &write.entries[..]);
            let before = disk.with(region, |log| log.term(entries[0].index - 1));
            self.observe(&Observation::Synced { store: id, region, entries, before });
        }
    }

    /// Reads entries for a follower that lags, as they are in the log now.
    pub(super) fn read_log(
        &mut self,
        id: StoreId,
        region: RegionId,
        number: u64,
        range: (LogIndex, LogIndex, u64),
    ) {
        let (low, high, max_bytes) = range;
        let entries = self.stores[&id].durable.disk.entries(region, low, high, max_bytes);
        self.tally.log_reads += 1;
        self.input(id, Input::LogRead { region, number, entries });
    }

    /// Begins a flush. The applied indexes are read before it begins.
    pub(super) fn flush(&mut self, id: StoreId) {
        let pause = self.rng.between(300, 3000) * MILLISECOND;
        self.schedule_work(id, pause, Work::Flush);
        if self.rng.chance(10) {
            // Any region may be the one that fills the log.
            let Some(process) = self.process(id) else { return };
            let regions: Vec<RegionId> = process.shard.regions().collect();
            let regions = regions.into_iter().filter(|_| self.rng.chance(50)).collect();
            self.input(id, Input::LogPinned { regions });
        }
        self.flush_now(id);
    }

    pub(super) fn flush_now(&mut self, id: StoreId) {
        let Some(process) = self.process(id) else { return };
        let here = process.regions.iter().filter(|(_, shared)| shared.is_local);
        let applied: Vec<_> = here.map(|(&region, shared)| (region, shared.applied)).collect();
        let memtables = self.store_mut(id).durable.engine.freeze();
        let delay = self.rng.between(1, 200) * MILLISECOND;
        self.schedule_work(id, delay, Work::Flushed { applied, memtables });
    }

    pub(super) fn flushed(&mut self, id: StoreId, applied: Vec<(RegionId, LogIndex)>, memtables: u64) {
        if self.without_room(id).is_some() {
            return;
        }
        self.sync_before_flush(id);
        self.store_mut(id).durable.engine.flush_below(memtables);
        for (region, index) in applied {
            self.input(id, Input::Flushed { region, index });
        }
    }
}
