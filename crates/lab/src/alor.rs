//! The reproduction of ALOR's evaluation (NPC 2018, §4): real stores on emulated devices, all
//! policies in turn, medians of several runs, and the paper's numbers beside them.
//!
//! This module has the figures, settings, evidence and reports. The caller starts and observes the
//! clusters, through [`Laboratory`].

mod evidence;
mod figures;
mod paper;
mod plot;
mod predictions;
mod report;
mod runs;
mod statistics;

pub use evidence::{Evidence, Sample, StoreSample, StoreUse};
pub use figures::{not_drawn, select, Comparison, Figure, Metric, BASELINE, FIGURES};
pub use plot::write_plots;
pub use predict::alor::{capacity_bytes, devices, records, scaled_devices, Scale, REQUEST_TIMEOUT_MS};
pub use predictions::Prediction;
pub use report::{charts, report};
pub(crate) use runs::difference;
pub use runs::{
    cases, feasible, make, with_baseline, Account, Case, Laboratory, Measured, Phase, Rest, Run, Runs, Setup,
};
pub use statistics::{Bar, Chart};
