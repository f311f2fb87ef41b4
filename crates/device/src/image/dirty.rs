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
    /// First dirty page in the upper half, the page after the last in the lower; 0: clean.
    range: AtomicU64,
}

impl Slot {
    /// Notes that bytes `[begin, end)` were or are about to be written.
    pub fn mark(&self, begin: u64, end: u64) {
        let page = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
        let (first, last) = (page(begin / PAGE_BYTES), page(end.div_ceil(PAGE_BYTES)));
        if begin >= end || first >= last {
            return;
        }
        // Never fails: the closure always gives a value.
        let _ = self.range.fetch_update(Ordering::AcqRel, Ordering::Acquire, |range| {
            let (old_first, old_last) = ((range >> 32) as u32, range as u32);
            Some(match range {
                0 => pack(first, last),
                _ => pack(old_first.min(first), old_last.max(last)),
            })
        });
    }

    pub fn mark_all(&self) {
        self.range.store(pack(0, u32::MAX), Ordering::Release);
    }

    /// To be given to [`cleaned`](Self::cleaned) when it has been copied.
    pub fn range(&self) -> u64 {
        self.range.load(Ordering::Acquire)
    }

    /// The bytes of a range.
    pub fn bytes(range: u64) -> (u64, u64) {
        ((range >> 32) * PAGE_BYTES, u64::from(range as u32) * PAGE_BYTES)
    }

    /// Forgets `range`, unless more was marked since it was read: then all of it stays.
    pub fn cleaned(&self, range: u64) {
        let _ = self.range.compare_exchange(range, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}

fn pack(first: u32, last: u32) -> u64 {
    u64::from(first) << 32 | u64::from(last)
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
