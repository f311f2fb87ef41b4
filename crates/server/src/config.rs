//! The configuration of one store at its start. The command line and the configuration file both
//! set its fields.
//!
//! Names follow Redis if the meaning is the same. Settings that can change while the store runs are
//! in `settings`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster::{StoreFacts, StoreKey, REPLICAS_MAX};
use types::StoreId;

use crate::budget::Budget;
use crate::config_file::ConfigFile;
use crate::output_limits::OutputLimits;
use crate::pubsub::notices::Classes;
use crate::pubsub::tracking::KEYS_MAX;
use crate::statistics_settings::StatisticsSettings;
use crate::tls_settings::TlsSettings;
use crate::transport::certificates::is_cluster_name;
use crate::transport::join_token::JoinToken;
use crate::zookeeper_settings::ZooKeeper;

/// Election timeout in ticks. An election follows after 15 to 30 ticks of silence: 0.75 to 1.5 s at
/// 50 ms a tick.
pub const ELECTION_TICKS: u32 = 15;

/// The clients that may use `DEBUG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugCommand {
    No,
    /// Clients that connect from a loopback address.
    Local,
    Yes,
}

impl DebugCommand {
    pub fn name(self) -> &'static str {
        match self {
            DebugCommand::No => "no",
            DebugCommand::Local => "local",
            DebugCommand::Yes => "yes",
        }
    }
}

/// Maximum number of loops that serve clients if the number follows the load.
const LOOPS_MAX: usize = 8;
/// Maximum of `io_threads`, as in Redis.
const IO_THREADS_MAX: usize = 128;

/// The values of `raft_tick` in milliseconds. With the longest one, an election follows after 15 to
/// 30 s of silence.
const RAFT_TICK_MS: RangeInclusive<u128> = 5..=1000;

/// The times at which the Raft log is synced. Term and vote are synced in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before every acknowledgement (the default).
    Always,
    /// Once a second. A machine crash may lose the acknowledged writes of the last second.
    EverySec,
    /// Whenever the operating system decides.
    No,
}

impl std::str::FromStr for Fsync {
    type Err = String;

    fn from_str(text: &str) -> Result<Fsync, String> {
        match text {
            "always" => Ok(Fsync::Always),
            "everysec" => Ok(Fsync::EverySec),
            "no" => Ok(Fsync::No),
            other => Err(format!("fsync is always, everysec or no, not '{other}'")),
        }
    }
}

/// A member of the cluster. Every store's configuration has the same list.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub id: StoreId,
    pub client: SocketAddr,
    pub peer: SocketAddr,
    pub admin: SocketAddr,
    /// The address at which plain clients are served, with commands forwarded to the leader
    /// (cluster mode only).
    pub forward: Option<SocketAddr>,
    /// The configured capability, in the same unit for all stores. `None` means that it is
    /// measured. It counts as 1 until then.
    pub capability: Option<Capability>,
    /// The emulated device's profile for display; empty without one.
    pub device: String,
    /// The failure domains of the store: `zone` -> `a`.
    pub labels: BTreeMap<String, String>,
}

/// The way in which a store becomes a member, if its data directory does not record it yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Beginning {
    /// The store is in the list of stores, or is the only one.
    #[default]
    Listed,
    /// The store is the first of a cluster that others will join.
    Bootstrap,
    /// The store asks these stores. It gets its number from the first one that answers.
    Join(Vec<SocketAddr>),
}

/// KV bytes/s written and KV operations/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capability {
    pub kv_bytes_per_s: f64,
    pub ops_per_s: f64,
}

