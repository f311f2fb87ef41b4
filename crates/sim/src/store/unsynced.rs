//! Stores that acknowledge before they sync, and the crashes of their machines.
//!
//! A quarter of the seeds has such stores. A crash of the machine loses the entries that the log
//! had not synced, and makes the store's peers unclean. As long as unclean peers take no part in
//! consensus, no entry that a majority acknowledged is lost, however many machines crash: regions
//! only wait. In most of these seeds a machine crashes only if every region keeps a majority, and
//! at the end all regions must be complete again. In the other seeds a region that waits for an
//! operator need not be complete at the end.

use types::{PeerRole, RegionDescriptor, StoreId, META_REGION};

use crate::clock::SECOND;
use crate::rng::Rng;
use crate::run::newest;
use crate::store::Process;
use crate::world::{Work, World};

/// The time at which a store syncs entries that need no sync before they are acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// The store syncs every entry before it acknowledges it.
    #[default]
    Always,
    EverySecond,
    Never,
}

/// The sync modes of the stores of a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Syncing {
    has_unsynced: bool,
    /// True if machines may crash although a region then has no majority.
    is_reckless: bool,
}

impl Syncing {
    /// Derives the kinds from the seed alone. The world's generator is not used, so that seeds
    /// without such stores run as before.
    pub fn of(seed: u64) -> Syncing {
        let mut rng = Rng::new(seed ^ 0x5359_4e43);
        Syncing { has_unsynced: rng.chance(25), is_reckless: rng.chance(20) }
    }

    pub fn has_unsynced(self) -> bool {
        self.has_unsynced
    }

    fn of_store(self, seed: u64, store: StoreId) -> Fsync {
        let mut rng = Rng::new(Rng::new(seed ^ 0x4653_594e).draw() ^ store);
        match rng.below(8) {
            _ if !self.has_unsynced => Fsync::Always,
            0 => Fsync::Always,
            1 => Fsync::Never,
            _ => Fsync::EverySecond,
        }
    }
}

impl World {
    /// Draws the kind of a store. Must be called before its first start.
    pub(crate) fn draw_fsync(&mut self, id: StoreId) {
        let fsync = self.syncing.of_store(self.seed, id);
        self.store_mut(id).fsync = fsync;
    }

    /// Returns true if the crash of a process also crashes its machine. Most do in seeds with
    /// unsynced stores, and none in other seeds.
    pub(crate) fn dies_with_its_machine(&mut self) -> bool {
        self.syncing.has_unsynced && self.rng.chance(60)
    }

    /// Schedules the sync of a store's writes in a second, if the store syncs every second.
    pub(super) fn sync_soon(&mut self, id: StoreId) {
        let is_timed = self.stores[&id].fsync == Fsync::EverySecond;
        let Some(process) = self.process(id).filter(|_| is_timed) else { return };
        if !std::mem::replace(&mut process.has_sync, true) {
            self.schedule_work(id, SECOND, Work::Sync);
        }
    }

    pub(super) fn sync(&mut self, id: StoreId) {
        self.stores[&id].durable.disk.sync();
        if let Some(process) = self.process(id) {
            process.has_sync = false;
        }
    }

    /// Syncs the log before a flush: rows must not be durable before the entries that created them.
    pub(super) fn sync_before_flush(&mut self, id: StoreId) {
        if self.stores[&id].fsync != Fsync::Always {
            self.stores[&id].durable.disk.sync();
        }
    }

    /// Returns true if the machine of a store may crash. The machine of an unsynced store must not
    /// crash if the store is a region's only voter, because acknowledged entries would be lost.
    /// Unless the seed is reckless, every region must also keep a majority.
    pub(crate) fn machine_may_crash(&self, id: StoreId) -> bool {
        let store = &self.stores[&id];
        let Some(process) = store.process.as_ref().filter(|_| store.fsync != Fsync::Always) else {
            return true;
        };
        let is_alone = |region: &RegionDescriptor| region.voters().eq([id]) && region.id != META_REGION;
        let of_log = process.shard.regions().filter_map(|region| process.shard.status(region, 0));
        if of_log.map(|status| status.descriptor).any(|region| is_alone(&region)) {
            return false;
        }
        let newest = newest(self);
        !newest.values().any(is_alone)
            && (self.syncing.is_reckless
                || newest.values().all(|region| self.has_majority(region, |store| store == id)))
    }

    /// Returns true if the store's peer of the region is unclean.
    pub(crate) fn is_unclean(&self, region: &RegionDescriptor, id: StoreId) -> bool {
        let (Some(store), Some(peer)) = (self.stores.get(&id), region.peer_on(id)) else { return false };
        let is_listed = store.mark.damaged.get(&region.id).is_some_and(|damaged| damaged.peer == peer.id);
        let is_silent = |process: &Process| process.shard.unclean().get(&region.id).copied() == Some(peer.id);
        is_listed || store.process.as_ref().is_some_and(is_silent)
    }

    /// Returns true if a majority of the region's voters is left without this store's peer.
    pub(super) fn has_majority_besides(&self, region: &RegionDescriptor, id: StoreId) -> bool {
        self.has_majority_of(region, |store| store != id)
    }

    /// Returns true if a majority of the region's voters is clean and on stores that are neither
    /// lost nor `left_out`. In a joint configuration both sets of voters need such a majority.
    pub(crate) fn has_majority(&self, region: &RegionDescriptor, left_out: impl Fn(StoreId) -> bool) -> bool {
        self.has_majority_of(region, |id| region.id == META_REGION || !left_out(id))
    }

    fn has_majority_of(&self, region: &RegionDescriptor, is_counted: impl Fn(StoreId) -> bool) -> bool {
        let is_there = |id: StoreId| {
            let store = self.stores.get(&id).filter(|store| !store.is_lost);
            let is_whole = store.is_some_and(|store| !store.durable.disk.is_wounded(region.id));
            is_whole && !self.is_unclean(region, id)
        };
        let counts = |id: StoreId| is_there(id) && is_counted(id);
        let old =
            region.peers.iter().filter(|peer| matches!(peer.role, PeerRole::Voter | PeerRole::Outgoing));
        let old: Vec<StoreId> = old.map(|peer| peer.store).collect();
        let new: Vec<StoreId> = region.voters().collect();
        let has = |voters: &Vec<StoreId>| 2 * voters.iter().filter(|&&id| counts(id)).count() > voters.len();
        has(&old) && has(&new)
    }
}
