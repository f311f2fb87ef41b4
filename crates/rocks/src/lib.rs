//! Rows on flash, with hot rows in RAM. The only crate that uses RocksDB.

#![forbid(unsafe_code)]

mod error;
pub mod freeze;
mod keyspace;
mod options;
mod row_cache;
mod size;
pub mod snapshot;
mod stats;

pub use keyspace::{FlashKeyspace, View};
pub use options::{Compression, OptionError, Options};
pub use stats::Stats;
