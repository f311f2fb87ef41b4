//! The claims of a scenario, and whether they hold.

use serde::{Deserialize, Serialize};

use client::table::{Align, Table};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub claim: String,
    pub passed: bool,
    /// The numbers on which the verdict is based.
    pub because: String,
}

impl Verdict {
    pub fn new(claim: impl Into<String>, passed: bool, because: impl Into<String>) -> Verdict {
        Verdict { claim: claim.into(), passed, because: because.into() }
    }
}

/// Returns the table of the verdicts in a report.
pub fn verdicts(all: &[Verdict]) -> Table {
    let mut table = Table::new([("claim", Align::Left), ("", Align::Left), ("numbers", Align::Left)]);
    for verdict in all {
        let word = if verdict.passed { "holds" } else { "**does not hold**" };
        table.row([verdict.claim.clone(), word.to_owned(), verdict.because.clone()]);
    }
    table
}
