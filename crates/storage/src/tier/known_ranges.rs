//! Ranges of rows that are known as flash has them: every row of flash in the range is here.
//!
//! The [row cache](super::row_cache) answers for single rows. Only flash could tell which rows lie
//! in a range, so each scan went there. A known range answers for all of its rows, also if flash
//! has none of them. The memtables are merged over it, so writes do not change it.
//!
//! Invariant: a known range has exactly the rows that flash has there, except for rows that a
//! frozen memtable determines. All changes of flash keep it:
//!
//! * A flush adds a memtable to flash. Settling [deletes](KnownRanges::delete_rows) the rows in the
//!   ranges that the memtable deletes, and [writes](KnownRanges::write) its rows here, before the
//!   memtable is dropped. Deletions of slots, of regions after a split or a merge, and `FLUSHALL`
//!   are rows or ranges of memtables.
//! * The ingest of a snapshot replaces rows of flash directly. `RamTier::replaced` forgets their
//!   ranges, after the old rows are deleted and again after the new ones came. A peer in quarantine
//!   is filled in the same way.
//! * A repair changes flash before the tier exists. Compaction changes no row that can be read.
//! * A range that was read from flash before any of these is refused by its version. One that was
//!   read while a memtable is being settled has its rows already, and is learnt.
//!
//! The filter of rows and the row cache hold nothing that known ranges depend on: their renewal and
//! eviction change neither flash nor these ranges.
//!
//! Short scans are learnt: the random picks, small collections with rows of their own, the ends of
//! streams. Ranges never overlap. They are divided when they grow, and a clock evicts those that
//! were not used since its hand last passed. All bytes are within the budget at any time, except
//! after the budget was reduced: then each call evicts a few ranges.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::failpoints::Failpoint;

/// Maximum number of rows in a known range. A longer one is divided.
pub const RANGE_ROWS_MAX: usize = 128;
/// Maximum bytes of the rows in a known range.
pub const RANGE_BYTES_MAX: usize = 16 << 10;
/// Estimated memory that a range takes besides its rows and the rows that bound it, in bytes.
const RANGE_OVERHEAD_BYTES: u64 = 256;
/// Estimated memory that a row takes besides its place in the range, its key and its value, in
/// bytes: two reference counts, and what the allocator rounds up.
const ROW_OVERHEAD_BYTES: u64 = 96;
/// Memory of a row's place in a range, in bytes.
const PLACE_BYTES: u64 = size_of::<(Bytes, Bytes)>() as u64;
/// Estimated memory that a row takes besides its key and its value, in bytes.
pub const KNOWN_ROW_BYTES: u64 = ROW_OVERHEAD_BYTES + PLACE_BYTES;
/// Maximum number of ranges that are examined per call for eviction. It bounds the time of a call
/// after a large reduction of the budget.
const EVICTION_STEPS: usize = 16;
/// The same for each row that changes. A call of the tier changes many rows, and an eviction frees
/// two pieces of memory for each row of a range.
const EVICTION_STEPS_PER_ROW: usize = 2;

#[derive(Debug)]
pub(super) struct KnownRanges {
    /// The ranges by their first row.
    ranges: BTreeMap<Bytes, Known>,
    bytes: u64,
    bytes_max: u64,
    rows_max: usize,
    /// The clock's hand: the first row of the range that is examined next.
    hand: Bytes,
}

#[derive(Debug)]
pub(super) struct Known {
    /// The end of the range, which does not belong to it.
    to: Bytes,
    /// The rows on flash, ascending.
    rows: Vec<(Bytes, Bytes)>,
    /// Bytes of the rows' keys and values.
    row_bytes: usize,
    is_used: AtomicBool,
}

impl Known {
    /// Creates a range that counts as not used until a scan finds it.
    fn new(to: Bytes, mut rows: Vec<(Bytes, Bytes)>) -> Known {
        rows.shrink_to_fit();
        let row_bytes = rows.iter().map(|(row, value)| row.len() + value.len()).sum();
        Known { to, rows, row_bytes, is_used: AtomicBool::new(false) }
    }

