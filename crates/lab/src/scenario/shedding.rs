//! The regions that full stores shed, and how cold each was among the regions of its store at that
//! moment.

use serde::{Deserialize, Serialize};

use super::moves::{copies, Move};

/// The state of a store at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreLook {
    pub store: u64,
    pub used_bytes: u64,
    pub capacity_bytes: u64,
    pub leaders: u64,
    pub regions: u64,
}

impl StoreLook {
    /// Returns the used part of the capacity. 0 if the capacity is unknown.
    pub fn share(&self) -> f64 {
        if self.capacity_bytes == 0 {
            return 0.0;
        }
        self.used_bytes as f64 / self.capacity_bytes as f64
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionLook {
    pub region: u64,
    pub bytes: u64,
    /// Operations per second, averaged over a long time.
    pub heat: f64,
    pub peers: Vec<u64>,
    pub leader: Option<u64>,
    /// True if another peer could become leader.
    pub has_heir: bool,
    /// True if an operator is in flight for the region, or if the progress of one of its peers is
    /// unknown.
    pub bound: bool,
}

impl RegionLook {
    /// Returns true if the store's peer can leave. If it leads, another peer must be able to.
    fn can_leave(&self, store: u64) -> bool {
        !self.bound && (self.leader != Some(store) || self.has_heir)
    }

    /// Returns the heat per GB. The coldest region has the least.
    pub fn density(&self) -> f64 {
        self.heat.max(0.0) * 1e9 / self.bytes.max(1) as f64
    }
}

/// The state of the cluster at one moment, as the cluster reported it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    pub at_s: f64,
    pub stores: Vec<StoreLook>,
    pub regions: Vec<RegionLook>,
}

impl Look {
    pub fn store(&self, store: u64) -> Option<&StoreLook> {
        self.stores.iter().find(|look| look.store == store)
    }

    fn region(&self, region: u64) -> Option<&RegionLook> {
        self.regions.iter().find(|look| look.region == region)
    }

    pub fn share(&self, store: u64) -> f64 {
        self.store(store).map_or(0.0, StoreLook::share)
    }

    /// Returns the used part of the capacity, with the copies that are on their way to the store.
    fn share_with(&self, store: u64, moves: &[Move]) -> f64 {
        let Some(look) = self.store(store) else { return 0.0 };
        let comes = |region: &&RegionLook| {
            let brought = |one: &Move| one.region == region.region && one.to == Some(store);
            !region.peers.contains(&store)
                && moves
                    .iter()
                    .any(|one| one.kind != "transfer-leader" && brought(one) && one.in_flight(self.at_s))
        };
        let coming: u64 = self.regions.iter().filter(comes).map(|region| region.bytes).sum();
        StoreLook { used_bytes: look.used_bytes + coming, ..*look }.share()
    }

    /// Returns the used part of the capacity of all stores together. 0 if no capacity is known.
    pub fn share_of_all(&self) -> f64 {
        let sum = |field: fn(&StoreLook) -> u64| self.stores.iter().map(field).sum::<u64>() as f64;
        let capacity = sum(|store| store.capacity_bytes);
        if capacity == 0.0 {
            return 0.0;
        }
        sum(|store| store.used_bytes) / capacity
    }

    /// Returns true if some store is below `percent` of its capacity.
    pub fn has_room(&self, percent: u32) -> bool {
        self.stores.iter().any(|store| store.share() * 100.0 < f64::from(percent))
    }

    /// Returns true if a store can take a peer of the region: it has none yet, it is `open`, and it
    /// stays below `percent` of its capacity.
    fn is_taken(&self, region: &RegionLook, percent: u32, open: impl Fn(u64) -> bool) -> bool {
        let takes = |store: &StoreLook| {
            !region.peers.contains(&store.store)
                && open(store.store)
                && (store.used_bytes + region.bytes) as f64 * 100.0
                    <= store.capacity_bytes as f64 * f64::from(percent)
        };
        self.stores.iter().any(takes)
    }
}

/// A region that a store sent away because the store was full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shed {
    pub at_s: f64,
    pub region: u64,
    pub from: u64,
    pub to: u64,
    /// The used part of the store's capacity at the last state before.
    pub used_share: f64,
    pub heat_per_gb: f64,
    /// The rank by coldness among all regions of the store, and their number. 1 is the coldest.
    pub rank: usize,
    pub of: usize,
    /// The rank among the regions that could go, and their number. A region could go if no operator
    /// was in flight for it, all its peers had reported, another peer could lead in place of the
    /// store's, and another store had room and was not busy with copies.
    pub free_rank: usize,
    pub free: usize,
    /// Heat of the coldest region that could go.
    pub coldest_per_gb: f64,
    /// Mean heat of the store's regions.
    pub mean_per_gb: f64,
}

