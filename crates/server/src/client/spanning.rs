//! Commands about the whole keyspace: they are sent to every region, and their replies are
//! combined.
//!
//! On the client port of a cluster they cover the regions that this store leads, as a Redis Cluster
//! node covers its own slots. On other ports they cover all regions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use command::Spanning;
use futures::future::join_all;
use resp::Reply;
use types::{RegionId, SlotRange};

use crate::connections::ListenerKind;
use crate::proposals::cluster_down;
use crate::regions::RegionShared;
use crate::store::Store;
use node::{Answer, Item, ItemSlot};

/// Maximum wait, without a change notification, for regions that are being split or merged.
const REGIONS_POLL: Duration = Duration::from_millis(25);

/// A run of slots and the region that owns them.
type Run = (SlotRange, Option<Arc<RegionShared>>);

/// A function that combines the replies of all regions. The caller has already handled errors.
type Join = fn(Vec<Reply>) -> Reply;

pub async fn run(
    store: &Arc<Store>,
    kind: ListenerKind,
    spanning: Spanning,
    item: Item,
    deadline: Instant,
) -> Answer {
    let own = store.config.cluster_enabled && kind == ListenerKind::Client;
    let join: Option<Join> = match spanning {
        Spanning::Cursor => return scan(store, own, item, deadline).await,
        Spanning::FirstFound => None,
        Spanning::Sum => Some(sum),
        Spanning::Concatenate => Some(concatenation),
        Spanning::AllOk => Some(|_| Reply::OK),
    };
    loop {
        let changed = store.regions.leader_changes.notified();
        // While a region is split or merged, the new owner of its slots may not be known yet.
        if !own && !store.regions.table().covers_all() {
            if Instant::now() >= deadline {
                return cluster_down().into();
            }
            let _ = tokio::time::timeout(REGIONS_POLL, changed).await;
            continue;
        }
        let regions = regions_of(runs(store, own));
        let versions = versions(&regions);
        let answer = match join {
            None => first_found(store, &regions, &item, deadline).await,
            Some(join) => ask_all(store, &regions, &item, join, deadline).await,
        };
        // Slots that moved in between were counted twice or not at all.
        if own || versions == self::versions(&regions_of(runs(store, own))) || Instant::now() >= deadline {
            return answer;
        }
        let _ = tokio::time::timeout(REGIONS_POLL, changed).await;
    }
}

/// Returns all slots, or those of the regions that this store leads.
fn runs(store: &Store, own: bool) -> Vec<Run> {
    let table = store.regions.table();
    let owned = |(range, region): (SlotRange, Option<&Arc<RegionShared>>)| (range, region.cloned());
    let mut runs: Vec<Run> = table.ranges().into_iter().map(owned).collect();
    if own {
        runs.retain(|(_, region)| region.as_ref().is_some_and(|region| region.leader() == Some(store.id)));
    }
    runs
}

fn regions_of(runs: Vec<Run>) -> Vec<Arc<RegionShared>> {
    let mut regions: Vec<Arc<RegionShared>> = runs.into_iter().filter_map(|(_, region)| region).collect();
    // A region whose other end is not known yet may have two runs.
    let mut seen = std::collections::BTreeSet::new();
    regions.retain(|region| seen.insert(region.id()));
    regions
}

fn versions(regions: &[Arc<RegionShared>]) -> Vec<(RegionId, u64)> {
    regions.iter().map(|region| (region.id(), region.newest().epoch.version)).collect()
}

async fn ask_all(
    store: &Arc<Store>,
    regions: &[Arc<RegionShared>],
    item: &Item,
    join: Join,
    deadline: Instant,
) -> Answer {
    if let [only] = regions {
        return one(store, only, item.clone(), deadline).await;
    }
    let asked = regions.iter().map(|region| one(store, region, item.clone(), deadline));
    let replies: Vec<Reply> = join_all(asked).await.into_iter().map(Answer::into_reply).collect();
    match replies.iter().find(|reply| reply.is_error()) {
        Some(error) => error.clone().into(),
        None => join(replies).into(),
    }
}

async fn one(store: &Arc<Store>, region: &Arc<RegionShared>, item: Item, deadline: Instant) -> Answer {
    let mut answers = store.execute(region, Arc::new(vec![item]), deadline).await;
    answers.pop().unwrap_or_else(|| cluster_down().into())
}

fn sum(replies: Vec<Reply>) -> Reply {
    Reply::Int(replies.iter().map(|reply| if let Reply::Int(count) = reply { *count } else { 0 }).sum())
}

fn concatenation(replies: Vec<Reply>) -> Reply {
    let elements = |reply| if let Reply::Array(elements) = reply { elements } else { Vec::new() };
    Reply::Array(replies.into_iter().flat_map(elements).collect())
}

/// Scans the region of the cursor. At the region's end, the new cursor belongs to the next slot.
async fn scan(store: &Arc<Store>, own: bool, item: Item, deadline: Instant) -> Answer {
    let Some(cursor) = command::parse_cursor(&item.args[1]) else {
        return Reply::error("ERR invalid cursor").into();
    };
    let slot = command::cursor_slot(cursor);
    let (range, region) = loop {
        let changed = store.regions.leader_changes.notified();
        match runs(store, own).into_iter().find(|(range, _)| slot <= range.last) {
            None => return Reply::Array(vec![Reply::bulk("0"), Reply::Array(Vec::new())]).into(),
            Some((range, Some(region))) => break (range, region),
            // The owner of the slots is not known yet.
            Some((_, None)) if Instant::now() >= deadline => return cluster_down().into(),
            Some((_, None)) => {
                let _ = tokio::time::timeout(REGIONS_POLL, changed).await;
            }
        }
    };
    let mut asked = item;
    if slot < range.first {
        asked.args[1] = Bytes::from(command::cursor_at(range.first).to_string());
    }
    if store.config.cluster_enabled {
        // The slot ensures that the executing region owns the cursor's slot, even if it was just
        // moved.
        asked.slot = ItemSlot::One(slot.max(range.first));
    }
    one(store, &region, asked, deadline).await
}

/// Returns the first reply that is not nil. Asks the regions in turn, starting with a different one
/// in every call.
async fn first_found(
    store: &Arc<Store>,
    regions: &[Arc<RegionShared>],
    item: &Item,
    deadline: Instant,
) -> Answer {
    if regions.is_empty() {
        return Reply::Nil.into();
    }
    let start = crate::clock::boot_nanos() as usize % regions.len();
    for turn in 0..regions.len() {
        let region = &regions[(start + turn) % regions.len()];
        let reply = one(store, region, item.clone(), deadline).await.into_reply();
        if reply != Reply::Nil {
            return reply.into();
        }
    }
    Reply::Nil.into()
}
