//! Finds the region that a store gives away, and its target.

use super::Allow;
use crate::fill::{Ordered, Room};
use crate::round::{Round, StoreIndex};

/// Maximum relative difference between quotients that are mathematically equal.
const ROUNDING: f64 = 1e-9;

/// A region that the source could give, with its rank and target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Offer {
    rank: Rank,
    pub region: u32,
    pub to: StoreIndex,
}

type Rank = [Ordered; 5];

/// The rank of a region, either after or before the rank of its target.
pub(super) enum Key {
    TargetFirst([Ordered; 2]),
    TargetLast([Ordered; 4]),
}

impl Key {
    fn rank(&self, place: u32) -> Rank {
        let place = Ordered::new(f64::from(place));
        match *self {
            Key::TargetFirst([first, second]) => [place, first, second, Ordered::LEAST, Ordered::LEAST],
            Key::TargetLast([first, second, third, fourth]) => [first, second, third, fourth, place],
        }
    }
}

/// A search for a region that `source` gives to one of `targets`.
pub(super) struct Search<'a, A> {
    pub round: &'a Round<'a>,
    pub allow: &'a A,
    pub targets: &'a Targets,
    pub source: StoreIndex,
}

impl<A: Allow> Search<'_, A> {
    /// Returns true if the region may leave the source, whatever its target.
    pub fn may_go(&self, region: u32) -> bool {
        let round = self.round;
        let healthy = round.rows[region as usize].healthy;
        healthy && round.can_change(region) && round.can_leave(region, self.source)
    }

    /// Returns the best offer, by key, among the regions that have a key and a target.
    pub fn best(&self, regions: &[u32], key: impl Fn(u32) -> Option<Key>) -> Option<Offer> {
        let Search { round, allow, targets, source } = *self;
        let level = round.level(source);
        let mut best: Option<Offer> = None;
        for &region in regions {
            let row = &round.rows[region as usize];
            if !self.may_go(region) {
                continue;
            }
            let Some(key) = key(region) else { continue };
            let (size, bytes) = (row.size, round.region(region).bytes);
            let after = round.level_without(source, size);
            let before = round.companions(region, source, source);
            let fits = |at: StoreIndex| {
                !round.holds(region, at)
                    && round.companions(region, source, at) <= before
                    && round.admits_from(source, at, bytes, targets.room)
                    && allow.allows(round, region, source, at)
            };
            // Targets ascend by level. Once one is too full, or worse than the best offer, all
            // later ones are.
            let worth = |place: u32, at: StoreIndex| {
                let low = round.level(at);
                round.is_gap(level, low)
                    && after * (1.0 + ROUNDING) >= round.level_with(at, size)
                    && best.is_none_or(|best| (key.rank(place), region) < (best.rank, best.region))
            };
            if let Some((place, to)) = targets.first_for(round, region, source, worth, fits) {
                best = Some(Offer { rank: key.rank(place), region, to });
            }
        }
        best
    }
}

/// Stores that may take a region, emptiest first.
pub(super) struct Targets {
    room: Room,
    stores: Vec<StoreIndex>,
    pub levels: Vec<f64>,
    /// Positions in `stores` by failure domain, if there are few domains.
    by_domain: Option<Vec<Vec<u32>>>,
}

/// Maximum number of targets tried per region and group, emptiest first. A region that fits on none
/// of them waits for a later round.
const TARGETS_TRIED: usize = 32;

/// Maximum number of failure domains for which stores are grouped. With more, a region conflicts
/// with few stores, and visiting all of them is faster.
const GROUPED_DOMAINS_MAX: usize = 16;

impl Targets {
    pub fn new(round: &Round<'_>, room: Room) -> Targets {
        let free =
            |at: &StoreIndex| round.is_up(*at) && round.has_data_room_at(*at) && round.is_open(*at, room);
        let mut ranked: Vec<(Ordered, StoreIndex)> =
            round.stores().filter(free).map(|at| (Ordered::new(round.level(at)), at)).collect();
        ranked.sort_unstable();
        let stores: Vec<StoreIndex> = ranked.into_iter().map(|(_, at)| at).collect();
        let levels = stores.iter().map(|&at| round.level(at)).collect();
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

    /// Returns the first target for which `worth` and `fits` hold. The search ends at the first
    /// target for which `worth` does not hold.
    fn first_for(
        &self,
        round: &Round<'_>,
        region: u32,
        source: StoreIndex,
        worth: impl Fn(u32, StoreIndex) -> bool,
        fits: impl Fn(StoreIndex) -> bool,
    ) -> Option<(u32, StoreIndex)> {
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
            // The first store may itself hold a peer of the region, which counts for the others in
            // the group.
            let itself = |at| u32::from(at != source && round.holds(region, at));
            at.is_some_and(|at| round.companions(region, source, at) + itself(at) <= before)
        });
        open.filter_map(|group| first(&mut group.iter().copied())).min()
    }
}
