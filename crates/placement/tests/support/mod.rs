//! Test clusters: short constructors, and a model that executes planned operators.
#![allow(dead_code)] // Each test binary uses a part of it.

use std::collections::BTreeMap;

use steelyard_placement::{
    plan, sheds, Capability, ClusterView, Operator, PeerView, PlanLimits, Policy, RegionView, StoreState,
    StoreView,
};
use types::StoreId;

/// Limits for clusters whose regions hold a few bytes and whose stores are almost idle: every byte
/// and every load counts.
pub fn keen() -> PlanLimits {
    PlanLimits { region_bytes_min: 1, busy_percent_min: 0, ..PlanLimits::default() }
}

pub fn store(id: StoreId, speed: u64) -> StoreView {
    StoreView {
        id,
        capability: Capability { kv_bytes_per_s: speed as f64, ops_per_s: speed as f64 },
        capacity_bytes: 1 << 40,
        ..StoreView::default()
    }
}

/// A region with caught-up voters on `peers`.
pub fn region(id: u64, leader: StoreId, peers: &[StoreId]) -> RegionView {
    RegionView {
        id,
        leader: Some(leader),
        peers: peers
            .iter()
            .map(|&store| PeerView { store, voter: true, lag: Some(0), unclean: false, lost_rows: false })
            .collect(),
        ..RegionView::default()
    }
}

pub fn cluster(speeds: &[u64], regions: Vec<RegionView>) -> ClusterView {
    let stores = speeds.iter().zip(0..).map(|(&speed, id)| store(id, speed)).collect();
    ClusterView { stores, regions, ..ClusterView::default() }
}

fn at(view: &ClusterView, region: u64) -> usize {
    view.regions.binary_search_by_key(&region, |region| region.id).expect("the operator's region exists")
}

fn hold(view: &mut ClusterView, store: StoreId, bytes: u64) {
    if let Some(store) = view.stores.iter_mut().find(|known| known.id == store) {
        store.used_bytes += bytes;
    }
}

fn drop_peer(view: &mut ClusterView, region: u64, store: StoreId) {
    let region = at(view, region);
    let peers = &mut view.regions[region].peers;
    let before = peers.len();
    peers.retain(|peer| peer.store != store);
    assert_eq!(peers.len() + 1, before, "the peer that goes was there");
    let bytes = view.regions[region].bytes;
    if let Some(store) = view.stores.iter_mut().find(|known| known.id == store) {
        store.used_bytes -= bytes;
    }
}

/// Transfers leadership to the first live voter, preferably one that may lead, before the leader's
/// own peer leaves.
fn unseat(view: &mut ClusterView, region: u64, store: StoreId) {
    let region = at(view, region);
    if view.regions[region].leader == Some(store) {
        let answers = |id| {
            view.store(id).is_some_and(|store| matches!(store.state, StoreState::Up | StoreState::Draining))
        };
        let heirs = view.regions[region].peers.iter();
        let may_lead = |id| view.store(id).is_some_and(|store| !store.out_of_room && !store.clock_off);
        let heir = heirs
            .filter(|peer| peer.voter && peer.store != store && answers(peer.store))
            .min_by_key(|peer| !may_lead(peer.store));
        view.regions[region].leader = Some(heir.expect("another voter answers").store);
    }
}

/// Executes an operator as a healthy cluster would. Panics if the operator is impossible.
pub fn execute(view: &mut ClusterView, operator: &Operator) {
    match *operator {
        Operator::TransferLeader { region, from, to, .. } => {
            let region = at(view, region);
            assert_eq!(view.regions[region].leader, Some(from));
            assert!(view.regions[region].peers.iter().any(|peer| peer.store == to && peer.voter));
            view.regions[region].leader = Some(to);
        }
        Operator::AddPeer { region, to, .. } => add_peer(view, region, to),
        Operator::RemovePeer { region, from, .. } => {
            unseat(view, region, from);
            drop_peer(view, region, from);
        }
        Operator::MovePeer { region, from, to, .. } => {
            add_peer(view, region, to);
            unseat(view, region, from);
            drop_peer(view, region, from);
        }
        Operator::Split { region, .. } => split(view, region),
        Operator::Merge { region, into, .. } => merge(view, region, into),
        Operator::Unseal { .. } => {}
    }
    let region = operator.into_region().unwrap_or(operator.region());
    let region = at(view, region);
    view.regions[region].peers.sort_by_key(|peer| peer.store);
}

fn add_peer(view: &mut ClusterView, region: u64, to: StoreId) {
    assert!(
        view.store(to).is_some_and(|store| store.state == StoreState::Up),
        "peers are made on live stores"
    );
    let region = at(view, region);
    match view.regions[region].peers.iter_mut().find(|peer| peer.store == to) {
        Some(peer) => {
            assert!(!peer.voter, "no store has two peers of a region");
            peer.voter = true;
        }
        None => {
            view.regions[region].peers.push(PeerView {
                store: to,
                voter: true,
                lag: Some(0),
                unclean: false,
                lost_rows: false,
            });
            let bytes = view.regions[region].bytes;
            hold(view, to, bytes);
        }
    }
}

fn split(view: &mut ClusterView, region: u64) {
    let id = view.regions.last().expect("the region itself").id + 1;
    let region = at(view, region);
    let old = &mut view.regions[region];
    assert!(old.slots > 1);
    let mut new = old.clone();
    let middle = old.first_slot + (old.slots / 2) as u16;
    (new.id, new.first_slot, old.last_slot) = (id, middle, middle - 1);
    for half in [&mut *old, &mut new] {
        half.slots = u32::from(half.last_slot - half.first_slot) + 1;
        half.heat /= 2.0;
        half.write_rate /= 2.0;
        half.read_rate /= 2.0;
        half.miss_rate /= 2.0;
        half.write_bytes_rate /= 2.0;
    }
    new.bytes = old.bytes / 2;
    old.bytes -= new.bytes;
    view.regions.push(new);
}

