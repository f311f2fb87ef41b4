//! Space: allocation, and the reported size of the device.

use std::ffi::{c_char, c_int};

use device::Fault;
use libc::off_t;

use super::{fail, interpose, keeping_errno, names};
use crate::device_state::{on_device, state, State};
use crate::image;
use crate::usage::{has_room, used_lately};

interpose!(fallocate | fallocate64: (fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int => allocated);
interpose!(posix_fallocate | posix_fallocate64: (fd: c_int, offset: off_t, length: off_t) -> c_int => allocated_posix);
interpose!(ftruncate | ftruncate64: (fd: c_int, length: off_t) -> c_int => truncated);
interpose!(statvfs | statvfs64: (path: *const c_char, out: *mut libc::statvfs) -> c_int => described_path_posix);
interpose!(fstatvfs | fstatvfs64: (fd: c_int, out: *mut libc::statvfs) -> c_int => described_posix);
interpose!(statfs | statfs64: (path: *const c_char, out: *mut libc::statfs) -> c_int => described_path);
interpose!(fstatfs | fstatfs64: (fd: c_int, out: *mut libc::statfs) -> c_int => described);

/// Maximum age in nanoseconds of the measurement that answers `statfs`. Programs ask `statvfs` for
/// free space, so that measures. RocksDB calls `statfs` for the file system's type at every file it
/// opens, where an older measurement suffices.
const STATFS_AGE_NS: u64 = 100_000_000;

fn allocated(real: impl FnOnce() -> c_int, fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    let frees = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_COLLAPSE_RANGE) != 0;
    if !frees && !fits(fd, offset, length) {
        return fail(libc::ENOSPC);
    }
    marking(fd, offset, length, real)
}

/// Performs `posix_fallocate`, which returns its error instead of setting `errno`.
fn allocated_posix(real: impl FnOnce() -> c_int, fd: c_int, offset: off_t, length: off_t) -> c_int {
    if !fits(fd, offset, length) {
        return libc::ENOSPC;
    }
    marking(fd, offset, length, real)
}

/// Marks the bytes that an allocation or a hole changes: they read as zeros afterwards.
fn marking(fd: c_int, offset: off_t, length: off_t, real: impl FnOnce() -> c_int) -> c_int {
    let (begin, length) = (u64::try_from(offset).unwrap_or(0), u64::try_from(length).unwrap_or(0));
    let mark = || image::marked(fd, begin, begin.saturating_add(length));
    mark();
    let result = real();
    mark();
    result
}

fn truncated(real: impl FnOnce() -> c_int, fd: c_int, length: off_t) -> c_int {
    let length = u64::try_from(length).unwrap_or(0);
    let mut cut = None;
    keeping_errno(|| {
        image::resized(fd, length);
        cut = names::beyond(fd, length);
    });
    let result = real();
    if result == 0 {
        names::forget(cut);
    }
    result
}

fn fits(fd: c_int, offset: off_t, length: off_t) -> bool {
    let Some((block, _)) = on_device(fd) else { return true };
    let (Ok(offset), Ok(length)) = (u64::try_from(offset), u64::try_from(length)) else { return true };
    let room = state().is_none_or(|state| has_room(state, fd, length, Some(offset.saturating_add(length))));
    room && !block.take_fault(Fault::WriteNoSpace)
}

fn described_path_posix(real: impl FnOnce() -> c_int, path: *const c_char, out: *mut libc::statvfs) -> c_int {
    let result = real();
    if result == 0 {
        // SAFETY: the caller's path, and a structure that the real call has just filled.
        unsafe { limit_posix(limited_path(path, 0), out) };
    }
    result
}

fn described_posix(real: impl FnOnce() -> c_int, fd: c_int, out: *mut libc::statvfs) -> c_int {
    let result = real();
    if result == 0 {
        // SAFETY: a structure that the real call has just filled.
        unsafe { limit_posix(limited(fd, 0), out) };
    }
    result
}

fn described_path(real: impl FnOnce() -> c_int, path: *const c_char, out: *mut libc::statfs) -> c_int {
    let result = real();
    if result == 0 {
        // SAFETY: as above.
        unsafe { limit(limited_path(path, STATFS_AGE_NS), out) };
    }
    result
}

fn described(real: impl FnOnce() -> c_int, fd: c_int, out: *mut libc::statfs) -> c_int {
    let result = real();
    if result == 0 {
        // SAFETY: as above.
        unsafe { limit(limited(fd, STATFS_AGE_NS), out) };
    }
    result
}

/// Returns capacity and free bytes of the device of a descriptor, if it has a capacity.
fn limited(fd: c_int, age_ns: u64) -> Option<(u64, u64)> {
    on_device(fd).and_then(|_| state()).and_then(|state| capacity_and_free(state, age_ns))
}

/// Same as `limited`, for a path.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn limited_path(path: *const c_char, age_ns: u64) -> Option<(u64, u64)> {
    let state = state()?;
    // SAFETY: by contract.
    unsafe { state.holds_path(path) }.then_some(state).and_then(|state| capacity_and_free(state, age_ns))
}

fn capacity_and_free(state: &State, age_ns: u64) -> Option<(u64, u64)> {
    let capacity = state.block().capacity()?;
    let mut used = 0;
    keeping_errno(|| used = used_lately(state, state.block(), age_ns));
    Some((capacity, capacity.saturating_sub(used)))
}

/// Limits the reported sizes to those of the device.
///
/// # Safety
/// `out` points to a filled structure.
unsafe fn limit_posix(device: Option<(u64, u64)>, out: *mut libc::statvfs) {
    let Some((capacity, free)) = device else { return };
    // SAFETY: by contract.
    let out = unsafe { &mut *out };
    let unit = out.f_frsize.max(1);
    out.f_blocks = capacity / unit;
    out.f_bfree = free / unit;
    out.f_bavail = free / unit;
}

/// Limits the reported sizes to those of the device.
///
/// # Safety
/// `out` points to a filled structure.
unsafe fn limit(device: Option<(u64, u64)>, out: *mut libc::statfs) {
    let Some((capacity, free)) = device else { return };
    // SAFETY: by contract.
    let out = unsafe { &mut *out };
    let unit = (out.f_bsize as u64).max(1);
    out.f_blocks = capacity / unit;
    out.f_bfree = free / unit;
    out.f_bavail = free / unit;
}
