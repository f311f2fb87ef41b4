//! The rows of this store: reads for clients, and one write for each turn of the worker.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use command::{Exec, Limits, Mode, Outcome, Spanning};
use parking_lot::Mutex;
use rocks::{Fetched, InRam, Keyspace};
use storage::rows::Part;
use storage::{
    packed, rows, HeldLimit, KeyCounts, KeyRef, Reader, RegionState, StorageError, Txn, Visit, WriteSet,
};
use types::{RegionDescriptor, RegionId, Slot, SlotRange, Thresholds, UnixMillis, META_REGION};

use crate::fetcher::Fetcher;
use crate::readers::Readers;
use crate::regions::RegionShared;
use crate::slot_times::SlotTimes;
use crate::tuning::Tuning;
use node::{Answer, Item, ItemSlot};

pub struct Engine {
    rows: Arc<Keyspace>,
    /// Reads rows for execution.
    readers: Readers,
    /// Reads rows for clients.
    fetcher: Fetcher,
    tuning: Tuning,
    upkeep: Upkeep,
    /// The statistics of the rows at the last look.
    stats: Mutex<Arc<rocks::Stats>>,
    /// The counters of each region with a peer here, as applied.
    counts: Mutex<BTreeMap<RegionId, Counts>>,
    /// The thresholds of collections that the cluster has agreed on, as this store last heard.
    /// Reads use them, and the entries that this store proposes carry them. The execution of an
    /// entry uses those of the entry.
    thresholds: ArcSwap<Thresholds>,
}

/// The times at which a search for maintenance work is worthwhile.
pub struct Upkeep {
    /// The times at which keys of a slot become due.
    pub expiry: SlotTimes,
    /// Due immediately for slots that may hold elements of deleted collections.
    pub sweep: SlotTimes,
    /// True if this store searches for expired keys. `DEBUG SET-ACTIVE-EXPIRE` changes it.
    pub is_expiry_active: AtomicBool,
}

struct Counts {
    /// By database: the number of keys, and of keys with an expiry time.
    keys: Vec<(u16, (u64, u64))>,
    bytes: u64,
}

impl Engine {
    pub fn new(rows: Keyspace, tuning: Tuning) -> Engine {
        let rows = Arc::new(rows);
        Engine::with(Readers::new(rows.clone()), rows, tuning)
    }

    fn with(readers: Readers, rows: Arc<Keyspace>, tuning: Tuning) -> Engine {
        let upkeep = Upkeep {
            expiry: SlotTimes::unknown(),
            sweep: SlotTimes::unknown(),
            is_expiry_active: AtomicBool::new(true),
        };
        let fetcher = Fetcher::new(rows.clone(), tuning.reader_threads);
        let (stats, counts) = (Mutex::default(), Mutex::default());
        Engine { rows, readers, fetcher, tuning, upkeep, stats, counts, thresholds: ArcSwap::default() }
    }

    /// Returns an engine that treats every read as slow.
    #[cfg(test)]
    pub fn on_a_slow_device(rows: Keyspace) -> Engine {
        let rows = Arc::new(rows);
        Engine::with(Readers::with(rows.clone(), std::time::Duration::ZERO), rows, Tuning::default())
    }

    /// Returns the thresholds that the cluster has agreed on, as this store last heard.
    pub fn thresholds(&self) -> Thresholds {
        **self.thresholds.load()
    }

    pub fn set_thresholds(&self, thresholds: Thresholds) {
        self.thresholds.store(Arc::new(thresholds));
    }

    pub fn rows(&self) -> &Keyspace {
        &self.rows
    }

    /// Returns a region's state and descriptor in the rows, as applied; `None` if there are none
    /// yet.
    pub fn region_rows(
        &self,
        region: RegionId,
    ) -> storage::Result<Option<(RegionState, Option<RegionDescriptor>)>> {
        let row = rows::region_state_row(region);
        let Some(state) = self.rows.get(&row)? else { return Ok(None) };
        let decode = |row: Bytes| {
            RegionDescriptor::decode(&row).map_err(|error| StorageError::Corrupt(error.to_string()))
        };
        let descriptor = self.rows.get(&rows::region_descriptor_row(region))?.map(decode).transpose()?;
        Ok(Some((RegionState::decode(&state)?, descriptor)))
    }

