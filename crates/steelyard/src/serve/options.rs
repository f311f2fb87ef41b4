//! The options of `serve`, which are the same on the command line and in the configuration file.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use server::DebugCommand;

use super::members::Stores;
use super::size::Size;

/// The options. A field is `None` or empty if the option was not given.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// Port for clients; 0 with --tls-port: there is no port without TLS [default: 6379]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Addresses to listen on for clients [default: 127.0.0.1, or this store's address in --stores]
    #[arg(long, value_name = "IP", num_args = 1.., value_delimiter = ' ')]
    #[serde(deserialize_with = "one_or_many")]
    pub bind: Vec<IpAddr>,
    /// Directory for this store's data [default: ./steelyard-data]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// This store's number in the list of stores [default: 0]
    #[arg(long, value_name = "N")]
    pub store_id: Option<u64>,
    /// Port for other stores [default: port + 10000]
    #[arg(long, value_name = "PORT")]
    pub peer_port: Option<u16>,
    /// Port of the admin endpoint, on loopback [default: port + 20000]
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<u16>,
    /// Port on which plain clients are served by forwarding; only in cluster mode
    #[arg(long, value_name = "PORT")]
    pub forward_port: Option<u16>,
    /// Follow Redis Cluster's rules on the client port, and allow more than one region [default:
    /// no]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub cluster_enabled: Option<YesNo>,
    /// Number of regions when the cluster is created, at most 16384 [default: 1; 16 with
    /// --cluster-enabled]
    #[arg(long, value_name = "N")]
    pub regions: Option<u64>,
    /// Number of copies of each region, 1 to 9, at most one per store [default: 3]
    #[arg(long, value_name = "N")]
    pub replicas: Option<usize>,
    /// Create a cluster that other stores will join
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes", conflicts_with = "stores")]
    pub bootstrap: Option<YesNo>,
    /// Peer addresses of stores whose cluster this store joins; ignored once it has joined
    #[arg(long, value_name = "IP:PORT", num_args = 1.., value_delimiter = ',', conflicts_with_all = ["stores", "bootstrap", "store_id"])]
    #[serde(deserialize_with = "one_or_many")]
    pub join: Vec<SocketAddr>,
    /// Token with which this store joins, in place of --requirepass (steelyard ctl join-token makes
    /// one); safer in the file
    #[arg(long, value_name = "TOKEN")]
    pub join_token: Option<String>,
    /// Labels that this store shares with stores that may fail together: zone=a,rack=3
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    #[serde(deserialize_with = "table_or_list")]
    pub label: Vec<String>,
    /// Seconds of silence after which a store's peers are rebuilt on other stores [default: 600]
    #[arg(long, value_name = "SECONDS")]
    pub replace_after: Option<u64>,
    /// Seconds between two comparisons of a region's replicas by checksums; 0 for none [default:
    /// 86400]
    #[arg(long, value_name = "SECONDS")]
    pub consistency_check_interval: Option<u64>,
    /// Clients that may use DEBUG; with yes, entries that order a failure fail here; for tests only
    /// [default: no]
    #[arg(long, value_name = "no|local|yes", num_args = 0..=1, default_missing_value = "yes")]
    pub enable_debug_command: Option<Debugging>,
    /// Size above which a region is split; 0 for no limit [default: 0; 96mb with --cluster-enabled]
    #[arg(long, value_name = "SIZE")]
    pub split_size: Option<Size>,
    /// Commands per second above which a region is split; 0 for no limit [default: 0]
    #[arg(long, value_name = "N")]
    pub split_ops: Option<u64>,
    /// Total size below which two neighbouring regions are merged; 0 disables merges [default: 0]
    #[arg(long, value_name = "SIZE")]
    pub merge_size: Option<Size>,
    /// Every store of the cluster: 0=127.0.0.1:7000:17000:27000,1=... (see docs/CONFIGURATION.md)
    #[arg(long, value_name = "LIST")]
    pub stores: Option<Stores>,
    /// Placement policy when the cluster is created [default: even]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Password for clients; safer in the file, because other users of the machine can read the
    /// command line
    #[arg(long, value_name = "PASSWORD")]
    pub requirepass: Option<String>,
    /// File of users that ACL LOAD reads and ACL SAVE writes
    #[arg(long, value_name = "FILE")]
    pub aclfile: Option<PathBuf>,
    /// Channels of new users: allchannels or resetchannels [default: resetchannels]
    #[arg(long, value_name = "WHICH")]
    pub acl_pubsub_default: Option<String>,
    /// Events of keys that subscribers are told of: letters of Ag$lshzxeKEtmdn [default: none]
    #[arg(long, value_name = "LETTERS")]
    pub notify_keyspace_events: Option<String>,
    /// Limits of what waits for a client that does not read: CLASS HARD SOFT SECONDS, of the
    /// classes normal and pubsub [default: normal 0 0 0 pubsub 32mb 8mb 60]
    #[arg(long, value_name = "LIMITS")]
    pub client_output_buffer_limit: Option<String>,
    /// Shortest time of a command in the slow log, in microseconds; -1 for none [default: 10000]
    #[arg(long, value_name = "MICROSECONDS", allow_negative_numbers = true)]
    pub slowlog_log_slower_than: Option<i64>,
    /// Maximum number of entries of the slow log [default: 128]
    #[arg(long, value_name = "COUNT")]
    pub slowlog_max_len: Option<i64>,
    /// Shortest time of a slow moment that LATENCY shows, in milliseconds; 0 for none [default: 0]
    #[arg(long, value_name = "MILLISECONDS")]
    pub latency_monitor_threshold: Option<i64>,
    /// Record the times of commands as histograms [default: yes]
    #[arg(long, value_name = "YES|NO")]
    pub latency_tracking: Option<YesNo>,
    /// Percentiles that INFO latencystats shows [default: 50 99 99.9]
    #[arg(long, value_name = "PERCENTILES")]
    pub latency_tracking_info_percentiles: Option<String>,
    /// Port for clients with TLS; equal to the client port, or with --port 0, there is no port
    /// without TLS [default: none]
    #[arg(long, value_name = "PORT")]
    pub tls_port: Option<u16>,
    /// Certificate for clients with TLS, with its chain (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<String>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key_file: Option<String>,
    /// Refused: keys with a passphrase cannot be read
    #[arg(long, value_name = "PASS", hide = true)]
    pub tls_key_file_pass: Option<String>,
    /// Certificate for connections that this store opens to others, if it is not the same (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_client_cert_file: Option<String>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_client_key_file: Option<String>,
    /// Certificates that sign those of clients and of other stores (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_ca_cert_file: Option<String>,
    /// Certificates of clients: yes (required), optional or no [default: yes]
    #[arg(long, value_name = "WHICH")]
    pub tls_auth_clients: Option<String>,
    /// User of a client with a certificate: the one that its common name (CN) names [default: off]
    #[arg(long, value_name = "WHICH")]
    pub tls_auth_clients_user: Option<String>,
    /// TLSv1.2, TLSv1.3 or both [default: both]
    #[arg(long, value_name = "LIST")]
    pub tls_protocols: Option<String>,
    /// Let clients resume TLS sessions [default: yes]
    #[arg(long, value_name = "yes|no")]
    pub tls_session_caching: Option<String>,
    /// Maximum number of TLS sessions that can be resumed [default: 20480]
    #[arg(long, value_name = "N")]
    pub tls_session_cache_size: Option<String>,
    /// Use TLS between stores: both ends show certificates for store-N.NAME.steelyard [default: no]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub tls_cluster: Option<YesNo>,
    /// Name of the cluster in the certificates of its stores [default: default]
    #[arg(long, value_name = "NAME")]
    pub tls_cluster_name: Option<String>,
    /// Serve clients with TLS, and no others, on the forward port [default: no]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub tls_forward: Option<YesNo>,
    /// Serve programs with TLS, and no others, on the admin port [default: no]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub tls_admin: Option<YesNo>,
    /// Let stores talk without TLS over a network that nobody else can reach [default: no]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub insecure_peers: Option<YesNo>,
    /// Encrypt the data directory under the master key in this file (64 hexadecimal digits)
    #[arg(long, value_name = "FILE")]
    pub encryption_key_file: Option<String>,
    /// The same, with the master key that this program prints. It is not run by a shell
    #[arg(long, value_name = "PROGRAM ARGS")]
    pub encryption_key_command: Option<String>,
    /// The master key that the one of the two settings above replaces
    #[arg(long, value_name = "FILE")]
    pub encryption_old_key_file: Option<String>,
    /// Ask for a user and a password at the admin port [default: no]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub admin_auth: Option<YesNo>,
    /// Maximum number of entries of ACL LOG [default: 128]
    #[arg(long, value_name = "N")]
    pub acllog_max_len: Option<usize>,
    /// Maximum number of clients [default: 10000]
    #[arg(long, value_name = "N")]
    pub maxclients: Option<usize>,
    /// Seconds without a word after which a client is closed; 0 for never [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u32>,
    /// Let core files have the memory of the store: data, passwords and keys [default: no]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub core_file_memory: Option<YesNo>,
    /// Seconds after which a client is closed that has not logged in, 0 for never [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub auth_timeout: Option<u32>,
    /// Maximum number of clients of one address that have not logged in, 0 for any [default: 1000]
    #[arg(long, value_name = "N")]
    pub maxclients_unauthenticated: Option<u32>,
    /// Seconds after which an idle client's machine is probed; 0 for never [default: 300]
    #[arg(long, value_name = "SECONDS")]
    pub tcp_keepalive: Option<u32>,
    /// Without a password, serve only clients on loopback [default: yes]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub protected_mode: Option<YesNo>,
    /// Time of the Raft log's syncs: always, everysec, no [default: always]
    #[arg(long, value_name = "WHEN")]
    pub fsync: Option<String>,
    /// File that contains the present boot id of the machine, which shows --fsync everysec and no
    /// whether it crashed [default: /proc/sys/kernel/random/boot_id]
    #[arg(long, value_name = "FILE")]
    pub boot_id_file: Option<PathBuf>,
    /// RAM that is divided among the store's parts: memtables, caches, entries, messages, clients
    /// [default: 1gb]
    #[arg(long, value_name = "SIZE")]
    pub maxmemory: Option<Size>,
    /// Free space of the device below which the store transfers its leaders to other stores with
    /// room and refuses writes that add data [default: 256mb]
    #[arg(long, value_name = "SIZE")]
    pub reserve: Option<Size>,
    /// Size of the Raft log above which unneeded files are deleted; at least 4mb [default: half of
    /// maxmemory, from 256mb to 4gb]
    #[arg(long, value_name = "SIZE")]
    pub raft_log_size: Option<Size>,
    /// Milliseconds for which a command may wait for a leader or a quorum [default: 5000]
    #[arg(long, value_name = "MS")]
    pub request_timeout: Option<u64>,
    /// Number of log entries of a region that may wait for a quorum before its leader proposes more
    /// [default: 1024]
    #[arg(long, value_name = "N")]
    pub proposal_window: Option<u64>,
    /// Milliseconds by which reads after READONLY may lag behind the leader, unless READONLY itself
    /// names a bound; -1: any lag [default: -1]
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    pub weak_read_max_lag: Option<i64>,
    /// Milliseconds of one Raft tick, 5 to 1000 [default: 50]
    #[arg(long, value_name = "MS")]
    pub raft_tick: Option<u64>,
    /// ZooKeeper ensemble that can choose the candidates of elections (ctl config election), and
    /// the znode for its clusters [default: none; ROOT: /steelyard]
    #[arg(long, value_name = "HOST:PORT,...[/ROOT]")]
    pub zookeeper: Option<String>,
    /// Milliseconds without word after which ZooKeeper ends this store's session [default: 6000]
    #[arg(long, value_name = "MS")]
    pub zookeeper_session_timeout: Option<u64>,
    /// Credentials for ZooKeeper, scheme digest; safer in the file. Only sessions with them may
    /// read or change the znodes [default: none, anyone may]
    #[arg(long, value_name = "USER:PASSWORD")]
    pub zookeeper_auth: Option<String>,
    /// Connect to ZooKeeper with TLS, at its secureClientPort [default: no]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub zookeeper_tls: Option<YesNo>,
    /// Certificates that sign those of ZooKeeper's servers (PEM)
    #[arg(long, value_name = "FILE")]
    pub zookeeper_tls_ca_cert_file: Option<String>,
    /// Certificate that this store shows to ZooKeeper, with its chain (PEM) [default: none]
    #[arg(long, value_name = "FILE")]
    pub zookeeper_tls_cert_file: Option<String>,
    /// Private key of that certificate, without a passphrase (PEM)
    #[arg(long, value_name = "FILE")]
    pub zookeeper_tls_key_file: Option<String>,
    /// Maximum rate at which snapshots are sent, and at which they are received, per second; 0 for
    /// no limit [default: 100mb]
    #[arg(long, value_name = "SIZE")]
    pub snapshot_rate: Option<Size>,
    /// Maximum size of one argument of a command [default: 512mb]
    #[arg(long, value_name = "SIZE")]
    pub proto_max_bulk_len: Option<Size>,
    /// Maximum number of keys that clients with CLIENT TRACKING may cache; 0 for no limit [default:
    /// 1000000]
    #[arg(long, value_name = "N")]
    pub tracking_table_max_keys: Option<usize>,
    /// Number of threads that serve clients, at most 128; 0: as many as the load needs, up to the
    /// number of CPUs and at most 8 [default: 0]
    #[arg(long, value_name = "N")]
    pub io_threads: Option<usize>,
    /// Number of threads that fetch rows from flash for clients; 0: 32 [default: 0]
    #[arg(long, value_name = "N")]
    pub reader_threads: Option<usize>,
    /// Name of the device, for display
    #[arg(long, value_name = "TEXT")]
    pub device: Option<String>,
    /// Control block of this store's emulated device
    #[arg(long, value_name = "FILE")]
    pub device_control: Option<PathBuf>,
    /// Capability of this store in BYTES[/OPS] per second [default: measured]
    #[arg(long, value_name = "BYTES[/OPS]")]
    pub capability: Option<String>,
    /// Bytes of keys and values that this store may hold [default: the bytes that it holds and the
    /// free space of its device]
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<Size>,
    /// Fit from a device's speed to the store's, as written by `steelyard calibrate` [default: the
    /// built-in fit]
    #[arg(long, value_name = "FILE")]
    pub capability_fit: Option<PathBuf>,
    /// Measure the device at the first start, and watch it afterwards [default: yes]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    pub probe: Option<YesNo>,
    /// Log level: debug, verbose, notice or warning [default: notice]
    #[arg(long, value_name = "LEVEL")]
    pub loglevel: Option<String>,
    /// Named set of RocksDB options [default: default]
    #[arg(long, value_name = "NAME")]
    pub rocksdb_profile: Option<String>,
    /// One RocksDB option by its own name; overrides the profile
    #[arg(long, value_name = "NAME=VALUE")]
    #[serde(deserialize_with = "table_or_list")]
    pub rocksdb: Vec<String>,
}

