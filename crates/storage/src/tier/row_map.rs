//! A map of rows with two indexes: a hash table for look-ups, and ordered trees for ranges.
//!
//! ```text
//!  hash of the row ─▶ index ─▶ place ─▶ row and value        look-up, overwrite
//!  slot ─▶ page ─▶ tree of (first 16 bytes, row) ─▶ place    range
//! ```
//!
//! Overwrites leave the trees unchanged. A row begins with its slot, database and the hash of its
//! key, so its first 16 bytes almost always decide a comparison. The trees store them as one
//! integer. There is one tree per page of slots, which keeps the trees low.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::merge::Written;
use crate::rows::SPACE_DATA;

/// Binary logarithm of the number of slots per page.
const SLOT_BITS_PER_PAGE: u32 = 4;
const SLOT_PAGES: usize = 16384 >> SLOT_BITS_PER_PAGE;
/// Number of pages: those of the slots, one for rows below the data rows, and one for rows above
/// them.
const PAGES: usize = SLOT_PAGES + 2;

/// Number of rows per allocation. Chunks never grow, so rows never move.
const ROWS_PER_CHUNK: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct RowMap {
    hash_seed: u64,
    index: HashTable<u32>,
    rows: Places,
    /// The trees, one per page. Empty until the first row is inserted.
    pages: Vec<BTreeMap<Key, u32>>,
    len: usize,
}

#[derive(Debug)]
struct Row {
    hash: u64,
    row: Bytes,
    value: Option<Bytes>,
}

#[derive(Debug, Default)]
struct Places {
    chunks: Vec<Vec<Option<Row>>>,
    free: Vec<u32>,
}

impl Places {
    fn get(&self, place: u32) -> &Row {
        let row = &self.chunks[place as usize / ROWS_PER_CHUNK][place as usize % ROWS_PER_CHUNK];
        row.as_ref().expect("index and trees name rows that are there")
    }

    fn slot(&mut self, place: u32) -> &mut Option<Row> {
        &mut self.chunks[place as usize / ROWS_PER_CHUNK][place as usize % ROWS_PER_CHUNK]
    }

    fn add(&mut self, row: Row) -> u32 {
        if let Some(place) = self.free.pop() {
            *self.slot(place) = Some(row);
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == ROWS_PER_CHUNK) {
            self.chunks.push(Vec::with_capacity(ROWS_PER_CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        self.chunks[chunk].push(Some(row));
        u32::try_from(chunk * ROWS_PER_CHUNK + self.chunks[chunk].len() - 1).expect("fewer than 2^32 rows")
    }

    fn take(&mut self, place: u32) -> Row {
        self.free.push(place);
        self.slot(place).take().expect("a row that is there")
    }
}

/// The order of rows: by their first 16 bytes, then by the whole row.
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

/// Returns the first 16 bytes as a number. A shorter row is padded with zeros.
fn head_of(row: &[u8]) -> u128 {
    let mut head = [0; 16];
    let len = row.len().min(16);
    head[..len].copy_from_slice(&row[..len]);
    u128::from_be_bytes(head)
}

impl<'a> Probe<'a> {
    fn new(row: &'a [u8]) -> Probe<'a> {
        Probe { head: head_of(row), row }
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
        if self.len == 0 {
            return None;
        }
        self.find(self.hash(row), row).map(|place| &self.rows.get(place).value)
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

    /// Inserts or overwrites a row. Returns its previous value, or `None` if the row was not in the
    /// map.
    pub fn insert(&mut self, row: Bytes, value: Option<Bytes>) -> Option<Option<Bytes>> {
        let hash = self.hash(&row);
        if let Some(place) = self.find(hash, &row) {
            let known = self.rows.slot(place).as_mut().expect("it was found");
            return Some(std::mem::replace(&mut known.value, value));
        }
        if self.pages.is_empty() {
            self.pages.resize_with(PAGES, BTreeMap::new);
        }
        let key = Key { head: head_of(&row), row: row.clone() };
        let page = page_of(&row);
        let place = self.rows.add(Row { hash, row, value });
        self.pages[page].insert(key, place);
        let rows = &self.rows;
        self.index.insert_unique(hash, place, |place| rows.get(*place).hash);
        self.len += 1;
        None
    }

    /// Returns the rows in `from..to`, ascending.
    pub fn range<'a>(&'a self, from: &'a [u8], to: &'a [u8]) -> impl Iterator<Item = Written<'a>> + 'a {
        let pages = match from < to && self.len > 0 {
            true => page_of(from)..page_of(to) + 1,
            false => 0..0,
        };
        let rows = pages.flat_map(move |page| rows_of(&self.pages[page], from, to));
        rows.map(|(key, place)| (&key.row, &self.rows.get(*place).value))
    }

    /// Returns the rows after `after`, or all rows, ascending.
    pub fn behind<'a>(&'a self, after: Option<&Bytes>) -> impl Iterator<Item = Written<'a>> + 'a {
        let first = if self.len == 0 { self.pages.len() } else { after.map_or(0, |row| page_of(row)) };
        let begun = self.pages.get(first).into_iter().flat_map({
            let after = after.cloned();
            move |page| {
                let probe = after.as_ref().map(|row| Probe::new(row));
                let from = match &probe {
                    Some(probe) => Bound::Excluded(probe as &dyn Ordered),
                    None => Bound::Unbounded,
                };
                page.range::<dyn Ordered, _>((from, Bound::Unbounded))
            }
        });
        let rest = self.pages.get(first + 1..).unwrap_or_default().iter().flatten();
        begun.chain(rest).map(|(key, place)| (&key.row, &self.rows.get(*place).value))
    }

    /// Removes the rows in `from..to` and calls `gone` with each.
    pub fn remove_range(&mut self, from: &[u8], to: &[u8], mut gone: impl FnMut(&Bytes, &Option<Bytes>)) {
        if from >= to || self.len == 0 {
            return;
        }
        for page in page_of(from)..=page_of(to) {
            let doomed: Vec<u32> = rows_of(&self.pages[page], from, to).map(|(_, place)| *place).collect();
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
        self.pages[page_of(&taken.row)].remove(&Probe::new(&taken.row) as &dyn Ordered);
        if let Ok(found) = self.index.find_entry(taken.hash, |other| *other == place) {
            found.remove();
        }
        self.len -= 1;
        taken
    }
}

fn rows_of<'a>(
    page: &'a BTreeMap<Key, u32>,
    from: &[u8],
    to: &[u8],
) -> impl Iterator<Item = (&'a Key, &'a u32)> + use<'a> {
    let (from, to) = (Probe::new(from), Probe::new(to));
    let bounds = (Bound::Included(&from as &dyn Ordered), Bound::Excluded(&to as &dyn Ordered));
    page.range::<dyn Ordered, _>(bounds)
}
