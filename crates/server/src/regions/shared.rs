//! The state of a region that every thread of a store may read without asking its worker.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use arc_swap::ArcSwap;
use node::bounded_staleness::Freshness;
use node::reads::Local;
use node::Leadership;
use parking_lot::{Mutex, MutexGuard};
use replica::RegionStatus;
use tokio::sync::Notify;
use types::{BootNanos, LogIndex, RegionDescriptor, RegionId, Slot, SlotRange, StoreId, Term, UnixMillis};

/// The value of the packed leader for "no store".
const NO_STORE: u64 = u64::MAX;

/// The value of the packed range for "no slots".
const NO_SLOTS: u32 = u32::MAX;

/// Interval of repeated demands for a lease, in nanoseconds. It is well within the second for which
/// the worker remembers a demand.
const LEASE_DEMAND_NANOS: u64 = 200_000_000;

/// A token of the rows, see [`Local::rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsToken(u64);

/// The store that was known as a region's leader before a change.
pub(super) struct PreviousLeader(pub Option<StoreId>);

/// The known state of one region. Only [`Regions`](super::Regions) changes it. Holders read it,
/// count operations on the region, and demand the lease.
pub struct RegionShared {
    id: RegionId,
    /// The descriptor that this store's own peer has applied. Without a peer here, the newest
    /// reported one.
    descriptor: ArcSwap<RegionDescriptor>,
    /// The newest known descriptor, which decides where commands are sent.
    newest: ArcSwap<RegionDescriptor>,
    /// The slots of `descriptor`, for the hot path: both ends in one load.
    slots: AtomicU32,
    /// True if this store holds a peer.
    local: AtomicBool,
    /// The number of times that the peer's rows were removed or added by anything but entries. It
    /// is odd while they are being replaced.
    replacements: AtomicU64,
    /// True if the peer is quarantined; `is_readable` then says whether its rows may be read.
    is_quarantined: AtomicBool,
    is_readable: AtomicBool,
    leadership: Mutex<Leadership>,
    /// The leader, for the hot path: one load.
    leader: AtomicU64,
    /// Reads may be served here while CLOCK_BOOTTIME is below this; 0 without a lease.
    lease_until: AtomicU64,
    /// The time (CLOCK_BOOTTIME) at which a reader last demanded the lease.
    lease_wanted: AtomicU64,
    /// The last applied stamp. A read's time is at least this, because the region's time never
    /// decreases.
    last_stamp_ms: AtomicU64,
    applied: AtomicU64,
    /// The largest commit index that this store has announced to others.
    announced: AtomicU64,
    held_by_all: AtomicU64,
    /// The age of the rows here, as far as bounded weak reads have asked for it.
    freshness: Mutex<Freshness>,
    /// Notified when a question about the age of the rows has ended.
    pub question_ended: Notify,
    /// The group's status while this store leads, as published by its worker within the last tenth
    /// of a second.
    status: Mutex<Option<RegionStatus>>,
    /// True if the region is on the list for the next heartbeat.
    touched: AtomicBool,
    pub reads: AtomicU64,
    /// Reads that the row cache did not answer.
    pub misses: AtomicU64,
    pub writes: AtomicU64,
    pub write_bytes: AtomicU64,
}

impl RegionShared {
    pub fn new(descriptor: RegionDescriptor, local: bool) -> RegionShared {
        let slots = AtomicU32::new(packed(descriptor.slots));
        let id = descriptor.id;
        let descriptor = Arc::new(descriptor);
        RegionShared {
            id,
            newest: ArcSwap::new(descriptor.clone()),
            descriptor: ArcSwap::new(descriptor),
            slots,
            local: AtomicBool::new(local),
            replacements: AtomicU64::new(0),
            is_quarantined: AtomicBool::new(false),
            is_readable: AtomicBool::new(true),
            leadership: Mutex::new(Leadership::default()),
            leader: AtomicU64::new(NO_STORE),
            lease_until: AtomicU64::new(0),
            lease_wanted: AtomicU64::new(0),
            last_stamp_ms: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            held_by_all: AtomicU64::new(0),
            freshness: Mutex::default(),
            question_ended: Notify::new(),
            status: Mutex::new(None),
            touched: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
        }
    }

