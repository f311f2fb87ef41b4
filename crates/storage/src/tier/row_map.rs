//! A map of rows with two indexes: a hash table for look-ups, and ordered trees for ranges.
//!
//! ```text
//!  hash of the row ─▶ index ─▶ place ─▶ row and value                       look-up, overwrite
//!  slot ─▶ page ─▶ tree of (first 16 bytes, row) ─┬▶ place                  range
//!                                                 └▶ part: (sub-key, row) ─▶ place
//! ```
//!
//! Overwrites leave the trees unchanged. A row begins with its slot, database and the hash of its
//! key, so its first 16 bytes almost always decide a comparison. The trees store them as one
//! integer. There is one tree per page of slots, which keeps the trees low.
//!
//! The elements of a collection all begin with the same bytes, and so do the nodes of its tree.
//! Such rows are a *part*. A page's tree has only these bytes of a part. The part itself has an
//! index of its rows, which compares what follows the common bytes: the hash of an element's name,
//! or a node's number. No other row lies among the rows of a part.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{btree_map, BTreeMap};
use std::ops::Bound;

use bytes::Bytes;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::last_use::{LastUse, Seconds};
use crate::merge::Written;
use crate::rows::{subkey_at, SPACE_DATA};

/// Binary logarithm of the number of slots per page.
const SLOT_BITS_PER_PAGE: u32 = 4;
const SLOT_PAGES: usize = 16384 >> SLOT_BITS_PER_PAGE;
/// Number of pages: those of the slots, one for rows below the data rows, and one for rows above
/// them.
const PAGES: usize = SLOT_PAGES + 2;

/// Maximum number of rows whose look-ups wait for memory at the same time.
pub(super) const TOGETHER: usize = 16;

/// Number of rows, or of parts, per allocation. Chunks never grow, so rows never move.
const PLACES_PER_CHUNK: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct RowMap {
    hash_seed: u64,
    index: HashTable<u32>,
    rows: Places<Row>,
    /// The trees, one per page. Empty until the first row is inserted.
    pages: Vec<BTreeMap<Key, Entry>>,
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
/// page's tree, its place, and an allocation.
const PART_BYTES: usize = 160;
/// Estimated memory of a part's tree with one node, in bytes.
const PART_TREE_BYTES: usize = 600;
/// Maximum number of rows of a part without a tree.
const FEW_ROWS: usize = 8;

/// The rows of a collection, in order.
#[derive(Debug)]
enum Part {
    /// Rows in a list. A tree of a few rows would take more memory than they do.
    Few(Vec<(Key, u32)>),
    Tree(BTreeMap<Key, u32>),
}

impl Part {
    /// Inserts a row that the part does not have. Returns the bytes that a new tree takes.
    fn insert(&mut self, key: Key, place: u32) -> usize {
        match self {
            Part::Tree(tree) => {
                tree.insert(key, place);
                0
            }
            Part::Few(rows) if rows.len() < FEW_ROWS => {
                let at = rows.partition_point(|(other, _)| *other < key);
                rows.insert(at, (key, place));
                0
            }
            Part::Few(rows) => {
                let mut tree: BTreeMap<Key, u32> = std::mem::take(rows).into_iter().collect();
                tree.insert(key, place);
                *self = Part::Tree(tree);
                PART_TREE_BYTES
            }
        }
    }

    fn remove(&mut self, key: &Probe<'_>) {
        let key: &dyn Ordered = key;
        match self {
            Part::Few(rows) => rows.retain(|(other, _)| is_before(other, key) || is_before(key, other)),
            Part::Tree(tree) => drop(tree.remove(key)),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Part::Few(rows) => rows.is_empty(),
            Part::Tree(tree) => tree.is_empty(),
        }
    }

    /// Returns the bytes that the part takes in addition to its rows and its common bytes.
    fn bytes(&self) -> usize {
        match self {
            Part::Few(_) => PART_BYTES,
            Part::Tree(_) => PART_BYTES + PART_TREE_BYTES,
        }
    }
}

/// The rows in a range of a part, ascending.
enum PartRange<'a> {
    Few(std::slice::Iter<'a, (Key, u32)>),
    Tree(btree_map::Range<'a, Key, u32>),
}

impl<'a> Iterator for PartRange<'a> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            PartRange::Few(rows) => rows.next().map(|(_, place)| *place),
            PartRange::Tree(rows) => rows.next().map(|(_, place)| *place),
        }
    }
}

