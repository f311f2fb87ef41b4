//! Direct system calls on names and descriptors. They bypass the libc functions that this library
//! intercepts.

use std::ffi::{c_char, c_int, CStr};
use std::mem::MaybeUninit;

use crate::directory::for_each_entry;

/// A short name on the stack.
pub(super) struct Name {
    bytes: [u8; NAME_BYTES],
    length: usize,
}

/// Maximum bytes of a name in a directory, including its NUL.
const NAME_BYTES: usize = 256;

impl Name {
    pub(super) fn new() -> Name {
        Name { bytes: [0; NAME_BYTES], length: 0 }
    }

    pub(super) fn of_number(number: u64) -> Name {
        let mut name = Name::new();
        name.push_number(number);
        name
    }

    /// Returns the path of a descriptor's file from which links can be made.
    pub(super) fn of_descriptor(fd: c_int) -> Name {
        let mut name = Name::new();
        name.push(b"/proc/self/fd/");
        name.push_number(u64::try_from(fd).unwrap_or(u64::MAX));
        name
    }

    /// Appends bytes. Those that do not fit are dropped, and `is_whole` then returns false.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.length < NAME_BYTES - 1 {
                self.bytes[self.length] = byte;
            }
            self.length += 1;
        }
    }

    pub(super) fn push_number(&mut self, mut number: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }

    pub(super) fn is_whole(&self) -> bool {
        self.length < NAME_BYTES
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        // The last byte is never written, so there is a NUL.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

pub(super) fn give_up(why: &str) -> ! {
    const PREFIX: &[u8] = b"device emulation: ";
    for part in [PREFIX, why.as_bytes(), b"\n"] {
        // SAFETY: writes bytes that live through the call.
        unsafe { libc::syscall(libc::SYS_write, 2, part.as_ptr(), part.len()) };
    }
    // SAFETY: plain call. A run without its image must not be trusted.
    unsafe { libc::abort() }
}

pub(super) fn open_at(dir: c_int, name: &CStr, flags: c_int) -> Option<c_int> {
    // SAFETY: a C string. The caller must close the descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_openat, dir, name.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
    c_int::try_from(fd).ok().filter(|&fd| fd >= 0)
}

pub(super) fn close(fd: c_int) {
    // SAFETY: a descriptor of ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

pub(super) fn status(fd: c_int) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: filled when 0 is returned.
    unsafe { (libc::fstat(fd, status.as_mut_ptr()) == 0).then(|| status.assume_init()) }
}

pub(super) fn status_at(dir: c_int, name: &CStr) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a C string; filled when 0 is returned.
    unsafe {
        let found = libc::fstatat(dir, name.as_ptr(), status.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW);
        (found == 0).then(|| status.assume_init())
    }
}

pub(super) fn is_file(status: &libc::stat) -> bool {
    status.st_mode & libc::S_IFMT == libc::S_IFREG
}

pub(super) fn is_dir(status: &libc::stat) -> bool {
    status.st_mode & libc::S_IFMT == libc::S_IFDIR
}

pub(super) fn exists(dir: c_int, name: &CStr) -> bool {
    status_at(dir, name).is_some()
}

/// Creates a hard link. Returns false if it was not made, for example because the name exists.
pub(super) fn link(dir: c_int, path: &CStr, to_dir: c_int, to: &CStr) -> bool {
    let flag = libc::AT_SYMLINK_FOLLOW;
    // SAFETY: C strings.
    unsafe { libc::syscall(libc::SYS_linkat, dir, path.as_ptr(), to_dir, to.as_ptr(), flag) == 0 }
}

pub(super) fn unlink(dir: c_int, name: &CStr) {
    // SAFETY: a C string.
    unsafe { libc::syscall(libc::SYS_unlinkat, dir, name.as_ptr(), 0) };
}

pub(super) fn make_dir(dir: c_int, name: &CStr) {
    // SAFETY: a C string.
    unsafe { libc::syscall(libc::SYS_mkdirat, dir, name.as_ptr(), 0o700) };
}

pub(super) fn set_length(fd: c_int, length: u64) {
    // SAFETY: plain call.
    unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) };
}

/// Copies `[offset, end)` as far as the source reaches. Returns false if the copy fails.
pub(super) fn copy(from: c_int, to: c_int, mut offset: u64, end: u64) -> bool {
    let mut buffer = [0u8; 16 << 10];
    while offset < end {
        let wanted = (end - offset).min(buffer.len() as u64) as usize;
        // SAFETY: the buffer has the length given.
        let read = unsafe { libc::syscall(libc::SYS_pread64, from, buffer.as_mut_ptr(), wanted, offset) };
        let Ok(read) = usize::try_from(read) else { return false };
        if read == 0 {
            return true;
        }
        let mut written = 0;
        while written < read {
            let part = &buffer[written..read];
            let at = offset + written as u64;
            // SAFETY: as above.
            let count = unsafe { libc::syscall(libc::SYS_pwrite64, to, part.as_ptr(), part.len(), at) };
            match usize::try_from(count) {
                Ok(count) if count > 0 => written += count,
                _ => return false,
            }
        }
        offset += read as u64;
    }
    true
}

/// A lock that is held until dropped.
pub(super) struct Lock(c_int);

/// Waits for the lock of a file or directory of the image.
pub(super) fn lock(dir: c_int, name: &CStr) -> Lock {
    let Some(fd) = open_at(dir, name, libc::O_RDONLY) else { give_up("a part of the image is gone") };
    lock_descriptor(fd);
    Lock(fd)
}

pub(super) fn lock_descriptor(fd: c_int) {
    // SAFETY: plain call. It fails only if a signal interrupts it, and is then repeated.
    while unsafe { libc::flock(fd, libc::LOCK_EX) } != 0 {}
}

impl Drop for Lock {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Calls `each` with every name in a directory except `.` and `..`.
pub(super) fn for_each_name(dir: c_int, mut each: impl FnMut(&CStr)) {
    // A separate descriptor, whose position is the beginning.
    let Some(dir) = open_at(dir, c".", libc::O_RDONLY | libc::O_DIRECTORY) else { return };
    for_each_entry::<4096>(dir, |name, _| each(name));
    close(dir);
}

const _: () = assert!(std::mem::size_of::<c_char>() == 1);
