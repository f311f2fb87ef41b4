//! The files of a store, encrypted or not.
//!
//! A store with encryption at rest has a [`Vault`], registered for its directory. All of its files
//! are read and written through this crate, which finds the vault by the path: small files by
//! [`read`] and [`write_with_mode`], files that RocksDB reads or that it is given by [`File`], and
//! segments of the log by [`segment`]. RocksDB itself reaches its files through a file system that
//! asks the same table. Files outside of registered directories are plain, and so are files from
//! before encryption was turned on: each file says by its first bytes what it is.
//!
//! RocksDB's default environment is one object for the whole process, and the interface for Rust
//! has no way to make another. Its file system is a shared pointer that a public method returns by
//! reference, so it can be replaced without any assumption about a layout. It is replaced when the
//! first vault is opened, before RocksDB opens files in its directory. A process without a vault
//! never replaces it.

mod directory;
mod error;
mod file;
mod master;
mod rows;
pub mod segment;
mod small;
mod vaults;

pub use directory::{open, open_for_reading, reseal, reseal_rows};
pub use error::Error;
pub use file::{len, read_rows, File};
pub use master::{Settings, Source};
pub use small::{read, read_to_string, write, write_with_mode};
pub use vaults::{forget, key_of, vault_of, Usage, Vault, KEYS};
