//! The input of placement: the agreed state, combined with recent heartbeats.

use std::collections::BTreeSet;

use placement::{Capability, ClusterView, PeerView, RegionView, Spread, StoreView};
use types::{BootNanos, PeerRole, RegionDescriptor, StoreId};

use crate::ledger::Liveness;
use crate::quarantine::Cause;
use crate::state::Election;
use crate::state::{MemberState, StoreRecord};
use crate::{Driver, Ledger, MetaState};

/// Time without a session with ZooKeeper after which a store should not lead, in nanoseconds. It is
/// longer than the differences between the times at which stores notice that ZooKeeper is away, or
/// that it is back.
const SESSION_GRACE_NANOS: u64 = 15_000_000_000;

/// Returns the view for one round of planning.
///
/// Stores and regions are those of the agreed state. Speeds, sizes, rates and lags are those last
/// reported, and so are a region's peers if its leader reports a newer epoch. A store that shares a
/// device counts with its share of it ([`Ledger::standing`]).
///
/// The bytes that a store holds are the sum over its peers' regions, not the store's own report,
/// which would be older than the descriptors. With the report, a store that has just moved a region
/// away would still count as full and would shed another. A store that is being filled would count
/// as empty and get too much. A learner counts as soon as it exists.
///
/// A region whose size was not measured since a split or merge is not touched. With the old size
/// its halves would be merged again, or it would be split again.
///
/// A region with a quarantined peer is held, because a person must decide about that peer's rows.
/// If the leader itself is quarantined, it cannot apply any change.
///
/// The routing table names a region's leader even before that store reports it, and after the store
/// has stopped reporting it. Otherwise a leader that just moved would count nowhere, and another
/// region would be moved in its place. Without a report no peer's lag is known, so the region
/// itself is not moved.
pub fn view(meta: &MetaState, ledger: &Ledger, driver: &Driver, now: BootNanos) -> ClusterView {
    let begun = meta.operators.values().map(|flight| flight.operator.clone());
    let mut stores: Vec<StoreView> =
        meta.stores.values().filter_map(|record| store_view(record, meta, ledger, driver, now)).collect();
    mark_stores_without_session(&mut stores, meta, ledger, now);
    let lost = stores.iter().filter(|store| store.state == placement::StoreState::Lost);
    let lost: BTreeSet<StoreId> = lost.map(|store| store.id).collect();
    let regions: Vec<RegionView> =
        meta.regions.values().map(|region| region_view(region, &lost, ledger, driver, now)).collect();
    for region in &regions {
        for peer in &region.peers {
            if let Ok(at) = stores.binary_search_by_key(&peer.store, |store| store.id) {
                stores[at].used_bytes = stores[at].used_bytes.saturating_add(region.bytes);
            }
        }
    }
    ClusterView {
        stores,
        regions,
        in_flight: begun.chain(driver.beginning().cloned()).collect(),
        replicas: meta.replicas(),
        meta_replicas: meta.meta_replicas(),
        domain_label: meta.domain_label().map(str::to_owned),
    }
}

/// Marks the stores that have had no session with ZooKeeper for a while, if it chooses candidates
/// and another store has had a session for as long. If none has one, ZooKeeper is away, and the
/// leaders stay. Stores notice its end and its return at different times, hence both waits: the
/// first store that has a session again after a long absence of ZooKeeper must not get all leads.
fn mark_stores_without_session(stores: &mut [StoreView], meta: &MetaState, ledger: &Ledger, now: BootNanos) {
    if meta.agreed_settings().election != Election::Zookeeper {
        return;
    }
    // True or false if that has been so for a while.
    let has_session = |store: &StoreView| {
        let heard = ledger.heard(store.id)?;
        let is_lasting = now.saturating_sub(heard.session_changed_at) > SESSION_GRACE_NANOS;
        is_lasting.then_some(heard.heartbeat.has_session)
    };
    let is_up = |store: &StoreView| store.state == placement::StoreState::Up;
    if stores.iter().any(|store| is_up(store) && has_session(store) == Some(true)) {
        for store in stores {
            store.no_session = has_session(store) == Some(false);
        }
    }
}

