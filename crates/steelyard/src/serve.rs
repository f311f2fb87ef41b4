//! `steelyard serve`: runs one store.

pub mod members;
mod options;
pub mod size;
mod tls;
mod zookeeper;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, Context};
use server::{Beginning, Config, ConfigFile, DebugCommand, Ended, JoinToken, Member, SetLogLevel};
use tokio::signal::unix::{signal, SignalKind};
use tracing_subscriber::EnvFilter;

use crate::encryption;
pub use options::{Options, YesNo};
use size::Size;

#[derive(clap::Args)]
pub struct Serve {
    /// Configuration file (TOML); flags take precedence over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

pub fn run(serve: Serve) -> anyhow::Result<()> {
    let said = serve.config.as_deref().map(Options::read).transpose().map_err(|error| anyhow!(error))?;
    let flags = serve.options.clone();
    let options = serve.options.over(said.unwrap_or_default());
    let loglevel = level_of(&options);
    let mut config =
        checked(options).map_err(|error| anyhow!(placed(serve.config.as_deref(), &flags, error)))?;
    config.set_loglevel = Some(start_logging(&loglevel)?);
    config.loglevel = loglevel;
    if let Some(path) = serve.config {
        let check = move |file: &str| check(flags.clone().over(Options::parse(file)?));
        config.file = Some(ConfigFile::new(&path, check).with_context(|| path.display().to_string())?);
    }
    check_key_file(&config)?;
    if config.maxmemory < SHORT_OF_MEMORY {
        allocator::keep_free_pages(FREE_PAGES_MS).map_err(anyhow::Error::msg)?;
    }
    // This runtime is for work that waits: other stores, admin requests, rows on flash. Separate
    // loops serve clients.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(runtime_threads())
        .max_blocking_threads(blocking_threads())
        .thread_name("io")
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (tell, stops) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut is_first = true;
            loop {
                let signal = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                match std::mem::replace(&mut is_first, false) {
                    true => tracing::info!("{signal}: the store transfers its leaders and stops"),
                    false => tracing::warn!("{signal} again: the store stops without waiting any longer"),
                }
                let _ = tell.send(()).await;
            }
        });
        let address = config.this().client;
        let ready = move |store| tracing::info!("store {store} is ready to serve clients on {address}");
        match server::run(config, ready, stops).await.map_err(|error| anyhow!(one_line(&error)))? {
            Ended::Stopped => tracing::info!("stopped"),
            Ended::ToMend => {
                tracing::info!("starting again");
                let error = start_anew();
                return Err(error).context("the store stopped for damaged rows and cannot start again");
            }
        }
        Ok(())
    })
}

/// Returns the first error of a start with these options. Relations between RocksDB's options are
/// not checked.
fn check(options: Options) -> Result<(), String> {
    checked(options).map(drop)
}

fn checked(options: Options) -> Result<Config, String> {
    let level = level_of(&options);
    match directive(&level) {
        Some(_) => configure(options),
        None => Err(wrong_level(&level)),
    }
}

fn level_of(options: &Options) -> String {
    options.loglevel.clone().unwrap_or_else(|| "notice".into())
}

/// Puts the file and the line before an error, if a value of the configuration file causes it.
fn placed(file: Option<&Path>, flags: &Options, error: String) -> String {
    let place = || {
        let path = file.filter(|_| checked(flags.clone()).err().as_ref() != Some(&error))?;
        let line = options::line_of(&std::fs::read_to_string(path).ok()?, &error)?;
        Some(format!("{}: line {line}", path.display()))
    };
    match place() {
        Some(place) => format!("{place}: {error}"),
        None => error,
    }
}

/// Checks that the file of the master key can be read. `CONFIG REWRITE` does not check it, because
/// the file may be on a medium that is there only at a start.
fn check_key_file(config: &Config) -> anyhow::Result<()> {
    let Some(atrest::Source::File(path)) = config.encryption.as_ref().map(|keys| &keys.key) else {
        return Ok(());
    };
    let opened = std::fs::File::open(path).map(drop);
    opened.with_context(|| format!("encryption-key-file: {} cannot be read", path.display()))
}

