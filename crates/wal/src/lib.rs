//! A store's log of all its regions: format, index, order of writes and recovery, pure over a [`Disk`].
//!
//! The log is a chain of blocks in segments that are overwritten when nothing in them is needed. One block and one
//! sync serve a whole batch, however many regions it touches. What is stored, and what is noticed when it is damaged,
//! is in docs/FORMAT-LOG.md.
//!
//! [`recover`] reads a log, an [`Appender`] goes on with it, [`read_entries`] reads what its index names.

#![forbid(unsafe_code)]

mod appender;
mod block;
mod disk;
mod error;
mod index;
pub mod layout;
pub mod mark;
pub mod planted;
mod reader;
mod records;
mod recovery;
mod scan;

pub use appender::{settle, Appender, Release, Sizes};
pub use block::{Place, Update};
pub use disk::{Disk, DiskError, MarkFile, SegmentId};
pub use error::{LogError, Result};
pub use index::{Index, SharedIndex};
pub use layout::Secret;
pub use reader::read_entries;
pub use records::{LogState, PeerLife, Record};
pub use recovery::{recover, Cut, Recovered, Segment};
pub use scan::{scan, Found};
