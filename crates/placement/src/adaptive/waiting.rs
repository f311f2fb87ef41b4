//! Objective 2 of `adaptive`: how long writes wait.
//!
//! Leaders go to faster peers, followers to faster stores. The wait of a region under a layout is
//! always computed for the best leader that the stores can bear in addition to their other work.

use std::cmp::Reverse;

use types::META_REGION;

use super::{Planner, TARGETS_TRIED};
use crate::fill::Ordered;
use crate::round::StoreIndex;
use crate::wait::moved;
use crate::{Reason, Waited};

/// The move of a follower, and the peer that leads best afterwards.
struct Better {
    from: StoreIndex,
    to: StoreIndex,
    leader: StoreIndex,
}

impl Planner<'_, '_> {
    /// Objective 2 for leaders. Moves with the largest saving for all writes together come first.
    pub(super) fn lead_from_faster(&mut self) {
        if self.round.room() == 0 {
            return;
        }
        let (least, ceiling) = (self.round.least_wait(), self.ceiling());
        let mut moves: Vec<(Reverse<Ordered>, u32)> = Vec::new();
        for (region, row) in (0..).zip(&self.round.rows) {
            if !row.free || !self.round.is_up(row.leader) {
                continue;
            }
            let (now, demand) = (self.round.wait(region, row.leader, None), self.loads.demand(region));
            // The leader makes no difference to a region without writes.
            let only_read = demand.writes <= 0.0 && demand.write_bytes <= 0.0;
            let is_read = only_read && self.round.region(region).read_rate > 0.0;
            if now <= least || is_read || self.loads.rests(self.round, region) {
                continue;
            }
            if let Some((_, wait)) = self.faster_leader(region, ceiling) {
                // Regions without load come last; among them, those with the largest gain come
                // first.
                moves.push((Reverse(Ordered::new((now - wait) * (1.0 + demand.write_bytes))), region));
            }
        }
        moves.sort_unstable();
        for (_, region) in moves {
            if self.round.room() == 0 {
                break;
            }
            // By now the target may be busier or have its maximum of leaders in flight. The region
            // then waits for a later round.
            let Some((to, _)) = self.faster_leader(region, ceiling) else { continue };
            let from = self.round.rows[region as usize].leader;
            let reason = self.wait_reason(region, (from, to), None);
            self.loads.move_leader(region, from, to);
            self.round.begin_transfer(region, from, to, reason);
        }
    }

    /// Returns the peer under which the region's writes wait least, if the wait is shorter than at
    /// present. Among equals, returns the peer whose store leads the fewest regions.
    fn faster_leader(&self, region: u32, ceiling: f64) -> Option<(StoreIndex, f64)> {
        let round = &*self.round;
        let leader = round.rows[region as usize].leader;
        let now = round.wait(region, leader, None);
        round
            .candidates(region)
            .filter(|&at| round.has_room_towards(at))
            .filter(|&at| self.bears(region, at, 0.0, ceiling))
            .map(|at| (at, round.wait(region, at, None)))
            .filter(|(_, wait)| *wait < now)
            .min_by_key(|&(at, wait)| (Ordered::new(wait), round.totals.leaders[at as usize], at))
    }

    /// Objective 2 for followers: gives regions a majority on fast stores, first the regions with
    /// the largest saving.
    pub(super) fn follow_on_faster(&mut self, wanting: &[u32]) {
        let ceiling = self.ceiling();
        let mut fastest: Option<Vec<StoreIndex>> = None;
        for &region in wanting {
            let fastest_now = fastest.get_or_insert_with(|| self.fastest(ceiling));
            if !self.round.has_data_room() || fastest_now.is_empty() {
                break;
            }
            let Some(better) = self.faster_follower(region, fastest_now, ceiling) else {
                continue;
            };
            let Better { from, to, leader } = better;
            let present = self.round.rows[region as usize].leader;
            let reason = self.wait_reason(region, (present, leader), Some((from, to)));
            self.loads.move_peer(self.round, region, from, to);
            self.round.begin_move(region, from, to, reason);
            fastest = None;
        }
    }

    /// Returns the regions whose writes could wait less if a peer were elsewhere, largest possible
    /// gain first.
    pub(super) fn wanting(&self) -> Vec<u32> {
        let round = &*self.round;
        let least = round.least_wait();
        let mut wanting: Vec<(Reverse<Ordered>, u32)> = Vec::new();
        for (region, row) in (0..).zip(&round.rows) {
            let written = self.loads.demand(region).write_bytes;
            if !row.healthy || !row.free || written <= 0.0 || round.region(region).id == META_REGION {
                continue;
            }
            // An upper bound of the gain. It may be too little for half of a copy's cost.
            let most = (round.wait(region, row.leader, None) - least) * written;
            let read = self.loads.copy_cost(round.region(region).bytes, row.leader, row.leader) / 2.0;
            if most > 0.0 && most * f64::from(round.limits.repay_seconds) > read {
                wanting.push((Reverse(Ordered::new(most)), region));
            }
        }
        wanting.sort_unstable();
        wanting.into_iter().map(|(_, region)| region).collect()
    }

