//! A committed entry is permanent: no other entry is committed at its index, and every later leader
//! has it.

use std::collections::BTreeMap;

use types::{LogIndex, RegionId, Term};

use super::Invariant;
use crate::observation::Observation;
use crate::rng::fold;

#[derive(Default)]
struct Log {
    entries: BTreeMap<LogIndex, (Term, u64)>,
    /// The last index that was known to be committed in each term.
    by_term: BTreeMap<Term, LogIndex>,
}

#[derive(Default)]
pub struct CommittedStays {
    regions: BTreeMap<RegionId, Log>,
}

impl Invariant for CommittedStays {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::Committed { region, term, entries } => {
                let log = self.regions.entry(*region).or_default();
                for entry in *entries {
                    let this = (entry.term, fold(entry.term, &entry.payload));
                    let known = *log.entries.entry(entry.index).or_insert(this);
                    if known != this {
                        return Err(format!(
                            "region {region} committed two entries {}: of term {} and of term {}",
                            entry.index, known.0, entry.term
                        ));
                    }
                    let through = log.by_term.entry(*term).or_default();
                    *through = (*through).max(entry.index);
                }
                Ok(())
            }
            Observation::Led { store, region, term, last } => {
                let Some(log) = self.regions.get(region) else { return Ok(()) };
                let needed = log.by_term.range(..term).map(|(_, &through)| through).max().unwrap_or(0);
                if *last < needed {
                    return Err(format!(
                        "store {store} leads region {region} in term {term} with a log to {last}, not {needed}"
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
