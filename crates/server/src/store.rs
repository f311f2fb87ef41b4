//! The store: the parts that its connections, threads and tasks share.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use command::Spanning;
use parking_lot::{Mutex, RwLock};
use resp::Reply;
use types::{RegionDescriptor, Slot, StoreId, Version};

use crate::access::Access;
use crate::audit_queue::AuditQueue;
use crate::blocked::Blocked;
use crate::budget::{Budget, LiveBudget};
use crate::capability::{Measurer, OwnCapability};
use crate::check_schedule::CheckSchedule;
use crate::checkpoints::Checkpoints;
use crate::client_memory::ClientMemory;
use crate::client_pause::ClientPause;
use crate::client_socket::HANDSHAKE_MEMORY;
use crate::cluster_state::ClusterState;
use crate::config::Config;
use crate::connections::Clients;
use crate::consistency_checks::Checks;
use crate::copies::Copies;
use crate::datadir::DataDir;
use crate::device_waits::Hanging;
use crate::disk::Disk;
use crate::ends::Ends;
use crate::engine::Engine;
use crate::executor::{Levels, Parts};
use crate::expiry::Expirer;
use crate::functions::Functions;
use crate::large_replies::LargeReplies;
use crate::loops::{Loops, WorkerSender};
use crate::members::Members;
use crate::membership::{Membership, Reach};
use crate::metrics::Metrics;
use crate::proposals::Proposals;
use crate::pubsub::mailbox::MessageMemory;
use crate::pubsub::notices::Notices;
use crate::pubsub::spread::Spread;
use crate::pubsub::PubSub;
use crate::quarantines::Quarantines;
use crate::regions::{RegionShared, Regions};
use crate::scripts::Scripts;
use crate::seekers::Seekers;
use crate::settings::Settings;
use crate::snapshot::SnapshotService;
use crate::statistics::Statistics;
use crate::tls::Tls;
use crate::transport::{Identity, Transport};
use crate::unsynced::Unsynced;
use crate::wall_clock::WallClock;
use node::{Item, ItemSlot};

pub struct Store {
    pub id: StoreId,
    pub config: Arc<Config>,
    pub settings: Arc<RwLock<Settings>>,
    /// The options of RocksDB that `CONFIG SET` has changed.
    pub rocksdb_changes: Mutex<BTreeSet<String>>,
    /// Held while settings are changed that wait for files or memory, one change at a time.
    pub changing_settings: Mutex<()>,
    /// The initial layout of the cluster, as text.
    pub layout: String,
    pub membership: Arc<Membership>,
    pub regions: Arc<Regions>,
    pub engine: Arc<Engine>,
    /// The loops that serve clients. The first one owns the Raft groups.
    pub loops: Loops,
    pub worker: WorkerSender,
    pub proposals: Proposals,
    pub transport: Arc<Transport>,
    snapshots: OnceLock<Arc<SnapshotService>>,
    pub cluster: Arc<ClusterState>,
    pub clients: Arc<Clients>,
    /// The clients that wait for elements.
    pub blocked: Arc<Blocked>,
    pub copies: Copies,
    pub client_memory: Arc<ClientMemory>,
    /// Keyspace notifications.
    pub notices: Arc<Notices>,
    /// The publications for the clients of other stores.
    pub spread: Arc<Spread>,
    pub budget: Arc<LiveBudget>,
    pub large_replies: LargeReplies,
    pub metrics: Arc<Metrics>,
    /// The costs of this store's commands.
    pub statistics: Statistics,
    pub capability: Arc<OwnCapability>,
    pub disk: Arc<Disk>,
    /// The clock for all stamps, and for reads at a time.
    pub wall: Arc<WallClock>,
    /// The state of the device.
    pub hanging: Hanging,
    pub levels: Arc<Levels>,
    pub checkpoints: Arc<Checkpoints>,
    pub client_pause: ClientPause,
    /// Comparison of replicas.
    pub checks: Arc<Checks>,
    /// The peers that may have lost acknowledged entries in a crash of the machine.
    pub unsynced: Arc<Unsynced>,
    /// This store's peers that do not execute their log.
    pub quarantines: Arc<Quarantines>,
    /// The peers here that seek a leader, and this store's session with ZooKeeper.
    pub seekers: Arc<Seekers>,
    pub ends: Arc<Ends>,
    /// The users of clients.
    pub access: Arc<Access>,
    /// The certificates for clients and other stores.
    pub tls: Arc<Tls>,
    /// The scripts that clients name by their digests.
    pub scripts: Scripts,
    /// The libraries of functions.
    pub functions: Arc<Functions>,
    /// The changes by this store that the audit log does not have yet.
    pub audit: AuditQueue,
}

