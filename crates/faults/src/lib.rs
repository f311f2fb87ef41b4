//! What tests of running clusters need to prove something: clients that record histories, a checker that
//! judges them, and a network that can be cut.
//!
//! - [`history`]: operations as their clients saw them. What a client could not learn stays open: it may
//!   have taken effect at any time since, or never.
//! - [`model`]: what one group of keys does when nobody disturbs it.
//! - [`linearizable`]: whether a history is one that the model could have shown.
//! - [`workload`]: clients that make such histories over a cluster, and the verdict over all of them.
//! - [`network`]: stores in network namespaces of their own, and partitions between them.
//!
//! Linearizability is local (Herlihy and Wing, *Linearizability: A Correctness Condition for Concurrent
//! Objects*, 1990, Theorem 1): a history is linearizable when that of each object is. An object here is a
//! key, or the keys of one hash tag that commands touch together.

#![forbid(unsafe_code)]

pub mod chance;
pub mod history;
pub mod linearizable;
pub mod model;
pub mod network;
pub mod workload;