/// Tolerances for heat, because the knowledge of both planner and observer is at least a heartbeat
/// old.
const SLACK_SHARE: f64 = 0.25;
const SLACK_OF_MEAN: f64 = 0.01;

impl Shed {
    pub fn was_hot(&self) -> bool {
        self.heat_per_gb > self.mean_per_gb
    }

    /// Returns true if no region that could go was colder. Regions within `heat_gap_percent` count
    /// as equally cold, and late heartbeats are tolerated.
    pub fn was_coldest(&self, heat_gap_percent: u32) -> bool {
        let as_cold = (1.0 + f64::from(heat_gap_percent) / 100.0) * (1.0 + SLACK_SHARE);
        self.heat_per_gb <= self.coldest_per_gb * as_cold + self.mean_per_gb * SLACK_OF_MEAN
    }

    /// Returns true if another region could have gone instead.
    pub fn had_rivals(&self) -> bool {
        self.free > 1
    }
}

/// Returns true if a full store caused the move.
pub fn is_shedding(one: &Move) -> bool {
    // The reason is a sentence for people. Only that of shedding says "coldest".
    one.kind == "move-peer" && one.reason.contains("coldest")
}

/// The limits of which region can go where.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Maximum percentage of capacity up to which other stores are filled.
    pub low_percent: u32,
    /// Maximum number of copies at a time from or towards one store.
    pub copies_per_store: usize,
    /// Maximum age in seconds of a planner's knowledge. A planner may still plan around an operator
    /// that ended within this time, or believe that a region cannot leave its store although it can
    /// by now.
    pub late_s: f64,
}

/// Returns the shed regions, each compared with the last state before the move.
pub fn sheds(looks: &[Look], moves: &[Move], bounds: Bounds) -> Vec<Shed> {
    let mut all = Vec::new();
    for (index, one) in moves.iter().enumerate().filter(|(_, one)| is_shedding(one)) {
        let (Some(from), Some(to)) = (one.from, one.to) else { continue };
        let Some(last) = looks.iter().rposition(|look| look.at_s <= one.at_s) else { continue };
        let look = &looks[last];
        let since = looks.partition_point(|look| look.at_s < one.at_s - bounds.late_s).min(last);
        // The planner may know only the oldest of these states.
        let could_leave = |region: u64| {
            looks[since..=last].iter().all(|look| look.region(region).is_none_or(|look| look.can_leave(from)))
        };
        // The planner counts its earlier operators, even if no later state shows them.
        let earlier = &moves[..index];
        let begun = |region: u64| {
            earlier
                .iter()
                .any(|other| other.region == region && other.in_flight_lately(one.at_s, bounds.late_s))
        };
        let open = |store: u64| copies(earlier, store, one.at_s, bounds.late_s) < bounds.copies_per_store;
        let held: Vec<&RegionLook> =
            look.regions.iter().filter(|region| region.peers.contains(&from)).collect();
        let Some(this) = held.iter().find(|region| region.region == one.region) else { continue };
        let colder = |region: &&&RegionLook| region.density() < this.density();
        let free = || {
            held.iter().filter(|region| {
                region.region == one.region
                    || (look.is_taken(region, bounds.low_percent, open)
                        && !begun(region.region)
                        && could_leave(region.region))
            })
        };
        all.push(Shed {
            at_s: one.at_s,
            region: one.region,
            from,
            to,
            used_share: look.share(from),
            heat_per_gb: this.density(),
            rank: 1 + held.iter().filter(colder).count(),
            of: held.len(),
            free_rank: 1 + free().filter(colder).count(),
            free: free().count(),
            coldest_per_gb: free().map(|region| region.density()).fold(f64::INFINITY, f64::min),
            mean_per_gb: held.iter().map(|region| region.density()).sum::<f64>() / held.len() as f64,
        });
    }
    all
}

