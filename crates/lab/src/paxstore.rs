//! The figures of PaxStore's evaluation (NPC 2014, §5), made on this machine: rounds with their
//! samples, which are saved, and the report with a verdict on each of the paper's statements.
//!
//! A round of a figure measures all sides of its comparisons in turn, and has the disk's sync time
//! before and after it. The caller starts and measures the servers.

mod figures;
mod plot;
mod report;
mod rounds;
mod scale;
mod statements;
mod summary;

pub use figures::{select, size, Figure};
pub use plot::write_plots;
pub use report::report;
pub use rounds::{Measured, Round, Rounds, Sample, Setup};
pub use scale::Scale;
pub use statements::statements;
