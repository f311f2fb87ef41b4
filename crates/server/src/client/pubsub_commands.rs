//! The commands on channels.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use command::{ChannelKind, CommandSpec, PubSubCommand};
use node::session::Own;
use node::{Answer, Item, ItemSlot};
use resp::Reply;
use types::StoreId;

use super::Connected;
use crate::connections::{ClientEntry, ListenerKind};
use crate::proposals::cluster_down;
use crate::pubsub::Unsubscribed;
use crate::store::{Route, Store};

/// Interval and number of looks for room in the mailboxes, before a publication goes on without.
const ROOM_LOOK: Duration = Duration::from_millis(1);
const ROOM_LOOKS_MAX: usize = 100;
/// Interval at which the leadership of shard channels is looked at, besides its known changes.
const SHARDS_LOOK: Duration = Duration::from_secs(1);

const NO_ROOM: &str = "ERR the subscriptions of this store's clients take all memory that they may take";

pub fn subscribe(
    store: &Store,
    client: &mut Connected<'_>,
    kind: ChannelKind,
    spec: &'static CommandSpec,
    args: &[Bytes],
) -> Own {
    if let Err(error) = shard_leader(store, kind, spec, args).and_then(|leader| here(store, leader)) {
        return Own::Reply(error);
    }
    let subscriber = &client.entry.subscriber;
    let mut confirmations = Vec::with_capacity(args.len() - 1);
    for name in &args[1..] {
        let Some(count) = store.clients.pubsub.subscribe(subscriber, kind, name) else {
            confirmations.push(Reply::error(NO_ROOM).into());
            break;
        };
        confirmations.push(confirmation(spec.name, Reply::Bulk(name.clone()), count));
    }
    client.context.is_subscriber = subscriber.is_subscribed();
    Own::Several(confirmations)
}

pub fn unsubscribe(
    store: &Store,
    client: &mut Connected<'_>,
    kind: ChannelKind,
    spec: &'static CommandSpec,
    args: &[Bytes],
) -> Own {
    if let Err(error) = shard_leader(store, kind, spec, args).and_then(|leader| here(store, leader)) {
        return Own::Reply(error);
    }
    let subscriber = &client.entry.subscriber;
    let ended = store.clients.pubsub.unsubscribe(subscriber, kind, &args[1..]);
    client.context.is_subscriber = subscriber.is_subscribed();
    // Messages that were published before come before the confirmations.
    let mut answers = mail(client.entry);
    answers.extend(ended.into_iter().map(|Unsubscribed { name, left }| {
        confirmation(spec.name, name.map_or(Reply::Nil, Reply::Bulk), left)
    }));
    Own::Several(answers)
}

fn confirmation(word: &'static str, name: Reply, count: u32) -> Answer {
    Reply::Push(vec![Reply::bulk(word), name, Reply::Int(i64::from(count))]).into()
}

/// Returns the messages that wait for a client.
pub fn mail(entry: &ClientEntry) -> Vec<Answer> {
    let mut answers = Vec::new();
    if entry.subscriber.has_mail() {
        // A client that must end is ended by its loop.
        let _ = entry.subscriber.take(|message| {
            message.parts(|part| answers.push(Answer::Encoded(part.clone())));
            true
        });
    }
    answers
}

/// Executes `PUBLISH` or `SPUBLISH`, unless it must wait for room.
pub fn publish(
    store: &Store,
    client: &Connected<'_>,
    kind: ChannelKind,
    spec: &'static CommandSpec,
    args: &[Bytes],
) -> Own {
    let leader = match shard_leader(store, kind, spec, args) {
        Ok(leader) if client.kind == ListenerKind::Client => here(store, leader).map(|()| None),
        Ok(leader) => Ok(leader),
        Err(error) => Err(error),
    };
    let leader = match leader {
        Ok(leader) => leader,
        Err(error) => return Own::Reply(error),
    };
    if store.clients.pubsub.memory().is_short() {
        return Own::Later;
    }
    let reply = deliver(store, kind, leader, args);
    let mut answers = mail(client.entry);
    answers.push(reply.into());
    Own::Several(answers)
}

