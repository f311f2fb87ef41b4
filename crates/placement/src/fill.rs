//! The amount of data that a store should hold: weights, the threshold above which it sheds data,
//! and the reserve that no move fills (ALOR §3.2).
//!
//! The *level* of a store is the data it holds divided by its weight. Data flows from high levels
//! to low ones.

use crate::round::{Replica, Round, StoreIndex, NOWHERE};
use crate::wait::Waits;
use crate::{PlanLimits, Policy, StoreState, StoreView};

/// The weight of a store above its threshold, and of one that has no weight (ALOR §3.2).
pub(crate) const WEIGHT_MIN: f64 = 1e-6;

pub(crate) struct Fill {
    /// By store, relative to the most capable one, whose weight is 1.
    weights: Vec<f64>,
    /// For each store, true if it is above its threshold. If all stores are above it, true if the
    /// store is within the reserve.
    full: Vec<bool>,
    /// True if every store that is up is above its threshold.
    crowded: bool,
    /// The mean level of the stores that are up. Differences between levels are compared to it.
    mean: f64,
    /// Set if the policy distinguishes stores by speed.
    waits: Option<Waits>,
}

impl Fill {
    pub fn new(round: &Round<'_>, policy: Policy) -> Fill {
        let mut weights: Vec<f64> = round.stores().map(|at| own_weight(round, at, policy)).collect();
        let up = |at: &StoreIndex| round.is_up(*at);
        let most = round.stores().filter(up).map(|at| weights[at as usize]).fold(0.0, f64::max);
        for weight in &mut weights {
            // If no store has a weight, all are equal.
            *weight = if most > 0.0 { (*weight / most).clamp(WEIGHT_MIN, 1.0) } else { 1.0 };
        }
        let waits = (policy != Policy::Even).then(|| Waits::new(round));
        let mut fill = Fill { full: vec![false; weights.len()], weights, crowded: false, mean: 0.0, waits };
        fill.refresh(round);
        fill
    }

    /// Determines again which stores are full.
    pub fn refresh(&mut self, round: &Round<'_>) {
        for at in round.stores() {
            let store = &round.view.stores[at as usize];
            let used = round.totals.used[at as usize];
            self.full[at as usize] = sheds_at(used, store, round.limits);
        }
        // If every store is full there is nowhere to shed to. Weights are then normal again, and
        // writes go on up to the reserve. A store within the reserve still sheds: writes must not
        // fail for lack of space while another store has some.
        self.crowded = round.stores().filter(|&at| round.is_up(at)).all(|at| self.full[at as usize]);
        if self.crowded {
            for at in round.stores() {
                self.full[at as usize] = !stays_below(round, at, 0, round.limits.reserve_percent);
            }
        }
        let up = || round.stores().filter(|&at| round.is_up(at));
        let data: f64 = up().map(|at| round.totals.data[at as usize] as f64).sum();
        self.mean = data / up().map(|at| self.weight(at)).sum::<f64>().max(WEIGHT_MIN);
    }

    pub fn is_full(&self, at: StoreIndex) -> bool {
        self.full[at as usize]
    }

    /// Returns true if a shedding store is below the limit that made it shed and has room for
    /// writes. It may then take its time.
    pub fn has_time(&self, round: &Round<'_>, at: StoreIndex) -> bool {
        let PlanLimits { full_percent, reserve_percent, .. } = *round.limits;
        let percent = if self.crowded { reserve_percent } else { full_percent };
        stays_below(round, at, 0, percent) && !round.is_out_of_room(at)
    }

    /// Returns the percentage of its capacity down to which a store sheds, or `None` if it does not
    /// shed.
    pub fn sheds_to(&self, at: StoreIndex, limits: &PlanLimits) -> Option<u32> {
        let percent = if self.crowded { limits.reserve_percent } else { limits.full_percent_low };
        self.is_full(at).then_some(percent)
    }

    /// Returns the seconds per byte that the region's writes would wait after its peer on `from`
    /// has moved to `to`. If `to` is `NOWHERE`, only the remaining peers count. Returns 0 if the
    /// policy does not distinguish stores by speed.
    pub fn wait_after(&self, round: &Round<'_>, region: u32, from: StoreIndex, to: StoreIndex) -> f64 {
        self.waits.as_ref().map_or(0.0, |waits| waits.best(round, region, from, to))
    }

