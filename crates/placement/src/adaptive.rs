//! `adaptive`: minimizes the highest load of any store, then the time that writes wait, then
//! unevenness.
//!
//! It compares layouts by three objectives, in this order:
//! It compares layouts by three objectives, in this order:
//!
//! 1. **The load of the busiest stores.** A store among the busiest gives a leader, or otherwise a
//!    peer, to a store that stays less busy by a margin even after the move. If no single move
//!    helps, two moves together may ([`exchange`]).
//! 2. **The time that a region's writes wait** for the logs of a majority and for the leader to
//!    apply them. A leader moves to a faster peer. For regions with many writes a follower moves to
//!    a faster store, as long as that store's load stays well below that of the busiest. If the
//!    fast stores have no room, two peers change places ([`change_places`]). So a fast store that
//!    is a bottleneck for reads does not lead the region.
//! 3. **Evenness:** data in proportion to write speeds (Eq. 1, as `alor`), and equal numbers of
//!    leaders on stores of equal speed. Such a move must not worsen either of the first two
//!    objectives.
//!
//! A move for one objective never worsens an earlier one. Each move either strictly improves its
//! own objective, or gives a fast peer to a region without one, taken from a region that has
//! another. So planning ends under a constant load. ALOR's threshold and reserve are constraints
//! ([`crate::fill`]).
//!
//! Copies cost work. A peer is moved because of load only if the gain within
//! [`PlanLimits::repay_seconds`](crate::PlanLimits) exceeds the cost of the copy, both in seconds
//! of device time.

use std::cmp::Reverse;

use crate::data::{self, Allow, Held, Order};
use crate::even;
use crate::fill::Ordered;
use crate::load::{at_ease, gap, Loads};
use crate::round::{Replica, Round, StoreIndex};
use crate::units::permille;
use crate::Reason;

mod change_places;
mod exchange;
mod waiting;

/// Maximum number of target stores tried per region, least busy first.
const TARGETS_TRIED: usize = 32;
/// Maximum number of target stores that are compared with each other, among those with room for the
/// region.
const TARGETS_WEIGHED: usize = 8;

pub(crate) fn plan(round: &mut Round<'_>) {
    // Full stores shed data before anything else is considered.
    data::plan(round, Order::Shed, &mut FromFull);
    let (loads, gap) = (Loads::new(round), gap(round.limits));
    let mut planner = Planner { round, loads, gap };
    planner.relieve();
    planner.lead_from_faster();
    if planner.round.has_data_room() {
        let wanting = planner.wanting();
        planner.follow_on_faster(&wanting);
        planner.change_places(&wanting);
    }
    let ceiling = planner.ceiling();
    let Planner { round, loads, gap } = planner;
    let mut no_worse = NoWorse { loads, ceiling, gap };
    even::plan(round, &mut no_worse);
    data::plan(round, Order::Cold, &mut no_worse);
}

/// Allows data to move only from stores above their threshold.
struct FromFull;

impl Allow for FromFull {
    fn gives(&self, round: &Round<'_>, from: StoreIndex) -> bool {
        round.is_full(from)
    }

    fn allows(&self, _: &Round<'_>, _: u32, _: StoreIndex, _: StoreIndex) -> bool {
        true
    }
}

/// Allows moves that worsen neither the load nor any region's wait.
///
/// A move for evenness may increase a store's load if the store stays well below the busiest, or
/// stays less busy than the source by the margin. Without the margin, measurement noise would let
/// this step and [`Planner::relieve`] move the same region back and forth.
struct NoWorse {
    loads: Loads,
    ceiling: f64,
    gap: f64,
}

impl Allow for NoWorse {
    fn allows(&self, round: &Round<'_>, region: u32, from: StoreIndex, to: StoreIndex) -> bool {
        let loads = &self.loads;
        let leader = round.rows[region as usize].leader;
        let (cost, change) = if round.holds(region, to) {
            (loads.lead_cost(region, to), None)
        } else {
            (loads.peer_cost(region, to), Some((from, to)))
        };
        let bearable = self.ceiling.max(loads.busy(from) * (1.0 - self.gap));
        if cost > 0.0 && loads.busy(to) + cost > bearable {
            return false;
        }
        let now = round.wait(region, leader, None);
        match change {
            // No client waits for the region, so its leader may move to any store where writes
            // would not wait longer.
            None if loads.rests(round, region) => round.wait(region, to, None) <= now,
            // The wait must be as short as under the best candidate. Otherwise the leader would be
            // moved again.
            None => {
                let other = round.candidates(region).map(|at| round.wait(region, at, None));
                round.wait(region, to, None) <= other.fold(now, f64::min)
            }
            // Any peer may lead after the leader's peer has left. Each must be able to bear the
            // load, and writes must not wait longer.
            Some(_) if leader == from => heirs(round, region, from).all(|heir| {
                let cost = loads.lead_cost(region, heir.store);
                (cost <= 0.0 || loads.busy(heir.store) + cost <= bearable)
                    && round.wait(region, heir.store, change) <= now
            }),
            // Writes must not wait longer under a future leader either.
            Some(_) => {
                let best = |to: StoreIndex| round.wait_after(region, from, to);
                round.wait(region, leader, change) <= now && best(to) <= best(from)
            }
        }
    }

