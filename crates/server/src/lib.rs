//! One store: sockets, region workers, apply, transport, routing and the admin endpoint.

pub mod admin;
mod config;

pub use config::{side_port, Capability, Config, Fsync, Member};
