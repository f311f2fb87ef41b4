//! What other stores send, handed to whom it concerns.

use std::sync::Arc;

use bytes::Bytes;
use raft::eraftpb;
use types::{RegionId, StoreId};

use crate::dispatch::{passing, REQUEST_ADMIN, REQUEST_COMMANDS, STATUS_ERROR};
use crate::region::inbox::ToWorker;
use crate::store::Store;
use crate::transport::{Inbound, InboundAnswer};
use crate::{admin_backend, heartbeat};

pub struct FromStores {
    pub store: Arc<Store>,
}

impl Inbound for FromStores {
    fn raft(&self, from: StoreId, messages: Vec<(RegionId, eraftpb::Message)>) {
        let _ = self.store.worker.send(ToWorker::Messages { from, messages });
    }

    fn heartbeat(&self, from: StoreId, report: Bytes) {
        heartbeat::hear(&self.store, from, &report);
    }

    fn order(&self, from: StoreId, region: RegionId, to: StoreId) {
        tracing::info!(region, to, from, "asked to hand over leadership");
        let _ = self.store.worker.send(ToWorker::TransferLeader { region, to });
    }

    fn request(self: Arc<Self>, _from: StoreId, kind: u8, body: Bytes) -> InboundAnswer {
        let store = self.store.clone();
        match kind {
            REQUEST_COMMANDS => Box::pin(store.execute_passed(body)),
            REQUEST_ADMIN => Box::pin(admin_backend::answer_passed(store, body)),
            _ => Box::pin(async { (STATUS_ERROR, Bytes::from_static(b"unknown kind of request")) }),
        }
    }

    fn too_long(&self, bytes: usize) -> (u8, Bytes) {
        (STATUS_ERROR, passing::answer_too_long(bytes))
    }
}
