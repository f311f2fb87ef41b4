//! Tools to test running clusters under faults: clients that record histories, a checker that
//! judges them, and a network that can be partitioned.
//!
//! - [`history`]: operations as their clients saw them. If a client did not learn the result, the
//!   operation stays open: it may have taken effect at any time since, or never.
//! - [`model`]: the behaviour of a group of keys without concurrency.
//! - [`linearizable`]: checks whether the model explains a history.
//! - [`workload`]: clients that record histories on a cluster, and the verdict over all of them.
//! - [`network`]: stores in separate network namespaces, and partitions between them.
//! - [`sessions`]: sessions with ZooKeeper that end when a test wants it.
//!
//! Linearizability is local (Herlihy and Wing, *Linearizability: A Correctness Condition for
//! Concurrent Objects*, 1990, Theorem 1): a history is linearizable if that of each object is. An
//! object here is a key, or the keys of one hash tag that commands access together.

#![forbid(unsafe_code)]

pub mod chance;
pub mod history;
pub mod linearizable;
pub mod model;
pub mod network;
pub mod sessions;
pub mod workload;
