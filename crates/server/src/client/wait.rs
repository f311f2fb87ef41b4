//! `WAIT` and `WAITAOF`: wait until the client's writes are synced on other stores.
//!
//! A write is acknowledged when the leader and enough followers for a majority have synced it, so
//! both answer at once for that number. They wait only for more. `WAITAOF` counts the leader's own
//! copy apart from the others, and must count nothing that is not synced. So it needs `fsync
//! always` on every store. Only this store's setting is checked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use resp::Reply;
use tokio::time::Instant;
use types::{LogIndex, RegionId};

use crate::connections::ClientEntry;
use crate::store::Store;
use crate::Fsync;

/// Interval of looks at the followers' progress, which the leader publishes ten times a second.
const LOOK: Duration = Duration::from_millis(20);

/// The arguments: the number of other stores, and the time limit, if there is one.
pub fn parse(args: &[Bytes]) -> Result<(i64, Option<Duration>), Reply> {
    let Some(copies) = resp::parse_integer(&args[1]) else {
        return Err(Reply::error("ERR value is not an integer or out of range"));
    };
    Ok((copies, parse_timeout(&args[2])?))
}

fn parse_timeout(timeout: &[u8]) -> Result<Option<Duration>, Reply> {
    match resp::parse_integer(timeout) {
        None => Err(Reply::error("ERR timeout is not an integer or out of range")),
        Some(..0) => Err(Reply::error("ERR timeout is negative")),
        Some(0) => Ok(None),
        Some(ms) => Ok(Some(Duration::from_millis(ms.unsigned_abs()))),
    }
}

/// The arguments of `WAITAOF`: the number of other stores, and the time limit, if there is one. The
/// number of local copies is 0 or 1, and the leader has synced every write that was acknowledged.
pub fn parse_aof(args: &[Bytes], fsync: Fsync) -> Result<(i64, Option<Duration>), Reply> {
    let local = match resp::parse_integer(&args[1]) {
        None => return Err(Reply::error("ERR value is not an integer or out of range")),
        Some(local @ 0..=1) => local,
        Some(_) => return Err(Reply::error("ERR value is out of range, value must between 0 and 1")),
    };
    let Some(copies @ 0..) = resp::parse_integer(&args[2]) else {
        return Err(Reply::error("ERR value is out of range, must be positive"));
    };
    let limit = parse_timeout(&args[3])?;
    if fsync != Fsync::Always && (local > 0 || copies > 0) {
        return Err(Reply::error(
            "ERR WAITAOF needs 'fsync always' on every store: otherwise it is not known which writes are synced",
        ));
    }
    Ok((copies, limit))
}

/// Returns the number of other stores that have synced all writes of the client, as soon as it is
/// large enough, or at the time limit.
pub async fn wait(store: &Arc<Store>, client: &ClientEntry, args: &[Bytes]) -> Reply {
    match parse(args) {
        Ok(wanted) => Reply::Int(wait_for_copies(store, client, wanted).await),
        Err(error) => error,
    }
}

/// Same as [`wait`], and also returns the number of local copies: that of the leader.
pub async fn wait_aof(store: &Arc<Store>, client: &ClientEntry, args: &[Bytes]) -> Reply {
    let fsync = store.config.fsync;
    match parse_aof(args, fsync) {
        Ok(wanted) if fsync == Fsync::Always => {
            let copies = wait_for_copies(store, client, wanted).await;
            Reply::Array(vec![Reply::Int(1), Reply::Int(copies)])
        }
        Ok(_) => Reply::Array(vec![Reply::Int(0), Reply::Int(0)]),
        Err(error) => error,
    }
}

async fn wait_for_copies(
    store: &Store,
    client: &ClientEntry,
    (wanted, limit): (i64, Option<Duration>),
) -> i64 {
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut targets = targets(store, client);
    loop {
        if targets.iter().any(|(region, _)| store.regions.get(*region).is_none()) {
            targets = self::targets(store, client);
        }
        let synced = synced(store, &targets);
        if synced as i64 >= wanted || until.is_some_and(|until| Instant::now() >= until) {
            return synced as i64;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the regions that hold the client's writes, and the indexes through which they do. The
/// writes are executed, for they were answered.
fn targets(store: &Store, client: &ClientEntry) -> Vec<(RegionId, LogIndex)> {
    let all = || store.regions.of_users();
    let is_there = |region: &RegionId| store.regions.get(*region).is_some();
    let regions: BTreeSet<RegionId> = match client.regions_written() {
        // Without a write of the client the regions count that this store leads.
        Some(written) if written.is_empty() => {
            let led = all().into_iter().filter(|region| region.leader() == Some(store.id));
            led.map(|region| region.id()).collect()
        }
        Some(written) if written.iter().all(is_there) => written,
        // One has merged into another.
        _ => all().iter().map(|region| region.id()).collect(),
    };
    regions.iter().filter_map(|id| Some((*id, store.regions.get(*id)?.applied()))).collect()
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

    #[test]
    fn only_synced_copies_count_for_the_log() {
        let parsed = |fsync, [local, copies, timeout]: [&'static str; 3]| {
            parse_aof(&["waitaof".into(), local.into(), copies.into(), timeout.into()], fsync)
        };
        let refused = |args, text: &'static str| {
            assert_eq!(parsed(Fsync::Always, args), Err(Reply::error(text)), "{args:?}");
        };
        assert_eq!(parsed(Fsync::Always, ["1", "2", "0"]), Ok((2, None)));
        assert_eq!(parsed(Fsync::Always, ["0", "0", "5"]), Ok((0, Some(Duration::from_millis(5)))));
        for local in ["2", "-1"] {
            refused([local, "0", "0"], "ERR value is out of range, value must between 0 and 1");
        }
        refused(["x", "0", "0"], "ERR value is not an integer or out of range");
        for copies in ["-1", "x"] {
            refused(["0", copies, "0"], "ERR value is out of range, must be positive");
        }
        refused(["0", "0", "x"], "ERR timeout is not an integer or out of range");
        refused(["0", "0", "-1"], "ERR timeout is negative");
        for fsync in [Fsync::EverySec, Fsync::No] {
            assert_eq!(parsed(fsync, ["0", "0", "0"]), Ok((0, None)));
            assert!(parsed(fsync, ["1", "0", "0"]).is_err() && parsed(fsync, ["0", "1", "0"]).is_err());
        }
    }
}
