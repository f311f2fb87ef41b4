//! The meta region's leader begins only operators that the agreed state allows: the stores are
//! members, a new peer is placed on a store without a voter, and no region is in two operators.

use cluster::{MemberState, MetaState};
use placement::Operator;
use types::{RegionDescriptor, RegionId};

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct Placed;

impl Invariant for Placed {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let Observation::Planned { operator, meta, told } = seen else { return Ok(()) };
        check(operator, meta, *told).map_err(|what| format!("{operator}: {what}"))
    }
}

fn check(operator: &Operator, meta: &MetaState, told: Option<&RegionDescriptor>) -> Result<(), String> {
    let id = operator.region();
    let agreed = meta.regions.get(&id).ok_or("there is no such region")?;
    let region = told.filter(|told| told.epoch.is_newer_than(agreed.epoch)).unwrap_or(agreed);
    let is_busy = |region| meta.operators.values().any(|f| touches(&f.operator, region));
    if is_busy(id) || operator.into_region().is_some_and(is_busy) {
        return Err("the region is in another operator".into());
    }
    let Some(to) = operator.to() else { return Ok(()) };
    let member = meta.member(to).map_err(|error| error.to_string())?;
    if operator.moves_data() && member.state != MemberState::Up {
        return Err("its target was asked to leave".into());
    }
    if !operator.moves_data() && !region.voters().any(|voter| voter == to) {
        return Err("its target is no voter".into());
    }
    if operator.moves_data() && region.voters().any(|voter| voter == to) {
        return Err("its target has a voter".into());
    }
    Ok(())
}

fn touches(operator: &Operator, region: RegionId) -> bool {
    operator.region() == region || operator.into_region() == Some(region)
}