fn store_view(
    record: &StoreRecord,
    meta: &MetaState,
    ledger: &Ledger,
    driver: &Driver,
    now: BootNanos,
) -> Option<StoreView> {
    let state = match (record.state, ledger.liveness(record.id, now)) {
        // An order that arrived late gave the removed store a peer again, which must be moved away.
        (MemberState::Removed, _) if meta.first_peer_on(record.id).is_some() => placement::StoreState::Lost,
        (MemberState::Removed, _) => return None,
        (_, Liveness::Lost) => placement::StoreState::Lost,
        // The operator wants it to leave, and it cannot hand anything over.
        (MemberState::Draining, Liveness::Down) => placement::StoreState::Lost,
        (_, Liveness::Down) => placement::StoreState::Down,
        (_, Liveness::Up) if ledger.is_lost_to_a_hang(record.id, now) => placement::StoreState::Lost,
        (_, Liveness::Up) if !ledger.takes_on(record.id, now) => placement::StoreState::Down,
        (MemberState::Draining, Liveness::Up) => placement::StoreState::Draining,
        (MemberState::Up, Liveness::Up) => placement::StoreState::Up,
    };
    let heard = ledger.heard(record.id).map(|heard| &heard.heartbeat);
    let told = match record.facts.capability {
        Capability::UNKNOWN => Spread::UNKNOWN,
        _ => Spread::EXACT,
    };
    let (cpu_units, cpu_high) = driver.cpu_of(record.id).unzip();
    let standing = ledger.standing(record.id, now);
    Some(StoreView {
        id: record.id,
        capability: standing.as_ref().map_or(record.facts.capability, |standing| standing.capability),
        spread: standing.as_ref().map_or(told, |standing| standing.spread),
        previous: driver.rating(record.id).map(|rating| rating.classes).unwrap_or_default(),
        sync_ns: standing.as_ref().map_or(0, |standing| standing.sync_ns),
        capacity_bytes: heard.map_or(0, |heartbeat| heartbeat.capacity_bytes),
        used_bytes: 0,
        unapplied_bytes: heard.map_or(0, |heartbeat| heartbeat.unapplied_bytes),
        out_of_room: heard.is_some_and(|heartbeat| heartbeat.out_of_room),
        clock_off: heard.is_some_and(|heartbeat| heartbeat.clock_off),
        no_session: false,
        cpu: heard.and_then(|heartbeat| heartbeat.cpu),
        cpu_units,
        cpu_high: cpu_high.unwrap_or_default(),
        data_weight: record.data_weight,
        leader_weight: record.leader_weight,
        labels: record.facts.labels.clone(),
        state,
        shedding: driver.is_shedding(record.id),
    })
}

fn region_view(
    agreed: &RegionDescriptor,
    lost: &BTreeSet<StoreId>,
    ledger: &Ledger,
    driver: &Driver,
    now: BootNanos,
) -> RegionView {
    let lead = ledger.lead(agreed.id);
    let told = lead.map(|lead| &lead.descriptor).filter(|told| told.epoch.is_newer_than(agreed.epoch));
    let newest = told.unwrap_or(agreed);
    let leader = ledger.routes().get(agreed.id).map(|route| route.leader);
    let load = ledger.load(agreed.id, now);
    let is_sized = agreed.slots.is_none() || lead.is_none_or(|lead| lead.sized);
    RegionView {
        id: agreed.id,
        bytes: ledger.bytes(agreed.id),
        first_slot: agreed.slots.map_or(0, |slots| slots.first),
        last_slot: agreed.slots.map_or(0, |slots| slots.last),
        slots: agreed.slots.map_or(0, |slots| slots.len() as u32),
        write_rate: load.write_rate,
        read_rate: load.read_rate,
        miss_rate: load.miss_rate,
        write_bytes_rate: load.write_bytes_rate,
        heat: load.heat,
        leader,
        peers: newest
            .peers
            .iter()
            .map(|peer| {
                let unclean = ledger.is_unclean(newest, peer.store);
                PeerView {
                    store: peer.store,
                    voter: matches!(peer.role, PeerRole::Voter | PeerRole::Incoming),
                    // The entries that it held before the crash may be lost, so its lag is unknown.
                    lag: lead.filter(|_| !unclean).and_then(|lead| lead.lag_of(peer.store)),
                    unclean,
                    lost_rows: ledger
                        .quarantined(agreed.id)
                        .any(|(store, held)| store == peer.store && held.cause == Cause::Damage),
                }
            })
            .collect(),
        joint: newest.is_joint() || lead.is_some_and(|lead| lead.merging_into().is_some()),
        cooldown: driver.is_cooling(agreed.id, now)
            || !is_sized
            || ledger.quarantined(agreed.id).any(|(store, _)| leader == Some(store)),
        held: awaits_decision(newest, lost, ledger, now),
    }
}

/// Returns true if an operator must decide about a quarantined peer of the region. Three kinds of
/// peers are replaced in any case: lost peers, peers that lost rows, and peers that may have lost
/// entries that they acknowledged.
fn awaits_decision(
    region: &RegionDescriptor,
    lost: &BTreeSet<StoreId>,
    ledger: &Ledger,
    now: BootNanos,
) -> bool {
    ledger.quarantined(region.id).any(|(store, held)| {
        let is_lost = lost.contains(&store) || ledger.is_lost_to_a_hang(store, now);
        !is_lost && held.cause != Cause::Damage && !ledger.is_unclean(region, store)
    })
}
