//! A store's rows with the production code of the RAM tier, on a flash tier in memory. Random
//! choices replace the threads of a server: which rows stay in RAM, when a row that was read from
//! flash is filled in, how far a flushed memtable is settled before the next event, and which rows
//! the filter has learnt. In some runs ranges of rows are known, too, and scans are answered from
//! them.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use bytes::Bytes;
use storage::tier::{Found, RamTier, RowHash, Unlearnt};
use storage::{MemoryKeyspace, Reader, Result, StorageError, Visit, WriteSet};

use crate::rng::Rng;

/// Size of the cache in bytes, which holds only some of a run's rows.
const CACHE_BYTES: u64 = 20_000;
/// Maximum size of the filter of rows in bytes. It is so small that it often errs.
const FILTER_BYTES: u64 = 1024;
/// Maximum number of parts of the filter that one pass over flash learns.
const PASS_PARTS_MAX: u64 = 100;
/// Maximum number of rows that are read from flash and not filled in.
const FETCHES_MAX: usize = 8;
/// Size of the cache in bytes in a run with known ranges, which take an eighth of it.
const CACHE_BYTES_WITH_RANGES: u64 = 64_000;
/// Maximum number of rows in a known range. It is so small that ranges are often divided.
const RANGE_ROWS_MAX: usize = 8;
/// Maximum number of rows of a range that is read from flash to be learnt.
const RANGE_ROWS_READ_MAX: u64 = 7;
/// Maximum number of rows that a scan examines if it may examine only a few.
const FEW_ROWS: u64 = 30;

#[derive(Debug)]
pub struct Rows {
    ram: RefCell<Ram>,
    flash: MemoryKeyspace,
}

#[derive(Debug)]
struct Ram {
    tier: RamTier,
    /// Rows that were read from flash, with the value and the epoch before the read.
    fetches: Vec<(Bytes, Option<Bytes>, u64)>,
    /// Memtables below this number are durable on flash.
    flushed: u64,
    /// A pass over flash for the filter: a part, and its rows on flash when it began.
    pass: Option<(Unlearnt, Vec<RowHash>)>,
    /// The ranges, in a run with known ranges.
    ranges: Option<Ranges>,
    rng: Rng,
}

#[derive(Debug)]
struct Ranges {
    /// Ranges that were read from flash and are not learnt yet.
    read: Vec<ReadRange>,
    /// Draws for ranges only, so that runs without them are as before.
    rng: Rng,
}

#[derive(Debug)]
struct ReadRange {
    from: Bytes,
    to: Bytes,
    rows: Vec<(Bytes, Bytes)>,
    /// The version before the read.
    version: u64,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows { ram: RefCell::new(Ram::new(Rng::new(1))), flash: MemoryKeyspace::default() }
    }
}

impl Ram {
    fn new(rng: Rng) -> Ram {
        let tier = RamTier::new(CACHE_BYTES, u64::MAX, 1).with_row_filter(FILTER_BYTES, 0);
        let tier = tier.with_range_rows_max(RANGE_ROWS_MAX);
        Ram { tier, fetches: Vec::new(), flushed: 0, pass: None, ranges: None, rng }
    }

    fn know_ranges(&mut self, rng: Rng) {
        self.tier.set_bytes_max(CACHE_BYTES_WITH_RANGES, u64::MAX);
        self.ranges = Some(Ranges { read: Vec::new(), rng });
    }

    /// Performs actions that other threads may take at any moment.
    fn interfere(&mut self, flash: &MemoryKeyspace) {
        if self.rng.chance(10) {
            self.learn_some(flash);
        }
        if self.rng.chance(20) && !self.fetches.is_empty() {
            let at = self.rng.below(self.fetches.len() as u64) as usize;
            let (row, value, epoch) = self.fetches.swap_remove(at);
            self.tier.fill(&row, &value, epoch);
        }
        if self.rng.chance(20) {
            self.settle_some(1);
        }
        self.learn_range();
    }

    /// Learns a range that was read before, perhaps.
    fn learn_range(&mut self) {
        let Some(Ranges { read, rng }) = &mut self.ranges else { return };
        if !read.is_empty() && rng.chance(30) {
            let at = rng.below(read.len() as u64) as usize;
            let ReadRange { from, to, rows, version } = read.swap_remove(at);
            self.tier.learn_range(from, to, rows, version);
        }
    }

