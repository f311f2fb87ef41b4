//! The store: what its connections, threads and tasks share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use cluster::{AgreedSettings, StoreState};
use parking_lot::{Mutex, RwLock};
use resp::Reply;
use types::{RegionDescriptor, Slot, StoreId};

use crate::budget::Budget;
use crate::capability::OwnCapability;
use crate::cluster_state::ClusterState;
use crate::config::{Config, Member};
use crate::connections::memory::ClientMemory;
use crate::connections::Clients;
use crate::datadir::DataDir;
use crate::disk::Disk;
use crate::ends::Ends;
use crate::engine::Engine;
use crate::joining::JoinRate;
use crate::loops::{Loops, WorkerSender};
use crate::members::{AgreedMembers, Members};
use crate::metrics::Metrics;
use crate::region::{Levels, Parts};
use crate::regions::{RegionShared, Regions};
use crate::settings::Settings;
use crate::snapshot::SnapshotService;
use crate::transport::{Identity, Transport};
use crate::wall_clock::WallClock;
use node::{Item, ItemSlot};

/// Strangers who say that they are members do not make this store ask more often than that.
const ASK_AGAIN_NANOS: u64 = 100_000_000;

pub struct Store {
    pub id: StoreId,
    pub config: Arc<Config>,
    pub settings: RwLock<Settings>,
    /// With which the cluster began, in words.
    pub layout: String,
    pub identity: Arc<Identity>,
    dir: Mutex<DataDir>,
    /// Every region of the cluster, those without a peer here too.
    pub regions: Arc<Regions>,
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
    pub transport: Arc<Transport>,
    snapshots: OnceLock<Arc<SnapshotService>>,
    pub cluster: Arc<ClusterState>,
    pub clients: Arc<Clients>,
    pub client_memory: Arc<ClientMemory>,
    pub budget: Budget,
    pub metrics: Arc<Metrics>,
    pub capability: Arc<OwnCapability>,
    pub disk: Arc<Disk>,
    /// The clock for everything that is stamped, or read at a time.
    pub wall: Arc<WallClock>,
    pub levels: Arc<Levels>,
    pub ends: Arc<Ends>,
}

/// What a store is made of: what it was told, and what its directory holds.
pub struct Found<'a> {
    pub config: Config,
    pub dir: DataDir,
    pub identity: Arc<Identity>,
    pub members: Members,
    /// The regions with a peer here.
    pub local: &'a [RegionDescriptor],
    /// Regions that the cluster began with.
    pub others: &'a [RegionDescriptor],
    pub engine: Arc<Engine>,
    pub meta: cluster::MetaState,
}

/// Where a command goes.
pub enum Route {
    Region(Arc<RegionShared>),
    Every,
    /// Nobody is known to have the slot.
    Unknown(Slot),
}

impl Store {
    pub fn new(found: Found<'_>, loops: Loops) -> Store {
        let Found { config, dir, identity, members, local, others, engine, meta } = found;
        let metrics = Metrics::new();
        let cluster = ClusterState::new(meta, &config);
        let leaders = metrics.leaders.clone();
        let regions = Regions::new(config.store, local, others, cluster.report_soon.clone(), leaders);
        let budget = Budget::of(config.maxmemory);
        let wall = WallClock::new(members.agreed.settings.max_clock_offset_ms);
        identity.set_members(members.keys());
        Store {
            id: config.store,
            settings: RwLock::new(Settings::from_config(&config)),
            layout: dir.identity().layout.clone(),
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
            transport: Arc::new(Transport::new(identity.clone(), budget.messages)),
            snapshots: OnceLock::new(),
            cluster: Arc::new(cluster),
            regions: Arc::new(regions),
            clients: Arc::default(),
            client_memory: ClientMemory::new(budget.clients),
            budget,
            metrics: Arc::new(metrics),
            capability: Arc::new(OwnCapability::load(&config)),
            disk: Arc::new(Disk::new(config.dir.clone(), config.reserve_bytes)),
            wall: Arc::new(wall),
            levels: Arc::default(),
            ends: Arc::new(Ends::new(config.store)),
            identity,
            config: Arc::new(config),
        }
    }

    /// What the threads need that carry out the groups' work.
    pub fn executor(&self) -> Parts {
        Parts {
            config: self.config.clone(),
            budget: self.budget,
            regions: self.regions.clone(),
            engine: self.engine.clone(),
            cluster: self.cluster.clone(),
            disk: self.disk.clone(),
            log_clock: self.capability.log.clone(),
            metrics: self.metrics.clone(),
            wall: self.wall.clone(),
            transport: self.transport.clone(),
            worker: self.worker.clone(),
            levels: self.levels.clone(),
            ends: self.ends.clone(),
        }
    }

    /// Set once, before the region threads begin.
    pub fn set_snapshots(&self, snapshots: Arc<SnapshotService>) {
        assert!(self.snapshots.set(snapshots).is_ok(), "the snapshot service is started once");
    }

    pub fn snapshots(&self) -> &SnapshotService {
        self.snapshots.get().expect("the service is started before anything is sent")
    }

    /// Bytes of keys and values that are gone, and whose space has yet to be given back.
    pub fn to_reclaim(&self) -> u64 {
        self.snapshots.get().map_or(0, |snapshots| snapshots.to_reclaim())
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
        self.transport.set_members(links);
        drop(changing);
        self.regions.leader_news.notify_waiters();
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

    /// Whether this store knows a leader for everything that it may be asked.
    pub fn is_healthy(&self) -> bool {
        !self.ends.is_stopping() && self.regions.are_all_led()
    }
}
