//! Starts a store from a configuration, and stops it.

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use raftlog::RaftLog;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use types::{RegionDescriptor, StoreId};

use crate::budget::Budget;
use crate::client;
use crate::config::{Beginning, Config, Fsync, ELECTION_TICKS};
use crate::connections::ListenerKind;
use crate::datadir::DataDir;
use crate::dispatch::blocking;
use crate::engine::Engine;
use crate::executor::apply::Applier;
use crate::executor::lifecycle::LifecycleThread;
use crate::executor::log_keeper;
use crate::executor::log_reader;
use crate::executor::log_writer;
use crate::executor::snapshots::Host;
use crate::executor::worker::RegionWorker;
use crate::executor::{flusher, row_filter};
use crate::functions_keeper;
use crate::loops::{Loops, ToLoop, ToWorker};
use crate::members::{AgreedMembers, Members};
use crate::reactor::Loop;
use crate::snapshot::{self, SnapshotService};
use crate::start_error::StartError;
use crate::store::{Found, Store};
use crate::transport;
use crate::transport::certificates::Certificates;
use crate::tuning::{Machine, Tuning};
use crate::{
    admin, capability, catch_up, check_schedule, clock, direct_io, election, expiry, heartbeat, joining,
    membership, planned_stop, recovery, replication, resident, row_damage, store_messages, unsynced,
};

/// Time for answers to reach other stores before the process ends.
const ANSWERS_LEAVE: Duration = Duration::from_millis(50);

/// Interval between two looks at the files of certificates.
const CERTIFICATES_LOOK: Duration = Duration::from_secs(2);

/// The interval at which the statistics of RocksDB are read, for `INFO`.
const STATS_PERIOD: Duration = Duration::from_secs(1);

/// Time for readers to finish. The rows' engine must not be closed while a reader uses it.
const DRAIN: Duration = Duration::from_millis(200);

/// The Raft heartbeat interval in ticks: 0.15 s at 50 ms a tick.
const HEARTBEAT_TICKS: u32 = 3;
/// The idle time in ticks after which a region hibernates: 3 s.
const HIBERNATE_TICKS: u32 = 60;

/// The step that follows when a store has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Stopped,
    /// Rows are damaged, and the next start must work without them. Some threads still run but do
    /// no more work. The caller restarts the program.
    ToMend,
}

