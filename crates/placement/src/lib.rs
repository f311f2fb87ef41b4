//! Placement: decides which store holds which region and which peer leads it.
//!
//! [`plan`] maps a plain-data [`ClusterView`] and a [`Policy`] to a bounded list of [`Operator`]s,
//! each with a reason. It is deterministic and pure: it reads no clock, keeps no state between
//! rounds and knows nothing of Raft or storage. So the running cluster, the simulator and what-if
//! questions share it. The caller passes all remembered state (operators in flight, regions whose
//! last operator failed) in the next view.
//!
//! Every policy goes through the same steps, and each step counts the operators of the earlier
//! steps as done: [`repair`], [`split`] of regions that are too large or too busy, relief of busy
//! CPUs ([`cpu`]), leaders, data, and merges. Policies differ in the choice of leaders ([`even`],
//! [`leader_only`], [`adaptive`]) and in the amount of data that a store should hold ([`fill`]).
//!
//! These invariants hold under every policy:
//!
//! - An operator names a region that has a live leader and a majority of voters that answers.
//! - A leader moves only to a live, caught-up voter.
//! - A peer moves only to a live store that has room for the region and no peer of it. In the
//!   failure domain of that store there are no more of the region's other peers than in the peer's
//!   present domain.
//! - A region has at most one operator at a time, and limits count the operators in flight.
//! - Planning, executing the plan and planning again ends in a view for which nothing is planned.

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
use round::Round;

/// Returns the operators to begin now, most useful first.
pub fn plan(view: &ClusterView, policy: Policy, limits: &PlanLimits) -> Vec<Operator> {
    let mut round = Round::new(view, policy, limits);
    if round.room() == 0 {
        return round.operators;
    }
    repair::plan(&mut round);
    split::plan(&mut round);
    cpu::relieve(&mut round);
    match policy {
        Policy::Even => {
            even::plan(&mut round, &mut All);
            data::plan(&mut round, Order::Calm, &mut All);
        }
        Policy::LeaderOnly => {
            leader_only::plan(&mut round);
            data::plan(&mut round, Order::Calm, &mut All);
        }
        Policy::Alor => {
            leader_only::plan(&mut round);
            data::plan(&mut round, Order::Cold, &mut All);
        }
        Policy::Adaptive => adaptive::plan(&mut round),
    }
    split::plan_merges(&mut round);
    round.operators
}
