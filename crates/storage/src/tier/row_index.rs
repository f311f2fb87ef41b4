//! A hash table of the places of rows that never grows as a whole.
//!
//! A hash table that is full moves all its entries to a larger one. With a million rows this takes
//! tens of milliseconds, and everybody who needs a row waits. It does the same at its old size once
//! removed entries have used up its free slots. So the entries are in [`PARTS`] tables by their
//! hashes, and each table grows by itself.

use hashbrown::HashTable;

/// Number of tables. A power of two.
const PARTS: usize = 256;
/// The bits of a hash that choose the table. `hashbrown` uses the lowest and the highest ones.
const PART_SHIFT: u32 = 40;

#[derive(Debug)]
pub(super) struct RowIndex<T> {
    /// Empty until there is a place.
    parts: Vec<HashTable<T>>,
    /// The number of rows for which the tables have room at first.
    capacity: usize,
    len: usize,
}

impl<T> Default for RowIndex<T> {
    fn default() -> RowIndex<T> {
        RowIndex { parts: Vec::new(), capacity: 0, len: 0 }
    }
}

impl<T: Copy + PartialEq> RowIndex<T> {
    /// Creates an empty index that will have room for `rows` places.
    pub fn with_capacity(rows: usize) -> RowIndex<T> {
        RowIndex { capacity: rows, ..RowIndex::default() }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn part(hash: u64) -> usize {
        (hash >> PART_SHIFT) as usize % PARTS
    }

    /// Returns the place with this hash for which `is_it` is true.
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(T) -> bool) -> Option<T> {
        self.parts.get(Self::part(hash))?.find(hash, |place| is_it(*place)).copied()
    }

    /// Inserts a place that the index does not have. `hash_of` returns the hash of any of its
    /// places.
    pub fn insert(&mut self, hash: u64, place: T, hash_of: impl Fn(T) -> u64) {
        if self.parts.is_empty() {
            let capacity = self.capacity / PARTS;
            self.parts.resize_with(PARTS, || HashTable::with_capacity(capacity));
        }
        self.parts[Self::part(hash)].insert_unique(hash, place, |place| hash_of(*place));
        self.len += 1;
    }

    /// Removes a place with this hash.
    pub fn remove(&mut self, hash: u64, place: T) {
        let Some(part) = self.parts.get_mut(Self::part(hash)) else { return };
        if let Ok(found) = part.find_entry(hash, |other| *other == place) {
            found.remove();
            self.len -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use types::Draw;

    use super::*;

    #[test]
    fn an_index_is_a_map_and_its_tables_grow_one_by_one() {
        let mut draw = Draw::new(7);
        let mut index = RowIndex::with_capacity(1000);
        assert_eq!(index.find(1, |_| true), None);
        let (mut hashes, mut model) = (Vec::new(), BTreeMap::new());
        for place in 0..200_000usize {
            let hash = draw.number();
            hashes.push(hash);
            let before: Vec<usize> = index.parts.iter().map(HashTable::capacity).collect();
            index.insert(hash, place, |place| hashes[place]);
            let after = index.parts.iter().map(HashTable::capacity);
            let grown = before.iter().zip(after).filter(|(before, after)| **before != *after).count();
            assert!(grown <= 1);
            model.insert(place, hash);
            if draw.below(3) == 0 {
                let gone = draw.below(place as u64 + 1) as usize;
                index.remove(hashes[gone], gone);
                model.remove(&gone);
            }
        }
        assert_eq!(index.len(), model.len());
        let entries_max = index.parts.iter().map(HashTable::len).max();
        assert!(entries_max.is_some_and(|max| max < 2 * model.len() / PARTS), "the tables are even");
        for (place, hash) in hashes.iter().enumerate() {
            let found = index.find(*hash, |other| other == place);
            assert_eq!(found, model.contains_key(&place).then_some(place));
        }
    }
}
