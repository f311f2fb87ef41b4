//! The data directory: its owner, its format, and a lock so that only one process uses it.
//!
//! ```text
//! DIR/LOCK       flock held by the running store
//! DIR/KEYS       the data keys of an encrypted directory (`vault::Keyring`)
//! DIR/IDENTITY   format, store id, layout, secret key, cluster id, whether the
//!                store has begun (TOML; readable by its owner alone)
//! DIR/MEMBERS    the stores of the cluster and the agreed settings, as last heard (JSON)
//! DIR/FUNCTIONS  the libraries of functions, as last heard (JSON; `functions`)
//! DIR/UNSYNCED   the boot under which writes are not synced, unclean peers (JSON;
//!                `node::unsynced`)
//! DIR/CAPABILITY the measurements of the device (JSON; `capability::persisted`)
//! DIR/log/       the Raft log of all regions
//! DIR/rows/      RocksDB
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atrest::Vault;
use device::free_bytes;
use rustix::fs::{flock, FlockOperation};
use serde::{Deserialize, Serialize};
use types::{StoreId, Version, NEWEST_VERSION, OLDEST_VERSION};

use crate::members::AgreedMembers;
use crate::transport::keys::SecretKey;

/// The format of a directory is this number plus the cluster version that the directory records,
/// because the store may have written in that version. A program refuses a format that it does not
/// support.
const FORMAT_BEFORE: u32 = 4;

/// Minimum free bytes at start. Opening the engines writes a few small files, and RocksDB 7.8 with
/// assertions aborts if it cannot.
const START_BYTES_MIN: u64 = 2 << 20;

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("data directory {0} is in use by another process")]
    InUse(PathBuf),
    #[error(
        "data directory {dir} has format {found}, newer than this program's {}: a newer program prepared it for \
         version {} of the cluster, from which there is no way back. Start the newer program",
        format_of(NEWEST_VERSION), found.saturating_sub(FORMAT_BEFORE)
    )]
    NewerFormat { dir: PathBuf, found: u32 },
    #[error("data directory {dir} has format {found}, which this program cannot read")]
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
    #[error(transparent)]
    Encryption(#[from] atrest::Error),
    #[error("{path} cannot be read: {message}")]
    Unreadable { path: PathBuf, message: String },
}

fn format_of(version: Version) -> u32 {
    FORMAT_BEFORE + version
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Identity {
    /// See [`FORMAT_BEFORE`].
    pub format: u32,
    /// `None` until a joining store has received its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreId>,
    /// The cluster's initial stores, regions and replicas, as text; empty while `store` is `None`.
    #[serde(default)]
    pub layout: String,
    /// The secret key, generated with this directory and stored only here. A store with the same
    /// number and another key has lost the promises that this store made.
    pub secret: SecretKey,
    /// The cluster's id; 0 until it is known. It is stored as text because TOML's numbers have 63
    /// bits.
    #[serde(with = "hexadecimal", default)]
    pub cluster_id: u64,
    /// The cluster's answer to a store that joined. The store needs it before any other store has
    /// contacted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
    /// True if other stores may join, regardless of the list of stores.
    #[serde(default)]
    pub open: bool,
    /// True if the log has begun. The store may have voted since, so an empty log would mean that
    /// data was lost.
    #[serde(default)]
    pub initialised: bool,
}

/// Settings of the whole cluster.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Joined {
    pub cluster_enabled: bool,
    /// True if the store joined by a token, and did not state the cluster's password.
    #[serde(default)]
    pub by_token: bool,
}

mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{number:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
    }
}

/// An open data directory; the lock lasts as long as this value.
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    vault: Option<Arc<Vault>>,
    _lock: File,
}

const LOG: &str = "Raft log";
const ROWS: &str = "rows";

const LOCK: &str = "LOCK";
const IDENTITY: &str = "IDENTITY";
const MEMBERS: &str = "MEMBERS";
pub(crate) const FUNCTIONS: &str = "FUNCTIONS";
pub(crate) const UNSYNCED: &str = "UNSYNCED";
pub(crate) const CAPABILITY: &str = "CAPABILITY";
pub(crate) const AUDIT: &str = "AUDIT";
pub(crate) const DAMAGED: &str = "DAMAGED";
/// The small files, which are sealed if the directory is encrypted.
const SMALL: &[&str] = &[IDENTITY, MEMBERS, FUNCTIONS, UNSYNCED, CAPABILITY, AUDIT, DAMAGED];

