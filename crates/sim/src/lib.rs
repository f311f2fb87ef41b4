//! Whole clusters in one thread, from one seed.
//!
//! The code under test is the pure crates': consensus and the worker's turn (`replica`), command execution
//! (`command`) over rows (`storage`), the cluster's own state (`cluster`) and planning (`placement`). Around it
//! everything else is simulated: true time and each store's clocks over it ([`clock`]), the network
//! ([`network`]), the log device ([`disk`]), what a crash leaves ([`durable`]), the threads of a store (`store`), clients (`client`), and what goes
//! wrong ([`faults`]). Whatever happens is shown to the [`invariants`].
//!
//! A run is a function of its seed and of the program: [`run::run`] of the same seed gives the same digest.

#![forbid(unsafe_code)]

mod client;
pub mod clock;
pub mod disk;
pub mod durable;
pub mod faults;
pub mod invariants;
pub mod model;
pub mod network;
pub mod observation;
mod recovery;
pub mod rng;
pub mod rows;
pub mod run;
mod store;
pub mod tally;
mod world;