    /// Reads a part of `from..to` whose rows on flash are not known, perhaps. It is learnt at once
    /// or later.
    fn read_range(&mut self, flash: &MemoryKeyspace, from: &[u8], to: &[u8]) -> Result<()> {
        let unknown = self.tier.unknown_range(from, to);
        let Some(Ranges { read, rng }) = &mut self.ranges else { return Ok(()) };
        let rows_max = rng.below(RANGE_ROWS_READ_MAX + 1) as usize;
        let Some((from, to)) = unknown.filter(|_| rng.chance(70)) else { return Ok(()) };
        let (mut rows, mut behind) = (Vec::new(), None);
        flash.scan(&from, &to, &mut |row, value| {
            if rows.len() == rows_max {
                behind = Some(Bytes::copy_from_slice(row));
                return ControlFlow::Break(());
            }
            rows.push((Bytes::copy_from_slice(row), Bytes::copy_from_slice(value)));
            ControlFlow::Continue(())
        })?;
        let (to, version) = (behind.unwrap_or(to), self.tier.flash_version());
        if rng.chance(50) {
            self.tier.learn_range(from, to, rows, version);
            return Ok(());
        }
        if read.len() == FETCHES_MAX {
            let at = rng.below(FETCHES_MAX as u64) as usize;
            read.swap_remove(at);
        }
        read.push(ReadRange { from, to, rows, version });
        Ok(())
    }

