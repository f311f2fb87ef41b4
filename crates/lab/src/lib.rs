//! Tools that measure and drive stores from outside: child processes, a RESP client that knows
//! clusters, a load generator, YCSB, comparisons with other stores and with the limits of the
//! machine, the reproduction of three papers' figures, and scenarios in which devices slow down and
//! stores fill.

#![forbid(unsafe_code)]

pub mod alor;
pub mod chain;
pub mod collections;
pub mod flash;
pub mod freeze;
pub mod limit;
pub mod load;
pub mod measure;
pub mod memtier;
mod page;
pub mod paxstore;
pub mod peers;
pub mod reads;
pub mod replicate;
mod results;
pub mod scenario;
mod svg;
pub mod ycsb;
