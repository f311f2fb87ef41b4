//! The threads that carry out the groups' effects. The worker steps the Raft groups. The log thread
//! makes its batches durable, unless the worker does so itself. The apply thread turns committed
//! entries into rows. The flusher lets the log be truncated. The log keeper recycles segments, and
//! the log reader reads entries for lagging followers and for execution. Another thread teaches the
//! filter of rows which rows flash has. The lifecycle thread installs snapshots and removes peers.
//!
//! None of them owns a region's state: they report changes to [`Regions`](crate::regions::Regions).

pub mod apply;
pub mod batches;
mod dropped;
pub mod flusher;
mod in_ram;
pub mod lifecycle;
pub mod log_keeper;
pub mod log_reader;
pub mod log_writer;
mod parts;
pub mod row_filter;
pub mod snapshots;
mod turn;
pub mod worker;

pub use parts::{Levels, Parts};