/// The inputs of a store: its configuration and the contents of its directory.
pub struct Found<'a> {
    pub config: Config,
    pub dir: DataDir,
    pub identity: Arc<Identity>,
    pub members: Members,
    /// The regions with a peer here.
    pub local: &'a [RegionDescriptor],
    /// The initial regions of the cluster.
    pub others: &'a [RegionDescriptor],
    pub engine: Arc<Engine>,
    pub meta: cluster::MetaState,
    pub unsynced: Unsynced,
}

/// The destination of a command.
pub enum Route {
    Region(Arc<RegionShared>),
    /// The command is about the whole keyspace.
    Every(Spanning),
    /// The slot's region is unknown.
    Unknown(Slot),
}

impl Store {
    pub fn new(found: Found<'_>, loops: Loops) -> Store {
        let Found { config, dir, identity, members, local, others, engine, meta, unsynced } = found;
        let certificates = identity.certificates();
        let config = Arc::new(config);
        let budget = Budget::of(config.maxmemory);
        let metrics = Arc::new(Metrics::new());
        let cluster = Arc::new(ClusterState::new(meta, &config));
        let leaders = metrics.leaders.clone();
        let ends = Arc::new(Ends::new(config.store, config.dir.clone()));
        let regions = Regions::new(config.store, local, others, cluster.report_soon.clone(), leaders);
        let settings = Arc::new(RwLock::new(Settings::from_config(&config)));
        let live_budget = Arc::new(LiveBudget::new(config.maxmemory));
        let client_memory = ClientMemory::new(budget.clients);
        let messages = MessageMemory::new(client_memory.clone(), budget.clients / 2);
        let pubsub = Arc::new(PubSub::new(messages));
        let clients = Arc::new(Clients::new(pubsub.clone()));
        let notices = Notices::new(pubsub);
        notices.set(config.keyspace_events);
        clients.pubsub.tracking.set_keys_max(config.tracking_keys_max);
        client_memory.set_limits(config.output_limits);
        let agreed = &members.agreed;
        let access = Access::new(settings.clone(), clients.clone(), agreed.version, agreed.users.clone());
        let access = Arc::new(access);
        let functions = Arc::new(Functions::new(&config.dir, agreed.libraries));
        let reach = Reach {
            config: config.clone(),
            settings,
            access: access.clone(),
            functions: functions.clone(),
            engine: engine.clone(),
            cluster: cluster.clone(),
            regions: Arc::new(regions),
            transport: Arc::new(Transport::new(identity.clone(), budget.messages)),
            wall: Arc::new(WallClock::new(members.agreed.settings.max_clock_offset_ms)),
        };
        let checks = Checks::new(
            config.store,
            reach.regions.clone(),
            engine.clone(),
            metrics.clone(),
            loops.worker(),
            ends.clone(),
            cluster.report_soon.clone(),
        );
        let quarantines = Quarantines::new(
            config.store,
            reach.regions.clone(),
            metrics.clone(),
            cluster.report_soon.clone(),
        );
        let statistics = Statistics::new(loops.all().len(), &config.statistics, metrics.slow_moments.clone());
        Store {
            id: config.store,
            settings: reach.settings.clone(),
            rocksdb_changes: Mutex::default(),
            changing_settings: Mutex::default(),
            layout: dir.identity().layout.clone(),
            proposals: Proposals {
                worker: loops.worker(),
                regions: reach.regions.clone(),
                metrics: metrics.clone(),
            },
            regions: reach.regions.clone(),
            transport: reach.transport.clone(),
            spread: Spread::new(reach.transport.clone(), config.request_timeout),
            wall: reach.wall.clone(),
            membership: Arc::new(Membership::new(identity, dir, members, reach)),
            engine,
            worker: loops.worker(),
            loops,
            snapshots: OnceLock::new(),
            cluster,
            clients,
            access,
            tls: Arc::new(Tls::new(
                certificates,
                config.store,
                budget.handshakes() as usize / HANDSHAKE_MEMORY,
            )),
            scripts: Scripts::default(),
            functions,
            blocked: Arc::default(),
            client_memory,
            notices: Arc::new(notices),
            large_replies: LargeReplies::new(live_budget.clone()),
            budget: live_budget,
            statistics,
            metrics,
            capability: Arc::new(OwnCapability::load(&config)),
            disk: Arc::new(Disk::new(config.dir.clone(), config.reserve_bytes)),
            hanging: Hanging::default(),
            levels: Arc::default(),
            checkpoints: Arc::new(Checkpoints::new()),
            client_pause: ClientPause::default(),
            copies: Copies::default(),
            checks: Arc::new(checks),
            unsynced: Arc::new(unsynced),
            quarantines: Arc::new(quarantines),
            seekers: Arc::default(),
            ends,
            audit: AuditQueue::load(&config.dir),
            config,
        }
    }

