//! A check of a region's replicas that somebody asks for: passed on to the region's leader, who orders it.

use std::time::Duration;

use cluster::{CheckOutcome, Comparison, Verdict};
use serde_json::Value;
use types::RegionId;

use super::{Ask, NotAnswered};
use crate::admin::{read_error, refuse, AdminError, CheckRow, CheckedRow};
use crate::checking::NotChecked;
use crate::checks::{self, BYTES_PER_SECOND};
use crate::store::Store;
use crate::transport::kinds::{REQUEST_ADMIN, STATUS_DONE, STATUS_NOT_LEADER};
use crate::transport::CallError;

/// How long the leader's answer may take beyond the time that the rows take to read.
const PATIENCE: Duration = Duration::from_secs(30);

/// Has the region's leader, wherever it is, compare its replicas.
pub async fn ask(store: &Store, region: RegionId) -> Result<CheckRow, AdminError> {
    let Some(shared) = store.regions.get(region) else {
        return Err(refuse(404, format!("no region {region}")));
    };
    let not_led = || refuse(503, format!("region {region} has no leader that can reach a quorum: try again"));
    let leader = shared.leader().ok_or_else(not_led)?;
    if leader == store.id {
        return match answer(store, region).await {
            Ok(value) => serde_json::from_value(value).map_err(|error| refuse(502, error.to_string())),
            Err(NotAnswered::NotLeader) => Err(not_led()),
            Err(NotAnswered::Error(error)) => Err(error),
        };
    }
    let body = serde_json::to_vec(&Ask::Check { region }).expect("plain data").into();
    let bytes = store.cluster.loads().get(&region).map_or(0, |(_, bytes)| *bytes);
    let wait = PATIENCE + Duration::from_secs(4 * bytes / BYTES_PER_SECOND);
    match store.transport.call(leader, REQUEST_ADMIN, body, wait).await {
        Ok((STATUS_DONE, body)) => {
            serde_json::from_slice(&body).map_err(|error| refuse(502, error.to_string()))
        }
        Ok((STATUS_NOT_LEADER, _)) => Err(not_led()),
        Ok((_, body)) => Err(read_error(&body)),
        Err(CallError::NotSent) => {
            Err(refuse(503, format!("store {leader}, which leads region {region}, is not reachable")))
        }
        Err(CallError::Unknown) => {
            Err(refuse(504, format!("store {leader}, which leads region {region}, did not answer")))
        }
    }
}

/// Compares the replicas as the region's leader.
pub async fn answer(store: &Store, region: RegionId) -> Result<Value, NotAnswered> {
    let Some(shared) = store.regions.get(region).filter(|region| store.regions.leads(region)) else {
        return Err(NotAnswered::NotLeader);
    };
    let comparison = match store.checking().check(&shared).await {
        Ok(comparison) => comparison,
        Err(NotChecked::NotLeader) => return Err(NotAnswered::NotLeader),
        Err(NotChecked::Error(error)) => return Err(refuse(503, error).into()),
    };
    let peers = shared.newest().peers.iter().map(|peer| peer.store).collect::<Vec<_>>();
    Ok(serde_json::to_value(row(&comparison, &peers)).expect("plain data"))
}

/// `peers`: the stores to be shown whether they have reported or not.
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
        note: checks::in_words(comparison),
    }
}
