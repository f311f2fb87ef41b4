//! Prediction: how fast a cluster of given stores would be under a load and a placement policy, and
//! how it would be laid out.
//!
//! It combines two parts. The layout is computed by [`placement::plan`] itself, whose operators are
//! executed on a model until no more are planned, and from then on in every simulated planning
//! round. The speed is computed by a discrete-event simulation of what reads and writes wait for:
//! client threads that wait for their answers, the log writes and syncs of leaders and followers,
//! the apply thread and the rows it reads, memtables, flushes and compactions, all on one device
//! per store. The device uses the same arithmetic as the emulated devices. docs/PLAN.md describes
//! the model, its constants with their sources, and how it compares with measurements.
//!
//! Invariants: nothing here reads a clock, and the same question always gets the same answer. No
//! constant is fitted to a policy's measured result.

#![forbid(unsafe_code)]

pub mod alor;
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

/// Predicts the workloads, run one after the other on one cluster as an evaluation does. Returns
/// the median of several runs.
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
