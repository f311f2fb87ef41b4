//! A store's rows: RocksDB on flash, with hot rows in RAM. No other crate uses RocksDB.

#![forbid(unsafe_code)]

mod error;
pub mod freeze;
mod keyspace;
mod options;
mod size;
pub mod snapshot;
mod stats;

pub use keyspace::{InRam, Keyspace, RamUse, View};
pub use options::{Compression, OptionError, Options};
pub use stats::Stats;