/// A function that carries out `CONFIG SET loglevel`. The code that set up logging provides it.
#[derive(Clone)]
pub struct SetLogLevel(pub std::sync::Arc<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for SetLogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SetLogLevel")
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    /// The store's number. A store that joined reads it from its data directory instead.
    pub store: StoreId,
    /// The stores that are known from the start, including this one, sorted by id.
    pub members: Vec<Member>,
    pub beginning: Beginning,
    pub dir: PathBuf,
    /// Addresses to listen on for clients; the port is the member's.
    pub bind: Vec<IpAddr>,
    pub cluster_enabled: bool,
    /// Number of user regions at bootstrap; 1 unless `cluster_enabled`.
    pub regions: u16,
    /// Number of peers that each region should have. At bootstrap it is limited to the number of
    /// stores.
    pub replicas: usize,
    /// The silence after which a store is lost and its peers are replaced on other stores.
    pub replace_after: Duration,
    /// The interval at which the replicas of each led region are compared. If it is zero, only `ctl
    /// check` compares them.
    pub check_interval: Duration,
    /// The clients that may use `DEBUG`. With `Yes`, entries that order a failure may be proposed
    /// on this store, and fail on it.
    pub enable_debug_command: DebugCommand,
    pub policy: placement::Policy,
    /// The limits of the planning that this store does as the leader of the meta region.
    pub limits: placement::PlanLimits,
    pub requirepass: Option<String>,
    /// The token with which a store joins, in place of the password.
    pub join_token: Option<JoinToken>,
    /// True if the cluster has a password that this store does not know, because it joined by a
    /// token. Until `requirepass` is set, the store admits no stranger, and no client without a
    /// user.
    pub lacks_password: bool,
    /// The file that `ACL LOAD` reads and `ACL SAVE` writes.
    pub aclfile: Option<PathBuf>,
    /// The port for clients with TLS. If it is the member's client port, there is no port without.
    pub tls_port: Option<u16>,
    pub tls: TlsSettings,
    /// True if stores use TLS with each other, and the cluster's name in their certificates.
    pub tls_cluster: bool,
    pub tls_cluster_name: String,
    /// True if the forward port, and the admin port, are for programs with TLS.
    pub tls_forward: bool,
    pub tls_admin: bool,
    /// True if stores may talk without TLS over other addresses than those of loopback.
    pub insecure_peers: bool,
    /// The place of the master key, if the data directory is encrypted.
    pub encryption: Option<atrest::Settings>,
    /// True if the admin endpoint asks for a user and a password.
    pub admin_auth: bool,
    /// True if new users may use all channels.
    pub acl_pubsub_all: bool,
    /// The events of keys that subscribers are told of, from the start on.
    pub keyspace_events: Classes,
    /// The limit of the messages that wait for a subscriber.
    pub output_limits: OutputLimits,
    pub statistics: StatisticsSettings,
    /// Maximum number of entries of `ACL LOG`.
    pub acllog_max_len: usize,
    pub protected_mode: bool,
    pub maxclients: usize,
    /// Seconds without a word after which a client is closed; 0 for never.
    pub timeout: u32,
    /// True if a core file of the process has its memory.
    pub core_file_memory: bool,
    /// Seconds after which a client is closed that has not logged in; 0 for never.
    pub auth_timeout: u32,
    /// Maximum number of clients of an address that have not logged in; 0 means no limit.
    pub strangers_max: usize,
    /// Seconds after which an idle client's machine is probed; 0 for never.
    pub tcp_keepalive: u32,
    pub fsync: Fsync,
    /// The file that names the present boot of the machine.
    pub boot_id_file: PathBuf,
    /// Maximum time that a command waits for a leader or a quorum before it is answered with an
    /// error.
    pub request_timeout: Duration,
    /// Number of entries of a region that may wait for their commit before its leader proposes
    /// more.
    pub proposal_window: u64,
    /// The bound on weak reads of connections that send `READONLY` without one. `None` means that
    /// their reads may be of any age.
    pub weak_read_max_lag: Option<Duration>,
    /// The length of a Raft tick. Election timeout and lease are multiples of it.
    pub raft_tick: Duration,
    /// The ZooKeeper ensemble that can choose the candidates of elections.
    pub zookeeper: Option<ZooKeeper>,
    /// Free bytes on the data device below which the store is out of room: it proposes no entries
    /// that add data.
    pub reserve_bytes: u64,
    /// Maximum live user bytes on this store. If absent, the sum of the bytes that it holds and its
    /// free space.
    pub capacity_bytes: Option<u64>,
    /// Size of the Raft log's files, in bytes, above which unneeded files are recycled. Rows are
    /// flushed often enough to allow this. A peer that lags by more gets a snapshot.
    pub raft_log_bytes: u64,
    /// The model that computes a store's capability from its device's measurement.
    pub fit: device::Fit,
    /// True if the store measures its device automatically.
    pub probe: bool,
    /// Maximum rate of outgoing snapshots, and of incoming ones, in bytes per second; 0 means no
    /// limit.
    pub snapshot_rate: u64,
    pub rocksdb_profile: String,
    /// RocksDB options by their own names. They override the profile.
    pub rocksdb: Vec<(String, String)>,
    /// Bytes of RAM that the store's parts share; see [`Budget`].
    pub maxmemory: u64,
    /// The control block of an emulated device (`ctl device` changes it).
    pub device_control: Option<PathBuf>,
    /// Number of loops that serve clients, each on its own thread. The first one also owns the Raft
    /// groups. 0 means that the number follows the load, up to [`Config::loops`].
    pub io_threads: usize,
    /// Number of threads that fetch rows from flash for clients; 0 means that the device decides,
    /// with [`READER_THREADS_DEFAULT`] until it is measured.
    pub reader_threads: usize,
    /// debug, verbose, notice or warning.
    pub loglevel: String,
    pub set_loglevel: Option<SetLogLevel>,
    /// Maximum bytes of one argument of a command.
    pub bulk_bytes_max: usize,
    /// Maximum number of keys that clients may cache; 0 means no limit.
    pub tracking_keys_max: usize,
    /// The file with which the store was started.
    pub file: Option<ConfigFile>,
}

