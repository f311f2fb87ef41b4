//! Prediction: how fast a cluster of given stores would be under a load and a placement policy, and how it
//! would be laid out.
//!
//! Two things are put together. The layout is [`placement::plan`]'s own, executed on a model until it rests and
//! from then on each simulated second. The speed comes of a discrete-event simulation of what a write and a
//! read wait for: threads that wait for their answers, a leader's and its followers' log writes and syncs,
//! the apply thread and the rows it reads, memtables, flushes and compactions, all on one device per store
//! whose arithmetic is the emulated devices' own. docs/PLAN.md has the model, its constants with their sources,
//! and how it compares with measurements.
//!
//! Invariant: nothing here reads a clock, and the same question gets the same answer for ever. No constant is
//! fitted to a policy's measured result.

#![forbid(unsafe_code)]

mod answer;
mod blocks;
mod cache;
mod device;
mod draw;
mod hybrid;
mod layout;
mod median;
mod question;
mod ratios;
mod tree;
mod world;

pub use answer::{Holding, Phase, Placed, Prediction, Use};
pub use device::Device;
pub use hybrid::WriteBack;
pub use layout::{at_rest, Rested};
pub use question::{Load, PredictError, Processors, Question, Region, Store, Tuning, Workload, RECORDS_MAX};
pub use ratios::{beside, Ratio};

/// Predicts the workloads, one after the other on one cluster, as an evaluation runs them: of several runs the
/// median.
pub fn predict(
    question: &Question,
    policy: placement::Policy,
    workloads: &[Workload],
) -> Result<Prediction, PredictError> {
    question.check()?;
    let run = |run| {
        let question = Question { seed: question.seed.wrapping_add(run), ..question.clone() };
        world::run(&question, policy, workloads)
    };
    let runs = (0..question.runs).map(run).collect::<Result<Vec<_>, _>>()?;
    median::of(&runs).ok_or(PredictError::Zero("the number of runs"))
}
