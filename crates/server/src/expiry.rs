//! Keys whose time is over, and elements whose collection is gone, leave by replicated deletes: the
//! leader looks for them and proposes bounded steps.
//!
//! A look costs seeks, whose number per round is bounded for all regions together. A region that was looked
//! through to its end without a find rests, longer each time. Every seek may read a block from the device, so for
//! garbage a region is looked through once by whoever comes to lead it, and from then on only when what was applied
//! has left some, or brought rows that nobody here has looked through.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{AbortHandle, JoinSet};
use types::{LogIndex, RegionId, Slot};

use crate::clock;
use crate::region::inbox::{Maintenance, Work};
use crate::region::shared::RegionShared;
use crate::store::Store;

const PERIOD: Duration = Duration::from_millis(100);
/// Seeks of one round, of all regions together.
const EXPIRY_PROBES: usize = 2000;
const SWEEP_PROBES: usize = 200;
/// The longest rest after a fruitless search.
const EXPIRY_REST_MAX: Duration = Duration::from_secs(2);
const SWEEP_REST_MAX: Duration = Duration::from_secs(10);
/// Slots of one proposal.
const SLOTS_MAX: usize = 64;

/// Runs until the task is dropped.
pub async fn run(store: Arc<Store>) {
    let mut keeper = Keeper::default();
    // At most one proposal for each region, and none holds up another region's.
    let mut proposals = JoinSet::new();
    let mut seen = None;
    let mut period = tokio::time::interval(PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !store.stopping.load(Ordering::Relaxed) {
        period.tick().await;
        while proposals.try_join_next().is_some() {}
        // While nothing happens in any region there is nothing new to find, however many there are.
        let (now, activity) = (Instant::now(), store.activity());
        if seen == Some(activity)
            && keeper.proposing.is_empty()
            && keeper.rests_until.is_some_and(|at| now < at)
        {
            continue;
        }
        seen = Some(activity);
        let looks = keeper.begin(&store, now);
        if looks.is_empty() {
            continue;
        }
        // What it finds, and when it goes on, is not known yet.
        seen = None;
        let looker = store.clone();
        let looked = tokio::task::spawn_blocking(move || look_at_all(&looker, looks)).await;
        let looked = match looked {
            Ok(Ok(looked)) => looked,
            Ok(Err(error)) => store.fatal(&format!("rows cannot be read: {error}")),
            // The runtime is going down, and this task with it.
            Err(ended) if ended.is_cancelled() => return,
            Err(_) => store.fatal("the search for expired keys died"),
        };
        for (region, found) in keeper.end(looked, Instant::now()) {
            let handle = proposals.spawn(propose(store.clone(), region.clone(), found));
            keeper.proposing.insert(region.id(), handle);
        }
    }
}

async fn propose(store: Arc<Store>, region: Arc<RegionShared>, found: Maintenance) {
    let deadline = Instant::now() + store.config.request_timeout;
    // What is not carried out now is found again.
    let _ = store.submit(&region, Work::Maintenance(found), deadline).await;
}

/// The searches of the regions that are led here.
#[derive(Default)]
struct Keeper {
    searches: BTreeMap<RegionId, Searches>,
    /// When the first search is due that is not yet, as of the last round.
    rests_until: Option<Instant>,
    proposing: BTreeMap<RegionId, AbortHandle>,
}

struct Searches {
    expiry: Search,
    sweep: Search,
    /// How far the region was applied when its present search for garbage began.
    sweep_began_at: LogIndex,
    /// How far it was applied when the last one began that found nothing.
    swept_through: Option<LogIndex>,
}

/// A part of a region's search: where each kind begins, unless it rests.
struct Look {
    region: Arc<RegionShared>,
    expiry: Option<Part>,
    sweep: Option<Part>,
}

#[derive(Clone, Copy)]
struct Part {
    from: Slot,
    probes: usize,
}

/// What a look found of one kind, and where the next one begins.
#[derive(Debug, PartialEq)]
struct Looked {
    slots: Vec<Slot>,
    next: Option<Slot>,
}

struct LookedAt {
    region: Arc<RegionShared>,
    expiry: Option<Looked>,
    sweep: Option<Looked>,
}

impl Keeper {
    /// The looks of this round.
    fn begin(&mut self, store: &Store, now: Instant) -> Vec<Look> {
        let led: BTreeMap<RegionId, Arc<RegionShared>> = store
            .user_regions()
            .into_iter()
            .filter(|region| region.leader() == Some(store.id))
            .map(|region| (region.id(), region))
            .collect();
        // Who comes to lead a region knows nothing of what is in it.
        self.searches.retain(|region, _| led.contains_key(region));
        self.proposing.retain(|_, proposal| !proposal.is_finished());
        let mut looks = Vec::new();
        let mut rests_until = now + SWEEP_REST_MAX;
        for (id, region) in led {
            if self.proposing.contains_key(&id) {
                continue;
            }
            let searches = self.searches.entry(id).or_insert_with(|| Searches::new(now));
            let begin = |from| Part { from, probes: 0 };
            let expiring = store.engine.has_expiring_keys(id);
            let expiry = (expiring && searches.expiry.is_due(now)).then(|| begin(searches.expiry.from));
            // In this order: an entry that leaves garbage says so before it is applied.
            let applied = region.applied();
            let garbage_at = region.garbage_at();
            let sweep = searches.sweeps(applied, garbage_at, now).then(|| begin(searches.sweep.from));
            if expiring {
                rests_until = rests_until.min(searches.expiry.due);
            }
            if !searches.is_swept(garbage_at) {
                rests_until = rests_until.min(searches.sweep.due);
            }
            if expiry.is_some() || sweep.is_some() {
                looks.push(Look { region: region.clone(), expiry, sweep });
            }
        }
        self.rests_until = Some(rests_until);
        share(EXPIRY_PROBES, looks.iter_mut().filter_map(|look| look.expiry.as_mut()).collect());
        share(SWEEP_PROBES, looks.iter_mut().filter_map(|look| look.sweep.as_mut()).collect());
        looks
    }

    /// Notes what the round found, and gives what to propose.
    fn end(&mut self, looked: Vec<LookedAt>, now: Instant) -> Vec<(Arc<RegionShared>, Maintenance)> {
        let mut proposals = Vec::new();
        for LookedAt { region, expiry, sweep } in looked {
            let Some(searches) = self.searches.get_mut(&region.id()) else { continue };
            let mut found = Maintenance::default();
            if let Some(looked) = expiry {
                searches.expiry.took(&looked, now);
                found.expire = looked.slots;
            }
            if let Some(looked) = sweep {
                searches.swept(&looked, now);
                found.sweep = looked.slots;
            }
            if !found.expire.is_empty() || !found.sweep.is_empty() {
                proposals.push((region, found));
            }
        }
        proposals
    }
}

/// Divides a round's seeks among its looks: a region with few slots needs few, and one with many goes on
/// in the next round.
fn share(probes: usize, parts: Vec<&mut Part>) {
    let each = (probes / parts.len().max(1)).max(1);
    parts.into_iter().for_each(|part| part.probes = each);
}

impl Searches {
    fn new(now: Instant) -> Searches {
        Searches {
            expiry: Search::new(now, EXPIRY_REST_MAX),
            sweep: Search::new(now, SWEEP_REST_MAX),
            sweep_began_at: 0,
            swept_through: None,
        }
    }

    fn is_swept(&self, garbage_at: LogIndex) -> bool {
        self.swept_through.is_some_and(|through| through >= garbage_at)
    }

    /// Whether to look for garbage.
    fn sweeps(&mut self, applied: LogIndex, garbage_at: LogIndex, now: Instant) -> bool {
        if self.sweep.is_at_start() {
            if self.is_swept(garbage_at) {
                return false;
            }
            self.sweep_began_at = applied;
        }
        self.sweep.is_due(now)
    }

    fn swept(&mut self, looked: &Looked, now: Instant) {
        if self.sweep.took(looked, now) {
            self.swept_through = Some(self.sweep_began_at);
        }
    }
}

/// One kind of search through a region's slots, over many rounds.
struct Search {
    from: Slot,
    found: bool,
    rest: Duration,
    rest_max: Duration,
    due: Instant,
}

impl Search {
    fn new(now: Instant, rest_max: Duration) -> Search {
        Search { from: 0, found: false, rest: PERIOD, rest_max, due: now }
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    fn is_at_start(&self) -> bool {
        self.from == 0 && !self.found
    }

    /// Takes in one look. True: the region was looked through to its end, and there was nothing.
    fn took(&mut self, looked: &Looked, now: Instant) -> bool {
        self.found |= !looked.slots.is_empty();
        self.due = now;
        self.from = looked.next.unwrap_or(0);
        if looked.next.is_some() {
            return false;
        }
        let fruitless = !std::mem::take(&mut self.found);
        if fruitless {
            self.due = now + self.rest;
            self.rest = (self.rest * 2).min(self.rest_max);
        } else {
            self.rest = PERIOD;
        }
        fruitless
    }
}

fn look_at_all(store: &Store, looks: Vec<Look>) -> storage::Result<Vec<LookedAt>> {
    let view = store.engine.flash().view();
    let clock_ms = clock::unix_millis();
    let look = |Look { region, expiry, sweep }: Look| {
        let slots = region.slots_or_all();
        let now = region.read_time(clock_ms);
        let due = |part: Part| command::find_due(&view, slots, part.from, now, part.probes);
        let garbage = |part: Part| command::find_garbage(&view, slots, part.from, part.probes);
        let expiry = expiry.map(due).transpose()?.map(cut);
        let sweep = sweep.map(garbage).transpose()?.map(cut);
        Ok(LookedAt { region, expiry, sweep })
    };
    looks.into_iter().map(look).collect()
}

/// Takes at most `SLOTS_MAX` slots of what was found; the next look begins at the first that is left.
fn cut(found: command::Found) -> Looked {
    let command::Found { mut slots, mut next } = found;
    if let Some(left) = slots.get(SLOTS_MAX).copied() {
        slots.truncate(SLOTS_MAX);
        next = Some(left);
    }
    Looked { slots, next }
}

#[cfg(test)]
mod tests;
