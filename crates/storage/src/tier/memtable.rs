//! Memtables: rows that are written and not yet on flash.

use std::cell::Cell;
use std::iter::Peekable;

use bytes::Bytes;

use super::last_use::Seconds;
use super::row_map::{MapRange, RowMap, TOGETHER};
use super::TOUCHED_ROWS_MIN;
use crate::failpoints::Failpoint;
use crate::merge::{merge, Written};
use crate::{Result, Visit, WriteSet};

/// Estimated memory that a row takes in addition to its key and value, in bytes: its entries in the
/// map, two reference counts, and a fifth for what the allocator wastes.
const ROW_OVERHEAD_BYTES: u64 = 176;

/// The newest value of each row written since the memtable was created, and the ranges deleted
/// since then.
///
/// A flush deletes the ranges first and then writes the rows. So `write` drops the rows that a
/// later range deletion covers.
#[derive(Debug, Default)]
pub struct Memtable {
    rows: Rows,
    ranges: Vec<(Bytes, Bytes)>,
    /// The bytes of the rows, without those of parts.
    bytes: u64,
    /// The number of the memtable. Memtables of one tier are numbered in order of creation.
    number: u64,
}

/// The rows of a memtable.
#[derive(Debug)]
enum Rows {
    Map(RowMap),
    /// Copied rows, ascending. They are only read.
    Copied(Vec<(Bytes, Option<Bytes>)>),
}

impl Default for Rows {
    fn default() -> Rows {
        Rows::Map(RowMap::default())
    }
}

impl Rows {
    fn len(&self) -> usize {
        match self {
            Rows::Map(map) => map.len(),
            Rows::Copied(rows) => rows.len(),
        }
    }

    /// Returns the estimated memory that the parts of collections take in addition to the rows.
    fn part_bytes(&self) -> usize {
        match self {
            Rows::Map(map) => map.part_bytes(),
            Rows::Copied(_) => 0,
        }
    }

    fn get(&self, row: &[u8]) -> Option<&Option<Bytes>> {
        match self {
            Rows::Map(map) => map.get(row),
            Rows::Copied(rows) => {
                let at = rows.binary_search_by(|(other, _)| other[..].cmp(row)).ok()?;
                Some(&rows[at].1)
            }
        }
    }

    fn range<'a>(&'a self, from: &'a [u8], to: &'a [u8]) -> RowRange<'a> {
        match self {
            Rows::Map(map) => RowRange::Mapped(map.range(from, to)),
            Rows::Copied(rows) => {
                let first = rows.partition_point(|(row, _)| row[..] < *from);
                let count = rows[first..].partition_point(|(row, _)| row[..] < *to);
                RowRange::Copied(rows[first..first + count].iter())
            }
        }
    }

    /// # Panics
    /// For copied rows, which nobody writes or flushes.
    fn map(&self) -> &RowMap {
        match self {
            Rows::Map(map) => map,
            Rows::Copied(_) => unreachable!("copied rows are only read"),
        }
    }

    /// # Panics
    /// For copied rows, which nobody writes or flushes.
    fn map_mut(&mut self) -> &mut RowMap {
        match self {
            Rows::Map(map) => map,
            Rows::Copied(_) => unreachable!("copied rows are only read"),
        }
    }
}

/// An iterator over a range of a memtable's rows, ascending.
#[expect(clippy::large_enum_variant, reason = "a scan should allocate nothing")]
enum RowRange<'a> {
    Mapped(MapRange<'a>),
    Copied(std::slice::Iter<'a, (Bytes, Option<Bytes>)>),
}

impl<'a> Iterator for RowRange<'a> {
    type Item = Written<'a>;

    fn next(&mut self) -> Option<Written<'a>> {
        match self {
            RowRange::Mapped(rows) => rows.next(),
            RowRange::Copied(rows) => rows.next().map(|(row, value)| (row, value)),
        }
    }
}

fn bytes_of(row: &Bytes, value: &Option<Bytes>) -> u64 {
    (row.len() + value.as_ref().map_or(0, Bytes::len)) as u64 + ROW_OVERHEAD_BYTES
}

impl Memtable {
    /// Creates the first memtable of a tier. Clients choose keys, so they must not know the seed.
    pub(super) fn first(hash_seed: u64) -> Memtable {
        Memtable { rows: Rows::Map(RowMap::with_seed(hash_seed, 0)), ..Memtable::default() }
    }

    /// Creates the memtable that replaces this one when it is frozen, with room for as many rows.
    pub(super) fn next(&self) -> Memtable {
        let rows = RowMap::with_seed(self.rows.map().hash_seed(), self.rows.len());
        Memtable { rows: Rows::Map(rows), number: self.number + 1, ..Memtable::default() }
    }

