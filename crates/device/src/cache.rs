//! The cache of a hybrid device: which blocks of which files it holds, and what hits, misses and write-back cost.
//!
//! A write goes into the cache, at its speed, and is durable there: power loss does not empty it. The device
//! behind it gets it later, by *destaging*, which begins when half of the cache is dirty and then goes on, in the
//! background, at that device's write bandwidth. At three quarters a write waits until as much as it adds has
//! been destaged. A read takes what is in the cache from there and the rest from the device behind, and leaves it
//! in the cache, unless all that it could replace is dirty. What is dirty in a file that is deleted is never
//! destaged, which is what an LSM tree gains most from: many a small file lives for one compaction.
//!
//! The table is set-associative. An entry is one word, so it is changed by one compare-and-swap; replacement is
//! *not recently used* within a set, and a hand goes round the table to find what to destage, passing over once
//! what was written again since it came by.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::block::TABLE_ENTRIES;
use crate::model::reserve;
use crate::ControlBlock;

/// Entries of a set: two cache lines. With half of the table dirty hardly a set is dirty throughout.
const WAYS: usize = 16;
/// The unit of a page cache, and what RocksDB reads. It doubles until the table has room for the whole cache.
const BLOCK_BYTES_MIN: u64 = 4096;

pub const BYTES_MIN: u64 = WAYS as u64 * BLOCK_BYTES_MIN;
pub const BYTES_MAX: u64 = 1_000_000_000_000_000;

/// Of the cache, in hundredths: where destaging begins, and where writes wait for it.
const DESTAGE_FROM: u64 = 50;
const DIRTY_MAX: u64 = 75;
const _: () = assert!(DESTAGE_FROM < DIRTY_MAX && DIRTY_MAX < 100);

/// More blocks of one file are not looked for when it is deleted.
const FORGET_MAX: u64 = TABLE_ENTRIES as u64;

/// An entry: the upper bits of its block's hash, and its state. 0 is a free entry.
const HELD: u64 = 1;
const DIRTY: u64 = 2;
/// Read or written since its set last had to choose.
const USED: u64 = 4;
/// Written again while dirty, since the hand last came by.
const REWRITTEN: u64 = 8;
const STATE: u64 = DIRTY | USED | REWRITTEN;

/// How much of a cache of `bytes` may be dirty.
pub fn dirty_max(bytes: u64) -> u64 {
    let Geometry { block_bytes, entries } = Geometry::of(bytes);
    entries as u64 * DIRTY_MAX / 100 * block_bytes
}

pub struct Geometry {
    pub block_bytes: u64,
    pub entries: usize,
}

impl Geometry {
    pub fn of(bytes: u64) -> Geometry {
        let bytes = bytes.clamp(BYTES_MIN, BYTES_MAX);
        let mut block_bytes = BLOCK_BYTES_MIN;
        while bytes / block_bytes > TABLE_ENTRIES as u64 {
            block_bytes *= 2;
        }
        let sets = (bytes / block_bytes) as usize / WAYS;
        Geometry { block_bytes, entries: sets * WAYS }
    }
}

/// Some bytes of a file. The file is any number that is its own while it exists, as an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub file: u64,
    pub begin: u64,
    pub bytes: u64,
}

/// What is done with a block's entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    Read,
    Write,
}

/// What that came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Held,
    /// It was not there and is now.
    Taken,
    /// As `Taken`, in place of a dirty block, which has to be destaged first.
    TakenFromDirty,
    /// It was not there, and all it could replace is dirty.
    NoRoom,
}

/// As [`ControlBlock`], it reads no clock and never waits.
pub struct Cache<'a> {
    block: &'a ControlBlock,
    entries: &'a [AtomicU64],
    block_bytes: u64,
}

