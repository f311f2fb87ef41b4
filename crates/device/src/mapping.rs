//! Files that processes share as memory.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// The content of a file that several processes map.
///
/// # Safety
/// The type consists of atomics only, so any bytes are a valid value, and its alignment is at most
/// that of a page.
pub(crate) unsafe trait Shared: Sync {}

/// A mapping of a whole file. All mappings of the file, also in other processes, see every change
/// at once.
pub(crate) struct Mapping<T: Shared>(NonNull<T>);

// SAFETY: `T` is only accessed by shared reference, and the mapping lives until it is dropped.
unsafe impl<T: Shared> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for Mapping<T> {}

impl<T: Shared> Mapping<T> {
    /// Maps a file that is open for reading and writing.
    ///
    /// # Errors
    /// Those of the system, and [`io::ErrorKind::InvalidData`] if the file has another length.
    pub fn of(file: &File) -> io::Result<Mapping<T>> {
        let length = file.metadata()?.len();
        if length != size_of::<T>() as u64 {
            let why = format!("it has {length} bytes, not {}", size_of::<T>());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        // SAFETY: a fresh shared mapping of an open file of this length.
        let address = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), size_of::<T>(), access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping(NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?))
    }
}

impl<T: Shared> Deref for Mapping<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped until drop with this length, page-aligned. See `Shared`.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Shared> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length, and no reference outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}
