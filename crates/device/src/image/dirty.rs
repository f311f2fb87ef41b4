//! Which pages of which files were written since the last sync: a hash table in shared memory.
//!
//! It outlives the process, for what a killed process wrote is in the page cache and is no more durable for
//! that. Marking takes no lock. A file has one range, from its first dirty page to its last: what lies
//! between and is clean is merely copied again.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The unit of the ranges.
pub const PAGE_BYTES: u64 = 4096;

/// Files that exist at one time, those that were deleted and are not forgotten yet included.
const SLOTS: usize = 16_384;
pub const TABLE_BYTES: usize = SLOTS * size_of::<Slot>();

/// In `Slot::inode`: never used, and used by a file that is gone.
const EMPTY: u64 = 0;
const GONE: u64 = u64::MAX;

#[repr(C)]
pub struct Slot {
    inode: AtomicU64,
    /// First dirty page, the page after the last, and the number of marks since the file was clean: 24, 24 and 16
    /// bits, from the top. 0: clean.
    range: AtomicU64,
}

impl Slot {
    /// Notes that bytes `[begin, end)` were or are about to be written.
    pub fn mark(&self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let first = (begin / PAGE_BYTES).min(PAGE_MAX - 1);
        let last = end.div_ceil(PAGE_BYTES).min(PAGE_MAX);
        // Never fails: the closure always gives a value.
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

    /// To be given to [`cleaned`](Self::cleaned) when it has been copied.
    pub fn range(&self) -> u64 {
        self.range.load(Ordering::Acquire)
    }

    /// The bytes of a range.
    pub fn bytes(range: u64) -> (u64, u64) {
        let (first, last, _) = unpack(range);
        // The last page that can be told stands for all behind it.
        (first * PAGE_BYTES, if last == PAGE_MAX { u64::MAX } else { last * PAGE_BYTES })
    }

    /// Forgets `range`, unless anything was marked since it was read, within the range or not: then all of it stays.
    /// One caller at a time.
    pub fn cleaned(&self, range: u64) {
        let _ = self.range.compare_exchange(range, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The largest number of a page that a range can hold.
const PAGE_MAX: u64 = (1 << 24) - 1;

fn pack(first: u64, last: u64, marks: u64) -> u64 {
    first << 40 | last << 16 | marks & 0xffff
}

fn unpack(range: u64) -> (u64, u64, u64) {
    (range >> 40, range >> 16 & PAGE_MAX, range & 0xffff)
}

/// A mapping of the table.
pub struct DirtyTable {
    slots: NonNull<[Slot; SLOTS]>,
}

// SAFETY: nothing but atomics, mapped until the value is dropped.
unsafe impl Send for DirtyTable {}
// SAFETY: as above.
unsafe impl Sync for DirtyTable {}

impl DirtyTable {
    pub fn map(file: &File) -> io::Result<DirtyTable> {
        if file.metadata()?.len() != TABLE_BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a table of dirty pages"));
        }
        // SAFETY: a fresh shared mapping of an open file of this length, page-aligned.
        let address = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), TABLE_BYTES, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let slots = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(DirtyTable { slots })
    }

    fn slots(&self) -> &[Slot; SLOTS] {
        // SAFETY: mapped until drop; any bytes are valid atomics.
        unsafe { self.slots.as_ref() }
    }

    /// Slots in the order in which a file's own is looked for.
    fn probe(&self, inode: u64) -> impl Iterator<Item = &Slot> {
        let start = (inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SLOTS;
        self.slots()[start..].iter().chain(&self.slots()[..start])
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

    /// The file's slot, a clean one if it had none. `None`: the table is full. One caller at a time.
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

    /// Forgets a file that has no name left. One caller at a time.
    pub fn remove(&self, inode: u64) {
        if let Some(slot) = self.find(inode) {
            slot.inode.store(GONE, Ordering::Release);
        }
    }
}

impl Drop for DirtyTable {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no reference outlives `self`.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), TABLE_BYTES) };
    }
}