/// Runs a store until it is told to stop. A second request to stop ends all waiting. `ready` is
/// called with the store's number once the store serves.
pub async fn run(
    mut config: Config,
    ready: impl FnOnce(StoreId),
    mut stops: mpsc::Receiver<()>,
) -> Result<Ended, StartError> {
    config.validate().map_err(StartError::Config)?;
    if !config.core_file_memory {
        keep_memory_out_of_core_files();
    }
    let mut dir = DataDir::open_with(&config.dir, config.encryption.as_ref())?;
    if config.uses_tls() {
        config.tls.load().map_err(StartError::Config)?;
    }
    if let Some(tls) = config.zookeeper.as_ref().and_then(|ensemble| ensemble.tls.as_ref()) {
        tls.load().map_err(StartError::Config)?;
    }
    let certificates = match config.tls_cluster {
        true => Some(Arc::new(
            Certificates::read(&config.tls_cluster_name, &config.tls).map_err(StartError::Config)?,
        )),
        false => None,
    };
    config.check_peers(is_open(&config, &dir)).map_err(StartError::Config)?;
    // Ports are bound before any other action, so that "address in use" has no side effect.
    let listeners = Listeners::bind(&config, is_open(&config, &dir)).await?;
    tokio::select! {
        settled = settle(&mut config, &mut dir, certificates.as_ref()) => settled?,
        () = told(&mut stops) => return Ok(Ended::Stopped),
    }
    if let Some(certificates) = &certificates {
        certificates.check_number(config.store).map_err(StartError::Config)?;
    }
    if let (Some(forward), false) = (config.this().forward, config.cluster_enabled) {
        return Err(StartError::Config(format!("forward port {} needs cluster mode", forward.port())));
    }
    if !config.cluster_enabled {
        // Without cluster mode, commands on many keys need a single region with all keys.
        config.limits.split_bytes = 0;
        config.limits.split_ops = 0;
    }
    let of_look = config.clone();
    let _ = tokio::task::spawn_blocking(move || capability::look_first(&of_look)).await;
    let (log, engine) = open_engines(&config, &dir)?;
    let snapshot_dir = dir.snapshot_dir();
    let dir_is_encrypted = dir.vault().is_some();

    let founded = match dir.identity().joined {
        // The initial layout does not apply to a store that joined later.
        Some(_) => Vec::new(),
        None => cluster::bootstrap_plan(&layout_input(&config)),
    };
    let unsynced_error =
        |error: io::Error| StartError::Recovery(format!("{}: {error}", config.dir.display()));
    let mut unsynced = unsynced::Found::read(&config).map_err(unsynced_error)?;
    let meta = cluster::MetaState::load(engine.rows()).map_err(|e| StartError::Recovery(e.to_string()))?;
    let members = known_members(&config, &dir, &meta)?;
    let is_alone = members.list.len() == 1;
    let known = (unsynced.damaged(), is_alone);
    let recovered = recovery::recover(config.store, &mut dir, &log, &engine, &founded, known)?;
    // A repaired log shows no damage, so the mark must name the damaged peers before the repair.
    unsynced.note(&config, &recovered.damages).map_err(unsynced_error)?;
    log.repair(recovered.damages.repairs)
        .map_err(|error| StartError::Log { path: dir.log_dir(), reason: error.to_string() })?;
    let (mut seeds, marks, tombstones) = (recovered.seeds, recovered.marks, recovered.tombstones);
    unsynced.judge(&config, &mut seeds);
    let raft = replica::Worker::new(
        raft_config(&config),
        log.clone(),
        seeds.clone(),
        tombstones.clone(),
        clock::boot_nanos(),
    )
    .map_err(|error| StartError::Recovery(error.to_string()))?;
    let statuses = seeds.iter().filter_map(|seed| raft.status(seed.descriptor.id, 0));
    let entries: u64 = statuses.map(|status| status.commit.saturating_sub(status.applied)).sum();
    tracing::info!(
        regions = seeds.len(),
        entries,
        "the log is read; entries that the rows lack are executed again"
    );
    // The mark must be durable before the store acknowledges anything.
    let unsynced = unsynced
        .begin(&config, &log, (&seeds, &tombstones), raft.unclean(), is_alone)
        .map_err(unsynced_error)?;
    let local: Vec<RegionDescriptor> = seeds.iter().map(|seed| seed.descriptor.clone()).collect();

    let (loops, inboxes) = Loops::new(config.loops()).map_err(StartError::Loops)?;
    if config.io_threads > 0 {
        loops.serve_with(config.io_threads);
    }
    let layout_digest = types::key_hash(dir.identity().layout.as_bytes());
    let (secret, cluster_id) = (dir.identity().secret.clone(), dir.identity().cluster_id);
    let password = config.requirepass.clone();
    let (identity, refused) =
        transport::Identity::new(config.store, layout_digest, secret, cluster_id, password);
    let identity = Arc::new(identity.with(certificates));
    let (local, others) = (&local, &founded);
    let found = Found { config, dir, identity, members, local, others, engine, meta, unsynced };
    let store = Arc::new(Store::new(found, loops));
    if store.config.uses_tls() {
        store.tls.load(&store.config.tls).map_err(StartError::Config)?;
    }
    store.spread.run_on(tokio::runtime::Handle::current());
    store.levels.count_entries(raft.entry_memory());
    store.transport.start(store.membership.members().list.iter().map(|member| (member.id, member.peer)));

    let parts = store.executor();
    let host = Arc::new(Host::new(&parts));
    let limits = snapshot::Limits { rate: store.config.snapshot_rate, ..snapshot::Limits::default() };
    let service = SnapshotService::start(&snapshot_dir, limits, host)
        .map_err(|error| StartError::Recovery(format!("{}: {error}", snapshot_dir.display())))?;
    let snapshots = Arc::new(service);
    store.set_snapshots(snapshots.clone());

    let spawn = |name: &'static str, body: Box<dyn FnOnce() + Send>| {
        let ends = store.ends.clone();
        // The store cannot run without any of its threads, so a panic ends the whole process.
        let watched = move || {
            if std::panic::catch_unwind(AssertUnwindSafe(body)).is_err() {
                ends.fatal(&format!("the {name} thread died"));
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(watched).expect("a thread can be started")
    };
    let (life_sender, life_jobs) = crossbeam_channel::unbounded();
    let (applier, apply_queue, apply_jobs) = Applier::new(parts.clone(), life_sender, &marks);
    let lifecycle = LifecycleThread {
        parts: parts.clone(),
        snapshots: snapshots.clone(),
        log: log.clone(),
        jobs: life_jobs,
        apply: apply_jobs,
    };
    let (reads, wanted) = crossbeam_channel::unbounded();
    let (log_sender, log_writer) = log_writer::new(log.clone(), parts.clone());
    let mut worker = RegionWorker::new(
        parts.clone(),
        snapshots.clone(),
        raft,
        log_sender,
        log.clone(),
        reads,
        apply_queue,
    );
    for (region, mark) in marks {
        worker.take(ToWorker::Shard(node::Input::Held { region, mark }));
    }
    let (flush_parts, flush_log) = (parts.clone(), log.clone());
    let (keep_parts, keep_log) = (parts.clone(), log.clone());
    let (read_sender, read_log) = (store.worker.clone(), log.clone());
    let filter_parts = parts.clone();
    let mut threads = vec![
        spawn("log", Box::new(move || log_writer.run())),
        spawn("log-reader", Box::new(move || log_reader::run(read_sender, read_log, wanted))),
        spawn("apply", Box::new(move || applier.run())),
        spawn("lifecycle", Box::new(move || lifecycle.run())),
        spawn("flusher", Box::new(move || flusher::run(flush_parts, flush_log))),
        spawn("log-keeper", Box::new(move || log_keeper::run(keep_parts, keep_log))),
    ];

    if dir_is_encrypted {
        let (dir, engine) = (store.config.dir.clone(), store.engine.clone());
        let (ends, metrics) = (store.ends.clone(), store.metrics.clone());
        let rewrite = move || crate::encryption::run(&dir, &engine, &ends, &metrics);
        threads.push(spawn("rewrite", Box::new(rewrite)));
    }

    let mut worker = Some(worker);
    for (number, inbox) in inboxes.into_iter().enumerate() {
        let runtime = tokio::runtime::Handle::current();
        let serving = Loop::new(number, store.clone(), runtime, inbox, worker.take());
        threads.push(spawn("loop", Box::new(move || serving.run())));
    }
    threads.push(spawn("row-filter", Box::new(move || row_filter::run(&filter_parts))));
    let mut tasks = JoinSet::new();
    let listening = listeners.serve(&store, &mut tasks);
    if let Some(ready) = store.blocked.take_ready() {
        tasks.spawn(blocking::run(store.clone(), ready));
    }
    tasks.spawn(client::keep_shards(store.clone()));
    tasks.spawn(client::keep_tracked(store.clone()));
    tasks.spawn(heartbeat::run(store.clone()));
    tasks.spawn(functions_keeper::run(store.clone()));
    tasks.spawn(admin::keep_records(store.clone()));
    tasks.spawn(catch_up::run(store.clone()));
    tasks.spawn(election::run(store.clone()));
    tasks.spawn(replication::run(store.clone()));
    tasks.spawn(expiry::run(store.expirer()));
    tasks.spawn(check_schedule::run(store.check_schedule()));
    tasks.spawn(watch_disk(store.clone()));
    tasks.spawn(resident::guard(store.budget.clone()));
    tasks.spawn(capability::run(store.measurer()));
    tasks.spawn(membership::heed_refusals(store.membership.clone(), store.ends.clone(), refused));

    let mut is_told = tokio::select! {
        () = until_healthy(&store) => {
            ready(store.id);
            tokio::select! {
                () = told(&mut stops) => true,
                () = store.ends.ending() => false,
            }
        }
        () = told(&mut stops) => true,
        () = store.ends.ending() => false,
    };
    let hurried = async {
        tokio::select! {
            () = told(&mut stops) => is_told = true,
            () = store.ends.hurried() => {}
        }
    };
    tracing::info!("shutting down");
    planned_stop::stop(&store, listening, hurried).await;
    if store.ends.is_mending() {
        // The threads that found the damage do not end. The log also holds the contents of the
        // memtables.
        return Ok(if is_told { Ended::Stopped } else { Ended::ToMend });
    }
    store.ends.stop();
    tokio::time::sleep(ANSWERS_LEAVE).await;
    tasks.shutdown().await;
    store.clients.all().iter().for_each(|client| client.end());
    tokio::time::sleep(DRAIN).await;
    store.loops.all().iter().for_each(|serving| drop(serving.send(ToLoop::Stop)));
    let _ = tokio::task::spawn_blocking(move || snapshots.stop()).await;
    let joined = tokio::task::spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
    if !joined.await.unwrap_or(false) {
        tracing::warn!("a thread ended by a panic");
    }
    // The log also holds the contents of the memtables. A flush now makes the next start faster.
    let last = move || {
        flusher::flush_last(&parts);
        parts.unsynced.stopped(&log);
    };
    let _ = tokio::task::spawn_blocking(last).await;
    Ok(Ended::Stopped)
}

/// Returns true if other stores may connect: those of the list, or those that join.
fn is_open(config: &Config, dir: &DataDir) -> bool {
    config.members.len() > 1 || config.beginning != Beginning::Listed || dir.identity().open
}

/// Determines this store's number and cluster.
async fn settle(
    config: &mut Config,
    dir: &mut DataDir,
    certificates: Option<&Arc<Certificates>>,
) -> Result<(), StartError> {
    let identity = dir.identity().clone();
    if let (None, Beginning::Join(stores)) = (identity.store, config.beginning.clone()) {
        joining::join(config, dir, &stores, certificates.cloned()).await?;
    }
    let identity = dir.identity();
    match (identity.store, &identity.joined, &config.beginning) {
        (Some(_), Some(_), Beginning::Listed | Beginning::Bootstrap) if config.members.len() > 1 => {
            Err(StartError::Config("a store that joined its cluster accepts no list of stores".into()))
        }
        (Some(store), Some(joined), _) => {
            config.cluster_enabled = joined.cluster_enabled;
            config.lacks_password = joined.by_token && config.requirepass.is_none();
            if config.lacks_password {
                tracing::warn!(
                    "this store joined by a token and has no requirepass: it admits no new stores, and no \
                     clients without a user of the cluster, until requirepass is set"
                );
            }
            membership::rename(config, store);
            Ok(())
        }
        (_, None, Beginning::Join(_)) => {
            Err(StartError::Join("this data directory is of a store that did not join its cluster".into()))
        }
        (_, _, beginning) => {
            let open = *beginning == Beginning::Bootstrap;
            Ok(dir.claim(config.store, &layout_of(config), open)?)
        }
    }
}

/// Returns the newer of the lists in the rows and in the directory.
fn known_members(config: &Config, dir: &DataDir, meta: &cluster::MetaState) -> Result<Members, StartError> {
    let kept = dir.members()?;
    let agreed = match meta.members_version > kept.version {
        true => AgreedMembers::of(meta),
        false => kept,
    };
    Ok(Members::new(config, agreed))
}

/// Returns the initial layout of the cluster, which is bound to the data directory. Later changes
/// of the stores do not affect it.
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
    raft.hibernate_ticks = HIBERNATE_TICKS;
    raft.max_uncommitted_entries = config.proposal_window;
    let budget = Budget::of(config.maxmemory);
    raft.entry_memory_bytes = budget.entries;
    raft.max_message_bytes = budget.message_bytes();
    raft.max_apply_bytes = (budget.execution / 4).min(raft.max_apply_bytes);
    raft.truncation = replica::Truncation::of_log_size(config.raft_log_bytes);
    // The lease is slightly shorter than the time for which voters refuse other candidates. The
    // difference exceeds the maximum drift of the clocks.
    raft.lease_nanos = raft.stickiness_nanos() / 100 * 95;
    raft
}

