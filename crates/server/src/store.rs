//! The store: what its connections, threads and tasks share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crossbeam_channel::Sender;
use parking_lot::RwLock;
use resp::Reply;
use tokio::sync::Notify;
use types::{RegionDescriptor, RegionId, Slot, StoreId, META_REGION};

use crate::client::Clients;
use crate::cluster_state::ClusterState;
use crate::config::{Config, Member};
use crate::disk::Disk;
use crate::dispatch::{Item, ItemSlot};
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::region::inbox::ToWorker;
use crate::region::shared::RegionShared;
use crate::regions::Regions;
use crate::settings::Settings;
use crate::transport::Transport;

pub struct Store {
    pub id: StoreId,
    pub config: Config,
    pub settings: RwLock<Settings>,
    pub layout_digest: u64,
    /// Every region of the cluster, those without a peer here too.
    pub regions: Regions,
    members: ArcSwap<Vec<Member>>,
    pub engine: Arc<Engine>,
    pub worker: Sender<ToWorker>,
    transport: OnceLock<Transport>,
    pub cluster: ClusterState,
    pub clients: Clients,
    pub metrics: Metrics,
    pub disk: Disk,
    /// Rung whenever the leader of any region changes.
    pub leader_news: Notify,
    pub stopping: AtomicBool,
}

/// Where a command goes.
pub enum Route {
    Region(Arc<RegionShared>),
    Every,
    /// Nobody is known to have the slot.
    Unknown(Slot),
}

impl Store {
    pub fn new(
        config: Config,
        layout_digest: u64,
        regions: Regions,
        engine: Arc<Engine>,
        meta: cluster::MetaState,
        worker: Sender<ToWorker>,
    ) -> Store {
        Store {
            id: config.store,
            settings: RwLock::new(Settings::from_config(&config)),
            layout_digest,
            members: ArcSwap::from_pointee(config.members.clone()),
            engine,
            worker,
            transport: OnceLock::new(),
            cluster: ClusterState::new(meta),
            regions,
            clients: Clients::default(),
            metrics: Metrics::new(),
            disk: Disk::new(config.dir.clone(), config.reserve_bytes),
            leader_news: Notify::new(),
            stopping: AtomicBool::new(false),
            config,
        }
    }

    /// Set once, when the links are started.
    pub fn set_transport(&self, transport: Transport) {
        assert!(self.transport.set(transport).is_ok(), "the links are started once");
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

    /// The stores of the cluster as this one knows them, sorted by id.
    pub fn members(&self) -> Arc<Vec<Member>> {
        self.members.load_full()
    }

    pub fn member(&self, id: StoreId) -> Option<Member> {
        self.members.load().iter().find(|member| member.id == id).cloned()
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
    pub fn learn_regions(&self, heard: &[RegionDescriptor]) {
        if self.regions.learn(heard) {
            self.leader_news.notify_waiters();
        }
    }

    /// What this store's peers have applied of their regions' descriptors: see `Regions::set_local`. To be
    /// called before anything else can act on it.
    pub fn set_local_regions(&self, descriptors: &[RegionDescriptor]) {
        self.regions.set_local(descriptors);
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
