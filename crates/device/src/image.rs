//! The image: the part of a directory that would survive a loss of power at this moment.
//!
//! A store's process runs under the preload library, which copies into the image only what the
//! process syncs: a file's bytes when the file is synced, and a directory's names when the
//! directory is synced. After all processes were killed, [`Image::lose_power`] puts the directory
//! into a state that a power loss could have left. `docs/DEVICES.md` defines these states.
//!
//! ```text
//! IMAGE/dirty            the pages of each file that were written since its last sync
//! IMAGE/files/INODE      a file as it was last synced
//! IMAGE/pins/INODE       a link to the file itself, so that its number and bytes outlive its names
//! IMAGE/dirs/INODE/      a directory as it was last synced: an empty file or link for each name
//!     fINODE=NAME            a file, a link to files/INODE
//!     dINODE=NAME            a directory
//! ```
//!
//! Everything is identified by inode number. So a rename has no effect until its directory is
//! synced. The pins prevent the reuse of an inode number that the image refers to.

mod dirty;
mod loss;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub use dirty::{DirtyTable, Slot, PAGE_BYTES, TABLE_BYTES};
pub use loss::Survival;

pub const DIRTY: &str = "dirty";
pub const FILES: &str = "files";
pub const PINS: &str = "pins";
pub const DIRS: &str = "dirs";

/// Prefixes of the names in a directory of the image: one for files, one for directories.
pub const FILE_MARK: char = 'f';
pub const DIR_MARK: char = 'd';

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("image {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is neither a file nor a directory, and an image can hold nothing else", path = path.display())]
    Strange { path: PathBuf },
    #[error("image {path} is damaged: {what}", path = path.display())]
    Damaged { path: PathBuf, what: String },
}

type Result<T> = std::result::Result<T, ImageError>;

fn at(path: &Path) -> impl FnOnce(io::Error) -> ImageError + '_ {
    move |source| ImageError::Io { path: path.to_owned(), source }
}

/// The image of one directory. Both must be on the same file system, with the image outside the
/// directory.
#[derive(Clone, Debug)]
pub struct Image {
    path: PathBuf,
    root: PathBuf,
}

impl Image {
    /// Creates an image in which the current contents of `root` count as synced. No process may be
    /// using `root`.
    pub fn create(path: &Path, root: &Path) -> Result<Image> {
        let image = Image { path: path.to_owned(), root: root.to_owned() };
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(path)(error)),
            _ => {}
        }
        for part in [FILES, PINS, DIRS] {
            let part = path.join(part);
            fs::create_dir_all(&part).map_err(at(&part))?;
        }
        let dirty = path.join(DIRTY);
        let table = File::create(&dirty).map_err(at(&dirty))?;
        table.set_len(TABLE_BYTES as u64).map_err(at(&dirty))?;
        image.take_in(root)?;
        Ok(image)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn file(&self, inode: u64) -> PathBuf {
        self.path.join(FILES).join(inode.to_string())
    }

    fn pin(&self, inode: u64) -> PathBuf {
        self.path.join(PINS).join(inode.to_string())
    }

    fn dir(&self, inode: u64) -> PathBuf {
        self.path.join(DIRS).join(inode.to_string())
    }

    fn take_in(&self, dir: &Path) -> Result<()> {
        let inode = fs::metadata(dir).map_err(at(dir))?.ino();
        let names = self.dir(inode);
        fs::create_dir_all(&names).map_err(at(&names))?;
        for entry in fs::read_dir(dir).map_err(at(dir))? {
            let entry = entry.map_err(at(dir))?;
            let path = entry.path();
            let metadata = entry.metadata().map_err(at(&path))?;
            let inode = metadata.ino();
            let name = names.join(image_name(metadata.is_dir(), inode, &entry.file_name()));
            if metadata.is_dir() {
                File::create(&name).map_err(at(&name))?;
                self.take_in(&path)?;
            } else if metadata.is_file() {
                let (file, pin) = (self.file(inode), self.pin(inode));
                if !pin.exists() {
                    fs::hard_link(&path, &pin).map_err(at(&pin))?;
                    fs::copy(&path, &file).map_err(at(&file))?;
                }
                fs::hard_link(&file, &name).map_err(at(&name))?;
            } else {
                return Err(ImageError::Strange { path });
            }
        }
        Ok(())
    }

    fn dirty_table(&self) -> Result<DirtyTable> {
        let path = self.path.join(DIRTY);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(at(&path))?;
        DirtyTable::map(&file).map_err(at(&path))
    }
}

fn image_name(is_dir: bool, inode: u64, name: &std::ffi::OsStr) -> std::ffi::OsString {
    let mut marked = std::ffi::OsString::from(if is_dir { DIR_MARK } else { FILE_MARK }.to_string());
    marked.push(inode.to_string());
    marked.push("=");
    marked.push(name);
    marked
}

/// Decodes a name into a flag for a directory, the inode number and the name.
fn parse_image_name(name: &std::ffi::OsStr) -> Option<(bool, u64, &std::ffi::OsStr)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = name.as_bytes();
    let equals = bytes.iter().position(|&byte| byte == b'=')?;
    let (mark, digits) = bytes[..equals].split_first()?;
    let is_dir = match char::from(*mark) {
        DIR_MARK => true,
        FILE_MARK => false,
        _ => return None,
    };
    let inode = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((is_dir, inode, std::ffi::OsStr::from_bytes(&bytes[equals + 1..])))
}

#[cfg(test)]
mod tests;
