//! An ordered map of rows, cut into pages by slot.
//!
//! A row begins with its slot, database and the hash of its key, so that its first 16 bytes almost always decide
//! how it compares. They are kept in the map as one integer: a look-up follows no pointer until it has found its row.
//! Pages keep the trees low.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::merge::Written;
use crate::rows::SPACE_DATA;

/// Slots of one page are `1 << SLOT_BITS_PER_PAGE`.
const SLOT_BITS_PER_PAGE: u32 = 4;
const SLOT_PAGES: usize = 16384 >> SLOT_BITS_PER_PAGE;
/// One page for rows below the data rows and one for those above.
const PAGES: usize = SLOT_PAGES + 2;

#[derive(Debug, Default)]
pub(super) struct RowMap {
    /// Empty as long as there is no row.
    pages: Vec<BTreeMap<Key, Option<Bytes>>>,
    len: usize,
}

/// How rows compare: by their first 16 bytes, then as a whole.
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

/// The first 16 bytes as a number; a shorter row is followed by zeros.
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

/// The page of a row. Never falls as rows rise.
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
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, row: &[u8]) -> Option<&Option<Bytes>> {
        if self.len == 0 {
            return None;
        }
        self.pages[page_of(row)].get(&Probe::new(row) as &dyn Ordered)
    }

    /// Returns what the row was before: `None` if it was not in the map.
    pub fn insert(&mut self, row: Bytes, value: Option<Bytes>) -> Option<Option<Bytes>> {
        if self.pages.is_empty() {
            self.pages.resize_with(PAGES, BTreeMap::new);
        }
        let page = &mut self.pages[page_of(&row)];
        let before = page.insert(Key { head: head_of(&row), row }, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// The rows in `from..to`, ascending.
    pub fn range<'a>(&'a self, from: &'a [u8], to: &'a [u8]) -> impl Iterator<Item = Written<'a>> + 'a {
        let pages = match from < to && self.len > 0 {
            true => page_of(from)..page_of(to) + 1,
            false => 0..0,
        };
        pages.flat_map(move |page| rows_of(&self.pages[page], from, to))
    }

    /// The rows behind `after`, or all of them, ascending.
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
        begun.chain(rest).map(|(key, value)| (&key.row, value))
    }

    /// Takes the rows in `from..to` out and calls `gone` with each.
    pub fn remove_range(&mut self, from: &[u8], to: &[u8], mut gone: impl FnMut(&Bytes, &Option<Bytes>)) {
        if from >= to || self.len == 0 {
            return;
        }
        for page in &mut self.pages[page_of(from)..=page_of(to)] {
            let doomed: Vec<Bytes> = rows_of(page, from, to).map(|(row, _)| row.clone()).collect();
            for row in doomed {
                if let Some(value) = page.remove(&Probe::new(&row) as &dyn Ordered) {
                    gone(&row, &value);
                    self.len -= 1;
                }
            }
        }
    }
}

fn rows_of<'a>(
    page: &'a BTreeMap<Key, Option<Bytes>>,
    from: &[u8],
    to: &[u8],
) -> impl Iterator<Item = Written<'a>> + use<'a> {
    let (from, to) = (Probe::new(from), Probe::new(to));
    let bounds = (Bound::Included(&from as &dyn Ordered), Bound::Excluded(&to as &dyn Ordered));
    page.range::<dyn Ordered, _>(bounds).map(|(key, value)| (&key.row, value))
}
