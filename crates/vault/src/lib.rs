//! Encryption at rest: the keys of a store and the encodings of its encrypted files.
//!
//! A store has numbered data keys, in one [`Keyring`], which is sealed under a master key. From a
//! data key each file gets a key of its own, by HMAC-SHA256 over its purpose and a random salt, so
//! no two files share a key stream:
//!
//! - RocksDB's files and those of snapshots: AES-256 in counter mode ([`Stream`]) behind a
//!   [`Prefix`], which alone is authenticated;
//! - segments of the log: AES-256-XTS by sector ([`Sectors`]) behind a [`Prefix`], which alone is
//!   authenticated;
//! - small files: AES-256-GCM over the whole file, bound to its name ([`small`]).
//!
//! Segments are overwritten in place, so a key stream would be used twice for different bytes. XTS
//! needs no space for nonces, and a sector that is written keeps its place: a torn write damages
//! only the sectors that it touched, as without encryption.
//!
//! Salts and keys come in as arguments.

#![forbid(unsafe_code)]

mod key;
mod keyring;
mod prefix;
mod sectors;
pub mod small;
mod stream;

pub use key::{Key, KeyNumber, Salt, KEY_BYTES, SALT_BYTES};
pub use keyring::{Keyring, KeyringError};
pub use prefix::{Kind, Prefix, PrefixError, PREFIX_BYTES};
pub use sectors::{Sectors, SECTOR_BYTES};
pub use stream::Stream;
