//! Writes the records into the cluster, many at once.

use std::ops::Range;
use std::sync::Arc;

use anyhow::ensure;
use bytes::Bytes;
use client::cluster_client::{Call, ClusterClient};
use tokio::task::JoinSet;

use super::records::Record;

/// Number of records of one batch.
const AT_ONCE: usize = 256;
const TASKS: usize = 4;
const ATTEMPTS_MAX: u32 = 10;

/// Writes every record as a hash, and returns when all are acknowledged. Calls `report` with the
/// number of records written so far.
pub async fn load(
    client: &Arc<ClusterClient>,
    records: &Arc<Vec<Record>>,
    mut report: impl FnMut(usize),
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    let ranges = (0..records.len()).step_by(AT_ONCE);
    let mut ranges = ranges.map(|from| from..(from + AT_ONCE).min(records.len()));
    let mut written = 0;
    loop {
        while tasks.len() < TASKS {
            let Some(range) = ranges.next() else { break };
            tasks.spawn(write(client.clone(), records.clone(), range));
        }
        let Some(done) = tasks.join_next().await else { return Ok(()) };
        written += done??;
        report(written);
    }
}

async fn write(
    client: Arc<ClusterClient>,
    records: Arc<Vec<Record>>,
    range: Range<usize>,
) -> anyhow::Result<usize> {
    let calls: Vec<Call> = records[range.clone()].iter().map(hset).collect();
    let mut outcomes = client.call_many(&calls).await;
    for (call, outcome) in calls.iter().zip(&mut outcomes) {
        // Writing the same fields again is harmless, so a write with an unknown outcome may be
        // repeated here.
        let mut attempts = 0;
        while !outcome.acknowledged() {
            attempts += 1;
            ensure!(attempts <= ATTEMPTS_MAX, "a record cannot be loaded: {outcome:?}");
            *outcome = client.call(call).await;
        }
    }
    Ok(range.len())
}

fn hset(record: &Record) -> Call {
    let mut arguments: Vec<Bytes> = vec!["HSET".into(), record.key.clone()];
    for (name, value) in &record.fields {
        arguments.extend([name.clone(), value.clone()]);
    }
    Call::new(arguments, false)
}
