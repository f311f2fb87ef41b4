//! Deletes expired keys, and elements of deleted collections, by replicated commands: the leader
//! finds them and proposes bounded steps.
//!
//! Looking at a slot costs a seek, which may read a block from the device. So a slot is searched
//! only when its rows may be due ([`SlotTimes`](crate::slot_times::SlotTimes)), and the seeks of
//! one round are bounded for all regions together.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{AbortHandle, JoinSet};
use types::{RegionId, Slot, UnixMillis};

use crate::config::Config;
use crate::ends::Ends;
use crate::engine::{Engine, Upkeep};
use crate::proposals::Proposals;
use crate::regions::{RegionShared, Regions};
use crate::slot_times::SlotTimes;
use crate::wall_clock::WallClock;
use node::{Maintenance, Work};

const PERIOD: Duration = Duration::from_millis(100);
/// Maximum seeks of one round, for all regions together.
const EXPIRY_PROBES: usize = 2000;
const SWEEP_PROBES: usize = 200;
/// Maximum time without a search. The wall clock decides what is due, and it may jump.
const REST_MAX: Duration = Duration::from_secs(2);
/// Maximum number of slots in one proposal.
const SLOTS_MAX: usize = 64;

/// The parts of the store that the search for expired keys needs.
#[derive(Clone)]
pub struct Expirer {
    pub config: Arc<Config>,
    pub regions: Arc<Regions>,
    pub engine: Arc<Engine>,
    pub wall: Arc<WallClock>,
    pub proposals: Proposals,
    pub ends: Arc<Ends>,
}

/// Runs until the task is dropped.
pub async fn run(expirer: Expirer) {
    let mut keeper = Keeper::default();
    // Each region has at most one proposal, and no proposal delays another region's.
    let mut proposals = JoinSet::new();
    let mut seen = None;
    let mut period = tokio::time::interval(PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !expirer.ends.is_stopping() {
        period.tick().await;
        while proposals.try_join_next().is_some() {}
        // If no region was active since the last round, a search would find nothing new, so it is
        // skipped for all regions.
        let (now, activity) = (Instant::now(), expirer.regions.activity());
        if seen == Some(activity)
            && keeper.proposing.is_empty()
            && keeper.rests_until.is_some_and(|at| now < at)
        {
            continue;
        }
        seen = Some(activity);
        let looks = keeper.begin(&expirer, now, expirer.wall.millis());
        if looks.is_empty() {
            continue;
        }
        // The result of this round and the time of the next are not known yet.
        seen = None;
        let engine = expirer.engine.clone();
        let looked = tokio::task::spawn_blocking(move || look_at_all(&engine, looks)).await;
        let looked = match looked {
            Ok(Ok(looked)) => looked,
            Ok(Err(error)) => return expirer.ends.rows_failed("rows cannot be read", &error),
            // The runtime is shutting down, and this task with it.
            Err(ended) if ended.is_cancelled() => return,
            Err(_) => expirer.ends.fatal("the search for expired keys died"),
        };
        for (region, found) in keeper.end(looked) {
            let handle = proposals.spawn(propose(expirer.clone(), region.clone(), found));
            keeper.proposing.insert(region.id(), handle);
        }
    }
}

async fn propose(expirer: Expirer, region: Arc<RegionShared>, found: Maintenance) {
    let deadline = Instant::now() + expirer.config.request_timeout;
    // If a proposal is not executed, a later round finds its rows again.
    let _ = expirer.proposals.submit(&region, Work::Maintenance(found), deadline).await;
}

/// The searches of the regions that this store leads.
#[derive(Default)]
struct Keeper {
    searches: BTreeMap<RegionId, Searches>,
    /// The time until which nothing becomes due unless a region becomes active, as of the last
    /// round.
    rests_until: Option<Instant>,
    proposing: BTreeMap<RegionId, AbortHandle>,
}

/// The slots at which a region's next search begins.
#[derive(Default)]
struct Searches {
    expiry: Slot,
    sweep: Slot,
}

/// The slots of a region to search.
struct Look {
    region: Arc<RegionShared>,
    now_ms: UnixMillis,
    expiry: Vec<Slot>,
    sweep: Vec<Slot>,
}

/// The findings of one kind, and the slot at which the next search begins.
#[derive(Debug, PartialEq)]
struct Looked {
    slots: Vec<Slot>,
    next: Slot,
}

struct LookedAt {
    region: Arc<RegionShared>,
    expiry: Looked,
    sweep: Looked,
}

impl Keeper {
    /// Returns the searches of this round.
    fn begin(&mut self, expirer: &Expirer, now: Instant, clock_ms: UnixMillis) -> Vec<Look> {
        let led: BTreeMap<RegionId, Arc<RegionShared>> = expirer
            .regions
            .of_users()
            .into_iter()
            .filter(|region| expirer.regions.leads(region))
            .map(|region| (region.id(), region))
            .collect();
        self.searches.retain(|region, _| led.contains_key(region));
        self.proposing.retain(|_, proposal| !proposal.is_finished());
        let Upkeep { expiry, sweep, is_expiry_active } = expirer.engine.upkeep();
        let is_expiry_active = is_expiry_active.load(Ordering::Relaxed);
        let mut looks = Vec::new();
        let mut rests_until = now + REST_MAX;
        for (id, region) in led {
            if self.proposing.contains_key(&id) {
                continue;
            }
            let from = self.searches.entry(id).or_default();
            let (slots, now_ms) = (region.slots_or_all(), region.read_time(clock_ms));
            let mut look = Look { region, now_ms, expiry: Vec::new(), sweep: Vec::new() };
            if is_expiry_active && expirer.engine.has_expiring_keys(id) {
                look.expiry = expiry.due(slots, from.expiry, now_ms, EXPIRY_PROBES);
                let rest = expiry.earliest(slots).saturating_sub(now_ms);
                rests_until = rests_until.min(now + Duration::from_millis(rest).min(REST_MAX));
            }
            look.sweep = sweep.due(slots, from.sweep, now_ms, SWEEP_PROBES);
            if !look.expiry.is_empty() || !look.sweep.is_empty() {
                looks.push(look);
            }
        }
        self.rests_until = Some(rests_until);
        share(EXPIRY_PROBES, looks.iter_mut().map(|look| &mut look.expiry));
        share(SWEEP_PROBES, looks.iter_mut().map(|look| &mut look.sweep));
        looks
    }

    /// Returns the proposals for the findings of the round.
    fn end(&mut self, looked: Vec<LookedAt>) -> Vec<(Arc<RegionShared>, Maintenance)> {
        let mut proposals = Vec::new();
        for LookedAt { region, expiry, sweep } in looked {
            self.searches.insert(region.id(), Searches { expiry: expiry.next, sweep: sweep.next });
            if !expiry.slots.is_empty() || !sweep.slots.is_empty() {
                proposals.push((region, Maintenance { expire: expiry.slots, sweep: sweep.slots }));
            }
        }
        proposals
    }
}

/// Divides a round's seeks among its searches. The remaining slots are searched in the next round.
fn share<'a>(probes: usize, looks: impl Iterator<Item = &'a mut Vec<Slot>>) {
    let looks: Vec<_> = looks.filter(|slots| !slots.is_empty()).collect();
    let each = (probes / looks.len().max(1)).max(1);
    looks.into_iter().for_each(|slots| slots.truncate(each));
}

