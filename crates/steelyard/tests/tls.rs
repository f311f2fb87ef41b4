//! Clients with TLS: what works, what is refused, and attempts to do harm before a login.

#[path = "tls/attacks.rs"]
mod attacks;
#[path = "tls/certificates.rs"]
mod certificates;
#[path = "tls/client.rs"]
mod client_with_tls;
#[allow(dead_code, reason = "the differential test uses it, too")]
#[path = "differential/connection.rs"]
mod connection;
#[path = "tls/sessions.rs"]
mod sessions;
mod stores;
#[path = "tls/users.rs"]
mod users;