impl DataDir {
    /// Opens or creates a directory that is not encrypted.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        DataDir::open_with(path, None)
    }

    /// Opens or creates the directory. A refusal changes nothing. With keys, files from before are
    /// read as they are, and new ones are encrypted. From here on until the process ends, the
    /// directory's files are read and written with the keys.
    pub fn open_with(path: &Path, keys: Option<&atrest::Settings>) -> Result<DataDir, DataDirError> {
        let at = |p: &Path| {
            let path = p.to_path_buf();
            move |source| DataDirError::Io { path, source }
        };
        fs::create_dir_all(path).map_err(at(path))?;
        let lock_path = path.join(LOCK);
        // A directory of another program does not even get a lock file.
        if !lock_path.exists() && is_foreign(path).map_err(at(path))? {
            return Err(DataDirError::Foreign { dir: path.to_path_buf() });
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(at(&lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| DataDirError::InUse(path.to_path_buf()))?;
        // The lock is held, so the files found from here on are not left over from another
        // process's first start in progress.
        if is_foreign(path).map_err(at(path))? {
            return Err(DataDirError::Foreign { dir: path.to_path_buf() });
        }
        let free = free_bytes(path).map_err(at(path))?;
        if free < START_BYTES_MIN {
            return Err(DataDirError::NoRoom { dir: path.to_path_buf(), free });
        }
        let identity_path = path.join(IDENTITY);
        if identity_path.exists() && atrest::key_of(&identity_path).map_err(at(&identity_path))?.is_none() {
            // A plain directory that is refused gets no keys.
            read_identity(path, &identity_path)?;
        }
        let vault = atrest::open(path, keys)?;
        let identity = match identity_path.exists() {
            true => read_identity(path, &identity_path)?,
            false => {
                let identity = Identity::new(SecretKey::draw().map_err(at(&identity_path))?);
                identity.write(path).map_err(at(&identity_path))?;
                identity
            }
        };
        if let Some(vault) = &vault {
            atrest::reseal(vault, SMALL).map_err(at(path))?;
            atrest::reseal_rows(vault, &path.join(ROWS)).map_err(at(path))?;
        }
        let dir = DataDir { path: path.to_path_buf(), identity, vault, _lock: lock };
        if dir.identity.initialised {
            for (part, lost) in [(dir.log_dir(), LOG), (dir.rows_dir(), ROWS)] {
                if !part.exists() {
                    return Err(dir.lost(lost));
                }
            }
        }
        Ok(dir)
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the keys, if the directory is encrypted.
    pub fn vault(&self) -> Option<&Arc<Vault>> {
        self.vault.as_ref()
    }

    /// Returns the version of the cluster for which the directory is prepared.
    pub fn version(&self) -> Version {
        self.identity.format - FORMAT_BEFORE
    }

    /// Records durably that the store may write in this version of the cluster. From then on a
    /// program that does not support it refuses the directory.
    pub fn prepare(&mut self, version: Version) -> Result<(), DataDirError> {
        if version <= self.version() {
            return Ok(());
        }
        self.change(|identity| identity.format = format_of(version))
    }

    /// Creates the directory's identity as this store, or checks that it already has it.
    pub fn claim(&mut self, store: StoreId, layout: &str, open: bool) -> Result<(), DataDirError> {
        let dir = self.path.clone();
        match self.identity.store {
            None => self.change(|identity| {
                identity.store = Some(store);
                identity.layout = layout.to_owned();
                identity.open = open;
            }),
            Some(found) if found != store => Err(DataDirError::OtherStore { dir, found, wanted: store }),
            Some(_) if self.identity.layout != layout => {
                let found = self.identity.layout.clone();
                Err(DataDirError::OtherLayout { dir, found, wanted: layout.to_owned() })
            }
            Some(_) if open && !self.identity.open => self.change(|identity| identity.open = true),
            Some(_) => Ok(()),
        }
    }

    /// Records that the cluster has admitted the store.
    pub fn joined(
        &mut self,
        store: StoreId,
        cluster_id: u64,
        layout: String,
        joined: Joined,
    ) -> Result<(), DataDirError> {
        self.change(|identity| {
            identity.store = Some(store);
            identity.cluster_id = cluster_id;
            identity.layout = layout;
            identity.joined = Some(joined);
            identity.open = true;
        })
    }

    /// Stores the cluster's id and the list of stores, if they are new.
    pub fn keep(&mut self, cluster_id: u64, members: &AgreedMembers) -> Result<(), DataDirError> {
        if cluster_id != self.identity.cluster_id {
            self.change(|identity| identity.cluster_id = cluster_id)?;
        }
        if self.members()?.version < members.version {
            self.keep_members(members)?;
        }
        Ok(())
    }

    fn change(&mut self, change: impl FnOnce(&mut Identity)) -> Result<(), DataDirError> {
        let mut identity = self.identity.clone();
        change(&mut identity);
        let path = self.path.join(IDENTITY);
        identity.write(&self.path).map_err(|source| DataDirError::Io { path, source })?;
        self.identity = identity;
        Ok(())
    }

    /// Returns the stored list of stores.
    pub fn members(&self) -> Result<AgreedMembers, DataDirError> {
        let path = self.path.join(MEMBERS);
        let text = match atrest::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(AgreedMembers::default()),
            Err(source) => return Err(DataDirError::Io { path, source }),
        };
        serde_json::from_slice(&text)
            .map_err(|error| DataDirError::Unreadable { path, message: error.to_string() })
    }

    pub fn keep_members(&self, members: &AgreedMembers) -> Result<(), DataDirError> {
        let text = serde_json::to_string_pretty(members).expect("plain data");
        let path = self.path.join(MEMBERS);
        // It holds digests of passwords, which can be guessed at.
        atrest::write_with_mode(&path, text, 0o600).map_err(|source| DataDirError::Io { path, source })
    }

    /// Records that the log has begun: see `Identity::initialised`. Must be called after the log
    /// has begun.
    pub fn initialised(&mut self) -> Result<(), DataDirError> {
        if self.identity.initialised {
            return Ok(());
        }
        self.change(|identity| identity.initialised = true)
    }

    /// Checks that an empty log is allowed. It is allowed only before the log is first written.
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

    pub fn snapshot_dir(&self) -> PathBuf {
        self.path.join("snapshots")
    }

    pub fn rows_dir(&self) -> PathBuf {
        self.path.join("rows")
    }
}

impl Identity {
    fn new(secret: SecretKey) -> Identity {
        Identity {
            format: format_of(OLDEST_VERSION),
            store: None,
            layout: String::new(),
            secret,
            cluster_id: 0,
            joined: None,
            open: false,
            initialised: false,
        }
    }

    fn write(&self, dir: &Path) -> io::Result<()> {
        atrest::write_with_mode(&dir.join(IDENTITY), toml::to_string(self).expect("plain data"), 0o600)
    }
}

fn read_identity(dir: &Path, file: &Path) -> Result<Identity, DataDirError> {
    let text = atrest::read_to_string(file)
        .map_err(|source| DataDirError::Io { path: file.to_path_buf(), source })?;
    let unreadable = |message: String| DataDirError::Unreadable { path: file.to_path_buf(), message };
    // The version is read first, because the rest of a newer format may differ.
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| unreadable(e.message().into()))?;
    let found = table.get("format").and_then(toml::Value::as_integer).unwrap_or(0);
    let found = u32::try_from(found).map_err(|_| unreadable(format!("format = {found}")))?;
    let dir = dir.to_path_buf();
    if found > format_of(NEWEST_VERSION) {
        return Err(DataDirError::NewerFormat { dir, found });
    }
    if found < format_of(OLDEST_VERSION) {
        return Err(DataDirError::WrongFormat { dir, found });
    }
    toml::from_str(&text).map_err(|e: toml::de::Error| unreadable(e.message().into()))
}

