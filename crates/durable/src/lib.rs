//! Small files that are replaced whole and durably. After a crash such a file has either its old or
//! its new content.
//!
//! The calls go through libc, so that the preload library of emulated devices sees them.

#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{fchown, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Replaces the file at `path`, or creates it. It has the new content, durably, on return.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    write_with_mode(path, content, 0o666)
}

/// Writes like [`write`], and gives the file this mode without the bits of the process's umask.
pub fn write_with_mode(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    write_as(path, content.as_ref(), mode, |_| Ok(()))
}

/// Replaces the file at `path`, which keeps its owner, group and mode. Fails if this process may
/// not give them to a file.
pub fn replace(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let old = fs::metadata(path)?;
    write_as(path, content.as_ref(), 0o600, |file| {
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(old.permissions())
    })
}

fn write_as(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path);
    // A file that a crash left behind may have another mode.
    let _ = fs::remove_file(&temporary);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        prepare(&file)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    sync_dir(dir_of(path))
}

/// Returns the name under which the new content is written until it is complete.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

/// Makes the directory's entries durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Returns the directory that holds the file.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_lies_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("MARK");
        write(&path, "a long first text").unwrap();
        write(&path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_remains_of_a_crash_give_a_file_neither_content_nor_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("SECRET");
        fs::write(dir.path().join(".SECRET.new"), "a text that was cut short").unwrap();
        write_with_mode(&path, "key", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "key");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_mode_and_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings");
        assert!(replace(&path, "new").is_err(), "there is nothing to replace");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        // Only root can give a file away.
        let given = fchown(File::open(&path).unwrap(), Some(65_534), Some(65_534)).is_ok();
        replace(&path, "new").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap().as_str(), metadata.permissions().mode() & 0o777),
            ("new", 0o666)
        );
        assert!(!given || (metadata.uid(), metadata.gid()) == (65_534, 65_534));
    }

    #[test]
    fn a_failure_leaves_the_old_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a directory is in the way");
        fs::create_dir_all(path.join("of the file")).unwrap();
        assert!(write(&path, "text").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write(&dir.path().join("none/file"), "text").is_err());
    }

    #[test]
    fn a_name_alone_is_a_file_of_the_working_directory() {
        assert_eq!(dir_of(Path::new("MARK")), Path::new("."));
        assert_eq!(temporary(Path::new("MARK")), Path::new(".MARK.new"));
        assert_eq!(temporary(Path::new("dir/MARK")), Path::new("dir/.MARK.new"));
    }
}
