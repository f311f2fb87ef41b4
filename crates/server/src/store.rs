//! The store: what its connections, threads and tasks share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cluster::{AgreedSettings, StoreState};
use parking_lot::{Mutex, RwLock};
use replica::{EntryMemory, RegionStatus};
use resp::Reply;
use tokio::sync::Notify;
use types::{RegionDescriptor, RegionId, Slot, StoreId, META_REGION};

use crate::budget::Budget;
use crate::capability::OwnCapability;
use crate::client::memory::ClientMemory;
use crate::client::Clients;
use crate::cluster_state::ClusterState;
use crate::config::{Config, Member};
use crate::datadir::DataDir;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::joining::JoinRate;
use crate::members::{AgreedMembers, Members};
use crate::metrics::Metrics;
use crate::reactor::{Loops, WorkerSender};
use crate::region::shared::RegionShared;
use crate::regions::Regions;
use crate::settings::Settings;
use crate::snapshot::SnapshotService;
use crate::transport::{Identity, Transport};
use crate::wall_clock::WallClock;
use node::{Item, ItemSlot};

/// Strangers who say that they are members do not make this store ask more often than that.
const ASK_AGAIN_NANOS: u64 = 100_000_000;

pub struct Store {
    pub id: StoreId,
    pub config: Config,
    pub settings: RwLock<Settings>,
    /// With which the cluster began, in words.
    pub layout: String,
    pub identity: Arc<Identity>,
    dir: Mutex<DataDir>,
    /// Every region of the cluster, those without a peer here too.
    pub regions: Regions,
    members: ArcSwap<Members>,
    /// Held by whoever makes the next list.
    changing_members: Mutex<()>,
    /// Whether another store is being asked for its list of stores.
    fetching: AtomicBool,
    /// When one was last asked because somebody came whom this store does not know.
    asked_at: AtomicU64,
    /// For how many joins there is room, while this store leads the meta region.
    pub joins: Mutex<JoinRate>,
    /// The same for stores that joined before and ask again.
    pub joins_again: Mutex<JoinRate>,
    pub engine: Arc<Engine>,
    /// Those that serve clients; the first owns the Raft groups.
    pub loops: Loops,
    pub worker: WorkerSender,
    transport: OnceLock<Transport>,
    snapshots: OnceLock<SnapshotService>,
    pub cluster: ClusterState,
    pub clients: Clients,
    pub client_memory: Arc<ClientMemory>,
    pub budget: Budget,
    pub metrics: Metrics,
    pub capability: OwnCapability,
    pub disk: Disk,
    /// The clock for everything that is stamped, or read at a time.
    pub wall: WallClock,
    /// Regions of which the next heartbeat tells; see `touch`.
    touched: Mutex<Vec<RegionId>>,
    activity: AtomicU64,
    /// Rung whenever the leader of any region changes, or slots have moved.
    pub leader_news: Notify,
    /// Of entries that are handed out to be executed and wait, as the worker last published it.
    pub unapplied_bytes: AtomicU64,
    /// Of entries that are committed and wait in the log for room in that queue.
    pub withheld_bytes: AtomicU64,
    /// What is held of the Raft logs.
    pub entry_memory: OnceLock<Arc<EntryMemory>>,
    /// A flush is worth its cost before its time.
    pub flush_soon: AtomicBool,
    /// It hands over what it leads; other stores are told, so that nothing comes back.
    pub leaving: AtomicBool,
    pub stopping: AtomicBool,
    /// Rung when the store is to end by itself.
    pub ending: Notify,
}

/// Where a command goes.
pub enum Route {
    Region(Arc<RegionShared>),
    Every,
    /// Nobody is known to have the slot.
    Unknown(Slot),
}

