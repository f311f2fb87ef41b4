//! The log of all regions of a store, in one engine: one write and one `fdatasync` for a worker's turn,
//! however many regions it touches. The only crate that uses the log engine.
//!
//! What is stored, and what is noticed when it is damaged, is in docs/FORMAT-LOG.md.

#![forbid(unsafe_code)]

mod error;
mod files;
mod log;
mod log_store;
mod options;
mod pieces;
mod records;
mod watermark;

pub use error::LogError;
pub use log::{Appended, RaftLog};
pub use options::Options;
pub use records::{LogState, PeerLife};
