//! Splits regions that are too large or too busy, and merges small neighbours.
//!
//! Splits and merges do not undo each other. Two neighbours are merged only if together they have
//! less than half of the split limit, in bytes and in operations. The halves of a split together
//! exceed the whole limit.

use std::cmp::Reverse;

use types::META_REGION;

use crate::round::Round;
use crate::{Operator, PlanLimits, Reason, RegionView};

/// The order in which splits begin.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Excess {
    /// The excess in hundredths of the limit.
    most: Reverse<u64>,
    region: u32,
}

pub(crate) fn plan(round: &mut Round<'_>) {
    let limits = round.limits;
    if limits.split_bytes == 0 && limits.split_ops == 0 {
        return;
    }
    let mut large: Vec<Excess> = Vec::new();
    for region in 0..round.rows.len() as u32 {
        let view = round.region(region);
        let hundredths = excess(view, limits);
        if hundredths > 100 && view.id != META_REGION && view.slots > 1 && round.can_change(region) {
            large.push(Excess { most: Reverse(hundredths), region });
        }
    }
    large.sort_unstable();
    large.truncate(round.room());
    for Excess { region, .. } in large {
        let view = round.region(region);
        let reason = if limits.split_bytes > 0 && view.bytes > limits.split_bytes {
            Reason::TooLarge { bytes: view.bytes, bytes_max: limits.split_bytes }
        } else {
            Reason::TooBusy { ops_per_s: view.rate(), ops_per_s_max: limits.split_ops }
        };
        let operator = Operator::Split { region: view.id, reason };
        round.begin(region, operator);
    }
}

/// Returns the larger of a region's size and load, in hundredths of its limit, rounded up.
fn excess(region: &RegionView, limits: &PlanLimits) -> u64 {
    let part =
        |of: u64, limit: u64| if limit == 0 { 0 } else { (u128::from(of) * 100).div_ceil(u128::from(limit)) };
    let most = part(region.bytes, limits.split_bytes).max(part(region.rate(), limits.split_ops));
    most.try_into().unwrap_or(u64::MAX)
}

/// Plans merges of neighbours on the same stores, the pair with the fewest bytes first.
pub(crate) fn plan_merges(round: &mut Round<'_>) {
    let limits = round.limits;
    let bytes_max = match limits.split_bytes {
        0 => limits.merge_bytes,
        split => limits.merge_bytes.min(split / 2),
    };
    let up = round.stores().filter(|&at| round.is_up(at)).count();
    let merging = operators_that_merge(round);
    let floor = limits.regions_per_store_min.saturating_mul(up).saturating_add(merging);
    let mut spare = round.totals.user_regions.saturating_sub(floor);
    if bytes_max == 0 || spare == 0 || round.room() == 0 {
        return;
    }
    let small = |region: u32| {
        let (row, view) = (&round.rows[region as usize], round.region(region));
        view.id != META_REGION
            && view.slots > 0
            && row.healthy
            && round.can_change(region)
            && view.bytes < bytes_max
    };
    let mut by_slot: Vec<u32> = (0..round.rows.len() as u32).filter(|&region| small(region)).collect();
    by_slot.sort_unstable_by_key(|&region| round.region(region).first_slot);
    let mut pairs: Vec<(u64, u32, u32)> = Vec::new();
    for pair in by_slot.windows(2) {
        let (one, other) = (round.region(pair[0]), round.region(pair[1]));
        let bytes = one.bytes.saturating_add(other.bytes);
        let calm = limits.split_ops == 0 || one.rate().saturating_add(other.rate()) < limits.split_ops / 2;
        let adjacent = u32::from(one.last_slot) + 1 == u32::from(other.first_slot);
        if adjacent && calm && bytes < bytes_max && same_stores(round, pair[0], pair[1]) {
            pairs.push((bytes, pair[0], pair[1]));
        }
    }
    pairs.sort_unstable();
    for (bytes, one, other) in pairs {
        if round.room() == 0 || spare == 0 {
            break;
        }
        if !round.rows[one as usize].free || !round.rows[other as usize].free {
            continue;
        }
        // The larger region remains.
        let swap = round.region(one).bytes < round.region(other).bytes;
        let (into, region) = if swap { (other, one) } else { (one, other) };
        let reason = Reason::Small { bytes, bytes_max };
        let operator =
            Operator::Merge { region: round.region(region).id, into: round.region(into).id, reason };
        round.begin(region, operator);
        round.rows[into as usize].free = false;
        spare -= 1;
    }
}

fn operators_that_merge(round: &Round<'_>) -> usize {
    let all = round.view.in_flight.iter().chain(&round.operators);
    all.filter(|operator| matches!(operator, Operator::Merge { .. })).count()
}

fn same_stores(round: &Round<'_>, one: u32, other: u32) -> bool {
    let (one, others) = (round.replicas(one), round.replicas(other));
    one.len() == others.len()
        && one.iter().all(|replica| others.iter().any(|other| other.store == replica.store))
}