/// Default of `tls_cluster_name`.
const TLS_CLUSTER_NAME: &str = "default";

/// Default of `maxmemory`, in bytes.
const MAXMEMORY_DEFAULT: u64 = 1 << 30;

/// Default of `raft_log_bytes`: half of `maxmemory` within these bounds. So the log has room for
/// overwrites of the rows that a memtable holds, and a restart replays a bounded part of it.
const RAFT_LOG_BYTES_DEFAULT: RangeInclusive<u64> = 256 << 20..=4 << 30;

/// Default of `reader_threads`: about the number of requests that a SATA device handles at once.
/// With more, requests would queue in the kernel, where urgent ones cannot overtake others.
pub const READER_THREADS_DEFAULT: usize = 32;
pub const READER_THREADS_MAX: usize = 512;

/// Minimum of `raft_log_bytes`: sixteen files of a few hundred entries.
const RAFT_LOG_BYTES_MIN: u64 = 4 << 20;

/// Checks a value of `maxmemory`.
pub fn check_maxmemory(bytes: u64) -> Result<(), String> {
    if bytes < Budget::MAXMEMORY_MIN {
        let why = "it bounds the whole process, and 0 does not mean that there is no limit";
        return Err(format!("maxmemory is at least 64mb: {why}"));
    }
    Ok(())
}

impl Config {
    /// Returns the size of the Raft log for a store that configures none.
    pub fn default_raft_log_bytes(maxmemory: u64) -> u64 {
        (maxmemory / 2).clamp(*RAFT_LOG_BYTES_DEFAULT.start(), *RAFT_LOG_BYTES_DEFAULT.end())
    }

    /// This store's own entry in `members`.
    pub fn this(&self) -> &Member {
        self.members.iter().find(|m| m.id == self.store).expect("checked by validate")
    }

