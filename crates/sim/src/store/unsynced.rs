//! Stores that acknowledge before they sync, and what a crash of their machines makes of that.
//!
//! A quarter of the seeds has such stores. A machine's crash loses what its log had not synced; its
//! peers are unclean then. As long as unclean peers take no part, nothing is lost that a majority
//! acknowledged, however many machines crash: regions only wait. So in most of these seeds a
//! machine crashes only where every region keeps a majority, and the end must find all regions
//! whole again. In the others nothing is asked of the end of a region that waits for an operator.

use types::{PeerRole, RegionDescriptor, StoreId, META_REGION};

use crate::clock::SECOND;
use crate::rng::Rng;
use crate::run::newest;
use crate::world::{Work, World};

/// When a store syncs what need not be synced before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// There is no such thing.
    #[default]
    Always,
    EverySecond,
    Never,
}

/// How the stores of a seed sync.
#[derive(Clone, Copy, Debug, Default)]
pub struct Syncing {
    has_unsynced: bool,
    /// Machines crash whatever becomes of majorities.
    is_reckless: bool,
}

impl Syncing {
    /// Follows from the seed alone, so that other seeds go as if there were no such stores.
    pub fn of(seed: u64) -> Syncing {
        let mut rng = Rng::new(seed ^ 0x5359_4e43);
        Syncing { has_unsynced: rng.chance(25), is_reckless: rng.chance(20) }
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
    /// To be called before a store's first start.
    pub(crate) fn draw_fsync(&mut self, id: StoreId) {
        let fsync = self.syncing.of_store(self.seed, id);
        self.store_mut(id).fsync = fsync;
    }

    /// In seeds with unsynced stores many a process dies with its machine.
    pub(crate) fn dies_with_its_machine(&mut self) -> bool {
        self.syncing.has_unsynced && self.rng.chance(60)
    }

    /// What an unsynced store has written is durable within a second, or some day.
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

    /// Rows may reach flash only after the log that they were made of is synced.
    pub(super) fn sync_before_flush(&mut self, id: StoreId) {
        if self.stores[&id].fsync != Fsync::Always {
            self.stores[&id].durable.disk.sync();
        }
    }

    /// Whether the crash of a store's machine may be asked for. The only voter of a region that has
    /// not synced what it acknowledged would lose that, as a lone store does; and see above.
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

    /// Whether a majority of the region's voters, before and after a change that is under way, is
    /// on stores that are not lost, and clean, without those that are `left_out`.
    pub(crate) fn has_majority(&self, region: &RegionDescriptor, left_out: impl Fn(StoreId) -> bool) -> bool {
        let is_there = |id: StoreId| {
            let store = self.stores.get(&id).filter(|store| !store.is_lost);
            let is_unclean = |process: &super::Process| {
                let number = region.peer_on(id).map(|peer| peer.id);
                number.is_some() && process.shard.unclean().get(&region.id).copied() == number
            };
            store.is_some_and(|store| !store.process.as_ref().is_some_and(is_unclean))
        };
        let counts = |id: StoreId| is_there(id) && (region.id == META_REGION || !left_out(id));
        let old =
            region.peers.iter().filter(|peer| matches!(peer.role, PeerRole::Voter | PeerRole::Outgoing));
        let old: Vec<StoreId> = old.map(|peer| peer.store).collect();
        let new: Vec<StoreId> = region.voters().collect();
        let has = |voters: &Vec<StoreId>| 2 * voters.iter().filter(|&&id| counts(id)).count() > voters.len();
        has(&old) && has(&new)
    }
}