impl Options {
    pub fn read(path: &Path) -> Result<Options, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        Options::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub fn parse(text: &str) -> Result<Options, String> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            // The message may have several lines. Errors at the start must have one line.
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            let message = of_the_cluster(&message).unwrap_or(message);
            match line {
                Some(line) => format!("line {line}: {}", naming_the_key(text, line, message)),
                None => message,
            }
        })
    }

    /// Merges the options with those of `file`. These options take precedence. RocksDB options are
    /// concatenated, with these options last.
    pub fn over(self, file: Options) -> Options {
        let mut rocksdb = file.rocksdb;
        rocksdb.extend(self.rocksdb);
        Options {
            port: self.port.or(file.port),
            bind: if self.bind.is_empty() { file.bind } else { self.bind },
            dir: self.dir.or(file.dir),
            store_id: self.store_id.or(file.store_id),
            peer_port: self.peer_port.or(file.peer_port),
            admin_port: self.admin_port.or(file.admin_port),
            forward_port: self.forward_port.or(file.forward_port),
            cluster_enabled: self.cluster_enabled.or(file.cluster_enabled),
            regions: self.regions.or(file.regions),
            replicas: self.replicas.or(file.replicas),
            bootstrap: self.bootstrap.or(file.bootstrap),
            join: if self.join.is_empty() { file.join } else { self.join },
            join_token: self.join_token.or(file.join_token),
            label: if self.label.is_empty() { file.label } else { self.label },
            replace_after: self.replace_after.or(file.replace_after),
            consistency_check_interval: self.consistency_check_interval.or(file.consistency_check_interval),
            enable_debug_command: self.enable_debug_command.or(file.enable_debug_command),
            split_size: self.split_size.or(file.split_size),
            split_ops: self.split_ops.or(file.split_ops),
            merge_size: self.merge_size.or(file.merge_size),
            stores: self.stores.or(file.stores),
            policy: self.policy.or(file.policy),
            requirepass: self.requirepass.or(file.requirepass),
            aclfile: self.aclfile.or(file.aclfile),
            acl_pubsub_default: self.acl_pubsub_default.or(file.acl_pubsub_default),
            notify_keyspace_events: self.notify_keyspace_events.or(file.notify_keyspace_events),
            client_output_buffer_limit: self.client_output_buffer_limit.or(file.client_output_buffer_limit),
            slowlog_log_slower_than: self.slowlog_log_slower_than.or(file.slowlog_log_slower_than),
            slowlog_max_len: self.slowlog_max_len.or(file.slowlog_max_len),
            latency_monitor_threshold: self.latency_monitor_threshold.or(file.latency_monitor_threshold),
            latency_tracking: self.latency_tracking.or(file.latency_tracking),
            latency_tracking_info_percentiles: self
                .latency_tracking_info_percentiles
                .or(file.latency_tracking_info_percentiles),
            tls_port: self.tls_port.or(file.tls_port),
            tls_cert_file: self.tls_cert_file.or(file.tls_cert_file),
            tls_key_file: self.tls_key_file.or(file.tls_key_file),
            tls_key_file_pass: self.tls_key_file_pass.or(file.tls_key_file_pass),
            tls_client_cert_file: self.tls_client_cert_file.or(file.tls_client_cert_file),
            tls_client_key_file: self.tls_client_key_file.or(file.tls_client_key_file),
            tls_cluster: self.tls_cluster.or(file.tls_cluster),
            tls_cluster_name: self.tls_cluster_name.or(file.tls_cluster_name),
            tls_forward: self.tls_forward.or(file.tls_forward),
            tls_admin: self.tls_admin.or(file.tls_admin),
            insecure_peers: self.insecure_peers.or(file.insecure_peers),
            encryption_key_file: self.encryption_key_file.or(file.encryption_key_file),
            encryption_key_command: self.encryption_key_command.or(file.encryption_key_command),
            encryption_old_key_file: self.encryption_old_key_file.or(file.encryption_old_key_file),
            tls_ca_cert_file: self.tls_ca_cert_file.or(file.tls_ca_cert_file),
            tls_auth_clients: self.tls_auth_clients.or(file.tls_auth_clients),
            tls_auth_clients_user: self.tls_auth_clients_user.or(file.tls_auth_clients_user),
            tls_protocols: self.tls_protocols.or(file.tls_protocols),
            tls_session_caching: self.tls_session_caching.or(file.tls_session_caching),
            tls_session_cache_size: self.tls_session_cache_size.or(file.tls_session_cache_size),
            admin_auth: self.admin_auth.or(file.admin_auth),
            acllog_max_len: self.acllog_max_len.or(file.acllog_max_len),
            maxclients: self.maxclients.or(file.maxclients),
            timeout: self.timeout.or(file.timeout),
            core_file_memory: self.core_file_memory.or(file.core_file_memory),
            auth_timeout: self.auth_timeout.or(file.auth_timeout),
            maxclients_unauthenticated: self.maxclients_unauthenticated.or(file.maxclients_unauthenticated),
            tcp_keepalive: self.tcp_keepalive.or(file.tcp_keepalive),
            protected_mode: self.protected_mode.or(file.protected_mode),
            fsync: self.fsync.or(file.fsync),
            boot_id_file: self.boot_id_file.or(file.boot_id_file),
            maxmemory: self.maxmemory.or(file.maxmemory),
            reserve: self.reserve.or(file.reserve),
            raft_log_size: self.raft_log_size.or(file.raft_log_size),
            request_timeout: self.request_timeout.or(file.request_timeout),
            proposal_window: self.proposal_window.or(file.proposal_window),
            weak_read_max_lag: self.weak_read_max_lag.or(file.weak_read_max_lag),
            raft_tick: self.raft_tick.or(file.raft_tick),
            zookeeper: self.zookeeper.or(file.zookeeper),
            zookeeper_session_timeout: self.zookeeper_session_timeout.or(file.zookeeper_session_timeout),
            zookeeper_auth: self.zookeeper_auth.or(file.zookeeper_auth),
            zookeeper_tls: self.zookeeper_tls.or(file.zookeeper_tls),
            zookeeper_tls_ca_cert_file: self.zookeeper_tls_ca_cert_file.or(file.zookeeper_tls_ca_cert_file),
            zookeeper_tls_cert_file: self.zookeeper_tls_cert_file.or(file.zookeeper_tls_cert_file),
            zookeeper_tls_key_file: self.zookeeper_tls_key_file.or(file.zookeeper_tls_key_file),
            snapshot_rate: self.snapshot_rate.or(file.snapshot_rate),
            proto_max_bulk_len: self.proto_max_bulk_len.or(file.proto_max_bulk_len),
            tracking_table_max_keys: self.tracking_table_max_keys.or(file.tracking_table_max_keys),
            io_threads: self.io_threads.or(file.io_threads),
            reader_threads: self.reader_threads.or(file.reader_threads),
            device: self.device.or(file.device),
            device_control: self.device_control.or(file.device_control),
            capability: self.capability.or(file.capability),
            capacity: self.capacity.or(file.capacity),
            capability_fit: self.capability_fit.or(file.capability_fit),
            probe: self.probe.or(file.probe),
            loglevel: self.loglevel.or(file.loglevel),
            rocksdb_profile: self.rocksdb_profile.or(file.rocksdb_profile),
            rocksdb,
        }
    }
}

