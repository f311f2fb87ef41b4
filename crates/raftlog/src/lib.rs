//! The log of all regions of a store, in one directory: one write and one `fdatasync` for a worker's turn, however many
//! regions it touches. The format and the order of what happens are [`wal`]'s; here are its files and its locks.

#![forbid(unsafe_code)]

mod dump;
mod files;
mod log;
mod log_store;
mod options;

pub use dump::dump;
pub use log::{Appended, RaftLog};
pub use options::Options;
pub use wal::{LogError, PeerLife};