impl Store {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        config: Config,
        dir: DataDir,
        identity: Arc<Identity>,
        members: Members,
        regions: Regions,
        engine: Arc<Engine>,
        meta: cluster::MetaState,
        loops: Loops,
    ) -> Store {
        let budget = Budget::of(config.maxmemory);
        let wall = WallClock::new(members.agreed.settings.max_clock_offset_ms);
        identity.set_members(members.keys());
        Store {
            id: config.store,
            settings: RwLock::new(Settings::from_config(&config)),
            layout: dir.identity().layout.clone(),
            identity,
            dir: Mutex::new(dir),
            members: ArcSwap::from_pointee(members),
            changing_members: Mutex::new(()),
            fetching: AtomicBool::new(false),
            asked_at: AtomicU64::new(0),
            joins: Mutex::new(JoinRate::new(Instant::now())),
            joins_again: Mutex::new(JoinRate::new(Instant::now())),
            engine,
            worker: loops.worker(),
            loops,
            transport: OnceLock::new(),
            snapshots: OnceLock::new(),
            cluster: ClusterState::new(meta, &config),
            regions,
            clients: Clients::default(),
            client_memory: ClientMemory::new(budget.clients),
            budget,
            metrics: Metrics::new(),
            capability: OwnCapability::load(&config),
            disk: Disk::new(config.dir.clone(), config.reserve_bytes),
            wall,
            touched: Mutex::new(Vec::new()),
            activity: AtomicU64::new(0),
            leader_news: Notify::new(),
            unapplied_bytes: AtomicU64::new(0),
            withheld_bytes: AtomicU64::new(0),
            entry_memory: OnceLock::new(),
            flush_soon: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            ending: Notify::new(),
            config,
        }
    }

    /// Bytes that are committed and not applied, wherever they wait.
    pub fn unapplied_bytes(&self) -> u64 {
        self.unapplied_bytes.load(Ordering::Relaxed) + self.withheld_bytes.load(Ordering::Relaxed)
    }

    /// Set once, when the links are started.
    pub fn set_transport(&self, transport: Transport) {
        assert!(self.transport.set(transport).is_ok(), "the links are started once");
    }

    /// Set once, before the region threads begin.
    pub fn set_snapshots(&self, snapshots: SnapshotService) {
        assert!(self.snapshots.set(snapshots).is_ok(), "the snapshot service is started once");
    }

    pub fn snapshots(&self) -> &SnapshotService {
        self.snapshots.get().expect("the service is started before anything is sent")
    }

    /// Bytes of keys and values that are gone, and whose space has yet to be given back.
    pub fn to_reclaim(&self) -> u64 {
        self.snapshots.get().map_or(0, SnapshotService::to_reclaim)
    }

    pub fn transport(&self) -> &Transport {
        self.transport.get().expect("links are started before anything is sent")
    }

    /// The regions that hold keys, as they are now, by id.
    pub fn user_regions(&self) -> Vec<Arc<RegionShared>> {
        let mut regions = self.regions.all();
        regions.retain(|region| region.id() != META_REGION);
        regions
    }

    /// The stores of the cluster as this one knows them.
    pub fn members(&self) -> Arc<Members> {
        self.members.load_full()
    }

    /// Returns the settings that every store uses, as this one last heard them.
    pub fn agreed_settings(&self) -> AgreedSettings {
        self.members.load().agreed.settings
    }

    pub fn member(&self, id: StoreId) -> Option<Member> {
        self.members.load().member(id).cloned()
    }

    /// Takes in a list of stores, if it is later than the one that is known: links begin and end by it.
    pub fn take_members(self: &Arc<Self>, agreed: AgreedMembers) {
        let changing = self.changing_members.lock();
        if agreed.version <= self.members.load().agreed.version {
            return;
        }
        tracing::info!(version = agreed.version, stores = agreed.stores.len(), "a new list of stores");
        let (before, after) = (self.members.load().agreed.settings, agreed.settings);
        if before != after {
            tracing::info!(?before, ?after, "the settings of the cluster have changed");
        }
        for record in agreed.stores.iter().filter(|record| record.state == StoreState::Removed) {
            self.cluster.forget(record.id);
            self.wall.forget(record.id);
        }
        let members = Members::new(&self.config, agreed);
        let links = members.list.iter().map(|member| (member.id, member.peer)).collect();
        self.identity.set_members(members.keys());
        self.members.store(Arc::new(members));
        if let Some(transport) = self.transport.get() {
            transport.set_members(links);
        }
        drop(changing);
        self.leader_news.notify_waiters();
        self.keep_soon();
    }

    /// What the cluster is called, once somebody says so. The first word counts.
    pub fn take_cluster_id(self: &Arc<Self>, cluster_id: u64) {
        if cluster_id != 0 && self.identity.take_cluster_id(cluster_id) {
            self.keep_soon();
        }
    }

    /// Writes down what is known of the cluster, beside the runtime: the device may be slow. What is not
    /// written is heard again; the next start only has to ask whom it knew before.
    fn keep_soon(self: &Arc<Self>) {
        let store = self.clone();
        tokio::task::spawn_blocking(move || {
            let mut dir = store.dir.lock();
            let members = store.members();
            if let Err(error) = dir.keep(store.identity.cluster_id(), &members.agreed) {
                tracing::warn!(%error, "what is known of the cluster cannot be kept");
            }
        });
    }

    /// Whether it is time to ask another store again for what nobody may know.
    pub fn may_ask_again(&self) -> bool {
        let (now, before) = (crate::clock::boot_nanos(), self.asked_at.load(Ordering::Acquire));
        let is_time = now.saturating_sub(before) >= ASK_AGAIN_NANOS;
        is_time && self.asked_at.compare_exchange(before, now, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// False: another store is being asked already.
    pub fn begin_fetch(&self) -> bool {
        !self.fetching.swap(true, Ordering::AcqRel)
    }

    pub fn end_fetch(&self) {
        self.fetching.store(false, Ordering::Release);
    }

    /// Whether the store has been heard of lately; this one always has.
    pub fn is_heard(&self, id: StoreId) -> bool {
        id == self.id || self.cluster.is_up(id, crate::clock::boot_nanos())
    }

    /// Where a command goes: by its slot, or to every region when it has no keys.
    pub fn route(&self, item: &Item) -> Result<Route, Reply> {
        let slot = match self.config.cluster_enabled {
            true => match item.slot {
                ItemSlot::One(slot) => slot,
                ItemSlot::Any => return Ok(Route::Every),
                ItemSlot::Several => {
                    return Err(Reply::error("CROSSSLOT Keys in request don't hash to the same slot"))
                }
            },
            // One region holds every key, and a command without keys is about that region too.
            false if item.spec.name == "scan" => return Ok(Route::Every),
            false => 0,
        };
        Ok(self.regions.of_slot(slot).map_or(Route::Unknown(slot), Route::Region))
    }

    /// The region of a slot that nobody was known to have, once somebody is.
    pub async fn region_of_slot(&self, slot: Slot, deadline: Instant) -> Option<Arc<RegionShared>> {
        loop {
            let news = self.leader_news.notified();
            match self.regions.of_slot(slot) {
                None if Instant::now() < deadline => {
                    let _ = tokio::time::timeout(Duration::from_millis(50), news).await;
                }
                known => return known,
            }
        }
    }

    /// Takes in what leaders say of their regions' ranges and peers.
    pub fn learn_regions<'a>(&self, heard: impl Iterator<Item = &'a RegionDescriptor>) {
        let table = self.regions.table();
        let is_news = |heard: &&RegionDescriptor| {
            table.get(heard.id).is_none_or(|known| heard.epoch.is_newer_than(known.newest().epoch))
        };
        let news: Vec<RegionDescriptor> = heard.filter(is_news).cloned().collect();
        if !news.is_empty() && self.regions.learn(&news) {
            self.leader_news.notify_waiters();
        }
    }

    /// Something about the region has changed that heartbeats tell.
    pub fn touch(&self, region: &RegionShared) {
        if region.touch() {
            self.touched.lock().push(region.id());
            self.activity.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stays the same while nothing happens in any region; while something does it rises now and then.
    pub fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    /// The regions in which something has changed since this was last asked.
    pub fn take_touched(&self) -> Vec<RegionId> {
        let touched = std::mem::take(&mut *self.touched.lock());
        // From here on a change is news again: what is reported is read after this.
        let table = self.regions.table();
        touched.iter().filter_map(|id| table.get(*id)).for_each(|region| region.untouch());
        if !touched.is_empty() {
            // What happened since they were touched was not counted.
            self.activity.fetch_add(1, Ordering::Relaxed);
        }
        touched
    }

    /// How the worker sees a region that is led here; `None`: it is not.
    pub fn publish_status(&self, region: &RegionShared, status: Option<RegionStatus>) {
        if region.publish_status(status) {
            self.touch(region);
        }
    }

    /// What this store's peers have applied of their regions' descriptors: see `Regions::set_local`. To be
    /// called before anything else can act on it.
    pub fn set_local_regions(&self, descriptors: &[RegionDescriptor]) {
        self.regions.set_local(descriptors);
        let table = self.regions.table();
        descriptors.iter().filter_map(|of| table.get(of.id)).for_each(|region| self.touch(region));
        self.leader_news.notify_waiters();
        self.cluster.report_soon.notify_one();
    }

    /// This store's peer of a region is gone.
    pub fn peer_gone(&self, region: RegionId) {
        let Some(shared) = self.regions.get(region) else { return };
        self.regions.remove_local(region);
        if shared.forget_leader(self.id) {
            self.leader_changed(&shared, Some(self.id));
        }
        self.touch(&shared);
        self.leader_news.notify_waiters();
    }

    /// Told of every change, after it is visible.
    pub fn leader_changed(&self, region: &RegionShared, before: Option<StoreId>) {
        let after = region.leader();
        if before == after {
            return;
        }
        if before == Some(self.id) {
            self.metrics.leaders.dec();
        } else if after == Some(self.id) {
            self.metrics.leaders.inc();
        }
        tracing::debug!(region = region.id(), ?before, ?after, "leader changed");
        self.touch(region);
        self.leader_news.notify_waiters();
        if before == Some(self.id) || after == Some(self.id) {
            self.cluster.report_soon.notify_one();
        }
    }

    /// Whether this store knows a leader for everything that it may be asked.
    pub fn is_healthy(&self) -> bool {
        let table = self.regions.table();
        !self.stopping.load(Ordering::Relaxed)
            && table.covers_all()
            && table.iter().all(|region| region.leader().is_some())
    }

    /// The store has nothing left to do, as it was asked: the process shuts down as after SIGTERM.
    pub fn end(&self, why: &str) {
        tracing::info!("{why}: the store stops");
        self.ending.notify_one();
    }

    /// A local failure that must not become a reply: the process ends, and the log tells the rest after
    /// the restart.
    pub fn fatal(&self, what: &str) -> ! {
        tracing::error!(what, "the store stops");
        eprintln!("steelyard: store {} stops: {what}", self.id);
        // Neither destructors nor exit handlers run: the engines' state is what we do not trust.
        // SAFETY: _exit ends the process and touches no memory of ours.
        unsafe { libc::_exit(70) }
    }
}
