//! The heat of what followers answered, for as long as it counts.
//!
//! As a leader's (`former`) it is a decaying average that a store keeps while its peer is there. What a store does not
//! tell any more, because its peer has gone or it started anew, stays the region's and decays.

use std::collections::BTreeMap;

use types::{BootNanos, RegionId, StoreId};

use crate::heartbeat::HEAT_WINDOW_S;

/// Less counts as nothing, operations per second.
const HEAT_MIN: f64 = 1e-3;
/// And is forgotten so often.
const SWEEP_NANOS: u64 = 60_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    regions: BTreeMap<RegionId, Known>,
    /// What each store told last, ascending.
    told_by: BTreeMap<StoreId, Vec<RegionId>>,
    swept_at: BootNanos,
}

#[derive(Clone, Debug, Default)]
struct Known {
    told: BTreeMap<StoreId, Heat>,
    /// Of those who tell no more.
    gone: Heat,
}

#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    heat: f64,
    at: BootNanos,
}

impl Followed {
    /// All that a store tells, by region, ascending.
    pub fn told(&mut self, store: StoreId, heats: &[(RegionId, f64)], now: BootNanos) {
        let regions: Vec<RegionId> = heats.iter().map(|(region, _)| *region).collect();
        for region in self.told_by.remove(&store).unwrap_or_default() {
            let Some(known) = self.regions.get_mut(&region) else { continue };
            if regions.binary_search(&region).is_err() {
                if let Some(heat) = known.told.remove(&store) {
                    known.gone = Heat { heat: known.gone.after(now) + heat.after(now), at: now };
                }
            }
        }
        for &(region, heat) in heats {
            self.regions.entry(region).or_default().told.insert(store, Heat { heat, at: now });
        }
        if !regions.is_empty() {
            self.told_by.insert(store, regions);
        }
        if now.saturating_sub(self.swept_at) >= SWEEP_NANOS {
            self.swept_at = now;
            self.regions.retain(|_, known| !known.told.is_empty() || known.gone.after(now) > HEAT_MIN);
        }
    }

    /// The store tells of the region as its leader, and that includes what it had come to before.
    pub fn leads(&mut self, store: StoreId, region: RegionId) {
        if let Some(known) = self.regions.get_mut(&region) {
            known.told.remove(&store);
        }
    }

    pub fn heat(&self, region: RegionId, now: BootNanos) -> f64 {
        let of = |known: &Known| {
            known.told.values().map(|heat| heat.after(now)).sum::<f64>() + known.gone.after(now)
        };
        self.regions.get(&region).map_or(0.0, of)
    }

    pub fn forget(&mut self, region: RegionId) {
        self.regions.remove(&region);
    }
}

impl Heat {
    /// Nothing came to it since.
    fn after(&self, now: BootNanos) -> f64 {
        self.heat * (-(now.saturating_sub(self.at) as f64) / 1e9 / HEAT_WINDOW_S).exp()
    }
}
