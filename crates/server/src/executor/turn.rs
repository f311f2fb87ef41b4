//! The rows of one turn of apply, as its commands read them.
//!
//! A command reads the row that it replaces. If commands execute one after the other, each of them
//! waits for the device. So once reads have waited, the rows of the next commands that are not in
//! RAM are prefetched together and kept until they are requested. Rows are prefetched in windows of
//! commands, beginning with the command that executes next.
//!
//! A prefetched row equals the result of a later read. The thread that executes here writes a
//! region's rows only at the end of the turn, and rows are replaced only while the region has no
//! entries to apply. Rows that the turn itself wrote are in the `Txn` and are never requested here.
//! A command whose slot the region gave away does not execute and requests no rows.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use command::entry::Items;
use command::prefetch;
use node::Rows;
use storage::{Reader, Visit};

use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::prefetch::Missing;
use crate::readers::Found;

/// Maximum rows of a window: enough to keep every reader busy most of the time.
const ROWS_MAX: usize = 1024;
/// Maximum items of a window. Most of their rows may be in RAM.
const ITEMS_MAX: usize = 8192;
/// Maximum bytes of a window's values. Values of hash fields may take the same amount again.
const BYTES_MAX: usize = 16 << 20;

/// Minimum number of slow reads that start prefetching. A single slow read may be a thread that
/// waited for a CPU.
const SLOW_READS: usize = 2;
/// Number of turns with prefetching after a turn with slow reads.
const TURNS: u32 = 16;

pub struct Turn<'a> {
    engine: &'a Engine,
    metrics: &'a Metrics,
    /// Remaining turns with prefetching, this one included. If all rows are in RAM, no read is slow
    /// and this is 0.
    ahead: Cell<u32>,
    /// Number of reads in this turn that waited for the device.
    slow: Cell<usize>,
    /// Payloads of commands, in the order of execution.
    payloads: Vec<Bytes>,
    /// Number of payloads whose execution has begun.
    begun: Cell<usize>,
    /// Number of next items that the window covers.
    covered: Cell<usize>,
    /// The rest of the current payload, from the executing item on, while nothing is prefetched.
    current: RefCell<Option<Items>>,
    window: RefCell<HashMap<Bytes, Found>>,
    /// True if the changes of keys are to be told.
    wants_record: bool,
}

impl<'a> Turn<'a> {
    /// Begins a turn. `ahead` is the value that the last turn returned.
    pub fn new(engine: &'a Engine, metrics: &'a Metrics, ahead: u32, payloads: Vec<Bytes>) -> Turn<'a> {
        Turn {
            engine,
            metrics,
            ahead: Cell::new(ahead),
            slow: Cell::new(0),
            payloads,
            begun: Cell::new(0),
            covered: Cell::new(0),
            current: RefCell::default(),
            window: RefCell::default(),
            wants_record: false,
        }
    }

    /// Has the changes of keys told, if clients want to know.
    pub fn with_record(self, wants_record: bool) -> Turn<'a> {
        Turn { wants_record, ..self }
    }

    /// Returns the value of `ahead` for the next turn.
    pub fn left(self) -> u32 {
        self.ahead.get().saturating_sub(1)
    }

    /// Notes that a read of the executing item waited for the device.
    fn note_slow(&self) {
        self.count_slow(1);
        if self.ahead.get() > 0 {
            // The item may have more keys, and other items follow.
            if let Some(items) = self.current.take() {
                self.covered.set(self.look_ahead(&items) - 1);
            }
        }
    }

    fn count_slow(&self, reads: usize) {
        self.slow.set(self.slow.get() + reads);
        if self.slow.get() >= SLOW_READS {
            self.ahead.set(TURNS);
        }
    }

    /// Removes a row from the window. A later read of the same row finds it in RAM.
    fn take(&self, row: &[u8]) -> Option<Found> {
        let mut window = self.window.borrow_mut();
        if window.is_empty() {
            return None;
        }
        let found = window.remove(row)?;
        self.metrics.rows_read_ahead_used.inc();
        Some(found)
    }

    /// Prefetches the rows of the next items. Returns the number of items that the window covers,
    /// at least one.
    fn look_ahead(&self, items: &Items) -> usize {
        let mut missing = Missing::new(self.engine.rows());
        // For each item, the number of rows that it and the items before it need.
        let mut rows = Vec::new();
        let mut items = items.clone();
        let keyspace = self.engine.rows();
        // Payloads start again after one of them failed.
        let mut later = self.payloads.get(self.begun.get()..).unwrap_or_default().iter();
        while missing.len() < ROWS_MAX && rows.len() < ITEMS_MAX {
            match items.next_item() {
                Ok(Some(item)) => {
                    prefetch::of_item(&item, items.stamp_ms, keyspace, &mut |wanted| missing.add(wanted));
                    rows.push(missing.len());
                }
                Ok(None) => match later.next().map(|payload| Items::decode(payload.clone())) {
                    Some(Ok(next)) => items = next,
                    _ => break,
                },
                // The error is handled when the item is executed.
                Err(_) => break,
            }
        }
        if !missing.are_several() {
            return rows.len().max(1);
        }
        let read = missing.read(self.engine.readers(), BYTES_MAX);
        self.count_slow(read.slow);
        self.metrics.rows_read_ahead.inc_by(read.rows.len() as u64);
        *self.window.borrow_mut() = read.rows.into_iter().collect();
        rows.partition_point(|rows| *rows <= read.taken).max(1)
    }
}

impl Rows for Turn<'_> {
    fn begin_payload(&self) {
        self.begun.set(self.begun.get() + 1);
    }

    fn coming(&self, items: &Items) {
        match self.covered.get() {
            0 if self.ahead.get() == 0 => *self.current.borrow_mut() = Some(items.clone()),
            0 => self.covered.set(self.look_ahead(items) - 1),
            covered => self.covered.set(covered - 1),
        }
    }

    fn wants_record(&self) -> bool {
        self.wants_record
    }
}

impl Reader for Turn<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        if let Some(found) = self.take(row) {
            return Ok(found);
        }
        let rows = self.engine.rows();
        if let Some(value) = rows.get_if_in_ram(row) {
            return Ok(value);
        }
        let began = Instant::now();
        let value = rows.get(row)?;
        if self.engine.readers().is_slow(began) {
            self.note_slow();
        }
        Ok(value)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> storage::Result<()> {
        self.engine.rows().scan(from, to, visit)
    }
}

#[cfg(test)]
mod tests;
