//! From a configuration to a running store, and back to nothing.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use raftlog::{PeerLife, RaftLog};
use replica::PeerSeed;
use rocks::FlashKeyspace;
use tokio::net::TcpListener;
use types::{RegionDescriptor, RegionId};

use crate::client::{self, Door};
use crate::config::Config;
use crate::datadir::{DataDir, DataDirError};
use crate::engine::Engine;
use crate::region::apply::Applier;
use crate::region::flusher;
use crate::region::inbox::ToWorker;
use crate::region::log_writer::LogWriter;
use crate::region::proposals;
use crate::region::worker::RegionWorker;
use crate::regions::Regions;
use crate::store::Store;
use crate::transport::{self, Transport};
use crate::{admin, clock, expiry, heartbeat, inbound};

/// Why a store did not start, or ended otherwise than asked.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("configuration: {0}")]
    Config(String),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("the Raft log in {path} cannot be opened: {reason}")]
    Log { path: PathBuf, reason: String },
    #[error("the rows in {path} cannot be opened: {reason}")]
    Rows { path: PathBuf, reason: String },
    #[error("recovery: {0}")]
    Recovery(String),
}

/// How long a planned stop waits for other stores to take over.
const HAND_OVER: Duration = Duration::from_secs(1);

/// The rows' engine must not be closed under a reader: it gets this long to finish.
const DRAIN: Duration = Duration::from_millis(200);

/// At 50 ms a tick: an election after 0.75 to 1.5 s of silence, a heartbeat every 0.15 s.
const ELECTION_TICKS: u32 = 15;
const HEARTBEAT_TICKS: u32 = 3;

/// Runs a store until `shutdown` resolves. `ready` is called once it serves.
pub async fn run(
    config: Config,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    config.validate().map_err(StartError::Config)?;
    let layout = layout_of(&config);
    let layout_digest = types::key_hash(layout.as_bytes());
    let mut dir = DataDir::open(&config.dir, config.store, &layout)?;
    // Ports are taken before anything else is touched: "address in use" should cost nothing.
    let listeners = Listeners::bind(&config).await?;
    let (log, engine) = open_engines(&config, &dir)?;

    let descriptors = cluster::bootstrap_plan(&layout_input(&config));
    let seeds = recover(&config, &mut dir, &log, &engine, &descriptors)?;
    let meta = cluster::MetaState::load(engine.flash()).map_err(|e| StartError::Recovery(e.to_string()))?;

    let (worker_sender, worker_inbox) = crossbeam_channel::unbounded();
    let (job_sender, jobs) = crossbeam_channel::unbounded();
    let (local, others): (Vec<_>, Vec<_>) =
        descriptors.into_iter().partition(|descriptor| descriptor.has_peer_on(config.store));
    let regions = Regions::new(&local, &others);
    let store = Arc::new(Store::new(config, layout_digest, regions, engine, meta, worker_sender.clone()));
    let raft = replica::Worker::new(raft_config(&store.config), log.clone(), seeds, clock::boot_nanos())
        .map_err(|error| StartError::Recovery(error.to_string()))?;

    let others = store.config.members.iter().filter(|m| m.id != store.id).map(|m| (m.id, m.peer));
    store.set_transport(Transport::start(store.id, others, layout_digest));

    let spawn = |name: &'static str, body: Box<dyn FnOnce() + Send>| {
        let watch = store.clone();
        // The store is nothing without any of them: a panic ends it as a whole.
        let watched = move || {
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
                watch.fatal(&format!("the {name} thread died"));
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(watched).expect("a thread can be started")
    };
    let (outcome_sender, outcomes) = tokio::sync::mpsc::unbounded_channel();
    let (applier, apply_queue) = Applier::new(store.clone(), outcome_sender);
    let worker = RegionWorker::new(store.clone(), raft, worker_inbox, job_sender, apply_queue);
    let log_writer = LogWriter::new(log.clone(), jobs, worker_sender, store.clone());
    let (flush_store, flush_log) = (store.clone(), log.clone());
    let threads = [
        spawn("log", Box::new(move || log_writer.run())),
        spawn("regions", Box::new(move || worker.run())),
        spawn("apply", Box::new(move || applier.run())),
        spawn("flusher", Box::new(move || flusher::run(flush_store, flush_log))),
    ];

    let mut tasks = tokio::task::JoinSet::new();
    // It ends with the worker, which answers until the last.
    tokio::spawn(proposals::hand_out(outcomes));
    listeners.serve(&store, &mut tasks);
    tasks.spawn(heartbeat::run(store.clone()));
    tasks.spawn(expiry::run(store.clone()));
    tasks.spawn(watch_disk(store.clone()));

    tokio::pin!(shutdown);
    tokio::select! {
        () = until_healthy(&store) => {
            ready();
            shutdown.await;
        }
        () = &mut shutdown => {}
    }

    tracing::info!("shutting down");
    hand_over(&store).await;
    store.stopping.store(true, Ordering::Relaxed);
    tasks.shutdown().await;
    store.clients.all().iter().for_each(|client| client.end());
    tokio::time::sleep(DRAIN).await;
    let _ = store.worker.send(ToWorker::Stop);
    let joined = tokio::task::spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
    if !joined.await.unwrap_or(false) {
        tracing::warn!("a thread ended by a panic");
    }
    // What is in memtables is in the log, too; flushing it now makes the next start quicker.
    let last = store.clone();
    let _ = tokio::task::spawn_blocking(move || flusher::flush(&last)).await;
    drop(dir);
    Ok(())
}

