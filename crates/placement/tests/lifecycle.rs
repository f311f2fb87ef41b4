//! Clusters through a series of events: stores join, slow down, fill, drain, die and come back.
//! After each event planning must come to rest, with every region complete and within a bounded
//! number of moves.

mod support;

use proptest::prelude::*;
use steelyard_placement::{
    plan, Capability, ClusterView, Operator, PlanLimits, Policy, RegionView, StoreState, StoreView,
};
use support::*;
use types::StoreId;

#[derive(Clone, Debug)]
enum Event {
    /// An empty store joins. The capacity is in tenths of what one store held at first.
    Join {
        speed: u64,
        zone: u8,
        capacity: u64,
    },
    Drain {
        which: prop::sample::Index,
    },
    Lose {
        which: prop::sample::Index,
    },
    /// A store goes down and comes back with its data unchanged.
    Blink {
        which: prop::sample::Index,
    },
    Slow {
        which: prop::sample::Index,
        factor: f64,
    },
    /// Some regions become hot, the others cool.
    Heat {
        seed: u64,
    },
    Grow,
}

fn any_event() -> impl Strategy<Value = Event> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        3 => (1..12u64, 0..4u8, 20..60u64).prop_map(|(speed, zone, capacity)| Event::Join { speed, zone, capacity }),
        2 => which().prop_map(|which| Event::Drain { which }),
        2 => which().prop_map(|which| Event::Lose { which }),
        1 => which().prop_map(|which| Event::Blink { which }),
        1 => (which(), prop::sample::select(vec![0.1, 1.0, 10.0])).prop_map(|(which, factor)| Event::Slow { which, factor }),
        2 => any::<u64>().prop_map(|seed| Event::Heat { seed }),
        1 => Just(Event::Grow),
    ]
}

const REGIONS: u64 = 24;
const REGION_BYTES: u64 = 100;

fn founded(zones: bool) -> ClusterView {
    let regions = (0..REGIONS).map(|at| {
        let peers = [at % 4, (at + 1) % 4, (at + 2) % 4];
        let mut sorted = peers;
        sorted.sort_unstable();
        let (first_slot, slots) = (at as u16 * 100, 100);
        let placed = region(at + 1, peers[0], &sorted);
        RegionView { bytes: REGION_BYTES, first_slot, last_slot: first_slot + 99, slots, ..placed }
    });
    let mut view = cluster(&[4, 4, 4, 4], regions.collect());
    view.domain_label = zones.then(|| "zone".into());
    for (store, zone) in view.stores.iter_mut().zip(0u8..) {
        store.labels.insert("zone".into(), zone.to_string());
        store.capacity_bytes = 60 * REGIONS * REGION_BYTES / 10;
    }
    fill_up(&mut view);
    view
}

fn live(view: &ClusterView) -> Vec<StoreId> {
    view.stores.iter().filter(|store| store.state == StoreState::Up).map(|store| store.id).collect()
}

/// Returns true if the remaining stores can hold three copies of everything without touching the
/// reserve.
fn would_fit(view: &ClusterView, without: StoreId) -> bool {
    let left: Vec<StoreId> = live(view).into_iter().filter(|id| *id != without).collect();
    let total: u64 = view.regions.iter().map(|region| region.bytes).sum();
    // A store holds at most one copy of each region.
    let room =
        left.iter().map(|id| (view.store(*id).unwrap().capacity_bytes * 8 / 10).min(total)).sum::<u64>();
    left.len() >= 4 && room >= 3 * total
}

/// Elects another leader if the leader's store has gone, as Raft does.
fn elect(view: &mut ClusterView) {
    let up = live(view);
    for region in &mut view.regions {
        if !region.leader.is_some_and(|leader| up.contains(&leader)) {
            region.leader = region.peers.iter().map(|peer| peer.store).find(|store| up.contains(store));
        }
    }
}

fn happen(view: &mut ClusterView, event: &Event, limits: &PlanLimits, policy: Policy) -> bool {
    let up = live(view);
    let state_of = |view: &mut ClusterView, id: StoreId, state| {
        let store = view.stores.iter_mut().find(|store| store.id == id).unwrap();
        store.state = state;
    };
    match event {
        Event::Join { speed, zone, capacity } => {
            let id = view.stores.last().unwrap().id + 1;
            let labels = [("zone".to_owned(), zone.to_string())].into();
            let capacity_bytes = capacity * REGIONS * REGION_BYTES / 10;
            view.stores.push(StoreView { labels, capacity_bytes, ..store(id, *speed) });
        }
        Event::Drain { which } => {
            let id = up[which.index(up.len())];
            if !would_fit(view, id) {
                return false;
            }
            state_of(view, id, StoreState::Draining);
        }
        Event::Lose { which } => {
            let id = up[which.index(up.len())];
            if !would_fit(view, id) {
                return false;
            }
            state_of(view, id, StoreState::Lost);
            elect(view);
        }
        Event::Blink { which } => {
            let id = up[which.index(up.len())];
            state_of(view, id, StoreState::Down);
            let leaders: Vec<_> = view.regions.iter().map(|region| region.leader).collect();
            elect(view);
            let moves = plan(view, policy, limits);
            assert!(moves.iter().all(|operator| !operator.moves_data() || operator.to() != Some(id)));
            state_of(view, id, StoreState::Up);
            view.regions.iter_mut().zip(leaders).for_each(|(region, leader)| region.leader = leader);
        }
        Event::Slow { which, factor } => {
            let id = up[which.index(up.len())];
            let store = view.stores.iter_mut().find(|store| store.id == id).unwrap();
            let Capability { kv_bytes_per_s, ops_per_s } = store.capability;
            store.capability =
                Capability { kv_bytes_per_s: kv_bytes_per_s * factor, ops_per_s: ops_per_s * factor };
        }
        Event::Heat { seed } => {
            for region in &mut view.regions {
                let hot = seed.wrapping_mul(region.id | 1).rotate_left(17) % 4 == 0;
                region.write_rate = if hot { 100.0 } else { 1.0 };
                region.read_rate =
                    if seed.rotate_left(region.id as u32) & 1 == 1 { region.write_rate } else { 0.0 };
                region.miss_rate = region.read_rate;
                region.write_bytes_rate = region.write_rate * 100.0;
                region.heat = region.write_rate + region.read_rate;
            }
        }
        Event::Grow => {
            let fullest = |store: &StoreView| store.used_bytes * 13 / 10 >= store.capacity_bytes * 8 / 10;
            if view.stores.iter().any(fullest) {
                return false;
            }
            view.regions.iter_mut().for_each(|region| region.bytes = region.bytes * 12 / 10);
            fill_up(view);
        }
    }
    true
}

