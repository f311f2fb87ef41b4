//! Pairs of moves that together relieve a store which no single move can relieve.
//!
//! A store may have room for the busiest store's load only after it has given up some load itself,
//! to a third store or to the busiest in return. Single moves end in layouts in which no store can
//! be improved by one region more or less. Pairs get out of most of these layouts.
//!
//! Both moves begin in the same round, the one that frees room first. Each pair leaves every store
//! that takes part less busy than the busiest was by twice the margin, because two moves must gain
//! as much as two single moves would. So the measure that single moves decrease also decreases
//! here. The two moves are separate operators. If only one of them succeeds, a store may be busier
//! than before until later rounds relieve it.

use std::collections::BTreeMap;

use super::{Held, Planner, Relief, TARGETS_WEIGHED};
use crate::fill::Ordered;
use crate::round::StoreIndex;
use crate::units::permille;
use crate::Reason;

/// Maximum number of source stores per round for which pairs are tried.
pub(super) const SOURCES_TRIED: usize = 4;

/// Maximum number of shifts considered per store, largest saving first.
const SHIFTS_TRIED: usize = 256;

/// A move of a leader, or of a follower's peer, from one store to another.
#[derive(Clone, Copy, Debug)]
struct Shift {
    region: u32,
    to: StoreIndex,
    copies: bool,
    slows: bool,
    /// The load that the source saves.
    saves: f64,
    costs: f64,
}

/// The ranking of pairs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    slows: bool,
    copies: u8,
    /// The load of the busiest store that takes part, afterwards.
    busiest: Ordered,
    regions: (u32, u32),
    to: (StoreIndex, StoreIndex),
}

impl Planner<'_, '_> {
    /// Begins the best pair for this store. Returns false if there is none.
    pub(super) fn exchange(&mut self, held: &Held, source: StoreIndex) -> bool {
        if self.round.room() < 2 {
            return false;
        }
        let Some((rank, first, second)) = self.best_exchange(held, source) else { return false };
        let before = permille(self.loads.busy(source));
        let after = permille(rank.busiest.value());
        for (from, shift, with) in [(first.to, second, first.region), (source, first, second.region)] {
            let Shift { region, to, copies, slows, .. } = shift;
            let busy = (Ordered::LEAST, Ordered::LEAST);
            let relief = Relief { slows, copies, busy, region, to };
            let with = self.round.region(with).id;
            let reason = move |_: &Planner, _| Reason::Together {
                with,
                busiest_permille: before,
                busiest_after_permille: after,
            };
            self.carry_out(from, relief, reason);
        }
        true
    }

    fn best_exchange(&self, held: &Held, source: StoreIndex) -> Option<(Rank, Shift, Shift)> {
        let loads = &self.loads;
        let (high, low) = (loads.busy(source), loads.busy(source) * (1.0 - 2.0 * self.gap));
        let calmest = self.calmest();
        let mut by_taker: BTreeMap<StoreIndex, Vec<Shift>> = BTreeMap::new();
        let mut best: Option<(Rank, Shift, Shift)> = None;
        for first in self.shifts(held.by(source), source, &calmest) {
            let taker = first.to;
            let excess = loads.busy(taker) + first.costs - low;
            if excess <= 0.0 || high - first.saves > low {
                continue;
            }
            let seconds =
                by_taker.entry(taker).or_insert_with(|| self.shifts(held.by(taker), taker, &calmest));
            // Sorted by `saves`, largest first.
            for &second in seconds.iter().take_while(|second| second.saves >= excess) {
                let returned = if second.to == source { second.costs } else { 0.0 };
                let third = if second.to == source { 0.0 } else { loads.busy(second.to) + second.costs };
                let after =
                    [high - first.saves + returned, loads.busy(taker) + first.costs - second.saves, third];
                let busiest = after.into_iter().fold(0.0, f64::max);
                if second.region == first.region
                    || busiest > low
                    || !self.repays(high - busiest, source, (first, second))
                {
                    continue;
                }
                let rank = Rank {
                    slows: first.slows || second.slows,
                    copies: u8::from(first.copies) + u8::from(second.copies),
                    busiest: Ordered::new(busiest),
                    regions: (first.region, second.region),
                    to: (first.to, second.to),
                };
                if best.is_none_or(|(least, ..)| rank < least) {
                    best = Some((rank, first, second));
                }
            }
        }
        best
    }

    /// Returns true if the limits permit the pair's copies and the gain exceeds their cost.
    fn repays(&self, gained: f64, source: StoreIndex, (first, second): (Shift, Shift)) -> bool {
        let round = &*self.round;
        let copies = || [(source, first), (first.to, second)].into_iter().filter(|(_, shift)| shift.copies);
        let at_end =
            |end: StoreIndex| copies().filter(|(from, shift)| *from == end || shift.to == end).count();
        let cost = |shift: &Shift| {
            let leader = round.rows[shift.region as usize].leader;
            self.loads.copy_cost(round.region(shift.region).bytes, leader, shift.to)
        };
        let costs: f64 = copies().map(|(_, shift)| cost(&shift)).sum();
        copies().count() <= round.data_room()
            && [source, first.to, second.to].into_iter().all(|end| at_end(end) <= round.data_room_at(end))
            && (costs == 0.0 || gained * f64::from(round.limits.repay_seconds) > costs)
    }

    /// Returns the stores that may take a copy, least busy first.
    fn calmest(&self) -> Vec<StoreIndex> {
        let round = &*self.round;
        let takes = |at: &StoreIndex| round.is_up(*at) && round.data_room_at(*at) > 0 && round.admits(*at, 0);
        let mut calmest: Vec<StoreIndex> = round.stores().filter(takes).collect();
        calmest.sort_unstable_by_key(|&at| (Ordered::new(self.loads.busy(at)), at));
        calmest.truncate(TARGETS_WEIGHED);
        calmest
    }

    fn shifts(&self, regions: &[u32], from: StoreIndex, calmest: &[StoreIndex]) -> Vec<Shift> {
        let Planner { round, loads, .. } = self;
        let mut shifts = Vec::new();
        for &region in regions {
            let row = &round.rows[region as usize];
            if !row.free || !row.healthy {
                continue;
            }
            let now = round.wait(region, row.leader, None);
            let read = loads.lead_cost(region, from);
            if row.leader == from {
                for to in round.candidates(region).filter(|&to| read > 0.0 && round.has_room_towards(to)) {
                    let slows = round.wait(region, to, None) > now;
                    let costs = loads.lead_cost(region, to);
                    shifts.push(Shift { region, to, copies: false, slows, saves: read, costs });
                }
                continue;
            }
            let saves = loads.peer_cost(region, from);
            if saves <= 0.0 || !round.has_data_room() {
                continue;
            }
            let (bytes, companions) = (round.region(region).bytes, round.companions(region, from, from));
            let fits = |to: &StoreIndex| {
                *to != from
                    && !round.holds(region, *to)
                    && round.companions(region, from, *to) <= companions
                    && round.admits(*to, bytes)
            };
            for to in calmest.iter().copied().filter(fits) {
                let slows = round.wait(region, row.leader, Some((from, to))) > now;
                let costs = loads.peer_cost(region, to);
                shifts.push(Shift { region, to, copies: true, slows, saves, costs });
            }
        }
        shifts.sort_unstable_by_key(|shift| {
            (std::cmp::Reverse(Ordered::new(shift.saves)), shift.region, shift.to)
        });
        shifts.truncate(SHIFTS_TRIED);
        shifts
    }
}