    fn begun(&mut self, round: &Round<'_>, region: u32, from: StoreIndex, to: StoreIndex) {
        if round.holds(region, to) {
            self.loads.move_leader(region, from, to);
        } else {
            self.loads.move_peer(round, region, from, to);
        }
    }
}

struct Planner<'r, 'a> {
    round: &'r mut Round<'a>,
    loads: Loads,
    gap: f64,
}

/// The ranking of ways to relieve a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Relief {
    /// True if the region's writes wait longer afterwards.
    slows: bool,
    copies: bool,
    /// The loads of the two stores afterwards, the larger first.
    busy: (Ordered, Ordered),
    region: u32,
    to: StoreIndex,
}

/// Returns the voters that may lead after the leader's peer on `leaving` has left. Voters on stores
/// that should not lead are included only if there are no others.
fn heirs<'a>(
    round: &'a Round<'_>,
    region: u32,
    leaving: StoreIndex,
) -> impl Iterator<Item = &'a Replica> + 'a {
    let voters = move || {
        round.replicas(region).iter().filter(move |replica| replica.voter && replica.store != leaving)
    };
    let any_may = voters().any(|replica| round.bar(replica.store).is_none());
    voters().filter(move |replica| !any_may || round.bar(replica.store).is_none())
}

fn in_order(one: f64, other: f64) -> (Ordered, Ordered) {
    (Ordered::new(one.max(other)), Ordered::new(one.min(other)))
}

impl Planner<'_, '_> {
    /// Objective 1. Sources are all stores within the margin of the busiest: a store slightly
    /// behind the busiest may have to give up some load before the busiest can give it any.
    fn relieve(&mut self) {
        let mut exhausted = vec![false; self.round.view.stores.len()];
        let mut exchanges = 0;
        let mut held: Option<Held> = None;
        while self.round.room() > 0 {
            let least = (self.loads.peak(self.round) * (1.0 - self.gap)).max(at_ease(self.round.limits));
            let source = self
                .round
                .stores()
                .filter(|&at| self.round.is_up(at) && !exhausted[at as usize])
                .filter(|&at| self.loads.busy(at) > 0.0 && self.loads.busy(at) >= least)
                .min_by_key(|&at| (Reverse(Ordered::new(self.loads.busy(at))), at));
            let Some(source) = source else { break };
            // This is checked before the regions are visited: some store must be less busy by the
            // margin.
            let low = self.loads.busy(source) * (1.0 - self.gap);
            if !self.round.stores().any(|at| self.round.is_up(at) && self.loads.busy(at) < low) {
                break;
            }
            let held = held.get_or_insert_with(|| Held::new(self.round));
            if let Some(relief) = self.best_relief(held.by(source), source) {
                let reason = |planner: &Planner, before| planner.busy_reason(source, relief.to, before);
                self.carry_out(source, relief, reason);
            } else if exchanges < exchange::SOURCES_TRIED {
                exchanges += 1;
                exhausted[source as usize] = !self.exchange(held, source);
            } else {
                exhausted[source as usize] = true;
            }
        }
    }

    fn best_relief(&self, regions: &[u32], source: StoreIndex) -> Option<Relief> {
        let by_leader = self.best_handover(regions, source);
        // No relief ranks before a leader's move that slows no writes.
        match by_leader {
            Some(Relief { slows: false, .. }) => by_leader,
            _ => by_leader.into_iter().chain(self.best_copy(regions, source)).min(),
        }
    }

    fn best_handover(&self, regions: &[u32], source: StoreIndex) -> Option<Relief> {
        let Planner { round, loads, .. } = self;
        let (high, low) = (loads.busy(source), loads.busy(source) * (1.0 - self.gap));
        let mut best: Option<Relief> = None;
        for &region in regions {
            let row = &round.rows[region as usize];
            let read = loads.lead_cost(region, source);
            if !row.free || row.leader != source || read <= 0.0 {
                continue;
            }
            for to in round.candidates(region).filter(|&at| round.has_room_towards(at)) {
                let after = loads.busy(to) + loads.lead_cost(region, to);
                if after > low {
                    continue;
                }
                let now = round.wait(region, source, None);
                let slows = round.wait(region, to, None) > now;
                let busy = in_order(after, high - read);
                let relief = Relief { slows, copies: false, busy, region, to };
                best = Some(best.map_or(relief, |best| best.min(relief)));
            }
        }
        best
    }

