//! Placement: from a view of the cluster to the operators that improve it, and why.
//!
//! [`plan`] maps a plain-data [`ClusterView`] and a [`Policy`] to a bounded list of [`Operator`]s. It is
//! deterministic and does nothing else: it reads no clock, keeps no state between rounds and knows nothing
//! of Raft or storage, so that the running cluster, a simulation and a what-if question share it. What it
//! must remember (moves in flight, regions whose last move failed) comes back in the next view.
//!
//! Invariants of every policy: an operator names a live source that leads the region and a live, caught-up
//! voter; no region has two operators; limits count what is in flight; and planning, executing and planning
//! again ends in a view for which nothing is planned.

#![forbid(unsafe_code)]

mod even;
mod explain;
mod leader_only;
mod limits;
mod operator;
mod policy;
mod round;
mod units;
mod view;

pub use explain::{explain, Candidate, Explanation, Standing, Verdict};
pub use limits::PlanLimits;
pub use operator::{Operator, Reason};
pub use policy::{Policy, UnknownPolicy};
pub use view::{Capability, ClusterView, PeerView, RegionView, StoreState, StoreView};

/// The operators to begin now, the most useful first.
pub fn plan(view: &ClusterView, policy: Policy, limits: &PlanLimits) -> Vec<Operator> {
    match policy {
        Policy::Even => even::plan(view, limits),
        Policy::LeaderOnly => leader_only::plan(view, limits),
    }
}
