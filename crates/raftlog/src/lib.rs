//! The Raft logs of all regions of a store, in one directory. A batch of the worker costs one write
//! and one `fdatasync`, however many regions it touches.
//!
//! The crate [`wal`] defines the format and the order of writes and syncs. This crate supplies the
//! files and the locks that let one thread append while others read and recycle.

#![forbid(unsafe_code)]

mod dump;
mod files;
mod log;
mod log_store;
mod options;

pub use dump::dump;
pub use files::is_log;
pub use log::{Appended, RaftLog};
pub use options::Options;
pub use wal::{LogError, Loss, PeerLifecycle};
