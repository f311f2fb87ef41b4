//! Leaders under `leader-only` and `alor`: LMO, ALOR's leader migration (ALOR §3.1).
//!
//! A leader executes every request of its region and answers only when its own device is done. So
//! each region is led by the most capable of its live, caught-up voters. Among equally capable
//! stores, leaders are balanced as under `even`. The moves with the largest gain come first.

use std::cmp::Reverse;

use crate::data::Allow;
use crate::even;
use crate::round::{Round, StoreIndex};
use crate::{PlanLimits, Reason};

/// The order in which moves begin: the largest gap in speed, then the busiest region, then the id.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    gap: Reverse<u64>,
    rate: Reverse<u64>,
    /// Position in the view, which is sorted by id.
    region: u32,
}

/// The order among a region's fastest candidates: the one that leads the fewest regions, then the
/// id.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Fitness {
    leaders: u32,
    store: StoreIndex,
}

pub(crate) fn plan(round: &mut Round<'_>) {
    if round.room() == 0 {
        return;
    }
    let speeds: Vec<u64> = round.stores().map(|at| round.leader_speed(at)).collect();
    let mut moves: Vec<Rank> = Vec::new();
    for (region, row) in (0..).zip(&round.rows) {
        if !row.free || !round.is_up(row.leader) {
            continue;
        }
        let own = speeds[row.leader as usize];
        let best = round.candidates(region).map(|at| speeds[at as usize]).max();
        if let Some(best) = best.filter(|&best| is_worth_it(own, best, round.limits)) {
            moves.push(Rank { gap: Reverse(best - own), rate: Reverse(round.region(region).rate()), region });
        }
    }
    moves.sort_unstable();

    for Rank { region, .. } in moves {
        if round.room() == 0 {
            break;
        }
        let from = round.rows[region as usize].leader;
        let Some(to) = target(round, region, &speeds) else { continue };
        // Regions planned before this one may have used up the CPUs of faster stores.
        if !is_worth_it(speeds[from as usize], speeds[to as usize], round.limits) {
            continue;
        }
        let reason = Reason::MoreCapable {
            from_bytes_per_s: speeds[from as usize],
            to_bytes_per_s: speeds[to as usize],
        };
        round.begin_transfer(region, from, to, reason);
    }
    even::plan(round, &mut AsCapable { speeds });
}

/// Allows moves that this policy would not reverse.
struct AsCapable {
    speeds: Vec<u64>,
}

impl Allow for AsCapable {
    fn allows(&self, round: &Round<'_>, region: u32, from: StoreIndex, to: StoreIndex) -> bool {
        let speed = |at: StoreIndex| self.speeds[at as usize];
        let best = round.candidates(region).map(speed).max().unwrap_or(0).max(speed(from));
        !is_worth_it(speed(to), best, round.limits)
    }
}

/// Returns the best of the fastest candidates, or `None` if all of these have their maximum of
/// moves in flight towards them. A slower store is not used instead, because the leader would move
/// twice.
fn target(round: &Round<'_>, region: u32, speeds: &[u64]) -> Option<StoreIndex> {
    let fastest = round.candidates(region).map(|at| speeds[at as usize]).max()?;
    round
        .candidates(region)
        .filter(|&at| speeds[at as usize] == fastest && round.has_room_towards(at))
        .map(|at| Fitness { leaders: round.totals.leaders[at as usize], store: at })
        .min()
        .map(|fitness| fitness.store)
}

/// Returns true if leading from a store of speed `to` instead of `from` gains enough for a move.
pub(crate) fn is_worth_it(from: u64, to: u64, limits: &PlanLimits) -> bool {
    to > from && u128::from(to) * 100 >= u128::from(from) * (100 + u128::from(limits.gain_percent_min))
}