/// A flag that is `yes` or `no`, or in a file also `true` or `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YesNo(pub bool);

impl FromStr for YesNo {
    type Err = String;

    fn from_str(text: &str) -> Result<YesNo, String> {
        match text {
            "yes" => Ok(YesNo(true)),
            "no" => Ok(YesNo(false)),
            other => Err(format!("'{other}' is neither yes nor no")),
        }
    }
}

impl<'de> Deserialize<'de> for YesNo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<YesNo, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "yes or no")]
        enum Written {
            Bool(bool),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bool(value) => Ok(YesNo(value)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// A value of `enable-debug-command`, in a file also `true` or `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debugging(pub DebugCommand);

impl FromStr for Debugging {
    type Err = String;

    fn from_str(text: &str) -> Result<Debugging, String> {
        let values = [DebugCommand::No, DebugCommand::Local, DebugCommand::Yes];
        let found = values.into_iter().find(|value| value.name() == text);
        found.map(Debugging).ok_or_else(|| format!("'{text}' is not no, local or yes"))
    }
}

impl<'de> Deserialize<'de> for Debugging {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Debugging, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "no, local or yes")]
        enum Written {
            Bool(bool),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bool(true) => Ok(Debugging(DebugCommand::Yes)),
            Written::Bool(false) => Ok(Debugging(DebugCommand::No)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

fn one_or_many<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "an address or a list of them")]
    enum Written {
        One(String),
        Many(Vec<String>),
    }
    let texts = match Written::deserialize(deserializer)? {
        Written::One(text) => {
            let separators = |c: char| c.is_whitespace() || c == ',';
            text.split(separators).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        }
        Written::Many(texts) => texts,
    };
    let parse = |text: &String| {
        text.parse().map_err(|_| serde::de::Error::custom(format!("'{text}' is not a valid address")))
    };
    texts.iter().map(parse).collect()
}