    /// Returns the configuration of a single store with Redis's defaults: durable, on loopback, in
    /// `dir`.
    pub fn single(dir: PathBuf, port: u16) -> Config {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let member = Member {
            id: 0,
            client: loopback(port),
            peer: loopback(side_port(port, 10_000)),
            admin: loopback(side_port(port, 20_000)),
            forward: None,
            capability: None,
            device: String::new(),
            labels: BTreeMap::new(),
        };
        Config {
            store: 0,
            members: vec![member],
            beginning: Beginning::Listed,
            dir,
            bind: vec![IpAddr::from([127, 0, 0, 1])],
            cluster_enabled: false,
            regions: 1,
            replicas: 3,
            replace_after: Duration::from_secs(600),
            check_interval: Duration::from_secs(86_400),
            enable_debug_command: DebugCommand::No,
            policy: placement::Policy::Even,
            limits: placement::PlanLimits::default(),
            requirepass: None,
            join_token: None,
            lacks_password: false,
            aclfile: None,
            acl_pubsub_all: false,
            keyspace_events: Classes::default(),
            output_limits: OutputLimits::default(),
            statistics: StatisticsSettings::default(),
            admin_auth: false,
            tls_port: None,
            tls: TlsSettings::default(),
            tls_cluster: false,
            tls_cluster_name: TLS_CLUSTER_NAME.into(),
            tls_forward: false,
            tls_admin: false,
            insecure_peers: false,
            encryption: None,
            acllog_max_len: 128,
            protected_mode: true,
            maxclients: 10_000,
            timeout: 0,
            core_file_memory: false,
            auth_timeout: 60,
            strangers_max: 1000,
            tcp_keepalive: 300,
            fsync: Fsync::Always,
            boot_id_file: "/proc/sys/kernel/random/boot_id".into(),
            request_timeout: Duration::from_secs(5),
            proposal_window: replica::UNCOMMITTED_ENTRIES,
            weak_read_max_lag: None,
            raft_tick: Duration::from_millis(50),
            zookeeper: None,
            reserve_bytes: 256 << 20,
            capacity_bytes: None,
            raft_log_bytes: Config::default_raft_log_bytes(MAXMEMORY_DEFAULT),
            fit: device::Fit::shipped(),
            probe: true,
            snapshot_rate: 100 << 20,
            rocksdb_profile: "default".into(),
            rocksdb: Vec::new(),
            maxmemory: MAXMEMORY_DEFAULT,
            device_control: None,
            io_threads: 0,
            reader_threads: 0,
            loglevel: "notice".into(),
            set_loglevel: None,
            bulk_bytes_max: resp::Limits::default().bulk_bytes_max,
            tracking_keys_max: KEYS_MAX,
            file: None,
        }
    }

    /// Returns true if any port uses TLS.
    pub fn uses_tls(&self) -> bool {
        self.tls_port.is_some() || self.tls_cluster || self.tls_forward || self.tls_admin
    }

    /// Returns true if other stores, which can reach the peer port over a network, would have
    /// neither TLS nor the operator's word that the network is closed.
    fn has_exposed_peers(&self) -> bool {
        !self.this().peer.ip().is_loopback() && !self.tls_cluster && !self.insecure_peers
    }

    /// Checks the protection of the peer port, which `is_open` for other stores or not.
    pub fn check_peers(&self, is_open: bool) -> Result<(), String> {
        match is_open && self.has_exposed_peers() {
            false => Ok(()),
            true => Err(format!(
                "other stores would connect to {} without encryption, and anyone there could read and change what \
                 stores send each other. Give all stores certificates (tls-cluster yes; steelyard ctl tls init makes \
                 some), or, if nobody else can reach the network, say insecure-peers yes",
                self.this().peer
            )),
        }
    }

    /// Returns the port for clients without TLS; 0 if there is none.
    pub fn plain_port(&self) -> u16 {
        match self.this().client.port() {
            port if self.tls_port == Some(port) => 0,
            port => port,
        }
    }

    /// Returns the number of loops that exist.
    pub fn loops(&self) -> usize {
        match self.io_threads {
            0 => std::thread::available_parallelism().map_or(2, NonZero::get).min(LOOPS_MAX),
            fixed => fixed,
        }
    }

    /// Returns the number of regions of a new cluster, or an error that names the range.
    pub fn checked_regions(number: u64) -> Result<u16, String> {
        let most = types::SLOT_COUNT;
        let regions = u16::try_from(number).ok().filter(|regions| (1..=most).contains(regions));
        regions.ok_or_else(|| format!("regions must be 1 to {most}, not {number}"))
    }

    /// Checks the configuration. Returns the first error, as text for the operator. The text begins
    /// with the name of the setting, unless the error is about the list of stores.
    pub fn validate(&self) -> Result<(), String> {
        self.check_stores()?;
        Config::checked_regions(u64::from(self.regions))?;
        if !self.cluster_enabled && self.regions != 1 {
            return Err(format!("regions {} needs cluster-enabled yes", self.regions));
        }
        check_maxmemory(self.maxmemory)?;
        self.check_ranges()?;
        self.check_tls()?;
        self.check_rocksdb()?;
        self.check_reserve()?;
        self.zookeeper.as_ref().map_or(Ok(()), ZooKeeper::check)
    }

