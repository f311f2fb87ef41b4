//! The store: what its connections, threads and tasks share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::Sender;
use parking_lot::RwLock;
use resp::Reply;
use tokio::sync::Notify;
use types::{RegionId, Slot, StoreId, META_REGION};

use crate::client::Clients;
use crate::cluster_state::ClusterState;
use crate::config::{Config, Member};
use crate::disk::Disk;
use crate::dispatch::Item;
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::region::inbox::ToWorker;
use crate::region::shared::RegionShared;
use crate::settings::Settings;
use crate::transport::Transport;

pub struct Store {
    pub id: StoreId,
    pub config: Config,
    pub settings: RwLock<Settings>,
    pub layout_digest: u64,
    /// Every region of the cluster, those without a peer here too.
    pub regions: BTreeMap<RegionId, Arc<RegionShared>>,
    by_slot: Vec<Arc<RegionShared>>,
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

impl Store {
    pub fn new(
        config: Config,
        layout_digest: u64,
        regions: BTreeMap<RegionId, Arc<RegionShared>>,
        engine: Arc<Engine>,
        meta: cluster::MetaState,
        worker: Sender<ToWorker>,
    ) -> Store {
        let mut by_slot = Vec::with_capacity(usize::from(types::SLOT_COUNT));
        for region in regions.values() {
            if let Some(range) = region.descriptor.slots {
                assert_eq!(by_slot.len(), usize::from(range.first), "regions cover the slots in order");
                by_slot.resize(usize::from(range.last) + 1, region.clone());
            }
        }
        assert_eq!(by_slot.len(), usize::from(types::SLOT_COUNT), "regions cover every slot");
        Store {
            id: config.store,
            settings: RwLock::new(Settings::from_config(&config)),
            layout_digest,
            by_slot,
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

    pub fn user_regions(&self) -> impl Iterator<Item = &Arc<RegionShared>> {
        self.regions.values().filter(|region| region.id() != META_REGION)
    }

    pub fn member(&self, id: StoreId) -> Option<&Member> {
        self.config.members.iter().find(|member| member.id == id)
    }

    /// Whether the store has been heard of lately; this one always has.
    pub fn is_heard(&self, id: StoreId) -> bool {
        id == self.id || self.cluster.is_up(id, crate::clock::boot_nanos())
    }

    /// The slot of a command's first key.
    pub fn slot_of(&self, item: &Item) -> Option<Slot> {
        let (first, _) = command::keys_of(item.spec, &item.args).next()?;
        Some(types::slot_of_key(first))
    }

    /// The region of a command's keys; `None` when it has none and concerns all of them.
    pub fn region_of(&self, item: &Item) -> Result<Option<Arc<RegionShared>>, Reply> {
        if !self.config.cluster_enabled {
            // One region holds every key, and a command without keys is about that region too.
            return Ok(match item.spec.name {
                "scan" => None,
                _ => Some(self.by_slot[0].clone()),
            });
        }
        let mut slots = command::keys_of(item.spec, &item.args).map(|(key, _)| types::slot_of_key(key));
        let Some(slot) = slots.next() else { return Ok(None) };
        if slots.any(|other| other != slot) {
            return Err(Reply::error("CROSSSLOT Keys in request don't hash to the same slot"));
        }
        Ok(Some(self.by_slot[usize::from(slot)].clone()))
    }

    /// Told of every change, after it is visible.
    pub fn leader_changed(&self, region: &RegionShared, before: Option<StoreId>) {
        let after = region.leader();
        if before == after {
            return;
        }
        let led = self.regions.values().filter(|region| region.leader() == Some(self.id)).count();
        self.metrics.leaders.set(led as i64);
        tracing::debug!(region = region.id(), ?before, ?after, "leader changed");
        self.leader_news.notify_waiters();
        if before == Some(self.id) || after == Some(self.id) {
            self.cluster.report_soon.notify_one();
        }
    }

    /// Whether every region that has a peer here has a leader.
    pub fn is_healthy(&self) -> bool {
        !self.stopping.load(Ordering::Relaxed)
            && self.regions.values().all(|region| region.leader().is_some())
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
