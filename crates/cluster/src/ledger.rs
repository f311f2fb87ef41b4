//! What heartbeats have told: who is alive, who leads what, and the numbers that placement needs.

use std::collections::BTreeMap;

use types::{BootNanos, RegionId, StoreId, Term};

use crate::{LeadReport, MetaState, StoreHeartbeat};

/// Who leads a region, as of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub term: Term,
    pub leader: StoreId,
}

/// The routing table. A term has at most one leader, so the larger term is the later news, whatever order
/// news comes in; merging is commutative and idempotent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    by_region: BTreeMap<RegionId, Route>,
}

impl Routes {
    /// True if that was news.
    pub fn learn(&mut self, region: RegionId, route: Route) -> bool {
        match self.by_region.get_mut(&region) {
            Some(known) if known.term >= route.term => false,
            Some(known) => {
                *known = route;
                true
            }
            None => {
                self.by_region.insert(region, route);
                true
            }
        }
    }

    pub fn get(&self, region: RegionId) -> Option<Route> {
        self.by_region.get(&region).copied()
    }

    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = (RegionId, Route)> + '_ {
        self.by_region.iter().map(|(&region, &route)| (region, route))
    }
}

/// The last heartbeat of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    pub at: BootNanos,
    pub heartbeat: StoreHeartbeat,
}

#[derive(Clone, Debug)]
pub struct Ledger {
    began: BootNanos,
    down_after_nanos: u64,
    heard: BTreeMap<StoreId, Heard>,
    routes: Routes,
}

impl Ledger {
    /// A store is down when nothing was heard of it for `down_after_nanos`.
    pub fn new(began: BootNanos, down_after_nanos: u64) -> Ledger {
        Ledger { began, down_after_nanos, heard: BTreeMap::new(), routes: Routes::default() }
    }

    /// Takes a heartbeat in. False when a later one of that store is known: connections may overtake each
    /// other, and a store that restarted begins a new incarnation.
    pub fn hear(&mut self, heartbeat: StoreHeartbeat, now: BootNanos) -> bool {
        let order = |heartbeat: &StoreHeartbeat| (heartbeat.incarnation, heartbeat.seq);
        if self.heard.get(&heartbeat.store).is_some_and(|last| order(&last.heartbeat) >= order(&heartbeat)) {
            return false;
        }
        for lead in &heartbeat.leads {
            self.routes.learn(lead.region, Route { term: lead.term, leader: heartbeat.store });
        }
        self.heard.insert(heartbeat.store, Heard { at: now, heartbeat });
        true
    }

    /// What this store's own Raft peers say.
    pub fn learn(&mut self, region: RegionId, route: Route) -> bool {
        self.routes.learn(region, route)
    }

    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    pub fn heard(&self, store: StoreId) -> Option<&Heard> {
        self.heard.get(&store)
    }

    pub fn is_up(&self, store: StoreId, now: BootNanos) -> bool {
        self.heard.get(&store).is_some_and(|heard| now.saturating_sub(heard.at) <= self.down_after_nanos)
    }

    /// What the region's present leader reports of it; `None` until that leader was heard, and once it
    /// says that it no longer leads.
    pub fn lead(&self, region: RegionId) -> Option<&LeadReport> {
        let route = self.routes.get(region)?;
        let lead = self.heard.get(&route.leader)?.heartbeat.lead(region)?;
        (lead.term == route.term).then_some(lead)
    }

    /// Whether there is enough to plan on: every member was heard or has had the time to be. Planning
    /// earlier would take stores for dead that have only not spoken yet.
    pub fn is_settled(&self, meta: &MetaState, now: BootNanos) -> bool {
        now.saturating_sub(self.began) > self.down_after_nanos
            || meta.stores.keys().all(|store| self.heard.contains_key(store))
    }
}

#[cfg(test)]
mod tests;