/// Returns the number of shed regions that a later move brought back to the store that had shed
/// them.
pub fn came_back(sheds: &[Shed], moves: &[Move]) -> usize {
    let back = |shed: &&Shed| {
        let later = moves.iter().filter(|one| one.at_s > shed.at_s && one.region == shed.region);
        later.into_iter().any(|one| one.kind == "move-peer" && one.to == Some(shed.from))
    };
    sheds.iter().filter(back).count()
}

/// Returns for each state whether a store is shedding. It starts when the store, with the copies on
/// their way to it, exceeds `full_percent`, and stops when it is below `low_percent`. States in
/// which the store's capacity is unknown are left out.
fn shedding<'a>(
    looks: &'a [Look],
    moves: &'a [Move],
    store: u64,
    (full_percent, low_percent): (u32, u32),
) -> impl Iterator<Item = (f64, bool)> + 'a {
    let full = f64::from(full_percent) / 100.0;
    let low = f64::from(low_percent) / 100.0;
    let known = looks.iter().filter(move |look| look.store(store).is_some_and(|one| one.capacity_bytes > 0));
    known.scan(false, move |shedding, look| {
        let share = look.share_with(store, moves);
        *shedding = share > full || (*shedding && share >= low);
        Some((look.at_s, *shedding))
    })
}

/// Returns the moments at which a store that had exceeded `full_percent` fell below `low_percent`,
/// with the copies on their way to it counted.
pub fn relieved(looks: &[Look], moves: &[Move], store: u64, band: (u32, u32)) -> Vec<f64> {
    let states: Vec<(f64, bool)> = shedding(looks, moves, store, band).collect();
    states.windows(2).filter(|pair| pair[0].1 && !pair[1].1).map(|pair| pair[1].0).collect()
}

/// Returns the number of regions that a store shed without need. With the copies on their way to
/// it, the store had not exceeded `full_percent` since it was last below `low_percent`. `late_s` is
/// the maximum age of a planner's knowledge.
pub fn needless(looks: &[Look], moves: &[Move], sheds: &[Shed], band: (u32, u32), late_s: f64) -> usize {
    let was_above = |shed: &Shed| {
        shedding(looks, moves, shed.from, band)
            .take_while(|(at_s, _)| *at_s <= shed.at_s + late_s)
            .any(|(at_s, shedding)| shedding && at_s >= shed.at_s - late_s)
    };
    sheds.iter().filter(|shed| !was_above(shed)).count()
}

/// Returns true if shedding is over for now: no store exceeds `full_percent`, and no operator was
/// in flight for `rest_s`.
pub fn at_rest(look: &Look, moves: &[Move], full_percent: u32, rest_s: f64) -> bool {
    let above = look.stores.iter().any(|store| store.share() * 100.0 > f64::from(full_percent));
    let busy = moves.iter().any(|one| one.in_flight_lately(look.at_s, rest_s));
    !look.stores.is_empty() && !above && !busy
}

#[cfg(test)]
pub mod tests {
    use super::super::moves::tests::moved;
    use super::*;

    pub const BOUNDS: Bounds = Bounds { low_percent: 90, copies_per_store: 2, late_s: 1.0 };

    pub fn shed_move(at_s: f64, region: u64, from: u64, to: u64) -> Move {
        let reason = "the store holds 96 MB of 100 MB, and of its regions that can go this is the coldest \
                      with 0 operations/s per GB";
        Move { reason: reason.to_owned(), ..moved(at_s, region, "move-peer", from, to) }
    }

    /// Returns a state in which store 0 holds `used` MB of 100 and stores 1 to 3 hold 10. Stores 0,
    /// 1 and 2 hold regions of 1 MB with the given heats.
    pub fn look(at_s: f64, used: u64, heats: &[f64]) -> Look {
        let store = |store, used| StoreLook {
            store,
            used_bytes: used * 1_000_000,
            capacity_bytes: 100_000_000,
            leaders: 1,
            regions: 4,
        };
        let region = |(index, heat): (usize, &f64)| RegionLook {
            region: index as u64 + 1,
            bytes: 1_000_000,
            heat: *heat,
            peers: vec![0, 1, 2],
            leader: Some(0),
            has_heir: true,
            bound: false,
        };
        Look {
            at_s,
            stores: vec![store(0, used), store(1, 10), store(2, 10), store(3, 10)],
            regions: heats.iter().enumerate().map(region).collect(),
        }
    }

