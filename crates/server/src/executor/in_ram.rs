//! Executes entries whose rows are in RAM, in the worker's thread, without waiting for a device.
//! `node::ApplyQueue` decides when to try this, and which entries go to the apply thread
//! ([`super::apply`]).

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crossbeam_channel::Sender;
use node::{
    lifecycle, ApplyEffect, ApplyJob, ApplyQueue, Attempt, Execution, Executor, InRamOutcome, Outcome,
    Waiting,
};
use parking_lot::Mutex;
use rocks::{InRam, Keyspace};
use storage::{Reader, StorageError, Visit};
use types::{LogIndex, RegionId};

use super::apply::{carry_out, ToApplier, ToApply};
use super::parts::Parts;
use crate::loops::{Asker, Outcomes};

/// Maximum bytes of a value that the worker's thread copies.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes that all scans of one attempt in the worker's thread visit.
const SCAN_BYTES_MAX: usize = 1 << 20;
/// Maximum number of rows that all scans of one attempt examine, deleted ones included.
const SCAN_ROWS_MAX: usize = 8192;
/// Bytes that each scan, and each row of it, counts in addition.
const SCAN_BYTES: usize = 256;
const SCANNED_ROW_BYTES: usize = 32;

/// The worker's end of the queue to the apply thread. Dropping it ends the apply thread.
pub struct ApplyHandle {
    queue: ApplyQueue<Asker>,
    here: Here,
}

/// The worker's thread in its role as an executor.
struct Here {
    parts: Parts,
    /// Locked by the apply thread while it executes, which may take long on a slow device.
    execution: Arc<Mutex<Execution>>,
    jobs: Sender<ToApplier>,
    executed: ExecutedHere,
}

/// The results of entries that were executed in the worker's thread. The worker must process them.
#[derive(Default)]
pub struct ExecutedHere {
    pub applied: Vec<(RegionId, LogIndex)>,
    pub outcomes: Outcomes,
}

impl Drop for ApplyHandle {
    fn drop(&mut self) {
        self.queue.close(&mut self.here);
        let _ = self.here.jobs.send(ToApplier::Stop);
    }
}

impl ApplyHandle {
    pub fn new(parts: Parts, execution: Arc<Mutex<Execution>>, jobs: Sender<ToApplier>) -> ApplyHandle {
        let here = Here { parts, execution, jobs, executed: ExecutedHere::default() };
        ApplyHandle { queue: ApplyQueue::default(), here }
    }

    pub fn apply(&mut self, region: RegionId, entries: Vec<ToApply>) -> ExecutedHere {
        self.queue.apply(region, entries, &mut self.here);
        std::mem::take(&mut self.here.executed)
    }

    pub fn live(&mut self, job: lifecycle::Job) {
        self.queue.live(job, &mut self.here);
    }

    /// Processes the apply thread's report that these entries are applied.
    pub fn applied(&mut self, region: RegionId, index: LogIndex) -> ExecutedHere {
        self.queue.applied(region, index, &mut self.here);
        std::mem::take(&mut self.here.executed)
    }

    /// Stops the region, whose peer is quarantined. Neither the entry at `index` nor a later one is
    /// executed.
    pub fn stop(&mut self, region: RegionId, index: LogIndex) -> ExecutedHere {
        self.queue.stop(region, index, &mut self.here);
        std::mem::take(&mut self.here.executed)
    }

    /// Ends the stop.
    pub fn resume(&mut self, region: RegionId) {
        self.queue.resume(region);
    }

    /// Returns the bytes of committed entries that wait for execution.
    pub fn bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Returns the bytes of committed entries that may still be added to the queue.
    pub fn room(&self) -> u64 {
        self.here.parts.budget.execution().saturating_sub(self.queue.bytes())
    }
}