    /// Returns the estimated bytes of memory that the rows take.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.rows.part_bytes() as u64
    }

    /// Returns the number of rows, including deleted ones.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0 && self.ranges.is_empty()
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the ranges `from..to` that are deleted before the rows are written.
    pub fn ranges(&self) -> &[(Bytes, Bytes)] {
        &self.ranges
    }

    /// Returns all rows, ascending.
    pub fn rows(&self) -> impl Iterator<Item = Written<'_>> {
        self.rows.map().behind(None)
    }

    /// Returns the rows after `after`, or all rows, ascending, each with its last use.
    pub(super) fn uses_behind(&self, after: Option<&Bytes>) -> impl Iterator<Item = (Written<'_>, Seconds)> {
        self.rows.map().uses_behind(after)
    }

    /// Applies the write set, at the present time. The deletion of a row leaves no trace if
    /// `is_absent_below` is true for it: neither flash nor an older memtable has the row or deletes
    /// it.
    pub(super) fn write(&mut self, writes: WriteSet, now: Seconds, is_absent_below: impl Fn(&[u8]) -> bool) {
        for (from, to) in &writes.ranges_deleted {
            self.delete_range(from, to);
        }
        let mut rows = writes.rows.into_iter();
        while !rows.as_slice().is_empty() {
            let count = rows.len().min(TOGETHER);
            // A row that gets a value was looked up before. One that is deleted perhaps not: the
            // member of a sorted set that `ZPOPMIN` finds in the tree.
            if count > 1 && self.rows.len() >= TOUCHED_ROWS_MIN {
                let deleted = rows.as_slice()[..count].iter().filter(|(_, value)| value.is_none());
                self.rows.map().touch(deleted.map(|(row, _)| &row[..]));
            }
            for (row, value) in rows.by_ref().take(count) {
                match value {
                    None if is_absent_below(&row) => self.forget(&row),
                    value => self.put(row, value, now),
                }
            }
        }
    }

    fn forget(&mut self, row: &[u8]) {
        if let Some(before) = self.rows.map_mut().remove(row) {
            self.bytes -=
                row.len() as u64 + before.map_or(0, |value| value.len() as u64) + ROW_OVERHEAD_BYTES;
        }
    }

    fn put(&mut self, row: Bytes, value: Option<Bytes>, now: Seconds) {
        self.bytes += bytes_of(&row, &value);
        let len = row.len();
        if let Some(before) = self.rows.map_mut().insert(row, value, now) {
            self.bytes -= len as u64 + before.map_or(0, |value| value.len() as u64) + ROW_OVERHEAD_BYTES;
        }
    }

    fn delete_range(&mut self, from: &Bytes, to: &Bytes) {
        if from >= to {
            return;
        }
        let bytes = &mut self.bytes;
        self.rows.map_mut().remove_range(from, to, |row, value| *bytes -= bytes_of(row, value));
        if !self.covers_all(from, to) {
            self.ranges.retain(|(f, t)| f < from || to < t);
            self.ranges.push((from.clone(), to.clone()));
        }
    }

    /// Returns the row's value in this memtable (`Some(None)` if deleted), or `None` if the
    /// memtable does not determine it.
    pub(super) fn get(&self, row: &[u8]) -> Option<Option<Bytes>> {
        self.determined(row, self.rows.get(row))
    }

    /// Same as [`get`](Self::get), but notes the use of the row. The memtable must be no copy.
    pub(super) fn get_for_use(&self, row: &[u8], now: Seconds) -> Option<Option<Bytes>> {
        let found = self.rows.map().get_for_use(row, now);
        self.determined(row, found)
    }

    fn determined(&self, row: &[u8], found: Option<&Option<Bytes>>) -> Option<Option<Bytes>> {
        match found {
            Some(None) if Failpoint::NoTombstones.is_on() => None,
            Some(value) => Some(value.clone()),
            None => self.is_range_deleted(row).then_some(None),
        }
    }

    /// Returns the last use of a row that the memtable has.
    pub(super) fn last_use(&self, row: &[u8]) -> Option<Seconds> {
        self.rows.map().last_use(row)
    }

    /// See [`RowMap::touch`].
    pub(super) fn touch(&self, rows: &[&[u8]]) {
        if let Rows::Map(map) = &self.rows {
            map.touch(rows.iter().copied());
        }
    }

    /// Returns true if the memtable has a row in `from..to` or deletes any part of that range.
    pub(super) fn speaks_of(&self, from: &[u8], to: &[u8]) -> bool {
        let overlaps = |(f, t): &(Bytes, Bytes)| f[..] < *to && *from < t[..];
        self.rows.range(from, to).next().is_some() || self.ranges.iter().any(overlaps)
    }

    /// Copies the rows in `from..to` into a memtable that is only read. If there are more than
    /// `rows_max` of them, also returns the first row left out.
    pub(super) fn part(&self, from: &[u8], to: &[u8], rows_max: usize) -> (Memtable, Option<Bytes>) {
        let (mut rows, mut bytes, mut end) = (Vec::new(), 0, None);
        for (row, value) in self.rows.range(from, to) {
            if rows.len() == rows_max {
                end = Some(row.clone());
                break;
            }
            bytes += bytes_of(row, value);
            rows.push((row.clone(), value.clone()));
        }
        let rows = Rows::Copied(rows);
        (Memtable { rows, ranges: self.ranges.clone(), bytes, number: self.number }, end)
    }

    fn is_range_deleted(&self, row: &[u8]) -> bool {
        self.ranges.iter().any(|(from, to)| from[..] <= *row && *row < to[..])
    }

    fn covers_all(&self, from: &[u8], to: &[u8]) -> bool {
        self.ranges.iter().any(|(f, t)| f[..] <= *from && *to <= t[..])
    }
}

