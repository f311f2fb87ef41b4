//! Data from where its level is high to where it is low: `even` with equal weights, `alor` with those of
//! the stores' speeds (ALOR §3.2).
//!
//! A region of size S_M moves from A to B only when (S_A − S_M) / W_A ≥ (S_B + S_M) / W_B: A is still no
//! emptier than B afterwards, so nothing moves back. Each such move lowers the sum of S² / W over all stores,
//! so planning ends. (The paper's Eq. 1 has > for ≥. Regions are often of one size, and then levels that
//! come out equal are the rule: > would leave two stores a region further apart than they need be.) Levels
//! that differ by little are left alone.
//!
//! The fullest store that has a region to give goes first, to the emptiest that may take it. Of a store above
//! its threshold the coldest region goes that can go anywhere, wherever that is. A region of which a peer is being made anew, or is missing, is not touched, and none comes to share its failure
//! domain with more of its peers than before.

use crate::fill::{Fill, Ordered, Room, WEIGHT_MIN};
use crate::round::{At, Round};
use crate::{Operator, Reason};

/// Quotients that are equal on paper differ by less than this part.
const ROUNDING: f64 = 1e-9;

/// Which of a store's regions goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// One that the store does not lead, and of those the least busy: clients notice least.
    Calm,
    /// The least heat per byte (ALOR §3.2: cold data moves).
    Cold,
    /// The same, and before it is asked where to: the store sheds.
    Shed,
}

/// Of what a store has to shed, a region must be so small a part to count as no help.
const HELPLESS_PART: u64 = 256;

/// Whether a move is to be had, beside what this module asks of it.
pub(crate) trait Allow {
    /// Whether this store may give anything.
    fn gives(&self, _fill: &Fill, _from: At) -> bool {
        true
    }

    fn allows(&self, round: &Round<'_>, region: u32, from: At, to: At) -> bool;

    /// It was asked for.
    fn begun(&mut self, _round: &Round<'_>, _region: u32, _from: At, _to: At) {}
}

pub(crate) struct All;

impl Allow for All {
    fn allows(&self, _: &Round<'_>, _: u32, _: At, _: At) -> bool {
        true
    }
}

/// The order among the regions that a store could give.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    rank: Rank,
    region: u32,
    to: At,
}

type Rank = [Ordered; 4];

pub(crate) fn plan(
    round: &mut Round<'_>,
    fill: &mut Fill,
    order: Order,
    allow: &mut impl Allow,
    operators: &mut Vec<Operator>,
) {
    if !round.has_data_room() {
        return;
    }
    let mut held: Option<Held> = None;
    let mut exhausted = vec![false; round.view.stores.len()];
    while round.has_data_room() {
        let targets = Targets::new(round, fill, Room::Usual);
        let Some(source) = next_source(round, fill, allow, &targets, &exhausted) else { break };
        let held = held.get_or_insert_with(|| Held::new(round)).by(source);
        let mut offer = best_offer(round, fill, order, allow, &targets, held, source);
        if offer.is_none() && fill.is_full(source) {
            let targets = Targets::new(round, fill, Room::Band);
            offer = best_offer(round, fill, order, allow, &targets, held, source);
        }
        match offer {
            Some(offer) => {
                let operator = move_peer(round, fill, offer.region, source, offer.to);
                round.begin(offer.region, &operator);
                allow.begun(round, offer.region, source, offer.to);
                fill.refresh(round);
                operators.push(operator);
            }
            None => exhausted[source as usize] = true,
        }
    }
}

/// The fullest store that is fuller than the emptiest by enough. Of equals the lowest id.
fn next_source(
    round: &Round<'_>,
    fill: &Fill,
    allow: &impl Allow,
    targets: &Targets,
    exhausted: &[bool],
) -> Option<At> {
    let lowest = targets.levels.iter().copied().fold(f64::INFINITY, f64::min);
    // With room nowhere but within the band, only those that shed give.
    let worth = |at: At| {
        fill.is_gap(round, fill.level(round, at), lowest) || (fill.is_full(at) && lowest == f64::INFINITY)
    };
    round
        .stores()
        .filter(|&at| round.is_up(at) && !exhausted[at as usize] && round.has_data_room_at(at))
        .filter(|&at| allow.gives(fill, at) && worth(at))
        .min_by_key(|&at| (std::cmp::Reverse(Ordered::new(fill.level(round, at))), at))
}

fn best_offer(
    round: &Round<'_>,
    fill: &Fill,
    order: Order,
    allow: &impl Allow,
    targets: &Targets,
    regions: &[u32],
    source: At,
) -> Option<Offer> {
    let level = fill.level(round, source);
    let order = if fill.is_full(source) { Order::Shed } else { order };
    let excess = excess(round, fill, source);
    let mut best: Option<Offer> = None;
    for &region in regions {
        let cell = &round.cells[region as usize];
        if !cell.healthy || !round.can_change(region) || !round.can_leave(region, source) {
            continue;
        }
        let (size, view) = (cell.size, round.region(region));
        if order == Order::Shed && view.bytes == 0 {
            continue;
        }
        let after = fill.level_without(round, source, size);
        let leads = Ordered::new(if cell.leader == source { 1.0 } else { 0.0 });
        let density = Ordered::new(view.density());
        let helpless = Ordered::new(if view.bytes < excess / HELPLESS_PART { 1.0 } else { 0.0 });
        let rank = |place: u32| -> Rank {
            let place = Ordered::new(f64::from(place));
            match order {
                Order::Calm => [place, leads, Ordered::new(view.rate() as f64), Ordered::LEAST],
                Order::Cold => [place, density, leads, Ordered::LEAST],
                Order::Shed => [helpless, density, leads, place],
            }
        };
        let before = round.companions(region, source, source);
        let fits = |at: At| {
            !round.holds(region, at)
                && round.companions(region, source, at) <= before
                && fill.admits_from(round, source, at, view.bytes, targets.room)
                && allow.allows(round, region, source, at)
        };
        // Targets ascend by level. Once one is too full, or worse than the best so far, so are the rest.
        let worth = |place: u32, at: At| {
            let low = fill.level(round, at);
            fill.is_gap(round, level, low)
                && after * (1.0 + ROUNDING) >= fill.level_with(round, at, size)
                && best.is_none_or(|best| (rank(place), region) < (best.rank, best.region))
        };
        if let Some((place, to)) = targets.first_for(round, region, source, worth, fits) {
            best = Some(Offer { rank: rank(place), region, to });
        }
    }
    best
}

/// What a store has to shed.
fn excess(round: &Round<'_>, fill: &Fill, source: At) -> u64 {
    let Some(percent) = fill.sheds_to(source, round.limits) else { return 0 };
    let capacity = u128::from(round.view.stores[source as usize].capacity_bytes);
    let left = u64::try_from(capacity * u128::from(percent) / 100).unwrap_or(u64::MAX);
    round.totals.used[source as usize].saturating_sub(left)
}

fn move_peer(round: &Round<'_>, fill: &Fill, region: u32, from: At, to: At) -> Operator {
    let view = round.region(region);
    let totals = &round.totals;
    let ppm = |at: At| (fill.weight(at) / WEIGHT_MIN).round() as u32;
    let reason = if fill.is_full(from) {
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
    };
    Operator::MovePeer { region: view.id, from: round.id(from), to: round.id(to), reason }
}

/// The regions of every store, in one array.
pub(crate) struct Held {
    starts: Vec<u32>,
    regions: Vec<u32>,
}

impl Held {
    /// Healthy user regions.
    pub fn new(round: &Round<'_>) -> Held {
        let stores = round.view.stores.len();
        let all = || {
            (0..round.cells.len() as u32)
                .filter(|&at| round.cells[at as usize].healthy && round.region(at).id != types::META_REGION)
        };
        let mut starts = vec![0u32; stores + 1];
        for region in all() {
            for seat in round.seats(region) {
                starts[seat.store as usize + 1] += 1;
            }
        }
        for store in 0..stores {
            starts[store + 1] += starts[store];
        }
        let mut next = starts.clone();
        let mut regions = vec![0; starts[stores] as usize];
        for region in all() {
            for seat in round.seats(region) {
                let place = &mut next[seat.store as usize];
                regions[*place as usize] = region;
                *place += 1;
            }
        }
        Held { starts, regions }
    }

