//! `WAIT`: waits until the client's writes are synced on other stores.
//!
//! A write is acknowledged when the leader and enough followers for a majority have synced it, so
//! `WAIT` answers at once for that number. It waits only for more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use resp::Reply;
use tokio::time::Instant;
use types::{LogIndex, RegionId};

use crate::connections::ClientEntry;
use crate::store::Store;

/// Interval of looks at the followers' progress, which the leader publishes ten times a second.
const LOOK: Duration = Duration::from_millis(20);

/// The arguments: the number of other stores, and the time limit, if there is one.
pub fn parse(args: &[Bytes]) -> Result<(i64, Option<Duration>), Reply> {
    let Some(copies) = resp::parse_integer(&args[1]) else {
        return Err(Reply::error("ERR value is not an integer or out of range"));
    };
    match resp::parse_integer(&args[2]) {
        None => Err(Reply::error("ERR timeout is not an integer or out of range")),
        Some(..0) => Err(Reply::error("ERR timeout is negative")),
        Some(0) => Ok((copies, None)),
        Some(ms) => Ok((copies, Some(Duration::from_millis(ms.unsigned_abs())))),
    }
}

/// Returns the number of other stores that have synced all writes of the client, as soon as it is
/// large enough, or at the time limit.
pub async fn wait(store: &Arc<Store>, client: &ClientEntry, args: &[Bytes]) -> Reply {
    let (wanted, limit) = match parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return error,
    };
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let regions = match client.regions_written() {
        Some(written) if !written.is_empty() => written,
        written => {
            let mut regions = store.regions.of_users();
            if written.is_some() {
                // Without a write of the client the regions count that this store leads.
                regions.retain(|region| region.leader() == Some(store.id));
            }
            regions.iter().map(|region| region.id()).collect()
        }
    };
    // The client's writes are executed, for they were answered.
    let targets: Vec<(RegionId, LogIndex)> =
        regions.iter().filter_map(|id| Some((*id, store.regions.get(*id)?.applied()))).collect();
    loop {
        let synced = synced(store, &targets);
        if synced as i64 >= wanted || until.is_some_and(|until| Instant::now() >= until) {
            return Reply::Int(synced as i64);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the number of other stores that have synced every region through its index: the smallest
/// of the regions' numbers.
fn synced(store: &Store, targets: &[(RegionId, LogIndex)]) -> usize {
    targets.iter().map(|(region, index)| synced_through(store, *region, *index)).min().unwrap_or(0)
}

/// Returns the number of other stores that hold a region's log through an index.
fn synced_through(store: &Store, region: RegionId, index: LogIndex) -> usize {
    let Some(region) = store.regions.get(region) else { return 0 };
    let majority = region.newest().voters().count() / 2;
    match region.status() {
        Some(status) if status.leader == Some(store.id) => {
            let others = status.peers.iter().filter(|(peer, _)| **peer != store.id);
            others.filter(|(_, progress)| progress.matched >= index).count().max(majority)
        }
        // Another store leads it, and knows more.
        _ => majority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_refused_as_redis_does() {
        let parsed = |copies: &'static str, timeout: &'static str| {
            parse(&["wait".into(), copies.into(), timeout.into()])
        };
        assert_eq!(parsed("2", "0"), Ok((2, None)));
        assert_eq!(parsed("-1", "5"), Ok((-1, Some(Duration::from_millis(5)))));
        assert_eq!(parsed("x", "0"), Err(Reply::error("ERR value is not an integer or out of range")));
        assert_eq!(parsed("0", "x"), Err(Reply::error("ERR timeout is not an integer or out of range")));
        assert_eq!(parsed("0", "-1"), Err(Reply::error("ERR timeout is negative")));
    }
}
