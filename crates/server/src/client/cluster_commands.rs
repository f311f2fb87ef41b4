//! CLUSTER: the regions and stores in the form that Redis Cluster's clients expect.
//!
//! A store that leads some regions and follows others appears only as a master. Clients keep one
//! role for each address. A client that last read "replica" would drop the store from its masters.
//! A store appears as a replica of the regions that it follows only while it leads none.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bytes::Bytes;
use command::ClusterCommand;
use node::session::Own;
use resp::Reply;
use types::{Slot, SlotRange, StoreId, UnixMillis, SLOT_COUNT};

use crate::config::Member;
use crate::store::Store;

/// A run of slots led by one store, and the stores that may be shown as its replicas.
struct Led {
    range: SlotRange,
    leader: Option<StoreId>,
    /// The store that clients should ask: the leader, or a voter if the leader is unknown.
    asked: Option<StoreId>,
    replicas: Vec<StoreId>,
}

pub fn run(store: &Store, command: ClusterCommand, args: &[Bytes]) -> Own {
    if !store.config.cluster_enabled {
        return Own::Reply(Reply::error("ERR This instance has cluster support disabled"));
    }
    Own::Reply(match command {
        ClusterCommand::Slots => slots(store),
        ClusterCommand::Shards => shards(store),
        ClusterCommand::Nodes => Reply::Verbatim("txt", nodes(store).into()),
        ClusterCommand::Info => Reply::Verbatim("txt", info(store).into()),
        ClusterCommand::MyId => Reply::bulk(node_id(store, store.id)),
        ClusterCommand::KeySlot => Reply::Int(i64::from(types::slot_of_key(&args[2]))),
        // Every store is shown as a master, so none has replicas.
        ClusterCommand::Replicas => {
            let members = store.membership.members();
            match members.list.iter().any(|member| node_id(store, member.id).as_bytes() == &args[2][..]) {
                true => Reply::Array(Vec::new()),
                false => Reply::error(format!("ERR Unknown node {}", String::from_utf8_lossy(&args[2]))),
            }
        }
        ClusterCommand::Links => Reply::Array(Vec::new()),
        ClusterCommand::CountKeysInSlot | ClusterCommand::GetKeysInSlot => return Own::Later,
        ClusterCommand::Help => command::help(args),
    })
}

/// Executes the commands that read rows.
pub async fn read_slot(store: &Store, args: &[Bytes]) -> Reply {
    match &args[2..] {
        [slot] => match parse_slot(slot) {
            Some(slot) => count_keys(store, slot).await,
            None => Reply::error("ERR Invalid slot"),
        },
        [slot, count] => {
            let count = std::str::from_utf8(count).ok().and_then(|c| c.parse::<usize>().ok());
            match (parse_slot(slot), count) {
                (Some(slot), Some(count)) => keys(store, slot, count).await,
                _ => Reply::error("ERR Invalid slot or number of keys"),
            }
        }
        _ => Reply::error("ERR syntax error"),
    }
}

/// Returns the id of a store: forty hexadecimal digits, equal on every store as long as the cluster
/// keeps its layout.
pub fn node_id(store: &Store, id: StoreId) -> String {
    let digest = store.membership.identity.layout_digest;
    format!("{digest:016x}{:016x}{id:08x}", digest.rotate_left(17) ^ 0x5bd1_e995_9e37_79b9)
}

fn parse_slot(text: &[u8]) -> Option<Slot> {
    std::str::from_utf8(text).ok()?.parse::<u16>().ok().filter(|slot| *slot < SLOT_COUNT)
}

/// Returns the leaders by slots. Adjacent runs with equal leaders and replicas are joined.
fn led(store: &Store) -> Vec<Led> {
    let table = store.regions.table();
    let ranges = table.ranges();
    let leading: BTreeSet<StoreId> =
        ranges.iter().filter_map(|(_, region)| region.and_then(|region| region.leader())).collect();
    let mut all: Vec<Led> = Vec::new();
    for (range, region) in ranges {
        let leader = region.and_then(|region| region.leader());
        let voters: Vec<StoreId> =
            region.map(|region| region.newest().voters().collect()).unwrap_or_default();
        let asked = leader.or_else(|| likely_leader(&voters, |id| store.cluster.is_heard(id)));
        let replicas = voters.into_iter().filter(|id| !leading.contains(id) && Some(*id) != asked).collect();
        match all.last_mut() {
            Some(last) if (last.leader, last.asked) == (leader, asked) && last.replicas == replicas => {
                last.range.last = range.last;
            }
            _ => all.push(Led { range, leader, asked, replicas }),
        }
    }
    all
}

/// Returns the voter that clients should ask if the leader is unknown. Redis names the failed
/// master until there is another one. Clients combine the tables of several stores if one has
/// gaps, and some give up if these differ.
fn likely_leader(voters: &[StoreId], is_heard: impl Fn(StoreId) -> bool) -> Option<StoreId> {
    voters.iter().copied().find(|id| is_heard(*id)).or_else(|| voters.first().copied())
}

fn node(store: &Store, member: &Member) -> Reply {
    Reply::Array(vec![
        Reply::bulk(member.client.ip().to_string()),
        Reply::Int(i64::from(member.client.port())),
        Reply::bulk(node_id(store, member.id)),
        Reply::Array(Vec::new()),
    ])
}

