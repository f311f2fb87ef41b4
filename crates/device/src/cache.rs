//! The cache of a hybrid device: the blocks it holds, and the cost of hits, misses and write-back.
//!
//! A write goes into the cache at the cache's speed, and is durable there, because power loss does
//! not empty the cache. Later its blocks are *destaged* to the device behind the cache. Destaging
//! begins when half of the cache is dirty, and proceeds in the background at that device's write
//! bandwidth. Above three quarters, a write waits until as much as it adds has been destaged.
//!
//! A read takes cached blocks from the cache and the others from the device behind it. It leaves
//! the latter in the cache, unless every block it could replace is dirty. Dirty blocks of a deleted
//! file are never destaged. An LSM tree gains most from that, because many small files exist only
//! until the next compaction.
//!
//! The table is set-associative. An entry is one word and changes by one compare-and-swap.
//! Replacement within a set is *not recently used*. A hand that circles the table finds the blocks
//! to destage, and skips a block once if it was written again since the hand last passed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use types::device_time::{taken, CACHE_BLOCK_BYTES, DESTAGE_FROM, DIRTY_MAX};
use types::Draw;

use crate::block::TABLE_ENTRIES;
use crate::lane::reserve;
use crate::ControlBlock;

/// Number of entries of a set, which fill two cache lines. With half of the table dirty, hardly any
/// set is all dirty.
const WAYS: usize = 16;

pub const BYTES_MIN: u64 = WAYS as u64 * CACHE_BLOCK_BYTES;
pub const BYTES_MAX: u64 = 1_000_000_000_000_000;

/// Maximum number of blocks of one file that are searched for when it is deleted.
const FORGET_MAX: u64 = TABLE_ENTRIES as u64;

/// Bits of an entry, which also holds the upper bits of its block's hash. 0 is a free entry.
const HELD: u64 = 1;
const DIRTY: u64 = 2;
/// Read or written since its set last had to choose a victim.
const USED: u64 = 4;
/// Written again while dirty, since the hand last passed.
const REWRITTEN: u64 = 8;
const STATE: u64 = DIRTY | USED | REWRITTEN;

/// Returns the maximum dirty bytes of a cache of `bytes`.
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
        // Blocks double until the table covers the whole cache.
        let mut block_bytes = CACHE_BLOCK_BYTES;
        while bytes / block_bytes > TABLE_ENTRIES as u64 {
            block_bytes *= 2;
        }
        let sets = (bytes / block_bytes) as usize / WAYS;
        Geometry { block_bytes, entries: sets * WAYS }
    }
}

/// A range of bytes of a file. `file` is any number that is unique while the file exists, such as
/// an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub file: u64,
    pub begin: u64,
    pub bytes: u64,
}

/// The kind of access to a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    Read,
    Write,
}

/// The result of an access to a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Held,
    /// The block was not cached and is now.
    Taken,
    /// As `Taken`, but in place of a dirty block, which must be destaged first.
    TakenFromDirty,
    /// The block is not cached, and every block it could replace is dirty.
    NoRoom,
}

/// A hybrid's cache. Like [`ControlBlock`], it reads no clock and never waits.
pub struct Cache<'a> {
    block: &'a ControlBlock,
    entries: &'a [AtomicU64],
    block_bytes: u64,
}