    pub fn id(&self) -> RegionId {
        self.id
    }

    pub fn is_local(&self) -> bool {
        self.local.load(Ordering::Acquire)
    }

    /// Begins a replacement. Must be called before a snapshot removes the rows;
    /// [`set_local`](Self::set_local) ends it.
    pub(super) fn begin_replacing(&self) {
        self.replacements.fetch_or(1, Ordering::SeqCst);
    }

    /// Sets whether the peer is quarantined (`Some`), and whether its rows may then be read.
    pub(super) fn set_quarantined(&self, read_only: Option<bool>) {
        self.is_readable.store(read_only.unwrap_or(true), Ordering::SeqCst);
        self.is_quarantined.store(read_only.is_some(), Ordering::SeqCst);
    }

    /// Returns true if the peer here executes nothing. If it leads, it confirms no reads.
    pub fn is_quarantined(&self) -> bool {
        self.is_quarantined.load(Ordering::SeqCst)
    }

    /// Returns the descriptor that this store's own peer has applied. Without a peer here, returns
    /// the newest reported one.
    pub fn descriptor(&self) -> Arc<RegionDescriptor> {
        self.descriptor.load_full()
    }

    /// Returns the newest known descriptor, reported or applied.
    pub fn newest(&self) -> Arc<RegionDescriptor> {
        self.newest.load_full()
    }

    pub fn newest_version(&self) -> u64 {
        self.newest.load().epoch.version
    }

    /// Returns the slots of `descriptor`; `None` for the meta region.
    pub fn slots(&self) -> Option<SlotRange> {
        let packed = self.slots.load(Ordering::Acquire);
        (packed != NO_SLOTS).then_some(SlotRange { first: (packed >> 16) as Slot, last: packed as Slot })
    }

    /// Returns the slots for a command that is executed here. Commands of the meta region have no
    /// keys.
    pub fn slots_or_all(&self) -> SlotRange {
        self.slots().unwrap_or(SlotRange::ALL)
    }

    /// Processes a reported descriptor. Returns true if it moves slots, so that the table must be
    /// rebuilt. Callers hold the table's lock.
    pub(super) fn learn(&self, heard: &RegionDescriptor) -> bool {
        let newest = self.newest.load();
        if !heard.epoch.is_newer_than(newest.epoch) {
            return false;
        }
        let moves = heard.slots != newest.slots || heard.epoch.version != newest.epoch.version;
        let heard = Arc::new(heard.clone());
        self.newest.store(heard.clone());
        if !self.is_local() {
            self.publish(heard);
        }
        moves
    }

