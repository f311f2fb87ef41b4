//! Passes the messages of other stores to the parts that handle them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use raft::eraftpb::MessageType;
use replica::Input;
use tokio::sync::oneshot;
use types::{RegionDescriptor, StoreId};

use crate::dispatch::passing;
use crate::loops::{ToLoop, ToWorker};
use crate::pubsub::spread;
use crate::store::Store;
use crate::transport::frame::Refusal;
use crate::transport::handshake::Introduced;
use crate::transport::kinds::{
    JOIN_FIRST, REQUEST_ADMIN, REQUEST_APPLIED, REQUEST_COMMANDS, REQUEST_JOIN, REQUEST_JOIN_AS,
    REQUEST_MEMBERS, REQUEST_PUBLISH, REQUEST_RECOVER, REQUEST_VERSIONS, STATUS_ERROR, STATUS_NOT_LEADER,
};
use crate::transport::raft_lane::{Messages, RaftLane, Returned};
use crate::transport::stream::PeerStream;
use crate::transport::{Inbound, InboundAnswer, Place, Remote, NO_STORE};
use crate::{admin, heartbeat, joining, orders, survey, upgrade};

pub struct FromStores {
    pub store: Arc<Store>,
}

/// Drops snapshots, which come over lanes of their own. Those deliver a message once its files are
/// here. Without its files a snapshot could never be applied, and the store would stop at every
/// start.
pub fn drop_snapshots(store: &Store, from: StoreId, messages: &mut Messages) {
    let before = messages.len();
    messages.retain(|(_, message)| message.get_msg_type() != MessageType::MsgSnapshot);
    if messages.len() < before {
        store.metrics.raft_messages_refused.inc_by((before - messages.len()) as u64);
        tracing::warn!(from, "a snapshot message without its files was dropped");
    }
}

impl Inbound for FromStores {
    fn raft(&self, from: StoreId, mut messages: Messages, place: Place) {
        drop_snapshots(&self.store, from, &mut messages);
        let _ = self.store.worker.send(ToWorker::Messages { from, messages, place: Some(place) });
    }

    fn raft_lane(&self, lane: RaftLane) -> Result<oneshot::Receiver<Returned>, RaftLane> {
        let (back, comes_back) = oneshot::channel();
        // A loop that has ended drops the connection.
        let _ = self.store.loops.first().send(ToLoop::Lane { lane, back });
        Ok(comes_back)
    }

    fn heartbeat(&self, from: StoreId, report: Bytes) {
        heartbeat::hear(&self.store, from, &report);
    }

    fn order(&self, from: StoreId, order: Bytes) {
        orders::receive(&self.store, from, &order);
    }

    fn announce(&self, from: StoreId, descriptor: Bytes) {
        match RegionDescriptor::decode(&descriptor) {
            Ok(descriptor) => {
                let _ = self.store.worker.raft(Input::Announced { from, descriptor });
            }
            Err(error) => tracing::warn!(from, %error, "an announcement cannot be read"),
        }
    }

    fn bytes_at_once(&self) -> usize {
        self.store.transport.bytes_at_once()
    }

    fn snapshot_lane(&self, from: StoreId, stream: PeerStream, read: BytesMut) {
        self.store.snapshots().receive(from, stream, read);
    }

    fn admit(&self, caller: &Introduced) -> Result<(), Refusal> {
        self.store.membership.admit(caller)
    }

    fn is_welcome(&self, from: &Remote) -> bool {
        // A refused store learns the reason when it connects again.
        self.store.membership.is_welcome(from)
    }

    fn request(self: Arc<Self>, from: Remote, kind: u8, body: Bytes) -> InboundAnswer {
        let store = self.store.clone();
        let answering = store.ends.answering.begin(kind == REQUEST_COMMANDS);
        Box::pin(async move {
            let _answering = answering;
            match kind {
                REQUEST_JOIN | REQUEST_JOIN_AS => joining::answer_join(store, from, kind, body).await,
                _ if from.store == NO_STORE => (STATUS_ERROR, Bytes::from_static(JOIN_FIRST)),
                // Nothing was proposed, so the other store asks the next leader.
                REQUEST_COMMANDS if store.ends.is_closing() => (STATUS_NOT_LEADER, Bytes::new()),
                REQUEST_COMMANDS => store.execute_passed(body).await,
                REQUEST_ADMIN => admin::answer_passed(store, from, body).await,
                REQUEST_MEMBERS => store.membership.answer_members(),
                REQUEST_RECOVER => survey::answer(store, body).await,
                REQUEST_VERSIONS => upgrade::answer(store, body).await,
                REQUEST_PUBLISH => spread::receive(&store.clients.pubsub, from.store, body).await,
                REQUEST_APPLIED => store.answer_applied(body).await,
                _ => (STATUS_ERROR, Bytes::from_static(b"unknown kind of request")),
            }
        })
    }

    fn too_long(&self, bytes: usize) -> (u8, Bytes) {
        (STATUS_ERROR, passing::answer_too_long(bytes))
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb;

    use super::*;
    use crate::fixture::Fixture;

    #[tokio::test]
    async fn a_snapshot_without_its_files_never_reaches_its_region() {
        let fixture = Fixture::new();
        let of = |kind| {
            let mut message = eraftpb::Message { from: 1, to: 2, term: 6, ..Default::default() };
            message.set_msg_type(kind);
            (1, message)
        };
        let heartbeat = of(MessageType::MsgHeartbeat);
        let from_stores = FromStores { store: fixture.store.clone() };
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        let place = places.try_acquire_owned().unwrap();
        from_stores.raft(7, vec![of(MessageType::MsgSnapshot), heartbeat.clone()], place);
        let Some(ToWorker::Messages { from: 7, messages, .. }) = fixture.told().next() else {
            panic!("a message to the worker was expected")
        };
        assert_eq!(messages, [heartbeat]);
        assert_eq!(fixture.store.metrics.raft_messages_refused.get(), 1);
    }
}
