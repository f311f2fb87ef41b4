//! The rows that the admin endpoint shows.

use std::sync::Arc;

use cluster::admin::{ConfigRow, OperatorRow, PeerRow, RegionRow, StoreRow};
use cluster::MemberState;
use types::StoreId;

use super::quarantine;
use crate::clock;
use crate::regions::RegionShared;
use crate::store::Store;

pub fn stores(store: &Store) -> Vec<StoreRow> {
    let now = clock::boot_nanos();
    let (members, regions) = (store.membership.members(), store.regions.of_users());
    let quarantined = quarantine::rows(store);
    let rows = members.list.iter().map(|member| {
        let heard = store.cluster.heard(member.id);
        let (at, heartbeat) = heard.map_or((None, Default::default()), |(at, beat)| (Some(at), beat));
        let up = store.cluster.is_heard(member.id);
        let leads = |region: &&Arc<RegionShared>| region.leader() == Some(member.id);
        let record = members.record(member.id);
        let cpu = heartbeat.cpu.filter(|_| up);
        let standing = store.cluster.standing(member.id);
        let standing = standing.as_ref();
        let stores =
            |of: fn(&cluster::Standing) -> &Vec<StoreId>| standing.map_or(Vec::new(), |s| of(s).clone());
        StoreRow {
            id: member.id,
            state: match record.map(|record| record.state) {
                Some(MemberState::Removed) => "removed",
                _ if up && heartbeat.stopping => "stopping",
                _ if up && heartbeat.hanging => "hanging",
                Some(MemberState::Draining) if up => "draining",
                _ if up && heartbeat.out_of_room => "out of room",
                _ if up && heartbeat.clock_off => "clock off",
                _ if up => "up",
                _ => "down",
            }
            .to_owned(),
            client: member.client.to_string(),
            peer: member.peer.to_string(),
            admin: member.admin.to_string(),
            forward: member.forward.map(|address| address.to_string()),
            peer_traffic: match (store.config.tls_cluster, member.peer.ip().is_loopback()) {
                (true, _) => "tls",
                (false, true) => "loopback",
                (false, false) => "insecure",
            }
            .to_owned(),
            device: member.device.clone(),
            capability_bytes_per_s: match standing {
                Some(standing) => standing.capability.kv_bytes_per_s,
                None => crate::config::capability_of(member).kv_bytes_per_s,
            },
            capability_spread: standing.map_or(0.0, |standing| standing.spread.kv_bytes_per_s),
            io_bytes_per_s: heartbeat.io_bytes_per_s,
            sync_us: standing.map_or(0, |standing| standing.sync_ns) as f64 / 1e3,
            correction: standing.map_or(1.0, |standing| standing.correction),
            shares_device_with: stores(|standing| &standing.shares_device_with),
            shares_host_with: stores(|standing| &standing.shares_host_with),
            data_weight: record.and_then(|record| record.data_weight),
            leader_weight: record.and_then(|record| record.leader_weight),
            leaders: regions.iter().filter(leads).count(),
            regions: regions.iter().filter(|r| r.newest().has_peer_on(member.id)).count(),
            used_bytes: heartbeat.used_bytes,
            capacity_bytes: heartbeat.capacity_bytes,
            unapplied_bytes: heartbeat.unapplied_bytes,
            behind: placement::is_behind(
                standing.map_or(heartbeat.capability, |standing| standing.capability),
                heartbeat.unapplied_bytes,
                &store.config.limits,
            ),
            clock_offset_ms: match member.id == store.id {
                true => store.wall.offset_ms(),
                false => store.wall.offset_of(member.id).filter(|_| up),
            },
            clock_off: up && heartbeat.clock_off,
            cpu_cores: cpu.map(|cpu| cpu.cores),
            cpu_busy: cpu.map(|cpu| cpu.busy),
            cpu_own_cores: cpu.map(|cpu| cpu.own),
            // The last heartbeat of a silent store says nothing about its present load.
            ops_per_s: if up { heartbeat.load_ops_per_s } else { 0.0 },
            p99_us: if up { heartbeat.p99_us } else { 0 },
            quarantined: quarantined.iter().filter(|row| row.store == member.id).count(),
            heard_ms_ago: at.map(|at| now.saturating_sub(at) / 1_000_000),
        }
    });
    rows.collect()
}

pub fn regions(store: &Store) -> Vec<RegionRow> {
    let (leads, loads) = (store.cluster.leads(), store.cluster.loads());
    let (quarantined, unclean) = (quarantine::rows(store), store.unsynced.unclean());
    let regions = store.regions.all();
    let rows = regions.iter().map(|region| {
        let (load, bytes) = loads.get(&region.id()).copied().unwrap_or_default();
        let descriptor = region.newest();
        let lead = leads.get(&region.id());
        let leadership = region.leadership();
        let peers = descriptor.peers.iter().map(|peer| PeerRow {
            store: peer.store,
            id: peer.id,
            role: match peer.role {
                types::PeerRole::Voter => "voter",
                types::PeerRole::Learner => "learner",
                types::PeerRole::Incoming => "incoming",
                types::PeerRole::Outgoing => "outgoing",
            }
            .to_owned(),
            lag: lead.and_then(|lead| lead.lag_of(peer.store)),
            quarantined: quarantined
                .iter()
                .find(|row| (row.region, row.store) == (region.id(), peer.store))
                .map(|row| row.cause.clone()),
            unclean: store.cluster.is_unclean(&descriptor, peer.store)
                || peer.store == store.id && unclean.get(&region.id()) == Some(&peer.id),
        });
        RegionRow {
            id: region.id(),
            first_slot: descriptor.slots.map(|slots| slots.first),
            last_slot: descriptor.slots.map(|slots| slots.last),
            epoch_conf_version: descriptor.epoch.conf_version,
            epoch_version: descriptor.epoch.version,
            joint: descriptor.is_joint(),
            leader: leadership.leader,
            term: leadership.term,
            peers: peers.collect(),
            keys: lead.map_or(0, |lead| lead.keys),
            bytes,
            read_rate: load.read_rate,
            miss_rate: load.miss_rate,
            write_rate: load.write_rate,
            heat: load.heat,
        }
    });
    rows.collect()
}

/// Returns a setting's row. `behind` lists the stores that may still use the previous settings.
pub fn config_row(setting: cluster::Setting, behind: &[StoreId]) -> ConfigRow {
    let mut note = setting.note.clone();
    if setting.is_for_every_store() && !behind.is_empty() {
        let stores: Vec<String> = behind.iter().map(StoreId::to_string).collect();
        note += &format!("; perhaps not known to store {} yet", stores.join(" "));
    }
    ConfigRow { name: setting.name.to_owned(), value: setting.value, note }
}

pub fn operator_row(entry: crate::cluster_state::OperatorEntry) -> OperatorRow {
    let operator = entry.operator;
    OperatorRow {
        region: operator.region(),
        kind: operator.kind().to_owned(),
        from: operator.from(),
        to: operator.to(),
        reason: operator.reason().to_string(),
        reason_kind: reason_kind(operator.reason()),
        state: entry.state,
        started_unix_ms: entry.started_unix_ms,
        finished_unix_ms: entry.finished_unix_ms,
    }
}

/// Returns the name under which the kind of a reason is stored.
fn reason_kind(reason: &placement::Reason) -> String {
    let value = serde_json::to_value(reason).expect("plain data");
    value["reason"].as_str().expect("a reason is tagged with its kind").to_owned()
}