/// Publishes once the mailboxes have room, or after a while: then the subscribers that are behind
/// end.
pub async fn publish_later(
    store: &Arc<Store>,
    kind: ChannelKind,
    spec: &'static CommandSpec,
    args: &[Bytes],
) -> Reply {
    for _ in 0..ROOM_LOOKS_MAX {
        if !store.clients.pubsub.memory().is_short() {
            break;
        }
        tokio::time::sleep(ROOM_LOOK).await;
    }
    match shard_leader(store, kind, spec, args) {
        Ok(leader) => deliver(store, kind, leader, args),
        Err(error) => error,
    }
}

/// Publishes to the clients of this store, and of the others that may have some. `leader` is the
/// store that leads the slot of a shard channel.
fn deliver(store: &Store, kind: ChannelKind, leader: Option<Leader>, args: &[Bytes]) -> Reply {
    let (channel, payload) = (&args[1], &args[2]);
    match leader.map(|leader| leader.store).filter(|leader| *leader != store.id) {
        Some(leader) => {
            store.spread.to_one(leader, kind, channel, payload);
            Reply::Int(0)
        }
        None => {
            let receivers = store.clients.pubsub.publish(kind, channel, payload);
            if kind == ChannelKind::Channel || !store.config.cluster_enabled {
                store.spread.to_all(kind, channel, payload);
            }
            Reply::Int(receivers as i64)
        }
    }
}

/// The store that leads the slot of shard channels, and the answer that sends clients there.
struct Leader {
    store: StoreId,
    moved: Option<Reply>,
}

/// Returns the leader of a command's shard channels. In other cases every store serves them.
fn shard_leader(
    store: &Store,
    kind: ChannelKind,
    spec: &'static CommandSpec,
    args: &[Bytes],
) -> Result<Option<Leader>, Reply> {
    if kind != ChannelKind::Shard || !store.config.cluster_enabled || args.len() < 2 {
        return Ok(None);
    }
    let item = Item { spec, args: args.to_vec(), db: 0, resp3: false, slot: ItemSlot::of(spec, args) };
    let region = match store.route(&item)? {
        Route::Region(region) => region,
        Route::Every(_) | Route::Unknown(_) => return Err(cluster_down()),
    };
    let leader = region.leader().ok_or_else(cluster_down)?;
    let moved = if leader == store.id { None } else { store.moved(&region, &item) };
    Ok(Some(Leader { store: leader, moved }))
}

/// Refuses shard channels that another store serves.
fn here(store: &Store, leader: Option<Leader>) -> Result<(), Reply> {
    match leader {
        Some(leader) if leader.store != store.id => Err(leader.moved.unwrap_or_else(cluster_down)),
        _ => Ok(()),
    }
}

pub fn inspect(store: &Store, command: PubSubCommand, args: &[Bytes]) -> Reply {
    let pubsub = &store.clients.pubsub;
    let kind = match command {
        PubSubCommand::ShardChannels | PubSubCommand::ShardNumSub => ChannelKind::Shard,
        PubSubCommand::Channels | PubSubCommand::NumSub | PubSubCommand::NumPat => ChannelKind::Channel,
    };
    match (command, &args[2..]) {
        (PubSubCommand::NumPat, _) => Reply::Int(pubsub.totals().1 as i64),
        (PubSubCommand::NumSub | PubSubCommand::ShardNumSub, names) => {
            let counted = |name: &Bytes| [Reply::Bulk(name.clone()), count(pubsub.count(kind, name))];
            Reply::Array(names.iter().flat_map(counted).collect())
        }
        (_, [] | [_]) => {
            let pattern = args.get(2).map(|pattern| &pattern[..]);
            Reply::Array(pubsub.channels(kind, pattern).into_iter().map(Reply::Bulk).collect())
        }
        _ => command::wrong_subcommand(args),
    }
}

fn count(count: usize) -> Reply {
    Reply::Int(count as i64)
}

/// Ends subscriptions to shard channels when another store leads their slots.
pub async fn keep_shards(store: Arc<Store>) {
    if !store.config.cluster_enabled {
        return;
    }
    loop {
        let changed = store.regions.leader_changes.notified();
        store.clients.pubsub.end_shards(|slot| {
            let leader = store.regions.of_slot(slot).and_then(|region| region.leader());
            leader.is_some_and(|leader| leader != store.id)
        });
        let _ = tokio::time::timeout(SHARDS_LOOK, changed).await;
    }
}
