//! The write-ahead log that holds the Raft logs of all regions of a store: on-disk format,
//! in-memory index, order of writes, and recovery.
//!
//! The crate is pure: it does all I/O through the trait [`Disk`]. The store implements it with
//! files, and the tests with a disk that loses power.
//!
//! The log is a chain of blocks in segments. A segment is overwritten when nothing in it is needed.
//! A batch is written as one block (several if it is large) and made durable by one sync, however
//! many regions it touches. docs/FORMAT-LOG.md draws the format and lists the damage that is
//! detected.
//!
//! [`recover`] reads an existing log, an [`Appender`] continues it, and [`read_entries`] reads the
//! entries that its [`Index`] points to.

#![forbid(unsafe_code)]

mod appender;
mod block;
mod disk;
mod error;
pub mod failpoints;
mod index;
pub mod layout;
pub mod mark;
mod reader;
mod records;
mod recovery;
mod scan;

pub use appender::{settle, Appender, Release, Sizes};
pub use block::{Place, Update};
pub use disk::{Disk, DiskError, MarkFile, SegmentId};
pub use error::{LogError, Result};
pub use index::{Index, Loss, SharedIndex, Span};
pub use layout::Secret;
pub use reader::read_entries;
pub use records::{LogState, PeerLifecycle, Record};
pub use recovery::{recover, Cut, Recovered, Segment};
pub use scan::{scan, Found};