pub(super) fn table_or_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a table of options, or a list of NAME=VALUE")]
    enum Written {
        List(Vec<String>),
        Table(BTreeMap<String, toml::Value>),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::List(list) => list,
        Written::Table(table) => table
            .into_iter()
            .map(|(name, value)| match value {
                toml::Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            })
            .collect(),
    })
}

/// Puts the key of a line before the message, unless the message names it.
fn naming_the_key(text: &str, line: usize, message: String) -> String {
    let key = text.lines().nth(line - 1).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
    let is_bare = |key: &&str| {
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    match key.filter(is_bare) {
        Some(key) if !message.contains(&format!("`{key}`")) => format!("{key}: {message}"),
        _ => message,
    }
}

/// Returns the line of a configuration file that sets the setting with which an error begins, or
/// that begins its table.
pub fn line_of(text: &str, error: &str) -> Option<usize> {
    let name = error.split([' ', ':']).next().filter(|name| !name.is_empty())?;
    let mut is_in_table = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let header = line.strip_prefix('[').map(|line| line.trim_start_matches('['));
        is_in_table |= header.is_some();
        let after = |line: &str| line.strip_prefix(name).and_then(|rest| rest.trim_start().chars().next());
        let is_there = match header {
            Some(header) => after(header.trim_start()) == Some(']'),
            None => !is_in_table && matches!(after(line), Some('=' | '.')),
        };
        if is_there {
            return Some(number);
        }
    }
    None
}

