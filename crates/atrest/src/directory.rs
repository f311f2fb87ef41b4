//! Opens a directory's keys, and prepares its files before anything else uses them.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use vault::{small, Keyring};

use crate::error::Error;
use crate::file::{read_rows, File};
use crate::master::{self, Settings};
use crate::rows;
use crate::small::{read, write_with_mode};
use crate::vaults::{begins, draw_key, forget, head_of, key_of, register, write_keys, Vault, KEYS};

/// Maximum length in bytes of a file of keys that is read.
const KEYS_BYTES_MAX: u64 = 1 << 20;
/// The small file that shows whether a directory without keys is encrypted.
const IDENTITY: &str = "IDENTITY";

/// Opens the keys of a directory and registers them until the process ends, because threads may
/// write files until then. Returns `None` without settings. With settings and without keys, makes a
/// first data key. The caller must be the directory's only user.
pub fn open(dir: &Path, settings: Option<&Settings>) -> Result<Option<Arc<Vault>>, Error> {
    forget(dir);
    let Some(settings) = settings else { return refuse_keys(dir) };
    let path = dir.join(KEYS);
    let at = |source| Error::Io { path: path.clone(), source };
    let master = settings.key.fetch()?;
    let keyring = match read_keys(&path).map_err(at)? {
        Some(bytes) => match Keyring::open(&bytes, &master) {
            Ok(keyring) => keyring,
            Err(why) => {
                let old = settings.old_key.as_deref().filter(|_| why == vault::KeyringError::OtherMasterKey);
                let refused = |why| Error::Keys { path: path.clone(), why };
                let old = master::read_file(old.ok_or_else(|| refused(why))?)?;
                let keyring = Keyring::open(&bytes, &old).map_err(refused)?;
                write_keys(dir, &keyring, &master).map_err(at)?;
                tracing::info!(path = %path.display(), "the data keys are sealed with the new master key");
                keyring
            }
        },
        None => {
            // Without its keys, an encrypted directory must not get others.
            let identity = dir.join(IDENTITY);
            if begins(&identity, small::is_sealed)
                .map_err(|source| Error::Io { path: identity.clone(), source })?
            {
                return Err(Error::NoKeys { path, encrypted: identity });
            }
            let keyring = Keyring::new(draw_key().map_err(at)?);
            write_keys(dir, &keyring, &master).map_err(at)?;
            keyring
        }
    };
    rows::install();
    let vault = register(dir, settings, keyring).map_err(at)?;
    let used = vault.usage().map_err(|source| Error::Io { path: dir.to_path_buf(), source })?;
    let keyring = vault.keyring();
    match used.bytes_of_keys.keys().find(|number| keyring.get(**number).is_none()) {
        None => Ok(Some(vault)),
        Some(&number) => {
            forget(dir);
            Err(Error::OlderKeys { path, number })
        }
    }
}

/// Opens the keys like [`open`], for a program that only reads the directory. Makes and changes no
/// keys.
pub fn open_for_reading(dir: &Path, settings: Option<&Settings>) -> Result<Option<Arc<Vault>>, Error> {
    let Some(settings) = settings else { return refuse_keys(dir) };
    let path = dir.join(KEYS);
    let at = |source| Error::Io { path: path.clone(), source };
    let Some(bytes) = read_keys(&path).map_err(at)? else { return Ok(None) };
    let keyring = Keyring::open(&bytes, &settings.key.fetch()?);
    let keyring = keyring.map_err(|why| Error::Keys { path: path.clone(), why })?;
    rows::install();
    Ok(Some(register(dir, settings, keyring).map_err(at)?))
}

fn refuse_keys(dir: &Path) -> Result<Option<Arc<Vault>>, Error> {
    let path = dir.join(KEYS);
    match path.try_exists() {
        Ok(false) => Ok(None),
        Ok(true) => Err(Error::NoSetting { path }),
        Err(source) => Err(Error::Io { path, source }),
    }
}

/// Seals these small files with the active key, if they are there and are not. Nothing else may
/// write them meanwhile.
pub fn reseal(vault: &Vault, names: &[&str]) -> io::Result<()> {
    let active = vault.keyring().active().0;
    for name in names {
        let path = vault.dir().join(name);
        // A crash may have left a plain one.
        match fs::remove_file(durable::temporary(&path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mode = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            facts => facts?.permissions().mode() & 0o777,
        };
        if small::peek(&head_of(&path)?) != Some(active) {
            write_with_mode(&path, read(&path)?, mode)?;
        }
    }
    Ok(())
}

/// Gives RocksDB's file IDENTITY, which it never replaces, the active key, and removes files that
/// it would keep and does not need: logs of events, and the options of earlier opens. RocksDB must
/// be closed.
pub fn reseal_rows(vault: &Vault, dir: &Path) -> io::Result<()> {
    let active = vault.keyring().active().0;
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_needless = name == "LOG" || name.starts_with("LOG.old.") || name.starts_with("OPTIONS-");
        if !is_needless && name != "IDENTITY" || key_of(&path)? == Some(active) {
            continue;
        }
        if is_needless {
            fs::remove_file(&path)?;
            continue;
        }
        let content = read_rows(&path)?;
        let unfinished = durable::temporary(&path);
        let mut file = File::create(&unfinished)?;
        file.write_all(&content)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        durable::sync_dir(dir)?;
    }
    Ok(())
}

fn read_keys(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(KEYS_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
