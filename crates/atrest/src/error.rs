use std::io;
use std::path::PathBuf;

use vault::KeyringError;

pub(crate) const NOT_OPEN: &str = "it is encrypted, and its keys are not open";

/// Returns the error of a file that cannot be read with the keys.
pub(crate) fn refused(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

/// The reason why a directory's keys cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} holds no key: it must have 64 hexadecimal digits and nothing else")]
    NoKey { path: PathBuf },
    #[error("{path} can be read by others (mode {mode:03o}): give it mode 600")]
    Exposed { path: PathBuf, mode: u32 },
    #[error("encryption-key-command `{command}`: {why}")]
    Command { command: String, why: String },
    #[error("{path} cannot be opened: {why}. Nothing was changed")]
    Keys { path: PathBuf, why: KeyringError },
    #[error(
        "{path} is there, so this directory is encrypted: set encryption-key-file or encryption-key-command"
    )]
    NoSetting { path: PathBuf },
    #[error(
        "{path} is missing, and {encrypted} is encrypted: without this file its data cannot be read. Nothing \
         was changed"
    )]
    NoKeys { path: PathBuf, encrypted: PathBuf },
    #[error(
        "files of this directory have data key {number}, which {path} does not have: is it an older copy? Nothing \
         was changed"
    )]
    OlderKeys { path: PathBuf, number: u32 },
}
