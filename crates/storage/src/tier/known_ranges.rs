//! Ranges of rows that are known as flash has them: every row of flash in the range is here.
//!
//! The [row cache](super::row_cache) answers for single rows. Only flash could tell which rows lie
//! in a range, so each scan went there. A known range answers for all of its rows, also if flash
//! has none of them. The memtables are merged over it, so writes do not change it. Only flushes
//! change what flash has: the rows of a flushed memtable are [written](KnownRanges::write) here
//! before the memtable is dropped.
//!
//! Short scans are learnt: the random picks, small collections with rows of their own, the ends of
//! streams. Ranges never overlap. They are divided when they grow, and a clock evicts those that
//! were not used since its hand last passed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

/// Maximum number of rows in a known range. A longer one is divided.
pub const RANGE_ROWS_MAX: usize = 128;
/// Maximum bytes of the rows in a known range.
pub const RANGE_BYTES_MAX: usize = 16 << 10;
/// Estimated memory that a range takes besides its rows, in bytes.
const RANGE_OVERHEAD_BYTES: u64 = 256;
/// Estimated memory that a row takes in addition to its key and value, in bytes.
const ROW_OVERHEAD_BYTES: u64 = 128;
/// Maximum number of ranges that are examined per call for eviction.
const EVICTION_STEPS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct KnownRanges {
    /// The ranges by their first row.
    ranges: BTreeMap<Bytes, Known>,
    bytes: u64,
    bytes_max: u64,
    /// The clock's hand: the first row of the range that is examined next.
    hand: Bytes,
}

#[derive(Debug)]
pub(super) struct Known {
    /// The end of the range, which does not belong to it.
    to: Bytes,
    /// The rows on flash, ascending.
    rows: Vec<(Bytes, Bytes)>,
    is_used: AtomicBool,
}

impl Known {
    fn new(to: Bytes, rows: Vec<(Bytes, Bytes)>, is_used: bool) -> Known {
        Known { to, rows, is_used: AtomicBool::new(is_used) }
    }

    pub fn to(&self) -> &Bytes {
        &self.to
    }

    /// Returns the rows from `from` on, ascending.
    pub fn rows_from(&self, from: &[u8]) -> &[(Bytes, Bytes)] {
        &self.rows[self.rows.partition_point(|(row, _)| row[..] < *from)..]
    }

    fn row_bytes(&self) -> usize {
        self.rows.iter().map(|(row, value)| row.len() + value.len()).sum()
    }

    fn bytes(&self) -> u64 {
        RANGE_OVERHEAD_BYTES + self.row_bytes() as u64 + self.rows.len() as u64 * ROW_OVERHEAD_BYTES
    }

    fn is_too_large(&self) -> bool {
        self.rows.len() > RANGE_ROWS_MAX || self.row_bytes() > RANGE_BYTES_MAX
    }
}

