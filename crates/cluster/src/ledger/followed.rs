//! The heat of reads that followers answered.
//!
//! Heat is a decaying average, like the heat of a leader (`previous_leader`). A store maintains it
//! while it has a peer of the region. When a store stops reporting it, because its peer was removed
//! or it restarted, the region keeps the last value and lets it decay.

use std::collections::BTreeMap;

use types::{BootNanos, RegionId, StoreId};

use crate::heartbeat::HEAT_WINDOW_S;

/// Heat below which a region is dropped, in operations per second.
const HEAT_MIN: f64 = 1e-3;
/// Interval between removals of cold regions, in nanoseconds.
const SWEEP_NANOS: u64 = 60_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    regions: BTreeMap<RegionId, Known>,
    /// The regions in each store's last report, ascending.
    told_by: BTreeMap<StoreId, Vec<RegionId>>,
    swept_at: BootNanos,
}

#[derive(Clone, Debug, Default)]
struct Known {
    told: BTreeMap<StoreId, Heat>,
    /// The decaying heat of stores that no longer report.
    gone: Heat,
}

#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    heat: f64,
    at: BootNanos,
}

impl Followed {
    /// Records a full report of a store, by region, ascending.
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

    /// Drops the store's heat of a region that it leads now. Its reports as the leader include that
    /// heat.
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
    /// Returns the heat at `now`, decayed as if no operation had arrived since the report.
    fn after(&self, now: BootNanos) -> f64 {
        self.heat * (-(now.saturating_sub(self.at) as f64) / 1e9 / HEAT_WINDOW_S).exp()
    }
}
