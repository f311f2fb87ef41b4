//! A filter of the rows on flash, in RAM: it shows that a row does not exist.
//!
//! The filter *learns* rows and never forgets one, so a row that it does not know is not on flash.
//! Rows come to flash in two ways. Those of a flushed memtable are learnt before the memtable is
//! dropped. Those that were on flash before, or that replaced others there, are learnt by passes
//! over flash, one for each part of the slots. The filter gives no answer for a part until a pass
//! over it is complete, and again none after rows of the part were replaced.
//!
//! Only rows of keys and of their elements are learnt, because others are not looked up one by one.
//!
//! The rows are in layers of a blocked Bloom filter: each sets eight bits in one cache line. The
//! first layer is made for the expected number of rows, or has a sixteenth of the filter's maximum,
//! and each further one doubles the filter. So an absent row costs at most five cache lines, unless
//! the maximum has been raised since.

use types::{Slot, SlotRange};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::failpoints::Failpoint;
use crate::rows;

/// Number of slots of a part.
const PART_SLOTS: Slot = 64;
const PARTS: usize = types::SLOT_COUNT as usize / PART_SLOTS as usize;

/// Bits of the filter for each row. About one in ten thousand absent rows is then taken for one
/// that may exist.
const ROW_BITS: u64 = 24;
/// Bits for each row in a layer that is filled beyond that because no memory is left. One in forty
/// absent rows is then taken for one that may exist, and more if rows still come.
const ROW_BITS_MIN: u64 = 8;
/// Minimum part of the filter's maximum size that a layer takes.
const LAYER_PART_MIN: u64 = 16;

/// Eight words of a cache line. A row sets one bit in each.
type Block = [u64; 8];
const BLOCK_BYTES: u64 = 64;

#[derive(Debug)]
pub(super) struct RowFilter {
    hash_seed: u64,
    /// The layers, oldest first. Rows are added to the last one.
    layers: Vec<Layer>,
    /// Bytes of all layers.
    bytes: u64,
    bytes_max: u64,
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// True if every row of the part that is on flash is in the filter or in a memtable.
    is_learnt: bool,
    /// Number of times that rows of the part were replaced.
    version: u64,
}

#[derive(Debug)]
struct Layer {
    blocks: Vec<Block>,
    rows: u64,
    rows_max: u64,
}

/// A part of the slots whose rows on flash are not all known to the filter.
#[derive(Clone, Copy, Debug)]
pub struct Unlearnt {
    slots: SlotRange,
    version: u64,
    hash_seed: u64,
}

/// The hash of a row that the filter may learn.
#[derive(Clone, Copy, Debug)]
pub struct RowHash(u64);

/// The size of a filter and what it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowFilterUse {
    pub bytes: u64,
    /// Number of rows that were learnt, deleted ones included.
    pub rows: u64,
    /// Number of rows beyond which the filter errs more often than it should.
    pub rows_max: u64,
    /// Number of slots for which it gives answers.
    pub slots: u64,
}

impl Unlearnt {
    pub fn slots(&self) -> SlotRange {
        self.slots
    }

    /// Returns the row's hash, or `None` if the filter does not learn such rows.
    pub fn hash(&self, row: &[u8]) -> Option<RowHash> {
        hash(row, self.hash_seed)
    }
}

fn hash(row: &[u8], hash_seed: u64) -> Option<RowHash> {
    rows::slot_of_key_row(row).map(|_| RowHash(xxh3_64_with_seed(row, hash_seed)))
}

impl RowFilter {
    /// Creates a filter of at most `bytes_max` for about `rows` rows. With 0 bytes it is off.
    pub fn new(bytes_max: u64, rows: u64, hash_seed: u64) -> RowFilter {
        let parts = vec![Part::default(); PARTS];
        let mut filter = RowFilter { hash_seed, layers: Vec::new(), bytes: 0, bytes_max, parts };
        filter.add_layer(rows);
        filter
    }

    /// Forgets every row, for about `rows` rows to be learnt.
    pub fn renew(&mut self, rows: u64) {
        (self.layers, self.bytes) = (Vec::new(), 0);
        self.add_layer(rows);
        for part in &mut self.parts {
            *part = Part { is_learnt: false, version: part.version + 1 };
        }
    }

