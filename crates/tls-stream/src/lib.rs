//! TLS over sockets, by rustls: a state machine of bytes ([`Session`]), a stream for tasks
//! ([`TlsStream`]), the files of certificates and keys ([`files`]), and the contents of
//! certificates ([`certificate`]).
//!
//! Nothing here decides which certificates are trusted: configurations of rustls come in.

#![forbid(unsafe_code)]

pub mod certificate;
pub mod files;
mod session;
mod stream;

pub use session::{is_tls_error, Session};
pub use stream::TlsStream;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Returns the cryptography of all connections: ring's.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