/// Looks up the row in memtables ordered newest first. Returns the value of the first one that
/// determines it.
pub(super) fn get<'a>(tables: impl IntoIterator<Item = &'a Memtable>, row: &[u8]) -> Option<Option<Bytes>> {
    tables.into_iter().find_map(|table| table.get(row))
}

/// Visits the rows in `from..to` of memtables, ordered newest first, merged over the rows that
/// `below` visits.
pub(super) fn scan(
    tables: &[&Memtable],
    range: (&[u8], &[u8]),
    below: impl FnOnce(&mut Visit<'_>) -> Result<()>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    scan_some(tables, range, &Cell::new(usize::MAX), below, visit)
}

/// Subtracts a row from those that may be examined. Returns false if none is left.
pub(super) fn examine(left: &Cell<usize>) -> bool {
    let count = left.get();
    left.set(count.saturating_sub(1));
    count > 0
}

/// Same as [`scan`], but examines at most `left` rows of the memtables, deleted ones included. Once
/// `left` is 0, the rows that are visited may be deleted ones.
pub(super) fn scan_some(
    tables: &[&Memtable],
    (from, to): (&[u8], &[u8]),
    left: &Cell<usize>,
    below: impl FnOnce(&mut Visit<'_>) -> Result<()>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    if from >= to {
        return Ok(());
    }
    let is_hidden = |row: &[u8]| tables.iter().any(|table| table.is_range_deleted(row));
    let is_all_hidden = tables.iter().any(|table| table.covers_all(from, to));
    let below = |visit: &mut Visit<'_>| if is_all_hidden { Ok(()) } else { below(visit) };
    let examine = |_: &Written<'_>| examine(left);
    match tables {
        [] => below(visit),
        [only] => merge(only.rows.range(from, to).take_while(examine), is_hidden, below, visit),
        _ => {
            let sources = tables.iter().map(|table| {
                let rows = table.rows.range(from, to).take_while(&examine);
                let rows: Box<dyn Iterator<Item = Written<'_>>> = Box::new(rows);
                rows.peekable()
            });
            let merged = Merged { tables, sources: sources.collect() };
            merge(merged, is_hidden, below, visit)
        }
    }
}

/// An iterator over the rows of several memtables. Each row has the value in the newest of them.
struct Merged<'a> {
    /// Ordered newest first.
    tables: &'a [&'a Memtable],
    sources: Vec<Peekable<Box<dyn Iterator<Item = Written<'a>> + 'a>>>,
}

impl<'a> Iterator for Merged<'a> {
    type Item = Written<'a>;

    fn next(&mut self) -> Option<Written<'a>> {
        let mut least: Option<(usize, Written<'a>)> = None;
        for (at, source) in self.sources.iter_mut().enumerate() {
            if let Some(next) = source.peek() {
                if least.is_none_or(|(_, (row, _))| next.0 < row) {
                    least = Some((at, *next));
                }
            }
        }
        let (at, (row, value)) = least?;
        for source in &mut self.sources[at..] {
            source.next_if(|(other, _)| *other == row);
        }
        let is_hidden = self.tables[..at].iter().any(|table| table.is_range_deleted(row));
        Some((row, if is_hidden { &None } else { value }))
    }
}
