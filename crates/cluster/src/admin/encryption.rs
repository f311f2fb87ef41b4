//! The encryption of a store's files: `ctl encryption`.

use serde::{Deserialize, Serialize};

use super::{Method, Operation};

/// Asks the answering store how its files are encrypted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncryptionQuery {}

impl Operation for EncryptionQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/encryption";
    type Of = ();
    type Reply = EncryptionRow;
}

/// Changes the keys of the answering store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action", deny_unknown_fields)]
pub enum EncryptionRequest {
    /// Makes a new data key for all new files, and rewrites old ones in the background.
    Rotate,
    /// Seals the data keys with the master key as it is now.
    Rewrap,
}

impl Operation for EncryptionRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/encryption";
    const CHANGE: &'static str = "encryption";
    type Of = ();
    type Reply = EncryptionRow;
}

/// The files of a store by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptionRow {
    pub store: u64,
    /// The number of the data key of new files; `None` if the store does not encrypt.
    pub active: Option<u32>,
    /// All data keys, with the bytes of the files that use them.
    pub keys: Vec<KeyRow>,
    /// Bytes of files from before encryption was turned on.
    pub plain_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    pub number: u32,
    pub bytes: u64,
}
