//! A region has at most one leader in a term.

use std::collections::BTreeMap;

use types::{RegionId, StoreId, Term};

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct OneLeader {
    leaders: BTreeMap<(RegionId, Term), StoreId>,
}

impl Invariant for OneLeader {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let &Observation::Led { store, region, term, .. } = seen else { return Ok(()) };
        match *self.leaders.entry((region, term)).or_insert(store) {
            leader if leader == store => Ok(()),
            other => Err(format!("stores {other} and {store} both lead region {region} in term {term}")),
        }
    }
}
