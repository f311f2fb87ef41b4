//! The text of a comparison, for the log and for `ctl check`.

use cluster::{CheckOutcome, Comparison, Verdict};
use types::StoreId;

/// Returns the verdict, each store's report, and the operator's next step.
pub fn in_words(comparison: &Comparison) -> String {
    let Comparison { region, index, reports, verdict } = comparison;
    let found = reports.iter().map(|(store, outcome)| format!("store {store} {}", outcome_in_words(outcome)));
    let found = found.collect::<Vec<_>>().join(", ");
    let list = |stores: &[StoreId]| {
        let stores: Vec<String> = stores.iter().map(StoreId::to_string).collect();
        format!("store{} {}", if stores.len() == 1 { "" } else { "s" }, stores.join(", "))
    };
    match verdict {
        Verdict::Equal => format!("the replicas of region {region} are equal at index {index}"),
        Verdict::Minority { stores } => {
            let (first, differ) = (stores.first().copied().unwrap_or_default(), list(stores));
            format!(
                "the rows of region {region} at index {index} on {differ} are not those of the majority ({found}): \
                 it is quarantined, and its rows are kept; look at the device of {differ}, then have the peer made again: \
                 steelyard ctl quarantine refill {region} {first}"
            )
        }
        Verdict::NoMajority => format!(
            "the replicas of region {region} differ at index {index} and no majority has the same rows ({found}): \
             nothing is changed; take a copy of every store's directory before anything else, see \
             docs/OPERATING.md, replicas that differ"
        ),
        Verdict::Incomplete { missing } => format!(
            "the check of region {region} at index {index} is incomplete: no checksum from {} ({found})",
            list(missing)
        ),
    }
}

fn outcome_in_words(outcome: &CheckOutcome) -> String {
    match outcome {
        CheckOutcome::Rows(sum) => {
            format!("has checksum {:016x} over {} rows of {} bytes", sum.checksum, sum.rows, sum.bytes)
        }
        CheckOutcome::Unreadable => "cannot read its rows".to_owned(),
        CheckOutcome::Skipped => "skipped the check".to_owned(),
    }
}
