//! The amount of data that a store should hold: weights, the threshold above which it sheds data,
//! and the reserve that no move fills (ALOR §3.2).
//!
//! The *level* of a store is the data it holds divided by its weight. Data moves from high levels
//! to low ones.

use crate::round::{Replica, Round, StoreIndex, NOWHERE};
use crate::{PlanLimits, Policy, StoreState, StoreView};

/// The weight of a store above its threshold, and of one that has no weight (ALOR §3.2).
pub(crate) const WEIGHT_MIN: f64 = 1e-6;

/// The distribution of data in a round.
#[derive(Default)]
pub(crate) struct Fill {
    /// The weight of each store, relative to the most capable one, whose weight is 1.
    weights: Vec<f64>,
    /// For each store, true if it is above its threshold. If all stores are above it, true if the
    /// store is within the reserve.
    full: Vec<bool>,
    /// True if every store that is up is above its threshold.
    crowded: bool,
    /// The mean level of the stores that are up. Differences between levels are compared to it.
    mean: f64,
}

impl Fill {
    /// Computes the weights. [`Round::refresh_fill`] computes the rest.
    pub fn new(round: &Round<'_>) -> Fill {
        let mut weights: Vec<f64> = round.stores().map(|at| own_weight(round, at)).collect();
        let up = |at: &StoreIndex| round.is_up(*at);
        let most = round.stores().filter(up).map(|at| weights[at as usize]).fold(0.0, f64::max);
        for weight in &mut weights {
            // If no store has a weight, all are equal.
            *weight = if most > 0.0 { (*weight / most).clamp(WEIGHT_MIN, 1.0) } else { 1.0 };
        }
        Fill { full: vec![false; weights.len()], weights, ..Fill::default() }
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

/// A non-negative number with a total order. NaN ranks last.
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
    /// Recomputes which stores are full.
    pub fn refresh_fill(&mut self) {
        for at in self.stores() {
            let store = &self.view.stores[at as usize];
            let used = self.totals.used[at as usize];
            self.fill.full[at as usize] = sheds_at(used, store, self.limits);
        }
        // If every store is full there is no target to shed to. Weights are then normal again, and
        // writes continue up to the reserve. A store within the reserve still sheds: writes must
        // not fail for lack of space while another store has some.
        self.fill.crowded = self.stores().filter(|&at| self.is_up(at)).all(|at| self.is_full(at));
        if self.fill.crowded {
            for at in self.stores() {
                self.fill.full[at as usize] = !self.stays_below(at, 0, self.limits.reserve_percent);
            }
        }
        let up = || self.stores().filter(|&at| self.is_up(at));
        let data: f64 = up().map(|at| self.totals.data[at as usize] as f64).sum();
        self.fill.mean = data / up().map(|at| self.weight(at)).sum::<f64>().max(WEIGHT_MIN);
    }

    pub fn is_full(&self, at: StoreIndex) -> bool {
        self.fill.full[at as usize]
    }

    /// Returns true if a shedding store is below the limit that made it shed and has room for
    /// writes. Such a store may shed without haste.
    pub fn has_time(&self, at: StoreIndex) -> bool {
        let PlanLimits { full_percent, reserve_percent, .. } = *self.limits;
        let percent = if self.fill.crowded { reserve_percent } else { full_percent };
        self.stays_below(at, 0, percent) && !self.is_out_of_room(at)
    }

    /// Returns the percentage of its capacity down to which a store sheds, or `None` if it does not
    /// shed.
    pub fn sheds_to(&self, at: StoreIndex) -> Option<u32> {
        let PlanLimits { full_percent_low, reserve_percent, .. } = *self.limits;
        let percent = if self.fill.crowded { reserve_percent } else { full_percent_low };
        self.is_full(at).then_some(percent)
    }

    pub fn weight(&self, at: StoreIndex) -> f64 {
        if self.fill.full[at as usize] {
            WEIGHT_MIN
        } else {
            self.fill.weights[at as usize]
        }
    }

    pub fn level(&self, at: StoreIndex) -> f64 {
        self.totals.data[at as usize] as f64 / self.weight(at)
    }

    /// Returns the level after the store has received a region of this size.
    pub fn level_with(&self, at: StoreIndex, size: u64) -> f64 {
        self.totals.data[at as usize].saturating_add(size) as f64 / self.weight(at)
    }

    pub fn level_without(&self, at: StoreIndex, size: u64) -> f64 {
        self.totals.data[at as usize].saturating_sub(size) as f64 / self.weight(at)
    }

    /// Returns true if two levels differ by enough to move data.
    pub fn is_gap(&self, high: f64, low: f64) -> bool {
        high - low > self.fill.mean * f64::from(self.limits.data_gap_percent_min) / 100.0
    }

    /// Returns true if the store may take data at all: neither its capacity nor its device is
    /// exhausted. Other data than the store's may also fill the device.
    fn takes_any(&self, at: StoreIndex) -> bool {
        !self.is_full(at) && !self.is_out_of_room(at)
    }

    /// Returns true if a store may take a region of this many bytes that need not move. It must
    /// stay well below the lower end of the band, so that a store takes back no region that it has
    /// shed.
    pub fn admits(&self, at: StoreIndex, bytes: u64) -> bool {
        let percent = if self.fill.crowded { self.limits.reserve_percent } else { self.limits.fill_percent };
        self.takes_any(at) && self.stays_below(at, bytes, percent)
    }

    /// Returns true if a region of `comes` bytes may move to the store in exchange for one of
    /// `goes` bytes. While it holds both it must not begin to shed. Afterwards it must be no fuller
    /// than before, or, if it does not shed, still in the lower half of the band.
    pub fn admits_for_another(&self, at: StoreIndex, comes: u64, goes: u64) -> bool {
        let PlanLimits { full_percent, full_percent_low, .. } = *self.limits;
        let more = comes.saturating_sub(goes);
        let middle = full_percent_low.midpoint(full_percent);
        !self.is_out_of_room(at)
            && self.stays_below(at, comes, full_percent)
            && (more == 0 || (!self.is_full(at) && self.stays_below(at, more, middle)))
    }

    /// Returns true if a region may move from one store to another to even out levels or because it
    /// is shed. `Room::Band` is for regions that must be shed and fit on no store below the band.
    /// In that case, and if all stores are full, the target must not end up fuller than the source.
    /// Each such move lowers the sum of squared fills, so these moves end.
    pub fn admits_from(&self, from: StoreIndex, at: StoreIndex, bytes: u64, room: Room) -> bool {
        let percent = match room {
            _ if self.fill.crowded => self.limits.reserve_percent,
            Room::Usual => return self.admits(at, bytes),
            Room::Band => self.limits.full_percent,
        };
        self.takes_any(at) && self.stays_below(at, bytes, percent) && self.stays_emptier(from, at, bytes)
    }

    /// Returns true if the store may take any region at all.
    pub fn is_open(&self, at: StoreIndex, room: Room) -> bool {
        match room {
            Room::Usual => self.admits(at, 0),
            Room::Band => self.takes_any(at),
        }
    }

    /// Returns true if a region that must move to some store may move to this one: the store stays
    /// below the reserve limit.
    pub fn admits_at_need(&self, at: StoreIndex, bytes: u64) -> bool {
        !self.is_out_of_room(at) && self.stays_below(at, bytes, self.limits.reserve_percent)
    }

    /// Returns the store for a new peer of the region. The new peer replaces the one on `leaving`,
    /// or none if that is `NOWHERE`. The ranking is: fewest companions in the failure domain, then
    /// below the fill limit, then the lowest level.
    pub fn place(&self, region: u32, leaving: StoreIndex) -> Option<StoreIndex> {
        let bytes = self.region(region).bytes;
        let size = self.rows[region as usize].size;
        self.stores()
            .filter(|&at| {
                self.is_up(at)
                    && self.has_repair_room_at(at)
                    && !self.holds(region, at)
                    && self.admits_at_need(at, bytes)
            })
            .map(|at| Place {
                companions: self.companions(region, leaving, at),
                crowded: !self.admits(at, bytes),
                level: Ordered::new(self.level_with(at, size)),
                store: at,
            })
            .min()
            .map(|place| place.store)
    }

    /// Returns the number of the region's peers in the failure domain of `at`, not counting peers
    /// on `at`, on `leaving` and on lost stores.
    pub fn companions(&self, region: u32, leaving: StoreIndex, at: StoreIndex) -> u32 {
        if !self.domains.matter() {
            return 0;
        }
        let stays = |replica: &&Replica| {
            replica.store != leaving
                && replica.store != NOWHERE
                && self.state(replica.store) != StoreState::Lost
        };
        let domain = self.domains.of(at);
        let shares = |replica: &&Replica| replica.store != at && self.domains.of(replica.store) == domain;
        self.replicas(region).iter().filter(stays).filter(shares).count() as u32
    }

    fn stays_below(&self, at: StoreIndex, bytes: u64, percent: u32) -> bool {
        let capacity = self.view.stores[at as usize].capacity_bytes;
        let after = self.totals.used[at as usize].saturating_add(bytes);
        capacity == 0 || u128::from(after) * 100 <= u128::from(capacity) * u128::from(percent)
    }

    /// Returns true if `to`, after taking this many bytes, holds no larger part of its capacity
    /// than `from` holds after giving them.
    fn stays_emptier(&self, from: StoreIndex, to: StoreIndex, bytes: u64) -> bool {
        let capacity = |at: StoreIndex| u128::from(self.view.stores[at as usize].capacity_bytes);
        let used = |at: StoreIndex| self.totals.used[at as usize];
        let given = u128::from(used(from).saturating_sub(bytes));
        let taken = u128::from(used(to).saturating_add(bytes));
        capacity(to) == 0 || (capacity(from) > 0 && taken * capacity(from) <= given * capacity(to))
    }
}

fn own_weight(round: &Round<'_>, at: StoreIndex) -> f64 {
    match round.policy {
        Policy::Even | Policy::LeaderOnly => 1.0,
        Policy::Alor | Policy::Adaptive => {
            let weight = round.data_speed(at);
            // NaN counts as a missing weight.
            if weight > 0.0 {
                weight.min(f64::MAX)
            } else {
                0.0
            }
        }
    }
}

fn sheds_at(used: u64, store: &StoreView, limits: &PlanLimits) -> bool {
    let percent = if store.shedding { limits.full_percent_low } else { limits.full_percent };
    store.capacity_bytes > 0
        && u128::from(used) * 100 > u128::from(store.capacity_bytes) * u128::from(percent)
}

/// Returns true if a store should shed data: it is above its threshold, or it was and is not yet
/// below the lower end of the band. The caller that creates views calls this before each round and
/// stores the result in [`StoreView::shedding`].
pub fn sheds(store: &StoreView, limits: &PlanLimits) -> bool {
    sheds_at(store.used_bytes, store, limits)
}
