//! Everything that drives stores from outside: child processes, connections, a client that knows
//! clusters, the admin API, TLS with all of them, and tables for people.

#![deny(unsafe_code)]

pub mod admin;
pub mod cluster_client;
pub mod connection;
pub mod latency;
pub mod place;
pub mod process;
pub mod scripted;
pub mod table;
pub mod tls;
pub mod value;
pub mod zookeeper;
