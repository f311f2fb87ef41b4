//! Store-to-store links: framed TCP, one connection per remote store and lane.
//!
//! Raft tolerates loss, so a lane that is down or too full drops messages and says so; requests (clients'
//! commands passed on) are never dropped silently: their caller learns whether they may have arrived.
//!
//! Both ends of every connection prove who they are before anything else is heard (`handshake`).

mod append;
pub mod frame;
pub mod handshake;
mod identity;
mod inbound;
pub mod keyring;
pub mod keys;
pub mod kinds;
mod link;
mod requests;
pub mod socket;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use raft::eraftpb;
use types::{RegionId, StoreId};

use frame::{Frame, Lane};
use handshake::Caller;
pub use identity::{Identity, NOBODY};
pub use inbound::{listen, Inbound, InboundAnswer, Place, Remote};
use link::Link;
pub use requests::{ask_once, CallError};

/// The least that may wait for a lane, whatever is shared out.
const LANE_BYTES_MIN: u64 = 256 << 10;

/// The outgoing side, shared by everything in the store that sends. Snapshots have connections of their own.
pub struct Transport {
    identity: Arc<Identity>,
    /// On which the links' tasks run, whoever starts them; set once they may start.
    runtime: OnceLock<tokio::runtime::Handle>,
    links: RwLock<BTreeMap<StoreId, Arc<StoreLinks>>>,
    /// What all of them may hold, and what that makes for each lane; beyond it new messages are dropped.
    bytes: u64,
    lane_bytes: LaneBytes,
}

/// Raft messages that may wait for each lane, in bytes; it changes with the number of stores.
type LaneBytes = Arc<AtomicUsize>;

struct StoreLinks {
    address: SocketAddr,
    control: Link,
    log: Link,
    requests: requests::Requests,
}

impl Transport {
    /// A transport without links, before it is started.
    pub fn new(identity: Arc<Identity>, bytes: u64) -> Transport {
        let (links, lane_bytes) = (RwLock::default(), LaneBytes::default());
        Transport { identity, runtime: OnceLock::new(), links, bytes, lane_bytes }
    }

    /// Starts the links to every other store; they connect, and reconnect, by themselves.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn start(&self, others: impl Iterator<Item = (StoreId, SocketAddr)>) {
        let _ = self.runtime.set(tokio::runtime::Handle::current());
        self.set_members(others.collect());
    }

    /// Links this store with these and no others; it may be among them itself. Links to a store that stays at
    /// its address are left alone. What waited for a store that goes is dropped. Before the start it does nothing.
    pub fn set_members(&self, members: Vec<(StoreId, SocketAddr)>) {
        let Some(runtime) = self.runtime.get() else { return };
        let _runtime = runtime.enter();
        let others = members.iter().filter(|(to, _)| *to != self.identity.store).count();
        self.lane_bytes.store(self.share(others), Ordering::Relaxed);
        let mut links = self.links.write();
        let mut former = std::mem::take(&mut *links);
        for (to, address) in members.into_iter().filter(|(to, _)| *to != self.identity.store) {
            let kept = former.remove(&to).filter(|links| links.address == address);
            links.insert(to, kept.unwrap_or_else(|| Arc::new(self.connect(to, address))));
        }
    }

    /// What waits for one store's lane, at most; as much again for requests that come from there.
    fn share(&self, others: usize) -> usize {
        (self.bytes / (2 * others.max(1) as u64)).max(LANE_BYTES_MIN) as usize
    }

    /// Of one connection's requests that this store works on at once, or messages that it has not taken in, in bytes.
    pub fn bytes_at_once(&self) -> usize {
        self.lane_bytes.load(Ordering::Relaxed)
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

    /// Begins a connection to another store that the links do not hold.
    pub fn caller(&self, to: StoreId, lane: Lane) -> std::io::Result<Caller> {
        Caller::new(self.identity.clone(), to, lane)
    }

    fn links(&self, to: StoreId) -> Option<Arc<StoreLinks>> {
        self.links.read().get(&to).cloned()
    }

    /// Where a member listens for other stores.
    pub fn address(&self, of: StoreId) -> Option<SocketAddr> {
        self.links.read().get(&of).map(|links| links.address)
    }

    /// Whether what is sent to the store now has a chance to arrive.
    pub fn is_connected(&self, to: StoreId) -> bool {
        self.links.read().get(&to).is_some_and(|links| links.control.is_connected())
    }

    /// Queues Raft messages. False: they were dropped, the store is not reachable for now.
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

    /// Lost where the store is not reachable: whoever announces does so again.
    pub fn send_announce(&self, to: StoreId, descriptor: Bytes) {
        if let Some(links) = self.links(to) {
            links.control.send(Frame::Announce(descriptor));
        }
    }

    /// Asks another store; the answer is its status byte and body.
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