/// Returns an error and its causes as one line. A cause that the line already ends with is left
/// out.
pub fn one_line(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

fn wrong_level(level: &str) -> String {
    format!("loglevel is debug, verbose, notice or warning, not '{level}'")
}

/// Replaces this process with a new run of the program with the same arguments. Returns only on an
/// error.
fn start_anew() -> std::io::Error {
    let mut args = std::env::args_os();
    let mut program = Command::new("/proc/self/exe");
    if let Some(name) = args.next() {
        program.arg0(name);
    }
    program.args(args).exec()
}

/// Returns the number of threads for work that waits for other stores or for the device.
fn runtime_threads() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get).min(8)
}

/// Returns the number of threads that wait for the device: reads of rows that are not in RAM, and
/// maintenance. It is about the number of requests that a device handles at once. With tokio's 512,
/// requests would queue in the kernel, where urgent ones cannot overtake others.
fn blocking_threads() -> usize {
    const MIN: usize = 32;
    std::thread::available_parallelism().map_or(MIN, |cpus| (4 * cpus.get()).max(MIN))
}

/// Value of `maxmemory` in bytes below which free pages are kept only for a short time, because
/// they would be a large part of it.
const SHORT_OF_MEMORY: u64 = 512 << 20;
const FREE_PAGES_MS: isize = 100;

/// Starts logging to stderr. `STEELYARD_LOG` may hold a filter such as
/// `info,steelyard_server=debug`. Returns a function that changes the level later.
fn start_logging(level: &str) -> anyhow::Result<SetLogLevel> {
    let level = directive(level).ok_or_else(|| anyhow!(wrong_level(level)))?;
    let filter = match std::env::var("STEELYARD_LOG") {
        Ok(filter) => EnvFilter::try_new(&filter).with_context(|| format!("STEELYARD_LOG='{filter}'"))?,
        Err(_) => EnvFilter::new(level),
    };
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let logging = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_env_filter(filter)
        .with_filter_reloading();
    let handle = logging.reload_handle();
    logging.init();
    Ok(SetLogLevel(Arc::new(move |level| {
        if let Some(level) = directive(level) {
            let _ = handle.reload(EnvFilter::new(level));
        }
    })))
}

/// Returns the log filter for one of Redis's levels.
fn directive(level: &str) -> Option<&'static str> {
    match level {
        "debug" | "verbose" => Some("debug"),
        "notice" => Some("info"),
        "warning" => Some("warn"),
        _ => None,
    }
}

