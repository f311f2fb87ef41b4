//! Measuring and driving stores from outside: child processes, a RESP client that knows clusters, a load
//! generator, and comparisons with neighbours on the same machine.

#![deny(unsafe_code)]

pub mod admin;
pub mod cluster_client;
pub mod connection;
pub mod load;
pub mod measure;
pub mod peers;
pub mod process;
pub mod table;