fn open_engines(config: &Config, dir: &DataDir) -> Result<(RaftLog, Arc<Engine>), StartError> {
    let log = RaftLog::open(&dir.log_dir(), &raftlog::Options::of_size(config.raft_log_bytes))
        .map_err(|e| StartError::Log { path: dir.log_dir(), reason: e.to_string() })?;
    let rows_error = |reason: String| StartError::Rows { path: dir.rows_dir(), reason };
    let wrong = |e: rocks::OptionError| StartError::Config(e.to_string());
    let mut options = rocks::Options::profile(&config.rocksdb_profile).map_err(wrong)?;
    let budget = Budget::of(config.maxmemory);
    options = options.with_ram(budget.rows);
    options.block_cache_size = budget.block_cache;
    let told = &config.rocksdb;
    let measured = capability::measured_before(config);
    let machine = Machine {
        measured: measured.as_ref(),
        cpus: std::thread::available_parallelism().map_or(2, NonZero::get),
        has_direct_io: direct_io::is_possible(&config.dir),
    };
    let (profile, readers) = (&config.rocksdb_profile, config.reader_threads);
    let tuning = Tuning::choose(profile, &mut options, told, readers, machine);
    for (name, value) in told {
        options.set(name, value).map_err(wrong)?;
    }
    options.check().map_err(wrong)?;
    tracing::info!(
        about = tuning.about,
        chosen = tuning.in_short(),
        "options of the rows; `steelyard ctl explain --store {}` gives the reasons",
        config.store
    );
    if options.memory_bytes() > config.maxmemory {
        let (wanted, maxmemory) = (options.memory_bytes(), config.maxmemory);
        tracing::warn!(wanted, maxmemory, "RocksDB's options take more memory than maxmemory");
    }
    let mut flash = row_damage::open_rows((&config.dir, &dir.rows_dir()), &options, &log, config.store)
        .map_err(rows_error)?;
    if config.fsync != Fsync::Always {
        // Rows must not be durable before the entries that created them.
        let log = log.clone();
        flash.before_flush(move || match log.sync() {
            Ok(_) => Ok(()),
            Err(raftlog::LogError::NoSpace(reason)) => Err(storage::StorageError::NoSpace(reason)),
            Err(error) => Err(storage::StorageError::Engine(error.to_string())),
        });
    }
    Ok((log, Arc::new(Engine::new(flash, tuning))))
}

