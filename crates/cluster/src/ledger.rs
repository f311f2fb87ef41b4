//! The contents of recent heartbeats: live stores, leaders, descriptors, and the load and sizes
//! that placement needs.

use std::collections::BTreeMap;

use types::{BootNanos, RegionDescriptor, RegionId, StoreId, Term};

use crate::{LeadReport, MetaState, Quarantine, StoreHeartbeat};

mod followed;
mod previous_leader;
mod slots;

pub use previous_leader::Load;
pub use slots::{Learned, SlotMap};

/// A region's leader, as of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub term: Term,
    pub leader: StoreId,
}

/// The routing table. A term has at most one leader, so the larger term is the newer information,
/// whatever the order of arrival. Updates are commutative and idempotent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    by_region: BTreeMap<RegionId, Route>,
}

impl Routes {
    /// Records a region's leader. Returns true if the term is newer than the known one.
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

    /// Returns the routes, ascending by region.
    pub fn iter(&self) -> impl Iterator<Item = (RegionId, Route)> + '_ {
        self.by_region.iter().map(|(&region, &route)| (region, route))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerConfig {
    /// The silence in nanoseconds after which a store is down.
    pub down_after_nanos: u64,
    /// The silence in nanoseconds after which a store is lost, so that its peers are replaced on
    /// other stores.
    pub replace_after_nanos: u64,
}

impl Default for LedgerConfig {
    fn default() -> LedgerConfig {
        const SECOND: u64 = 1_000_000_000;
        LedgerConfig { down_after_nanos: 3 * SECOND, replace_after_nanos: 600 * SECOND }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Liveness {
    Up,
    Down,
    Lost,
}

/// A store's last heartbeat, without its regions.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    pub at: BootNanos,
    /// The time since which its heartbeats report a hanging device; `None` while they do not.
    pub hanging_since: Option<BootNanos>,
    /// The time since which its heartbeats report a session with ZooKeeper, or since which they
    /// report none.
    pub session_changed_at: BootNanos,
    /// The heartbeat without its reports about regions. [`Ledger::lead`] returns those about
    /// regions that the store leads, and [`Ledger::load`] includes the rest.
    pub heartbeat: StoreHeartbeat,
    leads: BTreeMap<RegionId, LeadReport>,
}

impl Heard {
    /// Returns the regions that the store reports to lead, ascending.
    pub fn leads(&self) -> impl Iterator<Item = &LeadReport> {
        self.leads.values()
    }
}

#[derive(Clone, Debug)]
pub struct Ledger {
    config: LedgerConfig,
    /// The earliest time from which silence counts.
    since: BootNanos,
    /// The time of the last heartbeat from any store, this one included.
    last: BootNanos,
    heard: BTreeMap<StoreId, Heard>,
    routes: Routes,
    /// The newest descriptor of each region that still owns a slot.
    descriptors: BTreeMap<RegionId, RegionDescriptor>,
    slots: SlotMap,
    previous_leaders: previous_leader::PreviousLeaders,
    followed: followed::Followed,
    descriptors_learned: u64,
}

impl Ledger {
    pub fn new(now: BootNanos, config: LedgerConfig) -> Ledger {
        Ledger {
            config,
            since: now,
            last: now,
            heard: BTreeMap::new(),
            routes: Routes::default(),
            descriptors: BTreeMap::new(),
            slots: SlotMap::default(),
            previous_leaders: previous_leader::PreviousLeaders::default(),
            followed: followed::Followed::default(),
            descriptors_learned: 0,
        }
    }

    pub fn configure(&mut self, config: LedgerConfig) {
        self.config = config;
    }

