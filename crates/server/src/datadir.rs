//! The data directory: who it belongs to, in which format, and that only one process uses it.
//!
//! ```text
//! DIR/LOCK       flock held by the running store
//! DIR/IDENTITY   format version, cluster id, store id, layout digest (TOML, written once)
//! DIR/log/       the Raft log of all regions
//! DIR/rows/      RocksDB
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use types::StoreId;

/// Version of everything under the data directory. A newer one is refused, an older one is migrated
/// or refused by name.
pub const FORMAT_VERSION: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("data directory {0} is in use by another process")]
    InUse(PathBuf),
    #[error("data directory {dir} has format version {found}, newer than this program's {FORMAT_VERSION}")]
    NewerFormat { dir: PathBuf, found: u32 },
    #[error("data directory {dir} has format version {found}, which this program cannot read")]
    WrongFormat { dir: PathBuf, found: u32 },
    #[error("data directory {dir} belongs to store {found}, not to store {wanted}")]
    OtherStore { dir: PathBuf, found: StoreId, wanted: StoreId },
    #[error("data directory {dir} was made for another layout: {found}; the configuration says {wanted}")]
    OtherLayout { dir: PathBuf, found: String, wanted: String },
    #[error("data directory {dir} is not empty and holds no IDENTITY file")]
    Foreign { dir: PathBuf },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} cannot be read: {message}")]
    Unreadable { path: PathBuf, message: String },
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Identity {
    pub format: u32,
    pub store: StoreId,
    /// Stores, regions and replicas at bootstrap, in words: membership is static, so it must not change.
    pub layout: String,
}

/// An open data directory; the lock lasts as long as this value.
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Opens or creates the directory for this store. Nothing is changed when it is refused.
    pub fn open(path: &Path, store: StoreId, layout: &str) -> Result<DataDir, DataDirError> {
        let at = |p: &Path| {
            let path = p.to_path_buf();
            move |source| DataDirError::Io { path, source }
        };
        fs::create_dir_all(path).map_err(at(path))?;
        let lock_path = path.join("LOCK");
        let identity_path = path.join("IDENTITY");
        let fresh = !identity_path.exists();
        if fresh && holds_foreign_files(path).map_err(at(path))? {
            return Err(DataDirError::Foreign { dir: path.to_path_buf() });
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(at(&lock_path))?;
        // SAFETY: the descriptor is open for as long as `lock` lives.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(DataDirError::InUse(path.to_path_buf()));
        }
        if fresh {
            let identity = Identity { format: FORMAT_VERSION, store, layout: layout.to_owned() };
            write_durably(path, "IDENTITY", &toml::to_string(&identity).expect("plain data"))
                .map_err(at(&identity_path))?;
        } else {
            check_identity(path, &identity_path, store, layout)?;
        }
        Ok(DataDir { path: path.to_path_buf(), _lock: lock })
    }

    pub fn log_dir(&self) -> PathBuf {
        self.path.join("log")
    }

    pub fn rows_dir(&self) -> PathBuf {
        self.path.join("rows")
    }
}

fn check_identity(dir: &Path, file: &Path, store: StoreId, layout: &str) -> Result<(), DataDirError> {
    let text =
        fs::read_to_string(file).map_err(|source| DataDirError::Io { path: file.to_path_buf(), source })?;
    let unreadable = |message: String| DataDirError::Unreadable { path: file.to_path_buf(), message };
    // The version is read alone first: a newer format may hold anything else.
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| unreadable(e.message().into()))?;
    let found = table.get("format").and_then(toml::Value::as_integer).unwrap_or(0);
    let found = u32::try_from(found).map_err(|_| unreadable(format!("format = {found}")))?;
    let dir = dir.to_path_buf();
    if found > FORMAT_VERSION {
        return Err(DataDirError::NewerFormat { dir, found });
    }
    if found < FORMAT_VERSION {
        return Err(DataDirError::WrongFormat { dir, found });
    }
    let identity: Identity = toml::from_str(&text).map_err(|e| unreadable(e.message().into()))?;
    if identity.store != store {
        return Err(DataDirError::OtherStore { dir, found: identity.store, wanted: store });
    }
    if identity.layout != layout {
        return Err(DataDirError::OtherLayout { dir, found: identity.layout, wanted: layout.to_owned() });
    }
    Ok(())
}

fn holds_foreign_files(dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(dir)? {
        if entry?.file_name() != "LOCK" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes a small file so that after a crash it is there whole or not at all.
fn write_durably(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let temporary = dir.join(format!(".{name}.new"));
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(name))?;
    File::open(dir)?.sync_all()
}

/// Bytes that an unprivileged writer may still use on the directory's device, and its size.
pub fn space(dir: &Path) -> io::Result<Space> {
    let path = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes())?;
    // SAFETY: an all-zero statvfs is a valid value of that plain C struct.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a C string and `stat` a valid place for the answer.
    if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let unit = stat.f_frsize;
    Ok(Space { free: stat.f_bavail.saturating_mul(unit), total: stat.f_blocks.saturating_mul(unit) })
}

#[derive(Clone, Copy, Debug)]
pub struct Space {
    pub free: u64,
    pub total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_store_and_layout() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), 2, "three").unwrap());
        drop(DataDir::open(dir.path(), 2, "three").unwrap());
        let other = DataDir::open(dir.path(), 1, "three").err().unwrap();
        assert!(matches!(other, DataDirError::OtherStore { found: 2, wanted: 1, .. }), "{other}");
        let other = DataDir::open(dir.path(), 2, "five").err().unwrap();
        assert!(matches!(other, DataDirError::OtherLayout { .. }), "{other}");
    }

    #[test]
    fn a_second_opener_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = DataDir::open(dir.path(), 0, "one").unwrap();
        let second = DataDir::open(dir.path(), 0, "one").err().unwrap();
        assert!(second.to_string().ends_with("is in use by another process"), "{second}");
    }

    #[test]
    fn a_newer_format_and_foreign_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("IDENTITY"), "format = 99\nunheard = 'of'\n").unwrap();
        let newer = DataDir::open(dir.path(), 0, "one").err().unwrap();
        assert!(matches!(newer, DataDirError::NewerFormat { found: 99, .. }), "{newer}");

        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("photo.jpg"), "x").unwrap();
        let foreign = DataDir::open(dir.path(), 0, "one").err().unwrap();
        assert!(matches!(foreign, DataDirError::Foreign { .. }), "{foreign}");
    }
}