    #[test]
    fn the_coldest_ranks_first_and_a_hot_one_is_noticed() {
        let looks = [look(10.0, 96, &[5.0, 0.1, 9.0, 2.0])];
        let sheds = sheds(&looks, &[shed_move(10.5, 2, 0, 3), shed_move(10.5, 1, 0, 3)], BOUNDS);
        assert_eq!((sheds[0].rank, sheds[0].of, sheds[0].free_rank, sheds[0].free), (1, 4, 1, 4));
        assert!(sheds[0].was_coldest(0));
        // The second move of the same round: the coldest region had gone before, and region 4 was
        // colder.
        assert_eq!((sheds[1].rank, sheds[1].free_rank, sheds[1].free), (3, 2, 3));
        assert!(!sheds[1].was_coldest(0) && !sheds[1].was_coldest(90) && sheds[1].was_coldest(110));
    }

    #[test]
    fn what_could_not_go_is_no_rival() {
        let mut first = look(10.0, 96, &[5.0, 0.1, 9.0]);
        first.regions[1].bound = true;
        let all = sheds(&[first.clone()], &[shed_move(11.0, 1, 0, 3)], BOUNDS);
        assert!(all[0].was_coldest(0) && (all[0].rank, all[0].free_rank) == (2, 1));
        first.regions[1].bound = false;
        first.regions[1].peers.push(3);
        assert!(sheds(&[first], &[shed_move(11.0, 1, 0, 3)], BOUNDS)[0].was_coldest(0));
    }

    #[test]
    fn what_only_its_store_can_lead_is_no_rival() {
        let behind = |look: &mut Look| look.regions[1].has_heir = false;
        let rank = |looks: &[Look]| sheds(looks, &[shed_move(11.0, 1, 0, 3)], BOUNDS)[0].free_rank;
        let mut looks = [9.0, 10.1, 10.8].map(|at_s| look(at_s, 96, &[5.0, 0.1, 9.0]));
        behind(&mut looks[0]);
        assert_eq!(rank(&looks), 2, "a planner has heard since that they have caught up");
        behind(&mut looks[1]);
        assert_eq!(rank(&looks), 1, "it need not have heard yet");
        looks[1].regions[1].leader = Some(1);
        assert_eq!(rank(&looks), 2, "another store leads it");
        behind(&mut looks[2]);
        assert_eq!(rank(&looks), 1);
    }

    #[test]
    fn a_store_that_is_busy_with_copies_takes_no_rival() {
        let looks = [look(10.0, 96, &[5.0, 0.1, 9.0, 2.0])];
        let busy = [moved(10.1, 8, "move-peer", 1, 3), moved(10.1, 9, "move-peer", 1, 3)];
        let free = |at_s: f64, moves: &[Move]| {
            sheds(&looks, &[moves, &[shed_move(at_s, 1, 0, 3)]].concat(), BOUNDS)[0].free
        };
        assert_eq!([free(10.3, &busy), free(10.3, &busy[..1])], [1, 4]);
        // The copies ended at 10.5. A planner may not know it until a second later.
        assert_eq!([free(11.4, &busy), free(11.6, &busy)], [1, 4]);
    }

    #[test]
    fn other_moves_shed_nothing() {
        let looks = [look(10.0, 96, &[5.0])];
        assert!(sheds(&looks, &[moved(11.0, 1, "move-peer", 0, 3)], BOUNDS).is_empty());
        assert!(sheds(&looks, &[shed_move(9.0, 1, 0, 3)], BOUNDS).is_empty(), "nothing is known of before");
    }