/// Returns the store's configuration, or the first error as one line.
pub fn configure(mut options: Options) -> Result<Config, String> {
    let tls = tls::settings(&options)?;
    let zookeeper = zookeeper::settings(&options)?;
    let tls_port = options.tls_port.filter(|port| *port != 0);
    if options.port == Some(0) {
        // The other ports are derived from the only port for clients.
        let only = tls_port.ok_or("port 0 needs tls-port, because clients would have no port without it")?;
        options.port = Some(only);
    }
    members::check_ports([
        ("peer-port", options.peer_port),
        ("admin-port", options.admin_port),
        ("forward-port", options.forward_port),
    ])?;
    let dir = options.dir.clone().unwrap_or_else(|| PathBuf::from("steelyard-data"));
    let mut config = Config::single(dir, options.port.unwrap_or(6379));
    config.store = options.store_id.unwrap_or(0);
    config.cluster_enabled = options.cluster_enabled.is_some_and(|yes| yes.0);
    config.members = match &options.stores {
        Some(stores) => stores.members()?,
        None => vec![single_member(&options, &config)?],
    };
    let Some(this) = config.members.iter().find(|member| member.id == config.store).cloned() else {
        return Err(format!("store-id {} is not in the list of stores", config.store));
    };
    if options.stores.is_some() {
        agree(&options, &this)?;
    }
    // The mode is determined by the cluster that the store joins, or by the IDENTITY of an earlier
    // start.
    let told_by_cluster = !options.join.is_empty() || config.dir.join("IDENTITY").exists();
    if let (Some(forward), false) = (this.forward, config.cluster_enabled || told_by_cluster) {
        return Err(format!("forward-port {} needs cluster-enabled yes", forward.port()));
    }
    distinct_ports(&config.members)?;
    config.beginning = match (options.bootstrap, options.join.as_slice()) {
        (Some(YesNo(true)), []) if options.stores.is_none() => Beginning::Bootstrap,
        (Some(YesNo(true)), _) => return Err("bootstrap cannot be combined with stores or join".into()),
        (_, []) => Beginning::Listed,
        (_, _) if options.stores.is_some() => {
            return Err("a store either joins a cluster or is in its list of stores".into())
        }
        (_, stores) => Beginning::Join(stores.to_vec()),
    };
    if let Some(seconds) = options.replace_after {
        config.replace_after = Duration::from_secs(seconds);
    }
    if let Some(seconds) = options.consistency_check_interval {
        config.check_interval = Duration::from_secs(seconds);
    }
    config.enable_debug_command = options.enable_debug_command.map_or(DebugCommand::No, |value| value.0);
    let split_bytes = if config.beginning == Beginning::Listed { 0 } else { SPLIT_BYTES };
    config.limits.split_bytes = options.split_size.map_or(split_bytes, |size| size.0);
    config.limits.split_ops = options.split_ops.unwrap_or(0);
    config.limits.merge_bytes = options.merge_size.map_or(0, |size| size.0);
    config.bind = match options.bind.is_empty() {
        true => vec![this.client.ip()],
        false => options.bind,
    };
    let regions = if config.cluster_enabled { DEFAULT_REGIONS } else { 1 };
    config.regions = Config::checked_regions(options.regions.unwrap_or(u64::from(regions)))?;
    if let Some(replicas) = options.replicas {
        config.replicas = replicas;
    }
    if let Some(policy) = &options.policy {
        config.policy = policy.parse().map_err(|error| format!("policy: {error}"))?;
    }
    config.requirepass = options.requirepass.filter(|password| !password.is_empty());
    config.join_token = match &options.join_token {
        None => None,
        Some(_) if options.join.is_empty() => return Err("join-token needs join".into()),
        Some(text) => {
            Some(JoinToken::parse(text).ok_or("join-token is no token of steelyard ctl join-token")?)
        }
    };
    config.aclfile = options.aclfile;
    if let Some(which) = &options.acl_pubsub_default {
        config.acl_pubsub_all = match which.as_str() {
            server::ALL_CHANNELS => true,
            server::NO_CHANNELS => false,
            _ => return Err("acl-pubsub-default is allchannels or resetchannels".into()),
        };
    }
    if let Some(letters) = &options.notify_keyspace_events {
        config.keyspace_events =
            server::Classes::parse(letters).ok_or("notify-keyspace-events has letters of Ag$lshzxeKEtmdn")?;
    }
    if let Some(limits) = &options.client_output_buffer_limit {
        let changed = config.output_limits.changed(limits);
        config.output_limits = changed.map_err(|why| format!("client-output-buffer-limit: {why}"))?;
    }
    let number = |said: Option<i64>| said.map(|number| number.to_string());
    for (name, said) in [
        ("slowlog-log-slower-than", number(options.slowlog_log_slower_than)),
        ("slowlog-max-len", number(options.slowlog_max_len)),
        ("latency-monitor-threshold", number(options.latency_monitor_threshold)),
        ("latency-tracking", options.latency_tracking.map(|yes| if yes.0 { "yes" } else { "no" }.to_owned())),
        ("latency-tracking-info-percentiles", options.latency_tracking_info_percentiles),
    ] {
        if let Some(value) = said {
            config.statistics.set(name, &value).map_err(|why| format!("{name}: {why}"))?;
        }
    }
    (config.tls_port, config.tls) = (tls_port, tls);
    let yes = |option: Option<YesNo>| option.is_some_and(|yes| yes.0);
    config.tls_cluster = yes(options.tls_cluster);
    config.tls_forward = yes(options.tls_forward);
    config.tls_admin = yes(options.tls_admin);
    config.insecure_peers = yes(options.insecure_peers);
    config.encryption = encryption::settings(
        options.encryption_key_file,
        options.encryption_key_command,
        options.encryption_old_key_file,
    )?;
    if let Some(name) = options.tls_cluster_name {
        config.tls_cluster_name = name;
    }
    config.admin_auth = options.admin_auth.is_some_and(|yes| yes.0);
    if let Some(max) = options.acllog_max_len {
        config.acllog_max_len = max;
    }
    if let Some(max) = options.maxclients {
        if max == 0 {
            return Err("maxclients must be at least 1".into());
        }
        config.maxclients = max;
    }
    config.core_file_memory = options.core_file_memory.is_some_and(|yes| yes.0);
    if let Some(max) = options.maxclients_unauthenticated {
        config.strangers_max = max as usize;
    }
    for (name, said, setting) in [
        ("timeout", options.timeout, &mut config.timeout),
        ("auth-timeout", options.auth_timeout, &mut config.auth_timeout),
        ("tcp-keepalive", options.tcp_keepalive, &mut config.tcp_keepalive),
    ] {
        match said {
            None => {}
            Some(seconds) if seconds > server::SECONDS_MAX => {
                return Err(format!("{name} must be at most {} seconds", server::SECONDS_MAX));
            }
            Some(seconds) => *setting = seconds,
        }
    }
    if let Some(size) = options.snapshot_rate {
        config.snapshot_rate = size.0;
    }
    if let Some(size) = options.proto_max_bulk_len {
        config.bulk_bytes_max = server::bulk_bytes_max(size.0)
            .ok_or_else(|| format!("proto-max-bulk-len must be {}", server::BULK_BYTES_RANGE))?;
    }
    if let Some(max) = options.tracking_table_max_keys {
        config.tracking_keys_max = max;
    }
    if let Some(YesNo(protected)) = options.protected_mode {
        config.protected_mode = protected;
    }
    if let Some(fsync) = &options.fsync {
        config.fsync = fsync.parse()?;
    }
    if let Some(file) = options.boot_id_file {
        config.boot_id_file = file;
    }
    if let Some(size) = options.maxmemory {
        config.maxmemory = size.0;
    }
    config.raft_log_bytes = match options.raft_log_size {
        Some(size) => size.0,
        None => Config::default_raft_log_bytes(config.maxmemory),
    };
    if let Some(size) = options.reserve {
        config.reserve_bytes = size.0;
    }
    config.capacity_bytes = match options.capacity {
        Some(Size(0)) => {
            return Err(
                "capacity must be above 0; by default it is what the store holds and its device can take"
                    .into(),
            )
        }
        capacity => capacity.map(|size| size.0),
    };
    if let Some(path) = &options.capability_fit {
        config.fit = device::Fit::read(path).map_err(|error| format!("capability-fit: {error}"))?;
    }
    config.probe = options.probe.is_none_or(|yes| yes.0);
    if let Some(ms) = options.request_timeout {
        if ms == 0 {
            return Err("request-timeout must be at least 1 ms".into());
        }
        config.request_timeout = Duration::from_millis(ms);
    }
    if let Some(window) = options.proposal_window {
        if window == 0 {
            return Err("proposal-window must be at least 1".into());
        }
        config.proposal_window = window;
    }
    if let Some(ms) = options.weak_read_max_lag {
        config.weak_read_max_lag = server::weak_read_max_lag(ms)
            .ok_or_else(|| format!("weak-read-max-lag must be {}", server::WEAK_READ_MAX_LAG_RANGE))?;
    }
    if let Some(ms) = options.raft_tick {
        config.raft_tick = Duration::from_millis(ms);
    }
    config.zookeeper = zookeeper;
    if let Some(profile) = options.rocksdb_profile {
        config.rocksdb_profile = profile;
    }
    config.rocksdb = options.rocksdb.iter().map(|text| rocksdb_option(text)).collect::<Result<_, _>>()?;
    config.device_control =
        options.device_control.or_else(|| std::env::var_os(device::DEVICE_ENV).map(PathBuf::from));
    config.io_threads = options.io_threads.unwrap_or(0);
    config.reader_threads = options.reader_threads.unwrap_or(0);
    config.validate()?;
    Ok(config)
}