    /// Changes `maxmemory`. Blocks until the rows are within their new limit. The other parts that
    /// hold more give it back as what they hold is used up.
    ///
    /// # Errors
    /// If RocksDB refuses the sizes. Nothing is changed then.
    pub fn set_maxmemory(&self, maxmemory: u64) -> Result<(), rocks::OptionError> {
        let budget = Budget::of(maxmemory);
        let changed = self.rocksdb_changes.lock().clone();
        let is_configured =
            |name: &str| changed.contains(name) || self.config.rocksdb.iter().any(|(other, _)| other == name);
        self.engine.rows().set_memory(budget.rows, budget.block_cache, &is_configured)?;
        let wanted = self.engine.rows().options().memory_bytes();
        if wanted > maxmemory {
            tracing::warn!(wanted, maxmemory, "RocksDB's options take more memory than maxmemory");
        }
        self.budget.set(maxmemory);
        self.levels.set_entry_budget(budget.entries);
        self.client_memory.set_budget(budget.clients);
        self.clients.pubsub.set_message_budget(budget.clients / 2);
        self.transport.set_bytes(budget.messages);
        self.tls.set_handshakes(budget.handshakes() as usize / HANDSHAKE_MEMORY);
        tracing::info!(
            maxmemory,
            "maxmemory was changed until the next start, unless CONFIG REWRITE saves it"
        );
        Ok(())
    }

    /// Returns the parts that the threads of the groups need.
    pub fn executor(&self) -> Parts {
        Parts {
            config: self.config.clone(),
            budget: self.budget.clone(),
            regions: self.regions.clone(),
            engine: self.engine.clone(),
            cluster: self.cluster.clone(),
            disk: self.disk.clone(),
            log_clock: self.capability.log.clone(),
            metrics: self.metrics.clone(),
            wall: self.wall.clone(),
            version: self.membership.version.clone(),
            transport: self.transport.clone(),
            worker: self.worker.clone(),
            levels: self.levels.clone(),
            checkpoints: self.checkpoints.clone(),
            checks: self.checks.clone(),
            blocked: self.blocked.clone(),
            notices: self.notices.clone(),
            spread: self.spread.clone(),
            unsynced: self.unsynced.clone(),
            seekers: self.seekers.clone(),
            quarantines: self.quarantines.clone(),
            ends: self.ends.clone(),
        }
    }

