//! The certificates that new connections get: those of clients, and those with other stores.
//!
//! A change of the settings or of the files replaces what new connections get; open connections
//! continue with the keys that they agreed on.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::StoreId;

use crate::tls_settings::TlsSettings;
use crate::transport::certificates::Certificates;

pub struct Tls {
    /// For clients, and for programs at the admin port.
    offered: ArcSwapOption<ServerConfig>,
    /// For other stores, and this store's number.
    peers: Option<(Arc<Certificates>, StoreId)>,
    /// The settings that are in force, and the times of their files.
    loaded: Mutex<Option<(TlsSettings, Vec<Option<SystemTime>>)>>,
    handshakes: ArcSwap<Semaphore>,
}

/// The place of a connection that is in its handshake. There are as many as memory permits.
pub struct Handshake {
    _permit: OwnedSemaphorePermit,
}

impl Tls {
    /// Creates the certificates of store `this`, without those of clients. At most `handshakes`
    /// connections are in their handshake at the same time.
    pub fn new(peers: Option<Arc<Certificates>>, this: StoreId, handshakes: usize) -> Tls {
        Tls {
            offered: ArcSwapOption::empty(),
            peers: peers.map(|certificates| (certificates, this)),
            loaded: Mutex::new(None),
            handshakes: ArcSwap::from_pointee(Semaphore::new(handshakes)),
        }
    }

    /// Changes the maximum number of handshakes at once. Those under way count towards the old one.
    pub fn set_handshakes(&self, handshakes: usize) {
        self.handshakes.store(Arc::new(Semaphore::new(handshakes)));
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

    /// Returns what new connections of clients and programs get; `None` without TLS.
    pub fn offered(&self) -> Option<Arc<ServerConfig>> {
        self.offered.load_full()
    }

    /// Waits for a place for a handshake, in the order of the calls. A port accepts no further
    /// connections meanwhile, so that they wait in the kernel's queue.
    pub async fn place(&self) -> Handshake {
        let permit = self.handshakes.load_full().acquire_owned().await;
        Handshake { _permit: permit.expect("the semaphore is never closed") }
    }

    /// Returns true if there is no place for a further handshake.
    pub fn is_crowded(&self) -> bool {
        self.handshakes.load().available_permits() == 0
    }

    /// Returns a place for a handshake, if there is one.
    pub fn place_now(&self) -> Option<Handshake> {
        let permit = self.handshakes.load_full().try_acquire_owned().ok()?;
        Some(Handshake { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let tls = Tls::new(None, 0, 1);
        assert!(tls.load(&TlsSettings::default()).is_err() && tls.offered().is_none());
        assert_eq!(tls.load_if_changed(), Ok(false));
    }
}
