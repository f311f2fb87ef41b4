//! The invariants, one file each. Each of them sees every observation.

mod acknowledged;
mod committed;
mod current_lease;
mod epochs;
mod equal_replicas;
mod hanging;
mod linearizable;
mod log_matching;
mod one_leader;
mod placed;
mod planned_stop;
mod quarantined;
mod ranges;
mod same_rows;

use crate::observation::Observation;

pub trait Invariant {
    /// Checks an observation. The error describes how the invariant was violated.
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String>;

    /// Allows committed entries to be lost once.
    fn allow_loss(&mut self) {}
}

/// The name of an invariant, its source, and a function that creates it for a run.
pub type Row = (&'static str, &'static str, fn() -> Box<dyn Invariant>);

pub const TABLE: &[Row] = &[
    ("one-leader", "Raft §5.2, Election Safety", || Box::<one_leader::OneLeader>::default()),
    ("log-matching", "Raft §5.3, Log Matching", || Box::<log_matching::LogMatching>::default()),
    ("committed", "Raft §5.4, Leader Completeness", || Box::<committed::CommittedStays>::default()),
    ("same-rows", "Raft §5.4, State Machine Safety", || Box::<same_rows::SameRows>::default()),
    ("equal-replicas", "CockroachDB, TiKV: replicas are compared at equal indexes", || {
        Box::<equal_replicas::EqualReplicas>::default()
    }),
    ("acknowledged", "an answered write is durable on a majority", || {
        Box::<acknowledged::Acknowledged>::default()
    }),
    ("current-lease", "Gray, Cheriton 1989: a lease's holder is current", || {
        Box::<current_lease::CurrentLease>::default()
    }),
    ("ranges", "every slot has one region, by the newest epochs", || Box::<ranges::Ranges>::default()),
    ("epochs", "a stale change has no effect", || Box::<epochs::Epochs>::default()),
    ("placed", "an operator asks for what the cluster's state allows", || Box::<placed::Placed>::default()),
    ("planned-stop", "a planned stop leaves no request unanswered, and its peers win no lead", || {
        Box::<planned_stop::PlannedStop>::default()
    }),
    ("hanging", "a store whose device hangs leads nothing that others can lead", || {
        Box::<hanging::Hanging>::default()
    }),
    ("quarantined", "a quarantined peer executes, serves and leads nothing until it is told", || {
        Box::<quarantined::Quarantined>::default()
    }),
    ("linearizable", "Herlihy, Wing 1990, per group of keys", || {
        Box::<linearizable::Linearizable>::default()
    }),
];

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub what: String,
    /// True time since the beginning of the run.
    pub at_ms: u64,
}