    /// Returns a region's state in the rows: its applied index, its time and its counts.
    pub fn region_state(&self, region: RegionId) -> storage::Result<RegionState> {
        storage::load_state(self.rows(), region)
    }

    /// Executes a read of a few rows that are all in RAM. Returns `None` if a row is not, or if the
    /// read may need many.
    pub fn read_from_ram(&self, region: &RegionShared, item: &Item, now: UnixMillis) -> Option<Counted> {
        let rows = OneMoment::new(self.rows.in_ram());
        if !rows.admits(item) {
            return None;
        }
        let outcome = run(&rows, region, item, (now, self.thresholds())).ok()?;
        (!rows.missed.get()).then_some(outcome)
    }

    /// Same as [`read_from_ram`](Self::read_from_ram), but brings a few short ranges of rows into
    /// RAM that the read needs.
    fn read_learning(
        &self,
        region: &RegionShared,
        item: &Item,
        now: UnixMillis,
    ) -> storage::Result<Option<Counted>> {
        // The same random choices need the same ranges.
        let (now, seed) = ((now, self.thresholds()), next_seed(now));
        for _ in 0..=RANGES_LEARNT_MAX {
            let (from, to) = {
                let rows = OneMoment::new(self.rows.in_ram());
                if !rows.admits(item) {
                    return Ok(None);
                }
                match run_with(&rows, region, item, now, seed, HeldLimit::default()) {
                    Ok(outcome) if !rows.missed.get() => return Ok(Some(outcome)),
                    _ => match rows.unknown.take() {
                        Some(range) => range,
                        None => return Ok(None),
                    },
                }
            };
            if !self.rows.learn_range(&from, &to)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Executes reads that are all [answered from RAM](Self::read_from_ram), at one moment. Returns
    /// the answers and the keys that the reads have looked up; `None` if a row is not in RAM, or if
    /// a read must be [proposed](Outcome::NeedsApply).
    pub fn read_all_from_ram(
        &self,
        region: &RegionShared,
        items: &[Item],
        now: UnixMillis,
    ) -> Option<(Vec<Answer>, KeyCounts)> {
        let rows = OneMoment::new(self.rows.in_ram());
        let (mut answers, mut counts) = (vec![None; items.len()], KeyCounts::default());
        let now = (now, self.thresholds());
        // Those that may be refused come first, so that little work is done in vain.
        for is_bounded in [false, true] {
            for (item, answer) in items.iter().zip(&mut answers) {
                if item.is_bounded_read() != is_bounded {
                    continue;
                }
                if !rows.admits(item) {
                    return None;
                }
                match run(&rows, region, item, now) {
                    Ok((Outcome::Reply(reply), counted)) if !rows.missed.get() => {
                        *answer = Some(reply.into());
                        counts += counted;
                    }
                    _ => return None,
                }
            }
        }
        Some((answers.into_iter().collect::<Option<_>>()?, counts))
    }

    /// Returns the answers of writes that all [find nothing](Item::finds_nothing) at one moment;
    /// `None` if a key exists, or if only flash knows it.
    pub fn find_nothing_in_ram(
        &self,
        region: &RegionShared,
        items: &[Item],
        now: UnixMillis,
    ) -> Option<(Vec<Answer>, KeyCounts)> {
        let rows = OneMoment::new(self.rows.in_ram());
        let (mut answers, mut counts) = (Vec::with_capacity(items.len()), KeyCounts::default());
        for item in items {
            if !item.finds_nothing(&rows).ok()? || rows.missed.get() {
                return None;
            }
            match run(&rows, region, item, (now, self.thresholds())) {
                Ok((Outcome::Reply(reply), counted)) if !rows.missed.get() => {
                    answers.push(reply.into());
                    counts += counted;
                }
                _ => return None,
            }
        }
        Some((answers, counts))
    }

    /// Returns true unless RAM knows that the sources of a command that may be executed in parts
    /// are small.
    pub fn may_copy_much(&self, item: &Item, elements: u32) -> bool {
        let rows = OneMoment::new(self.rows.in_ram());
        let is_large = command::copying::has_large_source(item.spec, &item.args, item.db, &rows, elements);
        // Ranges of sets that RAM does not have are rarely large either.
        is_large.unwrap_or(true) || rows.missed.get() && !command::copying::removes_range(item.spec)
    }

    /// Executes reads of a few rows each at one moment, over rows in RAM and rows that were fetched
    /// for them, until the first one that needs more. The rows that it and the reads after it need
    /// are returned.
    pub fn read_with_fetched(
        &self,
        region: &RegionShared,
        items: &[Item],
        now: UnixMillis,
        fetched: &HashMap<Bytes, Fetched>,
    ) -> ReadSoFar {
        let mut so_far = ReadSoFar::default();
        let mut rows = OneMoment { fetched: Some(fetched), ..OneMoment::new(self.rows.in_ram()) };
        let now = (now, self.thresholds());
        for item in items {
            if !item.is_bounded_read() {
                break;
            }
            let outcome = run(&rows, region, item, now);
            let has_missed = rows.missed.replace(false);
            so_far.missed.push(has_missed);
            match outcome {
                Ok(outcome) if !has_missed && so_far.is_whole => so_far.outcomes.push(outcome),
                // The read is repeated. If it fails again, the caller learns the error.
                _ => so_far.is_whole = false,
            }
        }
        so_far.rows = std::mem::take(rows.wanted.get_mut());
        so_far
    }

    /// Reads the statistics of RocksDB. This may wait for its mutex.
    pub fn look(&self) -> storage::Result<Arc<rocks::Stats>> {
        let stats = Arc::new(self.rows.stats()?);
        *self.stats.lock() = stats.clone();
        Ok(stats)
    }

    /// Returns the statistics of about a second ago.
    pub fn stats(&self) -> Arc<rocks::Stats> {
        self.stats.lock().clone()
    }

    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Returns the options that this store chose.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    pub fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    /// Executes a read over rows of one moment. Its reply is an error if it holds more than `held`.
    pub fn read(
        &self,
        region: &RegionShared,
        item: &Item,
        now: UnixMillis,
        held: HeldLimit<'_>,
    ) -> storage::Result<Counted> {
        if item.is_bounded_read() {
            // This read method brings the rows into RAM.
            let rows = OneAfterTheOther { rows: &self.rows, read: Cell::new(0) };
            let outcome = run_holding(&rows, region, item, (now, self.thresholds()), held);
            // A single row is always consistent. Several rows that were read one after the other
            // need not belong together, and those of a tree may even look damaged.
            if rows.read.get() <= 1 {
                return outcome;
            }
            if let Some(outcome) = self.read_from_ram(region, item, now) {
                return Ok(outcome);
            }
        }
        if !item.is_bounded_read() && item.is_small_if_its_keys_are() {
            // Small collections are brought into RAM.
            for (key, _) in command::keys_of(item.spec, &item.args) {
                self.rows.get_peeking(&KeyRef::new(item.db, key).meta_row())?;
            }
            if let Some(outcome) = self.read_learning(region, item, now)? {
                return Ok(outcome);
            }
        }
        let now = (now, self.thresholds());
        // In a region of some slots such a command refuses keys of other slots.
        let is_of_one_slot = !item.spec.reads_unnamed_keys() || region.slots_or_all() != SlotRange::ALL;
        match (item.spec.spanning(), ItemSlot::of(item.spec, &item.args)) {
            // The results of these commands need not show one moment.
            (Some(Spanning::Cursor | Spanning::FirstFound), _) => {
                run_holding(&*self.rows, region, item, now, held)
            }
            (_, ItemSlot::One(slot)) if is_of_one_slot => {
                let (from, to) = rows::slots_range(SlotRange { first: slot, last: slot });
                run_holding(&self.rows.view_of(&from, &to), region, item, now, held)
            }
            _ => run_holding(&self.rows.view(), region, item, now, held),
        }
    }

    /// Writes rows into the RAM tier. A caller with many rows first [waits for
    /// room](Keyspace::wait_for_room).
    pub fn write(&self, writes: WriteSet) {
        let written = writes.rows.iter().filter(|(_, value)| value.is_some());
        let upkeep: Vec<_> = written.filter_map(|(row, _)| rows::upkeep_of(row)).collect();
        self.rows.write(writes);
        // A row must be readable before the indexes of upkeep name it.
        for (slot, kind) in upkeep {
            match kind {
                rows::Upkeep::Expire { at_ms } => self.upkeep.expiry.note(slot, at_ms),
                rows::Upkeep::Sweep => self.upkeep.sweep.note(slot, 0),
            }
        }
    }

    pub fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }

    /// Records that rows were added to these slots by means other than [write](Self::write).
    pub fn rows_came(&self, slots: SlotRange) {
        self.upkeep.expiry.forget(slots);
        self.upkeep.sweep.forget(slots);
    }

    pub fn publish_counts(&self, region: RegionId, state: &RegionState) {
        let keys = state.databases().map(|(db, of_db)| (db, (of_db.keys, of_db.with_expiry))).collect();
        self.counts.lock().insert(region, Counts { keys, bytes: state.bytes() });
    }

    /// Drops the counts of a region that has no peer here any more.
    pub fn forget_counts(&self, region: RegionId) {
        self.counts.lock().remove(&region);
    }

    /// Returns the numbers of keys and of keys with expiry by database, over the regions with a
    /// peer here.
    pub fn key_counts(&self) -> BTreeMap<u16, (u64, u64)> {
        let mut sums = BTreeMap::new();
        for (_, counts) in self.counts.lock().iter().filter(|(region, _)| **region != META_REGION) {
            for (db, (keys, with_expiry)) in &counts.keys {
                let sum: &mut (u64, u64) = sums.entry(*db).or_default();
                *sum = (sum.0 + keys, sum.1 + with_expiry);
            }
        }
        sums
    }

    pub fn keys_in_region(&self, region: RegionId) -> u64 {
        let counts = self.counts.lock();
        counts.get(&region).map_or(0, |counts| counts.keys.iter().map(|(_, (keys, _))| keys).sum())
    }

    /// Returns the bytes of a region's live keys and values, as applied. The number is exact:
    /// memtables and overwritten values do not affect it.
    pub fn bytes_in_region(&self, region: RegionId) -> u64 {
        self.counts.lock().get(&region).map_or(0, |counts| counts.bytes)
    }

    /// Returns the sum over the regions with a peer here.
    pub fn user_bytes(&self) -> u64 {
        self.counts.lock().values().fold(0, |sum, counts| sum.saturating_add(counts.bytes))
    }

    /// Returns up to `max` keys of a slot in database 0 that have not expired at `now_ms`, as
    /// applied here.
    pub fn keys_in_slot(&self, slot: Slot, now_ms: UnixMillis, max: usize) -> storage::Result<Vec<Bytes>> {
        let (from, to) = rows::slots_range(SlotRange { first: slot, last: slot });
        command::keys_in_slot(&self.rows.view_of(&from, &to), slot, 0, now_ms, max)
    }

    pub fn has_expiring_keys(&self, region: RegionId) -> bool {
        let counts = self.counts.lock();
        counts.get(&region).is_some_and(|counts| counts.keys.iter().any(|(_, (_, expiring))| *expiring > 0))
    }

    /// Returns the approximate bytes on the device of each slot range, without memtables.
    fn bytes_within(&self, slots: &[SlotRange]) -> Vec<u64> {
        let ranges: Vec<_> = slots.iter().map(|slots| rows::slots_range(*slots)).collect();
        self.rows.approximate_sizes(&ranges).unwrap_or_else(|_| vec![0; slots.len()])
    }

    /// Returns the slot, not the first, that divides a range into halves of about equal bytes;
    /// `None` for a single slot.
    pub fn split_slot(&self, slots: SlotRange) -> Option<Slot> {
        if slots.len() < 2 {
            return None;
        }
        let mut range = slots;
        let mut before = 0;
        let total: u64 = self.bytes_within(&[slots])[0];
        // Each round narrows down the part that contains the middle.
        while range.len() > 1 && total > 0 {
            let parts = cut(range);
            let sizes = self.bytes_within(&parts);
            let mut end = before;
            let found = parts.iter().zip(&sizes).find(|(_, bytes)| {
                before = end;
                end += **bytes;
                end >= total / 2
            });
            // Sizes are estimates, so the sizes of the parts need not add up.
            range = *found.map_or(&parts[parts.len() - 1], |(part, _)| part);
        }
        let middle = match total {
            0 => slots.first + (slots.len() / 2) as Slot,
            _ => range.first,
        };
        Some(middle.clamp(slots.first + 1, slots.last))
    }
}

/// Divides a range into up to 64 parts.
fn cut(range: SlotRange) -> Vec<SlotRange> {
    let step = range.len().div_ceil(64);
    let begins = (usize::from(range.first)..=usize::from(range.last)).step_by(step);
    begins
        .map(|first| SlotRange {
            first: first as Slot,
            last: (first + step - 1).min(range.last.into()) as Slot,
        })
        .collect()
}

thread_local! {
    /// The number of reads that this thread has executed.
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// The outcome of a read, and the keys that it has looked up.
pub type Counted = (Outcome, KeyCounts);

/// Returns a seed for the random choices of a read (`RANDOMKEY`, `HRANDFIELD`). A read changes
/// nothing, so any seed is acceptable.
fn next_seed(now: UnixMillis) -> u64 {
    let reads = READS.get().wrapping_add(1);
    READS.set(reads);
    types::mix(now ^ reads << 20)
}

fn run(
    reader: &dyn Reader,
    region: &RegionShared,
    item: &Item,
    (now, thresholds): (UnixMillis, Thresholds),
) -> storage::Result<Counted> {
    run_with(reader, region, item, (now, thresholds), next_seed(now), HeldLimit::default())
}

/// Same as [`run`], with what the read may hold.
fn run_holding<'a>(
    reader: &'a dyn Reader,
    region: &RegionShared,
    item: &Item,
    (now, thresholds): (UnixMillis, Thresholds),
    held: HeldLimit<'a>,
) -> storage::Result<Counted> {
    run_with(reader, region, item, (now, thresholds), next_seed(now), held)
}

fn run_with<'a>(
    reader: &'a dyn Reader,
    region: &RegionShared,
    item: &Item,
    (now, thresholds): (UnixMillis, Thresholds),
    seed: u64,
    held: HeldLimit<'a>,
) -> storage::Result<Counted> {
    let mut txn = Txn::read_only(reader, region.id());
    txn.set_thresholds(thresholds);
    txn.set_held_limit(held);
    let mut exec = Exec {
        txn: &mut txn,
        now_ms: now,
        seed,
        db: item.db,
        mode: Mode::Read,
        slots: region.slots_or_all(),
        limits: Limits::default(),
        resp3: item.resp3,
    };
    let outcome = command::execute(item.spec, &item.args, &mut exec)?;
    Ok((outcome, txn.take_counts()))
}