    /// Adds a layer for `rows` rows, or for as many as memory is left for.
    fn add_layer(&mut self, rows: u64) {
        let left = self.bytes_max.saturating_sub(self.bytes) / BLOCK_BYTES * BLOCK_BYTES;
        let rows_max = rows.max(self.bytes_max / LAYER_PART_MIN * 8 / ROW_BITS).min(left * 8 / ROW_BITS);
        let blocks = (rows_max * ROW_BITS).div_ceil(8 * BLOCK_BYTES).min(left / BLOCK_BYTES);
        if blocks > 0 {
            self.bytes += blocks * BLOCK_BYTES;
            let blocks = vec![[0; 8]; usize::try_from(blocks).unwrap_or(usize::MAX)];
            self.layers.push(Layer { blocks, rows: 0, rows_max });
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the maximum, and returns true if it was lower before.
    pub fn set_bytes_max(&mut self, bytes_max: u64) -> bool {
        std::mem::replace(&mut self.bytes_max, bytes_max) < bytes_max
    }

    pub fn is_too_large(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Returns true if the row is certainly not on flash, unless a memtable determines it.
    pub fn excludes(&self, row: &[u8]) -> bool {
        let Some(slot) = rows::slot_of_key_row(row) else { return false };
        if !self.parts.get(usize::from(slot / PART_SLOTS)).is_some_and(|part| part.is_learnt) {
            return false;
        }
        let hash = xxh3_64_with_seed(row, self.hash_seed);
        !self.layers.iter().any(|layer| layer.may_have(hash))
    }

    /// Reads what [`learn_row`](Self::learn_row) reads for rows with these hashes, so that the
    /// processor's cache has it.
    pub fn touch(&self, hashes: &[u64]) {
        let first = |layer: &Layer, hash: &u64| layer.blocks[layer.block(*hash)][0];
        let words = hashes.iter().flat_map(|hash| self.layers.iter().map(move |layer| first(layer, hash)));
        std::hint::black_box(words.fold(0, |sum, word| sum ^ word));
    }

    /// Learns a row whose hash is not known yet.
    pub fn learn_row(&mut self, row: &[u8]) {
        if let Some(hash) = hash(row, self.hash_seed) {
            self.learn(hash);
        }
    }

    pub fn learn(&mut self, RowHash(hash): RowHash) {
        if self.layers.iter().any(|layer| layer.may_have(hash)) {
            return;
        }
        if self.layers.last().is_some_and(|layer| layer.rows >= layer.rows_max) {
            self.grow();
        }
        if let Some(layer) = self.layers.last_mut() {
            layer.add(hash);
        }
    }

    /// Doubles the filter, unless little memory is left: a small layer would only make each look-up
    /// longer.
    fn grow(&mut self) {
        let rows_max = self.layers.iter().map(|layer| layer.rows_max).sum();
        let left = self.bytes_max.saturating_sub(self.bytes);
        if left * 8 / ROW_BITS >= rows_max / 4 {
            self.add_layer(rows_max);
        }
    }

    /// Returns a part that must be learnt. A pass over flash that begins later, and learns all its
    /// rows, completes it.
    pub fn unlearnt(&self) -> Option<Unlearnt> {
        if self.layers.is_empty() {
            return None;
        }
        let number = self.parts.iter().position(|part| !part.is_learnt)?;
        let first = number as Slot * PART_SLOTS;
        let slots = SlotRange { first, last: first + PART_SLOTS - 1 };
        Some(Unlearnt { slots, version: self.parts[number].version, hash_seed: self.hash_seed })
    }

    /// Completes a part, unless rows of it were replaced since.
    pub fn complete(&mut self, done: &Unlearnt) {
        let part = &mut self.parts[usize::from(done.slots.first / PART_SLOTS)];
        part.is_learnt |= part.version == done.version || Failpoint::StalePass.is_on();
    }

    /// Gives no more answers for the parts with rows in `from..to` until they are learnt again.
    pub fn unlearn(&mut self, from: &[u8], to: &[u8]) {
        for (number, part) in self.parts.iter_mut().enumerate() {
            let first = number as Slot * PART_SLOTS;
            let (start, end) = rows::slots_range(SlotRange { first, last: first + PART_SLOTS - 1 });
            if from < &end[..] && &start[..] < to {
                *part = Part { is_learnt: false, version: part.version + 1 };
            }
        }
    }

    /// Returns true if the filter has far more rows than it is made for, because no memory was left
    /// to grow.
    pub fn is_crowded(&self) -> bool {
        let rows: u64 = self.layers.iter().map(|layer| layer.rows).sum();
        let rows_max: u64 = self.layers.iter().map(|layer| layer.rows_max).sum();
        rows > rows_max / ROW_BITS_MIN * ROW_BITS
    }

    pub fn used(&self) -> RowFilterUse {
        let learnt = self.parts.iter().filter(|part| part.is_learnt).count() as u64;
        RowFilterUse {
            bytes: self.bytes,
            rows: self.layers.iter().map(|layer| layer.rows).sum(),
            rows_max: self.layers.iter().map(|layer| layer.rows_max).sum(),
            slots: learnt * u64::from(PART_SLOTS),
        }
    }
}

impl Layer {
    fn add(&mut self, hash: u64) {
        let block = self.block(hash);
        for (word, bit) in self.blocks[block].iter_mut().zip(bits(hash)) {
            *word |= bit;
        }
        self.rows += 1;
    }

    fn may_have(&self, hash: u64) -> bool {
        let (block, bits) = (&self.blocks[self.block(hash)], bits(hash));
        // Without a branch for each word: they are in one cache line.
        (0..8).fold(0, |missing, word| missing | bits[word] & !block[word]) == 0
    }

    fn block(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.blocks.len() as u128) >> 64) as usize
    }
}

/// Returns a row's bit in each word of its block.
fn bits(hash: u64) -> Block {
    // The block is chosen by the hash's upper bits, so the bits are taken from a product with an
    // odd number, whose upper bits depend on all of the hash's.
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    std::array::from_fn(|word| 1 << (mixed >> (6 * word) & 63))
}
