//! `leader-only`: LMO, ALOR's leader migration alone (ALOR §3.1).
//!
//! A leader executes every request of its region and answers only when its own device is done, so each
//! region is led by the most capable of its live, caught-up voters; where the peers are is left as it is.
//! Regions whose move gains most go first.

use std::cmp::Reverse;

use crate::round::{At, Round};
use crate::{ClusterView, Operator, PlanLimits, Reason, RegionView};

/// The order in which moves begin: the largest gap in speed, then the busiest region, the id last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    gap: Reverse<u64>,
    rate: Reverse<u64>,
    /// Position in the view, which is sorted by id.
    region: u32,
}

/// The order among a region's fastest candidates: the one that leads least, the id last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Fitness {
    leaders: u32,
    store: At,
}

pub(crate) fn plan(view: &ClusterView, limits: &PlanLimits) -> Vec<Operator> {
    let mut round = Round::new(view, limits);
    if round.room() == 0 {
        return Vec::new();
    }
    let speeds: Vec<u64> = view.stores.iter().map(|store| store.capability.speed()).collect();
    let mut moves: Vec<Rank> = Vec::new();
    for (at, region) in view.regions.iter().enumerate() {
        if region.cooldown || round.is_busy(region.id) {
            continue;
        }
        let Some(leader) = round.live_leader(region) else { continue };
        let own = speeds[leader as usize];
        let best = round.candidates(region).map(|at| speeds[at as usize]).max();
        if let Some(best) = best.filter(|&best| is_worth_it(own, best, limits)) {
            let rate = Reverse(region.rate());
            moves.push(Rank { gap: Reverse(best - own), rate, region: at as u32 });
        }
    }
    moves.sort_unstable();

    let mut leaders = if moves.is_empty() { Vec::new() } else { round.leader_counts() };
    let mut operators = Vec::new();
    for rank in moves {
        if round.room() == 0 {
            break;
        }
        let region = &view.regions[rank.region as usize];
        let from = round.live_leader(region).expect("ranked for having one");
        let Some(to) = target(&round, region, &speeds, &leaders) else { continue };
        round.spend(to);
        leaders[from as usize] = leaders[from as usize].saturating_sub(1);
        leaders[to as usize] += 1;
        operators.push(Operator::TransferLeader {
            region: region.id,
            from: round.id(from),
            to: round.id(to),
            reason: Reason::MoreCapable {
                from_bytes_per_s: speeds[from as usize],
                to_bytes_per_s: speeds[to as usize],
            },
        });
    }
    operators
}

/// The best of the fastest candidates; `None` when all of those have as many moves towards them as they
/// may. A second-best store is not taken instead: the leader would move twice.
fn target(round: &Round<'_>, region: &RegionView, speeds: &[u64], leaders: &[u32]) -> Option<At> {
    let fastest = round.candidates(region).map(|at| speeds[at as usize]).max()?;
    round
        .candidates(region)
        .filter(|&at| speeds[at as usize] == fastest && round.has_room_towards(at))
        .map(|at| Fitness { leaders: leaders[at as usize], store: at })
        .min()
        .map(|fitness| fitness.store)
}

/// Whether leading from a store of speed `to` instead of `from` gains enough to be worth a move.
pub(crate) fn is_worth_it(from: u64, to: u64, limits: &PlanLimits) -> bool {
    to > from && u128::from(to) * 100 >= u128::from(from) * (100 + u128::from(limits.gain_percent_min))
}