/// Returns another message for an unknown key that Redis's files have and that is a setting of the
/// whole cluster here.
fn of_the_cluster(message: &str) -> Option<String> {
    let (name, _) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let setting = types::threshold_name(name)?;
    Some(format!(
        "`{name}` is a setting of the cluster and not of a store: use CONFIG SET or `steelyard ctl config {setting} \
         VALUE`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_the_cluster_has_is_an_error_that_says_how_it_is_set() {
        for name in ["hash-max-listpack-entries", "hash-max-ziplist-entries"] {
            let error = Options::parse(&format!("port = 1\n{name} = 9\n")).unwrap_err();
            let expected = format!(
                "line 2: `{name}` is a setting of the cluster and not of a store: use CONFIG SET or `steelyard ctl \
                 config hash-max-listpack-entries VALUE`"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_with_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        std::fs::write(&path, "port = 1\nprot = 2\n").unwrap();
        let error = Options::read(&path).unwrap_err();
        assert!(error.contains("s.toml: line 2: unknown field `prot`"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn an_error_of_a_value_names_the_line_and_the_key() {
        for (text, expected) in [
            ("port = 1\nmaxmemory = \"lots\"\n", "line 2: maxmemory: 'lots' is not a size"),
            ("port = \"x\"\n", "line 1: port: invalid type"),
            ("tls-cluster = \"maybe\"\n", "line 1: tls-cluster: 'maybe' is neither yes nor no"),
        ] {
            let error = Options::parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_wrong_key_in_the_list_of_stores_is_named() {
        let store = "[[stores]]\nid = 0\nclient = \"127.0.0.1:7000\"\n";
        let error = Options::parse(&format!("{store}[[stores]]\nid = 1\nadress = \"x\"\n")).unwrap_err();
        assert!(error.starts_with("line 6: unknown field `adress`"), "{error}");
        let error = Options::parse(&format!("{store}[[stores]]\nid = 1\n")).unwrap_err();
        assert!(error.contains("missing field `client`"), "{error}");
        let error = Options::parse(&format!("{store}peer-port = \"x\"\n")).unwrap_err();
        assert!(error.starts_with("line 4: peer-port: invalid type"), "{error}");
        let error = Options::parse("stores = 7\n").unwrap_err();
        assert!(error.contains("text as for --stores, or tables with id and client"), "{error}");
    }

    #[test]
    fn the_line_of_a_setting_is_found() {
        let text = "# port = 1\nport-x = 2\n  port = 3\nrocksdb.foo = 1\n[[stores]]\nfsync = 4\n[ label ]\n";
        let line = |error: &str| line_of(text, error);
        assert_eq!([line("port 3 contradicts"), line("port: no")], [Some(3), Some(3)]);
        assert_eq!([line("rocksdb: unknown"), line("stores: store 1"), line("label x")], [4, 5, 7].map(Some));
        assert_eq!([line("fsync is"), line("a store"), line("")], [None; 3]);
    }

    #[test]
    fn flags_win_over_the_file() {
        let file = Options::parse("port = 1\ndir = \"a\"\ncluster-enabled = true\nbind = \"::1\"").unwrap();
        let flags = Options { port: Some(2), ..Options::default() };
        let both = flags.over(file);
        assert_eq!((both.port, both.dir), (Some(2), Some("a".into())));
        assert_eq!(both.cluster_enabled, Some(YesNo(true)));
        assert_eq!(both.bind, ["::1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn a_file_says_everything_that_flags_say() {
        let mut command = <Options as clap::Args>::augment_args(clap::Command::new("serve"));
        command.build();
        let flags: Vec<String> = command
            .get_arguments()
            .filter_map(|a| a.get_long())
            .map(str::to_owned)
            .filter(|n| n != "help")
            .collect();
        assert!(flags.len() > 20);
        for flag in flags {
            // A wrong type is a different error from an unknown key.
            let error = Options::parse(&format!("{flag} = {{ x = 1 }}\n")).err().unwrap_or_default();
            assert!(!error.contains("unknown field"), "{flag}: {error}");
        }
    }

    #[test]
    fn stores_to_join_are_one_or_many() {
        let one = Options::parse("join = \"10.0.0.1:17000\"").unwrap();
        assert_eq!(one.join, ["10.0.0.1:17000".parse().unwrap()]);
        let text = Options::parse("join = \"10.0.0.1:17000,10.0.0.2:17000\"").unwrap();
        let list = Options::parse("join = [\"10.0.0.1:17000\", \"10.0.0.2:17000\"]").unwrap();
        assert_eq!((text.join.len(), &text.join), (2, &list.join));
        assert!(Options::parse("join = \"nowhere\"").unwrap_err().contains("'nowhere'"));
    }

    #[test]
    fn rocksdb_options_may_be_a_table() {
        let file = Options::parse("[rocksdb]\nmax_background_jobs = 4\ncompression = \"zstd\"\n").unwrap();
        assert_eq!(file.rocksdb, ["compression=zstd", "max_background_jobs=4"]);
    }
}
