//! A map of rows with two indexes: a hash table for look-ups, and ordered blocks for ranges.
//!
//! ```text
//!  hash of the row ─▶ index ─▶ place ─▶ row and value                       look-up, overwrite
//!  slot ─▶ page ─▶ entries in order ─┬▶ place                               range
//!                                    └▶ part ─▶ entries in order ─▶ place
//! ```
//!
//! Overwrites leave the order unchanged. A row begins with its slot, database and the hash of its
//! key, so its first 16 bytes almost always decide a comparison, and [`Blocks`] stores them beside
//! the entries. There is one order per page of slots.
//!
//! The elements of a collection all begin with the same bytes, and so do the nodes of its tree.
//! Such rows are a *part*. A page has only one entry for a part. The part itself has the order of
//! its rows, which compares what follows the common bytes: the hash of an element's name, or a
//! node's number. No other row lies among the rows of a part.

use std::ops::Bound;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::blocks::{Blocks, Probe};
use super::last_use::{LastUse, Seconds};
use super::row_index::RowIndex;
use crate::chunked::Chunked;
use crate::merge::Written;
use crate::rows::{subkey_at, SPACE_DATA};

mod blocks;

/// Binary logarithm of the number of slots per page.
const SLOT_BITS_PER_PAGE: u32 = 4;
const SLOT_PAGES: usize = 16384 >> SLOT_BITS_PER_PAGE;
/// Number of pages: those of the slots, one for rows below the data rows, and one for rows above
/// them.
const PAGES: usize = SLOT_PAGES + 2;

/// Maximum number of rows whose look-ups wait for memory at the same time.
pub(super) const TOGETHER: usize = 16;

#[derive(Debug, Default)]
pub(super) struct RowMap {
    hash_seed: u64,
    index: RowIndex<u32>,
    rows: Places<Row>,
    /// The rows and parts of each page, in order. Empty until the first row is inserted.
    pages: Vec<Blocks<Entry>>,
    parts: Places<Part>,
    /// Estimated memory that the parts take in addition to their rows, in bytes.
    part_bytes: usize,
    len: usize,
}

#[derive(Debug)]
struct Row {
    hash: u64,
    last_use: LastUse,
    row: Bytes,
    value: Option<Bytes>,
}

impl Row {
    fn written(&self) -> Written<'_> {
        (&self.row, &self.value)
    }
}

/// Estimated memory of a part without its rows and its common bytes, in bytes: an entry in its
/// page, its place, and two allocations.
const PART_BYTES: usize = 160;

/// The rows of a collection that begin with the same bytes.
#[derive(Debug)]
struct Part {
    common: Bytes,
    rows: Blocks<u32>,
}

/// An entry of a page.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// The place of a row.
    Row(u32),
    /// The place of a part, which is not empty. Its common bytes stand for it in the order.
    Part(u32),
}

/// Returns the bytes that determine the place of an entry in its page.
fn row_of<'a>(rows: &'a Places<Row>, parts: &'a Places<Part>, entry: Entry) -> &'a [u8] {
    match entry {
        Entry::Row(place) => &rows.get(place).row,
        Entry::Part(part) => &parts.get(part).common,
    }
}

/// Rows or parts, which never move.
#[derive(Debug)]
struct Places<T> {
    things: Chunked<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { things: Chunked::default(), free: Vec::new() }
    }
}

impl<T> Places<T> {
    fn get(&self, place: u32) -> &T {
        let thing = self.things.get(place as usize).and_then(Option::as_ref);
        thing.expect("the index and the entries name places that are taken")
    }

    fn get_mut(&mut self, place: u32) -> &mut T {
        self.slot(place).as_mut().expect("the index and the entries name places that are taken")
    }

    fn slot(&mut self, place: u32) -> &mut Option<T> {
        self.things.get_mut(place as usize).expect("the index and the entries name places")
    }

    fn add(&mut self, thing: T) -> u32 {
        if let Some(place) = self.free.pop() {
            *self.slot(place) = Some(thing);
            return place;
        }
        u32::try_from(self.things.push(Some(thing))).expect("fewer than 2^32 rows")
    }

    fn take(&mut self, place: u32) -> T {
        self.free.push(place);
        self.slot(place).take().expect("a place that is taken")
    }
}

