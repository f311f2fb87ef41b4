//! Entries in the order of rows that lie elsewhere.
//!
//! ```text
//!  least head ─▶ block of up to 32 of (head, entry), ascending
//! ```
//!
//! A head is the first 16 bytes of a row, or of what follows the bytes that all rows begin with. It
//! almost always decides a comparison, so the rows themselves are rarely read. An entry takes 24
//! bytes, and a block lies in one piece, so an insertion waits for memory only a few times.
//!
//! Entries with the same head are in the same block, which may be longer for that reason.

use std::cmp::Ordering;
use std::collections::{btree_map, BTreeMap};
use std::ops::Bound;

/// Number of entries from which on a block is divided.
pub(super) const BLOCK_MAX: usize = 32;
/// Number of entries below which a block is joined with a neighbour, if that is short, too.
const BLOCK_MIN: usize = BLOCK_MAX / 4;

#[derive(Debug)]
pub(super) struct Blocks<E> {
    /// The entries before the least head of `more`.
    first: Vec<Slot<E>>,
    more: BTreeMap<u128, Vec<Slot<E>>>,
}

/// A head, in two parts because of its alignment, and an entry.
#[derive(Clone, Copy, Debug)]
struct Slot<E> {
    high: u64,
    low: u64,
    entry: E,
}

const _: () = assert!(size_of::<Slot<u32>>() == 24);

impl<E> Slot<E> {
    fn head(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

/// A row to find, or a bound of a range.
#[derive(Clone, Copy)]
pub(super) struct Probe<'a> {
    head: u128,
    row: &'a [u8],
}

impl<'a> Probe<'a> {
    pub fn new(row: &'a [u8]) -> Probe<'a> {
        Probe::in_part(row, 0)
    }

    /// Returns the probe for a row among rows that begin with `common` equal bytes.
    pub fn in_part(row: &'a [u8], common: usize) -> Probe<'a> {
        Probe { head: head_of(&row[common..]), row }
    }
}

/// Returns the first 16 bytes as a number. A shorter row is padded with zeros.
fn head_of(row: &[u8]) -> u128 {
    let mut head = [0; 16];
    let len = row.len().min(16);
    head[..len].copy_from_slice(&row[..len]);
    u128::from_be_bytes(head)
}

impl<E> Default for Blocks<E> {
    fn default() -> Blocks<E> {
        Blocks { first: Vec::new(), more: BTreeMap::new() }
    }
}

impl<E: Copy> Blocks<E> {
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.more.is_empty()
    }

    fn block(&self, head: u128) -> (Option<u128>, &Vec<Slot<E>>) {
        match self.more.range(..=head).next_back() {
            Some((least, block)) => (Some(*least), block),
            None => (None, &self.first),
        }
    }

    fn block_mut(&mut self, head: u128) -> (Option<u128>, &mut Vec<Slot<E>>) {
        match self.more.range_mut(..=head).next_back() {
            Some((least, block)) => (Some(*least), block),
            None => (None, &mut self.first),
        }
    }

    pub fn get<'r>(&self, probe: Probe<'_>, row_of: impl Fn(E) -> &'r [u8]) -> Option<E> {
        let (_, block) = self.block(probe.head);
        search(block, probe, row_of).ok().map(|at| block[at].entry)
    }

    /// Inserts the entry of a row that has none.
    pub fn insert<'r>(&mut self, probe: Probe<'_>, entry: E, row_of: impl Fn(E) -> &'r [u8]) {
        let slot = Slot { high: (probe.head >> 64) as u64, low: probe.head as u64, entry };
        let (_, block) = self.block_mut(probe.head);
        let at = search(block, probe, row_of).unwrap_or_else(|at| at);
        if block.len() < BLOCK_MAX {
            block.insert(at, slot);
            return;
        }
        // Rows often arrive in order. Then the block is left full.
        let is_last = at == block.len() && block[at - 1].head() != probe.head;
        let middle = if is_last { Some(at) } else { division(block) };
        let Some(middle) = middle else {
            block.insert(at, slot);
            return;
        };
        let mut later = block.split_off(middle);
        let is_earlier = at < middle || at == middle && block[at - 1].head() == probe.head;
        match is_earlier {
            true => block.insert(at, slot),
            false => later.insert(at - middle, slot),
        }
        self.more.insert(later[0].head(), later);
    }

