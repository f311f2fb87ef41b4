//! `ctl check`: the region's leader orders a check of its replicas.

use std::sync::Arc;
use std::time::Duration;

use cluster::admin::{CheckRequest, CheckRow, CheckedRow};
use cluster::{CheckOutcome, Comparison, Verdict};
use serde_json::Value;
use types::RegionId;

use super::ask::{ask_leader, read, Ask, NotAnswered};
use super::operations::{Change, Served};
use crate::admin_error::{refuse, AdminError};
use crate::check_schedule::NotChecked;
use crate::consistency_checks::{self, BYTES_PER_SECOND};
use crate::store::Store;

/// Time that the leader's answer may take in addition to reading the rows.
const PATIENCE: Duration = Duration::from_secs(30);

impl Served for CheckRequest {
    /// Asks the region's leader, on any store, to compare the region's replicas.
    async fn serve(
        self,
        region: RegionId,
        store: &Arc<Store>,
        _: Change<'_>,
    ) -> Result<CheckRow, AdminError> {
        let Some(shared) = store.regions.get(region) else {
            return Err(refuse(404, format!("no region {region}")));
        };
        let bytes = store.cluster.loads().get(&region).map_or(0, |(_, bytes)| *bytes);
        let patience = PATIENCE + Duration::from_secs(4 * bytes / BYTES_PER_SECOND);
        read(ask_leader(store, &shared, Ask::Check { region }, patience).await?)
    }
}

/// Compares the replicas as the region's leader.
pub async fn answer(store: &Store, region: RegionId) -> Result<Value, NotAnswered> {
    let Some(shared) = store.regions.get(region).filter(|region| store.regions.leads(region)) else {
        return Err(NotAnswered::NotLeader);
    };
    let comparison = match store.check_schedule().check(&shared).await {
        Ok(comparison) => comparison,
        Err(NotChecked::NotLeader) => return Err(NotAnswered::NotLeader),
        Err(NotChecked::Error(error)) => return Err(refuse(503, error).into()),
    };
    let peers = shared.newest().peers.iter().map(|peer| peer.store).collect::<Vec<_>>();
    Ok(serde_json::to_value(row(&comparison, &peers)).expect("plain data"))
}

/// Returns the comparison as shown by `ctl check`. `peers` are shown even without a report.
fn row(comparison: &Comparison, peers: &[u64]) -> CheckRow {
    let (verdict, differing) = match &comparison.verdict {
        Verdict::Equal => ("equal", Vec::new()),
        Verdict::Minority { stores } => ("minority", stores.clone()),
        Verdict::NoMajority => ("no majority", Vec::new()),
        Verdict::Incomplete { .. } => ("incomplete", Vec::new()),
    };
    let mut stores: Vec<u64> = peers.iter().chain(comparison.reports.keys()).copied().collect();
    stores.sort_unstable();
    stores.dedup();
    let checked = |store: u64| {
        let (checksum, rows, bytes) = match comparison.reports.get(&store) {
            Some(CheckOutcome::Rows(sum)) => (format!("{:016x}", sum.checksum), sum.rows, sum.bytes),
            Some(CheckOutcome::Unreadable) => ("unreadable".to_owned(), 0, 0),
            Some(CheckOutcome::Skipped) => ("skipped".to_owned(), 0, 0),
            None => ("none".to_owned(), 0, 0),
        };
        CheckedRow { store, checksum, rows, bytes }
    };
    CheckRow {
        region: comparison.region,
        index: comparison.index,
        verdict: verdict.to_owned(),
        differing,
        stores: stores.into_iter().map(checked).collect(),
        note: consistency_checks::in_words(comparison),
    }
}