/// What must not change over the life of a data directory while membership is static.
fn layout_of(config: &Config) -> String {
    let stores: Vec<String> = config.members.iter().map(|m| m.id.to_string()).collect();
    format!(
        "stores {} regions {} replicas {} cluster-enabled {}",
        stores.join(","),
        config.regions,
        config.replicas.min(config.members.len()),
        if config.cluster_enabled { "yes" } else { "no" }
    )
}

fn layout_input(config: &Config) -> cluster::Layout {
    cluster::Layout {
        stores: config.members.iter().map(|m| m.id).collect(),
        regions: config.regions,
        replicas: config.replicas,
    }
}

fn raft_config(config: &Config) -> replica::Config {
    let mut raft = replica::Config::new(config.store, types::key_hash(&config.store.to_le_bytes()));
    raft.tick_nanos = config.raft_tick.as_nanos() as u64;
    raft.election_ticks = ELECTION_TICKS;
    raft.heartbeat_ticks = HEARTBEAT_TICKS;
    // A little below the time for which voters keep quiet, by more than clocks may drift.
    raft.lease_nanos = raft.vote_hold_nanos() / 100 * 95;
    raft
}

fn open_engines(config: &Config, dir: &DataDir) -> Result<(RaftLog, Arc<Engine>), StartError> {
    let log = RaftLog::open(&dir.log_dir(), &raftlog::Options::default())
        .map_err(|e| StartError::Log { path: dir.log_dir(), reason: e.to_string() })?;
    let rows_error = |reason: String| StartError::Rows { path: dir.rows_dir(), reason };
    let wrong = |e: rocks::OptionError| StartError::Config(e.to_string());
    let mut options = rocks::Options::profile(&config.rocksdb_profile).map_err(wrong)?;
    options.row_cache_bytes = config.maxmemory;
    for (name, value) in &config.rocksdb {
        options.set(name, value).map_err(wrong)?;
    }
    let flash = FlashKeyspace::open(&dir.rows_dir(), &options).map_err(|e| rows_error(e.to_string()))?;
    Ok((log, Arc::new(Engine::new(flash))))
}

/// The peers of this store as its log and rows have them. A peer's life is written, synced, before
/// anything of it.
fn recover(
    config: &Config,
    dir: &mut DataDir,
    log: &RaftLog,
    engine: &Engine,
    descriptors: &[RegionDescriptor],
) -> Result<Vec<PeerSeed>, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Recovery(error.to_string());
    let local: Vec<&RegionDescriptor> = descriptors.iter().filter(|d| d.has_peer_on(config.store)).collect();
    let known = log.peers().map_err(|e| failed(&e))?;
    if known.is_empty() {
        dir.allow_empty_log()?;
        let lives: Vec<_> = local
            .iter()
            .map(|d| (d.id, PeerLife::Exists { descriptor: d.encode(), first_index: 1 }))
            .collect();
        log.set_peers(&lives).map_err(|e| failed(&e))?;
    } else if !same_peers(&known, &local) {
        return Err(StartError::Recovery(
            "the peers in the log are not those of the configured layout".into(),
        ));
    }
    // A store without peers has an empty log for good.
    if !local.is_empty() {
        dir.initialised()?;
    }
    local
        .into_iter()
        .map(|descriptor| {
            let state = engine.region_state(descriptor.id).map_err(|e| failed(&e))?;
            Ok(PeerSeed {
                descriptor: descriptor.clone(),
                applied: (state.applied_index, state.applied_term),
            })
        })
        .collect()
}