/// The result of [`Engine::read_with_fetched`].
pub struct ReadSoFar {
    /// The outcomes of the first reads.
    pub outcomes: Vec<Counted>,
    /// For each read that was tried: true if it needs rows of flash.
    pub missed: Vec<bool>,
    /// The rows of flash that the reads need, in the order of the reads.
    pub rows: Vec<Bytes>,
    is_whole: bool,
}

impl Default for ReadSoFar {
    fn default() -> ReadSoFar {
        ReadSoFar { outcomes: Vec::new(), missed: Vec::new(), rows: Vec::new(), is_whole: true }
    }
}

/// Rows of one moment, if RAM holds all of them.
struct OneMoment<'a> {
    in_ram: InRam<'a>,
    /// Rows that were fetched from flash. With them, rows that are missing are noted in `wanted`,
    /// and hits are not counted.
    fetched: Option<&'a HashMap<Bytes, Fetched>>,
    wanted: RefCell<Vec<Bytes>>,
    known: RefCell<HashSet<Bytes>>,
    /// True after a request for a range, or for a row that RAM does not hold.
    missed: Cell<bool>,
    /// For a command that is executed only if it looks at little: packed collections, and short
    /// ranges of rows that are known in RAM. The number of bytes that it may still look at.
    packed_bytes_left: Cell<Option<usize>>,
    /// The number of rows that scans of the command may still examine.
    rows_left: Cell<usize>,
    /// A scan that only flash can continue.
    unknown: RefCell<Option<(Bytes, Bytes)>>,
}

