//! The version that all stores of a cluster agree on.
//!
//! It covers everything that one store writes and another one must understand: heartbeats, orders,
//! log entries, rows, and what commands mean. A program reads every version that it supports, and
//! writes the cluster's. The cluster's version rises once every store supports the next one
//! (`cluster::upgrade`).
//!
//! ```text
//! 1   the first version
//! 2   heartbeats name quarantined peers; a log entry can order that an earlier one is skipped; the
//!     meta region records which regions have merged away
//! 3   ZooKeeper can choose the candidates of elections; heartbeats tell which stores have a
//!     session; followers can pass appends on; sets, sorted sets, lists, streams,
//!     bitmaps, HyperLogLogs, places; transactions, scripts, functions, users
//! ```

/// A version of the cluster.
pub type Version = u32;

/// The first version in which heartbeats name quarantined peers, log entries order skips, and the
/// meta region records merged regions.
pub const SECOND_VERSION: Version = 2;

/// The first version in which ZooKeeper can choose candidates, heartbeats tell of sessions, and
/// followers can pass appends on, and sets exist.
pub const THIRD_VERSION: Version = 3;

/// The oldest version that this program can write.
pub const OLDEST_VERSION: Version = 1;

/// The newest version that this program can write.
///
/// The feature `next-version` adds a version that differs from the one before it only in the number
/// that entries of commands begin with. It serves the tests of upgrades.
pub const NEWEST_VERSION: Version = if cfg!(feature = "next-version") { 4 } else { 3 };

const _: () = assert!(OLDEST_VERSION <= NEWEST_VERSION);