    /// Sets the descriptor that this store's peer has applied or begins with. Returns true as
    /// `learn` does, and if the peer is new.
    pub(super) fn set_local(&self, applied: &RegionDescriptor) -> bool {
        let moves = self.learn(applied);
        self.publish(Arc::new(applied.clone()));
        let _ = self.replacements.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |replacements| {
            (replacements % 2 == 1).then_some(replacements + 1)
        });
        !self.local.swap(true, Ordering::AcqRel) || moves
    }

    /// Records that the peer was removed. From now on the reports of other stores decide.
    pub(super) fn remove_local(&self) {
        self.set_lease(None);
        self.publish_status(None);
        self.held_by_all.store(0, Ordering::Release);
        self.begin_replacing();
        self.local.store(false, Ordering::Release);
        self.publish(self.newest.load_full());
    }

    fn publish(&self, descriptor: Arc<RegionDescriptor>) {
        self.slots.store(packed(descriptor.slots), Ordering::Release);
        self.descriptor.store(descriptor);
    }

    pub fn leader(&self) -> Option<StoreId> {
        let leader = self.leader.load(Ordering::Acquire);
        (leader != NO_STORE).then_some(leader)
    }

    pub fn leadership(&self) -> Leadership {
        *self.leadership.lock()
    }

    /// Sets the leadership that this store's own peer reports, unless a later term is known.
    pub(super) fn set_leadership(&self, new: Leadership) -> Option<PreviousLeader> {
        let mut known = self.leadership.lock();
        if !known.yields_to(new) {
            return None;
        }
        let previous = PreviousLeader(known.leader);
        *known = new;
        self.leader.store(new.leader.unwrap_or(NO_STORE), Ordering::Release);
        Some(previous)
    }

    /// Records another store's report of its own leadership. It takes effect if its term is later,
    /// or if no leader of that term is known.
    pub(super) fn hear_leader(&self, term: Term, leader: StoreId) -> Option<PreviousLeader> {
        match self.leadership().yields_to_hearsay(term) {
            true => self.set_leadership(Leadership { term, leader: Some(leader) }),
            false => None,
        }
    }

    /// Drops `store` as the region's leader, because it is silent.
    pub(super) fn forget_leader(&self, store: StoreId) -> bool {
        let mut known = self.leadership.lock();
        if known.leader != Some(store) {
            return false;
        }
        known.leader = None;
        self.leader.store(NO_STORE, Ordering::Release);
        true
    }

    /// Publishes the status. Returns true if it changed. A change of the lease alone does not
    /// count, because other stores do not need it.
    pub(super) fn publish_status(&self, mut status: Option<RegionStatus>) -> bool {
        if let Some(status) = &mut status {
            status.lease = None;
        }
        let mut known = self.status.lock();
        let has_changed = *known != status;
        *known = status;
        has_changed
    }

    /// Marks the region. Returns true for the first call since `untouch`. Usually costs one load.
    pub(super) fn touch(&self) -> bool {
        !self.touched.load(Ordering::Relaxed) && !self.touched.swap(true, Ordering::AcqRel)
    }

    pub(super) fn untouch(&self) {
        self.touched.store(false, Ordering::Release);
    }

    pub fn status(&self) -> Option<RegionStatus> {
        self.status.lock().clone()
    }

    pub(super) fn set_lease(&self, until: Option<BootNanos>) {
        self.lease_until.store(until.unwrap_or(0), Ordering::Release);
    }

    /// Returns true if this reader must demand the lease from the worker. One reader does so per
    /// interval.
    pub fn should_want_lease(&self, now: BootNanos) -> bool {
        let last = self.lease_wanted.load(Ordering::Relaxed);
        now.saturating_sub(last) > LEASE_DEMAND_NANOS
            && self.lease_wanted.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(super) fn set_applied(&self, index: LogIndex, stamp_ms: UnixMillis) {
        self.last_stamp_ms.store(stamp_ms, Ordering::Release);
        self.applied.store(index, Ordering::Release);
    }

    /// Records a leader's report that every peer's log holds everything through `index`. Returns
    /// true if that is new.
    pub(super) fn held_by_all(&self, index: LogIndex) -> bool {
        self.held_by_all.fetch_max(index, Ordering::AcqRel) < index
    }

    pub fn applied(&self) -> LogIndex {
        self.applied.load(Ordering::Acquire)
    }

    /// Records that this store is about to announce to another one that entries are committed
    /// through `index`.
    pub fn announce(&self, index: LogIndex) {
        self.announced.fetch_max(index, Ordering::AcqRel);
    }

    /// Locks the known freshness of the rows here.
    pub fn freshness(&self) -> MutexGuard<'_, Freshness> {
        self.freshness.lock()
    }

    /// Returns the region's time: the last stamp applied here.
    pub fn last_stamp_ms(&self) -> UnixMillis {
        self.last_stamp_ms.load(Ordering::Acquire)
    }

    /// Returns the time at which a read of this region is executed.
    pub fn read_time(&self, clock_ms: UnixMillis) -> UnixMillis {
        clock_ms.max(self.last_stamp_ms.load(Ordering::Acquire))
    }
}

/// Two values are equal if they belong to one region.
impl PartialEq for RegionShared {
    fn eq(&self, other: &RegionShared) -> bool {
        self.id == other.id
    }
}

impl Local for RegionShared {
    type Token = RowsToken;

    /// Returns `None` while there is no peer here, while a snapshot replaces the rows, or while the
    /// peer is quarantined. Reads between two equal tokens saw the complete rows of the region.
    fn rows(&self) -> Option<RowsToken> {
        let replacements = self.replacements.load(Ordering::SeqCst);
        let is_there = replacements % 2 == 0 && self.is_local() && self.is_readable.load(Ordering::SeqCst);
        is_there.then_some(RowsToken(replacements))
    }

    fn lease_holds(&self, now: BootNanos) -> bool {
        now < self.lease_until.load(Ordering::Acquire)
    }