    pub fn weight(&self, at: StoreIndex) -> f64 {
        if self.full[at as usize] {
            WEIGHT_MIN
        } else {
            self.weights[at as usize]
        }
    }

    pub fn level(&self, round: &Round<'_>, at: StoreIndex) -> f64 {
        round.totals.data[at as usize] as f64 / self.weight(at)
    }

    /// Returns the level after the store has received a region of this size.
    pub fn level_with(&self, round: &Round<'_>, at: StoreIndex, size: u64) -> f64 {
        round.totals.data[at as usize].saturating_add(size) as f64 / self.weight(at)
    }

    pub fn level_without(&self, round: &Round<'_>, at: StoreIndex, size: u64) -> f64 {
        round.totals.data[at as usize].saturating_sub(size) as f64 / self.weight(at)
    }

    /// Returns true if two levels differ by enough to move data.
    pub fn is_gap(&self, round: &Round<'_>, high: f64, low: f64) -> bool {
        high - low > self.mean * f64::from(round.limits.data_gap_percent_min) / 100.0
    }

    /// Returns true if the store may take data at all: neither its capacity nor its device is
    /// exhausted. The device may be filled by something other than data.
    fn takes_any(&self, round: &Round<'_>, at: StoreIndex) -> bool {
        !self.is_full(at) && !round.is_out_of_room(at)
    }

    /// Returns true if a store may take a region of this many bytes that has no need to come. It
    /// must stay well below the lower end of the band, so that a store takes back nothing that it
    /// has shed.
    pub fn admits(&self, round: &Round<'_>, at: StoreIndex, bytes: u64) -> bool {
        let percent = if self.crowded { round.limits.reserve_percent } else { round.limits.fill_percent };
        self.takes_any(round, at) && stays_below(round, at, bytes, percent)
    }

    /// Returns true if a region of `comes` bytes may come to the store in exchange for one of
    /// `goes` bytes. While it holds both it must not begin to shed. Afterwards it must be no fuller
    /// than before, or, if it does not shed, still in the lower half of the band.
    pub fn admits_for_another(&self, round: &Round<'_>, at: StoreIndex, comes: u64, goes: u64) -> bool {
        let PlanLimits { full_percent, full_percent_low, .. } = *round.limits;
        let more = comes.saturating_sub(goes);
        let middle = full_percent_low.midpoint(full_percent);
        !round.is_out_of_room(at)
            && stays_below(round, at, comes, full_percent)
            && (more == 0 || (!self.is_full(at) && stays_below(round, at, more, middle)))
    }

    /// Returns true if a region may move from one store to another to even out levels or because it
    /// is shed. `Room::Band` is for regions that must be shed and fit nowhere below the band. In
    /// that case, and if all stores are full, the target must not end up fuller than the source.
    /// Each such move lowers the sum of squared fills, so they end.
    pub fn admits_from(
        &self,
        round: &Round<'_>,
        from: StoreIndex,
        at: StoreIndex,
        bytes: u64,
        room: Room,
    ) -> bool {
        let percent = match room {
            _ if self.crowded => round.limits.reserve_percent,
            Room::Usual => return self.admits(round, at, bytes),
            Room::Band => round.limits.full_percent,
        };
        self.takes_any(round, at)
            && stays_below(round, at, bytes, percent)
            && stays_emptier(round, from, at, bytes)
    }

    /// Returns true if the store may take any region at all.
    pub fn is_open(&self, round: &Round<'_>, at: StoreIndex, room: Room) -> bool {
        match room {
            Room::Usual => self.admits(round, at, 0),
            Room::Band => self.takes_any(round, at),
        }
    }

    /// Returns true if a region that must go somewhere may come here: the store stays below the
    /// reserve limit.
    pub fn admits_at_need(&self, round: &Round<'_>, at: StoreIndex, bytes: u64) -> bool {
        !round.is_out_of_room(at) && stays_below(round, at, bytes, round.limits.reserve_percent)
    }