/// Returns true if there are files but no identity. An interrupted first start leaves only the
/// lock, and perhaps keys and an identity, also under their temporary names.
fn is_foreign(dir: &Path) -> io::Result<bool> {
    let unnamed = [IDENTITY, atrest::KEYS].map(|name| durable::temporary(Path::new(name)));
    let mut others = false;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name == IDENTITY {
            return Ok(false);
        }
        others |=
            name != LOCK && name != atrest::KEYS && unnamed.iter().all(|unnamed| name != unnamed.as_os_str());
    }
    Ok(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(dir: &Path, store: StoreId, layout: &str) -> Result<DataDir, DataDirError> {
        let mut data = DataDir::open(dir)?;
        data.claim(store, layout, false).map(|()| data)
    }

    #[test]
    fn a_directory_keeps_its_key_and_what_it_was_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut data = DataDir::open(dir.path()).unwrap();
        let key = data.identity().secret.public();
        drop(data);
        data = DataDir::open(dir.path()).unwrap();
        assert_eq!(
            (data.identity().store, data.identity().secret.public()),
            (None, key),
            "the store may ask again"
        );
        let joined = Joined { cluster_enabled: true, by_token: true };
        data.joined(4, u64::MAX, "three".into(), joined.clone()).unwrap();
        let members = AgreedMembers { version: 9, ..Default::default() };
        data.keep_members(&members).unwrap();
        drop(data);
        let data = DataDir::open(dir.path()).unwrap();
        let identity = data.identity();
        assert_eq!((identity.store, identity.cluster_id), (Some(4), u64::MAX));
        assert_eq!(identity.secret.public(), key);
        assert_eq!(identity.joined, Some(joined));
        assert_eq!(data.members().unwrap(), members);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(DataDir::open(other.path()).unwrap().identity().secret.public(), key);
    }

    #[test]
    fn a_secret_is_its_owners_alone_to_read() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        // An interrupted start may have left this file, with the mode of other files.
        fs::write(dir.path().join(".IDENTITY.new"), "form").unwrap();
        let mut data = claim(dir.path(), 2, "three").unwrap();
        let mode = |name| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("IDENTITY"), 0o600);
        data.keep(7, &AgreedMembers { version: 1, ..Default::default() }).unwrap();
        assert_eq!(mode("IDENTITY"), 0o600);
        let kept = fs::read_to_string(dir.path().join("IDENTITY")).unwrap();
        let secret = kept.lines().find_map(|line| line.strip_prefix("secret = ")).unwrap().trim_matches('"');
        assert_eq!(secret.len(), 64);
        assert!(!fs::read_to_string(dir.path().join("MEMBERS")).unwrap().contains(secret));
        assert!(!format!("{:?}", data.identity()).contains(secret));
    }

    #[test]
    fn a_directory_keeps_its_store_and_layout() {
        let dir = tempfile::tempdir().unwrap();
        drop(claim(dir.path(), 2, "three").unwrap());
        drop(claim(dir.path(), 2, "three").unwrap());
        let other = claim(dir.path(), 1, "three").err().unwrap();
        assert!(matches!(other, DataDirError::OtherStore { found: 2, wanted: 1, .. }), "{other}");
        let other = claim(dir.path(), 2, "five").err().unwrap();
        assert!(matches!(other, DataDirError::OtherLayout { .. }), "{other}");
    }

    #[test]
    fn a_second_opener_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = claim(dir.path(), 0, "one").unwrap();
        let second = claim(dir.path(), 0, "one").err().unwrap();
        assert!(second.to_string().ends_with("is in use by another process"), "{second}");
    }

    #[test]
    fn a_newer_format_and_foreign_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("IDENTITY"), "format = 99\nunheard = 'of'\n").unwrap();
        let newer = claim(dir.path(), 0, "one").err().unwrap();
        assert!(matches!(newer, DataDirError::NewerFormat { found: 99, .. }), "{newer}");

        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("photo.jpg"), "x").unwrap();
        let foreign = claim(dir.path(), 0, "one").err().unwrap();
        assert!(matches!(foreign, DataDirError::Foreign { .. }), "{foreign}");
    }

    #[test]
    fn a_directory_is_prepared_for_a_version_and_never_for_an_older_one_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut data = claim(dir.path(), 0, "one").unwrap();
        assert_eq!(data.version(), OLDEST_VERSION);
        data.prepare(NEWEST_VERSION).unwrap();
        data.prepare(OLDEST_VERSION).unwrap();
        drop(data);
        let mut data = claim(dir.path(), 0, "one").unwrap();
        assert_eq!(data.version(), NEWEST_VERSION);
        data.prepare(NEWEST_VERSION + 1).unwrap();
        drop(data);
        let newer = claim(dir.path(), 0, "one").err().unwrap().to_string();
        assert!(newer.contains("no way back"), "{newer}");
    }

    #[test]
    fn a_first_start_that_was_cut_short_is_begun_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("LOCK"), "").unwrap();
        fs::write(dir.path().join(".IDENTITY.new"), "form").unwrap();
        drop(claim(dir.path(), 3, "one").unwrap());
        let other = claim(dir.path(), 1, "one").err().unwrap();
        assert!(matches!(other, DataDirError::OtherStore { found: 3, .. }), "{other}");
    }

    #[test]
    fn of_two_first_starts_one_is_told_that_the_other_is_there() {
        let dir = tempfile::tempdir().unwrap();
        // The other start has the lock and some files, but no identity yet.
        let lock = File::create(dir.path().join("LOCK")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        fs::write(dir.path().join("unfinished"), "").unwrap();
        let second = claim(dir.path(), 0, "one").err().unwrap();
        assert!(matches!(second, DataDirError::InUse(_)), "{second}");
        assert!(!dir.path().join("IDENTITY").exists());
    }

    #[test]
    fn a_store_that_has_begun_does_not_begin_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut data = claim(dir.path(), 0, "one").unwrap();
        assert!(data.allow_empty_log().is_ok());
        fs::create_dir(data.log_dir()).unwrap();
        fs::create_dir(data.rows_dir()).unwrap();
        data.initialised().unwrap();
        drop(data);

        let data = claim(dir.path(), 0, "one").unwrap();
        assert!(matches!(data.allow_empty_log(), Err(DataDirError::Lost { lost: LOG, .. })));
        let parts = [(data.log_dir(), LOG), (data.rows_dir(), ROWS)];
        drop(data);
        for (part, name) in parts {
            fs::rename(&part, dir.path().join("elsewhere")).unwrap();
            let lost = claim(dir.path(), 0, "one").err().unwrap();
            assert!(matches!(lost, DataDirError::Lost { lost, .. } if lost == name), "{lost}");
            assert!(!part.exists(), "nothing was created");
            fs::rename(dir.path().join("elsewhere"), &part).unwrap();
        }
    }
}
