//! Operators in flight and operators that ended. They are replicated, so the next leader of the
//! meta region continues the operators of the last one.
//!
//! ```text
//!             ┌────────────▶ finished
//! begin ──▶ going ──▶ undoing ──▶ finished
//!             └─────▶ bound ────▶ finished (succeeded)
//! ```
//!
//! *Undoing* and *bound* exclude each other. Each is agreed before any action that relies on it. So
//! a merge's source accepts commands again only if no leader can have told the target to absorb the
//! source.

use placement::Operator;
use serde::{Deserialize, Serialize};
use types::{PeerRole, RegionId, StoreId, UnixMillis};

use super::{MemberState, MetaState, Object};
use crate::{MetaError, MetaReply};

/// The id of an operator: from 1, in the order in which operators begin.
pub type OperatorId = u64;

/// Number of ended operators in the history. It must be the same on every replica, because it is
/// part of the state machine.
pub const HISTORY_MAX: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    #[default]
    Going,
    /// The operator failed, and its partial changes are being undone.
    Undoing { because: Outcome },
    /// The operator cannot be undone and continues until it succeeds.
    Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    Succeeded,
    /// The region has a new term and another leader than the requested one.
    LedElsewhere {
        leader: StoreId,
    },
    TimedOut,
    /// The leader abandoned or refused the operator.
    Aborted,
    /// The region has changed so that the operator is no longer useful.
    Overtaken,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Succeeded => f.write_str("succeeded"),
            Outcome::LedElsewhere { leader } => write!(f, "led by store {leader} instead"),
            Outcome::TimedOut => f.write_str("timed out"),
            Outcome::Aborted => f.write_str("aborted"),
            Outcome::Overtaken => f.write_str("overtaken by another change"),
        }
    }
}

/// An operator in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InFlight {
    pub id: OperatorId,
    pub operator: Operator,
    pub phase: Phase,
    /// The region's version when the operator began. Splits and merges raise it.
    pub version: u64,
    /// The id that is reserved for the new region of a split.
    pub new_region: Option<RegionId>,
    pub started_ms: UnixMillis,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    pub id: OperatorId,
    pub operator: Operator,
    pub outcome: Outcome,
    pub started_ms: UnixMillis,
    pub finished_ms: UnixMillis,
}

impl MetaState {
    /// Returns the operator in which this region takes part.
    pub fn operator_on(&self, region: RegionId) -> Option<&InFlight> {
        self.operators.values().find(|flight| {
            flight.operator.region() == region || flight.operator.into_region() == Some(region)
        })
    }

    pub(super) fn begin_operator(
        &mut self,
        id: OperatorId,
        operator: &Operator,
        stamp_ms: UnixMillis,
        changed: &mut Vec<Object>,
    ) -> Result<MetaReply, MetaError> {
        if id < self.next_operator {
            return Err(MetaError::StaleOperator { id, last: self.next_operator - 1 });
        }
        let next_operator = id.checked_add(1).ok_or(MetaError::NoIds)?;
        self.check_operator(operator)?;
        let mut new_region = None;
        if matches!(operator, Operator::Split { .. }) {
            new_region = Some(self.take_region_ids(1)?);
        }
        self.next_operator = next_operator;
        let version = self.regions[&operator.region()].epoch.version;
        let phase = Phase::Going;
        let flight =
            InFlight { id, operator: operator.clone(), phase, version, new_region, started_ms: stamp_ms };
        self.operators.insert(id, flight);
        changed.extend([Object::Counters, Object::Operator(id)]);
        Ok(MetaReply::Begun { id })
    }

    /// Checks the conditions of an operator against the agreed state, whatever its planner knew.
    pub(crate) fn check_operator(&self, operator: &Operator) -> Result<(), MetaError> {
        for id in [Some(operator.region()), operator.into_region()].into_iter().flatten() {
            let region = self.regions.get(&id).ok_or(MetaError::UnknownRegion(id))?;
            if self.operator_on(id).is_some() {
                return Err(MetaError::RegionBusy(id));
            }
            let of_slots = matches!(operator, Operator::Split { .. } | Operator::Merge { .. });
            if of_slots
                && region.slots.is_none_or(|slots| slots.len() < 2 && operator.into_region().is_none())
            {
                return Err(MetaError::NotForRegion(id));
            }
        }
        if operator.into_region() == Some(operator.region()) {
            return Err(MetaError::NotForRegion(operator.region()));
        }
        if let Some(to) = operator.to() {
            if self.member(to)?.state == MemberState::Draining {
                return Err(MetaError::StoreDraining(to));
            }
        }
        if let Operator::RemovePeer { region: id, from, .. } = operator {
            let region = &self.regions[id];
            let voters = region.peers.iter().filter(|peer| peer.role != PeerRole::Learner);
            if voters.map(|peer| peer.store).eq([*from]) {
                return Err(MetaError::LastVoter(*id));
            }
        }
        Ok(())
    }

    pub(super) fn advance_operator(
        &mut self,
        id: OperatorId,
        phase: Phase,
        changed: &mut Vec<Object>,
    ) -> Result<MetaReply, MetaError> {
        let Some(flight) = self.operators.get_mut(&id) else { return Ok(MetaReply::Unchanged) };
        if flight.phase == phase {
            return Ok(MetaReply::Unchanged);
        }
        if flight.phase != Phase::Going {
            return Err(MetaError::BadPhase(id));
        }
        flight.phase = phase;
        changed.push(Object::Operator(id));
        Ok(MetaReply::Changed)
    }

    pub(super) fn finish_operator(
        &mut self,
        id: OperatorId,
        outcome: Outcome,
        stamp_ms: UnixMillis,
        changed: &mut Vec<Object>,
    ) -> Result<MetaReply, MetaError> {
        let Some(flight) = self.operators.get(&id) else { return Ok(MetaReply::Unchanged) };
        if flight.phase == Phase::Bound && outcome != Outcome::Succeeded {
            return Err(MetaError::BadPhase(id));
        }
        let InFlight { operator, started_ms, .. } = self.operators.remove(&id).expect("it was just there");
        let finished = Finished { id, operator, outcome, started_ms, finished_ms: stamp_ms };
        self.history.insert(id, finished);
        changed.extend([Object::Operator(id), Object::Finished(id)]);
        while self.history.len() > HISTORY_MAX {
            let (oldest, _) = self.history.pop_first().expect("it is longer than allowed");
            changed.push(Object::Finished(oldest));
        }
        Ok(MetaReply::Changed)
    }
}