/// Default number of user regions of a new cluster in cluster mode.
pub const DEFAULT_REGIONS: u16 = 16;

/// Default size in bytes at which regions are split, if stores may come and go.
const SPLIT_BYTES: u64 = 96 << 20;

/// Returns the only member of a cluster of one store, from the flags for one store.
fn single_member(options: &Options, defaults: &Config) -> Result<Member, String> {
    // `defaults` is for store 0. Its ports are already derived.
    let mut member = defaults.members[0].clone();
    member.id = defaults.store;
    let ip = options.bind.iter().copied().find(|ip| !ip.is_unspecified());
    let ip = ip.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    member.client.set_ip(ip);
    member.peer = SocketAddr::new(ip, options.peer_port.unwrap_or(member.peer.port()));
    member.admin =
        SocketAddr::new(members::loopback_like(ip), options.admin_port.unwrap_or(member.admin.port()));
    member.forward = options.forward_port.map(|port| SocketAddr::new(ip, port));
    member.capability = options.capability.as_deref().map(members::capability).transpose()?;
    member.device = options.device.clone().unwrap_or_default();
    member.labels = members::labels(&options.label)?;
    Ok(member)
}

/// Checks that flags about this store agree with the list of stores, because the other stores read
/// only the list.
fn agree(options: &Options, this: &Member) -> Result<(), String> {
    let ports = [
        ("port", options.port, Some(this.client.port())),
        ("peer-port", options.peer_port, Some(this.peer.port())),
        ("admin-port", options.admin_port, Some(this.admin.port())),
        ("forward-port", options.forward_port, this.forward.map(|address| address.port())),
    ];
    for (name, said, listed) in ports {
        if said.is_some() && said != listed {
            let listed = listed.map_or("none".to_owned(), |port| port.to_string());
            return Err(format!("{name} {} contradicts the list of stores ({listed})", said.unwrap_or(0)));
        }
    }
    if let Some(said) = options.capability.as_deref().map(members::capability).transpose()? {
        if this.capability != Some(said) {
            return Err("capability contradicts the list of stores: write it there".into());
        }
    }
    if !options.label.is_empty() && members::labels(&options.label)? != this.labels {
        return Err("label contradicts the list of stores: write it there".into());
    }
    match &options.device {
        Some(said) if *said != this.device => {
            Err("device contradicts the list of stores: write it there".into())
        }
        _ => Ok(()),
    }
}