fn same_peers(known: &[(RegionId, PeerLife)], local: &[&RegionDescriptor]) -> bool {
    let same = |(region, life): &(RegionId, PeerLife)| match life {
        PeerLife::Exists { descriptor, .. } => RegionDescriptor::decode(descriptor)
            .is_ok_and(|known| known.id == *region && local.iter().any(|wanted| **wanted == known)),
        PeerLife::Tombstone { .. } => false,
    };
    known.len() == local.len() && known.iter().all(same)
}

/// Gives the regions that this store leads to their most advanced live peers, so that a planned stop costs
/// no election. Where that does not succeed in time, an election it is.
async fn hand_over(store: &Store) {
    let led = || {
        let mut regions = store.regions.all();
        regions.retain(|region| region.leader() == Some(store.id));
        regions
    };
    for region in led() {
        let matched = region.status().map(|status| status.matched).unwrap_or_default();
        let heirs = matched.into_iter().filter(|(peer, _)| *peer != store.id && store.is_heard(*peer));
        if let Some((to, _)) = heirs.max_by_key(|(_, index)| *index) {
            let _ = store.worker.send(ToWorker::TransferLeader { region: region.id(), to });
        }
    }
    let deadline = tokio::time::Instant::now() + HAND_OVER;
    while store.config.members.len() > 1 && !led().is_empty() && tokio::time::Instant::now() < deadline {
        let _ = tokio::time::timeout(Duration::from_millis(20), store.leader_news.notified()).await;
    }
}

async fn until_healthy(store: &Store) {
    while !store.is_healthy() {
        let news = store.leader_news.notified();
        let _ = tokio::time::timeout(Duration::from_millis(50), news).await;
    }
}

async fn watch_disk(store: Arc<Store>) {
    let mut period = tokio::time::interval(Duration::from_millis(250));
    loop {
        tokio::select! {
            _ = period.tick() => {}
            () = store.disk.look_soon.notified() => {}
        }
        let store = store.clone();
        let _ = tokio::task::spawn_blocking(move || store.disk.look()).await;
    }
}

struct Listeners {
    clients: Vec<TcpListener>,
    forward: Option<TcpListener>,
    peers: Option<TcpListener>,
    admin: TcpListener,
}

impl Listeners {
    async fn bind(config: &Config) -> Result<Listeners, StartError> {
        let this = config.this();
        let mut clients = Vec::new();
        for ip in &config.bind {
            clients.push(listen_on(SocketAddr::new(*ip, this.client.port())).await?);
        }
        let forward = match this.forward {
            Some(address) => Some(listen_on(address).await?),
            None => None,
        };
        let peers = match config.members.len() {
            1 => None,
            _ => Some(listen_on(this.peer).await?),
        };
        Ok(Listeners { clients, forward, peers, admin: listen_on(this.admin).await? })
    }

    fn serve(self, store: &Arc<Store>, tasks: &mut tokio::task::JoinSet<()>) {
        for listener in self.clients {
            tasks.spawn(client::listen(listener, Door::Client, store.clone()));
        }
        if let Some(listener) = self.forward {
            tasks.spawn(client::listen(listener, Door::Forward, store.clone()));
        }
        if let Some(listener) = self.peers {
            let handler = Arc::new(inbound::FromStores { store: store.clone() });
            tasks.spawn(transport::listen(listener, store.id, store.layout_digest, handler));
        }
        let backend: Arc<dyn admin::AdminBackend> =
            Arc::new(crate::admin_backend::Backend { store: store.clone() });
        tasks.spawn(async move {
            if let Err(error) = admin::serve(self.admin, backend, std::future::pending()).await {
                tracing::error!(%error, "the admin endpoint has ended");
            }
        });
    }
}

/// With SO_REUSEADDR, so that a store that was killed can come back at once.
async fn listen_on(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listen = || -> io::Result<TcpListener> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(1024)?;
        TcpListener::from_std(socket.into())
    };
    listen().map_err(|source| StartError::Listen { address, source })
}
