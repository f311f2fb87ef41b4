//! The view that placement plans on: what is agreed, with what was last heard.

use placement::{ClusterView, PeerView, RegionView, StoreState, StoreView};
use types::{BootNanos, PeerRole};

use crate::{Driver, Ledger, MetaState};

/// Stores and regions are those of the cluster's state; speeds, sizes, rates and lags are the last heard.
///
/// A region is taken to be led by whom the routing table says even when that store has not yet (or no
/// longer) reported so, or a leader that just moved would count nowhere and something else would be moved
/// in its place. Without a report no peer's lag is known, and so the region itself is not moved.
pub fn view(meta: &MetaState, ledger: &Ledger, driver: &Driver, now: BootNanos) -> ClusterView {
    let stores = meta.stores.values().map(|record| {
        let heard = ledger.heard(record.id).map(|heard| &heard.heartbeat);
        StoreView {
            id: record.id,
            capability: heard.map_or(record.capability, |heartbeat| heartbeat.capability),
            capacity_bytes: heard.map_or(0, |heartbeat| heartbeat.capacity_bytes),
            used_bytes: heard.map_or(0, |heartbeat| heartbeat.used_bytes),
            data_weight: None,
            leader_weight: None,
            labels: record.labels.clone(),
            state: if ledger.is_up(record.id, now) { StoreState::Up } else { StoreState::Down },
        }
    });
    let regions = meta.regions.values().map(|region| {
        let lead = ledger.lead(region.id);
        RegionView {
            id: region.id,
            bytes: lead.map_or(0, |lead| lead.bytes),
            first_slot: region.slots.map_or(0, |slots| slots.first),
            last_slot: region.slots.map_or(0, |slots| slots.last),
            slots: region.slots.map_or(0, |slots| slots.len() as u32),
            write_rate: lead.map_or(0.0, |lead| lead.write_rate),
            read_rate: lead.map_or(0.0, |lead| lead.read_rate),
            write_bytes_rate: 0.0,
            heat: lead.map_or(0.0, |lead| lead.write_rate + lead.read_rate),
            leader: ledger.routes().get(region.id).map(|route| route.leader),
            peers: region
                .peers
                .iter()
                .map(|peer| PeerView {
                    store: peer.store,
                    voter: peer.role == PeerRole::Voter,
                    lag: lead.and_then(|lead| lead.lag_of(peer.store)),
                })
                .collect(),
            joint: region.peers.iter().any(|peer| !matches!(peer.role, PeerRole::Voter | PeerRole::Learner)),
            cooldown: driver.is_cooling(region.id, now),
        }
    });
    ClusterView {
        stores: stores.collect(),
        regions: regions.collect(),
        in_flight: driver.in_flight().map(|flight| flight.operator.clone()).collect(),
        ..ClusterView::default()
    }
}
