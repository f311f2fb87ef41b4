//! A region changes only from the epoch for which the change was proposed: a stale change is none.

use super::Invariant;
use crate::observation::Observation;

#[derive(Default)]
pub struct Epochs;

impl Invariant for Epochs {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match *seen {
            Observation::Changed { region, before, expect } if before != expect => {
                Err(format!("a change meant for {expect:?} of region {region} was made to {before:?}"))
            }
            _ => Ok(()),
        }
    }
}
