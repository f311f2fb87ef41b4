//! The allocator of the whole process: jemalloc takes the place of `malloc`, so RocksDB's C++ uses it as well. With two
//! allocators each would keep free memory that the other one needs, and a memory budget would have to count both.
//!
//! A program gets it by linking this crate. `MALLOC_CONF` in the environment overrides the options below.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc's options, under the name by which it looks for them. There are four arenas instead of four for each CPU:
/// memory that is free in one arena helps no thread of another, and a small budget has to hold on a large machine, too.
///
/// The pointer is all that jemalloc reads, and a reference to a string that ends with a 0 is one.
#[export_name = "malloc_conf"]
pub static OPTIONS: Option<&'static u8> = Some(&b"narenas:4,muzzy_decay_ms:0\0"[0]);

/// What the allocator says of itself, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Asked for and not given back.
    pub allocated: u64,
    /// Pages in which something of that is.
    pub active: u64,
    /// Pages that the kernel has given, those that are on their way back among them.
    pub resident: u64,
}

/// Gives unused pages back to the kernel after so many milliseconds; without a call jemalloc waits ten seconds. A short time
/// saves memory and costs a page fault for each page that is used again. Call it before other threads start: an arena
/// takes the value when it is made.
pub fn keep_free_pages(milliseconds: isize) -> Result<(), String> {
    for name in [&b"arenas.dirty_decay_ms\0"[..], b"arena.0.dirty_decay_ms\0"] {
        // SAFETY: both are of C's `ssize_t`, and the names end with a 0.
        unsafe { tikv_jemalloc_ctl::raw::write(name, milliseconds) }.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Returns all free pages of all arenas to the kernel at once.
pub fn return_free_pages() {
    // 4096 stands for all arenas (`MALLCTL_ARENAS_ALL`).
    let name = b"arena.4096.purge\0".as_ptr().cast();
    // SAFETY: the name ends with a 0, and the call takes and returns no value.
    let code = unsafe {
        tikv_jemalloc_sys::mallctl(name, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), 0)
    };
    debug_assert_eq!(code, 0, "jemalloc knows the call");
}

/// Reads the statistics as of now; `None` where jemalloc keeps none.
pub fn usage() -> Option<Usage> {
    use tikv_jemalloc_ctl::{epoch, stats};
    // It tells what was true when the epoch last advanced.
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
        keep_free_pages(1000).unwrap();
        // SAFETY: it is of C's `ssize_t`.
        let decay: isize = unsafe { tikv_jemalloc_ctl::raw::read(b"arenas.dirty_decay_ms\0") }.unwrap();
        assert_eq!(decay, 1000);
    }
}
