//! Simulates whole clusters in one thread, each from one seed.
//!
//! The code under test is that of the pure crates: consensus and the worker's turn (`replica`),
//! command execution (`command`) on rows (`storage`), the cluster's state (`cluster`) and planning
//! (`placement`). Everything else is simulated: true time and each store's clocks ([`clock`]), the
//! network ([`network`]), the log device ([`disk`]), the data that survives a crash ([`durable`]),
//! the threads of a store (`store`), the coordinator of elections (`coordinator`), clients
//! (`client`) and faults ([`faults`]). The [`invariants`] observe all events.
//!
//! A run is a function of its seed and of the program: [`run::run`] of the same seed gives the same
//! digest.

#![forbid(unsafe_code)]

pub mod absence;
pub mod chained;
mod client;
pub mod clock;
pub mod coordinator;
pub mod disk;
pub mod durable;
pub mod faults;
pub mod forgetting;
pub mod invariants;
pub mod model;
pub mod network;
pub mod observation;
mod quorum_loss;
pub mod rng;
pub mod rows;
pub mod run;
pub mod silent_candidate;
pub mod split_race;
mod store;
pub mod tally;
mod waiting;
mod world;
