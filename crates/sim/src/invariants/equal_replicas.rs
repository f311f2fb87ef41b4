//! The checks by checksums that stores make during faults find no difference.

use cluster::Verdict;

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct EqualReplicas;

impl Invariant for EqualReplicas {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let Observation::Compared { store, comparison } = seen else { return Ok(()) };
        match &comparison.verdict {
            Verdict::Equal | Verdict::Incomplete { .. } => Ok(()),
            Verdict::Minority { stores } => Err(format!(
                "store {store} finds that the rows of region {} at index {} differ on {stores:?}",
                comparison.region, comparison.index
            )),
            Verdict::NoMajority => Err(format!(
                "store {store} finds no majority for the rows of region {} at index {}",
                comparison.region, comparison.index
            )),
        }
    }
}