/// Returns the page of a row. It is monotonic in the row.
fn page_of(row: &[u8]) -> usize {
    match row {
        [SPACE_DATA, rest @ ..] => {
            let byte = |at: usize| usize::from(rest.get(at).copied().unwrap_or(0));
            let slot = byte(0) << 8 | byte(1);
            1 + (slot >> SLOT_BITS_PER_PAGE).min(SLOT_PAGES - 1)
        }
        [space, ..] if *space > SPACE_DATA => PAGES - 1,
        _ => 0,
    }
}

impl RowMap {
    /// Creates an empty map whose index has room for `rows` rows. Clients choose keys, so they must
    /// not know the seed.
    pub fn with_seed(hash_seed: u64, rows: usize) -> RowMap {
        RowMap { hash_seed, index: RowIndex::with_capacity(rows), ..RowMap::default() }
    }

    pub fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, row: &[u8]) -> Option<&Option<Bytes>> {
        self.look_up(row).map(|row| &row.value)
    }

    /// Same as [`get`](Self::get), but notes the use.
    pub fn get_for_use(&self, row: &[u8], now: Seconds) -> Option<&Option<Bytes>> {
        let row = self.look_up(row)?;
        row.last_use.note(now);
        Some(&row.value)
    }

    pub fn last_use(&self, row: &[u8]) -> Option<Seconds> {
        self.look_up(row).map(|row| row.last_use.get())
    }

    fn look_up(&self, row: &[u8]) -> Option<&Row> {
        if self.len == 0 {
            return None;
        }
        self.find(self.hash(row), row).map(|place| self.rows.get(place))
    }

    /// Reads what look-ups of these rows will read, so that the processor's cache has it. A look-up
    /// waits for memory four times, one after the other; here each step is taken for all rows.
    pub fn touch<'a>(&self, rows: impl Iterator<Item = &'a [u8]>) {
        if self.len == 0 {
            return;
        }
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut places = [None; TOGETHER];
            for (place, row) in places.iter_mut().zip(&mut rows) {
                // The first candidate is the row, almost always.
                *place = self.index.find(self.hash(row), |_| true);
            }
            let found = places.map(|place| place.map(|place| self.rows.get(place)));
            touch(found.iter().flatten().copied());
        }
    }

    fn hash(&self, row: &[u8]) -> u64 {
        xxh3_64_with_seed(row, self.hash_seed)
    }

    fn find(&self, hash: u64, row: &[u8]) -> Option<u32> {
        self.index.find(hash, |place| {
            let other = self.rows.get(place);
            other.hash == hash && other.row[..] == *row
        })
    }

    /// Inserts or overwrites a row, which is a use of it. Returns its previous value, or `None` if
    /// the row was not in the map.
    pub fn insert(&mut self, row: Bytes, value: Option<Bytes>, now: Seconds) -> Option<Option<Bytes>> {
        let hash = self.hash(&row);
        if let Some(place) = self.find(hash, &row) {
            let known = self.rows.get_mut(place);
            known.last_use.note(now);
            return Some(std::mem::replace(&mut known.value, value));
        }
        if self.pages.is_empty() {
            self.pages.resize_with(PAGES, Blocks::default);
        }
        let (number, common) = (page_of(&row), subkey_at(&row));
        let place = self.rows.add(Row { hash, last_use: LastUse::at(now), row, value });
        let (rows, page) = (&self.rows, &mut self.pages[number]);
        let row = &rows.get(place).row;
        match common {
            None => page.insert(Probe::new(row), Entry::Row(place), |entry| row_of(rows, &self.parts, entry)),
            Some(common) => {
                let probe = Probe::new(&row[..common]);
                let part = match page.get(probe, |entry| row_of(rows, &self.parts, entry)) {
                    Some(Entry::Part(part)) => part,
                    _ => {
                        let common = Bytes::copy_from_slice(&row[..common]);
                        self.part_bytes += PART_BYTES + common.len();
                        let part = self.parts.add(Part { common, rows: Blocks::default() });
                        page.insert(probe, Entry::Part(part), |entry| row_of(rows, &self.parts, entry));
                        part
                    }
                };
                let part = &mut self.parts.get_mut(part).rows;
                part.insert(Probe::in_part(row, common), place, |place| &rows.get(place).row);
            }
        }
        let rows = &self.rows;
        self.index.insert(hash, place, |place| rows.get(place).hash);
        self.len += 1;
        None
    }

    /// Returns the estimated memory that parts take in addition to their rows, in bytes.
    pub fn part_bytes(&self) -> usize {
        self.part_bytes
    }

    /// Returns the rows in `from..to`, ascending.
    pub fn range<'a>(&'a self, from: &'a [u8], to: &'a [u8]) -> MapRange<'a> {
        let pages = match from < to && self.len > 0 {
            true => page_of(from)..page_of(to) + 1,
            false => 0..0,
        };
        Rows::new(self, pages, Limits { from: Bound::Included(from), to: Some(to) })
    }

    /// Returns the rows after `after`, or all rows, ascending.
    pub fn behind<'a>(&'a self, after: Option<&Bytes>) -> impl Iterator<Item = Written<'a>> + 'a {
        self.rows_behind(after)
    }

    /// Same as [`behind`](Self::behind), with the last uses of the rows.
    pub fn uses_behind<'a>(
        &'a self,
        after: Option<&Bytes>,
    ) -> impl Iterator<Item = (Written<'a>, Seconds)> + 'a {
        let mut rows = self.rows_behind(after);
        std::iter::from_fn(move || rows.next_row()).map(|row| (row.written(), row.last_use.get()))
    }

    fn rows_behind(&self, after: Option<&Bytes>) -> Rows<'_, Bytes> {
        let pages = match self.len {
            0 => 0..0,
            _ => after.map_or(0, |row| page_of(row))..PAGES,
        };
        let from = after.cloned().map_or(Bound::Unbounded, Bound::Excluded);
        Rows::new(self, pages, Limits { from, to: None })
    }

    /// Removes the rows in `from..to` and calls `gone` with each.
    pub fn remove_range(&mut self, from: &[u8], to: &[u8], mut gone: impl FnMut(&Bytes, &Option<Bytes>)) {
        let limits = Limits { from: Bound::Included(from), to: Some(to) };
        if from >= to || self.len == 0 {
            return;
        }
        for page in page_of(from)..=page_of(to) {
            let mut doomed = Rows::new(self, page..page + 1, limits);
            let doomed: Vec<u32> = std::iter::from_fn(|| doomed.next_place()).collect();
            for place in doomed {
                let Row { row, value, .. } = self.take(place);
                gone(&row, &value);
            }
        }
    }

    /// Removes a row and returns its value, or `None` if the row was not in the map.
    pub fn remove(&mut self, row: &[u8]) -> Option<Option<Bytes>> {
        let place = self.find(self.hash(row), row)?;
        Some(self.take(place).value)
    }

    fn take(&mut self, place: u32) -> Row {
        let (rows, row) = (&self.rows, &self.rows.get(place).row);
        let page = &mut self.pages[page_of(row)];
        match subkey_at(row) {
            None => drop(page.remove(Probe::new(row), |entry| row_of(rows, &self.parts, entry))),
            Some(common) => {
                let probe = Probe::new(&row[..common]);
                if let Some(Entry::Part(number)) = page.get(probe, |entry| row_of(rows, &self.parts, entry)) {
                    let part = &mut self.parts.get_mut(number).rows;
                    part.remove(Probe::in_part(row, common), |place| &rows.get(place).row);
                    if part.is_empty() {
                        page.remove(probe, |entry| row_of(rows, &self.parts, entry));
                        self.parts.take(number);
                        self.part_bytes -= PART_BYTES + common;
                    }
                }
            }
        }
        let taken = self.rows.take(place);
        self.index.remove(taken.hash, place);
        self.len -= 1;
        taken
    }
}

