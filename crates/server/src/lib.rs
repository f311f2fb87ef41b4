//! One store: sockets, region workers, apply, transport, routing and the admin endpoint.
//!
//! ```text
//!  clients ─▶ client ─▶ dispatch ─▶ region::worker ─▶ replica (pure) ─▶ actions
//!               │          │  ▲           │   ▲
//!               │          │  │           │   └── region::log_writer ─▶ raftlog
//!               │          │  └ replies ◀─┴─▶ region::apply ─▶ engine ─▶ rocks
//!               │          └──▶ transport ◀─▶ other stores
//!               └─▶ settings, metrics, cluster_state ◀── heartbeat ─▶ placement
//! ```

#![deny(unsafe_op_in_unsafe_fn)]

pub mod admin;
mod admin_backend;
mod admission;
mod ahead;
mod announcing;
mod budget;
mod capability;
mod client;
mod clock;
mod cluster_state;
mod config;
mod connections;
mod cpu;
mod datadir;
mod disk;
mod dispatch;
mod ends;
mod engine;
mod expiry;
#[cfg(test)]
mod fixture;
mod heartbeat;
mod inbound;
mod joining;
mod loops;
mod members;
mod membership;
mod metrics;
mod orders;
mod proposals;
mod reactor;
mod readers;
mod recovery;
mod region;
mod regions;
mod settings;
mod slot_times;
mod snapshot;
mod start_error;
mod startup;
mod store;
mod strong_reads;
mod transport;
mod wall_clock;

pub use config::{side_port, Beginning, Capability, Config, Fsync, Member, SetLogLevel};
pub use start_error::StartError;
pub use startup::run;
pub use transport::frame;

/// What the fuzz targets call, beside `frame::fuzz`.
#[doc(hidden)]
pub use admission::fuzz as fuzz_join;

/// Databases that SELECT reaches.
pub const DATABASES: u16 = 16;

/// The Redis whose commands and wording are followed.
pub const REDIS_VERSION: &str = "7.0.15";
