//! Who a store says it is when it connects, and what it is told when it is not believed.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use types::StoreId;

use super::frame::{Hello, Lane, Refusal};

/// In place of a store's number: one that is about to join, or any store that answers it.
pub const NOBODY: StoreId = StoreId::MAX;

/// What this store presents to the others. The cluster's id is 0 until it is known.
pub struct Identity {
    pub store: StoreId,
    /// Of the layout with which the cluster began.
    pub layout_digest: u64,
    /// Drawn when the data directory was made: a store that comes back with another one has lost its data.
    pub token: u64,
    cluster_id: AtomicU64,
    refusals: mpsc::UnboundedSender<(StoreId, Refusal)>,
}

impl Identity {
    /// Refusals by other stores come out of the receiver.
    pub fn new(
        store: StoreId,
        layout_digest: u64,
        token: u64,
        cluster_id: u64,
    ) -> (Identity, mpsc::UnboundedReceiver<(StoreId, Refusal)>) {
        let (refusals, refused) = mpsc::unbounded_channel();
        (Identity { store, layout_digest, token, cluster_id: AtomicU64::new(cluster_id), refusals }, refused)
    }

    pub fn cluster_id(&self) -> u64 {
        self.cluster_id.load(Ordering::Acquire)
    }

    /// Takes the cluster's id in. False: one is known already.
    pub fn take_cluster_id(&self, id: u64) -> bool {
        self.cluster_id.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub fn hello(&self, to: StoreId, lane: Lane) -> Hello {
        Hello {
            from: self.store,
            to,
            lane,
            layout_digest: self.layout_digest,
            cluster_id: self.cluster_id(),
            token: self.token,
        }
    }

    pub(super) fn refused(&self, by: StoreId, refusal: Refusal) {
        // Nobody listens any more only while the store stops.
        let _ = self.refusals.send((by, refusal));
    }
}