    fn check_stores(&self) -> Result<(), String> {
        if !self.members.iter().any(|m| m.id == self.store) {
            return Err(format!("store {} is not in the list of stores", self.store));
        }
        for pair in self.members.windows(2) {
            if pair[0].id >= pair[1].id {
                return Err(format!(
                    "store {} is listed twice or out of order in the list of stores",
                    pair[1].id
                ));
            }
        }
        facts_of(self.this(), None).check().map_err(|error| error.to_string())
    }

    fn check_ranges(&self) -> Result<(), String> {
        if !(1..=REPLICAS_MAX).contains(&self.replicas) {
            return Err(format!("replicas must be 1 to {REPLICAS_MAX}, not {}", self.replicas));
        }
        if self.replace_after.is_zero() {
            return Err("replace-after must be at least 1 second".into());
        }
        if self.raft_log_bytes < RAFT_LOG_BYTES_MIN {
            return Err("raft-log-size must be at least 4 MiB".into());
        }
        if self.io_threads > IO_THREADS_MAX {
            return Err(format!("io-threads must be 0 to {IO_THREADS_MAX}, not {}", self.io_threads));
        }
        if self.reader_threads > READER_THREADS_MAX {
            let number = self.reader_threads;
            return Err(format!("reader-threads must be 0 to {READER_THREADS_MAX}, not {number}"));
        }
        let tick_ms = self.raft_tick.as_millis();
        if !RAFT_TICK_MS.contains(&tick_ms) {
            let (least, most) = (*RAFT_TICK_MS.start(), *RAFT_TICK_MS.end());
            return Err(format!("raft-tick must be {least} to {most} ms, not {tick_ms}"));
        }
        Ok(())
    }

    /// Checks that the ports with TLS have certificates, and that the files can be read.
    fn check_tls(&self) -> Result<(), String> {
        if !is_cluster_name(&self.tls_cluster_name) {
            return Err("tls-cluster-name must have 1 to 63 letters a to z, digits and hyphens".into());
        }
        let users = [
            ("tls-port", self.tls_port.is_some()),
            ("tls-cluster", self.tls_cluster),
            ("tls-forward", self.tls_forward),
            ("tls-admin", self.tls_admin),
        ];
        if let Some((user, _)) = users.iter().find(|(_, uses_tls)| *uses_tls) {
            if self.tls.cert_file.is_none() {
                return Err(format!("{user} needs tls-cert-file, the certificate of this store"));
            }
            if self.tls.key_file.is_none() {
                return Err(format!("{user} needs tls-key-file, the key of tls-cert-file"));
            }
        }
        self.tls.check_files()
    }

    /// Checks the options of RocksDB one by one. Relations between them are checked when the rows
    /// are opened, because other options depend on the device.
    fn check_rocksdb(&self) -> Result<(), String> {
        let profile = rocks::Options::profile(&self.rocksdb_profile);
        let mut options = profile.map_err(|error| format!("rocksdb-profile: {error}"))?;
        for (name, value) in &self.rocksdb {
            options.set(name, value).map_err(|error| format!("rocksdb: {error}"))?;
        }
        Ok(())
    }

    /// Checks that the device could have as much free space as the store keeps.
    fn check_reserve(&self) -> Result<(), String> {
        match device_bytes(&self.dir) {
            Some(bytes) if self.reserve_bytes > bytes => Err(format!(
                "reserve must be at most the size of the file system of {}, {bytes} bytes, not {}",
                self.dir.display(),
                self.reserve_bytes
            )),
            _ => Ok(()),
        }
    }
}

/// Returns the size of the file system of a directory, which may not exist yet. `None` means that
/// the size is unknown.
fn device_bytes(dir: &Path) -> Option<u64> {
    let dir = std::path::absolute(dir).ok()?;
    let facts = dir.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok())?;
    Some(facts.f_blocks.saturating_mul(facts.f_frsize)).filter(|bytes| *bytes > 0)
}