    fn best_copy(&self, regions: &[u32], source: StoreIndex) -> Option<Relief> {
        let Planner { round, loads, .. } = self;
        if !round.has_data_room() || !round.has_data_room_at(source) {
            return None;
        }
        let (high, low) = (loads.busy(source), loads.busy(source) * (1.0 - self.gap));
        let takes = |at: &StoreIndex| {
            *at != source && round.is_up(*at) && round.has_data_room_at(*at) && round.admits(*at, 0)
        };
        let mut calmest: Vec<StoreIndex> =
            round.stores().filter(takes).filter(|&at| loads.busy(at) < low).collect();
        calmest.sort_unstable_by_key(|&at| (Ordered::new(loads.busy(at)), at));
        let quickest = calmest.iter().map(|&at| loads.seconds_per_byte(at)).fold(f64::INFINITY, f64::min);
        let mut best: Option<Relief> = None;
        for &region in regions {
            let row = &round.rows[region as usize];
            if !row.free || !row.healthy {
                continue;
            }
            let (bytes, written) = (round.region(region).bytes, loads.peer_cost(region, source));
            let gained = written * f64::from(round.limits.repay_seconds);
            let least_cost = bytes as f64 * (loads.seconds_per_byte(row.leader) + quickest);
            let leads = row.leader == source;
            if gained <= least_cost
                || !round.can_leave(region, source)
                || (leads && !self.any_heir_will_do(region, source, low))
            {
                continue;
            }
            let companions = round.companions(region, source, source);
            let fits = |to: &StoreIndex| {
                let to = *to;
                !round.holds(region, to)
                    && loads.busy(to) + loads.peer_cost(region, to) <= low
                    && gained > loads.copy_cost(bytes, row.leader, to)
                    && round.companions(region, source, to) <= companions
                    && round.admits(to, bytes)
            };
            let now = round.wait(region, row.leader, None);
            for &to in calmest.iter().take(TARGETS_TRIED).filter(|to| fits(to)).take(TARGETS_WEIGHED) {
                let change = Some((source, to));
                let then = match leads {
                    true => round.wait_after(region, source, to),
                    false => round.wait(region, row.leader, change),
                };
                let slows = then > now;
                let after = loads.busy(to) + loads.peer_cost(region, to);
                let relief =
                    Relief { slows, copies: true, busy: in_order(after, high - written), region, to };
                best = Some(best.map_or(relief, |best| best.min(relief)));
            }
        }
        best
    }

    /// Returns true if every possible successor could bear the leadership. When a leader's peer
    /// moves, the driver chooses the next leader.
    fn any_heir_will_do(&self, region: u32, source: StoreIndex, low: f64) -> bool {
        let Planner { round, loads, .. } = self;
        heirs(round, region, source).all(|heir| {
            let cost = loads.lead_cost(region, heir.store);
            cost <= 0.0 || loads.busy(heir.store) + cost <= low
        })
    }

    /// Executes a relief. `reason` receives the loads of the two stores before the move.
    fn carry_out(
        &mut self,
        from: StoreIndex,
        relief: Relief,
        reason: impl FnOnce(&Planner, (f64, f64)) -> Reason,
    ) {
        let Relief { copies, region, to, .. } = relief;
        let before = (self.loads.busy(from), self.loads.busy(to));
        if copies {
            if self.round.rows[region as usize].leader == from {
                let read = self.loads.lead_cost(region, from);
                self.loads.shed(from, read);
            }
            self.loads.move_peer(self.round, region, from, to);
        } else {
            self.loads.move_leader(region, from, to);
        }
        let reason = reason(self, before);
        if copies {
            self.round.begin_move(region, from, to, reason);
        } else {
            self.round.begin_transfer(region, from, to, reason);
        }
    }

    fn busy_reason(&self, from: StoreIndex, to: StoreIndex, before: (f64, f64)) -> Reason {
        Reason::Busy {
            from_permille: permille(before.0),
            to_permille: permille(before.1),
            from_after_permille: permille(self.loads.busy(from)),
            to_after_permille: permille(self.loads.busy(to)),
        }
    }

    /// Returns the load up to which a store may be filled to shorten waits: twice the margin below
    /// the busiest, so that objective 1 does not undo objective 2. If the busiest store needs no
    /// relief, the load at which relief begins replaces the busiest store's load.
    fn ceiling(&self) -> f64 {
        let round = &*self.round;
        self.loads.peak(round).max(at_ease(round.limits)) * (1.0 - 2.0 * self.gap)
    }
}
