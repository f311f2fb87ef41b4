//! Who a store is when it connects, and what it is told when it is not believed.

use std::sync::atomic::{AtomicU64, Ordering};

use cluster::StoreKey;
use tokio::sync::mpsc;
use types::StoreId;

use super::frame::Refusal;
use super::keyring::Keyring;
use super::keys::SecretKey;

/// In place of a store's number: one that is about to join, or any store that answers it.
pub const NOBODY: StoreId = StoreId::MAX;

/// By what this store proves itself to others, and knows them. The cluster's id is 0 until it is known.
pub struct Identity {
    pub store: StoreId,
    /// Of the layout with which the cluster began.
    pub layout_digest: u64,
    pub(super) secret: SecretKey,
    /// The cluster's password, which lets in whom others do not know by its key yet.
    pub(super) password: Option<String>,
    pub keyring: Keyring,
    cluster_id: AtomicU64,
    refusals: mpsc::UnboundedSender<(StoreId, Refusal)>,
}

impl Identity {
    /// Refusals by other stores come out of the receiver.
    pub fn new(
        store: StoreId,
        layout_digest: u64,
        secret: SecretKey,
        cluster_id: u64,
        password: Option<String>,
    ) -> (Identity, mpsc::UnboundedReceiver<(StoreId, Refusal)>) {
        let (refusals, refused) = mpsc::unbounded_channel();
        let (keyring, cluster_id) = (Keyring::default(), AtomicU64::new(cluster_id));
        (Identity { store, layout_digest, secret, password, keyring, cluster_id, refusals }, refused)
    }

    /// Of a store that is about to join.
    pub fn joining(secret: SecretKey, password: Option<String>) -> Identity {
        Identity::new(NOBODY, 0, secret, 0, password).0
    }

    pub fn key(&self) -> StoreKey {
        self.secret.public()
    }

    pub fn cluster_id(&self) -> u64 {
        self.cluster_id.load(Ordering::Acquire)
    }

    /// Takes the cluster's id in. False: one is known already.
    pub fn take_cluster_id(&self, id: u64) -> bool {
        self.cluster_id.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes in the members and their keys. This store knows its own.
    pub fn set_members(&self, members: impl Iterator<Item = (StoreId, Option<StoreKey>)>) {
        let own = self.key();
        self.keyring.set(members.map(|(id, key)| (id, if id == self.store { Some(own) } else { key })));
    }

    pub(super) fn refused(&self, by: StoreId, refusal: Refusal) {
        // Nobody listens any more only while the store stops.
        let _ = self.refusals.send((by, refusal));
    }
}
