//! YCSB's core workloads over the protocol of Redis Cluster: each key's commands go to the store that leads it.
//!
//! A record is one string of 1 KiB under a key of 16 bytes, unless more fields are asked for, which makes it
//! a hash. `Load` inserts every record once; `A B C E F` choose records by a scrambled zipfian distribution,
//! `D` prefers the newest. `E` reads ranges of records with consecutive numbers: keys are hashed to slots and have no
//! order there, so a client names those that it wants; see [`Settings::group`].

mod cross_check;
mod generator;
mod inserts;
mod record;
mod run;
mod summary;
mod workload;

pub use cross_check::{comparable, cross_check, CrossCheck, First, Side};
pub use generator::{fnv_hash, Chooser, Distribution, Zipfian};
pub(crate) use inserts::Inserts;
pub(crate) use record::Records;
pub use run::{run, Settings};
pub use summary::{Latency, Second, Summary};
pub use workload::{key, Kind, Operation, Operations, Workload};

#[cfg(test)]
pub(crate) use summary::tests::summary as test_summary;
