//! Descriptors: bookkeeping of those that are on the device.

use std::ffi::{c_char, c_int, c_long, c_uint};

use libc::mode_t;

use super::{interpose, keeping_errno};
use crate::device_state::{
    copy_flags, flags, forget_range, set_flags, state, DIRECT, ON_DEVICE, RANDOM, SYNCHRONOUS,
};
use crate::image;

interpose!(open | open64: (path: *const c_char, flags: c_int, mode: mode_t) -> c_int => opened_at);
interpose!(__open_2 | __open64_2: (path: *const c_char, flags: c_int) -> c_int => opened_checked);
interpose!(openat | openat64: (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int => opened_from);
interpose!(__openat_2 | __openat64_2: (dir: c_int, path: *const c_char, flags: c_int) -> c_int => opened_from_checked);
interpose!(creat | creat64: (path: *const c_char, mode: mode_t) -> c_int => created);
interpose!(close: (fd: c_int) -> c_int => closed);
interpose!(close_range: (first: c_uint, last: c_uint, flags: c_int) -> c_int => closed_range);
interpose!(closefrom: (first: c_int) -> () => closed_from);
interpose!(fclose: (stream: *mut libc::FILE) -> c_int => closed_stream);
interpose!(closedir: (dir: *mut libc::DIR) -> c_int => closed_dir);
interpose!(dup: (fd: c_int) -> c_int => duplicated);
interpose!(dup2: (fd: c_int, onto: c_int) -> c_int => duplicated_onto);
interpose!(dup3: (fd: c_int, onto: c_int, flags: c_int) -> c_int => duplicated_with);
interpose!(fcntl | fcntl64: (fd: c_int, command: c_int, argument: c_long) -> c_int => controlled);
interpose!(posix_fadvise | posix_fadvise64: (fd: c_int, offset: i64, length: i64, advice: c_int) -> c_int => advised);

fn opened_at(real: impl FnOnce() -> c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(real, libc::AT_FDCWD, path, flags, mode)
}

fn opened_checked(real: impl FnOnce() -> c_int, path: *const c_char, flags: c_int) -> c_int {
    opened(real, libc::AT_FDCWD, path, flags, 0)
}

fn opened_from(
    real: impl FnOnce() -> c_int,
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    opened(real, dir, path, flags, mode)
}

fn opened_from_checked(real: impl FnOnce() -> c_int, dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    opened(real, dir, path, flags, 0)
}

fn created(real: impl FnOnce() -> c_int, path: *const c_char, mode: mode_t) -> c_int {
    opened(real, libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
}

fn opened(
    real: impl FnOnce() -> c_int,
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    let mut fd = real();
    let Some(state) = state() else { return fd };
    let direct = flags & libc::O_DIRECT != 0;
    // A RAM file system may refuse O_DIRECT, but the emulated device does not.
    // SAFETY: `path` is the caller's C string. The new descriptor is closed again if it is not on
    // the device.
    unsafe {
        if fd < 0 && direct && *libc::__errno_location() == libc::EINVAL {
            let second = libc::syscall(libc::SYS_openat, dir, path, flags & !libc::O_DIRECT, mode) as c_int;
            if second >= 0 && !state.holds(second) {
                libc::syscall(libc::SYS_close, second);
                super::set_errno(libc::EINVAL);
                return -1;
            }
            fd = second;
        }
    }
    if fd >= 0 {
        let mut on = 0;
        keeping_errno(|| {
            if flags & libc::O_PATH == 0 && state.holds(fd) {
                on = ON_DEVICE;
                on |= if direct { DIRECT } else { 0 };
                on |= if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 { SYNCHRONOUS } else { 0 };
            }
        });
        set_flags(fd, on);
        if on != 0 {
            keeping_errno(|| image::opened(fd, flags));
        }
    }
    fd
}

/// Clears the entry before the real call. Once that returns, another thread may own the number.
fn closed(real: impl FnOnce() -> c_int, fd: c_int) -> c_int {
    if flags(fd) != 0 {
        set_flags(fd, 0);
    }
    real()
}

fn closed_range(real: impl FnOnce() -> c_int, first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const ONLY_ON_EXEC: c_int = 4;
    if flags & ONLY_ON_EXEC == 0 {
        forget_range(first, last);
    }
    real()
}

fn closed_from(real: impl FnOnce(), first: c_int) {
    forget_range(u32::try_from(first).unwrap_or(0), u32::MAX);
    real();
}

fn closed_stream(real: impl FnOnce() -> c_int, stream: *mut libc::FILE) -> c_int {
    // SAFETY: the caller's open stream.
    set_flags(unsafe { libc::fileno(stream) }, 0);
    real()
}

fn closed_dir(real: impl FnOnce() -> c_int, dir: *mut libc::DIR) -> c_int {
    // SAFETY: the caller's open directory.
    set_flags(unsafe { libc::dirfd(dir) }, 0);
    real()
}

fn duplicated(real: impl FnOnce() -> c_int, fd: c_int) -> c_int {
    let copy = real();
    if copy >= 0 {
        copy_flags(fd, copy);
    }
    copy
}

fn duplicated_onto(real: impl FnOnce() -> c_int, fd: c_int, onto: c_int) -> c_int {
    let copy = real();
    if copy >= 0 && fd != onto {
        copy_flags(fd, copy);
    }
    copy
}

fn duplicated_with(real: impl FnOnce() -> c_int, fd: c_int, onto: c_int, _flags: c_int) -> c_int {
    duplicated_onto(real, fd, onto)
}

fn controlled(real: impl FnOnce() -> c_int, fd: c_int, command: c_int, _argument: c_long) -> c_int {
    let result = real();
    if result >= 0 && (command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC) {
        copy_flags(fd, result);
    }
    result
}

fn advised(real: impl FnOnce() -> c_int, fd: c_int, _offset: i64, _length: i64, advice: c_int) -> c_int {
    let now = flags(fd);
    if now & ON_DEVICE != 0 {
        match advice {
            libc::POSIX_FADV_RANDOM => set_flags(fd, now | RANDOM),
            libc::POSIX_FADV_NORMAL | libc::POSIX_FADV_SEQUENTIAL => set_flags(fd, now & !RANDOM),
            _ => {}
        }
    }
    real()
}
