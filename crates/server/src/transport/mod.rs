//! Store-to-store links: framed TCP, one connection per remote store and lane.
//!
//! Raft tolerates loss, so a lane that is down or too full drops messages and says so; requests (clients'
//! commands passed on) are never dropped silently: their caller learns whether they may have arrived.

mod append;
pub mod frame;
mod inbound;
mod link;
mod requests;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use raft::eraftpb;
use types::{RegionId, StoreId};

use frame::{Frame, Hello, Lane};
pub use inbound::{listen, Inbound, InboundAnswer};
use link::Link;
pub use requests::CallError;

/// Raft messages waiting for one lane of one store beyond which new ones are dropped.
const LANE_BYTES_MAX: usize = 64 << 20;

/// The outgoing side, shared by everything in the store that sends.
pub struct Transport {
    links: BTreeMap<StoreId, StoreLinks>,
}

struct StoreLinks {
    control: Link,
    log: Link,
    requests: requests::Requests,
}

impl Transport {
    /// Starts the links to every other store; they connect, and reconnect, by themselves.
    pub fn start(
        this: StoreId,
        others: impl Iterator<Item = (StoreId, SocketAddr)>,
        layout_digest: u64,
    ) -> Transport {
        let links = others.map(|(to, address)| {
            let hello = |lane| Hello { from: this, to, lane, layout_digest };
            let links = StoreLinks {
                control: Link::start(address, hello(Lane::Control)),
                log: Link::start(address, hello(Lane::Log)),
                requests: requests::Requests::start(address, hello(Lane::Request)),
            };
            (to, links)
        });
        Transport { links: links.collect() }
    }

    /// Queues Raft messages. False: they were dropped, the store is not reachable for now.
    pub fn send_raft(&self, to: StoreId, lane: Lane, messages: Vec<(RegionId, eraftpb::Message)>) -> bool {
        match (self.links.get(&to), lane) {
            (Some(links), Lane::Log) => links.log.send_raft(messages),
            (Some(links), _) => links.control.send_raft(messages),
            (None, _) => false,
        }
    }

    pub fn send_heartbeat(&self, report: &Bytes) {
        for links in self.links.values() {
            links.control.send(Frame::Heartbeat(report.clone()));
        }
    }

    pub fn send_order(&self, store: StoreId, region: RegionId, to: StoreId) -> bool {
        self.links.get(&store).is_some_and(|links| links.control.send(Frame::Order { region, to }))
    }

    /// Asks another store; the answer is its status byte and body.
    pub async fn call(
        &self,
        to: StoreId,
        kind: u8,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(u8, Bytes), CallError> {
        match self.links.get(&to) {
            Some(links) => links.requests.call(kind, body, timeout).await,
            None => Err(CallError::NotSent),
        }
    }
}
