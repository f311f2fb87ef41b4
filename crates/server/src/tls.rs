//! The certificates that new connections get: those of clients, and those with other stores.
//!
//! A change of the settings or of the files replaces what new connections get; open connections
//! continue with the keys that they agreed on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::ServerConfig;
use types::StoreId;

use crate::tls_settings::TlsSettings;
use crate::transport::certificates::Certificates;

/// Maximum number of connections that are in their handshake at the same time.
pub const HANDSHAKES_MAX: usize = 1024;

#[derive(Default)]
pub struct Tls {
    /// For clients, and for programs at the admin port.
    offered: ArcSwapOption<ServerConfig>,
    /// For other stores, and this store's number.
    peers: Option<(Arc<Certificates>, StoreId)>,
    /// The settings that are in force, and the times of their files.
    loaded: Mutex<Option<(TlsSettings, Vec<Option<SystemTime>>)>>,
    handshakes: Arc<AtomicUsize>,
}

/// A connection in its handshake, among at most [`HANDSHAKES_MAX`].
pub struct Handshake(Arc<AtomicUsize>);

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tls {
    /// Creates the certificates of store `this`. Those for other stores are renewed with the
    /// others.
    pub fn new(peers: Option<Arc<Certificates>>, this: StoreId) -> Tls {
        Tls { peers: peers.map(|certificates| (certificates, this)), ..Tls::default() }
    }

    /// Reads the files of the settings, for new connections. An error changes nothing.
    pub fn load(&self, settings: &TlsSettings) -> Result<(), String> {
        let mut loaded = self.loaded.lock();
        // A file that changes while it is read is read again later.
        let stamps = settings.stamps();
        let offered = settings.load()?;
        if let Some((certificates, this)) = &self.peers {
            certificates.load(settings, *this)?;
        }
        self.offered.store(Some(offered));
        *loaded = Some((settings.clone(), stamps));
        Ok(())
    }

    /// Reads the files again if they have changed. Returns false if nothing has changed.
    pub fn load_if_changed(&self) -> Result<bool, String> {
        let (settings, stamps) = match &*self.loaded.lock() {
            Some((settings, stamps)) => (settings.clone(), stamps.clone()),
            None => return Ok(false),
        };
        match settings.stamps() == stamps {
            true => Ok(false),
            false => self.load(&settings).map(|()| true),
        }
    }

    /// Begins a handshake; `None` without TLS, or if too many are in progress.
    pub fn begin(&self) -> Option<(Arc<ServerConfig>, Handshake)> {
        let config = self.offered.load_full()?;
        let before = self.handshakes.fetch_add(1, Ordering::Relaxed);
        let handshake = Handshake(self.handshakes.clone());
        (before < HANDSHAKES_MAX).then_some((config, handshake))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let tls = Tls::default();
        assert!(tls.load(&TlsSettings::default()).is_err() && tls.begin().is_none());
        assert_eq!(tls.load_if_changed(), Ok(false));
    }
}
