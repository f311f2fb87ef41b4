//! The load of stores: the model of `adaptive`.
//!
//! The load of a store is the part of each second for which its work keeps the device busy. Every
//! peer of a region writes the data that clients write. Only the leader reads, and only reads that
//! miss RAM count. For a store s:
//!
//! ```text
//! busy(s) = Σ over its peers  bytes written per second / bytes that s writes per second
//!         + Σ over its leads  reads per second that miss RAM / such reads per second of s
//! ```

use crate::round::{Replica, Round, StoreIndex, NOWHERE};
use crate::{Operator, PlanLimits, Spread};

/// The work that a region causes, per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// Bytes written. If they are not measured, `writes` is used instead.
    pub write_bytes: f64,
    pub writes: f64,
    pub misses: f64,
}

pub(crate) struct Loads {
    demands: Vec<Demand>,
    /// For each store: seconds per byte written, and per operation.
    per_byte: Vec<f64>,
    per_op: Vec<f64>,
    busy: Vec<f64>,
}

/// Minimum speed of a store, as a part of the fastest store's speed.
const SPEED_FLOOR: f64 = 1e-6;

impl Loads {
    /// Computes the loads, with operators in flight and planned so far counted as done.
    pub fn new(round: &Round<'_>) -> Loads {
        let writes = round.stores().map(|at| round.data_speed(at));
        let ops = round.ratings.iter().map(|rating| rating.capability.ops_per_s);
        let mut loads = Loads {
            demands: round.view.regions.iter().map(demand).collect(),
            per_byte: per_unit(writes.collect()),
            per_op: per_unit(ops.collect()),
            busy: vec![0.0; round.view.stores.len()],
        };
        for region in 0..round.rows.len() as u32 {
            for replica in round.replicas(region).iter().filter(|replica| replica.store != NOWHERE) {
                loads.busy[replica.store as usize] += loads.peer_cost(region, replica.store);
            }
            let leader = round.rows[region as usize].leader;
            if leader != NOWHERE {
                loads.busy[leader as usize] += loads.lead_cost(region, leader);
            }
        }
        for operator in round.view.in_flight.iter().chain(&round.operators) {
            let Some(region) = crate::round::position(round.view, operator.region()) else { continue };
            let end = |store: Option<u64>| store.and_then(|id| round.at(id)).unwrap_or(NOWHERE);
            if !matches!(operator, Operator::TransferLeader { .. }) {
                loads.move_peer(round, region, end(operator.from()), end(operator.to()));
            }
        }
        loads
    }

    pub fn busy(&self, at: StoreIndex) -> f64 {
        self.busy[at as usize]
    }

    /// Returns the highest load of the stores that are up.
    pub fn peak(&self, round: &Round<'_>) -> f64 {
        round.stores().filter(|&at| round.is_up(at)).map(|at| self.busy(at)).fold(0.0, f64::max)
    }

    /// Returns true if the region holds data and is idle, and the speed of at least one of its
    /// stores is measured rather than configured. Idle means less than one operation within
    /// `repay_seconds`. Moving its leader gains nothing, and the measurement may be wrong. An empty
    /// region is placed for its future load, and a configured speed takes effect immediately.
    pub fn rests(&self, round: &Round<'_>, region: u32) -> bool {
        let Demand { write_bytes, writes, .. } = self.demands[region as usize];
        let view = round.region(region);
        let least = 1.0 / f64::from(round.limits.repay_seconds.max(1));
        let is_measured = |replica: &Replica| {
            let store = round.view.stores.get(replica.store as usize);
            store.is_some_and(|store| store.spread.kv_bytes_per_s != Spread::EXACT.kv_bytes_per_s)
        };
        let idle = [write_bytes, writes, view.read_rate].into_iter().all(|rate| rate < least);
        view.bytes > 0 && idle && round.replicas(region).iter().any(is_measured)
    }

    pub fn demand(&self, region: u32) -> Demand {
        self.demands[region as usize]
    }

    /// Returns the load that a peer of the region adds to a store.
    pub fn peer_cost(&self, region: u32, at: StoreIndex) -> f64 {
        let Demand { write_bytes, writes, .. } = self.demands[region as usize];
        if write_bytes > 0.0 {
            write_bytes * self.per_byte[at as usize]
        } else {
            writes * self.per_op[at as usize]
        }
    }

    /// Returns the load that leading the region adds to that of the peer.
    pub fn lead_cost(&self, region: u32, at: StoreIndex) -> f64 {
        self.demands[region as usize].misses * self.per_op[at as usize]
    }

    /// Returns the device seconds that a copy of this many bytes takes, for reading at `from` and
    /// writing at `to`.
    pub fn copy_cost(&self, bytes: u64, from: StoreIndex, to: StoreIndex) -> f64 {
        bytes as f64 * (self.per_byte[from as usize] + self.per_byte[to as usize])
    }

    pub fn seconds_per_byte(&self, at: StoreIndex) -> f64 {
        self.per_byte[at as usize]
    }

    pub fn move_leader(&mut self, region: u32, from: StoreIndex, to: StoreIndex) {
        self.busy[from as usize] -= self.lead_cost(region, from);
        self.busy[to as usize] += self.lead_cost(region, to);
    }

    /// Subtracts the read load of a leader whose peer leaves.
    pub fn shed(&mut self, from: StoreIndex, read: f64) {
        self.busy[from as usize] -= read;
    }

    /// Moves the load of a peer. Either store may be `NOWHERE`. The read load of a leader's peer is
    /// not moved; it is counted again when another peer leads.
    pub fn move_peer(&mut self, round: &Round<'_>, region: u32, from: StoreIndex, to: StoreIndex) {
        if from != NOWHERE && round.holds(region, from) {
            self.busy[from as usize] -= self.peer_cost(region, from);
        }
        if to != NOWHERE && !round.holds(region, to) {
            self.busy[to as usize] += self.peer_cost(region, to);
        }
    }
}

fn demand(region: &crate::RegionView) -> Demand {
    // Invalid rates count as no load.
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

/// Returns the load below which a store is not relieved.
pub(crate) fn at_ease(limits: &PlanLimits) -> f64 {
    f64::from(limits.busy_percent_min) / 100.0
}

/// Returns the margin: the smallest part of a store's load that counts as a difference.
pub(crate) fn gap(limits: &PlanLimits) -> f64 {
    f64::from(limits.gain_percent_min.clamp(1, 40)) / 100.0
}