fn distinct_ports(members: &[Member]) -> Result<(), String> {
    let mut taken: Vec<(SocketAddr, u64)> = Vec::new();
    for member in members {
        let mut addresses = vec![member.client, member.peer];
        addresses.extend(member.forward);
        for address in addresses {
            if let Some((_, other)) = taken.iter().find(|(known, _)| *known == address) {
                return Err(format!("{address} is used twice (stores {other} and {})", member.id));
            }
            taken.push((address, member.id));
        }
    }
    Ok(())
}

fn rocksdb_option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().into(), value.trim().into())),
        _ => Err(format!("rocksdb takes NAME=VALUE, not '{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Options {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn nothing_said_is_one_durable_store_on_loopback() {
        let config = configure(Options::default()).unwrap();
        assert_eq!(config.this().client.to_string(), "127.0.0.1:6379");
        assert_eq!(config.this().admin.to_string(), "127.0.0.1:26379");
        assert_eq!(config.fsync, server::Fsync::Always);
        assert_eq!((config.regions, config.members.len()), (1, 1));
        assert!(config.protected_mode && config.io_threads == 0);
    }

    #[test]
    fn what_is_said_reaches_the_configuration() {
        let text = "port = 7000\nfsync = \"everysec\"\nmaxmemory = \"64mb\"\nrequest-timeout = 250\n\
                    cluster-enabled = \"yes\"\nregions = 24\npolicy = \"leader-only\"\nforward-port = 7100\n\
                    [rocksdb]\nmax_open_files = 100\n";
        let config = configure(options(text)).unwrap();
        assert_eq!(config.fsync, server::Fsync::EverySec);
        assert_eq!((config.maxmemory, config.regions), (64 << 20, 24));
        assert_eq!(config.request_timeout, Duration::from_millis(250));
        assert_eq!(config.rocksdb, [("max_open_files".to_owned(), "100".to_owned())]);
        assert_eq!(config.this().forward.unwrap().port(), 7100);
        assert!(config.probe && config.capacity_bytes.is_none());
        assert_eq!(configure(options("raft-log-size = \"32mb\"")).unwrap().raft_log_bytes, 32 << 20);
        let bytes = |text| configure(options(text)).unwrap().raft_log_bytes;
        assert_eq!(
            [bytes("maxmemory = \"64mb\""), bytes(""), bytes("maxmemory = \"64gb\"")],
            [256 << 20, 512 << 20, 4 << 30]
        );
        let small = configure(options("raft-log-size = \"1mb\"")).and_then(|config| config.validate());
        assert!(small.is_err_and(|why| why.contains("raft-log-size")));
        let config = configure(options("capacity = \"5gb\"\nprobe = \"no\"")).unwrap();
        assert!(!config.probe && config.capacity_bytes == Some(5 << 30));
    }

    #[test]
    fn a_setting_that_is_written_to_the_file_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.toml");
        // The file alone would be refused.
        std::fs::write(&path, "regions = 24\n").unwrap();
        let flags = Options { cluster_enabled: Some(YesNo(true)), ..Options::default() };
        let file =
            ConfigFile::new(&path, move |file| check(flags.clone().over(Options::parse(file)?))).unwrap();
        for (name, value) in [
            ("acl-pubsub-default", "allchannels"),
            ("acllog-max-len", "7"),
            ("auth-timeout", "9"),
            ("client-output-buffer-limit", "normal 1048576 0 0 slave 0 0 0 pubsub 33554432 8388608 60"),
            ("io-threads", "1"),
            ("latency-monitor-threshold", "100"),
            ("latency-tracking", "no"),
            ("latency-tracking-info-percentiles", "50"),
            ("loglevel", "warning"),
            ("maxclients", "70"),
            ("maxclients-unauthenticated", "8"),
            ("notify-keyspace-events", "AKE"),
            ("proto-max-bulk-len", "1048576"),
            ("protected-mode", "no"),
            ("requirepass", "1234"),
            ("slowlog-log-slower-than", "-1"),
            ("slowlog-max-len", "5"),
            ("snapshot-rate", "5242880"),
            ("tcp-keepalive", "60"),
            ("timeout", "7"),
            ("tls-auth-clients", "optional"),
            ("tls-auth-clients-user", "CN"),
            ("tls-protocols", "TLSv1.3"),
            ("tls-session-caching", "no"),
            ("tls-session-cache-size", "9"),
            ("tracking-table-max-keys", "11"),
            ("weak-read-max-lag", "250"),
        ] {
            file.rewrite(|| (vec![(name, value.to_owned())], Vec::new()))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let options = Options { cluster_enabled: Some(YesNo(true)), ..Options::read(&path).unwrap() };
        let config = configure(options).unwrap();
        let numbers = (config.maxclients, config.timeout, config.tcp_keepalive, config.io_threads);
        assert_eq!(numbers, (70, 7, 60, 1));
        let sizes = (config.snapshot_rate, config.bulk_bytes_max, config.tracking_keys_max);
        assert_eq!(sizes, (5 << 20, 1 << 20, 11));
        assert_eq!((config.requirepass.as_deref(), config.protected_mode), (Some("1234"), false));
        assert_eq!(config.weak_read_max_lag, Some(Duration::from_millis(250)));
        for (name, value, why) in
            [("proto-max-bulk-len", "7", "must be between"), ("loglevel", "loud", "not 'loud'")]
        {
            let refused = file.rewrite(|| (vec![(name, value.to_owned())], Vec::new()));
            assert!(refused.is_err_and(|error| error.to_string().contains(why)), "{name}");
        }
    }

    #[test]
    fn an_error_of_a_value_in_the_file_names_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.toml");
        let refused = |text: &str, flags: &Options| {
            std::fs::write(&path, text).unwrap();
            let error = checked(flags.clone().over(Options::read(&path).unwrap())).unwrap_err();
            let error = placed(Some(&path), flags, error);
            let prefix = format!("{}: ", path.display());
            error.strip_prefix(&prefix).unwrap_or(&error).to_owned()
        };
        let none = Options::default();
        for (line, expected) in [
            ("fsync = \"often\"", "line 2: fsync is always, everysec or no, not 'often'"),
            ("maxmemory = \"1mb\"", "line 2: maxmemory is at least 64mb"),
            ("capability = \"x\"", "line 2: capability: 'x' is not a size"),
            ("client-output-buffer-limit = \"pubsub x 0 0\"", "line 2: client-output-buffer-limit: Error in"),
            ("stores = \"0=127.0.0.1:7000,capability=x\"", "line 2: stores: store 0: capability: 'x'"),
            ("[rocksdb]\nfoo = 1", "line 2: rocksdb: unknown RocksDB option 'foo'"),
            ("replicas = 10", "line 2: replicas must be 1 to 9, not 10"),
            ("regions = 99999", "line 2: regions must be 1 to 16384, not 99999"),
            ("replace-after = 0", "line 2: replace-after must be at least 1 second"),
            ("peer-port = 0", "line 2: peer-port must be 1 to 65535"),
            ("loglevel = \"loud\"", "line 2: loglevel is debug"),
            ("tls-admin = true", "line 2: tls-admin needs tls-cert-file"),
        ] {
            let error = refused(&format!("timeout = 1\n{line}\n"), &none);
            assert!(error.starts_with(expected) && !error.contains('\n'), "{line}: {error}");
        }
        // The file is not at fault.
        let flags = Options { fsync: Some("often".into()), ..Options::default() };
        assert!(refused("fsync = \"no\"\n", &flags).starts_with("fsync is"));
        assert!(refused("port = 1\n", &flags).starts_with("fsync is"));
    }

    #[test]
    fn port_0_needs_a_port_with_tls() {
        let options = |words: &[&str]| {
            let command = <Options as clap::Args>::augment_args(clap::Command::new("serve"));
            let matches = command.try_get_matches_from([&["serve"][..], words].concat()).unwrap();
            <Options as clap::FromArgMatches>::from_arg_matches(&matches).unwrap()
        };
        let refused = configure(options(&["--port", "0"])).unwrap_err();
        assert_eq!(refused, "port 0 needs tls-port, because clients would have no port without it");
        let mut certified = options(&["--port", "0", "--tls-port", "7001"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        (certified.tls_cert_file, certified.tls_key_file) = (Some(path.clone()), Some(path));
        let config = configure(certified).unwrap();
        assert_eq!((config.plain_port(), config.tls_port), (0, Some(7001)));
        assert_eq!(config.this().admin.port(), 27001);
        assert!(configure(options(&["--replace-after", "0"])).unwrap_err().starts_with("replace-after must"));
    }

    #[test]
    fn a_cause_is_not_repeated() {
        let address = SocketAddr::from(([127, 0, 0, 1], 22000));
        let source = || std::io::Error::from_raw_os_error(98);
        let error = server::StartError::Listen { address, source: source() };
        assert_eq!(one_line(&error), format!("cannot listen on {address}: {}", source()));
        let error = anyhow::Error::new(source()).context("the runtime");
        assert_eq!(one_line(&*error), format!("the runtime: {}", source()));
    }

    #[test]
    fn a_key_file_that_cannot_be_read_is_named_with_its_setting() {
        let config = configure(options("encryption-key-file = \"/nowhere/key\"")).unwrap();
        let error = format!("{:#}", check_key_file(&config).unwrap_err());
        assert!(error.starts_with("encryption-key-file: /nowhere/key cannot be read: "), "{error}");
        assert!(check_key_file(&configure(Options::default()).unwrap()).is_ok());
    }

    #[test]
    fn a_fit_is_read_from_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fit.json");
        let pair = device::Pair { name: "one".into(), io_bytes_per_s: 1e6, kv_bytes_per_s: 500.0 };
        device::Fit::of(vec![pair], 1, "made up".into()).unwrap().write(&path).unwrap();
        let text = |path: &std::path::Path| format!("capability-fit = \"{}\"", path.display());
        assert_eq!(configure(options(&text(&path))).unwrap().fit.provenance(), "made up");
        std::fs::write(&path, "{}").unwrap();
        let error = configure(options(&text(&path))).unwrap_err();
        assert!(error.contains("capability-fit: ") && error.contains("fit.json"), "{error}");
    }

    #[test]
    fn a_store_takes_its_addresses_from_the_list() {
        let text = "store-id = 1\nstores = \"0=127.0.0.1:7000,1=127.0.0.1:7001\"\n";
        let config = configure(options(text)).unwrap();
        assert_eq!(config.this().client.port(), 7001);
        assert_eq!(config.members.len(), 2);
    }

    #[test]
    fn a_store_takes_its_labels_from_the_list() {
        let tables = "[[stores]]\nid = 0\nclient = \"127.0.0.1:7000\"\nlabel = { zone = \"a\", rack = 3 }\n\
                      [[stores]]\nid = 1\nclient = \"127.0.0.1:7001\"\n";
        let config = configure(options(tables)).unwrap();
        let labels = &config.this().labels;
        assert_eq!((labels["zone"].as_str(), labels["rack"].as_str()), ("a", "3"));
        assert!(config.members[1].labels.is_empty());
        let list = "stores = \"0=127.0.0.1:7000,label=zone=a,1=127.0.0.1:7001\"\n";
        assert_eq!(configure(options(list)).unwrap().this().labels["zone"], "a");
        assert!(configure(options(&format!("{list}label = [\"zone=a\"]"))).is_ok(), "it says the same");
    }

    #[test]
    fn a_store_begins_a_cluster_or_joins_one() {
        let config = configure(options("bootstrap = \"yes\"\nlabel = { zone = \"a\" }")).unwrap();
        assert_eq!(config.beginning, Beginning::Bootstrap);
        assert_eq!(config.limits.split_bytes, SPLIT_BYTES);
        assert_eq!(config.this().labels["zone"], "a");
        let text = "join = \"127.0.0.1:17000\"\nforward-port = 7100\nreplace-after = 5\nsplit-size = \"1mb\"";
        let config = configure(options(text)).unwrap();
        assert_eq!(config.beginning, Beginning::Join(vec!["127.0.0.1:17000".parse().unwrap()]));
        assert_eq!((config.replace_after, config.limits.split_bytes), (Duration::from_secs(5), 1 << 20));
        assert_eq!(configure(options("port = 7000")).unwrap().limits.split_bytes, 0);
    }

    #[test]
    fn contradictions_are_one_clear_line() {
        let list = "stores = \"0=127.0.0.1:7000,1=127.0.0.1:7001\"\n";
        for (text, part) in [
            (format!("store-id = 5\n{list}"), "store-id 5 is not in the list"),
            (format!("port = 9\n{list}"), "port 9 contradicts"),
            (format!("device = \"nvm\"\n{list}"), "device contradicts"),
            (format!("label = [\"zone=a\"]\n{list}"), "label contradicts"),
            ("forward-port = 7100".into(), "needs cluster-enabled"),
            (format!("join = \"127.0.0.1:1\"\n{list}"), "either joins a cluster or is in its list"),
            ("bootstrap = \"yes\"\njoin = \"127.0.0.1:1\"".into(), "combined with stores or join"),
            ("label = [\"zone\"]".into(), "label takes NAME=VALUE"),
            ("capacity = 0".into(), "capacity must be above 0"),
            ("regions = 2".into(), "cluster-enabled"),
            ("fsync = \"often\"".into(), "fsync is"),
            ("policy = \"best\"".into(), "policy: "),
            ("rocksdb = [\"x\"]".into(), "NAME=VALUE"),
            ("stores = \"0=127.0.0.1:7000,1=127.0.0.1:7000\"".into(), "used twice"),
        ] {
            let error = configure(options(&text)).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
