//! Moves data from stores with a high level to stores with a low one: `even` with equal weights,
//! `alor` with weights by the stores' speeds (ALOR §3.2).
//!
//! A region of size S_M moves from A to B only if (S_A − S_M) / W_A ≥ (S_B + S_M) / W_B: afterwards
//! A is still no emptier than B, so no region moves back. Each such move lowers the sum of S² / W
//! over all stores, so planning ends. (The paper's Eq. 1 has > instead of ≥. Regions are often of
//! equal size, and equal levels after a move are then common. With > two stores would stay one
//! region further apart than necessary.) Small differences between levels are ignored.
//!
//! The fullest store that has a region to give is the first source, and the emptiest store that may
//! take the region is the target. A region is not moved while one of its peers is missing or being
//! replaced. A peer never moves to a failure domain that has more of the region's other peers.
//!
//! A store above its threshold sheds the coldest region that can move anywhere, to any store that
//! takes it. Regions that differ little in heat count as equally cold. Among these, the store sheds
//! the region whose writes wait least with the remaining peers ([`crate::wait`]), except under
//! `even`, which does not distinguish stores by speed. Otherwise, if many regions are equally cold
//! and the fast stores are full, chance would leave some of them only on slow stores. For the same
//! reason a store that is below its threshold again gives away no region whose writes would wait
//! longer than those of an equally cold region that cannot be moved yet.

use crate::fill::{Ordered, Room, WEIGHT_MIN};
use crate::round::{Round, StoreIndex, NOWHERE};
use crate::{Policy, Reason};
use search::{Key, Offer, Search, Targets};

mod search;

/// The order in which a store's regions are considered for a move away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Regions that the store does not lead come first. Among these, the least busy come first,
    /// because clients notice their moves least.
    Calm,
    /// The region with the least heat per byte (ALOR §3.2: cold data moves).
    Cold,
    /// For a store that sheds: a region about as cold as the coldest, chosen before its target.
    /// Among several, the region whose other peers are the fastest.
    Shed,
}

/// Divisor of a shedding store's excess. Moving a region with fewer bytes than the quotient does
/// not help the store.
const HELPLESS_PART: u64 = 256;

/// Further conditions that a policy puts on moves.
pub(crate) trait Allow {
    /// Returns true if this store may give away any region.
    fn gives(&self, _round: &Round<'_>, _from: StoreIndex) -> bool {
        true
    }