    fn announced(&self) -> LogIndex {
        self.announced.load(Ordering::Acquire)
    }

    fn applied(&self) -> LogIndex {
        RegionShared::applied(self)
    }

    fn slots_here(&self) -> SlotRange {
        self.slots_or_all()
    }

    fn version_here(&self) -> u64 {
        self.descriptor().epoch.version
    }
}

fn packed(slots: Option<SlotRange>) -> u32 {
    slots.map_or(NO_SLOTS, |range| u32::from(range.first) << 16 | u32::from(range.last))
}

// No range of slots equals `NO_SLOTS`.
const _: () = assert!(types::SLOT_COUNT < Slot::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> RegionShared {
        let descriptor = RegionDescriptor::founded(1, None, &[]);
        RegionShared::new(descriptor, false)
    }

    #[test]
    fn what_is_heard_does_not_change_what_is_applied() {
        let slots = Some(SlotRange { first: 0, last: types::SLOT_COUNT - 1 });
        let founded = RegionDescriptor::founded(1, slots, &[0, 1, 2]);
        let region = RegionShared::new(founded.clone(), true);
        assert_eq!(region.slots(), Some(SlotRange::ALL));
        let split = types::RegionChange::Split { at: 100, new_region: 2 };
        let after = founded.after(&split).unwrap().region;
        assert!(region.learn(&after), "slots move");
        assert!(!region.learn(&after), "the descriptor is known");
        assert_eq!((region.slots(), region.newest().slots), (Some(SlotRange::ALL), after.slots));
        assert!(!region.set_local(&after), "the table already has it");
        assert_eq!(region.slots(), after.slots);
        assert!(!region.learn(&founded), "the report is older");
    }

    #[test]
    fn without_a_peer_the_newest_word_stands() {
        let slots = Some(SlotRange { first: 7, last: 9 });
        let founded = RegionDescriptor::founded(1, slots, &[0]);
        let region = RegionShared::new(founded.clone(), true);
        let split = types::RegionChange::Split { at: 9, new_region: 2 };
        let after = founded.after(&split).unwrap().region;
        region.learn(&after);
        region.set_lease(Some(100));
        region.remove_local();
        assert!(!region.is_local() && !region.lease_holds(1));
        assert_eq!(*region.descriptor(), after);
        assert_eq!(region.slots(), Some(SlotRange { first: 7, last: 8 }));
    }

    #[test]
    fn rows_that_went_and_came_are_other_rows() {
        let founded = RegionDescriptor::founded(1, None, &[0]);
        let region = RegionShared::new(founded.clone(), true);
        let first = region.rows().unwrap();
        region.set_local(&founded);
        assert_eq!(region.rows(), Some(first), "applied entries do not replace the rows");
        region.begin_replacing();
        assert_eq!(region.rows(), None);
        region.set_local(&founded);
        let second = region.rows().unwrap();
        assert_ne!(second, first);
        region.remove_local();
        assert_eq!(region.rows(), None);
        region.set_local(&founded);
        assert!(![first, second].contains(&region.rows().unwrap()));
    }

    #[test]
    fn hearsay_never_displaces_a_later_term() {
        let region = region();
        assert!(region.set_leadership(Leadership { term: 5, leader: Some(1) }).is_some());
        assert!(region.hear_leader(4, 2).is_none());
        assert!(region.hear_leader(5, 2).is_none());
        assert_eq!(region.leader(), Some(1));
        assert!(region.hear_leader(6, 2).is_some());
        assert_eq!(region.leader(), Some(2));
        assert!(region.set_leadership(Leadership { term: 5, leader: None }).is_none());
        assert!(region.set_leadership(Leadership { term: 6, leader: None }).is_some());
        assert!(region.hear_leader(6, 2).is_some());
    }

    #[test]
    fn what_all_hold_is_news_once() {
        let region = region();
        assert!(region.held_by_all(7) && !region.held_by_all(7) && !region.held_by_all(5));
        assert!(region.held_by_all(8));
    }

    #[test]
    fn a_regions_read_time_never_goes_back() {
        let region = region();
        region.set_applied(3, 1_000);
        assert_eq!(region.read_time(900), 1_000);
        assert_eq!(region.read_time(1_100), 1_100);
    }
}
