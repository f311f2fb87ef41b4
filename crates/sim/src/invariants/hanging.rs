//! A store whose log write does not return soon stops leading regions that others could lead. While
//! it leads them, no store answers these regions' commands.

use std::collections::BTreeMap;

use types::{BootNanos, RegionId, StoreId};

use super::Invariant;
use crate::clock::{MILLISECOND, SECOND};
use crate::observation::Observation;

/// Time after which a log write counts as hanging.
const HANGS: u64 = 2 * SECOND;
/// Time within which the leadership must end, by a transfer or by stepping down after a failed
/// transfer.
const LEADS_ON: u64 = 4 * SECOND;
/// Minimum time between two looks after which the process counts as paused.
const STOOD_STILL: u64 = SECOND + 500 * MILLISECOND;

#[derive(Default)]
struct Waiting {
    looked_at: BootNanos,
    led_since: BTreeMap<RegionId, BootNanos>,
}

#[derive(Default)]
pub struct Hanging {
    stores: BTreeMap<StoreId, Waiting>,
}

impl Invariant for Hanging {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let Observation::LogWaits { store, at, waited, led } = seen else { return Ok(()) };
        let waiting = self.stores.entry(*store).or_default();
        let stood_still = at.saturating_sub(waiting.looked_at) > STOOD_STILL || *at < waiting.looked_at;
        waiting.looked_at = *at;
        if *waited < HANGS || stood_still {
            waiting.led_since.clear();
            return Ok(());
        }
        waiting.led_since.retain(|region, _| led.contains(region));
        for region in *led {
            let since = *waiting.led_since.entry(*region).or_insert(*at);
            if at.saturating_sub(since) > LEADS_ON {
                let waited = waited / MILLISECOND;
                return Err(format!(
                    "store {store} leads region {region}, its log has waited for {waited} ms"
                ));
            }
        }
        Ok(())
    }
}