impl<'a> Cache<'a> {
    pub(crate) fn of(block: &'a ControlBlock, table: &'a [AtomicU64; TABLE_ENTRIES]) -> Option<Cache<'a>> {
        let entries =
            usize::try_from(block.cache_entries.load(Relaxed)).ok().filter(|&entries| entries >= WAYS)?;
        let block_bytes = block.cache_block_bytes.load(Relaxed).max(BLOCK_BYTES_MIN);
        Some(Cache { block, entries: table.get(..entries)?, block_bytes })
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.block.dirty_blocks.load(Relaxed).saturating_mul(self.block_bytes)
    }

    /// When `extent` is written into the cache, which may have to wait for room.
    pub fn write(&self, start: u64, extent: Extent) -> u64 {
        let block = self.block;
        block.writes.fetch_add(1, Relaxed);
        block.bytes_written.fetch_add(extent.bytes, Relaxed);
        self.destage_until(start);
        let mut displaced = 0;
        for (number, _) in self.blocks(extent) {
            displaced += u64::from(self.touch(extent.file, number, Touch::Write) == Found::TakenFromDirty);
        }
        let excess = block.dirty_blocks.load(Relaxed).saturating_sub(self.share(DIRTY_MAX));
        let room_at = match displaced + self.clean(excess) {
            0 => start,
            blocks => reserve(&block.destage_horizon_ns, start, self.destaged(start, blocks)),
        };
        let cost = block.transfer_ns(start, extent.bytes, &block.cache_write_bytes_per_s);
        reserve(&block.write_horizon_ns, start.max(room_at), cost)
    }

    /// When `extent` is read. What is in the cache and what is not are read at once; a read that continues the
    /// one before it on the same descriptor was prefetched and pays no latency.
    pub fn read(&self, start: u64, extent: Extent, prefetched: bool) -> u64 {
        let block = self.block;
        block.reads.fetch_add(1, Relaxed);
        block.bytes_read.fetch_add(extent.bytes, Relaxed);
        self.destage_until(start);
        let (mut hit, mut missed, mut promoted) = (0, 0, 0);
        for (number, bytes) in self.blocks(extent) {
            match self.touch(extent.file, number, Touch::Read) {
                Found::Held => hit += bytes,
                Found::NoRoom => missed += bytes,
                Found::Taken | Found::TakenFromDirty => {
                    missed += bytes;
                    promoted += bytes;
                }
            }
        }
        block.bytes_hit.fetch_add(hit, Relaxed);
        block.bytes_missed.fetch_add(missed, Relaxed);
        if promoted > 0 {
            let cost = block.transfer_ns(start, promoted, &block.cache_write_bytes_per_s);
            reserve(&block.write_horizon_ns, start, cost);
        }
        let part = |bytes, horizon, bytes_per_s, latency| match bytes {
            0 => start,
            bytes => {
                let latency = if prefetched { 0 } else { block.latency_ns(start, latency) };
                let cost = block.transfer_ns(start, bytes, bytes_per_s);
                reserve(horizon, start, cost).saturating_add(latency)
            }
        };
        let fast = part(hit, &block.read_horizon_ns, &block.cache_read_bytes_per_s, &block.cache_read_ns);
        let slow = part(missed, &block.miss_horizon_ns, &block.read_bytes_per_s, &block.read_ns);
        fast.max(slow)
    }

    /// Those bytes are no more: a file was deleted or cut. Blocks that they fill in part stay.
    pub fn forget(&self, extent: Extent) {
        let first = extent.begin.div_ceil(self.block_bytes);
        let last = extent.begin.saturating_add(extent.bytes).div_ceil(self.block_bytes);
        for number in first..last.min(first.saturating_add(FORGET_MAX)) {
            let (set, name) = self.place(extent.file, number);
            for entry in set {
                let seen = entry.load(Relaxed);
                let is_it = seen & !STATE == name;
                if is_it && entry.compare_exchange(seen, 0, Relaxed, Relaxed).is_ok() && seen & DIRTY != 0 {
                    self.no_longer_dirty();
                    self.block.bytes_dropped.fetch_add(self.block_bytes, Relaxed);
                }
            }
        }
    }

    /// The numbers of the blocks that an extent touches, and how many of its bytes are in each.
    fn blocks(&self, extent: Extent) -> impl Iterator<Item = (u64, u64)> {
        let unit = self.block_bytes;
        let end = extent.begin.saturating_add(extent.bytes);
        let blocks = (extent.begin / unit..end.div_ceil(unit)).map(move |number| {
            let (begin_here, end_here) = (number * unit, number.saturating_add(1).saturating_mul(unit));
            (number, end.min(end_here) - extent.begin.max(begin_here))
        });
        blocks.filter(|&(_, bytes)| bytes > 0)
    }

    fn share(&self, hundredths: u64) -> u64 {
        self.entries.len() as u64 * hundredths / 100
    }

    /// A block's set, and its entry there without its state.
    fn place(&self, file: u64, number: u64) -> (&'a [AtomicU64], u64) {
        let hash = mixed(mixed(file).wrapping_add(number));
        let sets = self.entries.len() / WAYS;
        let set = ((u128::from(hash) * sets as u128) >> 64) as usize;
        (&self.entries[set * WAYS..(set + 1) * WAYS], mixed(hash) & !STATE | HELD)
    }

    fn touch(&self, file: u64, number: u64, touch: Touch) -> Found {
        let (set, name) = self.place(file, number);
        loop {
            let held =
                set.iter().map(|entry| (entry, entry.load(Relaxed))).find(|(_, seen)| seen & !STATE == name);
            let (entry, seen) = match held {
                Some(held) => held,
                None => victim(set),
            };
            let is_held = seen & !STATE == name;
            let was_dirty = seen & DIRTY != 0;
            let (now, found) = match (touch, is_held) {
                (Touch::Read, true) if seen & USED != 0 => return Found::Held,
                (Touch::Read, true) => (seen | USED, Found::Held),
                (Touch::Read, false) if was_dirty => return Found::NoRoom,
                (Touch::Read, false) => (name | USED, Found::Taken),
                (Touch::Write, true) if was_dirty => (seen | USED | REWRITTEN, Found::Held),
                (Touch::Write, true) => (seen | USED | DIRTY, Found::Held),
                (Touch::Write, false) if was_dirty => (name | USED | DIRTY, Found::TakenFromDirty),
                (Touch::Write, false) => (name | USED | DIRTY, Found::Taken),
            };
            // Counted before it can be seen, so that whoever cleans it finds it counted.
            let becomes_dirty = touch == Touch::Write && !was_dirty;
            if becomes_dirty {
                self.block.dirty_blocks.fetch_add(1, Relaxed);
            }
            if entry.compare_exchange(seen, now, Relaxed, Relaxed).is_ok() {
                return found;
            }
            if becomes_dirty {
                self.no_longer_dirty();
            }
        }
    }

    /// Lets the device behind the cache have worked until `now`. Where nothing is to be destaged it idles, and
    /// no time is saved up.
    fn destage_until(&self, now: u64) {
        let horizon = &self.block.destage_horizon_ns;
        loop {
            let excess = self.block.dirty_blocks.load(Relaxed).saturating_sub(self.share(DESTAGE_FROM));
            let begun = horizon.load(Relaxed);
            let idle = now.saturating_sub(begun);
            if excess == 0 {
                horizon.fetch_max(now, Relaxed);
                return;
            }
            let blocks = (idle / self.destage_ns(now, 1).max(1)).min(excess);
            if blocks == 0 {
                return;
            }
            let ended = begun.saturating_add(self.destage_ns(now, blocks));
            if horizon.compare_exchange(begun, ended, Relaxed, Relaxed).is_ok() {
                let cleaned = self.clean(blocks);
                self.destaged(now, cleaned);
                if cleaned < blocks {
                    return;
                }
            }
        }
    }

    /// Counts blocks that go to the device behind the cache; how long it needs for them.
    fn destaged(&self, at: u64, blocks: u64) -> u64 {
        self.block.bytes_destaged.fetch_add(blocks.saturating_mul(self.block_bytes), Relaxed);
        self.destage_ns(at, blocks)
    }

    fn destage_ns(&self, at: u64, blocks: u64) -> u64 {
        self.block.transfer_ns(at, blocks.saturating_mul(self.block_bytes), &self.block.write_bytes_per_s)
    }

    /// Makes so many dirty blocks clean, and fewer only where there are no more; how many.
    fn clean(&self, wanted: u64) -> u64 {
        let mut cleaned = 0;
        // Twice around: the first time it may pass over all of them.
        for _ in 0..2 * self.entries.len() {
            if cleaned == wanted {
                break;
            }
            // All sets' first entries, then all second ones: no set stays dirty while others are cleaned.
            let at = self.block.destage_hand.fetch_add(1, Relaxed) as usize % self.entries.len();
            let sets = self.entries.len() / WAYS;
            let entry = &self.entries[at % sets * WAYS + at / sets];
            let seen = entry.load(Relaxed);
            if seen & DIRTY == 0 {
                continue;
            }
            let rewritten = seen & REWRITTEN != 0;
            let now = seen & !if rewritten { REWRITTEN } else { DIRTY };
            if entry.compare_exchange(seen, now, Relaxed, Relaxed).is_ok() && !rewritten {
                self.no_longer_dirty();
                cleaned += 1;
            }
        }
        cleaned
    }

    /// Saturating: another size may just have emptied the cache.
    fn no_longer_dirty(&self) {
        let _ = self.block.dirty_blocks.fetch_update(Relaxed, Relaxed, |dirty| Some(dirty.saturating_sub(1)));
    }
}

/// What a set gives up for a block that it does not hold: a free entry, else a clean one that was not used, else
/// a clean one, else a dirty one.
fn victim(set: &[AtomicU64]) -> (&AtomicU64, u64) {
    let of_least = || {
        let rank = |seen: u64| match seen {
            0 => 0,
            seen => 1 + (seen & DIRTY) * 8 + (seen & REWRITTEN) / 4 + (seen & USED) / 4,
        };
        let all = set.iter().map(|entry| (entry, entry.load(Relaxed)));
        all.min_by_key(|&(_, seen)| rank(seen)).expect("a set has entries")
    };
    let (entry, seen) = of_least();
    if seen & USED == 0 {
        return (entry, seen);
    }
    set.iter().for_each(|entry| _ = entry.fetch_and(!USED, Relaxed));
    of_least()
}

/// SplitMix64's finalizer.
pub(crate) fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests;
