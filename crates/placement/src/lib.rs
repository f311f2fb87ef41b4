//! Placement: from a view of the cluster to the operators that improve it, and why.
//!
//! [`plan`] maps a plain-data [`ClusterView`] and a [`Policy`] to a bounded list of [`Operator`]s. It is
//! deterministic and does nothing else: it reads no clock, keeps no state between rounds and knows nothing
//! of Raft or storage, so that the running cluster, a simulation and a what-if question share it. What it
//! must remember (moves in flight, regions whose last move failed) comes back in the next view.
//!
//! A round goes through the same steps under every policy, and each step sees what the ones before it asked
//! for as done: [`repair`], [`split`] of what is too large, leaders, data, then merging. What differs is who
//! should lead ([`even`], [`leader_only`], [`adaptive`]) and how much data a store should hold ([`fill`]).
//!
//! Invariants of every policy: an operator names a region with a live leader and a majority that answers;
//! a leader goes to a live, caught-up voter; a peer goes to a live store that has none of the region and
//! room for it, and no deeper into a failure domain than it was; no region has two operators; limits count
//! what is in flight; and planning, executing and planning again ends in a view for which nothing is
//! planned.

#![forbid(unsafe_code)]

mod adaptive;
mod class;
mod cpu;
mod data;
mod domain;
mod estimate;
mod even;
mod explain;
mod explain_store;
mod fill;
mod leader_only;
mod limits;
mod load;
mod operator;
mod policy;
mod reason;
mod repair;
mod round;
mod split;
mod units;
mod view;
mod wait;

pub use class::{rate, Classes, Rating, Spread, APART, APART_STILL};
pub use cpu::CpuMemory;
pub use estimate::{estimate, Estimate};
pub use explain::{explain, Candidate, CpuShare, Explanation, Standing, Verdict};
pub use explain_store::{explain_store, Busiest, StoreExplanation};
pub use fill::sheds;
pub use limits::PlanLimits;
pub use operator::Operator;
pub use policy::{Policy, UnknownPolicy};
pub use reason::{Reason, Waited};
pub use view::{is_behind, Capability, ClusterView, Cpu, PeerView, RegionView, StoreState, StoreView};

use data::{All, Order};
use fill::Fill;
use round::Round;

/// The operators to begin now, the most useful first.
pub fn plan(view: &ClusterView, policy: Policy, limits: &PlanLimits) -> Vec<Operator> {
    let mut round = Round::new(view, limits);
    let mut operators = Vec::new();
    if round.room() == 0 {
        return operators;
    }
    let mut fill = Fill::new(&round, policy);
    repair::plan(&mut round, &mut fill, policy, &mut operators);
    split::plan(&mut round, &mut operators);
    cpu::relieve(&mut round, policy, &mut operators);
    match policy {
        Policy::Even => {
            even::plan(&mut round, &mut All, &mut operators);
            data::plan(&mut round, &mut fill, Order::Calm, &mut All, &mut operators);
        }
        Policy::LeaderOnly => {
            leader_only::plan(&mut round, &mut operators);
            data::plan(&mut round, &mut fill, Order::Calm, &mut All, &mut operators);
        }
        Policy::Alor => {
            leader_only::plan(&mut round, &mut operators);
            data::plan(&mut round, &mut fill, Order::Cold, &mut All, &mut operators);
        }
        Policy::Adaptive => adaptive::plan(&mut round, &mut fill, &mut operators),
    }
    split::plan_merges(&mut round, &mut operators);
    operators
}
