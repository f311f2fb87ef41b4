//! Stores that fill up under a growing load (ALOR §3.2), with copies that take time and delayed
//! heartbeats. A store above the threshold sheds its coldest regions and stops below the band. No
//! store runs out of space while another has some.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use placement::{Operator, PlanLimits, Policy, Reason};
use steelyard_cluster::{MetaCommand, OperatorId};
use support::*;
use types::{RegionId, StoreId};

const MB: u64 = 1 << 20;
const STORES: u64 = 6;
const CAPACITY: u64 = 1000 * MB;

/// Speeds as in the paper's cluster. The heat of regions is a permutation of their ids.
fn filling(policy: Policy, regions: u16) -> World {
    let mut world = World::new(STORES, regions, 3);
    for (store, speed) in [10e6, 4e6, 4e6, 1e6, 1e6, 1e6].into_iter().enumerate() {
        world.speeds.insert(store as StoreId, speed);
    }
    world.capacity_bytes = CAPACITY;
    world.fill_moments = 4;
    let ids: Vec<RegionId> = world.regions.keys().copied().filter(|id| *id != 0).collect();
    for id in ids {
        world.heat.insert(id, (1 + id * 29 % u64::from(regions)) as f64 * 10.0);
        world.regions.get_mut(&id).unwrap().bytes = 2 * MB;
    }
    world.regions.get_mut(&0).unwrap().bytes = 0;
    world.limits = PlanLimits::default();
    world.apply(&MetaCommand::SetPolicy { policy }).unwrap();
    world
}

fn density(world: &World, region: RegionId) -> f64 {
    world.heat[&region] / world.regions[&region].bytes as f64
}

/// The observations of the moves so far.
#[derive(Default)]
struct Watch {
    seen: OperatorId,
    shed: BTreeSet<(RegionId, StoreId)>,
    sheds: usize,
    moves: usize,
    copied: u64,
    shed_by: BTreeMap<StoreId, usize>,
    /// The operators in flight at the end of the last moment. An operator that ends during a moment
    /// still counts in that moment's plan.
    before: Vec<Operator>,
}

impl Watch {
    fn look(&mut self, world: &World) {
        let fresh: Vec<Operator> =
            world.meta.operators.range(self.seen + 1..).map(|(_, flight)| flight.operator.clone()).collect();
        self.before.extend(fresh.iter().cloned());
        for operator in &fresh {
            let Operator::MovePeer { region, from, to, reason } = operator else { continue };
            self.moves += 1;
            self.copied += world.regions[region].bytes;
            assert!(!self.shed.contains(&(*region, *to)), "a region that was shed comes back: {operator}");
            if let Reason::Full { .. } = reason {
                self.sheds += 1;
                *self.shed_by.entry(*from).or_default() += 1;
                self.shed.insert((*region, *from));
                self.check_coldest(world, *region, *from);
            }
        }
        self.before = world.meta.operators.values().map(|flight| flight.operator.clone()).collect();
        self.seen = world.meta.operators.keys().next_back().copied().unwrap_or(0).max(self.seen);
    }

    /// Checks that the store had no colder region to shed.
    fn check_coldest(&self, world: &World, region: RegionId, from: StoreId) {
        let is_busy = |id: RegionId| self.before.iter().any(|operator| operator.region() == id);
        let has_moves_left = |store: StoreId| {
            let moves = self.before.iter().filter(|operator| {
                operator.moves_data() && [operator.from(), operator.to()].contains(&Some(store))
            });
            moves.count() < world.limits.data_moves_per_store_max
        };
        let colder = world.regions.values().filter(|other| {
            let id = other.descriptor.id;
            id != 0
                && !is_busy(id)
                && other.descriptor.has_peer_on(from)
                && density(world, id) < density(world, region) * 0.9
        });
        for other in colder {
            // The region could not move: no store without a peer of it had room for it.
            let could_go = (0..STORES).find(|&to| {
                !other.descriptor.has_peer_on(to)
                    && has_moves_left(to)
                    && (world.held_bytes(to) + other.bytes) * 100 < CAPACITY * 83
            });
            assert_eq!(could_go, None, "region {region} was shed, {} is colder", other.descriptor.id);
        }
    }
}

/// Lets every region grow by its share until `percent` of all capacity is used.
fn grow(world: &mut World, watch: &mut Watch, percent: u64, step: u64) {
    let all = |world: &World| (0..STORES).map(|store| world.held_bytes(store)).sum::<u64>();
    while all(world) * 100 < CAPACITY * STORES * percent {
        for (&id, region) in world.regions.iter_mut().filter(|(id, _)| **id != 0) {
            region.bytes += step * (2 + id % 3) / 3;
        }
        world.tick(|_| Fate::Arrives);
        watch.look(world);
        let held: Vec<u64> = (0..STORES).map(|store| world.held_bytes(store)).collect();
        let most = held.iter().max().unwrap();
        assert!(most * 100 <= CAPACITY * 98, "a store used its reserve: {held:?}, of {percent}% in all");
    }
}

fn rest(world: &mut World, watch: &mut Watch, seconds: u64) {
    for _ in 0..2 * seconds {
        world.tick(|_| Fate::Arrives);
        watch.look(world);
    }
}

