//! TLS at the ports for other stores, for programs and for forwarded commands: clusters that use
//! it, and attempts to get around it.

#[path = "peers/attacks.rs"]
mod attacks;
#[path = "tls/certificates.rs"]
mod certificates;
#[path = "tls/client.rs"]
mod client_with_tls;
#[path = "peers/clusters.rs"]
mod clusters;
#[path = "peers/joins.rs"]
mod joins;
#[path = "peers/ports.rs"]
mod ports;
mod stores;