fn assert_whole(view: &ClusterView, limits: &PlanLimits) {
    let up = live(view);
    for region in &view.regions {
        let stores: Vec<StoreId> = region.peers.iter().map(|peer| peer.store).collect();
        assert_eq!(stores.len(), 3, "region {}: {stores:?}", region.id);
        assert!(
            region.peers.iter().all(|peer| peer.voter && up.contains(&peer.store)),
            "region {}",
            region.id
        );
        assert!(up.contains(&region.leader.unwrap()));
    }
    for store in view.stores.iter().filter(|store| store.state == StoreState::Up) {
        assert!(
            store.used_bytes * 100 <= store.capacity_bytes * u64::from(limits.reserve_percent),
            "{store:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_each_event_all_comes_to_rest_and_is_whole(
        events in prop::collection::vec(any_event(), 1..10),
        policy in prop::sample::select(Policy::ALL.to_vec()),
        zones in any::<bool>(),
    ) {
        let limits = keen();
        let mut view = founded(zones);
        settle(&mut view, policy, &limits, 1000);
        for event in &events {
            if !happen(&mut view, event, &limits, policy) {
                continue;
            }
            let moves = settle(&mut view, policy, &limits, 1000);
            assert_whole(&view, &limits);
            // Each region's three peers and its leader may have to move, some of them more than
            // once.
            prop_assert!(moves <= 8 * REGIONS as usize, "{} moves for {:?}", moves, event);
        }
    }

    #[test]
    fn a_slowdown_that_ends_leaves_no_wandering(
        policy in prop::sample::select(Policy::ALL.to_vec()), which in 0..4u64, seed in any::<u64>()
    ) {
        let limits = keen();
        let mut view = founded(false);
        happen(&mut view, &Event::Heat { seed }, &limits, policy);
        settle(&mut view, policy, &limits, 1000);
        let able = view.stores[which as usize].capability;
        let slow = Capability { kv_bytes_per_s: able.kv_bytes_per_s / 10.0, ops_per_s: able.ops_per_s / 10.0 };
        view.stores[which as usize].capability = slow;
        let away = settle(&mut view, policy, &limits, 1000);
        view.stores[which as usize].capability = able;
        let back = settle(&mut view, policy, &limits, 1000);
        prop_assert!(back <= 4 * REGIONS as usize && away <= 4 * REGIONS as usize, "{} away, {} back", away, back);
        prop_assert_eq!(plan(&view, policy, &limits), Vec::<Operator>::new());
    }
}

/// There are more zones than the search groups by zone. Every fifth store is new and empty.
#[test]
fn among_many_zones_no_two_peers_of_a_region_come_to_share_one() {
    let stores = 40u64;
    let regions = (0..120).map(|at| {
        let mut peers: Vec<u64> =
            (0..3).map(|peer| (at * 7 + peer * 3) % stores).filter(|id| id % 5 != 0).collect();
        peers.extend(
            [1, 2, 3]
                .into_iter()
                .filter(|id| !peers.contains(id) && !peers.contains(&(id + 20)))
                .take(3 - peers.len())
                .collect::<Vec<_>>(),
        );
        peers.sort_unstable();
        RegionView { bytes: REGION_BYTES, ..region(at + 1, peers[0], &peers) }
    });
    let mut founded = cluster(&vec![4; stores as usize], regions.collect());
    founded.domain_label = Some("zone".into());
    for store in &mut founded.stores {
        store.labels.insert("zone".into(), (store.id % 20).to_string());
    }
    fill_up(&mut founded);
    for policy in Policy::ALL {
        let mut view = founded.clone();
        let mut moved = 0;
        loop {
            let operators = plan(&view, policy, &keen());
            for operator in &operators {
                execute(&mut view, operator);
                let region = view.region(operator.region()).unwrap();
                let mut zones: Vec<u64> = region.peers.iter().map(|peer| peer.store % 20).collect();
                zones.sort_unstable();
                zones.dedup();
                assert_eq!(zones.len(), 3, "{policy}: {operator}");
            }
            moved += operators.len();
            if operators.is_empty() {
                break;
            }
        }
        assert!(moved > 20);
        let peers = peer_counts(&view);
        assert!(peers.values().all(|peers| *peers >= 7), "{policy}: {peers:?}");
    }
}
