//! Regions at work: the worker thread that steps their Raft groups and applies their entries, the log
//! thread that makes its batches durable, and the flusher that lets the log be cut.

mod apply;
pub mod flusher;
pub mod inbox;
pub mod life;
pub mod log_writer;
pub mod proposals;
pub mod shared;
pub mod worker;