    pub fn to(&self) -> &Bytes {
        &self.to
    }

    /// Returns the rows from `from` on, ascending.
    pub fn rows_from(&self, from: &[u8]) -> &[(Bytes, Bytes)] {
        &self.rows[self.rows.partition_point(|(row, _)| row[..] < *from)..]
    }

    fn delete_rows(&mut self, from: &[u8], to: &[u8]) {
        let begin = self.rows.partition_point(|(row, _)| row[..] < *from);
        let end = self.rows.partition_point(|(row, _)| row[..] < *to);
        let deleted = self.rows.drain(begin..end.max(begin));
        self.row_bytes -= deleted.map(|(row, value)| row.len() + value.len()).sum::<usize>();
        self.rows.shrink_to_fit();
    }

    /// Returns the estimated memory of the range that begins at `from`, in bytes.
    fn bytes(&self, from: &[u8]) -> u64 {
        let bounds = RANGE_OVERHEAD_BYTES + (from.len() + self.to.len()) as u64;
        let rows = self.row_bytes as u64 + self.rows.len() as u64 * ROW_OVERHEAD_BYTES;
        bounds + rows + self.rows.capacity() as u64 * PLACE_BYTES
    }
}

impl KnownRanges {
    pub fn new() -> KnownRanges {
        KnownRanges {
            ranges: BTreeMap::new(),
            bytes: 0,
            bytes_max: 0,
            rows_max: RANGE_ROWS_MAX,
            hand: Bytes::new(),
        }
    }

    /// Sets the maximum number of rows in a range, for tests of divisions.
    pub fn set_rows_max(&mut self, rows_max: usize) {
        self.rows_max = rows_max.max(1);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the part of the budget that is free, in bytes.
    pub fn room(&self) -> u64 {
        self.bytes_max.saturating_sub(self.bytes)
    }

    /// Sets the budget in bytes. Ranges beyond it are evicted step by step, by this call and later
    /// ones.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        self.make_room(0, EVICTION_STEPS);
    }

    /// Returns true if ranges can be learnt.
    pub fn is_on(&self) -> bool {
        self.bytes_max > RANGE_OVERHEAD_BYTES
    }