    /// Returns the wait of the region's writes under its best leader, and that leader. With
    /// `change`, a follower's peer has moved. The best leader is the present one or an able peer
    /// whose store can bear the leadership plus `busier`, the load that moving peers add. If the
    /// moving peer is the best leader, it is named by the store that it leaves.
    ///
    /// Room on the CPU is not required. CPU decides which peer leads, not where copies are.
    /// Otherwise copies would follow leaders back and forth.
    pub(super) fn best_wait(
        &self,
        region: u32,
        change: Option<(StoreIndex, StoreIndex)>,
        busier: impl Fn(StoreIndex) -> f64,
        ceiling: f64,
    ) -> (f64, StoreIndex) {
        let round = &*self.round;
        let bears = |at: StoreIndex| self.bears(region, at, busier(at), ceiling);
        let stays = |at: &StoreIndex| change.is_none_or(|(from, _)| from != *at);
        let others = round.able(region).filter(stays).filter(|&at| bears(at));
        let newcomer = change.filter(|&(_, to)| round.could_lead(to) && bears(to)).map(|(from, _)| from);
        let present = round.rows[region as usize].leader;
        let wait = |at: StoreIndex| (round.wait(region, at, change), at);
        others
            .chain(newcomer)
            .map(wait)
            .fold(wait(present), |best, one| if one.0 < best.0 { one } else { best })
    }

    /// Returns true if a store that is busier by `busier` can also lead the region.
    fn bears(&self, region: u32, at: StoreIndex, busier: f64, ceiling: f64) -> bool {
        let cost = self.loads.lead_cost(region, at);
        cost <= 0.0 || self.loads.busy(at) + busier + cost <= ceiling
    }

    /// Returns true if the gain per second repays a copy.
    pub(super) fn is_worth_a_copy(&self, region: u32, to: StoreIndex, gain: f64) -> bool {
        let round = &*self.round;
        let cost = self.loads.copy_cost(round.region(region).bytes, round.rows[region as usize].leader, to);
        gain > 0.0 && gain * f64::from(round.limits.repay_seconds) > cost
    }

    /// Returns the stores that could take more load, fastest first, and among equals the least
    /// busy.
    fn fastest(&self, ceiling: f64) -> Vec<StoreIndex> {
        let Planner { round, loads, .. } = self;
        let takes = |at: &StoreIndex| {
            round.is_up(*at)
                && round.has_data_room_at(*at)
                && round.admits(*at, 0)
                && loads.busy(*at) <= ceiling
        };
        let mut fastest: Vec<StoreIndex> = round.stores().filter(takes).collect();
        fastest.sort_unstable_by_key(|&at| {
            (Ordered::new(round.store_wait(at)), Ordered::new(loads.busy(at)), at)
        });
        fastest
    }

    /// Finds the move of the slowest follower to the first of the fastest stores for which the
    /// shorter wait repays a copy.
    fn faster_follower(&self, region: u32, fastest: &[StoreIndex], ceiling: f64) -> Option<Better> {
        let Planner { round, loads, .. } = self;
        let (view, leader) = (round.region(region), round.rows[region as usize].leader);
        let now = self.best_wait(region, None, |_| 0.0, ceiling).0;
        let followers = round.replicas(region).iter().map(|replica| replica.store).filter(|&at| at != leader);
        let from = followers.filter(|&at| round.has_data_room_at(at)).max_by_key(|&at| {
            (Ordered::new(round.log_wait(at)), Ordered::new(loads.busy(at)), Reverse(at))
        })?;
        let companions = round.companions(region, from, from);
        let written = loads.demand(region).write_bytes;
        let saves = |to: StoreIndex, busier: f64| {
            let more = |at: StoreIndex| if at == to { busier } else { 0.0 };
            let (wait, leader) = self.best_wait(region, Some((from, to)), more, ceiling);
            self.is_worth_a_copy(region, to, (now - wait) * written).then_some(leader)
        };
        let fits = |to: StoreIndex| {
            loads.busy(to) + loads.peer_cost(region, to) <= ceiling
                && round.companions(region, from, to) <= companions
                && round.admits(to, view.bytes)
        };
        // The first store is the fastest. If even the fastest saves nothing when any load is
        // allowed, slower ones hardly do. The region's own stores, often the fastest of all, are
        // excluded.
        let others = fastest.iter().copied().filter(|&to| !round.holds(region, to));
        let mut tried = others.take(TARGETS_TRIED).take_while(|&to| saves(to, f64::NEG_INFINITY).is_some());
        tried.find_map(|to| {
            let leader = saves(to, loads.peer_cost(region, to)).filter(|_| fits(to))?;
            Some(Better { from, to, leader })
        })
    }

    fn wait_reason(
        &self,
        region: u32,
        (before, after): (StoreIndex, StoreIndex),
        change: Option<(StoreIndex, StoreIndex)>,
    ) -> Reason {
        let round = &*self.round;
        let waited = |leader: StoreIndex, change: Option<(StoreIndex, StoreIndex)>| {
            let known = |at: StoreIndex| round.ratings.get(at as usize);
            let speed = |at: StoreIndex| known(at).map_or(0, |_| round.leader_speed(at));
            let log = round.slowest_needed(region, leader, change);
            let leads = moved(leader, change);
            Waited {
                log_of_follower: log != leads,
                log_bytes_per_s: speed(log),
                log_sync_ns: known(log).map_or(0, |rating| rating.sync_ns),
                leader_bytes_per_s: speed(leads),
            }
        };
        Reason::Wait { before: waited(before, None), after: waited(after, change) }
    }
}
