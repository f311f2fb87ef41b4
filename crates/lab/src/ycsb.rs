//! YCSB's core workloads over the protocol of Redis Cluster: each command goes to the store that
//! leads the slot of its key.
//!
//! A record is one string of 1 KiB under a key of 16 bytes, or a hash if it has more than one
//! field. `Load` inserts every record once. `A B C E F` choose records by a scrambled zipfian
//! distribution, and `D` prefers the newest. `E` reads ranges of records with consecutive numbers.
//! Keys are hashed to slots and have no order there, so a client names the records that it wants;
//! see [`Settings::group`].

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
