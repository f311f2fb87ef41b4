//! The table of directories in use, with their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use vault::{small, Key, KeyNumber, Keyring, Prefix, Salt, KEY_BYTES, SALT_BYTES};

use crate::error::Error;
use crate::master::Settings;

/// The name of the file with the data keys.
pub const KEYS: &str = "KEYS";

static VAULTS: RwLock<Vec<(PathBuf, Arc<Vault>)>> = RwLock::new(Vec::new());

/// The data keys of a directory.
pub struct Vault {
    dir: PathBuf,
    settings: Settings,
    keyring: RwLock<Arc<Keyring>>,
    /// Held while KEYS is replaced.
    changing: Mutex<()>,
}

/// The bytes of a directory's files, by data key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of files that are not encrypted and will be.
    pub plain_bytes: u64,
    pub bytes_of_keys: BTreeMap<KeyNumber, u64>,
}

/// The master key that a change of KEYS may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Master {
    /// The one with which KEYS is sealed.
    Unchanged,
    Any,
}

/// Adds a directory to the table.
pub(crate) fn register(dir: &Path, settings: &Settings, keyring: Keyring) -> io::Result<Arc<Vault>> {
    let dir = std::path::absolute(dir)?;
    let (keyring, settings) = (RwLock::new(Arc::new(keyring)), settings.clone());
    let vault = Arc::new(Vault { dir: dir.clone(), settings, keyring, changing: Mutex::new(()) });
    VAULTS.write().push((dir, vault.clone()));
    Ok(vault)
}

/// Removes a directory from the table. Its files are plain from then on, so nothing may use it any
/// more.
pub fn forget(dir: &Path) {
    if let Ok(dir) = std::path::absolute(dir) {
        VAULTS.write().retain(|(registered, _)| *registered != dir);
    }
}

/// Returns the vault of the directory that contains the path.
pub fn vault_of(path: &Path) -> Option<Arc<Vault>> {
    let vaults = VAULTS.read();
    if vaults.is_empty() {
        return None;
    }
    let path = std::path::absolute(path).ok()?;
    vaults.iter().find(|(dir, _)| path.starts_with(dir)).map(|(_, vault)| vault.clone())
}

impl Vault {
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn keyring(&self) -> Arc<Keyring> {
        self.keyring.read().clone()
    }

    /// Makes a new data key and returns its number. New files use it. It is durable on return.
    pub fn rotate(&self) -> Result<KeyNumber, Error> {
        self.change(Master::Unchanged, |keyring| {
            keyring.rotated(draw_key().map_err(|source| self.at(source))?).map_err(|why| self.refused(why))
        })
    }

    /// Seals the data keys with the master key as it is now. Fails, and changes nothing, if the
    /// master key cannot be fetched.
    pub fn rewrap(&self) -> Result<KeyNumber, Error> {
        self.change(Master::Any, |keyring| Ok(keyring.clone()))
    }

    /// Drops data keys that no file has, and none will get. The active key stays.
    pub fn drop_keys(&self, unused: &BTreeSet<KeyNumber>) -> Result<KeyNumber, Error> {
        self.change(Master::Unchanged, |keyring| {
            Ok(keyring.reduced(&keyring.numbers().filter(|number| !unused.contains(number)).collect()))
        })
    }

    fn change(
        &self,
        of_master: Master,
        change: impl FnOnce(&Keyring) -> Result<Keyring, Error>,
    ) -> Result<KeyNumber, Error> {
        let _alone = self.changing.lock();
        let keyring = change(&self.keyring())?;
        let master = self.settings.key.fetch()?;
        if of_master == Master::Unchanged {
            let bytes = fs::read(self.dir.join(KEYS)).map_err(|source| self.at(source))?;
            Keyring::open(&bytes, &master).map_err(|why| self.refused(why))?;
        }
        write_keys(&self.dir, &keyring, &master).map_err(|source| self.at(source))?;
        let active = keyring.active().0;
        *self.keyring.write() = Arc::new(keyring);
        Ok(active)
    }

    fn at(&self, source: io::Error) -> Error {
        Error::Io { path: self.dir.join(KEYS), source }
    }

    fn refused(&self, why: vault::KeyringError) -> Error {
        Error::Keys { path: self.dir.join(KEYS), why }
    }

    /// Returns true for files that are plain on purpose: KEYS, which is sealed with the master key,
    /// the locks, and the marks of the log.
    fn is_exempt(&self, path: &Path) -> bool {
        let log = self.dir.join("log");
        let is_of = |dir: &Path, names: &[&str]| names.iter().any(|name| path == dir.join(name));
        is_of(&self.dir, &[KEYS, "LOCK"]) || is_of(&log, &["LOG", "SYNCED", "FIRST", "LOCK"])
    }

    /// Reads the beginning of every file of the directory. Files that disappear meanwhile do not
    /// count.
    pub fn usage(&self) -> io::Result<Usage> {
        let mut usage = Usage::default();
        let mut dirs = vec![self.dir.clone()];
        while let Some(dir) = dirs.pop() {
            let entries = match fs::read_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let path = entry?.path();
                let facts = match fs::metadata(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    facts => facts?,
                };
                if facts.is_dir() {
                    dirs.push(path);
                } else if facts.is_file() && facts.len() > 0 && !self.is_exempt(&path) {
                    usage.add(&path, facts.len())?;
                }
            }
        }
        Ok(usage)
    }
}

impl Usage {
    /// Returns the bytes of the files that are plain or have another key than the active one.
    pub fn outdated_bytes(&self, active: KeyNumber) -> u64 {
        let encrypted = self.bytes_of_keys.iter().filter(|(key, _)| **key != active);
        self.plain_bytes + encrypted.map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn add(&mut self, path: &Path, bytes: u64) -> io::Result<()> {
        let key = match key_of(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            key => key?,
        };
        match key {
            Some(number) => *self.bytes_of_keys.entry(number).or_default() += bytes,
            None => self.plain_bytes += bytes,
        }
        Ok(())
    }
}

/// Returns the number of the data key that a file has; `None` if it is plain.
pub fn key_of(path: &Path) -> io::Result<Option<KeyNumber>> {
    let head = head_of(path)?;
    Ok(Prefix::peek(&head).or_else(|| small::peek(&head)))
}

pub(crate) fn head_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    fs::File::open(path)?.take(64).read_to_end(&mut head)?;
    Ok(head)
}

pub(crate) fn begins(path: &Path, is_it: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
    match head_of(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        head => Ok(is_it(&head?)),
    }
}

pub(crate) fn write_keys(dir: &Path, keyring: &Keyring, master: &Key) -> io::Result<()> {
    let mut nonce = [0; 12];
    draw(&mut nonce)?;
    durable::write_with_mode(&dir.join(KEYS), keyring.seal(master, nonce), 0o600)
}

fn draw(into: &mut [u8]) -> io::Result<()> {
    getrandom::fill(into).map_err(|error| io::Error::other(error.to_string()))
}

pub(crate) fn draw_key() -> io::Result<Key> {
    let mut bytes = zeroize::Zeroizing::new([0; KEY_BYTES]);
    draw(&mut bytes[..])?;
    Ok(Key::new(*bytes))
}

pub(crate) fn draw_salt() -> io::Result<Salt> {
    let mut salt = [0; SALT_BYTES];
    draw(&mut salt)?;
    Ok(salt)
}