    /// Records a heartbeat. Returns false if a later one of that store is known, because
    /// connections may reorder them. A store that restarts begins a new incarnation, which is its
    /// wall clock at the start. So a store whose clock was set back before a restart has a lower
    /// incarnation than before. Such a heartbeat is accepted once the previous incarnation has been
    /// silent for long enough to be down.
    pub fn hear(&mut self, mut heartbeat: StoreHeartbeat, now: BootNanos) -> bool {
        let order = |heartbeat: &StoreHeartbeat| (heartbeat.incarnation, heartbeat.seq);
        let before = self.heard.get_mut(&heartbeat.store);
        let down_after = self.config.down_after_nanos;
        let is_known = |last: &Heard| {
            let is_silent = now.saturating_sub(last.at) > down_after;
            let is_of_another = last.heartbeat.incarnation != heartbeat.incarnation;
            order(&last.heartbeat) >= order(&heartbeat) && !(is_of_another && is_silent)
        };
        if before.as_deref().is_some_and(is_known) {
            return false;
        }
        let hanging_since =
            heartbeat.hanging.then(|| before.as_ref().and_then(|last| last.hanging_since).unwrap_or(now));
        let session_changed_at = before
            .as_ref()
            .filter(|last| last.heartbeat.has_session == heartbeat.has_session)
            .map_or(now, |last| last.session_changed_at);
        let restarted =
            before.as_ref().is_some_and(|last| last.heartbeat.incarnation != heartbeat.incarnation);
        let mut leads = match before {
            Some(before) if !heartbeat.is_full() && !restarted => std::mem::take(&mut before.leads),
            // A full heartbeat lists all regions. A delta on a full heartbeat that never arrived
            // says nothing about the regions that it leaves out.
            _ => BTreeMap::new(),
        };
        // Each delta carries all changes since the last full heartbeat, so it does not matter which
        // deltas arrived before. If that full heartbeat was lost, the regions that changed in it
        // keep their older reports until the next full one.
        for region in std::mem::take(&mut heartbeat.leads.gone) {
            leads.remove(&region);
        }
        if restarted {
            // A restarted store starts with no heat of reads as a follower.
            self.followed.told(heartbeat.store, &[], now);
        }
        for lead in std::mem::take(&mut heartbeat.leads.reports) {
            self.routes.learn(lead.region(), Route { term: lead.term, leader: heartbeat.store });
            self.learn_descriptor(&lead.descriptor);
            let StoreHeartbeat { store, incarnation, .. } = heartbeat;
            if self.descriptors.contains_key(&lead.region())
                && self.previous_leaders.told(store, incarnation, &lead, now)
            {
                self.followed.leads(store, lead.region());
            }
            leads.insert(lead.region(), lead);
        }
        if heartbeat.is_full() {
            self.followed.told(heartbeat.store, &std::mem::take(&mut heartbeat.followed), now);
        }
        if now.saturating_sub(self.last) > self.config.down_after_nanos {
            // No heartbeat was received, not even from this store, so this store itself was not
            // running. That says nothing about the other stores.
            self.since = now;
        }
        self.last = self.last.max(now);
        self.heard
            .insert(heartbeat.store, Heard { at: now, hanging_since, session_changed_at, heartbeat, leads });
        true
    }

    /// Records a region's leader that this store's own Raft peer knows.
    pub fn learn(&mut self, region: RegionId, route: Route) -> bool {
        self.routes.learn(region, route)
    }

    /// Records a region's descriptor. Returns true if it is newer than the known one.
    pub fn learn_descriptor(&mut self, region: &RegionDescriptor) -> bool {
        let known = self.descriptors.get(&region.id);
        if known.is_some_and(|known| !region.epoch.is_newer_than(known.epoch)) {
            return false;
        }
        let Learned { owns, displaced } = self.slots.learn(region);
        for gone in displaced {
            self.descriptors.remove(&gone);
            self.routes.by_region.remove(&gone);
            self.previous_leaders.forget(gone);
            self.followed.forget(gone);
        }
        if !owns && region.slots.is_some() {
            return false;
        }
        self.descriptors.insert(region.id, region.clone());
        self.descriptors_learned += 1;
        true
    }

    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the newest known descriptor of a region. Also returns `None` for a region whose
    /// slots all belong to other regions now.
    pub fn descriptor(&self, region: RegionId) -> Option<&RegionDescriptor> {
        self.descriptors.get(&region)
    }

    /// Returns the descriptors, ascending by id.
    pub fn descriptors(&self) -> impl Iterator<Item = &RegionDescriptor> {
        self.descriptors.values()
    }

    /// Returns a counter that rises with each change of a descriptor.
    pub fn descriptors_learned(&self) -> u64 {
        self.descriptors_learned
    }

    pub fn slots(&self) -> &SlotMap {
        &self.slots
    }

    pub fn heard(&self, store: StoreId) -> Option<&Heard> {
        self.heard.get(&store)
    }

    /// Returns the last heartbeats of all stores, ascending by id.
    pub fn all_heard(&self) -> impl Iterator<Item = &Heard> {
        self.heard.values()
    }

    /// Drops a store that left the cluster.
    pub fn forget(&mut self, store: StoreId) {
        self.heard.remove(&store);
        self.followed.told(store, &[], self.last);
    }

