//! Calls on names: a deleted, replaced or truncated file leaves the cache of a hybrid device. On
//! other devices these calls cost nothing and pass through.

use std::ffi::{c_char, c_int, c_uint};

use device::Extent;

use super::{interpose, keeping_errno};
use crate::device_state::{file_of, on_device, state, status, State};
use crate::image;

interpose!(unlink | remove: (path: *const c_char) -> c_int => unlinked);
interpose!(unlinkat: (dir: c_int, path: *const c_char, flags: c_int) -> c_int => unlinked_from);
interpose!(rename: (from: *const c_char, to: *const c_char) -> c_int => renamed);
interpose!(renameat: (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int => renamed_from);
interpose!(renameat2: (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int => renamed_with);

fn unlinked(real: impl FnOnce() -> c_int, path: *const c_char) -> c_int {
    unlinked_from(real, libc::AT_FDCWD, path, 0)
}

fn unlinked_from(real: impl FnOnce() -> c_int, dir: c_int, path: *const c_char, _flags: c_int) -> c_int {
    // SAFETY: the caller's path.
    let gone = unsafe { last_name(dir, path) };
    forgetting(real, gone)
}

fn renamed(real: impl FnOnce() -> c_int, from: *const c_char, to: *const c_char) -> c_int {
    renamed_from(real, libc::AT_FDCWD, from, libc::AT_FDCWD, to)
}

fn renamed_from(
    real: impl FnOnce() -> c_int,
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's paths.
    let (gone, kept) = unsafe { (last_name(to_dir, to), last_name(from_dir, from)) };
    // A file renamed to its own name stays.
    let gone = gone.filter(|gone| Some(*gone) != kept);
    forgetting(real, gone)
}

fn renamed_with(
    real: impl FnOnce() -> c_int,
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // No existing flag lets a file be replaced.
    if flags != 0 {
        return real();
    }
    renamed_from(real, from_dir, from, to_dir, to)
}

fn forgetting(real: impl FnOnce() -> c_int, gone: Option<Extent>) -> c_int {
    let result = real();
    if result == 0 {
        forget(gone);
    }
    result
}

pub fn forget(gone: Option<Extent>) {
    if let Some((cache, gone)) = state().and_then(State::cache).zip(gone) {
        cache.forget(gone);
    }
}

/// Returns the part of an open file from `length` on, if the device is a hybrid.
pub fn beyond(fd: c_int, length: u64) -> Option<Extent> {
    on_device(fd).and_then(|_| state()).and_then(State::cache)?;
    let bytes = (status(fd)?.st_size as u64).checked_sub(length)?;
    Some(Extent { file: file_of(fd), begin: length, bytes })
}

/// Returns the whole extent of a file on a hybrid, if this is its only name.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn last_name(dir: c_int, path: *const c_char) -> Option<Extent> {
    let state = state().filter(|state| !path.is_null() && state.cache().is_some())?;
    let mut found = None;
    keeping_errno(|| {
        let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: a C string by contract. The descriptor is ours until closed.
        let fd = unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, 0) } as c_int;
        if fd < 0 {
            return;
        }
        found = status(fd).filter(|_| state.holds(fd));
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    });
    let found = found.filter(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG)?;
    let pins = libc::nlink_t::from(image::is_kept());
    (found.st_nlink <= 1 + pins).then_some(Extent {
        file: found.st_ino,
        begin: 0,
        bytes: found.st_size as u64,
    })
}
