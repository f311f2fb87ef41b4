//! Reads and writes. They are charged after the real call, by the bytes it moved.

use std::ffi::{c_int, c_void};

use device::{ControlBlock, Extent, Fault};
use libc::{iovec, off_t, size_t, ssize_t};

use super::{fail, interpose, keeping_errno};
use crate::device_state::{
    continues, file_of, hang, now, on_device, state, wait, State, DIRECT, RANDOM, SYNCHRONOUS,
};
use crate::image;
use crate::usage::has_room;

interpose!(read: (fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t => read_here);
interpose!(__read_chk: (fd: c_int, buffer: *mut c_void, count: size_t, _size: size_t) -> ssize_t => read_here_checked);
interpose!(pread | pread64: (fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t => read_at);
interpose!(__pread_chk | __pread64_chk: (fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t, _size: size_t) -> ssize_t => read_at_checked);
interpose!(readv: (fd: c_int, parts: *const iovec, count: c_int) -> ssize_t => read_parts_here);
interpose!(preadv | preadv64: (fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t => read_parts_at);
interpose!(preadv2 | preadv64v2: (fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t => read_parts_with);
interpose!(write: (fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t => write_here);
interpose!(pwrite | pwrite64: (fd: c_int, buffer: *const c_void, count: size_t, offset: off_t) -> ssize_t => write_at);
interpose!(writev: (fd: c_int, parts: *const iovec, count: c_int) -> ssize_t => write_parts_here);
interpose!(pwritev | pwritev64: (fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t => write_parts_at);
interpose!(pwritev2 | pwritev64v2: (fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t => write_parts_with);
interpose!(copy_file_range: (from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, count: size_t, flags: u32) -> ssize_t => copied);
interpose!(sendfile | sendfile64: (to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t => sent);

fn read_here(real: impl FnOnce() -> ssize_t, fd: c_int, _: *mut c_void, _: size_t) -> ssize_t {
    reading(fd, None, real)
}

fn read_here_checked(
    real: impl FnOnce() -> ssize_t,
    fd: c_int,
    _: *mut c_void,
    _: size_t,
    _: size_t,
) -> ssize_t {
    reading(fd, None, real)
}

fn read_at(real: impl FnOnce() -> ssize_t, fd: c_int, _: *mut c_void, _: size_t, offset: off_t) -> ssize_t {
    reading(fd, u64::try_from(offset).ok(), real)
}

fn read_at_checked(
    real: impl FnOnce() -> ssize_t,
    fd: c_int,
    _: *mut c_void,
    _: size_t,
    offset: off_t,
    _: size_t,
) -> ssize_t {
    reading(fd, u64::try_from(offset).ok(), real)
}

fn read_parts_here(real: impl FnOnce() -> ssize_t, fd: c_int, _: *const iovec, _: c_int) -> ssize_t {
    reading(fd, None, real)
}

fn read_parts_at(
    real: impl FnOnce() -> ssize_t,
    fd: c_int,
    _: *const iovec,
    _: c_int,
    offset: off_t,
) -> ssize_t {
    reading(fd, u64::try_from(offset).ok(), real)
}

fn read_parts_with(
    real: impl FnOnce() -> ssize_t,
    fd: c_int,
    _: *const iovec,
    _: c_int,
    offset: off_t,
    _: c_int,
) -> ssize_t {
    reading(fd, u64::try_from(offset).ok(), real)
}

fn write_here(real: impl FnOnce() -> ssize_t, fd: c_int, _: *const c_void, count: size_t) -> ssize_t {
    writing(fd, count as u64, None, false, real)
}

fn write_at(
    real: impl FnOnce() -> ssize_t,
    fd: c_int,
    _: *const c_void,
    count: size_t,
    offset: off_t,
) -> ssize_t {
    writing(fd, count as u64, u64::try_from(offset).ok(), false, real)
}

fn write_parts_here(real: impl FnOnce() -> ssize_t, fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    writing(fd, parts_bytes(fd, parts, count), None, false, real)
}

fn write_parts_at(
    real: impl FnOnce() -> ssize_t,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    writing(fd, parts_bytes(fd, parts, count), u64::try_from(offset).ok(), false, real)
}

fn write_parts_with(
    real: impl FnOnce() -> ssize_t,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let synchronous = flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
    writing(fd, parts_bytes(fd, parts, count), u64::try_from(offset).ok(), synchronous, real)
}

fn copied(
    real: impl FnOnce() -> ssize_t,
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    count: size_t,
    _: u32,
) -> ssize_t {
    moving(real, (from, from_offset), (to, to_offset), count)
}

fn sent(
    real: impl FnOnce() -> ssize_t,
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    moving(real, (from, offset), (to, std::ptr::null_mut()), count)
}

/// Performs a copy by the kernel. The side that is on the device is charged as a read, as a write,
/// or both. Each descriptor comes with a pointer to its offset, or null if the descriptor's own
/// position is used.
fn moving(
    real: impl FnOnce() -> ssize_t,
    (from, from_offset): (c_int, *mut i64),
    (to, to_offset): (c_int, *mut i64),
    count: size_t,
) -> ssize_t {
    if on_device(from).is_none() && on_device(to).is_none() {
        return real();
    }
    if let Some((block, _)) = on_device(from) {
        if block.take_fault(Fault::ReadEio) {
            return fail(libc::EIO);
        }
    }
    if let Some(errno) = write_refused(to, count as u64, None) {
        return fail(errno);
    }
    image::marked(to, 0, u64::MAX);
    let entered = now();
    let moved = real();
    let Some(bytes) = u64::try_from(moved).ok().filter(|&bytes| bytes > 0) else { return moved };
    // SAFETY: null, or the caller's offset, which the real call has just advanced.
    let begin = |offset: *mut i64| {
        let end = unsafe { offset.as_ref() }.and_then(|&end| u64::try_from(end).ok());
        end.map(|end| end.saturating_sub(bytes))
    };
    keeping_errno(|| {
        charge_read(from, entered, begin(from_offset), bytes, false);
        if on_device(to).is_some() {
            // The target range is not always known, so the whole file is marked as written.
            image::marked(to, 0, u64::MAX);
            charge_write(to, entered, begin(to_offset), bytes, false);
        }
    });
    moved
}

fn reading(fd: c_int, offset: Option<u64>, real: impl FnOnce() -> ssize_t) -> ssize_t {
    let Some((block, flags)) = on_device(fd) else { return real() };
    if block.take_fault(Fault::ReadEio) {
        return fail(libc::EIO);
    }
    let entered = now();
    let count = real();
    // Reading at the end of a file does not involve the device.
    let Some(bytes) = u64::try_from(count).ok().filter(|&bytes| bytes > 0) else { return count };
    keeping_errno(|| {
        let begin = offset.unwrap_or_else(|| position(fd).saturating_sub(bytes));
        // Nothing reads ahead of direct reads.
        let prefetched = continues(fd, begin, begin.saturating_add(bytes)) && flags & (RANDOM | DIRECT) == 0;
        charge_read(fd, entered, Some(begin), bytes, prefetched);
    });
    count
}

/// Charges a read of `bytes` from `begin` on. If `begin` is `None`, the bytes end at the
/// descriptor's position. `charge_write` follows the same rule.
fn charge_read(fd: c_int, entered: u64, begin: Option<u64>, bytes: u64, prefetched: bool) {
    let Some((block, _)) = on_device(fd) else { return };
    hang(block, ControlBlock::hangs_reads);
    wait(block, entered, |start| match state().and_then(State::cache) {
        Some(cache) => cache.read(start, extent(fd, begin, bytes), prefetched),
        None if block.is_array() => block.read_at(start, extent(fd, begin, bytes), prefetched),
        None => block.read(start, bytes, prefetched),
    });
}

fn extent(fd: c_int, begin: Option<u64>, bytes: u64) -> Extent {
    let begin = begin.unwrap_or_else(|| position(fd).saturating_sub(bytes));
    Extent { file: file_of(fd), begin, bytes }
}

fn writing(
    fd: c_int,
    bytes: u64,
    offset: Option<u64>,
    synchronous: bool,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some((block, flags)) = on_device(fd) else { return real() };
    let synchronous = synchronous || flags & SYNCHRONOUS != 0;
    if let Some(errno) = write_refused(fd, bytes, offset) {
        return fail(errno);
    }
    if synchronous && block.take_fault(Fault::SyncEio) {
        return fail(libc::EIO);
    }
    let entered = now();
    let begin = if image::is_kept() { offset.unwrap_or_else(|| append_or_position(fd)) } else { 0 };
    image::marked(fd, begin, begin.saturating_add(bytes));
    let count = real();
    if let Some(written) = u64::try_from(count).ok().filter(|&written| written > 0) {
        keeping_errno(|| {
            wrote(fd, offset, written, synchronous);
            charge_write(fd, entered, offset, written, synchronous);
        });
    }
    count
}

/// Records a completed write in the image.
fn wrote(fd: c_int, offset: Option<u64>, written: u64, synchronous: bool) {
    if image::is_kept() {
        let begin = offset.unwrap_or_else(|| position(fd).saturating_sub(written));
        image::marked(fd, begin, begin.saturating_add(written));
        if synchronous {
            image::synced(fd, || 0);
        }
    }
}

fn charge_write(fd: c_int, entered: u64, begin: Option<u64>, bytes: u64, synchronous: bool) {
    let Some((block, flags)) = on_device(fd) else { return };
    hang(block, ControlBlock::hangs_writes);
    wait(block, entered, |start| {
        let done = match state().and_then(State::cache) {
            Some(cache) => cache.write(start, extent(fd, begin, bytes)),
            None if block.is_array() => block.write_at(start, extent(fd, begin, bytes)),
            None => block.write(start, bytes),
        };
        if synchronous {
            block.sync(start)
        } else if flags & DIRECT != 0 {
            done
        } else {
            block.buffered(done)
        }
    });
}

/// Returns the error with which a write must fail instead of being performed.
fn write_refused(fd: c_int, bytes: u64, offset: Option<u64>) -> Option<c_int> {
    let (block, _) = on_device(fd)?;
    if block.take_fault(Fault::WriteEio) {
        return Some(libc::EIO);
    }
    let end = match (block.capacity(), offset) {
        (None, _) => None,
        (Some(_), Some(offset)) => Some(offset.saturating_add(bytes)),
        (Some(_), None) => Some(append_or_position(fd).saturating_add(bytes)),
    };
    let room = state().is_none_or(|state| has_room(state, fd, bytes, end));
    (!room || block.take_fault(Fault::WriteNoSpace)).then_some(libc::ENOSPC)
}

fn append_or_position(fd: c_int) -> u64 {
    // SAFETY: plain calls on the caller's descriptor. `fstat` fills the structure if it returns 0.
    unsafe {
        let appends =
            libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) & libc::c_long::from(libc::O_APPEND) != 0;
        let mut status = std::mem::zeroed::<libc::stat>();
        if appends && libc::fstat(fd, &mut status) == 0 {
            return status.st_size as u64;
        }
    }
    position(fd)
}

fn position(fd: c_int) -> u64 {
    // SAFETY: moves nothing.
    u64::try_from(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }).unwrap_or(0)
}

/// Returns the total length of the vectors, for descriptors on the device only. The kernel checks
/// all others.
fn parts_bytes(fd: c_int, parts: *const iovec, count: c_int) -> u64 {
    let count = usize::try_from(count).unwrap_or(0);
    if on_device(fd).is_none() || parts.is_null() || count > libc::UIO_MAXIOV as usize {
        return 0;
    }
    // SAFETY: the caller passed `count` vectors.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.iov_len as u64))
}
