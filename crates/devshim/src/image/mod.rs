//! Keeps the image of what would survive a power loss (`device::image`), when the process was told to.
//!
//! Writing marks pages as dirty, in shared memory and without a lock. Syncing copies: a file's dirty pages
//! when the file is synced, a directory's names when the directory is. Copying is serialised by `flock` on
//! descriptors opened for it, which neither a fork nor a kill leaves held.

mod calls;
mod persist;

use std::ffi::c_int;
use std::os::fd::FromRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use device::image::{DirtyTable, DIRS, DIRTY, FILES, PINS};

use crate::device_state::{flags, DESCRIPTORS, ON_DEVICE};
use calls::Name;
pub use persist::synced;

static IMAGE: AtomicPtr<Image> = AtomicPtr::new(std::ptr::null_mut());
/// The inode number of a descriptor's file, if it is a file that the image holds; else 0.
static INODES: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

/// Directories are descriptors of their own, for the paths below are made on the stack.
pub(crate) struct Image {
    dirty: DirtyTable,
    files: c_int,
    pins: c_int,
    dirs: c_int,
}

/// At start-up, before there is a second thread.
pub fn attach(path: &Path) -> Result<(), String> {
    let failed =
        |what: &str| format!("image {}: {what}: {}", path.display(), std::io::Error::last_os_error());
    let open = |part: &str| {
        let name = std::ffi::CString::new(path.join(part).into_os_string().into_encoded_bytes());
        let name = name.map_err(|error| error.to_string())?;
        calls::open_at(libc::AT_FDCWD, name.as_c_str(), libc::O_RDONLY).ok_or_else(|| failed(part))
    };
    let name = path.join(DIRTY).into_os_string().into_encoded_bytes();
    let name = std::ffi::CString::new(name).map_err(|error| error.to_string())?;
    let table = calls::open_at(libc::AT_FDCWD, name.as_c_str(), libc::O_RDWR).ok_or_else(|| failed(DIRTY))?;
    // SAFETY: just opened, and nobody else's.
    let table = unsafe { std::fs::File::from_raw_fd(table) };
    let dirty = DirtyTable::map(&table).map_err(|error| format!("image {}: {error}", path.display()))?;
    let image = Image { dirty, files: open(FILES)?, pins: open(PINS)?, dirs: open(DIRS)? };
    IMAGE.store(Box::into_raw(Box::new(image)), Ordering::Release);
    Ok(())
}

pub(crate) fn image() -> Option<&'static Image> {
    // SAFETY: null, or a box that `attach` leaked.
    unsafe { IMAGE.load(Ordering::Acquire).as_ref() }
}

fn inode_of(fd: c_int) -> Option<u64> {
    let slot = usize::try_from(fd).ok().and_then(|fd| INODES.get(fd))?;
    Some(slot.load(Ordering::Relaxed)).filter(|&inode| inode != 0)
}

fn set_inode(fd: c_int, inode: u64) {
    if let Some(slot) = usize::try_from(fd).ok().and_then(|fd| INODES.get(fd)) {
        slot.store(inode, Ordering::Relaxed);
    }
}

/// A descriptor was closed, or is another file's now.
pub fn forget(fd: c_int) {
    set_inode(fd, 0);
}

pub fn duplicated(fd: c_int, copy: c_int) {
    set_inode(copy, inode_of(fd).unwrap_or(0));
}

/// A file on the device was opened. Those that are only read are left alone: they were written by somebody
/// who was seen, or a directory's sync will find them.
pub fn opened(fd: c_int, flags: c_int) {
    let Some(image) = image() else { return };
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    if !writes && flags & (libc::O_CREAT | libc::O_TRUNC) == 0 {
        return;
    }
    let Some(status) = calls::status(fd).filter(calls::is_file) else { return };
    image.take(Name::of_descriptor(fd).as_c_str(), status.st_ino);
    set_inode(fd, status.st_ino);
    if flags & libc::O_TRUNC != 0 {
        if let Some(slot) = image.dirty.find(status.st_ino) {
            slot.mark_all();
        }
    }
}

/// Bytes are about to be written, or just were: told before *and* after the call. Before, or a kill in
/// between would leave pages unmarked that a later sync makes durable; after, or a sync in between would.
pub fn marked(fd: c_int, begin: u64, end: u64) {
    let (Some(image), Some(inode)) = (image(), inode_of(fd)) else { return };
    if let Some(slot) = image.dirty.find(inode) {
        slot.mark(begin, end);
    }
}

/// A length is about to be, or was, changed.
pub fn resized(fd: c_int, length: u64) {
    if image().is_none() || flags(fd) & ON_DEVICE == 0 {
        return;
    }
    if let Some(status) = calls::status(fd) {
        let now = status.st_size as u64;
        marked(fd, now.min(length), now.max(length));
    }
}

/// The pin of a file is a link that its owner did not make.
pub fn is_kept() -> bool {
    image().is_some()
}

impl Image {
    /// Pins a file and gives it its places, unless it has them. `path` leads to it now.
    fn take(&self, path: &std::ffi::CStr, inode: u64) {
        let name = Name::of_number(inode);
        if self.dirty.find(inode).is_some() && calls::exists(self.pins, name.as_c_str()) {
            return;
        }
        let _lock = calls::lock(self.dirs, c".");
        let is_new = calls::link(libc::AT_FDCWD, path, self.pins, name.as_c_str());
        if is_new || !calls::exists(self.files, name.as_c_str()) {
            if let Some(fd) = calls::open_at(self.files, name.as_c_str(), libc::O_CREAT | libc::O_WRONLY) {
                calls::close(fd);
            }
        }
        match self.dirty.insert(inode) {
            Some(slot) if is_new => slot.mark_all(),
            Some(_) => {}
            None => calls::give_up("more files than an image can hold"),
        }
    }
}
