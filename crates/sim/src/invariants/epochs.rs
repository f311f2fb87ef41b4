//! A change of a region applies only to the epoch for which it was proposed. A stale change has no
//! effect.

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct Epochs;

impl Invariant for Epochs {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match *seen {
            Observation::Changed { region, before, expect } if before != expect => {
                Err(format!("a change for epoch {expect:?} of region {region} was applied to {before:?}"))
            }
            _ => Ok(()),
        }
    }
}