    pub fn by(&self, store: At) -> &[u32] {
        &self.regions[self.starts[store as usize] as usize..self.starts[store as usize + 1] as usize]
    }
}

/// Stores that may take a region, the emptiest first.
struct Targets {
    room: Room,
    stores: Vec<At>,
    levels: Vec<f64>,
    /// Positions in `stores` by failure domain, where there are few.
    by_domain: Option<Vec<Vec<u32>>>,
}

/// What does not fit on so many of the emptiest stores waits until others are.
const TARGETS_TRIED: usize = 32;

/// With more domains than this a region conflicts with few stores, and going through all is quicker.
const GROUPED_DOMAINS_MAX: usize = 16;

impl Targets {
    fn new(round: &Round<'_>, fill: &Fill, room: Room) -> Targets {
        let free =
            |at: &At| round.is_up(*at) && round.has_data_room_at(*at) && fill.is_open(round, *at, room);
        let mut ranked: Vec<(Ordered, At)> =
            round.stores().filter(free).map(|at| (Ordered::new(fill.level(round, at)), at)).collect();
        ranked.sort_unstable();
        let stores: Vec<At> = ranked.into_iter().map(|(_, at)| at).collect();
        let levels = stores.iter().map(|&at| fill.level(round, at)).collect();
        let grouped = round.domains.matter() && round.domains.count() <= GROUPED_DOMAINS_MAX;
        let by_domain = grouped.then(|| {
            let mut groups = vec![Vec::new(); round.domains.count()];
            for (place, &at) in (0..).zip(&stores) {
                groups[round.domains.of(at).expect("a store of the view") as usize].push(place);
            }
            groups
        });
        Targets { room, stores, levels, by_domain }
    }

    /// The first that is `worth` it and `fits`. What is not worth it ends the search.
    fn first_for(
        &self,
        round: &Round<'_>,
        region: u32,
        source: At,
        worth: impl Fn(u32, At) -> bool,
        fits: impl Fn(At) -> bool,
    ) -> Option<(u32, At)> {
        let first = |places: &mut dyn Iterator<Item = u32>| {
            places
                .map(|place| (place, self.stores[place as usize]))
                .take_while(|&(place, at)| worth(place, at))
                .take(TARGETS_TRIED)
                .find(|&(_, at)| fits(at))
        };
        let Some(groups) = &self.by_domain else { return first(&mut (0..self.stores.len() as u32)) };
        let before = round.companions(region, source, source);
        let open = groups.iter().filter(|group| {
            let at = group.first().map(|&place| self.stores[place as usize]);
            // The first may itself be a companion of those behind it.
            let itself = |at| u32::from(at != source && round.holds(region, at));
            at.is_some_and(|at| round.companions(region, source, at) + itself(at) <= before)
        });
        open.filter_map(|group| first(&mut group.iter().copied())).min()
    }
}