fn slots(store: &Store) -> Reply {
    let rows = led(store).into_iter().filter_map(|led| {
        let leader = store.membership.member(led.asked?)?;
        let mut row = vec![Reply::Int(i64::from(led.range.first)), Reply::Int(i64::from(led.range.last))];
        row.push(node(store, &leader));
        row.extend(
            led.replicas.iter().filter_map(|id| store.membership.member(*id)).map(|m| node(store, &m)),
        );
        Some(Reply::Array(row))
    });
    Reply::Array(rows.collect())
}

fn shards(store: &Store) -> Reply {
    let led = led(store);
    let text = |text: &str| Reply::bulk(text.as_bytes().to_vec());
    let shard = |member: &Member| {
        let ranges = led.iter().filter(|led| led.asked == Some(member.id));
        let slots =
            ranges.flat_map(|led| [led.range.first, led.range.last]).map(|s| Reply::Int(i64::from(s)));
        let health = if store.cluster.is_heard(member.id) { "online" } else { "fail" };
        let offset = store.regions.table().iter().map(|region| region.applied()).max().unwrap_or(0);
        let node = Reply::Map(vec![
            (text("id"), text(&node_id(store, member.id))),
            (text("port"), Reply::Int(i64::from(member.client.port()))),
            (text("ip"), text(&member.client.ip().to_string())),
            (text("endpoint"), text(&member.client.ip().to_string())),
            (text("role"), text("master")),
            (text("replication-offset"), Reply::Int(offset as i64)),
            (text("health"), text(health)),
        ]);
        Reply::Map(vec![
            (text("slots"), Reply::Array(slots.collect())),
            (text("nodes"), Reply::Array(vec![node])),
        ])
    };
    Reply::Array(store.membership.members().list.iter().map(shard).collect())
}

fn nodes(store: &Store) -> String {
    let led = led(store);
    let mut text = String::new();
    for member in &store.membership.members().list {
        let mut flags = String::new();
        if member.id == store.id {
            flags.push_str("myself,");
        }
        flags.push_str("master");
        let heard = store.cluster.is_heard(member.id);
        if !heard {
            flags.push_str(",fail");
        }
        let _ = write!(
            text,
            "{} {}@{} {flags} - 0 0 {} {}",
            node_id(store, member.id),
            member.client,
            member.peer.port(),
            member.id + 1,
            if heard { "connected" } else { "disconnected" },
        );
        for led in led.iter().filter(|led| led.asked == Some(member.id)) {
            let _ = match led.range {
                SlotRange { first, last } if first == last => write!(text, " {first}"),
                SlotRange { first, last } => write!(text, " {first}-{last}"),
            };
        }
        text.push('\n');
    }
    text
}

fn info(store: &Store) -> String {
    let led = led(store);
    let ok: usize = led.iter().filter(|led| led.leader.is_some()).map(|led| led.range.len()).sum();
    let fail = usize::from(SLOT_COUNT) - ok;
    let size = led.iter().filter_map(|led| led.leader).collect::<BTreeSet<_>>().len();
    let epoch = store.regions.of_users().iter().map(|region| region.leadership().term).max().unwrap_or(0);
    format!(
        "cluster_enabled:1\r\ncluster_state:{}\r\ncluster_slots_assigned:{SLOT_COUNT}\r\ncluster_slots_ok:{ok}\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:{fail}\r\ncluster_known_nodes:{}\r\ncluster_size:{size}\r\n\
         cluster_current_epoch:{epoch}\r\ncluster_my_epoch:{}\r\ncluster_stats_messages_sent:{}\r\n\
         cluster_stats_messages_received:0\r\n",
        if fail == 0 { "ok" } else { "fail" },
        store.membership.members().list.len(),
        store.id + 1,
        store.metrics.raft_messages_sent.get(),
    )
}

/// Returns the time at which the slot's region is read here.
fn time_in(store: &Store, slot: Slot) -> UnixMillis {
    let wall_ms = store.wall.millis();
    store.regions.of_slot(slot).map_or(wall_ms, |region| region.read_time(wall_ms))
}

/// Counts the keys of a slot in this store's applied rows.
async fn count_keys(store: &Store, slot: Slot) -> Reply {
    let (engine, now_ms) = (store.engine.clone(), time_in(store, slot));
    match tokio::task::spawn_blocking(move || engine.keys_in_slot(slot, now_ms, usize::MAX)).await {
        Ok(Ok(keys)) => Reply::Int(keys.len() as i64),
        _ => Reply::error("ERR the slot cannot be read"),
    }
}

async fn keys(store: &Store, slot: Slot, count: usize) -> Reply {
    let (engine, now_ms) = (store.engine.clone(), time_in(store, slot));
    match tokio::task::spawn_blocking(move || engine.keys_in_slot(slot, now_ms, count)).await {
        Ok(Ok(keys)) => Reply::Array(keys.into_iter().map(Reply::Bulk).collect()),
        _ => Reply::error("ERR the slot cannot be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_without_a_leader_ask_a_voter_that_is_heard() {
        assert_eq!(likely_leader(&[3, 1, 2], |id| id != 3), Some(1));
        assert_eq!(likely_leader(&[3, 1, 2], |_| false), Some(3));
        assert_eq!(likely_leader(&[], |_| true), None);
    }
}