/// Maximum number of short ranges that are brought into RAM for one read. A read that needs more is
/// executed over a view.
const RANGES_LEARNT_MAX: usize = 8;
/// Maximum bytes of small collections that a command looks at, which bounds its work on a loop.
const PACKED_BYTES_READ_MAX: usize = 32 << 10;
/// Maximum number of rows that the scans of a command examine on a loop, deleted ones included.
const ROWS_EXAMINED_MAX: usize = 2048;
/// Bytes that a look-up counts in addition to its row.
const LOOK_UP_BYTES: usize = 64;
/// Bytes that a scan counts in addition to its rows.
const SCAN_BYTES: usize = 256;
/// Bytes that a row of a range counts in addition to its own.
const SCANNED_ROW_BYTES: usize = 16;

impl<'a> OneMoment<'a> {
    fn new(in_ram: InRam<'a>) -> OneMoment<'a> {
        OneMoment {
            in_ram,
            fetched: None,
            wanted: RefCell::default(),
            known: RefCell::default(),
            missed: Cell::new(false),
            packed_bytes_left: Cell::new(None),
            rows_left: Cell::new(0),
            unknown: RefCell::default(),
        }
    }

    /// Returns true if a command may be executed now. It reads few rows, or only small collections.
    fn admits(&self, item: &Item) -> bool {
        self.packed_bytes_left.set((!item.is_bounded_read()).then_some(PACKED_BYTES_READ_MAX));
        self.rows_left.set(ROWS_EXAMINED_MAX);
        item.is_bounded_read() || item.is_small_if_its_keys_are()
    }

    /// Counts bytes that the command looks at. Returns false if that is too much.
    fn spend(&self, bytes: usize) -> bool {
        let left = self.packed_bytes_left.get().unwrap_or(0).checked_sub(bytes);
        self.packed_bytes_left.set(Some(left.unwrap_or(0)));
        left.is_some()
    }

    /// Counts a row that was found, or not found in RAM. Returns true if the command may not read
    /// it.
    fn refuses(&self, row: &[u8], found: Option<&Option<Bytes>>) -> bool {
        if self.packed_bytes_left.get().is_none() {
            return false;
        }
        let Some(found) = found else { return true };
        let length = found.as_ref().map_or(0, Bytes::len);
        let is_left = self.spend(length + LOOK_UP_BYTES);
        let is_meta = || matches!(rows::decode_key_row(row), Ok((_, Part::Meta)));
        !is_left || length > packed::BYTES_MAX || !is_meta()
    }
}

impl OneMoment<'_> {
    /// Returns a row that was found, and notes one that was not.
    fn take(&self, row: &[u8], found: Option<Option<Bytes>>) -> storage::Result<Option<Bytes>> {
        if self.refuses(row, found.as_ref()) {
            self.missed.set(true);
            return Err(StorageError::NotInRam);
        }
        if found.is_none() {
            self.missed.set(true);
            if self.fetched.is_some() && !self.known.borrow().contains(row) {
                let row = Bytes::copy_from_slice(row);
                self.known.borrow_mut().insert(row.clone());
                self.wanted.borrow_mut().push(row);
            }
        }
        Ok(found.flatten())
    }
}