    fn find(&self, row: &[u8]) -> Option<&Known> {
        let (_, known) =
            self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(row))).next_back()?;
        (*row < known.to[..]).then_some(known)
    }

    /// Returns the known range that contains the row, and marks it as used.
    pub fn at(&self, row: &[u8]) -> Option<&Known> {
        let known = self.find(row)?;
        // Most ranges are marked already, and a write would take the cache line from other readers.
        if !known.is_used.load(Ordering::Relaxed) {
            known.is_used.store(true, Ordering::Relaxed);
        }
        Some(known)
    }

    /// Returns the first part of `from..to` that is not known. Returns `None` if all of it is
    /// known, or if the part does not begin within the first `ranges_max` known ranges.
    pub fn gap(&self, from: &[u8], to: &[u8], ranges_max: usize) -> Option<(Bytes, Bytes)> {
        let mut from = Bytes::copy_from_slice(from);
        for _ in 0..=ranges_max {
            if from[..] >= *to {
                return None;
            }
            if let Some(known) = self.find(&from) {
                from = known.to.clone();
                continue;
            }
            let behind = (Bound::Excluded(&from[..]), Bound::Excluded(to));
            let next = self.ranges.range::<[u8], _>(behind).next();
            let end = next.map_or_else(|| Bytes::copy_from_slice(to), |(first, _)| first.clone());
            return Some((from, end));
        }
        None
    }

    /// Adds the first part of `from..to` that is not known. Flash has these rows in `from..to`.
    /// Returns true if the part was added, and false if there is none or no room for it.
    pub fn learn(&mut self, from: Bytes, to: Bytes, mut rows: Vec<(Bytes, Bytes)>) -> bool {
        let Some((from, to)) = self.gap(&from, &to, 1) else { return false };
        rows.retain(|(row, _)| from <= *row && *row < to);
        let known = Known::new(to.clone(), rows);
        if !self.make_room(known.bytes(&from), EVICTION_STEPS) {
            return false;
        }
        self.insert(from.clone(), known);
        // The parts of a divided range take a little more.
        let has_room = self.make_room(0, EVICTION_STEPS);
        if !has_room {
            self.forget(&from, &to);
        }
        has_room
    }

    fn is_too_large(&self, known: &Known) -> bool {
        known.rows.len() > self.rows_max || known.row_bytes > RANGE_BYTES_MAX
    }

    /// Inserts a range that overlaps no other, in several parts if it is large. A part of a single
    /// large row is left out.
    fn insert(&mut self, from: Bytes, mut known: Known) {
        if !self.is_too_large(&known) {
            self.bytes += known.bytes(&from);
            self.ranges.insert(from, known);
            return;
        }
        if known.rows.len() < 2 {
            return;
        }
        let behind = known.rows.split_off(known.rows.len() / 2);
        let middle = behind[0].0.clone();
        if Failpoint::DivisionLosesRow.is_on() {
            known.rows.pop();
        }
        self.insert(from, Known::new(middle.clone(), known.rows));
        self.insert(middle, Known::new(known.to, behind));
    }

    /// Inserts a range that is not large and overlaps no other. Ranges without rows become one, so
    /// that scans pass few of them.
    fn insert_joined(&mut self, from: Bytes, known: Known) {
        let before = self.ranges.range::<Bytes, _>(..&from).next_back();
        let joins = |other: &Known| known.rows.is_empty() && other.rows.is_empty() && other.to == from;
        let first = before.filter(|(_, other)| joins(other)).map(|(first, _)| first.clone());
        match first.and_then(|first| Some((self.remove(&first)?, first))) {
            Some((other, first)) => self.insert(first, Known { to: known.to, ..other }),
            None => self.insert(from, known),
        }
    }

    fn remove(&mut self, first: &Bytes) -> Option<Known> {
        let known = self.ranges.remove(first)?;
        self.bytes -= known.bytes(first);
        Some(known)
    }

    /// Sets or deletes a row, which has changed on flash.
    pub fn write(&mut self, row: &Bytes, value: &Option<Bytes>) {
        let before =
            self.ranges.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(&row[..]))).next_back();
        let Some((first, known)) = before.filter(|(_, known)| *row < known.to) else { return };
        let (first, to, bytes_before) = (first.clone(), known.to.clone(), known.bytes(first));
        let row_bytes = |value: &Bytes| row.len() + value.len();
        match (known.rows.binary_search_by(|(other, _)| other.cmp(row)), value) {
            (Ok(at), Some(value)) => {
                let replaced = std::mem::replace(&mut known.rows[at].1, value.clone());
                known.row_bytes = known.row_bytes - row_bytes(&replaced) + row_bytes(value);
            }
            (Ok(at), None) => {
                let (_, deleted) = known.rows.remove(at);
                known.row_bytes -= row_bytes(&deleted);
            }
            (Err(at), Some(value)) => {
                known.rows.insert(at, (row.clone(), value.clone()));
                known.row_bytes += row_bytes(value);
            }
            (Err(_), None) => return,
        }
        let (bytes, is_too_large) = (known.bytes(&first), known.rows.len() > self.rows_max);
        let is_too_large = is_too_large || known.row_bytes > RANGE_BYTES_MAX;
        self.bytes = self.bytes - bytes_before + bytes;
        if is_too_large {
            if let Some(known) = self.remove(&first) {
                self.insert(first.clone(), known);
            }
        }
        if value.is_some() && !self.make_room(0, EVICTION_STEPS_PER_ROW) {
            self.forget(&first, &to);
        }
    }

    /// Deletes the rows in `from..to`, which flash no longer has, from up to `count` ranges.
    /// Returns the place to go on from, if any are left. A range that was used since the hand
    /// passed stays known, because what fills it after a `FLUSHALL` may be flushed together with
    /// it. The others are forgotten.
    pub fn delete_rows(&mut self, from: &[u8], to: &[u8], count: usize) -> Option<Bytes> {
        let mut place = Bytes::copy_from_slice(from);
        for _ in 0..count {
            let first = self.first_overlapping(&place, to)?;
            let mut known = self.remove(&first)?;
            place = known.to.clone();
            if *known.is_used.get_mut() {
                known.delete_rows(from, to);
                self.insert_joined(first, known);
            }
        }
        self.first_overlapping(&place, to).map(|_| place)
    }

    /// Returns the first row of the first range that has a part of `from..to`.
    fn first_overlapping(&self, from: &[u8], to: &[u8]) -> Option<Bytes> {
        if from >= to {
            return None;
        }
        let before = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(from))).next_back();
        let overlapping = before.filter(|(_, known)| *from < known.to[..]);
        let behind = (Bound::Excluded(from), Bound::Excluded(to));
        let (first, _) = overlapping.or_else(|| self.ranges.range::<[u8], _>(behind).next())?;
        Some(first.clone())
    }

    /// Forgets the ranges that have a part of `from..to`.
    pub fn forget(&mut self, from: &[u8], to: &[u8]) {
        while let Some(first) = self.first_overlapping(from, to) {
            self.remove(&first);
        }
    }

    /// Examines up to `steps` ranges and evicts some, so that `bytes` more fit into the budget.
    /// Returns true if they fit.
    fn make_room(&mut self, bytes: u64, steps: usize) -> bool {
        for _ in 0..steps {
            if self.bytes + bytes <= self.bytes_max {
                return true;
            }
            let hand = (Bound::Included(&self.hand[..]), Bound::Unbounded);
            let next = self.ranges.range::<[u8], _>(hand).next().or_else(|| self.ranges.iter().next());
            let Some((first, known)) = next else { return false };
            let (first, end) = (first.clone(), known.to.clone());
            if !known.is_used.swap(false, Ordering::Relaxed) {
                match (Failpoint::EvictedStaysKnown.is_on(), self.remove(&first)) {
                    (true, Some(evicted)) => self.insert(first, Known::new(evicted.to, Vec::new())),
                    _ => drop(first),
                }
            }
            self.hand = end;
        }
        self.bytes + bytes <= self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u32) -> Bytes {
        Bytes::from(format!("{number:06}"))
    }

    fn rows(numbers: std::ops::Range<u32>) -> Vec<(Bytes, Bytes)> {
        numbers.map(|number| (row(number), Bytes::from_static(b"v"))).collect()
    }

    fn known(bytes_max: u64) -> KnownRanges {
        KnownRanges { bytes_max, ..KnownRanges::new() }
    }

    fn gap(ranges: &KnownRanges, from: u32, to: u32) -> Option<(Bytes, Bytes)> {
        ranges.gap(&row(from), &row(to), usize::MAX - 1)
    }

    fn bytes_of_all(ranges: &KnownRanges) -> u64 {
        ranges.ranges.iter().map(|(first, known)| known.bytes(first)).sum()
    }

    #[test]
    fn ranges_do_not_overlap_and_are_divided_as_they_grow() {
        let mut ranges = known(1 << 20);
        assert!(ranges.learn(row(10), row(20), rows(10..20)));
        assert!(ranges.learn(row(5), row(30), rows(5..30)));
        assert_eq!(gap(&ranges, 5, 30), Some((row(20), row(30))), "up to what was known");
        assert_eq!(ranges.at(&row(7)).unwrap().to(), &row(10));
        assert!(!ranges.learn(row(6), row(20), rows(6..20)), "nothing is unknown");
        ranges.learn(row(20), row(9000), Vec::new());
        for number in 20..2000 {
            ranges.write(&row(number), &Some(Bytes::from_static(b"v")));
        }
        assert_eq!(gap(&ranges, 5, 9000), None);
        assert!(ranges.ranges.values().all(|known| known.rows.len() <= RANGE_ROWS_MAX));
        let all: Vec<_> = ranges.ranges.values().flat_map(|known| known.rows.clone()).collect();
        assert_eq!(all, rows(5..2000));
        assert_eq!(ranges.bytes, bytes_of_all(&ranges));
        ranges.forget(&row(100), &row(3000));
        assert!(ranges.at(&row(100)).is_none() && ranges.at(&row(2500)).is_none());
        assert_eq!(ranges.bytes, bytes_of_all(&ranges));
    }

    #[test]
    fn ranges_in_use_stay_known_without_their_rows() {
        let mut ranges = known(1 << 20);
        for number in (0..1000).step_by(10) {
            ranges.learn(row(number), row(number + 10), rows(number..number + 10));
        }
        for number in (0..1000).step_by(10).filter(|number| number % 30 != 0) {
            assert!(ranges.at(&row(number)).is_some());
        }
        let (mut from, to, mut steps) = (row(105), row(845), 1);
        while let Some(next) = ranges.delete_rows(&from, &to, 16) {
            assert!(from < next && next < to);
            (from, steps) = (next, steps + 1);
        }
        assert_eq!(steps, 75usize.div_ceil(16));
        for number in (0..1000).step_by(10) {
            let is_touched = (100..=840).contains(&number);
            let found = ranges.find(&row(number));
            assert_eq!(found.is_some(), !is_touched || number % 30 != 0, "{number}");
            let Some(found) = found else { continue };
            // The first range and the last one keep a part of their rows, and those without rows
            // are joined.
            let is_joined = is_touched && !matches!(number, 100 | 840);
            let to = if is_joined { number.div_ceil(30) * 30 } else { number + 10 };
            assert_eq!(found.to, row(to), "{number}");
            let left = (number..to).filter(|number| !(105..845).contains(number));
            assert_eq!(found.rows, left.flat_map(|number| rows(number..number + 1)).collect::<Vec<_>>());
        }
        assert_eq!(ranges.bytes, bytes_of_all(&ranges));
        assert_eq!(ranges.delete_rows(&row(845), &row(845), 16), None);
        assert_eq!(ranges.delete_rows(&row(1000), &row(2000), 16), None);
    }

    #[test]
    fn a_search_for_a_gap_passes_few_ranges() {
        let mut ranges = known(1 << 20);
        for number in 0..20 {
            ranges.learn(row(number), row(number + 1), Vec::new());
        }
        assert_eq!(ranges.gap(&row(0), &row(30), 20), Some((row(20), row(30))));
        assert_eq!(ranges.gap(&row(0), &row(30), 19), None);
    }

    #[test]
    fn the_budget_keeps_the_ranges_that_are_used() {
        let mut ranges = known(20_000);
        ranges.learn(row(0), row(10), rows(0..10));
        for number in (10..3000).step_by(10) {
            assert!(ranges.at(&row(3)).is_some(), "{number}");
            ranges.learn(row(number), row(number + 10), rows(number..number + 10));
            assert!(ranges.bytes <= 20_000, "{}", ranges.bytes);
        }
        ranges.set_bytes_max(0);
        ranges.set_bytes_max(0);
        assert_eq!((ranges.bytes, ranges.ranges.len()), (0, 0));
    }

    #[test]
    fn ranges_that_are_all_in_use_do_not_exceed_the_budget() {
        let mut ranges = known(100_000);
        for number in (0..6000).step_by(4) {
            ranges.learn(row(number), row(number + 4), rows(number..number + 1));
            for used in (0..=number).step_by(4) {
                let _ = ranges.at(&row(used));
            }
            let grown = Some(Bytes::from(vec![1; number as usize % 900]));
            ranges.write(&row(number / 8 * 4 + 1), &grown);
            assert!(ranges.bytes <= 100_000, "{}", ranges.bytes);
            assert_eq!(ranges.bytes, bytes_of_all(&ranges));
        }
        assert!(ranges.ranges.len() > 50, "{} ranges", ranges.ranges.len());
    }

    #[test]
    fn a_large_row_is_left_out() {
        let mut ranges = known(1 << 20);
        ranges.learn(row(0), row(10), rows(0..5));
        ranges.write(&row(3), &Some(Bytes::from(vec![0; RANGE_BYTES_MAX])));
        let gap = gap(&ranges, 0, 10).unwrap();
        assert!(gap.0 <= row(3) && row(3) < gap.1, "{gap:?}");
        assert_eq!(ranges.bytes, bytes_of_all(&ranges));
    }
}