/// Reads the beginnings of rows and values, whose memory is then in the processor's cache.
fn touch<'a>(rows: impl Iterator<Item = &'a Row>) {
    let first = |bytes: &[u8]| u32::from(bytes.first().copied().unwrap_or(0));
    let touched = rows.map(|row| first(&row.row) + row.value.as_ref().map_or(0, |value| first(value)));
    std::hint::black_box(touched.fold(0, u32::wrapping_add));
}

/// The limits of a range of rows.
#[derive(Clone, Copy)]
pub(super) struct Limits<T> {
    from: Bound<T>,
    /// The end, which is not in the range.
    to: Option<T>,
}

impl<T: AsRef<[u8]>> Limits<T> {
    fn from(&self) -> Bound<&[u8]> {
        self.from.as_ref().map(AsRef::as_ref)
    }

    fn to(&self) -> Option<&[u8]> {
        self.to.as_ref().map(AsRef::as_ref)
    }

    /// Returns the entries of a page that have rows in the range.
    fn entries<'a>(&self, map: &'a RowMap, page: usize) -> blocks::Range<'a, Entry> {
        // The first row may lie in the middle of a part.
        let from = match self.from() {
            Bound::Included(row) | Bound::Excluded(row) if subkey_at(row).is_some() => {
                Bound::Included(&row[..subkey_at(row).unwrap_or_default()])
            }
            from => from,
        };
        let row_of = |entry| row_of(&map.rows, &map.parts, entry);
        map.pages[page].range(from.map(Probe::new), self.to().map(Probe::new), row_of)
    }

    /// Returns the rows in the range of a part.
    fn in_part<'a>(&self, map: &'a RowMap, part: &'a Part) -> blocks::Range<'a, u32> {
        let common = &part.common[..];
        let probe = |row| Probe::in_part(row, common.len());
        let from = match self.from() {
            Bound::Included(row) | Bound::Excluded(row) if !row.starts_with(common) => Bound::Unbounded,
            from => from.map(probe),
        };
        let to = self.to().filter(|row| row.starts_with(common)).map(probe);
        part.rows.range(from, to, |place| &map.rows.get(place).row)
    }
}