fn merge(view: &mut ClusterView, region: u64, into: u64) {
    let gone = view.regions.remove(at(view, region));
    let into = at(view, into);
    let kept = &mut view.regions[into];
    let stores = |region: &RegionView| region.peers.iter().map(|peer| peer.store).collect::<Vec<_>>();
    assert_eq!(stores(&gone), stores(kept), "the peers of both are on the same stores");
    assert!(gone.last_slot + 1 == kept.first_slot || kept.last_slot + 1 == gone.first_slot, "neighbours");
    kept.first_slot = kept.first_slot.min(gone.first_slot);
    kept.last_slot = kept.last_slot.max(gone.last_slot);
    kept.slots += gone.slots;
    kept.bytes += gone.bytes;
    kept.heat += gone.heat;
    kept.write_rate += gone.write_rate;
    kept.read_rate += gone.read_rate;
    kept.miss_rate += gone.miss_rate;
    kept.write_bytes_rate += gone.write_bytes_rate;
}

/// Sets the used bytes of the stores to the sum of their regions.
pub fn fill_up(view: &mut ClusterView) {
    let held = data(view);
    for store in &mut view.stores {
        store.used_bytes = held[&store.id];
    }
}

/// Returns the live user bytes of each store, summed over its regions.
pub fn data(view: &ClusterView) -> BTreeMap<StoreId, u64> {
    let mut held: BTreeMap<StoreId, u64> = view.stores.iter().map(|store| (store.id, 0)).collect();
    for region in &view.regions {
        for peer in &region.peers {
            *held.entry(peer.store).or_default() += region.bytes;
        }
    }
    held
}

pub fn peer_counts(view: &ClusterView) -> BTreeMap<StoreId, u32> {
    let mut counts: BTreeMap<StoreId, u32> = view.stores.iter().map(|store| (store.id, 0)).collect();
    for region in view.regions.iter().filter(|region| region.id != types::META_REGION) {
        for peer in &region.peers {
            *counts.entry(peer.store).or_default() += 1;
        }
    }
    counts
}

/// Returns the load of the busiest store, computed independently from the formula in
/// docs/PLACEMENT.md: the writes of all peers and the misses of leaders, each divided by the
/// store's capability. Store ids must begin at 0.
pub fn busiest(view: &ClusterView) -> f64 {
    let mut busy = vec![0.0; view.stores.len()];
    for region in &view.regions {
        for peer in &region.peers {
            let able = view.stores[peer.store as usize].capability;
            busy[peer.store as usize] += region.write_bytes_rate / able.kv_bytes_per_s;
            if region.leader == Some(peer.store) {
                busy[peer.store as usize] += region.miss_rate / able.ops_per_s;
            }
        }
    }
    busy.into_iter().fold(0.0, f64::max)
}

/// Returns the mean number of seconds that a written byte waits, computed independently from the
/// formula in docs/PLACEMENT.md.
pub fn waits(view: &ClusterView) -> f64 {
    let apply = |store: StoreId| 1.0 / view.stores[store as usize].capability.kv_bytes_per_s;
    let log = |store: StoreId| match view.stores[store as usize].sync_ns {
        0 => apply(store),
        sync => apply(store) / 7.0 + sync as f64 / 1e9 / 65_536.0,
    };
    let (mut sum, mut bytes) = (0.0, 0.0);
    for region in &view.regions {
        let leader = region.leader.unwrap();
        let followers = region.peers.iter().map(|peer| peer.store).filter(|store| *store != leader);
        let nearest = followers.map(log).fold(f64::INFINITY, f64::min);
        sum += region.write_bytes_rate * ((1.25 * log(leader)).max(nearest) + apply(leader));
        bytes += region.write_bytes_rate;
    }
    if bytes > 0.0 {
        sum / bytes
    } else {
        0.0
    }
}

/// Records which stores are shedding, as the caller of `plan` does.
pub fn remember_shedding(view: &mut ClusterView, limits: &PlanLimits) {
    for store in &mut view.stores {
        store.shedding = sheds(store, limits);
    }
}

/// Plans and executes until nothing is planned. Returns the number of moves. Panics after
/// `rounds_max` rounds.
pub fn settle(view: &mut ClusterView, policy: Policy, limits: &PlanLimits, rounds_max: usize) -> usize {
    let mut moves = 0;
    let mut last = Vec::new();
    for round in 0..rounds_max {
        remember_shedding(view, limits);
        let operators = plan(view, policy, limits);
        if operators.is_empty() {
            return moves;
        }
        moves += operators.len();
        if round + 10 >= rounds_max {
            last.extend(operators.iter().map(|operator| format!("{round}: {operator}\n")));
        }
        operators.iter().for_each(|operator| execute(view, operator));
    }
    panic!("not quiet after {rounds_max} rounds of {policy}; the last:\n{}", last.concat());
}

/// Returns the number of user regions that each live store leads.
pub fn leader_counts(view: &ClusterView) -> BTreeMap<StoreId, u32> {
    let live = view.stores.iter().filter(|store| store.state == StoreState::Up);
    let mut counts: BTreeMap<StoreId, u32> = live.map(|store| (store.id, 0)).collect();
    for region in view.regions.iter().filter(|region| region.id != types::META_REGION) {
        if let Some(count) = region.leader.and_then(|leader| counts.get_mut(&leader)) {
            *count += 1;
        }
    }
    counts
}

pub fn spread(view: &ClusterView) -> u32 {
    let counts = leader_counts(view);
    counts.values().max().unwrap_or(&0) - counts.values().min().unwrap_or(&0)
}
