//! Entries of the same index and term are equal, and so are all entries before them.
//!
//! An entry that a crash removed before it was synced does not count, because the only voter of a
//! region may reuse the term. It is enough to compare the entry and the term of its predecessor.
//! The rest follows by induction.

use std::collections::BTreeMap;

use types::{LogIndex, RegionId, Term};

use super::Invariant;
use crate::observation::Observation;
use crate::rng::fold;

#[derive(Default)]
pub struct LogMatching {
    /// The digest of an entry, and the term of its predecessor if known.
    written: BTreeMap<(RegionId, LogIndex, Term), (u64, Option<Term>)>,
}

impl Invariant for LogMatching {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let &Observation::Synced { store, region, entries, mut before } = seen else { return Ok(()) };
        for entry in entries {
            let digest = fold(entry.get_entry_type() as u64, &entry.data);
            let known = self.written.entry((region, entry.index, entry.term)).or_insert((digest, before));
            let agrees = known.1.is_none() || before.is_none() || known.1 == before;
            if known.0 != digest || !agrees {
                let (index, term) = (entry.index, entry.term);
                return Err(format!(
                    "store {store} wrote another entry {index} of term {term} in region {region}"
                ));
            }
            known.1 = known.1.or(before);
            before = Some(entry.term);
        }
        Ok(())
    }
}