impl Executor<Asker> for Here {
    fn attempt(&mut self, region: RegionId, entries: Vec<ToApply>) -> Attempt<Asker> {
        let parts = &self.parts;
        // The apply thread may wait for room.
        let rows = parts.engine.rows();
        if !rows.has_room() || !rows.write_wait().is_zero() {
            return Attempt::Busy(entries);
        }
        let Some(mut execution) = self.execution.try_lock() else { return Attempt::Busy(entries) };
        let (started, count) = (Instant::now(), entries.len());
        let wants_record = parts.notices.are_wanted();
        let rows = RamRows::new(parts.engine.rows(), wants_record);
        let executed = execution.execute_in_ram(region, entries, &rows, &mut ());
        let effects = match executed.unwrap_or_else(|error| parts.ends.fatal(&error.to_string())) {
            InRamOutcome::Executed(effects) => effects,
            InRamOutcome::NotExecuted(entries) => {
                parts.metrics.rows_not_in_ram.inc();
                return Attempt::NotInRam(entries);
            }
        };
        for effect in effects {
            match effect {
                ApplyEffect::Applied(indexes) => self.executed.applied.extend(indexes),
                ApplyEffect::Answer { client, outcome } => self.executed.outcomes.push((client, outcome)),
                other => carry_out(parts, other, count),
            }
        }
        if !wants_record {
            parts.notices.executed_without_record();
        }
        parts.metrics.entries_applied_in_ram.inc_by(count as u64);
        parts.metrics.apply.record(started.elapsed());
        Attempt::Executed
    }

    fn send(&mut self, job: ApplyJob<Asker>) {
        // The apply thread ends only with the store.
        let _ = self.jobs.send(ToApplier::Job(job));
    }

    fn withheld(&mut self, entries: Vec<ToApply>) {
        let clients = entries.into_iter().filter_map(|apply| apply.waiting).flat_map(Waiting::clients);
        self.executed.outcomes.extend(clients.map(|client| (client, Outcome::Unknown)));
    }
}

/// The rows that can be read without waiting for a device or a long copy.
struct RamRows<'a> {
    rows: &'a Keyspace,
    wants_record: bool,
    /// Bytes that the scans of the attempt have visited so far.
    scanned_bytes: Cell<usize>,
    /// Number of rows that the scans of the attempt may still examine.
    rows_left: Cell<usize>,
    /// The number of scans in progress. During a scan the thread holds the rows in RAM.
    scans: Cell<usize>,
}

impl<'a> RamRows<'a> {
    fn new(rows: &'a Keyspace, wants_record: bool) -> RamRows<'a> {
        let (scanned_bytes, rows_left) = (Cell::new(0), Cell::new(SCAN_ROWS_MAX));
        RamRows { rows, wants_record, scanned_bytes, rows_left, scans: Cell::new(0) }
    }

    fn in_ram(&self) -> InRam<'a> {
        match self.scans.get() {
            0 => self.rows.in_ram(),
            // A visitor of a scan looks at rows.
            _ => self.rows.in_ram_again(),
        }
    }

    /// Counts bytes of a scan. Returns false once the attempt has visited too many.
    fn may_scan(&self, bytes: usize) -> bool {
        self.scanned_bytes.set(self.scanned_bytes.get().saturating_add(bytes));
        self.scanned_bytes.get() <= SCAN_BYTES_MAX
    }
}

/// Returns a value that was found in RAM and is not long.
fn short(found: Option<Option<Bytes>>) -> storage::Result<Option<Bytes>> {
    let is_short = |value: &Option<Bytes>| value.as_ref().is_none_or(|value| value.len() <= VALUE_BYTES_MAX);
    found.filter(is_short).ok_or(StorageError::NotInRam)
}

impl node::Rows for RamRows<'_> {
    fn wants_record(&self) -> bool {
        self.wants_record
    }
}

impl Reader for RamRows<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        short(self.rows.get_without_io(self.in_ram(), row))
    }

    fn peek(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        short(self.rows.peek_without_io(self.in_ram(), row))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> storage::Result<()> {
        let mut is_long = !self.may_scan(SCAN_BYTES);
        let in_ram = self.in_ram();
        self.scans.set(self.scans.get() + 1);
        let scanned = in_ram.scan(from, to, &self.rows_left, &mut |row, value| {
            is_long = !self.may_scan(row.len() + value.len() + SCANNED_ROW_BYTES);
            match is_long {
                true => ControlFlow::Break(()),
                false => visit(row, value),
            }
        });
        self.scans.set(self.scans.get() - 1);
        scanned?;
        match is_long {
            true => Err(StorageError::NotInRam),
            false => Ok(()),
        }
    }

    fn is_hasty(&self) -> bool {
        true
    }

    fn touch(&self, rows: &[&[u8]]) {
        self.in_ram().touch(rows);
    }

    fn is_worth_touching(&self) -> bool {
        self.in_ram().is_worth_touching()
    }

    fn look(&self, row: &[u8]) -> Option<Bytes> {
        self.in_ram().look(row)
    }
}

#[cfg(test)]
mod tests;