impl Reader for OneMoment<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        let found = match self.fetched {
            None => self.in_ram.get(row),
            Some(fetched) => self.in_ram.get_or(row, fetched.get(row)),
        };
        self.take(row, found)
    }

    fn peek(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        let found = match self.fetched {
            None => self.in_ram.peek(row),
            Some(fetched) => self.in_ram.peek_or(row, fetched.get(row)),
        };
        self.take(row, found)
    }

    fn idle_time(&self, row: &[u8]) -> Option<u32> {
        let was_fetched = self.fetched.is_some_and(|fetched| fetched.contains_key(row));
        // The row cache need not have taken the row.
        self.in_ram.idle_time(row).or_else(|| was_fetched.then(|| self.in_ram.age()))
    }

    fn is_hasty(&self) -> bool {
        true
    }

    fn touch(&self, rows: &[&[u8]]) {
        self.in_ram.touch(rows);
    }

    fn is_worth_touching(&self) -> bool {
        self.in_ram.is_worth_touching()
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<(), StorageError> {
        if self.packed_bytes_left.get().is_none() {
            self.missed.set(true);
            return Ok(());
        }
        let mut is_too_long = !self.spend(SCAN_BYTES);
        let scanned = self.in_ram.scan(from, to, &self.rows_left, &mut |row, value| {
            is_too_long = !self.spend(row.len() + value.len() + SCANNED_ROW_BYTES);
            match is_too_long {
                true => ControlFlow::Break(()),
                false => visit(row, value),
            }
        });
        // Ranges do not help a scan that has examined as many rows as it may.
        if scanned.is_err() && !is_too_long && self.rows_left.get() > 0 {
            self.unknown.replace(Some((Bytes::copy_from_slice(from), Bytes::copy_from_slice(to))));
        }
        if scanned.is_err() || is_too_long {
            self.missed.set(true);
            return Err(StorageError::NotInRam);
        }
        Ok(())
    }
}