#[test]
fn fast_stores_fill_first_and_shed_their_coldest_until_below_the_band() {
    for policy in [Policy::Alor, Policy::Adaptive, Policy::Even] {
        let mut world = filling(policy, 48);
        let mut watch = Watch::default();
        rest(&mut world, &mut watch, 120);
        let empty = watch.moves;
        grow(&mut world, &mut watch, 85, MB / 16);
        rest(&mut world, &mut watch, 300);
        let held: Vec<u64> = (0..STORES).map(|store| world.held_bytes(store) * 100 / CAPACITY).collect();
        println!(
            "{policy}: {empty} moves while empty, {} later, {} of them shed, {} MB copied; {held:?}% full",
            watch.moves - empty,
            watch.sheds,
            watch.copied / MB
        );
        assert!(held.iter().all(|percent| *percent <= 95), "{held:?}");
        assert_eq!(watch.sheds > 0, policy != Policy::Even);
        let moves = watch.moves;
        rest(&mut world, &mut watch, 300);
        assert_eq!(watch.moves, moves, "{policy}: it is at rest");
    }
}

/// One store fills up once, by the growth of its own regions. It sheds from 95% to below 90% and no
/// further, although each move is reported only at its end, and copies take longer than rounds.
#[test]
fn one_store_at_95_percent_sheds_what_is_too_much_and_no_more() {
    let mut world = filling(Policy::Even, 48);
    let mut watch = Watch::default();
    rest(&mut world, &mut watch, 60);
    let on_it: Vec<RegionId> =
        world.regions.values().filter(|r| r.descriptor.has_peer_on(0)).map(|r| r.descriptor.id).collect();
    let on_it: Vec<RegionId> = on_it.into_iter().filter(|id| *id != 0).collect();
    // This store's regions grow to 96%. The others stay small, so that every other store has room.
    let each = CAPACITY * 96 / 100 / on_it.len() as u64;
    world.limits.data_gap_percent_min = 1000;
    for id in &on_it {
        world.regions.get_mut(id).unwrap().bytes = each;
    }
    let before = watch.moves;
    rest(&mut world, &mut watch, 300);
    let held = world.held_bytes(0);
    assert!(held * 100 <= CAPACITY * 90 && (held + each) * 100 > CAPACITY * 90, "{held}");
    let needed = (CAPACITY * 6 / 100).div_ceil(each) as usize;
    assert_eq!(watch.shed_by, BTreeMap::from([(0, needed)]));
    assert_eq!(watch.moves - before, needed);
}

/// All stores are above the threshold. No store gets full while another has room.
#[test]
fn in_a_crowd_stores_fill_up_together() {
    let mut world = filling(Policy::Alor, 96);
    let mut watch = Watch::default();
    rest(&mut world, &mut watch, 60);
    grow(&mut world, &mut watch, 85, MB / 96);
    watch.shed.clear();
    grow(&mut world, &mut watch, 92, MB / 96);
    watch.shed.clear();
    grow(&mut world, &mut watch, 96, MB / 256);
    let held: Vec<u64> = (0..STORES).map(|store| world.held_bytes(store) / MB).collect();
    println!("{} moves, {} of them shed; {held:?} of {} MB", watch.moves, watch.sheds, CAPACITY / MB);
}

/// Regions with equal load fill faster than copies can move, as when a cluster is filled for the
/// first time. Noise decides which of them are shed. None may end without a fast store, because its
/// clients would wait longest.
#[test]
fn no_region_is_left_on_slow_stores_only() {
    let mut overfull = 0;
    let runs = [Policy::Alor, Policy::Adaptive].into_iter().flat_map(|p| (0..40).map(move |seed| (p, seed)));
    for (policy, seed) in runs {
        let mut world = filling(policy, 24);
        world.fill_moments = 2 + seed * 7 % 19;
        let ids: Vec<RegionId> = world.regions.keys().copied().filter(|id| *id != 0).collect();
        for (at, id) in (0..).zip(&ids) {
            world.heat.insert(*id, 100.0 + ((at * 13 + seed * 7) % 5) as f64);
        }
        world.run(120);
        let moments = 40 + 10 * (seed % 8);
        let step = CAPACITY * STORES / 3 * 85 / 100 / ids.len() as u64 / moments;
        for moment in 0..moments {
            for (at, id) in (0..).zip(&ids) {
                let noise = (at * 31 + seed * 17 + moment * 7) % 41;
                world.regions.get_mut(id).unwrap().bytes += step * (980 + noise) / 1000;
            }
            world.tick(|_| Fate::Arrives);
        }
        let is_fast = |store: &StoreId| *store < 3;
        let most = (0..STORES).filter(is_fast).map(|store| world.held_bytes(store)).max();
        overfull += usize::from(most > Some(CAPACITY));
        world.run(300);
        for id in &ids {
            let peers: Vec<StoreId> =
                (0..STORES).filter(|store| world.regions[id].descriptor.has_peer_on(*store)).collect();
            assert!(peers.iter().any(is_fast), "{policy}, seed {seed}: region {id} is on {peers:?} only");
        }
        assert!((0..STORES).all(|store| world.held_bytes(store) * 100 <= CAPACITY * 95));
    }
    assert!(overfull > 40, "regions must fill faster than they are shed, {overfull} times");
}