/// The rows in a range of a map, ascending.
pub(super) type MapRange<'a> = Rows<'a, &'a [u8]>;

/// Maximum number of rows that an iterator reads ahead, and the number that it begins with.
const AHEAD_MAX: usize = 16;
const AHEAD_FIRST: usize = 4;

/// An iterator over a range of rows, ascending. It reads some rows ahead: each lies in another
/// place of memory, and the processor waits for all of them at the same time.
pub(super) struct Rows<'a, T> {
    map: &'a RowMap,
    /// The pages to visit.
    pages: std::ops::Range<usize>,
    limits: Limits<T>,
    entries: blocks::Range<'a, Entry>,
    part: blocks::Range<'a, u32>,
    /// The rows that were read ahead, behind the last ones `None`.
    ahead: [Option<&'a Row>; AHEAD_MAX],
    /// The number of them that are returned already.
    returned: usize,
    /// The number of rows that were last read ahead.
    count: usize,
}

impl<'a, T: AsRef<[u8]>> Rows<'a, T> {
    fn new(map: &'a RowMap, pages: std::ops::Range<usize>, limits: Limits<T>) -> Rows<'a, T> {
        Rows {
            map,
            pages,
            limits,
            entries: Default::default(),
            part: Default::default(),
            ahead: [None; AHEAD_MAX],
            returned: 0,
            count: 0,
        }
    }

    fn read_ahead(&mut self) {
        self.count = (2 * self.count).clamp(AHEAD_FIRST, AHEAD_MAX);
        for at in 0..self.count {
            self.ahead[at] = self.next_place().map(|place| self.map.rows.get(place));
        }
        touch(self.ahead[..self.count].iter().flatten().copied());
        self.returned = 0;
    }

    fn next_row(&mut self) -> Option<&'a Row> {
        if self.returned == self.count {
            self.read_ahead();
        }
        let next = self.ahead[self.returned]?;
        self.returned += 1;
        Some(next)
    }

    fn next_place(&mut self) -> Option<u32> {
        loop {
            if let Some(place) = self.part.next() {
                return Some(place);
            }
            match self.entries.next() {
                Some(Entry::Row(place)) => return Some(place),
                Some(Entry::Part(part)) => {
                    self.part = self.limits.in_part(self.map, self.map.parts.get(part))
                }
                None => self.entries = self.limits.entries(self.map, self.pages.next()?),
            }
        }
    }
}

impl<'a, T: AsRef<[u8]>> Iterator for Rows<'a, T> {
    type Item = Written<'a>;

    fn next(&mut self) -> Option<Written<'a>> {
        self.next_row().map(Row::written)
    }
}

#[cfg(test)]
mod tests;
