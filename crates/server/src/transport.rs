//! Links between stores: framed TCP, one connection for each remote store and lane.
//!
//! Raft tolerates loss, so a lane that is down or full drops messages and reports that. Requests,
//! such as clients' commands for another store, are never dropped silently: the caller learns
//! whether they may have arrived.
//!
//! Both ends of every connection prove their identity before anything else (`handshake`), within
//! TLS if the stores have certificates (`certificates`).

mod append;
pub mod certificates;
pub mod frame;
pub mod handshake;
mod identity;
mod inbound;
pub mod join_token;
pub mod keyring;
pub mod keys;
pub mod kinds;
mod link;
mod output;
mod raft_frames;
pub mod raft_lane;
pub mod raft_message;
mod requests;
pub mod socket;
pub mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use raft::eraftpb;
use types::{RegionId, StoreId};

use frame::{Frame, Lane};
use handshake::Caller;
pub use identity::{Identity, NO_STORE};
pub use inbound::{listen, Inbound, InboundAnswer, Place, Remote};
use link::Link;
pub use requests::{ask_once, CallError};

/// Minimum bytes that may wait for a lane, however many lanes share the limit.
const LANE_BYTES_MIN: u64 = 256 << 10;

/// The outgoing side, shared by all senders of the store. Snapshots have connections of their own.
pub struct Transport {
    identity: Arc<Identity>,
    /// The runtime of the links' tasks, for any thread that starts them. Set by `start`.
    runtime: OnceLock<tokio::runtime::Handle>,
    links: RwLock<BTreeMap<StoreId, Arc<StoreLinks>>>,
    /// The limit of all lanes together, which is divided among them. Beyond its share a lane drops
    /// new messages.
    bytes: AtomicU64,
    lane_bytes: LaneBytes,
}

/// Maximum bytes of Raft messages that may wait for each lane. It changes with the number of
/// stores.
type LaneBytes = Arc<AtomicUsize>;

struct StoreLinks {
    address: SocketAddr,
    control: Link,
    log: Link,
    requests: requests::Requests,
}

impl Transport {
    /// Creates a transport without links.
    pub fn new(identity: Arc<Identity>, bytes: u64) -> Transport {
        let (links, lane_bytes, bytes) = (RwLock::default(), LaneBytes::default(), AtomicU64::new(bytes));
        Transport { identity, runtime: OnceLock::new(), links, bytes, lane_bytes }
    }

    /// Starts the links to every other store. They connect and reconnect by themselves.
    ///
    /// # Panics
    /// Panics if called outside of a runtime.
    pub fn start(&self, others: impl Iterator<Item = (StoreId, SocketAddr)>) {
        let _ = self.runtime.set(tokio::runtime::Handle::current());
        self.set_members(others.collect());
    }

    /// Sets the stores that this store is linked with; its own entry is ignored. Links to a store
    /// with an unchanged address stay. Messages for a store that leaves are dropped. Does nothing
    /// before `start`.
    pub fn set_members(&self, members: Vec<(StoreId, SocketAddr)>) {
        let Some(runtime) = self.runtime.get() else { return };
        let _runtime = runtime.enter();
        let others = members.iter().filter(|(to, _)| *to != self.identity.store).count();
        let mut links = self.links.write();
        self.lane_bytes.store(self.share(others), Ordering::Relaxed);
        let mut previous = std::mem::take(&mut *links);
        for (to, address) in members.into_iter().filter(|(to, _)| *to != self.identity.store) {
            let kept = previous.remove(&to).filter(|links| links.address == address);
            links.insert(to, kept.unwrap_or_else(|| Arc::new(self.connect(to, address))));
        }
    }

    /// Returns the maximum bytes that may wait for one store's lane. The same limit applies to
    /// requests from that store.
    fn share(&self, others: usize) -> usize {
        (self.bytes.load(Ordering::Relaxed) / (2 * others.max(1) as u64)).max(LANE_BYTES_MIN) as usize
    }

    /// Returns the maximum bytes of one connection's requests in progress, or of its unprocessed
    /// messages.
    pub fn bytes_at_once(&self) -> usize {
        self.lane_bytes.load(Ordering::Relaxed)
    }

    /// Changes the limit of all lanes together. Connections from other stores keep the limit with
    /// which they began.
    pub fn set_bytes(&self, bytes: u64) {
        let links = self.links.write();
        self.bytes.store(bytes, Ordering::Relaxed);
        self.lane_bytes.store(self.share(links.len()), Ordering::Relaxed);
    }

    fn connect(&self, to: StoreId, address: SocketAddr) -> StoreLinks {
        let link = |lane| Link::start(address, self.identity.clone(), to, lane, self.lane_bytes.clone());
        StoreLinks {
            address,
            control: link(Lane::Control),
            log: link(Lane::Log),
            requests: requests::Requests::start(address, self.identity.clone(), to),
        }
    }

    /// Returns a caller for a connection outside the links.
    pub fn caller(&self, to: StoreId, lane: Lane) -> std::io::Result<Caller> {
        Caller::new(self.identity.clone(), to, lane)
    }

    fn links(&self, to: StoreId) -> Option<Arc<StoreLinks>> {
        self.links.read().get(&to).cloned()
    }

    /// Returns the stores that this store is linked with.
    pub fn others(&self) -> Vec<StoreId> {
        self.links.read().keys().copied().collect()
    }

    /// Returns the address at which a member listens for other stores.
    pub fn address(&self, of: StoreId) -> Option<SocketAddr> {
        self.links.read().get(&of).map(|links| links.address)
    }

    /// Returns true if the store is connected, so that messages can arrive.
    pub fn is_connected(&self, to: StoreId) -> bool {
        self.links.read().get(&to).is_some_and(|links| links.control.is_connected())
    }

    /// Queues Raft messages. Returns false if they were dropped because the store is not reachable
    /// now.
    pub fn send_raft(&self, to: StoreId, lane: Lane, messages: Vec<(RegionId, eraftpb::Message)>) -> bool {
        match (self.links.read().get(&to), lane) {
            (Some(links), Lane::Log) => links.log.send_raft(messages),
            (Some(links), _) => links.control.send_raft(messages),
            (None, _) => false,
        }
    }

    pub fn send_heartbeat(&self, report: &Bytes) {
        for links in self.links.read().values() {
            links.control.send(Frame::Heartbeat(report.clone()));
        }
    }

    pub fn send_order(&self, to: StoreId, order: Bytes) -> bool {
        self.links(to).is_some_and(|links| links.control.send(Frame::Order(order)))
    }

    /// Sends an announcement. It is lost if the store is not reachable; the sender repeats it.
    pub fn send_announce(&self, to: StoreId, descriptor: Bytes) {
        if let Some(links) = self.links(to) {
            links.control.send(Frame::Announce(descriptor));
        }
    }

    /// Sends a request to another store. Returns the answer's status byte and body.
    pub async fn call(
        &self,
        to: StoreId,
        kind: u8,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(u8, Bytes), CallError> {
        match self.links(to) {
            Some(links) => links.requests.call(kind, body, timeout).await,
            None => Err(CallError::NotSent),
        }
    }
}
