//! The data directory: who it belongs to, in which format, and that only one process uses it.
//!
//! ```text
//! DIR/LOCK       flock held by the running store
//! DIR/IDENTITY   format version, store id, layout, whether the store has begun (TOML)
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

/// Opening the engines writes a few small files. RocksDB 7.8 built with assertions aborts where it cannot.
const START_BYTES_MIN: u64 = 2 << 20;

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
    #[error(
        "data directory {dir} has lost its {lost}, and with it what the store has promised: it must not come \
         back as if it were new"
    )]
    Lost { dir: PathBuf, lost: &'static str },
    #[error(
        "data directory {dir} has {free} bytes of room, and the engines need {START_BYTES_MIN} to start"
    )]
    NoRoom { dir: PathBuf, free: u64 },
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
    /// The log has held this store's peers, who may have voted: from then on a log without them is a loss.
    #[serde(default)]
    pub initialised: bool,
}

/// An open data directory; the lock lasts as long as this value.
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    _lock: File,
}

const LOG: &str = "Raft log";
const ROWS: &str = "rows";

const LOCK: &str = "LOCK";
const IDENTITY: &str = "IDENTITY";

impl DataDir {
    /// Opens or creates the directory for this store. Nothing is changed when it is refused.
    pub fn open(path: &Path, store: StoreId, layout: &str) -> Result<DataDir, DataDirError> {
        let at = |p: &Path| {
            let path = p.to_path_buf();
            move |source| DataDirError::Io { path, source }
        };
        fs::create_dir_all(path).map_err(at(path))?;
        let lock_path = path.join(LOCK);
        // A directory of somebody else's does not even get a lock file.
        if !lock_path.exists() && is_foreign(path).map_err(at(path))? {
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
        // What is found from here on is not the unfinished work of another first start.
        if is_foreign(path).map_err(at(path))? {
            return Err(DataDirError::Foreign { dir: path.to_path_buf() });
        }
        let free = space(path).map_err(at(path))?.free;
        if free < START_BYTES_MIN {
            return Err(DataDirError::NoRoom { dir: path.to_path_buf(), free });
        }
        let identity_path = path.join(IDENTITY);
        let identity = if identity_path.exists() {
            check_identity(path, &identity_path, store, layout)?
        } else {
            let identity =
                Identity { format: FORMAT_VERSION, store, layout: layout.to_owned(), initialised: false };
            identity.write(path).map_err(at(&identity_path))?;
            identity
        };
        let dir = DataDir { path: path.to_path_buf(), identity, _lock: lock };
        if dir.identity.initialised {
            for (part, lost) in [(dir.log_dir(), LOG), (dir.rows_dir(), ROWS)] {
                if !part.exists() {
                    return Err(dir.lost(lost));
                }
            }
        }
        Ok(dir)
    }

    /// To be called with what the log holds, once that is this store's peers: see `Identity::initialised`.
    pub fn initialised(&mut self) -> Result<(), DataDirError> {
        if self.identity.initialised {
            return Ok(());
        }
        self.identity.initialised = true;
        let path = self.path.join(IDENTITY);
        self.identity.write(&self.path).map_err(|source| DataDirError::Io { path, source })
    }

    /// Whether the log may be empty: before the store's peers were written there for the first time.
    pub fn allow_empty_log(&self) -> Result<(), DataDirError> {
        match self.identity.initialised {
            true => Err(self.lost(LOG)),
            false => Ok(()),
        }
    }

    fn lost(&self, lost: &'static str) -> DataDirError {
        DataDirError::Lost { dir: self.path.clone(), lost }
    }

    pub fn log_dir(&self) -> PathBuf {
        self.path.join("log")
    }

    pub fn rows_dir(&self) -> PathBuf {
        self.path.join("rows")
    }
}

impl Identity {
    fn write(&self, dir: &Path) -> io::Result<()> {
        write_durably(dir, IDENTITY, &toml::to_string(self).expect("plain data"))
    }
}

fn check_identity(dir: &Path, file: &Path, store: StoreId, layout: &str) -> Result<Identity, DataDirError> {
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
    Ok(identity)
}

/// Whether there are files, and nothing that says whose. A first start that was cut short leaves the lock, and
/// perhaps an identity that never got its name.
fn is_foreign(dir: &Path) -> io::Result<bool> {
    let unnamed = temporary_name(IDENTITY);
    let mut others = false;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name == IDENTITY {
            return Ok(false);
        }
        others |= name != LOCK && name.to_str() != Some(&unnamed);
    }
    Ok(others)
}

fn temporary_name(name: &str) -> String {
    format!(".{name}.new")
}

/// Writes a small file so that after a crash it is there whole or not at all.
fn write_durably(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let temporary = dir.join(temporary_name(name));
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
    #[test]
    fn a_first_start_that_was_cut_short_is_begun_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("LOCK"), "").unwrap();
        fs::write(dir.path().join(".IDENTITY.new"), "form").unwrap();
        drop(DataDir::open(dir.path(), 3, "one").unwrap());
        let other = DataDir::open(dir.path(), 1, "one").err().unwrap();
        assert!(matches!(other, DataDirError::OtherStore { found: 3, .. }), "{other}");
    }

    #[test]
    fn of_two_first_starts_one_is_told_that_the_other_is_there() {
        let dir = tempfile::tempdir().unwrap();
        // The other has the lock and not yet an identity, but other files already.
        let lock = File::create(dir.path().join("LOCK")).unwrap();
        // SAFETY: the descriptor is open for as long as `lock` lives.
        assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
        fs::write(dir.path().join("unfinished"), "").unwrap();
        let second = DataDir::open(dir.path(), 0, "one").err().unwrap();
        assert!(matches!(second, DataDirError::InUse(_)), "{second}");
        assert!(!dir.path().join("IDENTITY").exists());
    }

    #[test]
    fn a_store_that_has_begun_does_not_begin_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut data = DataDir::open(dir.path(), 0, "one").unwrap();
        assert!(data.allow_empty_log().is_ok());
        fs::create_dir(data.log_dir()).unwrap();
        fs::create_dir(data.rows_dir()).unwrap();
        data.initialised().unwrap();
        drop(data);

        let data = DataDir::open(dir.path(), 0, "one").unwrap();
        assert!(matches!(data.allow_empty_log(), Err(DataDirError::Lost { lost: LOG, .. })));
        let parts = [(data.log_dir(), LOG), (data.rows_dir(), ROWS)];
        drop(data);
        for (part, name) in parts {
            fs::rename(&part, dir.path().join("elsewhere")).unwrap();
            let lost = DataDir::open(dir.path(), 0, "one").err().unwrap();
            assert!(matches!(lost, DataDirError::Lost { lost, .. } if lost == name), "{lost}");
            assert!(!part.exists(), "nothing was made anew");
            fs::rename(dir.path().join("elsewhere"), &part).unwrap();
        }
    }
}
