//! The space that the directory tree on the device uses, as the kernel reports it.
//!
//! This runs inside the program's own `write` calls, so it uses plain system calls and buffers on
//! the stack.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use device::ControlBlock;

use crate::device_state::{now, status, State};
use crate::directory::for_each_entry;

const DEPTH_MAX: u32 = 24;
const BLOCK: u64 = 512;
/// Size of the buffer for a directory's entries. There is one on the stack for each level of the
/// tree.
const ENTRIES_BYTES: usize = 2048;

/// Returns the allocated bytes under the root. A file with several links counts once in total. A
/// file that was unlinked while open does not count.
pub fn used_bytes(state: &State) -> u64 {
    let mut root = [0u8; libc::PATH_MAX as usize];
    if !state.root(&mut root) {
        return 0;
    }
    tree_bytes(libc::AT_FDCWD, root.as_ptr().cast(), DEPTH_MAX)
}

/// Returns the usage of the device. Measures it unless the last measurement is younger than
/// `age_ns`.
pub fn used_lately(state: &State, block: &ControlBlock, age_ns: u64) -> u64 {
    if let Some(used) = block.used_if_younger(now(), age_ns) {
        return used;
    }
    let mark = block.admitted();
    let used = used_bytes(state);
    block.measured(mark, now(), used);
    used
}

/// Returns true if there is room for a write or allocation of `bytes` in the file `fd` that ends at
/// `end`.
pub fn has_room(state: &State, fd: c_int, bytes: u64, end: Option<u64>) -> bool {
    let block = state.block();
    if block.capacity().is_none() || block.admit(bytes) {
        return true;
    }
    let needed = match status(fd) {
        Some(status) => {
            let end = end.unwrap_or((status.st_size as u64).saturating_add(bytes));
            bytes.min(end.saturating_sub((status.st_blocks as u64).saturating_mul(BLOCK)))
        }
        None => bytes,
    };
    // A pure overwrite, such as by a recycled log, needs neither room nor a measurement.
    if needed == 0 {
        return true;
    }
    // The bytes of this call are admitted but not yet measurable. Those of other threads' writes in
    // flight are missed, so the limit is exact to one write per thread.
    let mark = block.admitted().saturating_sub(bytes);
    let used = used_bytes(state);
    block.admit_measured(mark, now(), used, needed)
}

fn tree_bytes(parent: c_int, name: *const c_char, depth: u32) -> u64 {
    if depth == 0 {
        return 0;
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: `name` is a C string from our root or from the kernel.
    let dir = unsafe { libc::syscall(libc::SYS_openat, parent, name, flags, 0) } as c_int;
    if dir < 0 {
        return 0;
    }
    let mut total = 0u64;
    for_each_entry::<ENTRIES_BYTES>(dir, |name, kind| {
        let path = name.as_ptr();
        total = total.saturating_add(match kind {
            libc::DT_DIR => tree_bytes(dir, path, depth - 1),
            // Some file systems do not report the type. A file that is not a directory adds nothing
            // as one.
            libc::DT_UNKNOWN => tree_bytes(dir, path, depth - 1).max(file_bytes(dir, path)),
            _ => file_bytes(dir, path),
        });
    });
    // SAFETY: `dir` is ours.
    unsafe { libc::syscall(libc::SYS_close, dir) };
    total
}

fn file_bytes(dir: c_int, name: *const c_char) -> u64 {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `name` is the kernel's C string. The structure is filled if 0 is returned.
    let status = unsafe {
        if libc::fstatat(dir, name, status.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW) != 0 {
            return 0;
        }
        status.assume_init()
    };
    let links = (status.st_nlink as u64).saturating_sub(u64::from(crate::image::is_kept()));
    (status.st_blocks as u64).saturating_mul(BLOCK) / links.max(1)
}