    #[test]
    fn a_shed_region_that_returns_is_noticed_and_one_that_goes_on_is_not() {
        let moves = [
            moved(5.0, 1, "move-peer", 3, 0),
            shed_move(10.5, 1, 0, 3),
            shed_move(11.0, 2, 0, 3),
            moved(20.0, 1, "move-peer", 3, 2),
        ];
        let sheds = sheds(&[look(10.0, 96, &[5.0, 1.0])], &moves, BOUNDS);
        assert_eq!(came_back(&sheds, &moves), 0);
        assert_eq!(came_back(&sheds, &[moved(30.0, 2, "move-peer", 3, 0)]), 1);
    }

    #[test]
    fn shedding_below_the_band_is_needless() {
        let looks: Vec<Look> = [94, 96, 93, 91, 89, 92]
            .iter()
            .enumerate()
            .map(|(at, used)| look(10.0 * at as f64, *used, &[1.0, 1.0]))
            .collect();
        let count = |at_s: f64| {
            let sheds = sheds(&looks, &[shed_move(at_s, 1, 0, 3)], BOUNDS);
            needless(&looks, &[], &sheds, (95, 90), 2.0)
        };
        assert_eq!([count(5.0), count(11.0), count(31.0)], [1, 0, 0]);
        assert_eq!([count(41.0), count(51.0)], [1, 1], "back above 90% is not back above 95%");
    }

    #[test]
    fn a_store_is_relieved_when_it_was_above_the_band_and_is_below_it() {
        let mut looks: Vec<Look> = [89, 96, 93, 89, 92, 96, 91]
            .iter()
            .enumerate()
            .map(|(at, used)| look(10.0 * at as f64, *used, &[1.0]))
            .collect();
        let moments = |looks: &[Look]| relieved(looks, &[], 0, (95, 90));
        assert_eq!(moments(&looks), [30.0], "neither within the band nor before it was above");
        looks[3].stores[0].capacity_bytes = 0;
        assert!(moments(&looks).is_empty(), "nothing is known of that moment");
        looks[3].stores.clear();
        assert!(moments(&looks).is_empty());
    }

    #[test]
    fn shedding_rests_when_no_store_is_above_the_band_and_nothing_has_moved_for_a_while() {
        let rests = |used: u64, moves: &[Move]| at_rest(&look(20.0, used, &[1.0]), moves, 95, 5.0);
        let ended = |at_s: f64| shed_move(at_s, 1, 0, 3);
        let running = Move { ended_s: None, ..ended(2.0) };
        assert!(rests(94, &[]) && rests(94, &[ended(14.5)]));
        assert!(!rests(96, &[]) && !rests(94, &[ended(15.5)]) && !rests(94, &[running]));
        assert!(!at_rest(&Look::default(), &[], 95, 5.0), "nothing is known");
    }

    #[test]
    fn all_stores_are_as_full_as_what_they_hold_together() {
        assert_eq!(look(0.0, 90, &[]).share_of_all(), 0.3);
        assert_eq!(Look::default().share_of_all(), 0.0);
    }

    #[test]
    fn what_is_on_its_way_to_a_store_counts_as_there() {
        let looks = [look(10.0, 94, &[1.0])];
        let sheds = sheds(&looks, &[shed_move(11.0, 1, 0, 3)], BOUNDS);
        let mut coming = looks[0].clone();
        coming.regions.push(RegionLook {
            region: 9,
            bytes: 3_000_000,
            peers: vec![1, 2, 3],
            ..coming.regions[0].clone()
        });
        let count = |moves: &[Move]| needless(&[coming.clone()], moves, &sheds, (95, 90), 2.0);
        let copy = Move { ended_s: None, ..moved(9.0, 9, "move-peer", 3, 0) };
        let elsewhere = Move { to: Some(5), ..copy.clone() };
        let ended = Move { ended_s: Some(9.5), ..copy.clone() };
        let cases = [[copy], [elsewhere], [ended]];
        assert_eq!(cases.each_ref().map(|moves| count(&moves[..])), [0, 1, 1]);
        let looks = [look(5.0, 96, &[1.0]), Look { stores: look(10.0, 89, &[]).stores, ..coming.clone() }];
        let number = |moves: &[Move]| relieved(&looks, moves, 0, (95, 90)).len();
        assert_eq!(cases.each_ref().map(|moves| number(&moves[..])), [0, 1, 1]);
    }
}