/// An entry of a page's tree.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// The place of a row.
    Row(u32),
    /// The place of a part, which is not empty. The key is what its rows begin with.
    Part(u32),
}

#[derive(Debug)]
struct Places<T> {
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { chunks: Vec::new(), free: Vec::new() }
    }
}

impl<T> Places<T> {
    fn get(&self, place: u32) -> &T {
        let slot = &self.chunks[place as usize / PLACES_PER_CHUNK][place as usize % PLACES_PER_CHUNK];
        slot.as_ref().expect("index and trees name places that are taken")
    }

    fn get_mut(&mut self, place: u32) -> &mut T {
        self.slot(place).as_mut().expect("index and trees name places that are taken")
    }

    fn slot(&mut self, place: u32) -> &mut Option<T> {
        &mut self.chunks[place as usize / PLACES_PER_CHUNK][place as usize % PLACES_PER_CHUNK]
    }

    fn add(&mut self, thing: T) -> u32 {
        if let Some(place) = self.free.pop() {
            *self.slot(place) = Some(thing);
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == PLACES_PER_CHUNK) {
            self.chunks.push(Vec::with_capacity(PLACES_PER_CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        self.chunks[chunk].push(Some(thing));
        u32::try_from(chunk * PLACES_PER_CHUNK + self.chunks[chunk].len() - 1).expect("fewer than 2^32 rows")
    }

    fn take(&mut self, place: u32) -> T {
        self.free.push(place);
        self.slot(place).take().expect("a place that is taken")
    }
}

/// The order of the rows in one tree: by their heads, then by the whole row. A head is the first 16
/// bytes of a row, or of what follows the bytes that all rows of a part begin with.
trait Ordered {
    fn head(&self) -> u128;
    fn row(&self) -> &[u8];
}

#[derive(Debug)]
struct Key {
    head: u128,
    row: Bytes,
}

struct Probe<'a> {
    head: u128,
    row: &'a [u8],
}

fn is_before(left: &dyn Ordered, right: &dyn Ordered) -> bool {
    left.cmp(right).is_lt()
}

/// Returns the first 16 bytes as a number. A shorter row is padded with zeros.
fn head_of(row: &[u8]) -> u128 {
    let mut head = [0; 16];
    let len = row.len().min(16);
    head[..len].copy_from_slice(&row[..len]);
    u128::from_be_bytes(head)
}

impl<'a> Probe<'a> {
    fn new(row: &'a [u8]) -> Probe<'a> {
        Probe::in_part(row, 0)
    }

    /// Returns the probe for a row of a part whose rows begin with `common` equal bytes.
    fn in_part(row: &'a [u8], common: usize) -> Probe<'a> {
        Probe { head: head_of(&row[common..]), row }
    }
}

impl Ordered for Key {
    fn head(&self) -> u128 {
        self.head
    }

    fn row(&self) -> &[u8] {
        &self.row
    }
}

impl Ordered for Probe<'_> {
    fn head(&self) -> u128 {
        self.head
    }

    fn row(&self) -> &[u8] {
        self.row
    }
}

impl Ord for dyn Ordered + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head().cmp(&other.head()).then_with(|| self.row().cmp(other.row()))
    }
}

impl PartialOrd for dyn Ordered + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Ordered + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Ordered + '_ {}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.row.cmp(&other.row))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

impl<'a> Borrow<dyn Ordered + 'a> for Key {
    fn borrow(&self) -> &(dyn Ordered + 'a) {
        self
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
        RowMap { hash_seed, index: HashTable::with_capacity(rows), ..RowMap::default() }
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
                *place = self.index.find(self.hash(row), |_| true).copied();
            }
            let found = places.map(|place| place.map(|place| self.rows.get(place)));
            touch(found.iter().flatten().copied());
        }
    }

    fn hash(&self, row: &[u8]) -> u64 {
        xxh3_64_with_seed(row, self.hash_seed)
    }

    fn find(&self, hash: u64, row: &[u8]) -> Option<u32> {
        let is_it = |place: &u32| {
            let other = self.rows.get(*place);
            other.hash == hash && other.row[..] == *row
        };
        self.index.find(hash, is_it).copied()
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
            self.pages.resize_with(PAGES, BTreeMap::new);
        }
        let place = self.rows.add(Row { hash, last_use: LastUse::at(now), row: row.clone(), value });
        let page = &mut self.pages[page_of(&row)];
        match subkey_at(&row) {
            None => drop(page.insert(Key { head: head_of(&row), row }, Entry::Row(place))),
            Some(common) => {
                let part = match page.get(&Probe::new(&row[..common]) as &dyn Ordered) {
                    Some(Entry::Part(part)) => *part,
                    _ => {
                        let part = self.parts.add(Part::Few(Vec::with_capacity(1)));
                        self.part_bytes += PART_BYTES + common;
                        let row = Bytes::copy_from_slice(&row[..common]);
                        page.insert(Key { head: head_of(&row), row }, Entry::Part(part));
                        part
                    }
                };
                let head = head_of(&row[common..]);
                self.part_bytes += self.parts.get_mut(part).insert(Key { head, row }, place);
            }
        }
        let rows = &self.rows;
        self.index.insert_unique(hash, place, |place| rows.get(*place).hash);
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
        let taken = self.rows.take(place);
        let page = &mut self.pages[page_of(&taken.row)];
        let common = subkey_at(&taken.row);
        let key = Probe::new(&taken.row[..common.unwrap_or(taken.row.len())]);
        match (page.get(&key as &dyn Ordered), common) {
            (Some(Entry::Part(number)), Some(common)) => {
                let (number, part) = (*number, self.parts.get_mut(*number));
                part.remove(&Probe::in_part(&taken.row, common));
                if part.is_empty() {
                    self.part_bytes -= self.parts.take(number).bytes() + common;
                    page.remove(&key as &dyn Ordered);
                }
            }
            _ => drop(page.remove(&key as &dyn Ordered)),
        }
        if let Ok(found) = self.index.find_entry(taken.hash, |other| *other == place) {
            found.remove();
        }
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

    /// Returns the entries of a page's tree that have rows in the range.
    fn entries<'a>(&self, page: &'a BTreeMap<Key, Entry>) -> btree_map::Range<'a, Key, Entry> {
        // The first row may lie in the middle of a part.
        let from = match self.from() {
            Bound::Included(row) | Bound::Excluded(row) if subkey_at(row).is_some() => {
                Bound::Included(&row[..subkey_at(row).unwrap_or_default()])
            }
            from => from,
        };
        let (from, to) = (from.map(Probe::new), self.to().map(Probe::new));
        let to = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(to as &dyn Ordered));
        page.range::<dyn Ordered, _>((from.as_ref().map(|from| from as &dyn Ordered), to))
    }

    /// Returns the rows in the range of a part whose rows begin with `common`.
    fn in_part<'a>(&self, part: &'a Part, common: &[u8]) -> PartRange<'a> {
        let probe = |row| Probe::in_part(row, common.len());
        let from = match self.from() {
            Bound::Included(row) | Bound::Excluded(row) if !row.starts_with(common) => Bound::Unbounded,
            from => from.map(probe),
        };
        let to = self.to().filter(|row| row.starts_with(common)).map(probe);
        let from = from.as_ref().map(|from| from as &dyn Ordered);
        let to = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(to as &dyn Ordered));
        match part {
            Part::Tree(tree) => PartRange::Tree(tree.range::<dyn Ordered, _>((from, to))),
            Part::Few(rows) => {
                let first = rows.partition_point(|(key, _)| match from {
                    Bound::Included(from) => is_before(key, from),
                    Bound::Excluded(from) => !is_before(from, key),
                    Bound::Unbounded => false,
                });
                let rows = &rows[first..];
                let count = rows.partition_point(|(key, _)| match to {
                    Bound::Excluded(to) => is_before(key, to),
                    _ => true,
                });
                PartRange::Few(rows[..count].iter())
            }
        }
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
    entries: btree_map::Range<'a, Key, Entry>,
    part: PartRange<'a>,
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
            part: PartRange::Few([].iter()),
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
                Some((_, Entry::Row(place))) => return Some(*place),
                Some((key, Entry::Part(part))) => {
                    self.part = self.limits.in_part(self.map.parts.get(*part), &key.row);
                }
                None => self.entries = self.limits.entries(&self.map.pages[self.pages.next()?]),
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
