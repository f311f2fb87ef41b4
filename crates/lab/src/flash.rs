//! The measurements of *Optimization of RocksDB for Redis on Flash* (Ouaknine, Agra, Guz), made
//! again on RocksDB alone: each knob of the paper turned on and off, under four loads, over two
//! write paths.
//!
//! A run is one configuration on one device. It fills a database, reads from it, reads and writes
//! it at once, and copies it into an empty database of another process on a device of its own.

mod cases;
mod child;
mod knobs;
mod loads;
mod pipe;
mod places;
mod plot;
mod replica;
mod report;
mod rounds;
mod scale;
mod statements;
mod summary;

pub use cases::{cases, select, Case, Figure, Kind};
pub use child::{child, Done, Job};
pub use knobs::{Base, Config, WritePath};
pub use loads::{Measured, Phase};
pub use places::{emulate, Place, Work};
pub use plot::write_plots;
pub use report::report;
pub use rounds::{Conditions, Round, Rounds, Setup};
pub use scale::Scale;
