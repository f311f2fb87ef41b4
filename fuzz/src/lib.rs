//! The allocator of the fuzz targets, which ends a target that takes too much memory.
//!
//! Without a sanitizer libFuzzer sees only the memory of the whole process, once a second.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// An allocator with a limit on the bytes that are allocated at a time.
pub struct Bounded {
    bytes_max: usize,
    bytes: AtomicUsize,
}

impl Bounded {
    pub const fn new(bytes_max: usize) -> Bounded {
        Bounded { bytes_max, bytes: AtomicUsize::new(0) }
    }

    fn take(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > self.bytes_max {
            // The message and the panic's need memory as well.
            self.bytes.store(0, Relaxed);
            panic!("more than {} bytes are allocated at a time", self.bytes_max);
        }
    }

    fn give_back(&self, bytes: usize) {
        // Saturates, because the count began anew if a limit was exceeded.
        let _ = self.bytes.fetch_update(Relaxed, Relaxed, |held| Some(held.saturating_sub(bytes)));
    }
}

// SAFETY: each method passes its arguments on to the system's allocator, whose memory it returns.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) };
        self.give_back(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.take(size);
        let new = unsafe { System.realloc(pointer, layout, size) };
        self.give_back(if new.is_null() { size } else { layout.size() });
        new
    }
}

/// Defines a target that may allocate this many bytes at a time.
#[macro_export]
macro_rules! target {
    ($bytes_max:expr, $body:path) => {
        #[global_allocator]
        static ALLOCATOR: steelyard_fuzz::Bounded = steelyard_fuzz::Bounded::new($bytes_max);

        libfuzzer_sys::fuzz_target!(|input: &[u8]| $body(input));
    };
}
