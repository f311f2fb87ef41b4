//! The rows in RAM at one moment.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLockReadGuard;
use storage::tier::{Found, RamTier, Seconds};
use storage::{Result, Visit};

/// The rows in RAM at one moment. No row can be written while this is held.
pub struct InRam<'a> {
    tier: RwLockReadGuard<'a, RamTier>,
    hits: &'a AtomicU64,
}

/// A row as `Keyspace::fetch` read it from flash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The row's value, or `None` if there is no such row.
    pub value: Option<Bytes>,
    /// The epoch of the RAM tier before flash was read.
    pub(crate) epoch: u64,
}

impl<'a> InRam<'a> {
    pub(crate) fn new(tier: RwLockReadGuard<'a, RamTier>, hits: &'a AtomicU64) -> InRam<'a> {
        InRam { tier, hits }
    }

    /// Returns the row's value. `Some(None)` means that there is no such row. `None` means that
    /// only flash can tell.
    pub fn get(&self, row: &[u8]) -> Option<Option<Bytes>> {
        self.counted(self.tier.get(row))
    }

    fn counted(&self, found: Found) -> Option<Option<Bytes>> {
        let found = found_in_ram(found);
        if found.is_some() {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Same as [`get`](Self::get), but does not end the row's idle time.
    pub fn peek(&self, row: &[u8]) -> Option<Option<Bytes>> {
        self.counted(self.tier.peek(row))
    }

    /// See [`RamTier::look`].
    pub fn look(&self, row: &[u8]) -> Option<Bytes> {
        self.tier.look(row)
    }

    /// See [`RamTier::idle_time`].
    pub fn idle_time(&self, row: &[u8]) -> Option<Seconds> {
        self.tier.idle_time(row)
    }

    /// See [`RamTier::age`].
    pub fn age(&self) -> Seconds {
        self.tier.age()
    }

    /// See [`RamTier::is_worth_touching`].
    pub fn is_worth_touching(&self) -> bool {
        self.tier.is_worth_touching()
    }

    /// See [`RamTier::touch`].
    pub fn touch(&self, rows: &[&[u8]]) {
        self.tier.touch(rows);
    }

    /// Same as [`get`](Self::get), with a row that was fetched from flash and counting no hit. The
    /// fetched value is used if it is the value at this moment: no memtable has the row, and none
    /// was dropped since the row was fetched.
    pub fn get_or(&self, row: &[u8], fetched: Option<&Fetched>) -> Option<Option<Bytes>> {
        match fetched {
            Some(fetched) => fetched.unless(self.tier.get_fetched(row, fetched.epoch)),
            None => found_in_ram(self.tier.get(row)),
        }
    }

    /// Same as [`get_or`](Self::get_or), but does not end the row's idle time.
    pub fn peek_or(&self, row: &[u8], fetched: Option<&Fetched>) -> Option<Option<Bytes>> {
        match fetched {
            Some(fetched) => fetched.unless(self.tier.peek_fetched(row, fetched.epoch)),
            None => found_in_ram(self.tier.peek(row)),
        }
    }

    /// Visits the rows in `from..to`, and subtracts those that it examines, deleted ones included,
    /// from `rows_left`. `visit` may look at rows of this moment.
    ///
    /// # Errors
    /// [`NotInRam`](storage::StorageError::NotInRam) once only flash can tell which rows there are,
    /// or if the scan is long. Rows before that place have been visited.
    pub fn scan(&self, from: &[u8], to: &[u8], rows_left: &Cell<usize>, visit: &mut Visit<'_>) -> Result<()> {
        self.tier.scan_known(from, to, rows_left, visit)
    }
}

impl Fetched {
    /// Returns what was found in RAM, or else the value that was fetched.
    fn unless(&self, found: Option<Found>) -> Option<Option<Bytes>> {
        match found {
            Some(found) => found_in_ram(found),
            None => Some(self.value.clone()),
        }
    }
}

/// Returns what RAM knows of a row.
pub(crate) fn found_in_ram(found: Found) -> Option<Option<Bytes>> {
    match found {
        Found::Row(value) => Some(value),
        Found::OnFlash { .. } => None,
    }
}