    pub fn liveness(&self, store: StoreId, now: BootNanos) -> Liveness {
        let heard = self.heard.get(&store);
        let silent_since = heard.map_or(self.since, |heard| heard.at.max(self.since));
        let silent = now.saturating_sub(silent_since);
        match silent {
            _ if silent > self.config.replace_after_nanos => Liveness::Lost,
            _ if silent > self.config.down_after_nanos || heard.is_none() => Liveness::Down,
            _ => Liveness::Up,
        }
    }

    pub fn is_up(&self, store: StoreId, now: BootNanos) -> bool {
        self.liveness(store, now) == Liveness::Up
    }

    /// Returns the regions without a live leader: no store that is up reports that it leads them.
    pub fn without_live_leader(
        &self,
        regions: impl IntoIterator<Item = RegionId>,
        now: BootNanos,
    ) -> Vec<RegionId> {
        let is_led = |region: &RegionId| {
            let leader = self.lead(*region).and_then(|_| self.routes.get(*region));
            leader.is_some_and(|route| self.is_up(route.leader, now))
        };
        regions.into_iter().filter(|region| !is_led(region)).collect()
    }

    /// Returns true if leaders and peers may move to the store. They may not move to a store that
    /// is about to stop or whose device hangs, even if it is up.
    pub fn takes_on(&self, store: StoreId, now: BootNanos) -> bool {
        let is_able = |heard: &Heard| !heard.heartbeat.stopping && !heard.heartbeat.hanging;
        self.is_up(store, now) && self.heard.get(&store).is_none_or(is_able)
    }

    /// Returns true if the store's device has been hanging long enough for the store's peers to be
    /// replaced, like the peers of a silent store.
    pub fn is_lost_to_a_hang(&self, store: StoreId, now: BootNanos) -> bool {
        let since = self.heard.get(&store).and_then(|heard| heard.hanging_since);
        since.is_some_and(|since| now.saturating_sub(since) > self.config.replace_after_nanos)
    }

    /// Returns true if a store may become the leader of a region: it accepts new peers, its device
    /// has room, and its wall clock is not off.
    pub fn may_lead(&self, store: StoreId, now: BootNanos) -> bool {
        let is_able = |heard: &Heard| !heard.heartbeat.out_of_room && !heard.heartbeat.clock_off;
        self.takes_on(store, now) && self.heard.get(&store).is_some_and(is_able)
    }

    /// Returns true if the store reports that its peer of the region may have lost entries that it
    /// acknowledged.
    pub fn is_unclean(&self, region: &RegionDescriptor, store: StoreId) -> bool {
        let Some(heard) = self.heard.get(&store) else { return false };
        let unclean = &heard.heartbeat.unclean;
        let named = unclean.binary_search_by_key(&region.id, |(region, _)| *region).map(|at| unclean[at].1);
        named.is_ok_and(|number| region.peer_on(store).is_some_and(|peer| peer.id == number))
    }

    /// Returns the last report of the region's present leader. `None` until that leader has
    /// reported, and after it has said that it no longer leads.
    pub fn lead(&self, region: RegionId) -> Option<&LeadReport> {
        let route = self.routes.get(region)?;
        let lead = self.heard.get(&route.leader)?.leads.get(&region)?;
        (lead.term == route.term).then_some(lead)
    }

    /// Returns the region's quarantined peers by store, as their stores last reported them.
    pub fn quarantined(&self, region: RegionId) -> impl Iterator<Item = (StoreId, &Quarantine)> {
        self.heard.iter().filter_map(move |(&store, heard)| {
            let told = &heard.heartbeat.quarantined;
            let at = told.binary_search_by_key(&region, |(region, _)| *region).ok()?;
            Some((store, &told[at].1))
        })
    }

    /// Returns the live user bytes of one copy, as last reported by a leader.
    pub fn bytes(&self, region: RegionId) -> u64 {
        self.previous_leaders.bytes(region)
    }

    /// Returns a region's load, including the load under previous leaders. Its heat includes the
    /// reads that followers answered.
    pub fn load(&self, region: RegionId, now: BootNanos) -> Load {
        let load = self.previous_leaders.load(region, now);
        Load { heat: load.heat + self.followed.heat(region, now), ..load }
    }

    /// Returns true if enough is known to plan: every member has sent a heartbeat or has had the
    /// time to send one. Earlier planning would treat stores as dead that have only not reported
    /// yet.
    pub fn is_settled(&self, meta: &MetaState, now: BootNanos) -> bool {
        now.saturating_sub(self.since) > self.config.down_after_nanos
            || meta.members().all(|store| self.heard.contains_key(&store.id))
    }
}

#[cfg(test)]
mod tests;
