//! One store: sockets, the Raft groups and the threads that carry out their effects, transport,
//! routing and the admin endpoint.
//!
//! ```text
//!  clients ─▶ reactor ─▶ client, dispatch ─▶ executor::worker ─▶ node, replica (pure) ─▶ effects
//!               ▲          │                   │   ▲   │
//!               │          │                   │   │   └▶ executor::log_writer ─▶ raftlog
//!               └ replies ─│─────────────────◀─┴───┴──▶ executor::apply ─▶ engine ─▶ rocks
//!                          └▶ transport ◀─▶ other stores ─▶ store_messages ─▶ heartbeat, orders, …
//! ```
//!
//! A module names only modules below it. At the top, `startup` creates everything. Below it are the
//! modules that use a whole `Store`: clients' commands, answers to other stores, the heartbeat. The
//! store consists of parts (`regions`, `membership`, `executor`, `proposals`, `capability` and
//! others) that know only the parts they need.

#![deny(unsafe_op_in_unsafe_fn)]

mod access;
mod accounts;
mod admin;
mod admin_error;
mod admission;
mod audit_queue;
mod blocked;
mod budget;
mod capability;
mod catch_up;
mod check_schedule;
mod checkpoints;
mod client;
mod client_memory;
mod client_pause;
mod client_socket;
mod clock;
mod cluster_state;
mod config;
mod config_file;
mod connections;
mod consistency_checks;
mod copies;
mod cpu;
mod datadir;
mod device_hang;
mod device_waits;
mod direct_io;
mod disk;
mod dispatch;
mod election;
mod encryption;
mod ends;
mod engine;
mod executor;
mod expiry;
mod fetcher;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "the fuzz targets use a part"))]
mod fixture;
mod flash;
mod fronts;
mod functions;
mod functions_keeper;
#[doc(hidden)]
pub mod fuzzing;
mod heartbeat;
mod joining;
mod large_replies;
mod led;
mod loops;
mod members;
mod membership;
mod membership_keeper;
mod merged_away;
mod metrics;
mod orders;
mod output_limits;
mod pauses;
mod planned_stop;
mod prefetch;
mod proposals;
mod pubsub;
mod quarantines;
mod reactor;
mod readers;
mod recovery;
mod regions;
mod replication;
mod resident;
mod row_damage;
mod scripts;
mod secrets;
mod seekers;
mod settings;
mod slot_times;
mod slow_moments;
mod snapshot;
mod start_error;
mod startup;
mod statistics;
mod statistics_settings;
mod store;
mod store_messages;
mod strangers;
mod strong_reads;
mod survey;
mod tls;
mod tls_settings;
mod transport;
mod tuning;
mod unsynced;
mod upgrade;
mod wall_clock;
mod written_version;
mod zookeeper_settings;

pub use config::{side_port, Beginning, Capability, Config, DebugCommand, Fsync, Member, SetLogLevel};
pub use config_file::ConfigFile;
pub use output_limits::OutputLimits;
pub use pubsub::notices::Classes;
pub use settings::{
    bulk_bytes_max, weak_read_max_lag, ALL_CHANNELS, BULK_BYTES_RANGE, NO_CHANNELS, SECONDS_MAX,
    WEAK_READ_MAX_LAG_RANGE,
};
pub use start_error::StartError;
pub use startup::{run, Ended};
pub use tls_settings::{refusal as tls_refusal, TlsSettings};
pub use transport::certificates::is_cluster_name;
pub use transport::frame;
pub use transport::join_token::JoinToken;
pub use zookeeper_settings::{ZooKeeper, ZooKeeperTls};

/// Number of databases for SELECT.
pub const DATABASES: u16 = 16;

/// The Redis version whose commands and messages this server follows.
pub const REDIS_VERSION: &str = "7.0.15";
