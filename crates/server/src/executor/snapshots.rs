//! The store's side of the snapshot service, and its messages to the worker.

use std::net::SocketAddr;
use std::sync::Arc;

use raft::eraftpb;
use replica::Input;
use rocks::Keyspace;
use storage::StorageError;
use types::{LogIndex, RegionDescriptor, RegionId, StoreId, Term, THIRD_VERSION};

use super::parts::Parts;
use crate::disk::Disk;
use crate::ends::Ends;
use crate::engine::Engine;
use crate::loops::WorkerSender;
use crate::regions::Regions;
use crate::snapshot::SnapshotHost;
use crate::transport::frame::Lane;
use crate::transport::handshake::Caller;
use crate::transport::Transport;
use crate::written_version::WrittenVersion;

pub struct Host {
    engine: Arc<Engine>,
    disk: Arc<Disk>,
    regions: Arc<Regions>,
    version: Arc<WrittenVersion>,
    transport: Arc<Transport>,
    worker: WorkerSender,
    ends: Arc<Ends>,
}

impl Host {
    pub fn new(parts: &Parts) -> Host {
        Host {
            engine: parts.engine.clone(),
            disk: parts.disk.clone(),
            regions: parts.regions.clone(),
            version: parts.version.clone(),
            transport: parts.transport.clone(),
            worker: parts.worker.clone(),
            ends: parts.ends.clone(),
        }
    }

    /// Sends a message. If the worker has ended before the service, no message is needed.
    fn tell(&self, input: Input) {
        let _ = self.worker.raft(input);
    }
}

impl SnapshotHost for Host {
    fn keyspace(&self) -> &Keyspace {
        self.engine.rows()
    }

    fn target(&self, store: StoreId) -> Option<(SocketAddr, Caller)> {
        Some((self.transport.address(store)?, self.transport.caller(store, Lane::Snapshot).ok()?))
    }

    fn room(&self) -> u64 {
        self.disk.room()
    }

    fn may_stream(&self) -> bool {
        self.version.get() >= THIRD_VERSION
    }

    fn leads(&self, region: RegionId) -> bool {
        self.regions.get(region).is_some_and(|region| self.regions.leads(&region))
    }

    fn made(&self, region: RegionId, index: LogIndex, term: Term, descriptor: RegionDescriptor) {
        self.tell(Input::SnapshotMade { region, index, term, descriptor });
    }

    fn failed(&self, region: RegionId) {
        self.tell(Input::SnapshotFailed { region });
    }

    fn rows_failed(&self, error: &StorageError) {
        self.ends.rows_failed("a snapshot cannot be made", error);
    }

    fn sent(&self, region: RegionId, to: StoreId, ok: bool) {
        self.tell(Input::SnapshotSent { region, to, delivered: ok });
    }

    fn deliver(&self, from: StoreId, region: RegionId, message: eraftpb::Message) {
        self.tell(Input::Message { from, region, message });
    }
}
