//! The regions of the cluster as this store knows them, their leaders, and the change
//! notifications.
//!
//! All updates go through [`Regions`]: leaders and leases from the groups, what peers have applied,
//! and reports of other stores. Readers need no lock.
//!
//! A change is visible before its notification.

mod known;
mod shared;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::Guard;
use node::Leadership;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use replica::RegionStatus;
use tokio::sync::Notify;
use types::{
    BootNanos, LogIndex, RegionDescriptor, RegionId, Slot, SlotRange, StoreId, Term, UnixMillis, META_REGION,
};

use known::Known;
pub use known::Table;
use shared::PreviousLeader;
pub use shared::{RegionShared, RowsToken};

/// Maximum time between two looks of [`Regions::look_until`].
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub struct Regions {
    this: StoreId,
    /// All known regions of the cluster, with or without a peer here.
    known: Known,
    /// Regions that the next heartbeat reports; see `touch`.
    touched: Mutex<Vec<RegionId>>,
    activity: AtomicU64,
    /// The notification that a region's leader has changed or slots have moved.
    pub leader_changes: Notify,
    /// A request for an early heartbeat.
    report_soon: Arc<Notify>,
    /// The number of regions that this store leads.
    leaders: Gauge,
}

impl Regions {
    /// Creates the table from the regions with a peer here (`local`) and others that are known
    /// already.
    pub fn new(
        this: StoreId,
        local: &[RegionDescriptor],
        others: &[RegionDescriptor],
        report_soon: Arc<Notify>,
        leaders: Gauge,
    ) -> Regions {
        Regions {
            this,
            known: Known::new(local, others),
            touched: Mutex::new(Vec::new()),
            activity: AtomicU64::new(0),
            leader_changes: Notify::new(),
            report_soon,
            leaders,
        }
    }

    pub fn meta(&self) -> &Arc<RegionShared> {
        self.known.meta()
    }

    /// Returns the regions at this moment. Later changes do not appear in the result.
    pub fn table(&self) -> Guard<Arc<Table>> {
        self.known.table()
    }

    pub fn get(&self, region: RegionId) -> Option<Arc<RegionShared>> {
        self.known.get(region)
    }

    /// Returns the region that owns a slot, as far as this store knows.
    pub fn of_slot(&self, slot: Slot) -> Option<Arc<RegionShared>> {
        self.known.of_slot(slot)
    }