fn look_at_all(engine: &Engine, looks: Vec<Look>) -> storage::Result<Vec<LookedAt>> {
    let Upkeep { expiry, sweep, .. } = engine.upkeep();
    let taken: Vec<_> = looks
        .into_iter()
        .map(|look| {
            let (due, garbage) = (take(expiry, look.expiry), take(sweep, look.sweep));
            (look.region, look.now_ms, due, garbage)
        })
        .collect();
    // The times are taken before the rows are read. So the time of a row that is written during the
    // search is noted again.
    let rows = engine.rows();
    let due = |slot| command::earliest_due(rows, slot);
    let garbage = |slot| command::garbage_since(rows, slot);
    let look = |(region, now_ms, of_expiry, of_sweep)| {
        let expiry = look_at(expiry, of_expiry, now_ms, due)?;
        let sweep = look_at(sweep, of_sweep, now_ms, garbage)?;
        Ok(LookedAt { region, expiry, sweep })
    };
    taken.into_iter().map(look).collect()
}

fn take(times: &SlotTimes, slots: Vec<Slot>) -> Vec<(Slot, UnixMillis)> {
    slots.into_iter().map(|slot| (slot, times.take(slot))).collect()
}

/// Searches until a proposal is full.
fn look_at(
    times: &SlotTimes,
    taken: Vec<(Slot, UnixMillis)>,
    now_ms: UnixMillis,
    earliest: impl Fn(Slot) -> storage::Result<Option<UnixMillis>>,
) -> storage::Result<Looked> {
    let mut looked = Looked { slots: Vec::new(), next: taken.first().map_or(0, |(slot, _)| *slot) };
    for (slot, was) in taken {
        if looked.slots.len() == SLOTS_MAX {
            times.note(slot, was);
            continue;
        }
        looked.next = slot.saturating_add(1);
        let Some(at) = earliest(slot)? else { continue };
        times.note(slot, at);
        if at <= now_ms {
            looked.slots.push(slot);
        }
    }
    Ok(looked)
}

#[cfg(test)]
mod tests;
