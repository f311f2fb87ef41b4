//! Commands about the whole keyspace: asked of every region, and their answers put together.
//!
//! On the client port of a cluster they speak of the regions that this store leads, as a Redis Cluster
//! node speaks of its own slots; elsewhere of all regions.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::future::join_all;
use resp::Reply;

use super::session::{Door, Session};
use crate::dispatch::{Answer, Item};
use crate::region::shared::RegionShared;
use crate::store::Store;

pub async fn run(store: &Arc<Store>, session: &Session, item: Item, deadline: Instant) -> Answer {
    let regions: Vec<Arc<RegionShared>> = match store.config.cluster_enabled && session.door == Door::Client {
        true => store.user_regions().filter(|r| r.leader() == Some(store.id)).cloned().collect(),
        false => store.user_regions().cloned().collect(),
    };
    match item.spec.name {
        "scan" => scan(store, &regions, item, deadline).await,
        "randomkey" => random_key(store, &regions, item, deadline).await,
        _ => {
            if let [only] = regions.as_slice() {
                return one(store, only, item, deadline).await;
            }
            let asked = regions.iter().map(|region| one(store, region, item.clone(), deadline));
            let replies: Vec<Reply> = join_all(asked).await.into_iter().map(Answer::into_reply).collect();
            join(item.spec.name, replies).into()
        }
    }
}

async fn one(store: &Arc<Store>, region: &Arc<RegionShared>, item: Item, deadline: Instant) -> Answer {
    let mut answers = store.execute(region, vec![item], deadline).await;
    answers.pop().unwrap_or_else(|| crate::dispatch::cluster_down().into())
}

/// The first error, or the sum, the concatenation, or OK.
fn join(name: &str, replies: Vec<Reply>) -> Reply {
    if let Some(error) = replies.iter().find(|reply| reply.is_error()) {
        return error.clone();
    }
    match name {
        "dbsize" => Reply::Int(
            replies.iter().map(|reply| if let Reply::Int(count) = reply { *count } else { 0 }).sum(),
        ),
        "keys" => Reply::Array(
            replies
                .into_iter()
                .flat_map(|reply| if let Reply::Array(keys) = reply { keys } else { Vec::new() })
                .collect(),
        ),
        _ => Reply::OK,
    }
}

/// Asks the region in which the cursor stands; when that is exhausted, the cursor goes on at the next
/// region's first slot.
async fn scan(store: &Arc<Store>, regions: &[Arc<RegionShared>], item: Item, deadline: Instant) -> Answer {
    let Some(cursor) = command::parse_cursor(&item.args[1]) else {
        return Reply::error("ERR invalid cursor").into();
    };
    let slot = command::cursor_slot(cursor);
    let at = regions.iter().position(|r| r.descriptor.slots.is_some_and(|range| slot <= range.last));
    let Some(at) = at else {
        return Reply::Array(vec![Reply::bulk("0"), Reply::Array(Vec::new())]).into();
    };
    let start = regions[at].descriptor.slots.map_or(0, |range| range.first);
    let mut asked = item;
    if slot < start {
        asked.args[1] = Bytes::from(command::cursor_at(start).to_string());
    }
    let reply = one(store, &regions[at], asked, deadline).await.into_reply();
    let Reply::Array(mut parts) = reply else { return reply.into() };
    let exhausted = matches!(parts.first(), Some(Reply::Bulk(cursor)) if cursor[..] == *b"0");
    if let (true, Some(next)) = (exhausted, regions.get(at + 1)) {
        let first = next.descriptor.slots.map_or(0, |range| range.first);
        parts[0] = Reply::bulk(command::cursor_at(first).to_string());
    }
    Reply::Array(parts).into()
}

/// Any key of any region: regions are asked in turn, from one that changes with every call.
async fn random_key(
    store: &Arc<Store>,
    regions: &[Arc<RegionShared>],
    item: Item,
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
