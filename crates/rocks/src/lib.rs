//! A store's rows: RocksDB on flash, with hot rows in RAM. No other crate uses RocksDB.

#![forbid(unsafe_code)]

pub mod bare;
mod error;
mod flush;
pub mod freeze;
mod in_ram;
mod ingest;
mod keyspace;
mod manifest_edit;
mod options;
mod pace;
pub mod repair;
mod size;
pub mod snapshot;
mod stats;
mod steps;
mod token_bucket;
mod under_way;
mod view;

pub use in_ram::{Fetched, InRam};
pub use keyspace::{Keyspace, RamUse, Table};
pub use options::{Compression, OptionError, Options};
pub use pace::Debt;
pub use stats::Stats;
pub use token_bucket::TokenBucket;
pub use under_way::ReadsUnderWay;
pub use view::View;