    /// Returns the parts that measuring the device needs.
    pub fn measurer(&self) -> Measurer {
        Measurer {
            config: self.config.clone(),
            own: self.capability.clone(),
            disk: self.disk.clone(),
            metrics: self.metrics.clone(),
            cluster: self.cluster.clone(),
            membership: self.membership.clone(),
            regions: self.regions.clone(),
            ends: self.ends.clone(),
        }
    }

    /// Returns the parts that ordering checks needs.
    pub fn check_schedule(&self) -> CheckSchedule {
        CheckSchedule {
            this: self.id,
            config: self.config.clone(),
            regions: self.regions.clone(),
            engine: self.engine.clone(),
            cluster: self.cluster.clone(),
            proposals: self.proposals.clone(),
            checks: self.checks.clone(),
        }
    }

    /// Returns the parts that the search for expired keys needs.
    pub fn expirer(&self) -> Expirer {
        Expirer {
            config: self.config.clone(),
            regions: self.regions.clone(),
            engine: self.engine.clone(),
            wall: self.wall.clone(),
            proposals: self.proposals.clone(),
            ends: self.ends.clone(),
        }
    }

    /// Sets the snapshot service, once, before the region threads begin.
    pub fn set_snapshots(&self, snapshots: Arc<SnapshotService>) {
        assert!(self.snapshots.set(snapshots).is_ok(), "the snapshot service is started once");
    }

    pub fn snapshots(&self) -> &SnapshotService {
        self.snapshots.get().expect("the service is started before anything is sent")
    }

    /// Returns the number of snapshots that were sent.
    pub fn snapshots_sent(&self) -> u64 {
        self.snapshots.get().map_or(0, |snapshots| snapshots.counts().sent)
    }

    /// Returns the bytes of deleted keys and values whose space is not reclaimed yet.
    pub fn to_reclaim(&self) -> u64 {
        self.snapshots.get().map_or(0, |snapshots| snapshots.to_reclaim())
    }

    /// Returns the destination of a command: by its slot, or every region if it has no keys.
    pub fn route(&self, item: &Item) -> Result<Route, Reply> {
        let (since, version) = (item.spec.cluster_version, self.membership.version.get());
        if since > version {
            return Err(needs_version(item.spec.name, since, version));
        }
        let is_clustered = self.config.cluster_enabled;
        let slot = match item.slot {
            ItemSlot::One(slot) if is_clustered => slot,
            ItemSlot::Several if is_clustered => {
                return Err(Reply::error("CROSSSLOT Keys in request don't hash to the same slot"))
            }
            ItemSlot::Any | ItemSlot::One(_) | ItemSlot::Several => match item.spec.spanning() {
                Some(spanning) if is_clustered || spanning == Spanning::Cursor => {
                    return Ok(Route::Every(spanning))
                }
                // Without slots, one region has every key.
                _ => 0,
            },
        };
        Ok(self.regions.of_slot(slot).map_or(Route::Unknown(slot), Route::Region))
    }

    /// Lets a client cache the keys of a read whose reply is encoded. It is told of their changes
    /// if this store has a copy of their region.
    pub fn settle_reads(&self, client: u64, keys: &[bytes::Bytes]) {
        let is_told = |slot| self.regions.of_slot(slot).is_some_and(|region| region.is_local());
        self.clients.pubsub.tracking.settle(client, keys, is_told);
    }

    /// Returns true if this store knows a leader for every region and is not about to stop.
    pub fn is_healthy(&self) -> bool {
        !self.ends.is_leaving() && self.regions.are_all_led()
    }
}

/// Returns the error for a command that stores of an earlier version would not know.
fn needs_version(name: &str, since: Version, version: Version) -> Reply {
    Reply::error(format!(
        "ERR '{name}' needs version {since} of the cluster, and it has {version}: see steelyard ctl versions"
    ))
}
