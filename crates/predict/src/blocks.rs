//! RocksDB's block cache: which blocks of rows it holds.
//!
//! It is an `LRUCache` with two parts. A new block enters the part that is evicted first. A block
//! that is requested again moves to the other part, which has up to half of the room and also holds
//! the indexes and filters of the tables.

use std::collections::BTreeMap;

use crate::draw::{slot_of, Draw};

/// Bytes of an entry in a table's index: the shortest key between two blocks, and the place of the
/// second one.
const INDEX_ENTRY_BYTES: u64 = 24;
/// Bloom filter bits per row (`bloom_bits` in `rocks::Options`).
const FILTER_BITS: u64 = 10;
/// The part for blocks that were requested again (`LRUCacheOptions::high_pri_pool_ratio`).
const AGAIN_PART: f64 = 0.5;

/// Returns the block of each record, with `rows` rows per block. Rows are sorted by slot and then
/// by a hash of the key, for which the record number stands here.
pub(crate) fn blocks_of(records: u64, rows: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..records as u32).collect();
    order.sort_by_cached_key(|record| (slot_of(u64::from(*record)), *record));
    let mut block_of = vec![0; order.len()];
    for (place, record) in order.iter().enumerate() {
        block_of[*record as usize] = (place as u64 / rows.max(1)) as u32;
    }
    block_of
}

#[derive(Clone, Copy, Debug)]
struct Held {
    since: u64,
    again: bool,
}

/// The block cache of one store. Only blocks of the last level count, where almost all rows are.
#[derive(Clone, Debug)]
pub(crate) struct BlockCache {
    bytes: u64,
    row_bytes: u64,
    block_bytes: u64,
    held: BTreeMap<u32, Held>,
    /// The blocks of both parts, by the moment at which they were last requested or entered the
    /// part. Blocks of replaced tables keep their room until they are the oldest, so there are more
    /// entries than in `held`.
    once: BTreeMap<u64, u32>,
    again: BTreeMap<u64, u32>,
    moments: u64,
}

impl BlockCache {
    /// Makes a cache of `bytes` in which a block takes `block_bytes`.
    pub fn new(bytes: u64, row_bytes: u64, block_bytes: u64) -> BlockCache {
        BlockCache {
            bytes,
            row_bytes: row_bytes.max(1),
            block_bytes: block_bytes.max(1),
            held: BTreeMap::new(),
            once: BTreeMap::new(),
            again: BTreeMap::new(),
            moments: 0,
        }
    }

    /// Returns true if the block is cached. Counts as a request for it.
    pub fn finds(&mut self, block: u32) -> bool {
        let Some(held) = self.held.remove(&block) else { return false };
        if held.again { &mut self.again } else { &mut self.once }.remove(&held.since);
        self.put(block, true);
        true
    }

    /// Adds a block that was read from the device. `table_bytes` is the size of all tables.
    pub fn take(&mut self, block: u32, table_bytes: u64) {
        if !self.held.contains_key(&block) {
            self.put(block, false);
        }
        self.make_room(table_bytes);
    }

    fn put(&mut self, block: u32, again: bool) {
        self.moments += 1;
        self.held.insert(block, Held { since: self.moments, again });
        if again { &mut self.again } else { &mut self.once }.insert(self.moments, block);
    }

    fn make_room(&mut self, table_bytes: u64) {
        let known = table_bytes / self.row_bytes * FILTER_BITS / 8
            + table_bytes / self.block_bytes * INDEX_ENTRY_BYTES;
        let blocks = |bytes: u64| (bytes.saturating_sub(known) / self.block_bytes) as usize;
        let (all, again) = (blocks(self.bytes), blocks((self.bytes as f64 * AGAIN_PART) as u64));
        while self.again.len() > again {
            let Some((since, block)) = self.again.pop_first() else { break };
            match self.holds(block, since) {
                true => self.put(block, false),
                false => self.pass_down(block),
            }
        }
        while self.once.len() + self.again.len() > all {
            let oldest = self.once.pop_first().or_else(|| self.again.pop_first());
            let Some((since, block)) = oldest else { break };
            if self.holds(block, since) {
                self.held.remove(&block);
            }
        }
    }