    /// Calls `look` immediately and after each change of leaders or slots, until it finds something
    /// or the deadline has passed. `None` means no deadline.
    pub async fn look_until<T>(&self, deadline: Option<Instant>, look: impl Fn() -> Option<T>) -> Option<T> {
        loop {
            // A change during the look ends the wait.
            let changed = self.leader_changes.notified();
            let found = look();
            if found.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return found;
            }
            let _ = tokio::time::timeout(LOOK_EVERY, changed).await;
        }
    }

    /// Returns a slot's region. Waits until it is known or the deadline has passed.
    pub async fn await_slot(&self, slot: Slot, deadline: Instant) -> Option<Arc<RegionShared>> {
        self.look_until(Some(deadline), || self.of_slot(slot)).await
    }

    /// Returns all regions, for callers that hold them for longer.
    pub fn all(&self) -> Vec<Arc<RegionShared>> {
        self.known.all()
    }

    /// Returns the regions that hold keys, by id.
    pub fn of_users(&self) -> Vec<Arc<RegionShared>> {
        let mut regions = self.all();
        regions.retain(|region| region.id() != META_REGION);
        regions
    }

    /// Returns the regions with a peer here, and their slots.
    pub fn local(&self) -> Vec<(RegionId, Option<SlotRange>)> {
        let table = self.table();
        table.iter().filter(|region| region.is_local()).map(|region| (region.id(), region.slots())).collect()
    }

    /// Returns the applied index of each region with a peer here.
    pub fn applied(&self) -> Vec<(RegionId, LogIndex)> {
        let table = self.table();
        table
            .iter()
            .filter(|region| region.is_local())
            .map(|region| (region.id(), region.applied()))
            .collect()
    }

    /// Returns true if this store leads the region.
    pub fn leads(&self, region: &RegionShared) -> bool {
        region.leader() == Some(self.this)
    }

    /// Returns true if this store leads the meta region.
    pub fn leads_meta(&self) -> bool {
        self.leads(self.meta())
    }

    /// Returns true if, as far as this store knows, every slot has a region and every region a
    /// leader.
    pub fn are_all_led(&self) -> bool {
        let table = self.table();
        table.covers_all() && table.iter().all(|region| region.leader().is_some())
    }

    /// Processes the ranges and peers that leaders report.
    pub fn learn<'a>(&self, heard: impl Iterator<Item = &'a RegionDescriptor>) {
        let table = self.table();
        let is_newer = |heard: &&RegionDescriptor| {
            table.get(heard.id).is_none_or(|known| heard.epoch.is_newer_than(known.newest().epoch))
        };
        let newer: Vec<RegionDescriptor> = heard.filter(is_newer).cloned().collect();
        if !newer.is_empty() && self.known.learn(&newer) {
            self.leader_changes.notify_waiters();
        }
    }

    /// Sets the descriptors that this store's peers have applied, see `Known::set_local`. Must be
    /// called before any other code can act on them.
    pub fn set_local(&self, descriptors: &[RegionDescriptor]) {
        descriptors.iter().for_each(|descriptor| self.tell_of_recovery(descriptor));
        self.known.set_local(descriptors);
        let table = self.table();
        descriptors.iter().filter_map(|of| table.get(of.id)).for_each(|region| self.touch(region));
        self.leader_changes.notify_waiters();
        self.report_soon.notify_one();
    }

    /// Logs a recovery that a peer here has applied and that this store did not know of.
    fn tell_of_recovery(&self, descriptor: &RegionDescriptor) {
        let Some(recovery) = descriptor.recoveries.last() else { return };
        let known = self.get(descriptor.id);
        if known.is_some_and(|known| known.newest().recoveries.contains(recovery)) {
            return;
        }
        let (region, last, unproven) = (descriptor.id, recovery.last, recovery.last - recovery.committed);
        tracing::warn!(
            region,
            order = recovery.order,
            keeper = recovery.keeper,
            lost = ?recovery.lost,
            last,
            unproven,
            "the region was recovered by order of an operator: it goes on from one log, and what the lost stores had \
             beyond it is gone"
        );
    }

    /// Returns true if a region was recovered by an order that declared the store to be lost.
    pub fn went_on_without(&self, store: StoreId) -> bool {
        let is_of = |recovery: &types::Recovery| recovery.lost.binary_search(&store).is_ok();
        self.table().iter().any(|region| region.newest().recoveries.iter().any(is_of))
    }

    /// Returns the number of regions with a peer here that were recovered, and the time of the
    /// latest order.
    pub fn recoveries_here(&self) -> (usize, UnixMillis) {
        let table = self.table();
        let local = table.iter().filter(|region| region.is_local());
        let recovered = local.filter_map(|region| Some(region.newest().recoveries.last()?.at_ms));
        recovered.fold((0, 0), |(count, latest), at_ms| (count + 1, latest.max(at_ms)))
    }

    /// Sets the applied index of this store's peer of a region.
    pub fn set_applied(&self, region: RegionId, index: LogIndex, stamp_ms: UnixMillis) {
        if let Some(region) = self.get(region) {
            region.set_applied(index, stamp_ms);
        }
    }

    /// Records a leader's report that every peer's log holds everything through `index`. Returns
    /// true if that is new.
    pub fn held_by_all(&self, region: &RegionShared, index: LogIndex) -> bool {
        region.held_by_all(index)
    }

    /// Begins the replacement of a region's rows. Must be called before a snapshot removes them;
    /// [`set_local`](Self::set_local) ends it.
    pub fn begin_replacing(&self, region: RegionId) {
        if let Some(region) = self.get(region) {
            region.begin_replacing();
        }
    }

    /// Records that this store's peer of a region was removed.
    pub fn remove_local(&self, region: RegionId) {
        let Some(shared) = self.get(region) else { return };
        self.known.remove_local(region);
        if shared.forget_leader(self.this) {
            self.leader_changed(&shared, PreviousLeader(Some(self.this)), None);
        }
        self.touch(&shared);
        self.leader_changes.notify_waiters();
    }

    /// Sets the leader that this store's own peer of a region reports.
    pub fn lead(&self, region: RegionId, leadership: Leadership) {
        let Some(shared) = self.get(region) else { return };
        if leadership.leader != Some(self.this) {
            shared.set_lease(None);
        }
        if let Some(previous) = shared.set_leadership(leadership) {
            self.leader_changed(&shared, previous, leadership.leader);
        }
    }

    /// Sets the time until which this store, as the leader of `term`, may answer reads. It has no
    /// effect once another term is known.
    pub fn lease(&self, region: RegionId, term: Term, until: Option<BootNanos>) {
        if let Some(shared) = self.get(region) {
            let counts = shared.leadership().is_of(self.this, term);
            shared.set_lease(until.filter(|_| counts));
        }
    }

    /// Records another store's report of its own leadership.
    pub fn hear_leader(&self, region: &RegionShared, term: Term, leader: StoreId) {
        if let Some(previous) = region.hear_leader(term, leader) {
            self.leader_changed(region, previous, Some(leader));
        }
    }

    /// Drops leaders whose stores are silent, for regions without a peer here. Those leaders are
    /// known only from reports.
    pub fn forget_leaders(&self, is_silent: impl Fn(StoreId) -> bool) {
        for region in self.table().iter().filter(|region| !region.is_local()) {
            if let Some(leader) = region.leader().filter(|leader| is_silent(*leader)) {
                if region.forget_leader(leader) {
                    self.leader_changed(region, PreviousLeader(Some(leader)), None);
                }
            }
        }
    }

    /// Handles a change of leader after it is visible. Each change is handled once, but possibly
    /// not in the order of the changes.
    fn leader_changed(
        &self,
        region: &RegionShared,
        PreviousLeader(before): PreviousLeader,
        after: Option<StoreId>,
    ) {
        if before == after {
            return;
        }
        if before == Some(self.this) {
            self.leaders.dec();
        } else if after == Some(self.this) {
            self.leaders.inc();
        }
        tracing::debug!(region = region.id(), ?before, ?after, "leader changed");
        self.touch(region);
        self.leader_changes.notify_waiters();
        if before == Some(self.this) || after == Some(self.this) {
            self.report_soon.notify_one();
        }
    }

    /// Publishes whether the region's peer here is quarantined (`Some`), and whether `READONLY`
    /// clients may then read its rows.
    pub fn set_quarantined(&self, region: RegionId, read_only: Option<bool>) {
        if let Some(region) = self.table().get(region) {
            region.set_quarantined(read_only);
        }
    }

    /// Publishes the worker's view of these regions. `status` is called only for the regions that
    /// this store leads.
    pub fn publish(
        &self,
        regions: impl Iterator<Item = RegionId>,
        status: impl Fn(RegionId) -> Option<RegionStatus>,
    ) {
        let table = self.table();
        for region in regions.filter_map(|id| table.get(id)) {
            let status = if self.leads(region) { status(region.id()) } else { None };
            if region.publish_status(status) {
                self.touch(region);
            }
        }
    }

    /// Marks the region as changed, so that the next heartbeat reports it.
    pub fn touch(&self, region: &RegionShared) {
        if region.touch() {
            self.touched.lock().push(region.id());
            self.activity.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a counter that does not change while all regions are inactive, and increases from
    /// time to time while a region is active.
    pub fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    /// Returns the regions that have changed since the last call.
    pub fn take_touched(&self) -> Vec<RegionId> {
        let touched = std::mem::take(&mut *self.touched.lock());
        // From here on a change marks the region again. The report is read after this point.
        let table = self.table();
        touched.iter().filter_map(|id| table.get(*id)).for_each(|region| region.untouch());
        if !touched.is_empty() {
            // Changes after the mark were not counted.
            self.activity.fetch_add(1, Ordering::Relaxed);
        }
        touched
    }
}

#[cfg(test)]
mod tests;
