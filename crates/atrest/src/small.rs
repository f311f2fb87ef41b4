//! Small files, which are replaced whole.

use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vault::small;

use crate::error::{refused, NOT_OPEN};
use crate::vaults::{draw_salt, vault_of};

/// Reads a small file. A file in a registered directory may be sealed or plain.
///
/// # Errors
/// Those of the file system, and [`ErrorKind::InvalidData`] if the file cannot be opened with the
/// directory's keys.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = std::fs::read(path)?;
    if !small::is_sealed(&bytes) {
        return Ok(bytes);
    }
    let vault = vault_of(path).ok_or_else(|| refused(NOT_OPEN))?;
    small::open(&vault.keyring(), name_of(path), &bytes).map_err(refused)
}

/// Reads a small file of text.
///
/// # Errors
/// Same as [`read`], and [`ErrorKind::InvalidData`] if the text is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Replaces a small file, durably. It is sealed if its directory is encrypted.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    write_with_mode(path, content, 0o666)
}

/// Writes like [`write`], and gives the file this mode without the bits of the process's umask.
pub fn write_with_mode(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    match vault_of(path) {
        None => durable::write_with_mode(path, content, mode),
        Some(vault) => {
            let sealed = small::seal(&vault.keyring(), name_of(path), draw_salt()?, content.as_ref());
            durable::write_with_mode(path, sealed, mode)
        }
    }
}

fn name_of(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_default().as_bytes()
}