/// Keeps the process's memory (data, passwords and keys, and also the stacks) out of core files,
/// which show the registers of each thread.
fn keep_memory_out_of_core_files() {
    // Bit 4 stands for the headers of the program's files; the others for memory.
    const ONLY_HEADERS: &str = "0x10";
    if let Err(error) = std::fs::write("/proc/self/coredump_filter", ONLY_HEADERS) {
        tracing::warn!(%error, "core files would have the memory of the store: coredump_filter cannot be set");
    }
}

async fn told(stops: &mut mpsc::Receiver<()>) {
    if stops.recv().await.is_none() {
        // The sender no longer exists.
        std::future::pending().await
    }
}

async fn until_healthy(store: &Store) {
    store.regions.look_until(None, || store.is_healthy().then_some(())).await;
}

async fn watch_disk(store: Arc<Store>) {
    let mut period = tokio::time::interval(Duration::from_millis(250));
    let mut stats_due = Instant::now();
    loop {
        tokio::select! {
            _ = period.tick() => {}
            () = store.disk.look_soon.notified() => {}
        }
        let of_look = store.clone();
        let _ = tokio::task::spawn_blocking(move || of_look.disk.look()).await;
        if stats_due <= Instant::now() {
            stats_due = Instant::now() + STATS_PERIOD;
            let of_look = store.clone();
            let looked = tokio::task::spawn_blocking(move || of_look.engine.look().map(drop)).await;
            if let Ok(Err(error)) = looked {
                tracing::debug!(%error, "the statistics of RocksDB cannot be read");
            }
        }
    }
}