impl KnownRanges {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the budget in bytes. Ranges beyond it are evicted step by step, by this call and later
    /// ones.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        self.evict();
    }

    /// Returns true if ranges can be learnt.
    pub fn is_on(&self) -> bool {
        self.bytes_max > RANGE_OVERHEAD_BYTES
    }

    /// Returns the known range that contains the row.
    pub fn at(&self, row: &[u8]) -> Option<&Known> {
        let (_, known) =
            self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(row))).next_back()?;
        if *row >= known.to[..] {
            return None;
        }
        // A store is cheaper than a write that changes nothing.
        if !known.is_used.load(Ordering::Relaxed) {
            known.is_used.store(true, Ordering::Relaxed);
        }
        Some(known)
    }

    /// Returns the first part of `from..to` that is not known, or `None` if all of it is.
    pub fn gap(&self, from: &[u8], to: &[u8]) -> Option<(Bytes, Bytes)> {
        let mut from = Bytes::copy_from_slice(from);
        while from[..] < *to {
            match self.at(&from) {
                Some(known) => from = known.to.clone(),
                None => {
                    let next = self
                        .ranges
                        .range::<[u8], _>((Bound::Excluded(&from[..]), Bound::Excluded(to)))
                        .next();
                    let end = next.map_or_else(|| Bytes::copy_from_slice(to), |(first, _)| first.clone());
                    return Some((from, end));
                }
            }
        }
        None
    }

    /// Adds the range `from..to`, in which flash has these rows. What is known already stays.
    pub fn learn(&mut self, from: Bytes, to: Bytes, mut rows: Vec<(Bytes, Bytes)>) {
        let Some((from, to)) = self.gap(&from, &to) else { return };
        rows.retain(|(row, _)| from <= *row && *row < to);
        // It counts as used when a scan finds it. So new ranges do not displace those in use.
        self.insert(from, Known::new(to, rows, false));
        self.evict();
    }

    /// Inserts a range that overlaps no other, in several parts if it is large. A part of a single
    /// large row is left out.
    fn insert(&mut self, from: Bytes, mut known: Known) {
        if !known.is_too_large() {
            self.bytes += known.bytes();
            self.ranges.insert(from, known);
            return;
        }
        if known.rows.len() < 2 {
            return;
        }
        let behind = known.rows.split_off(known.rows.len() / 2);
        let middle = behind[0].0.clone();
        let to = std::mem::replace(&mut known.to, middle.clone());
        let is_used = known.is_used.load(Ordering::Relaxed);
        self.insert(from, known);
        self.insert(middle, Known::new(to, behind, is_used));
    }

    fn remove_range(&mut self, first: &Bytes) -> Option<Known> {
        let known = self.ranges.remove(first)?;
        self.bytes -= known.bytes();
        Some(known)
    }

    /// Sets or deletes a row, which has changed on flash.
    pub fn write(&mut self, row: &Bytes, value: &Option<Bytes>) {
        let before =
            self.ranges.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(&row[..]))).next_back();
        let Some((first, known)) = before.filter(|(_, known)| *row < known.to) else { return };
        let bytes_before = known.bytes();
        match (known.rows.binary_search_by(|(other, _)| other.cmp(row)), value) {
            (Ok(at), Some(value)) => known.rows[at].1 = value.clone(),
            (Ok(at), None) => drop(known.rows.remove(at)),
            (Err(at), Some(value)) => known.rows.insert(at, (row.clone(), value.clone())),
            (Err(_), None) => return,
        }
        let (is_too_large, first) = (known.is_too_large(), first.clone());
        self.bytes = self.bytes - bytes_before + known.bytes();
        if is_too_large {
            if let Some(known) = self.remove_range(&first) {
                self.insert(first, known);
            }
        }
        self.evict();
    }

    /// Forgets up to `count` ranges that have a row in `from..to`. Returns true if none is left.
    pub fn forget(&mut self, from: &[u8], to: &[u8], count: usize) -> bool {
        if from >= to {
            return true;
        }
        let before = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(from))).next_back();
        let overlapping = before.filter(|(_, known)| *from < known.to[..]).map(|(first, _)| first.clone());
        let inside = self.ranges.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        let mut doomed: Vec<Bytes> = inside.take(count + 1).map(|(first, _)| first.clone()).collect();
        let is_last = doomed.len() <= count;
        doomed.truncate(count);
        for first in overlapping.iter().chain(&doomed) {
            self.remove_range(first);
        }
        is_last
    }

    fn evict(&mut self) {
        for _ in 0..EVICTION_STEPS {
            if self.bytes <= self.bytes_max {
                return;
            }
            let hand = (Bound::Included(&self.hand[..]), Bound::Unbounded);
            let next = self.ranges.range::<[u8], _>(hand).next().or_else(|| self.ranges.iter().next());
            let Some((first, known)) = next else { return };
            let (first, end) = (first.clone(), known.to.clone());
            if !known.is_used.swap(false, Ordering::Relaxed) {
                self.remove_range(&first);
            }
            self.hand = end;
        }
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
        KnownRanges { bytes_max, ..KnownRanges::default() }
    }

    #[test]
    fn ranges_do_not_overlap_and_are_divided_as_they_grow() {
        let mut ranges = known(1 << 20);
        ranges.learn(row(10), row(20), rows(10..20));
        ranges.learn(row(5), row(30), rows(5..30));
        assert_eq!(ranges.gap(&row(5), &row(30)), Some((row(20), row(30))), "up to what was known");
        assert_eq!(ranges.at(&row(7)).unwrap().to(), &row(10));
        ranges.learn(row(20), row(9000), Vec::new());
        for number in 20..2000 {
            ranges.write(&row(number), &Some(Bytes::from_static(b"v")));
        }
        assert_eq!(ranges.gap(&row(5), &row(9000)), None);
        assert!(ranges.ranges.values().all(|known| known.rows.len() <= RANGE_ROWS_MAX));
        let all: Vec<_> = ranges.ranges.values().flat_map(|known| known.rows.clone()).collect();
        assert_eq!(all, rows(5..2000));
        assert_eq!(ranges.bytes, ranges.ranges.values().map(Known::bytes).sum::<u64>());
        assert!(!ranges.forget(&row(100), &row(3000), 2));
        while !ranges.forget(&row(100), &row(3000), 2) {}
        assert!(ranges.at(&row(100)).is_none() && ranges.at(&row(2500)).is_none());
        assert_eq!(ranges.bytes, ranges.ranges.values().map(Known::bytes).sum::<u64>());
    }

    #[test]
    fn the_budget_keeps_the_ranges_that_are_used() {
        let mut ranges = known(20_000);
        ranges.learn(row(0), row(10), rows(0..10));
        for number in (10..3000).step_by(10) {
            assert!(ranges.at(&row(3)).is_some(), "{number}");
            ranges.learn(row(number), row(number + 10), rows(number..number + 10));
            assert!(ranges.bytes <= 20_000 + 4000, "{}", ranges.bytes);
        }
        ranges.set_bytes_max(0);
        ranges.set_bytes_max(0);
        assert_eq!((ranges.bytes, ranges.ranges.len()), (0, 0));
    }

    #[test]
    fn a_large_row_is_left_out() {
        let mut ranges = known(1 << 20);
        ranges.learn(row(0), row(10), rows(0..5));
        ranges.write(&row(3), &Some(Bytes::from(vec![0; RANGE_BYTES_MAX])));
        let gap = ranges.gap(&row(0), &row(10)).unwrap();
        assert!(gap.0 <= row(3) && row(3) < gap.1, "{gap:?}");
        assert_eq!(ranges.bytes, ranges.ranges.values().map(Known::bytes).sum::<u64>());
    }
}