    /// Removes the entry of a row. Returns whether there was one.
    pub fn remove<'r>(&mut self, probe: Probe<'_>, row_of: impl Fn(E) -> &'r [u8]) -> bool {
        let (least, block) = self.block_mut(probe.head);
        let Ok(at) = search(block, probe, row_of) else { return false };
        block.remove(at);
        if block.len() < BLOCK_MIN {
            self.join(least);
        }
        true
    }

    /// Joins a short block with a neighbour, if that is short, too. A block without entries is
    /// deleted.
    fn join(&mut self, least: Option<u128>) {
        let behind = least.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.more.range((behind, Bound::Unbounded)).next().map(|(least, _)| *least);
        let before = least.map(|least| self.more.range(..least).next_back().map(|(least, _)| *least));
        let pairs = [next.map(|next| (least, next)), before.zip(least)];
        for (left, right) in pairs.into_iter().flatten() {
            let len = self.block(left.unwrap_or(0)).1.len() + self.more[&right].len();
            if len <= BLOCK_MAX / 2 {
                let mut entries = self.more.remove(&right).unwrap_or_default();
                self.block_mut(left.unwrap_or(0)).1.append(&mut entries);
                return;
            }
        }
        if let Some(least) = least.filter(|least| self.more[least].is_empty()) {
            self.more.remove(&least);
        }
    }

    /// Returns the entries between two bounds, ascending.
    pub fn range<'r>(
        &self,
        from: Bound<Probe<'_>>,
        to: Option<Probe<'_>>,
        row_of: impl Fn(E) -> &'r [u8],
    ) -> Range<'_, E> {
        let (begin, block, at) = match from {
            Bound::Unbounded => (None, &self.first, 0),
            Bound::Included(probe) | Bound::Excluded(probe) => {
                let (begin, block) = self.block(probe.head);
                let at = match (search(block, probe, &row_of), from) {
                    (Ok(at), Bound::Excluded(_)) => at + 1,
                    (Ok(at) | Err(at), _) => at,
                };
                (begin, block, at)
            }
        };
        let end = to.map(|probe| {
            let (end, block) = self.block(probe.head);
            (end, search(block, probe, &row_of).unwrap_or_else(|at| at))
        });
        let behind = begin.map_or(Bound::Unbounded, Bound::Excluded);
        match end {
            None => Range {
                block: block[at..].iter(),
                more: self.more.range((behind, Bound::Unbounded)),
                end: None,
            },
            Some((end, count)) if end == begin => {
                Range { block: block.get(at..count).unwrap_or_default().iter(), ..Range::default() }
            }
            Some((Some(end), count)) if Some(end) > begin => Range {
                block: block[at..].iter(),
                more: self.more.range((behind, Bound::Included(end))),
                end: Some((end, count)),
            },
            Some(_) => Range::default(),
        }
    }
}

/// Returns the place of a row's entry, or the place where it would be inserted. It reads all heads:
/// the processor waits for all of them at the same time, and a binary search waits for one after
/// the other.
fn search<'r, E: Copy>(
    block: &[Slot<E>],
    probe: Probe<'_>,
    row_of: impl Fn(E) -> &'r [u8],
) -> Result<usize, usize> {
    let mut at: usize = block.iter().map(|slot| usize::from(slot.head() < probe.head)).sum();
    while let Some(slot) = block.get(at).filter(|slot| slot.head() == probe.head) {
        match row_of(slot.entry).cmp(probe.row) {
            Ordering::Less => at += 1,
            Ordering::Equal => return Ok(at),
            Ordering::Greater => break,
        }
    }
    Err(at)
}

/// Returns the place at which a block can be divided, near its middle.
fn division<E>(block: &[Slot<E>]) -> Option<usize> {
    let is_between = |at: &usize| block[at - 1].head() != block[*at].head();
    let middle = block.len() / 2;
    (middle..block.len()).find(is_between).or_else(|| (1..middle).rev().find(is_between))
}

/// An iterator over the entries in a range, ascending.
#[derive(Debug)]
pub(super) struct Range<'a, E> {
    block: std::slice::Iter<'a, Slot<E>>,
    more: btree_map::Range<'a, u128, Vec<Slot<E>>>,
    /// The last block and the number of its entries that are in the range.
    end: Option<(u128, usize)>,
}

impl<E> Default for Range<'_, E> {
    fn default() -> Self {
        Range { block: [].iter(), more: btree_map::Range::default(), end: None }
    }
}

impl<E: Copy> Iterator for Range<'_, E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        loop {
            if let Some(slot) = self.block.next() {
                return Some(slot.entry);
            }
            let (least, block) = self.more.next()?;
            self.block = match self.end {
                Some((end, count)) if end == *least => block[..count].iter(),
                _ => block.iter(),
            };
        }
    }
}

#[cfg(test)]
mod tests;