/// The present rows, read one after the other, and the number of rows read.
struct OneAfterTheOther<'a> {
    rows: &'a Keyspace,
    read: Cell<usize>,
}

impl Reader for OneAfterTheOther<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        self.read.set(self.read.get() + 1);
        self.rows.get(row)
    }

    fn peek(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        self.read.set(self.read.get() + 1);
        self.rows.get_peeking(row)
    }

    fn idle_time(&self, row: &[u8]) -> Option<u32> {
        let in_ram = self.rows.in_ram();
        Some(in_ram.idle_time(row).unwrap_or_else(|| in_ram.age()))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.read.set(usize::MAX - 1);
        self.rows.scan(from, to, visit)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use command::entry::{apply, Builder};
    use resp::Reply;
    use types::NEWEST_VERSION;

    use super::*;
    use crate::fixture::Fixture;

    fn words(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    #[test]
    fn keys_are_idle_since_their_last_use() {
        let fixture = Fixture::new();
        let (engine, region) = (&fixture.store.engine, &fixture.store.regions.of_users()[0]);
        let later = |seconds| engine.rows().note_time(Instant::now() + Duration::from_secs(seconds));
        let item = |line: &str| Item::new(words(line), 0, false).unwrap();
        let number = |outcome: Counted| match outcome.0 {
            Outcome::Reply(Reply::Int(number)) => number,
            other => panic!("{other:?}"),
        };
        let idle = || number(engine.read_from_ram(region, &item("OBJECT IDLETIME k"), 1).unwrap());
        let execute = |line: &str| {
            let mut entry = Builder::new();
            entry.push(0, false, &words(line));
            let mut txn = Txn::begin(engine.rows(), region.id()).unwrap();
            let replies = apply(&entry.finish_as(NEWEST_VERSION, 1, 1), &mut txn, SlotRange::ALL).unwrap();
            engine.write(txn.finish().0);
            replies.into_iter().next().flatten().unwrap()
        };
        execute("SET k v");
        later(1000);
        assert!(idle() >= 999);
        // The result of an entry must not depend on the store.
        assert_eq!(execute("OBJECT IDLETIME k"), Reply::Int(0));
        assert!(idle() >= 999);
        for line in
            ["TTL k", "TYPE k", "EXISTS k", "OBJECT ENCODING k", "OBJECT IDLETIME k", "MEMORY USAGE k"]
        {
            engine.read(region, &item(line), 1, HeldLimit::default()).unwrap();
        }
        assert!(idle() >= 999);
        engine.read_from_ram(region, &item("GET k"), 1).unwrap();
        assert_eq!(idle(), 0);
        // A key that is only on flash was not used since the start, as far as this store knows.
        later(3000);
        engine.rows().flush().unwrap();
        for _ in 0..2 {
            engine.rows().forget_clean_rows();
            assert!(
                number(engine.read(region, &item("OBJECT IDLETIME k"), 1, HeldLimit::default()).unwrap())
                    >= 2999
            );
            assert!(idle() >= 2999);
        }
        // The same holds if it is fetched for the command, unless another one in the pipeline uses
        // it.
        for (line, least) in [("TTL k", 2999), ("OBJECT IDLETIME k", 2999), ("GET k", 0)] {
            engine.rows().forget_clean_rows();
            let items = [item(line), item("OBJECT IDLETIME k")];
            let rows = engine.read_with_fetched(region, &items, 1, &HashMap::new()).rows;
            let fetched = engine.rows().fetch(&rows).pop().unwrap().unwrap();
            let fetched = HashMap::from([(rows[0].clone(), fetched)]);
            let mut so_far = engine.read_with_fetched(region, &items, 1, &fetched);
            let answer = number(so_far.outcomes.pop().unwrap());
            assert!(answer >= least && (answer == 0) == (least == 0), "{line}: {answer}");
            assert!((idle() == 0) == (least == 0), "{line}");
        }
        later(4000);
        engine.read_from_ram(region, &item("TOUCH k"), 1).unwrap();
        assert_eq!(idle(), 0);
    }

    #[test]
    fn only_small_collections_are_read_as_a_whole_without_another_thread() {
        let fixture = Fixture::new();
        let (engine, region) = (&fixture.store.engine, &fixture.store.regions.of_users()[0]);
        let many = |command: &str, item: &dyn Fn(u32) -> String| {
            let items: Vec<String> = (0..400).map(item).collect();
            format!("{command} {}", items.join(" "))
        };
        let full: Vec<String> = (10..100).map(|n| n.to_string()).collect();
        let mut entry = Builder::new();
        for line in [
            "HSET h f 1 g 2",
            "SADD s a b",
            "ZADD z 1 a 2 b",
            "RPUSH l a b",
            &many("HSET large-h", &|n| format!("f{n} v")),
            &format!(
                "HSET medium-h {}",
                (0..100).map(|n| format!("f{n} {n:020}")).collect::<Vec<_>>().join(" ")
            ),
            &many("SADD large-s", &|n| format!("m{n}")),
            &many("ZADD large-z", &|n| format!("{n} m{n}")),
            &many("RPUSH large-l", &|n| format!("element-{n}")),
            &format!("SADD full {}", full.join(" ")),
            "COPY full full2",
            "COPY full full3",
            "SET text abc",
        ] {
            entry.push(0, false, &words(line));
        }
        let mut txn = Txn::begin(engine.rows(), region.id()).unwrap();
        apply(&entry.finish_as(NEWEST_VERSION, 1, 1), &mut txn, SlotRange::ALL).unwrap();
        engine.write(txn.finish().0);
        let is_answered = |line: &str| {
            let item = Item::new(words(line), 0, false).unwrap();
            let one = engine.read_from_ram(region, &item, 1).is_some();
            assert_eq!(engine.read_all_from_ram(region, &[item], 1).is_some(), one);
            one
        };
        for line in [
            "HGETALL h",
            "SMEMBERS s",
            "ZRANGE z 0 -1 WITHSCORES",
            "LRANGE l 0 -1",
            "SINTER s s",
            "SRANDMEMBER s",
            "HMGET large-h f1 f2",
            "SMEMBERS full",
            "SINTER full full2",
        ] {
            assert!(is_answered(line), "{line}");
        }
        for line in [
            "HGETALL large-h",
            "HGETALL medium-h",
            "HSCAN large-h 0",
            "SMEMBERS large-s",
            "SRANDMEMBER large-s",
            "SRANDMEMBER large-s 1000",
            "SINTER s large-s",
            "ZRANGE large-z 0 -1",
            "LRANGE large-l 0 -1",
            "HRANDFIELD h -1000000",
            "LCS text text",
            "KEYS *",
            "SINTER full full2 full3",
            &format!("SUNION{}", " full".repeat(40)),
        ] {
            assert!(!is_answered(line), "{line}");
        }
        // Short ranges are known after they were read, from memtables as from flash.
        for _ in 0..2 {
            let is_known = |line: &str| {
                let item = Item::new(words(line), 0, false).unwrap();
                engine.read(region, &item, 1, HeldLimit::default()).unwrap();
                engine.read_from_ram(region, &item, 1).is_some()
            };
            assert!(is_known("HGETALL medium-h"));
            for line in
                ["SRANDMEMBER large-s", "SRANDMEMBER large-s 2", "HRANDFIELD large-h", "SMEMBERS large-s"]
            {
                assert!((0..200).any(|_| is_known(line)), "{line}");
            }
            for line in ["SUNION large-s large-s large-s", "SRANDMEMBER large-s 1000"] {
                assert!(!is_known(line), "{line} is long");
            }
            engine.rows().flush().unwrap();
            engine.rows().forget_clean_rows();
            assert!(!is_answered("HGETALL medium-h"));
        }
        // What only flash has is in RAM after it was read once.
        engine.rows().flush().unwrap();
        engine.rows().forget_clean_rows();
        assert!(!is_answered("HGETALL h"));
        let item = Item::new(words("HGETALL h"), 0, false).unwrap();
        engine.read(region, &item, 1, HeldLimit::default()).unwrap();
        assert!(is_answered("HGETALL h"));
    }
}