    /// Compares the known ranges with flash, perhaps. Few other reads come to ranges that were
    /// deleted.
    ///
    /// # Panics
    /// If a scan of a known range differs from one of flash.
    fn check_ranges(&mut self, flash: &MemoryKeyspace) {
        if !self.ranges.as_mut().is_some_and(|ranges| ranges.rng.chance(10)) {
            return;
        }
        let (mut from, end) = (Bytes::new(), Bytes::from_static(&[0xff; 32]));
        while from < end {
            let unknown = self.tier.unknown_range(&from, &end);
            let (to, next) = unknown.unwrap_or((end.clone(), end.clone()));
            let (mut known, mut merged) = (Vec::new(), Vec::new());
            let scanned = self.tier.scan_known(&from, &to, &Cell::new(usize::MAX), &mut |row, value| {
                known.push((row.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            });
            let below = |visit: &mut Visit<'_>| flash.scan(&from, &to, visit);
            let compared = self.tier.scan(&from, &to, below, &mut |row, value| {
                merged.push((row.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            });
            if scanned.and(compared).is_ok() {
                assert!(known == merged, "known rows in {from:?}..{to:?} differ from flash");
            }
            from = next;
        }
    }

    /// Scans without flash. Returns the rows that were visited, and the outcome.
    fn scan_known(&mut self, from: &[u8], to: &[u8]) -> (Vec<(Bytes, Bytes)>, Result<()>) {
        let mut rows = Vec::new();
        let Some(Ranges { rng, .. }) = &mut self.ranges else { return (rows, Err(StorageError::NotInRam)) };
        let rows_left = if rng.chance(10) { rng.below(FEW_ROWS) as usize } else { usize::MAX };
        let scanned = self.tier.scan_known(from, to, &Cell::new(rows_left), &mut |row, value| {
            rows.push((Bytes::copy_from_slice(row), Bytes::copy_from_slice(value)));
            ControlFlow::Continue(())
        });
        (rows, scanned)
    }

    /// Completes the pass that is under way and begins another one. Some passes begin and end at
    /// once.
    fn learn_some(&mut self, flash: &MemoryKeyspace) {
        for _ in 0..=self.rng.below(PASS_PARTS_MAX) {
            if let Some((part, rows)) = self.pass.take() {
                self.tier.learn(rows);
                self.tier.complete(&part);
            }
            let Some(part) = self.tier.unlearnt() else { return };
            let (from, to) = storage::rows::slots_range(part.slots());
            let mut rows = Vec::new();
            let visited = flash.scan(&from, &to, &mut |row, _| {
                rows.extend(part.hash(row));
                ControlFlow::Continue(())
            });
            self.pass = visited.is_ok().then_some((part, rows));
        }
    }

    /// Takes `steps` steps of settling memtables that are on flash.
    fn settle_some(&mut self, steps: usize) {
        for _ in 0..steps {
            let oldest = self.tier.frozen().next().map(|oldest| oldest.number());
            if oldest.is_some_and(|number| number < self.flushed) {
                self.tier.settle(2);
            }
        }
    }
}

impl Rows {
    /// Gives the store known ranges, with a seed of their own.
    pub fn know_ranges(&mut self, seed: u64) {
        self.ram.get_mut().know_ranges(Rng::new(seed));
    }

    /// Applies a write set as a whole. It is visible at once and durable after the next flush.
    pub fn write(&mut self, writes: WriteSet) {
        let ram = self.ram.get_mut();
        ram.interfere(&self.flash);
        ram.tier.write(writes);
    }

    /// Freezes everything written so far. Returns the number below which memtables must be flushed
    /// to make it durable.
    pub fn freeze(&mut self) -> u64 {
        let ram = self.ram.get_mut();
        ram.tier.freeze();
        ram.tier.frozen().last().map_or(ram.flushed, |newest| newest.number() + 1)
    }

    /// Makes frozen memtables below this number durable.
    pub fn flush_below(&mut self, number: u64) {
        let ram = self.ram.get_mut();
        for table in ram.tier.frozen().filter(|table| (ram.flushed..number).contains(&table.number())) {
            let rows = table.rows().map(|(row, value)| (row.clone(), value.clone())).collect();
            self.flash.write(WriteSet { ranges_deleted: table.ranges().to_vec(), rows });
            self.flash.flush();
        }
        ram.flushed = ram.flushed.max(number);
        let steps = ram.rng.below(20) as usize;
        ram.settle_some(steps);
        ram.check_ranges(&self.flash);
    }

    /// Makes everything written so far durable.
    pub fn flush(&mut self) {
        let number = self.freeze();
        self.flush_below(number);
    }

    /// Flushes a random number of memtables, oldest first, as the flash tier may do at any time.
    pub fn flush_some(&mut self) {
        let all = self.freeze();
        let ram = self.ram.get_mut();
        let number = ram.rng.between(ram.flushed, all);
        self.flush_below(number);
    }

    /// Drops all data that was not flushed.
    pub fn crash(&mut self) {
        let before = self.ram.get_mut();
        let mut ram = Ram::new(before.rng.clone());
        if let Some(Ranges { rng, .. }) = before.ranges.take() {
            ram.know_ranges(rng);
        }
        self.ram = RefCell::new(ram);
        self.flash.crash();
    }

    /// Replaces the rows of `from..to` with `rows`. They are durable immediately.
    pub fn ingest(&mut self, from: &Bytes, to: &Bytes, rows: impl IntoIterator<Item = (Bytes, Bytes)>) {
        self.flush();
        let ram = self.ram.get_mut();
        while ram.tier.frozen().next().is_some() {
            ram.tier.settle(2);
        }
        ram.tier.begin_replacing(&[(from.clone(), to.clone())]);
        while !ram.tier.replace_step() {}
        self.flash.ingest(from, to, rows);
        ram.tier.end_replacing();
    }
}

impl Reader for Rows {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let mut ram = self.ram.borrow_mut();
        ram.interfere(&self.flash);
        match ram.tier.get(row) {
            Found::Row(value) => Ok(value),
            Found::OnFlash { epoch } => {
                let value = self.flash.get(row)?;
                if ram.fetches.len() == FETCHES_MAX {
                    let at = ram.rng.below(FETCHES_MAX as u64) as usize;
                    ram.fetches.swap_remove(at);
                }
                ram.fetches.push((Bytes::copy_from_slice(row), value.clone(), epoch));
                Ok(value)
            }
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let (known, is_whole) = {
            let mut ram = self.ram.borrow_mut();
            ram.learn_range();
            ram.read_range(&self.flash, from, to)?;
            let (rows, scanned) = ram.scan_known(from, to);
            (rows, scanned.is_ok())
        };
        if is_whole {
            let _ = known.iter().try_for_each(|(row, value)| visit(row, value));
            return Ok(());
        }
        let ram = self.ram.borrow();
        ram.tier.scan(from, to, |visit| self.flash.scan(from, to, visit), visit)
    }
}

impl node::Rows for Rows {}

impl Rows {
    /// Returns a view of the rows that are in RAM.
    pub fn in_ram(&self) -> InRam<'_> {
        InRam(self)
    }
}

/// The rows that are in RAM.
pub struct InRam<'a>(&'a Rows);

impl Reader for InRam<'_> {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let mut ram = self.0.ram.borrow_mut();
        ram.interfere(&self.0.flash);
        match ram.tier.get(row) {
            Found::Row(value) => Ok(value),
            Found::OnFlash { .. } => Err(StorageError::NotInRam),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        // The visitor may read rows, which changes what is in RAM.
        let (known, scanned) = {
            let mut ram = self.0.ram.borrow_mut();
            ram.learn_range();
            ram.scan_known(from, to)
        };
        match known.iter().try_for_each(|(row, value)| visit(row, value)) {
            ControlFlow::Continue(()) => scanned,
            ControlFlow::Break(()) => Ok(()),
        }
    }

    fn is_hasty(&self) -> bool {
        true
    }
}

impl node::Rows for InRam<'_> {}
