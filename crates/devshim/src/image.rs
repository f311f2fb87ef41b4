//! Maintenance of the image of data that would survive a power loss (`device::image`), if the
//! process was told to keep one.
//!
//! A write marks pages as dirty in shared memory, without a lock. A sync copies: a file's dirty
//! pages when the file is synced, and a directory's names when the directory is synced. Copies are
//! serialized by `flock` on descriptors opened for that purpose, so that neither a fork nor a kill
//! leaves a lock held.

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
/// The inode number of each descriptor's file if the image holds that file, else 0.
static INODES: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

/// The open image. Its directories are held as descriptors, because paths below them are built on
/// the stack.
pub(crate) struct Image {
    dirty: DirtyTable,
    files: c_int,
    pins: c_int,
    dirs: c_int,
}

/// Opens the image. Must run at start-up, before there is a second thread.
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
    // SAFETY: just opened, and owned by no other code.
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

/// Resets a descriptor that was closed or refers to another file.
pub fn forget(fd: c_int) {
    set_inode(fd, 0);
}

pub fn duplicated(fd: c_int, copy: c_int) {
    set_inode(copy, inode_of(fd).unwrap_or(0));
}

/// Registers a file on the device that was opened. A file opened only for reading is skipped:
/// either its writer was seen, or a sync of its directory will find it.
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

/// Marks bytes that are about to be written or just were. It must be called before *and* after the
/// write. Without the first call, a kill in between would leave pages unmarked that a later sync
/// makes durable. Without the second, a sync in between would.
pub fn marked(fd: c_int, begin: u64, end: u64) {
    let (Some(image), Some(inode)) = (image(), inode_of(fd)) else { return };
    if let Some(slot) = image.dirty.find(inode) {
        slot.mark(begin, end);
    }
}

/// Marks the bytes affected by a change of length, before or after it.
pub fn resized(fd: c_int, length: u64) {
    if image().is_none() || flags(fd) & ON_DEVICE == 0 {
        return;
    }
    if let Some(status) = calls::status(fd) {
        let now = status.st_size as u64;
        marked(fd, now.min(length), now.max(length));
    }
}

/// Returns true if there is an image. Then each file has one link, its pin, that its owner did not
/// create.
pub fn is_kept() -> bool {
    image().is_some()
}

impl Image {
    /// Pins a file and adds it to the image, unless it is there already. `path` currently leads to
    /// the file.
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