/// Reads certificates again when their files have changed.
async fn watch_certificates(store: Arc<Store>) {
    let mut period = tokio::time::interval(CERTIFICATES_LOOK);
    loop {
        period.tick().await;
        let of_look = store.clone();
        match tokio::task::spawn_blocking(move || of_look.tls.load_if_changed()).await {
            Ok(Ok(true)) => tracing::info!("new connections get the changed certificate"),
            Ok(Err(why)) => tracing::warn!(
                why,
                "a changed certificate cannot be used: new connections get the one before it"
            ),
            Ok(Ok(false)) | Err(_) => {}
        }
    }
}

struct Listeners {
    clients: Vec<TcpListener>,
    tls: Vec<TcpListener>,
    forward: Option<TcpListener>,
    peers: Option<TcpListener>,
    admin: TcpListener,
}

impl Listeners {
    async fn bind(config: &Config, is_open: bool) -> Result<Listeners, StartError> {
        let this = config.this();
        let mut clients = Vec::new();
        let mut tls = Vec::new();
        for ip in &config.bind {
            if config.tls_port != Some(this.client.port()) {
                clients.push(listen_on(SocketAddr::new(*ip, this.client.port())).await?);
            }
            if let Some(port) = config.tls_port {
                tls.push(listen_on(SocketAddr::new(*ip, port)).await?);
            }
        }
        let forward = match this.forward {
            Some(address) => Some(listen_on(address).await?),
            None => None,
        };
        let peers = match is_open {
            true => Some(listen_on(this.peer).await?),
            false => None,
        };
        Ok(Listeners { clients, tls, forward, peers, admin: listen_on(this.admin).await? })
    }