    fn holds(&self, block: u32, since: u64) -> bool {
        self.held.get(&block).is_some_and(|held| held.since == since)
    }

    /// Keeps the room of a block that will not be requested any more, in the part that is evicted
    /// first.
    fn pass_down(&mut self, block: u32) {
        self.moments += 1;
        self.once.insert(self.moments, block);
    }

    /// Invalidates the blocks of a part of the tables, which was rewritten. The old blocks are not
    /// requested again and keep their room until they are the oldest.
    pub fn replaced(&mut self, part: f64, draw: &mut Draw) {
        if part > 0.0 {
            self.held.retain(|_, _| draw.fraction() >= part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_by_slot_share_a_block() {
        let block_of = blocks_of(1000, 7);
        assert_eq!(block_of.iter().max(), Some(&(999 / 7)));
        let of = |block| {
            (0..1000u64)
                .zip(&block_of)
                .filter(move |(_, of)| **of == block)
                .map(|(record, _)| slot_of(record))
        };
        assert!(of(0).max() <= of(1).min());
        assert_eq!(of(3).count(), 7);
    }

    /// Room for ten blocks, half of it for blocks that are requested again.
    #[test]
    fn what_is_asked_for_again_outlasts_what_passes_through() {
        let mut cache = BlockCache::new(10_000, 100, 1000);
        for block in 0..3 {
            cache.take(block, 0);
            assert!(cache.finds(block));
        }
        (100..200).for_each(|block| cache.take(block, 0));
        assert!((0..3).all(|block| cache.finds(block)));
        assert!(cache.finds(199) && !cache.finds(150));
        assert_eq!((cache.held.len(), cache.once.len() + cache.again.len()), (10, 10));
        // These exceed half of the room, so the least recently requested blocks become the newest
        // of the other part and are evicted in their turn.
        (180..200).for_each(|block| {
            cache.take(block, 0);
            cache.finds(block);
        });
        (300..305).for_each(|block| cache.take(block, 0));
        assert_eq!((0..3).filter(|block| cache.finds(*block)).count(), 0);
        assert!(cache.held.len() == 10);
        cache.take(400, 0);
        assert_eq!(cache.again.len(), 5);
    }

    #[test]
    fn indexes_and_filters_take_their_part() {
        let mut cache = BlockCache::new(10_000, 100, 1000);
        // Per 100,000 bytes, 2,400 for indexes and 1,250 for filters, which leaves room for six
        // blocks.
        (0..20).for_each(|block| cache.take(block, 100_000));
        assert_eq!(cache.held.len(), 6);
        cache.take(30, 10_000_000);
        assert!(cache.held.is_empty());
    }

    #[test]
    fn blocks_of_replaced_tables_are_found_no_more_and_keep_their_room() {
        let mut cache = BlockCache::new(1_000_000, 100, 1000);
        (0..1000).for_each(|block| cache.take(block, 0));
        let mut draw = Draw::new(1);
        cache.replaced(0.0, &mut draw);
        assert_eq!(cache.held.len(), 1000);
        cache.replaced(0.25, &mut draw);
        assert!((700..800).contains(&cache.held.len()), "{}", cache.held.len());
        cache.replaced(1.0, &mut draw);
        assert_eq!((cache.held.len(), cache.once.len()), (0, 1000));
        (0..100).for_each(|block| cache.take(block, 0));
        assert_eq!((cache.held.len(), cache.once.len()), (100, 1000));
        assert!((0..100).all(|block| cache.finds(block)));
        (2000..4000).for_each(|block| cache.take(block, 0));
        assert!(cache.once.len() + cache.again.len() == 1000 && cache.held.len() == 1000);
    }
}
