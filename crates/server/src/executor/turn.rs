//! The rows of one turn of apply, as its commands read them.
//!
//! A command reads the row that it replaces, and executing one after the other each would wait for the device in
//! its turn. So once reads have waited for it, the rows of the commands that come next, which are not in RAM, are
//! read at once and kept until they are asked for: a window of them at a time, beginning with the
//! command that executes next.
//!
//! What is kept is what would have been read. Rows of a region are written by the thread that executes here, when
//! the turn is over, or replaced while the region has no entries to apply; what the turn itself has written stands
//! in the `Txn` and is never asked for here. A command whose slot the region gave away does not execute, and
//! nothing asks for its rows.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use command::entry::Items;
use command::foresight;
use node::Rows;
use storage::{Reader, Visit};

use crate::ahead::Missing;
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::readers::Found;

/// Rows of a window: enough for every reader to be busy most of the time.
const ROWS_MAX: usize = 1024;
/// Items of a window, most of whose rows may be in RAM.
const ITEMS_MAX: usize = 8192;
/// Values of a window, those of hash fields as much again.
const BYTES_MAX: usize = 16 << 20;

/// A single slow read may have been a thread that waited for a CPU.
const SLOW_READS: usize = 2;
/// After a turn with slow reads rows are read ahead for so many turns.
const TURNS: u32 = 16;

pub struct Turn<'a> {
    engine: &'a Engine,
    metrics: &'a Metrics,
    /// Turns, this one included, in which rows are read ahead. Where all is in RAM no read is slow, and none are.
    ahead: Cell<u32>,
    /// Reads of this turn that waited for the device.
    slow: Cell<usize>,
    /// Payloads of commands, in the order in which they are executed.
    payloads: Vec<Bytes>,
    /// How many of them have begun.
    begun: Cell<usize>,
    /// Items from the next one on that the window covers.
    covered: Cell<usize>,
    /// What is left of the payload with the item that executes, while nothing is read ahead.
    current: RefCell<Option<Items>>,
    window: RefCell<HashMap<Bytes, Found>>,
}

impl<'a> Turn<'a> {
    /// `ahead` is what the turn before left.
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
        }
    }

    /// For the next turn.
    pub fn left(self) -> u32 {
        self.ahead.get().saturating_sub(1)
    }

    /// A read of the item that executes waited for the device.
    fn note_slow(&self) {
        self.count_slow(1);
        if self.ahead.get() > 0 {
            // It may name more keys, and others follow.
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

    /// A row of the window. It goes: whatever is asked for again is in RAM by then.
    fn take(&self, row: &[u8]) -> Option<Found> {
        let mut window = self.window.borrow_mut();
        if window.is_empty() {
            return None;
        }
        let found = window.remove(row)?;
        self.metrics.rows_read_ahead_used.inc();
        Some(found)
    }

    /// Reads what the next items will ask for, and gives how many of them that covers: one at least.
    fn look_ahead(&self, items: &Items) -> usize {
        let mut missing = Missing::new(self.engine.rows());
        // By item, how many rows it and those before it need.
        let mut rows = Vec::new();
        let mut items = items.clone();
        let keyspace = self.engine.rows();
        // Payloads begin again where one of them failed.
        let mut later = self.payloads.get(self.begun.get()..).unwrap_or_default().iter();
        while missing.len() < ROWS_MAX && rows.len() < ITEMS_MAX {
            match items.next_item() {
                Ok(Some(item)) => {
                    foresight::of_item(&item, items.stamp_ms, keyspace, &mut |wanted| missing.add(wanted));
                    rows.push(missing.len());
                }
                Ok(None) => match later.next().map(|payload| Items::decode(payload.clone())) {
                    Some(Ok(next)) => items = next,
                    _ => break,
                },
                // Whoever executes it meets it again.
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