    /// Returns the store for a new peer of the region. The new peer replaces the one on `leaving`,
    /// or none if that is `NOWHERE`. Prefers the fewest companions in the failure domain, then a
    /// store below the fill limit, then the lowest level.
    pub fn place(&self, round: &Round<'_>, region: u32, leaving: StoreIndex) -> Option<StoreIndex> {
        let bytes = round.region(region).bytes;
        let size = round.cells[region as usize].size;
        round
            .stores()
            .filter(|&at| {
                round.is_up(at)
                    && round.has_data_room_at(at)
                    && !round.holds(region, at)
                    && self.admits_at_need(round, at, bytes)
            })
            .map(|at| Place {
                companions: round.companions(region, leaving, at),
                crowded: !self.admits(round, at, bytes),
                level: Ordered::new(self.level_with(round, at, size)),
                store: at,
            })
            .min()
            .map(|place| place.store)
    }
}

/// The limit up to which stores may be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Well below the band.
    Usual,
    /// Up to the threshold.
    Band,
}

/// The order among targets.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    companions: u32,
    crowded: bool,
    level: Ordered,
    store: StoreIndex,
}

/// A number from 0 up with a total order. NaN ranks last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ordered(u64);

impl Ordered {
    pub const LEAST: Ordered = Ordered(0);

    pub fn new(value: f64) -> Ordered {
        match value {
            nan if nan.is_nan() => Ordered(u64::MAX),
            // The bit patterns of non-negative numbers are in numeric order.
            value => Ordered(value.max(0.0).to_bits()),
        }
    }

    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl Round<'_> {
    /// Returns the number of the region's peers in the failure domain of `at`, not counting peers
    /// on `at`, on `leaving` and on lost stores.
    pub fn companions(&self, region: u32, leaving: StoreIndex, at: StoreIndex) -> u32 {
        if !self.domains.matter() {
            return 0;
        }
        let stays = |seat: &&Replica| {
            seat.store != leaving && seat.store != NOWHERE && self.state(seat.store) != StoreState::Lost
        };
        let domain = self.domains.of(at);
        let shares = |seat: &&Replica| seat.store != at && self.domains.of(seat.store) == domain;
        self.seats(region).iter().filter(stays).filter(shares).count() as u32
    }
}

fn own_weight(round: &Round<'_>, at: StoreIndex, policy: Policy) -> f64 {
    match policy {
        Policy::Even | Policy::LeaderOnly => 1.0,
        Policy::Alor | Policy::Adaptive => {
            let weight = round.data_speed(at);
            // NaN counts as no weight.
            if weight > 0.0 {
                weight.min(f64::MAX)
            } else {
                0.0
            }
        }
    }
}

fn stays_below(round: &Round<'_>, at: StoreIndex, bytes: u64, percent: u32) -> bool {
    let capacity = round.view.stores[at as usize].capacity_bytes;
    let after = round.totals.used[at as usize].saturating_add(bytes);
    capacity == 0 || u128::from(after) * 100 <= u128::from(capacity) * u128::from(percent)
}

/// Returns true if `to`, after taking this many bytes, holds no larger part of its capacity than
/// `from` holds after giving them.
fn stays_emptier(round: &Round<'_>, from: StoreIndex, to: StoreIndex, bytes: u64) -> bool {
    let capacity = |at: StoreIndex| u128::from(round.view.stores[at as usize].capacity_bytes);
    let used = |at: StoreIndex| round.totals.used[at as usize];
    let given = u128::from(used(from).saturating_sub(bytes));
    let taken = u128::from(used(to).saturating_add(bytes));
    capacity(to) == 0 || (capacity(from) > 0 && taken * capacity(from) <= given * capacity(to))
}

fn sheds_at(used: u64, store: &StoreView, limits: &PlanLimits) -> bool {
    let percent = if store.shedding { limits.full_percent_low } else { limits.full_percent };
    store.capacity_bytes > 0
        && u128::from(used) * 100 > u128::from(store.capacity_bytes) * u128::from(percent)
}

/// Returns true if a store should shed data: it is above its threshold, or it was and is not yet
/// below the lower end of the band. The caller that makes views asks before each round and stores
/// the answer in [`StoreView::shedding`].
pub fn sheds(store: &StoreView, limits: &PlanLimits) -> bool {
    sheds_at(store.used_bytes, store, limits)
}