impl<'a> Cache<'a> {
    pub(crate) fn of(block: &'a ControlBlock, table: &'a [AtomicU64; TABLE_ENTRIES]) -> Option<Cache<'a>> {
        let entries =
            usize::try_from(block.cache_entries.load(Relaxed)).ok().filter(|&entries| entries >= WAYS)?;
        let block_bytes = block.cache_block_bytes.load(Relaxed).max(CACHE_BLOCK_BYTES);
        Some(Cache { block, entries: table.get(..entries)?, block_bytes })
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.block.dirty_blocks.load(Relaxed).saturating_mul(self.block_bytes)
    }

    /// Returns the time at which `extent` is written into the cache, including a wait for room.
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
        block.lanes[0].write(start.max(room_at), cost, block.sharing())
    }

    /// Returns the time at which `extent` is read. The cached and the missing part are read in
    /// parallel. A read that continues the preceding one on the same descriptor was prefetched and
    /// pays no latency.
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
        let latency = |nanos| if prefetched { 0 } else { block.latency_ns(start, nanos) };
        let fast = match hit {
            0 => start,
            hit => {
                let latency = latency(&block.cache_read_ns);
                let cost = block.transfer_ns(start, hit, &block.cache_read_bytes_per_s);
                block.lanes[0].read(start, cost, block.sharing()).saturating_add(latency)
            }
        };
        let slow = match missed {
            0 => start,
            missed => {
                let latency = latency(&block.read_ns);
                let cost = block.transfer_ns(start, missed, &block.read_bytes_per_s);
                self.read_behind(start, cost).saturating_add(latency)
            }
        };
        if promoted > 0 {
            let cost = block.transfer_ns(start, promoted, &block.cache_write_bytes_per_s);
            block.lanes[0].write(start, cost, block.sharing());
        }
        fast.max(slow)
    }

    /// Reads from the device behind the cache. While that device has blocks to destage, the read
    /// and the destaging take turns, and each delays the other.
    fn read_behind(&self, start: u64, cost: u64) -> u64 {
        let block = self.block;
        if block.dirty_blocks.load(Relaxed) <= self.share(DESTAGE_FROM) {
            return reserve(&block.miss_horizon_ns, start, cost);
        }
        let taken = taken(cost, block.sharing());
        reserve(&block.destage_horizon_ns, start, taken);
        reserve(&block.miss_horizon_ns, start, cost.saturating_add(taken))
    }

    /// Drops the bytes of a deleted or truncated file. Blocks that they fill only in part stay.
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

    /// Returns the numbers of the blocks that an extent touches, each with the extent's bytes in
    /// it.
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

    /// Returns a block's set, and the value of its entry there without its state.
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
            // Counted before the entry becomes visible, so that a concurrent clean-up finds it
            // counted.
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

    /// Advances the work of the device behind the cache until `now`. If there is nothing to
    /// destage, the device idles, and idle time is not saved up.
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

    /// Counts blocks that go to the device behind the cache, and returns the time that it needs for
    /// them.
    fn destaged(&self, at: u64, blocks: u64) -> u64 {
        self.block.bytes_destaged.fetch_add(blocks.saturating_mul(self.block_bytes), Relaxed);
        self.destage_ns(at, blocks)
    }

    fn destage_ns(&self, at: u64, blocks: u64) -> u64 {
        self.block.transfer_ns(at, blocks.saturating_mul(self.block_bytes), &self.block.write_bytes_per_s)
    }

    /// Cleans up to `wanted` dirty blocks, fewer only if there are no more. Returns their number.
    fn clean(&self, wanted: u64) -> u64 {
        let mut cleaned = 0;
        // Twice around, because the first round may skip every block.
        for _ in 0..2 * self.entries.len() {
            if cleaned == wanted {
                break;
            }
            // First entries of all sets, then all second entries, so that no set stays dirty while
            // others are cleaned.
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

    /// Saturates, because a change of the cache's size may have just reset the count.
    fn no_longer_dirty(&self) {
        let _ = self.block.dirty_blocks.fetch_update(Relaxed, Relaxed, |dirty| Some(dirty.saturating_sub(1)));
    }
}

/// Returns the entry that a set gives up for a new block: a free one, else a clean one that was not
/// used, else a clean one, else a dirty one.
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

/// Returns the first number that a generator with the seed `value` gives.
pub(crate) fn mixed(value: u64) -> u64 {
    Draw::new(value).number()
}

#[cfg(test)]
mod tests;