    /// Starts the listeners. Returns the tasks that accept clients.
    fn serve(self, store: &Arc<Store>, tasks: &mut JoinSet<()>) -> JoinSet<()> {
        let mut listening = JoinSet::new();
        for listener in self.clients {
            listening.spawn(client::listen(listener, ListenerKind::Client, false, store.clone()));
        }
        if store.config.uses_tls() {
            tasks.spawn(watch_certificates(store.clone()));
        }
        for listener in self.tls {
            listening.spawn(client::listen(listener, ListenerKind::Client, true, store.clone()));
        }
        if let Some(listener) = self.forward {
            let is_tls = store.config.tls_forward;
            listening.spawn(client::listen(listener, ListenerKind::Forward, is_tls, store.clone()));
        }
        if let Some(listener) = self.peers {
            let handler = Arc::new(store_messages::FromStores { store: store.clone() });
            tasks.spawn(transport::listen(listener, store.membership.identity.clone(), handler));
        }
        let backend = store.clone();
        let tls = store.config.tls_admin.then(|| store.tls.clone());
        tasks.spawn(async move {
            if let Err(error) = admin::serve(self.admin, backend, tls, std::future::pending()).await {
                tracing::error!(%error, "the admin endpoint has ended");
            }
        });
        listening
    }
}

/// Maximum number of connections of a port that the kernel has completed and the store has not
/// accepted. The kernel caps it at `net.core.somaxconn`. A connection beyond it is delayed by
/// seconds.
const BACKLOG: i32 = 4096;

/// Listens with SO_REUSEADDR, so that a killed store can restart immediately.
async fn listen_on(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listen = || -> io::Result<TcpListener> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    listen().map_err(|source| StartError::Listen { address, source })
}
