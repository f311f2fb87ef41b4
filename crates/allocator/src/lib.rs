//! The allocator of the whole process. jemalloc replaces `malloc`, so RocksDB's C++ code uses it
//! too. With two allocators, each would keep free memory that the other needs, and a memory budget
//! would have to count both.
//!
//! A program uses it by linking this crate with the feature `global`. `MALLOC_CONF` in the
//! environment overrides the options below.

#[cfg(feature = "global")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc's options, under the symbol that it looks up. There are four arenas instead of four per
/// CPU: free memory of one arena does not serve threads of another, and a small memory budget must
/// also hold on a large machine.
///
/// jemalloc reads only a pointer to a string that ends with a 0, and a reference to its first byte
/// is such a pointer.
#[export_name = "malloc_conf"]
pub static OPTIONS: Option<&'static u8> = Some(&b"narenas:4,muzzy_decay_ms:0\0"[0]);

/// The allocator's statistics, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that are allocated and not freed.
    pub allocated: u64,
    /// Bytes of pages that contain allocated memory.
    pub active: u64,
    /// Bytes of pages that the kernel has provided, including free pages that are not yet returned.
    pub resident: u64,
}

/// Sets the time in milliseconds after which unused pages are returned to the kernel. jemalloc's
/// default is ten seconds. A short time saves memory but costs a page fault for each page that is
/// used again. Must be called before other threads start, because an arena takes the value when it
/// is created.
pub fn keep_free_pages(milliseconds: isize) -> Result<(), String> {
    for name in [&b"arenas.dirty_decay_ms\0"[..], b"arena.0.dirty_decay_ms\0"] {
        // SAFETY: both values are of C's `ssize_t`, and the names end with a 0.
        unsafe { tikv_jemalloc_ctl::raw::write(name, milliseconds) }.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Moves the calling thread to the arena of all threads that allocate rows of the RAM tier. Rows
/// live long and are freed one by one. If several arenas held them, each would keep the gaps of its
/// own freed rows, while new rows of another thread took new pages.
pub fn share_arena_of_rows() {
    const ARENA: u32 = 0;
    // SAFETY: the value is of C's `unsigned`, and the name ends with a 0.
    let moved = unsafe { tikv_jemalloc_ctl::raw::write(b"thread.arena\0", ARENA) };
    debug_assert_eq!(moved, Ok(()), "the first arena always exists");
}

/// Returns all free pages of all arenas to the kernel at once.
pub fn return_free_pages() {
    // 4096 stands for all arenas (`MALLCTL_ARENAS_ALL`).
    let name = c"arena.4096.purge".as_ptr();
    // SAFETY: the name is a C string, and the call takes and returns no value.
    let code = unsafe {
        tikv_jemalloc_sys::mallctl(name, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), 0)
    };
    debug_assert_eq!(code, 0, "jemalloc knows the call");
}

/// Reads the current statistics. Returns `None` if jemalloc keeps none.
pub fn usage() -> Option<Usage> {
    use tikv_jemalloc_ctl::{epoch, stats};
    // jemalloc reports the values as of the last advance of the epoch.
    epoch::advance().ok()?;
    Some(Usage {
        allocated: stats::allocated::read().ok()? as u64,
        active: stats::active::read().ok()? as u64,
        resident: stats::resident::read().ok()? as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted_and_free_pages_are_kept_as_long_as_told() {
        let before = usage().unwrap();
        let memory = vec![1u8; 64 << 20];
        let with = usage().unwrap();
        assert!(with.allocated >= before.allocated + memory.len() as u64, "{before:?}, {with:?}");
        assert!(with.allocated <= with.active && with.active <= with.resident);
        drop(memory);
        let freed = usage().unwrap();
        return_free_pages();
        let returned = usage().unwrap();
        assert!(returned.resident + (60 << 20) <= with.resident, "{with:?}, {freed:?}, {returned:?}");
        for _ in 0..5 {
            let shared = std::thread::spawn(|| {
                share_arena_of_rows();
                // SAFETY: the value is of C's `unsigned`.
                unsafe { tikv_jemalloc_ctl::raw::read::<u32>(b"thread.arena\0") }.unwrap()
            });
            assert_eq!(shared.join().unwrap(), 0);
        }
        keep_free_pages(1000).unwrap();
        // SAFETY: the value is of C's `ssize_t`.
        let decay: isize = unsafe { tikv_jemalloc_ctl::raw::read(b"arenas.dirty_decay_ms\0") }.unwrap();
        assert_eq!(decay, 1000);
    }
}