    fn allows(&self, round: &Round<'_>, region: u32, from: StoreIndex, to: StoreIndex) -> bool;

    /// Notes that a move has been planned.
    fn begun(&mut self, _round: &Round<'_>, _region: u32, _from: StoreIndex, _to: StoreIndex) {}
}

pub(crate) struct All;

impl Allow for All {
    fn allows(&self, _: &Round<'_>, _: u32, _: StoreIndex, _: StoreIndex) -> bool {
        true
    }
}

pub(crate) fn plan(round: &mut Round<'_>, order: Order, allow: &mut impl Allow) {
    if !round.has_data_room() {
        return;
    }
    let mut held: Option<Held> = None;
    let mut exhausted = vec![false; round.view.stores.len()];
    while round.has_data_room() {
        let targets = Targets::new(round, Room::Usual);
        let Some(source) = next_source(round, allow, &targets, &exhausted) else { break };
        let held = held.get_or_insert_with(|| Held::new(round)).by(source);
        let mut offer = best_offer(round, order, allow, &targets, held, source);
        if offer.is_none() && round.is_full(source) {
            let targets = Targets::new(round, Room::Band);
            offer = best_offer(round, order, allow, &targets, held, source);
        }
        match offer {
            Some(offer) => {
                let reason = reason(round, offer.region, source, offer.to);
                round.begin_move(offer.region, source, offer.to, reason);
                allow.begun(round, offer.region, source, offer.to);
            }
            None => exhausted[source as usize] = true,
        }
    }
}

/// Returns the fullest store that exceeds the emptiest target by enough. Among equals, returns the
/// store with the lowest id.
fn next_source(
    round: &Round<'_>,
    allow: &impl Allow,
    targets: &Targets,
    exhausted: &[bool],
) -> Option<StoreIndex> {
    let lowest = targets.levels.iter().copied().fold(f64::INFINITY, f64::min);
    // If there is room only within the band, only shedding stores give regions away.
    let worth = |at: StoreIndex| {
        round.is_gap(round.level(at), lowest) || (round.is_full(at) && lowest == f64::INFINITY)
    };
    round
        .stores()
        .filter(|&at| round.is_up(at) && !exhausted[at as usize] && round.has_data_room_at(at))
        .filter(|&at| allow.gives(round, at) && worth(at))
        .min_by_key(|&at| (std::cmp::Reverse(Ordered::new(round.level(at))), at))
}

fn best_offer(
    round: &Round<'_>,
    order: Order,
    allow: &impl Allow,
    targets: &Targets,
    regions: &[u32],
    source: StoreIndex,
) -> Option<Offer> {
    let search = Search { round, allow, targets, source };
    let leads =
        |region: u32| Ordered::new(if round.rows[region as usize].leader == source { 1.0 } else { 0.0 });
    let order = if round.is_full(source) { Order::Shed } else { order };
    match order {
        Order::Calm => search.best(regions, |region| {
            let rate = Ordered::new(round.region(region).rate() as f64);
            Some(Key::TargetFirst([leads(region), rate]))
        }),
        Order::Cold => search.best(regions, |region| {
            let density = Ordered::new(round.region(region).density());
            Some(Key::TargetFirst([density, leads(region)]))
        }),
        Order::Shed => best_to_shed(&search, regions),
    }
}

fn best_to_shed(search: &Search<'_, impl Allow>, regions: &[u32]) -> Option<Offer> {
    let Search { round, source, .. } = *search;
    let excess = excess(round, source);
    let density = |region: u32| round.region(region).density();
    let helps = |region: u32| round.region(region).bytes >= excess / HELPLESS_PART;
    let helpless = |region: u32| Ordered::new(if helps(region) { 0.0 } else { 1.0 });
    let coldest = search.best(regions, |region| {
        let rank = [helpless(region), Ordered::new(density(region)), Ordered::LEAST, Ordered::LEAST];
        (round.region(region).bytes > 0).then_some(Key::TargetLast(rank))
    })?;
    let bound = density(coldest.region) * (1.0 + f64::from(round.limits.heat_gap_percent) / 100.0);
    let is_cold = |region: &u32| round.region(*region).bytes > 0 && density(*region) <= bound;
    let cold: Vec<u32> = regions.iter().copied().filter(is_cold).collect();
    // `even` does not distinguish stores by speed.
    let wait_after = |region: u32, to: StoreIndex| match round.policy {
        Policy::Even => 0.0,
        _ => round.wait_after(region, source, to),
    };
    let wait = |region: u32| Ordered::new(wait_after(region, NOWHERE));
    let leads = |region: u32| round.rows[region as usize].leader == source;
    let offer = search.best(&cold, |region| {
        let leads = Ordered::new(if leads(region) { 1.0 } else { 0.0 });
        Some(Key::TargetLast([helpless(region), wait(region), Ordered::new(density(region)), leads]))
    })?;
    let then = Ordered::new(wait_after(offer.region, offer.to));
    let is_better = |region: &u32| search.may_go(*region) && helps(*region) && wait(*region) < then;
    let holds_off = round.has_time(source) && cold.iter().any(is_better);
    (!holds_off).then_some(offer)
}

/// Returns the bytes that a store must shed.
fn excess(round: &Round<'_>, source: StoreIndex) -> u64 {
    let Some(percent) = round.sheds_to(source) else { return 0 };
    let capacity = u128::from(round.view.stores[source as usize].capacity_bytes);
    let left = u64::try_from(capacity * u128::from(percent) / 100).unwrap_or(u64::MAX);
    round.totals.used[source as usize].saturating_sub(left)
}

fn reason(round: &Round<'_>, region: u32, from: StoreIndex, to: StoreIndex) -> Reason {
    let view = round.region(region);
    let totals = &round.totals;
    let ppm = |at: StoreIndex| (round.weight(at) / WEIGHT_MIN).round() as u32;
    if round.is_full(from) {
        Reason::Full {
            used_bytes: totals.used[from as usize],
            capacity_bytes: round.view.stores[from as usize].capacity_bytes,
            heat_per_gb: (view.density() * 1e9) as u64,
        }
    } else {
        Reason::DataLevels {
            region_bytes: view.bytes,
            from_bytes: totals.data[from as usize],
            from_weight_ppm: ppm(from),
            to_bytes: totals.data[to as usize],
            to_weight_ppm: ppm(to),
        }
    }
}

/// The regions of every store, in one array.
pub(crate) struct Held {
    starts: Vec<u32>,
    regions: Vec<u32>,
}

impl Held {
    /// Collects the healthy user regions.
    pub fn new(round: &Round<'_>) -> Held {
        let stores = round.view.stores.len();
        let all = || {
            (0..round.rows.len() as u32)
                .filter(|&at| round.rows[at as usize].healthy && round.region(at).id != types::META_REGION)
        };
        let mut starts = vec![0u32; stores + 1];
        for region in all() {
            for replica in round.replicas(region) {
                starts[replica.store as usize + 1] += 1;
            }
        }
        for store in 0..stores {
            starts[store + 1] += starts[store];
        }
        let mut next = starts.clone();
        let mut regions = vec![0; starts[stores] as usize];
        for region in all() {
            for replica in round.replicas(region) {
                let place = &mut next[replica.store as usize];
                regions[*place as usize] = region;
                *place += 1;
            }
        }
        Held { starts, regions }
    }

    pub fn by(&self, store: StoreIndex) -> &[u32] {
        &self.regions[self.starts[store as usize] as usize..self.starts[store as usize + 1] as usize]
    }
}
