//! Keys whose time is over, and elements whose collection is gone, leave by replicated deletes: the
//! leader looks for them and proposes bounded steps.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::{RegionId, Slot};

use crate::clock;
use crate::region::inbox::{Maintenance, Work};
use crate::region::shared::RegionShared;
use crate::store::Store;

const PERIOD: Duration = Duration::from_millis(100);
/// Seeks of one look at one region.
const EXPIRY_PROBES: usize = 2000;
const SWEEP_PROBES: usize = 200;
/// Slots of one proposal.
const SLOTS_MAX: usize = 64;

/// Runs until the task is dropped.
pub async fn run(store: Arc<Store>) {
    let mut cursors: std::collections::HashMap<RegionId, (Slot, Slot)> = Default::default();
    let mut period = tokio::time::interval(PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        let led: Vec<Arc<RegionShared>> =
            store.user_regions().filter(|region| region.leader() == Some(store.id)).cloned().collect();
        for region in led {
            if store.stopping.load(Ordering::Relaxed) {
                return;
            }
            let cursor = cursors.get(&region.id()).copied().unwrap_or((0, 0));
            let (looker, looked_at) = (store.clone(), region.clone());
            let looked = tokio::task::spawn_blocking(move || look(&looker, &looked_at, cursor)).await;
            match looked {
                Ok(Ok((found, next))) => {
                    cursors.insert(region.id(), next);
                    if !found.expire.is_empty() || !found.sweep.is_empty() {
                        let deadline = Instant::now() + store.config.request_timeout;
                        // What is not carried out now is found again.
                        let _ = store.submit(&region, Work::Maintenance(found), deadline).await;
                    }
                }
                Ok(Err(error)) => store.fatal(&format!("rows cannot be read: {error}")),
                Err(_) => return,
            }
        }
    }
}

fn look(
    store: &Store,
    region: &RegionShared,
    (expiry_from, sweep_from): (Slot, Slot),
) -> storage::Result<(Maintenance, (Slot, Slot))> {
    let slots = region.descriptor.slots.unwrap_or(types::SlotRange::ALL);
    let mut found = Maintenance::default();
    let view = store.engine.flash().view();
    let mut next = (0, 0);
    if store.engine.has_expiring_keys(region.id()) {
        let now = region.read_time(clock::unix_millis());
        let due = command::find_due(&view, slots, expiry_from, now, EXPIRY_PROBES)?;
        next.0 = cut(&mut found.expire, due);
    }
    let garbage = command::find_garbage(&view, slots, sweep_from, SWEEP_PROBES)?;
    next.1 = cut(&mut found.sweep, garbage);
    Ok((found, next))
}

/// Takes at most `SLOTS_MAX` slots of what was found, and says where the next look begins.
fn cut(slots: &mut Vec<Slot>, found: command::Found) -> Slot {
    *slots = found.slots;
    if slots.len() > SLOTS_MAX {
        slots.truncate(SLOTS_MAX);
        return slots[SLOTS_MAX - 1];
    }
    found.next.unwrap_or(0)
}
