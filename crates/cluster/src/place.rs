//! The hosts and devices of stores, and the shares of stores on the same device.
//!
//! Stores whose directories are on one disk measured that disk one after the other, each without
//! load from the others. So they measured the same disk and pool their estimates, but none of them
//! has the disk for itself.
//!
//! ```text
//! capability = median of the sharers' measurements · their lowest correction / number of sharers
//! sync       = median of the sharers' measurements / their lowest correction
//! spread     = median of the sharers' spreads, and at least the factor between the combined value
//!              and the larger one of the two estimates in the middle
//! ```
//!
//! A store that has not measured yet takes the estimate of the others. A store with a configured
//! capability keeps it, and still counts as a sharer. A sharer counts until it is lost or leaves
//! the cluster, so a restart changes nothing.

use placement::{Capability, Spread};
use types::{BootNanos, StoreId};

use crate::ledger::{Heard, Liveness};
use crate::turn::SITTING_MAX_NANOS;
use crate::{Ledger, StoreHeartbeat, Turn, TurnState};

/// The sync time, in nanoseconds, below which a store's writes do not wait for syncs.
const SYNC_NS_MIN: u64 = 2;

/// Fingerprints of a store's host and of the device that holds its directory; 0 if unknown. A
/// device has a different fingerprint on every host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub host: u64,
    pub device: u64,
}

impl Place {
    pub fn shares_host_with(&self, other: &Place) -> bool {
        self.host != 0 && self.host == other.host
    }

    pub fn shares_device_with(&self, other: &Place) -> bool {
        self.device != 0 && self.device == other.device && self.shares_host_with(other)
    }
}

/// A store's share of its device and host.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The store's share of the device's capability, after the correction.
    pub capability: Capability,
    pub spread: Spread,
    /// The time in nanoseconds that a write waits for a sync, after the correction; 0 if it is not
    /// known.
    pub sync_ns: u64,
    pub correction: f64,
    /// The other stores on the device and on the host, ascending. Those on the host include those
    /// on the device.
    pub shares_device_with: Vec<StoreId>,
    pub shares_host_with: Vec<StoreId>,
}

/// The present activity of the other stores on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Neighbours {
    /// Number of stores on the device, this one included.
    pub sharers: usize,
    /// True if another store is measuring the device.
    pub sitting: bool,
    /// Commands per second that the other stores answer.
    pub load_ops_per_s: f64,
}

impl Ledger {
    /// Returns a store's share of its device; `None` until the store was heard.
    pub fn standing(&self, store: StoreId, now: BootNanos) -> Option<Standing> {
        let own = &self.heard(store)?.heartbeat;
        let others = |shares: fn(&Place, &Place) -> bool| {
            self.others(own, now, shares).map(|heard| heard.heartbeat.store).collect::<Vec<_>>()
        };
        let mut standing = Standing {
            capability: own.capability,
            spread: own.spread,
            sync_ns: own.sync_ns,
            correction: own.correction,
            shares_device_with: others(Place::shares_device_with),
            shares_host_with: others(Place::shares_host_with),
        };
        if !standing.shares_device_with.is_empty() && !own.told {
            self.divide(own, now, &mut standing);
        }
        Some(standing)
    }

    /// Returns the activity of the other stores on the store's device, as far as they were heard.
    pub fn neighbours(&self, store: StoreId, now: BootNanos) -> Neighbours {
        let Some(own) = self.heard(store) else { return Neighbours { sharers: 1, ..Neighbours::default() } };
        let others = self.others(&own.heartbeat, now, Place::shares_device_with);
        others.fold(Neighbours { sharers: 1, ..Neighbours::default() }, |so_far, heard| {
            let is_up = self.is_up(heard.heartbeat.store, now);
            Neighbours {
                sharers: so_far.sharers + 1,
                sitting: so_far.sitting || is_up && is_sitting(&heard.heartbeat.turn),
                load_ops_per_s: so_far.load_ops_per_s
                    + if is_up { heard.heartbeat.load_ops_per_s } else { 0.0 },
            }
        })
    }

    fn others<'a>(
        &'a self,
        own: &'a StoreHeartbeat,
        now: BootNanos,
        shares: fn(&Place, &Place) -> bool,
    ) -> impl Iterator<Item = &'a Heard> {
        self.all_heard().filter(move |heard| {
            let other = &heard.heartbeat;
            other.store != own.store
                && shares(&own.place, &other.place)
                && self.liveness(other.store, now) != Liveness::Lost
        })
    }

    fn divide(&self, own: &StoreHeartbeat, now: BootNanos, standing: &mut Standing) {
        let sharers: Vec<&StoreHeartbeat> = std::iter::once(own)
            .chain(self.others(own, now, Place::shares_device_with).map(|heard| &heard.heartbeat))
            .collect();
        let parts = sharers.len() as f64;
        let lowest = sharers.iter().map(|sharer| correction(sharer)).fold(1.0, f64::min);
        let pooled = |of: fn(&StoreHeartbeat) -> (f64, f64)| {
            let measured = sharers.iter().filter(|sharer| !sharer.told);
            pool(measured.map(|sharer| of(sharer)).filter(|(_, spread)| *spread >= 1.0).collect())
        };
        if let Some((value, spread)) = pooled(|sharer| {
            (sharer.capability.kv_bytes_per_s / correction(sharer), sharer.spread.kv_bytes_per_s)
        }) {
            standing.capability.kv_bytes_per_s = value * lowest / parts;
            standing.spread.kv_bytes_per_s = spread;
            standing.correction = lowest;
        }
        if let Some((value, spread)) =
            pooled(|sharer| (sharer.capability.ops_per_s / correction(sharer), sharer.spread.ops_per_s))
        {
            standing.capability.ops_per_s = value * lowest / parts;
            standing.spread.ops_per_s = spread;
        }
        let waits = own.sync_ns >= SYNC_NS_MIN || own.sync_ns == 0;
        let synced = pooled(|sharer| {
            let spread = if sharer.sync_ns >= SYNC_NS_MIN { sharer.spread.sync } else { 0.0 };
            (sharer.sync_ns as f64 * correction(sharer), spread)
        });
        if let Some((value, spread)) = synced.filter(|_| waits) {
            standing.sync_ns = (value / lowest) as u64;
            standing.spread.sync = spread;
        }
    }
}

fn correction(of: &StoreHeartbeat) -> f64 {
    if of.correction > 0.0 {
        of.correction.min(1.0)
    } else {
        1.0
    }
}

/// Combines estimates of one quantity, each a value and its spread. Returns `None` if there are
/// none.
fn pool(mut estimates: Vec<(f64, f64)>) -> Option<(f64, f64)> {
    estimates.retain(|(value, _)| *value > 0.0);
    let last = estimates.len().checked_sub(1)?;
    let mut spreads: Vec<f64> = estimates.iter().map(|(_, spread)| *spread).collect();
    spreads.sort_unstable_by(f64::total_cmp);
    let mut values: Vec<f64> = estimates.iter().map(|(value, _)| *value).collect();
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values[last / 2], values[last.div_ceil(2)]);
    let value = if low == high { low } else { (low * high).sqrt() };
    // Two estimates that disagree are both uncertain, so the spread covers their distance.
    let spread = spreads[last.div_ceil(2)].max(high / value);
    Some((value, spread))
}

/// Returns true if the store is measuring now. A store that measures for too long has a hanging
/// device, and no other store waits for it.
fn is_sitting(turn: &Turn) -> bool {
    turn.state == TurnState::Sits && turn.millis <= SITTING_MAX_NANOS / 1_000_000
}

#[cfg(test)]
mod tests;
