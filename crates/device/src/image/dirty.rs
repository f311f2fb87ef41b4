//! The table of file pages written since the last sync: a hash table in shared memory.
//!
//! It outlives the process, because a killed process leaves its writes in the page cache, where
//! they are not durable. Marking a page takes no lock. A file has one range, from its first dirty
//! page to its last. Clean pages in between are copied again without harm.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::{Mapping, Shared};

/// The unit of the ranges.
pub const PAGE_BYTES: u64 = 4096;

/// Maximum number of files in the table, including deleted files that are not yet removed from it.
const SLOTS: usize = 16_384;
pub const TABLE_BYTES: usize = SLOTS * size_of::<Slot>();

/// Values of `Slot::inode`: a slot that was never used, and a slot of a removed file.
const EMPTY: u64 = 0;
const GONE: u64 = u64::MAX;

#[repr(C)]
pub struct Slot {
    inode: AtomicU64,
    /// From the top: 24 bits of first dirty page, 24 bits of the page after the last, and 16 bits
    /// that count the marks since the file was clean. 0 for a clean file.
    range: AtomicU64,
}

impl Slot {
    /// Marks the bytes `[begin, end)` as written, or about to be.
    pub fn mark(&self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let first = (begin / PAGE_BYTES).min(PAGE_MAX - 1);
        let last = end.div_ceil(PAGE_BYTES).min(PAGE_MAX);
        // Cannot fail, because the closure always returns a value.
        let _ = self.range.fetch_update(Ordering::AcqRel, Ordering::Acquire, |range| {
            let (old_first, old_last, marks) = unpack(range);
            Some(match range {
                0 => pack(first, last, 1),
                _ => pack(old_first.min(first), old_last.max(last), marks + 1),
            })
        });
    }

    pub fn mark_all(&self) {
        self.mark(0, u64::MAX);
    }

    /// Returns the packed range, to be passed to [`cleaned`](Self::cleaned) once it is copied.
    pub fn range(&self) -> u64 {
        self.range.load(Ordering::Acquire)
    }

    /// Returns the byte range of a packed range.
    pub fn bytes(range: u64) -> (u64, u64) {
        let (first, last, _) = unpack(range);
        // The last page number that fits stands for all pages from there on.
        (first * PAGE_BYTES, if last == PAGE_MAX { u64::MAX } else { last * PAGE_BYTES })
    }

    /// Resets `range` to clean. Keeps all of it if any mark was set since `range` was read, inside
    /// of it or not. Callers must serialize their calls.
    pub fn cleaned(&self, range: u64) {
        let _ = self.range.compare_exchange(range, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The largest page number that a range can hold.
const PAGE_MAX: u64 = (1 << 24) - 1;

fn pack(first: u64, last: u64, marks: u64) -> u64 {
    first << 40 | last << 16 | marks & 0xffff
}

fn unpack(range: u64) -> (u64, u64, u64) {
    (range >> 40, range >> 16 & PAGE_MAX, range & 0xffff)
}

// SAFETY: each slot is two atomics.
unsafe impl Shared for [Slot; SLOTS] {}

/// A mapping of the table.
pub struct DirtyTable(Mapping<[Slot; SLOTS]>);

impl DirtyTable {
    pub fn map(file: &File) -> io::Result<DirtyTable> {
        Mapping::of(file).map(DirtyTable)
    }

    /// Returns the slots in the order in which a file is searched for.
    fn probe(&self, inode: u64) -> impl Iterator<Item = &Slot> {
        let start = (inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SLOTS;
        self.0[start..].iter().chain(&self.0[..start])
    }

    pub fn find(&self, inode: u64) -> Option<&Slot> {
        for slot in self.probe(inode) {
            match slot.inode.load(Ordering::Acquire) {
                EMPTY => return None,
                found if found == inode => return Some(slot),
                _ => {}
            }
        }
        None
    }

    /// Returns the file's slot, and adds a clean one if it has none. Returns `None` if the table is
    /// full. Callers must serialize their calls.
    pub fn insert(&self, inode: u64) -> Option<&Slot> {
        if let Some(slot) = self.find(inode) {
            return Some(slot);
        }
        let slot = self.probe(inode).find(|slot| {
            let found = slot.inode.load(Ordering::Acquire);
            found == EMPTY || found == GONE
        })?;
        slot.range.store(0, Ordering::Release);
        slot.inode.store(inode, Ordering::Release);
        Some(slot)
    }

    /// Removes a file that has no name left. Callers must serialize their calls.
    pub fn remove(&self, inode: u64) {
        if let Some(slot) = self.find(inode) {
            slot.inode.store(GONE, Ordering::Release);
        }
    }
}
