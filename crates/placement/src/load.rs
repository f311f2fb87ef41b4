//! How busy stores are, by what is asked of them: the model of `adaptive`.
//!
//! A store is busy for the part of each second that its work takes. Every peer of a region writes what the
//! region's clients write; the leader alone reads, and of that what RAM answers does not count. So, for a store s,
//!
//! ```text
//! busy(s) = Σ over its peers  bytes written per second / bytes that s writes per second
//!         + Σ over its leads  reads per second that miss RAM / such reads per second of s
//! ```

use crate::round::{At, Round, Seat, NOWHERE};
use crate::wait::Waits;
use crate::{Operator, PlanLimits, Spread};

/// What a region asks of stores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// Per second; where it is not measured, `writes` says what there is to do.
    pub write_bytes: f64,
    pub writes: f64,
    pub misses: f64,
}

pub(crate) struct Loads {
    demands: Vec<Demand>,
    /// Seconds per byte written, and per operation.
    per_byte: Vec<f64>,
    per_op: Vec<f64>,
    pub waits: Waits,
    busy: Vec<f64>,
}

/// Of the most capable store's speed: what a store counts as that claims none.
const SPEED_FLOOR: f64 = 1e-6;

impl Loads {
    /// With what is in flight, and planned so far, done.
    pub fn new(round: &Round<'_>, planned: &[Operator]) -> Loads {
        let writes = round.stores().map(|at| round.data_speed(at));
        let ops = round.ratings.iter().map(|rating| rating.capability.ops_per_s);
        let mut loads = Loads {
            demands: round.view.regions.iter().map(demand).collect(),
            per_byte: per_unit(writes.collect()),
            per_op: per_unit(ops.collect()),
            waits: Waits::new(round),
            busy: vec![0.0; round.view.stores.len()],
        };
        for region in 0..round.cells.len() as u32 {
            for seat in round.seats(region).iter().filter(|seat| seat.store != NOWHERE) {
                loads.busy[seat.store as usize] += loads.peer_cost(region, seat.store);
            }
            let leader = round.cells[region as usize].leader;
            if leader != NOWHERE {
                loads.busy[leader as usize] += loads.lead_cost(region, leader);
            }
        }
        for operator in round.view.in_flight.iter().chain(planned) {
            let Some(region) = crate::round::position(round.view, operator.region()) else { continue };
            let end = |store: Option<u64>| store.and_then(|id| round.at(id)).unwrap_or(NOWHERE);
            if !matches!(operator, Operator::TransferLeader { .. }) {
                loads.move_peer(round, region, end(operator.from()), end(operator.to()));
            }
        }
        loads
    }

    pub fn busy(&self, at: At) -> f64 {
        self.busy[at as usize]
    }

    /// The highest of the stores that are up.
    pub fn peak(&self, round: &Round<'_>) -> f64 {
        round.stores().filter(|&at| round.is_up(at)).map(|at| self.busy(at)).fold(0.0, f64::max)
    }

    /// Whether the region holds data, nothing is asked of it (fewer operations than one in the time in which a move is
    /// to repay), and its stores are known by measurements alone. To lead it from elsewhere gains nobody anything, and
    /// the measurement may be wrong. An empty region is placed for what is to come, and what an operator told of stores
    /// is acted on at once.
    pub fn rests(&self, round: &Round<'_>, region: u32) -> bool {
        let Demand { write_bytes, writes, .. } = self.demands[region as usize];
        let view = round.region(region);
        let least = 1.0 / f64::from(round.limits.repay_seconds.max(1));
        let is_measured = |seat: &Seat| {
            let store = round.view.stores.get(seat.store as usize);
            store.is_some_and(|store| store.spread.kv_bytes_per_s != Spread::EXACT.kv_bytes_per_s)
        };
        let idle = [write_bytes, writes, view.read_rate].into_iter().all(|rate| rate < least);
        view.bytes > 0 && idle && round.seats(region).iter().any(is_measured)
    }

    pub fn demand(&self, region: u32) -> Demand {
        self.demands[region as usize]
    }

    /// What a peer of the region adds to a store.
    pub fn peer_cost(&self, region: u32, at: At) -> f64 {
        let Demand { write_bytes, writes, .. } = self.demands[region as usize];
        if write_bytes > 0.0 {
            write_bytes * self.per_byte[at as usize]
        } else {
            writes * self.per_op[at as usize]
        }
    }

    /// What leading the region adds beside that.
    pub fn lead_cost(&self, region: u32, at: At) -> f64 {
        self.demands[region as usize].misses * self.per_op[at as usize]
    }

    /// Seconds of devices' time that a copy of so many bytes takes: read here, written there.
    pub fn copy_cost(&self, bytes: u64, from: At, to: At) -> f64 {
        bytes as f64 * (self.per_byte[from as usize] + self.per_byte[to as usize])
    }

    pub fn seconds_per_byte(&self, at: At) -> f64 {
        self.per_byte[at as usize]
    }

    pub fn move_leader(&mut self, region: u32, from: At, to: At) {
        self.busy[from as usize] -= self.lead_cost(region, from);
        self.busy[to as usize] += self.lead_cost(region, to);
    }

    /// A leader's peer goes, and what it read with it.
    pub fn shed(&mut self, from: At, read: f64) {
        self.busy[from as usize] -= read;
    }

    /// Either end may be `NOWHERE`. What a leader that goes read is not counted until another leads.
    pub fn move_peer(&mut self, round: &Round<'_>, region: u32, from: At, to: At) {
        if from != NOWHERE && round.holds(region, from) {
            self.busy[from as usize] -= self.peer_cost(region, from);
        }
        if to != NOWHERE && !round.holds(region, to) {
            self.busy[to as usize] += self.peer_cost(region, to);
        }
    }
}

fn demand(region: &crate::RegionView) -> Demand {
    // What makes no sense is no load.
    let sane = |rate: f64| if rate.is_finite() { rate.max(0.0) } else { 0.0 };
    Demand {
        write_bytes: sane(region.write_bytes_rate),
        writes: sane(region.write_rate),
        misses: sane(region.miss_rate),
    }
}

fn per_unit(speeds: Vec<f64>) -> Vec<f64> {
    let sane = |speed: f64| if speed.is_finite() { speed.max(0.0) } else { 0.0 };
    let most = speeds.iter().copied().map(sane).fold(0.0, f64::max);
    let floor = if most > 0.0 { most * SPEED_FLOOR } else { 1.0 };
    speeds.into_iter().map(|speed| 1.0 / sane(speed).max(floor)).collect()
}

/// The least part of a store's load that counts as a difference.
pub(crate) fn gap(limits: &PlanLimits) -> f64 {
    f64::from(limits.gain_percent_min.clamp(1, 40)) / 100.0
}
