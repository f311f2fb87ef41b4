//! Users and their permissions: compared with a real `redis-server`, over a cluster, and against
//! attempts to get around them. docs/SECURITY.md lists the attempts.

#[path = "access/attempts.rs"]
mod attempts;
#[path = "access/audit.rs"]
mod audit;
#[allow(dead_code, reason = "the differential test uses it, too")]
#[path = "differential/chance.rs"]
mod chance;
#[path = "access/cluster.rs"]
mod cluster;
#[path = "access/compared.rs"]
mod compared;
#[allow(dead_code, reason = "the differential test uses it, too")]
#[path = "differential/connection.rs"]
mod connection;
#[path = "access/generator.rs"]
mod generator;
#[allow(dead_code, reason = "the differential test uses it, too")]
#[path = "differential/servers.rs"]
mod servers;
mod stores;
