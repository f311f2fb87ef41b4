//! What carries out the groups' effects: the worker, which steps the Raft groups; the log thread, which makes its batches
//! durable; the apply thread, which makes rows of what is committed; the flusher, which lets the log be cut; the log's
//! keeper; a reader of the log for followers that lag; and the thread that sees to peers that come with a snapshot or go.
//!
//! None of them has a region's state: what they learn they hand to [`Regions`](crate::regions::Regions).

pub mod apply;
pub mod batches;
mod dropped;
pub mod flusher;
mod in_ram;
pub mod lives;
pub mod log_keeper;
pub mod log_reader;
pub mod log_writer;
mod parts;
pub mod snapshots;
mod turn;
pub mod worker;

pub use parts::{Levels, Parts};
