//! A store's identity on its connections, and the refusals that it receives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use cluster::StoreKey;
use tokio::sync::mpsc;
use types::StoreId;

use super::certificates::Certificates;
use super::frame::Refusal;
use super::join_token::JoinToken;
use super::keyring::Keyring;
use super::keys::SecretKey;

/// A placeholder for a store's number: of a joining store, and of the unknown store that answers
/// it.
pub const NO_STORE: StoreId = StoreId::MAX;

/// The means by which this store proves its identity and checks that of others. The cluster's id is
/// 0 until it is known.
pub struct Identity {
    pub store: StoreId,
    /// The digest of the cluster's initial layout.
    pub layout_digest: u64,
    pub(super) secret: SecretKey,
    /// The cluster's password, or a token made from it. It admits stores whose keys are not known
    /// yet.
    pub(super) password: Option<String>,
    pub(super) token: Option<JoinToken>,
    pub keyring: Keyring,
    /// The certificates of all connections; `None` without TLS.
    certificates: Option<Arc<Certificates>>,
    cluster_id: AtomicU64,
    refusals: mpsc::UnboundedSender<(StoreId, Refusal)>,
}

impl Identity {
    /// Creates the identity. The receiver gets the refusals by other stores.
    pub fn new(
        store: StoreId,
        layout_digest: u64,
        secret: SecretKey,
        cluster_id: u64,
        password: Option<String>,
    ) -> (Identity, mpsc::UnboundedReceiver<(StoreId, Refusal)>) {
        let (refusals, refused) = mpsc::unbounded_channel();
        let (keyring, cluster_id) = (Keyring::default(), AtomicU64::new(cluster_id));
        (
            Identity {
                store,
                layout_digest,
                secret,
                password,
                token: None,
                keyring,
                certificates: None,
                cluster_id,
                refusals,
            },
            refused,
        )
    }

    /// Creates the identity of a store that is about to join.
    pub fn joining(secret: SecretKey, password: Option<String>, token: Option<JoinToken>) -> Identity {
        Identity { token, ..Identity::new(NO_STORE, 0, secret, 0, password).0 }
    }

    /// Has every connection use TLS.
    pub fn with(mut self, certificates: Option<Arc<Certificates>>) -> Identity {
        self.certificates = certificates;
        self
    }

    pub fn certificates(&self) -> Option<Arc<Certificates>> {
        self.certificates.clone()
    }

    pub fn key(&self) -> StoreKey {
        self.secret.public()
    }

    pub fn cluster_id(&self) -> u64 {
        self.cluster_id.load(Ordering::Acquire)
    }

    /// Sets the cluster's id. Returns false if one is already known.
    pub fn take_cluster_id(&self, id: u64) -> bool {
        self.cluster_id.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Sets the members and their keys. This store uses its own key for itself.
    pub fn set_members(&self, members: impl Iterator<Item = (StoreId, Option<StoreKey>)>) {
        let own = self.key();
        self.keyring.set(members.map(|(id, key)| (id, if id == self.store { Some(own) } else { key })));
    }

    pub(super) fn refused(&self, by: StoreId, refusal: Refusal) {
        // The receiver is gone only while the store stops.
        let _ = self.refusals.send((by, refusal));
    }
}