/// Returns a port derived from another: `offset` above it, or below it if the sum would exceed
/// 65535.
pub fn side_port(port: u16, offset: u16) -> u16 {
    port.checked_add(offset).unwrap_or_else(|| port - offset)
}

/// Returns the facts that a store reports about itself.
pub fn facts_of(member: &Member, key: Option<StoreKey>) -> StoreFacts {
    StoreFacts {
        key,
        client: member.client.to_string(),
        peer: member.peer.to_string(),
        admin: member.admin.to_string(),
        forward: member.forward.map(|address| address.to_string()),
        device: member.device.clone(),
        capability: capability_of(member),
        labels: member.labels.clone(),
    }
}

pub fn capability_of(member: &Member) -> placement::Capability {
    member.capability.map_or(placement::Capability::UNKNOWN, |known| placement::Capability {
        kv_bytes_per_s: known.kv_bytes_per_s,
        ops_per_s: known.ops_per_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: fn(&mut Config)) -> String {
        let mut config = Config::single("nowhere".into(), 7000);
        assert_eq!(config.validate(), Ok(()));
        change(&mut config);
        config.validate().unwrap_err()
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_setting_and_the_range() {
        assert_eq!(refusal(|c| c.replicas = 10), "replicas must be 1 to 9, not 10");
        assert_eq!(refusal(|c| c.replicas = 0), "replicas must be 1 to 9, not 0");
        assert_eq!(refusal(|c| c.replace_after = Duration::ZERO), "replace-after must be at least 1 second");
        assert_eq!(refusal(|c| c.io_threads = 129), "io-threads must be 0 to 128, not 129");
        let tick = |c: &mut Config| c.raft_tick = Duration::from_secs(100);
        assert_eq!(refusal(tick), "raft-tick must be 5 to 1000 ms, not 100000");
        assert_eq!(Config::checked_regions(99_999), Err("regions must be 1 to 16384, not 99999".into()));
        assert_eq!(Config::checked_regions(16_384), Ok(16_384));
        assert!(Config::checked_regions(0).is_err());
    }

    #[test]
    fn a_reserve_that_no_free_space_can_reach_is_refused() {
        let why = refusal(|c| c.reserve_bytes = u64::MAX);
        assert!(why.starts_with("reserve must be at most the size of the file system of nowhere"), "{why}");
    }

    #[test]
    fn a_port_with_tls_needs_a_certificate_and_a_file_that_can_be_read() {
        let of = |setting: &str| format!("{setting} needs tls-cert-file, the certificate of this store");
        assert_eq!(refusal(|c| c.tls_port = Some(7001)), of("tls-port"));
        assert_eq!(refusal(|c| c.tls_cluster = true), of("tls-cluster"));
        assert_eq!(refusal(|c| c.tls_forward = true), of("tls-forward"));
        assert_eq!(refusal(|c| c.tls_admin = true), of("tls-admin"));
        let without_key = |c: &mut Config| {
            c.tls_admin = true;
            c.tls.cert_file = Some("/nowhere/c".into());
        };
        assert_eq!(refusal(without_key), "tls-admin needs tls-key-file, the key of tls-cert-file");
        // No port uses the file.
        let why = refusal(|c| c.tls.ca_cert_file = Some("/nowhere/a".into()));
        assert!(why.starts_with("tls-ca-cert-file: /nowhere/a cannot be read"), "{why}");
    }

    #[test]
    fn options_of_rocksdb_are_checked_by_name_and_value() {
        let unknown = |c: &mut Config| c.rocksdb = vec![("foo".into(), "1".into())];
        assert_eq!(refusal(unknown), "rocksdb: unknown RocksDB option 'foo'");
        let bad = |c: &mut Config| c.rocksdb = vec![("block_size".into(), "many".into())];
        assert!(refusal(bad).starts_with("rocksdb: RocksDB option block_size cannot be 'many'"));
        assert!(refusal(|c| c.rocksdb_profile = "fast".into()).starts_with("rocksdb-profile: unknown"));
    }
}
