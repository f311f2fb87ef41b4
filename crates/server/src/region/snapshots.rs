//! What the snapshot service asks of its store, and tells its worker.

use std::net::SocketAddr;
use std::sync::Arc;

use raft::eraftpb;
use replica::Input;
use rocks::Keyspace;
use types::{LogIndex, RegionDescriptor, RegionId, StoreId, Term};

use super::inbox::ToWorker;
use crate::snapshot::SnapshotHost;
use crate::store::Store;
use crate::transport::frame::Lane;
use crate::transport::handshake::Caller;

pub struct Host {
    pub store: Arc<Store>,
}

impl Host {
    /// The worker goes before the service: then nobody needs to know.
    fn tell(&self, input: Input) {
        let _ = self.store.worker.send(ToWorker::Input(input));
    }
}

impl SnapshotHost for Host {
    fn keyspace(&self) -> &Keyspace {
        self.store.engine.rows()
    }

    fn target(&self, store: StoreId) -> Option<(SocketAddr, Caller)> {
        let transport = self.store.transport();
        Some((transport.address(store)?, transport.caller(store, Lane::Snapshot).ok()?))
    }

    fn room(&self) -> u64 {
        self.store.disk.room()
    }

    fn made(&self, region: RegionId, index: LogIndex, term: Term, descriptor: RegionDescriptor) {
        self.tell(Input::SnapshotMade { region, index, term, descriptor });
    }

    fn failed(&self, region: RegionId) {
        self.tell(Input::SnapshotFailed { region });
    }

    fn sent(&self, region: RegionId, to: StoreId, ok: bool) {
        self.tell(Input::SnapshotSent { region, to, delivered: ok });
    }

    fn deliver(&self, from: StoreId, region: RegionId, message: eraftpb::Message) {
        self.tell(Input::Message { from, region, message });
    }
}
