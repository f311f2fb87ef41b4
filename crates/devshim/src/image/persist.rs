//! Updates of the image after a sync: they add to it the data that the sync made durable.

use std::ffi::{c_int, CStr};

use device::image::{Slot, DIR_MARK, FILE_MARK};

use super::calls::{self, Name};
use super::{image, inode_of, Image};

/// Syncs `fd` by `real`. If there is an image and `real` returned 0, copies into it the data that
/// became durable.
///
/// A file's lock is held throughout. Otherwise, of two concurrent syncs, the one that began earlier
/// could undo the other with its older length.
pub fn synced(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let Some(image) = image() else { return real() };
    let Some(status) = calls::status(fd) else { return real() };
    if calls::is_dir(&status) {
        let result = real();
        if result == 0 {
            super::super::hooks::keeping_errno(|| image.persist_dir(fd, status.st_ino));
        }
        return result;
    }
    // A file opened only for reading may have been written through another descriptor.
    let inode = inode_of(fd).unwrap_or(status.st_ino);
    let name = Name::of_number(inode);
    let Some(slot) = image.dirty.find(inode) else { return real() };
    let Some(file) = calls::open_at(image.files, name.as_c_str(), libc::O_WRONLY) else { return real() };
    calls::lock_descriptor(file);
    let range = slot.range();
    let length = calls::status(fd).map_or(0, |status| status.st_size as u64);
    let result = real();
    if result == 0 {
        super::super::hooks::keeping_errno(|| image.persist_file(name.as_c_str(), file, slot, range, length));
    }
    calls::close(file);
    result
}

impl Image {
    fn persist_file(&self, name: &CStr, file: c_int, slot: &Slot, range: u64, length: u64) {
        let (begin, end) = Slot::bytes(range);
        if begin < end.min(length) {
            let live = calls::open_at(self.pins, name, libc::O_RDONLY);
            let is_copied = live.is_some_and(|live| calls::copy(live, file, begin, end.min(length)));
            live.into_iter().for_each(calls::close);
            if !is_copied {
                calls::give_up("what was synced cannot be copied into the image");
            }
        }
        calls::set_length(file, length);
        if range != 0 {
            slot.cleaned(range);
        }
    }

    /// Makes the directory's names in the image equal to its current names.
    fn persist_dir(&self, fd: c_int, inode: u64) {
        let name = Name::of_number(inode);
        calls::make_dir(self.dirs, name.as_c_str());
        let lock = calls::lock(self.dirs, name.as_c_str());
        let names = calls::open_at(self.dirs, name.as_c_str(), libc::O_RDONLY);
        let Some(names) = names else { calls::give_up("a directory of the image is gone") };
        calls::for_each_name(fd, |name| self.add_name(fd, names, name));
        calls::for_each_name(names, |marked| {
            if !is_current(fd, marked) {
                calls::unlink(names, marked);
            }
        });
        calls::close(names);
        drop(lock);
        self.sweep();
    }

    fn add_name(&self, dir: c_int, names: c_int, name: &CStr) {
        // The file may be gone by now. It then counts as deleted before the sync.
        let Some(status) = calls::status_at(dir, name) else { return };
        let inode = status.st_ino;
        let number = Name::of_number(inode);
        let mut marked = Name::new();
        let mut mark = |mark: char| {
            marked.push(&[mark as u8]);
            marked.push_number(inode);
            marked.push(b"=");
            marked.push(name.to_bytes());
            if !marked.is_whole() {
                calls::give_up("a name is too long for the image");
            }
        };
        if calls::is_dir(&status) {
            mark(DIR_MARK);
            if let Some(fd) = calls::open_at(names, marked.as_c_str(), libc::O_CREAT | libc::O_WRONLY) {
                calls::close(fd);
            }
            calls::make_dir(self.dirs, number.as_c_str());
        } else if calls::is_file(&status) {
            mark(FILE_MARK);
            if let Some(path) = calls::open_at(dir, name, libc::O_PATH) {
                self.take(Name::of_descriptor(path).as_c_str(), inode);
                calls::close(path);
            }
            calls::link(self.files, number.as_c_str(), names, marked.as_c_str());
        }
    }

    /// Removes the files that have a name neither in the directory nor in the image.
    fn sweep(&self) {
        let _lock = calls::lock(self.dirs, c".");
        calls::for_each_name(self.pins, |name| {
            let links = |dir| calls::status_at(dir, name).map_or(1, |status| status.st_nlink);
            if links(self.pins) > 1 || links(self.files) > 1 {
                return;
            }
            calls::unlink(self.pins, name);
            calls::unlink(self.files, name);
            let inode = name.to_str().ok().and_then(|digits| digits.parse().ok());
            inode.into_iter().for_each(|inode| self.dirty.remove(inode));
        });
    }
}

/// Returns true if a name in the image still refers to the same file in the directory.
fn is_current(dir: c_int, marked: &CStr) -> bool {
    let bytes = marked.to_bytes_with_nul();
    let Some(equals) = bytes.iter().position(|&byte| byte == b'=') else { return false };
    let digits = std::str::from_utf8(bytes.get(1..equals).unwrap_or_default());
    let inode = digits.ok().and_then(|digits| digits.parse::<u64>().ok());
    let Ok(name) = CStr::from_bytes_with_nul(&bytes[equals + 1..]) else { return false };
    calls::status_at(dir, name).is_some_and(|status| Some(status.st_ino) == inode)
}
