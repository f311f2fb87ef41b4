//! Messages for the clients of other stores.
//!
//! Each publication is sent to every other store, which gives it to its own clients. The
//! publications for a store wait in a bounded queue. One request at a time carries those that wait,
//! so they arrive in order, and a slow store delays nobody: what has no room in its queue, or meets
//! a broken connection, is dropped and counted. A message arrives at most once, as in Redis.
//!
//! ```text
//! request   (kind u8: 0 channel, 1 shard channel; channel length u32; payload length u32;
//!           channel; payload)*
//! answer    nothing
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use command::ChannelKind;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use types::StoreId;

use super::mailbox::Message;
use super::PubSub;
use crate::transport::frame::{take_bytes, take_u32, take_u8, FrameError};
use crate::transport::kinds::{REQUEST_PUBLISH, STATUS_DONE, STATUS_ERROR};
use crate::transport::Transport;

/// Maximum bytes of one request's publications. A publication that receivers would share instead of
/// copy travels alone: it would hold the others in memory.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Interval and number of looks for room in the mailboxes, before more publications are accepted.
const ROOM_LOOK: Duration = Duration::from_millis(1);
const ROOM_LOOKS_MAX: usize = 100;

#[derive(Default)]
struct Queue {
    publications: VecDeque<Bytes>,
    bytes: usize,
    /// True while a task sends publications.
    is_served: bool,
}

/// The publications for other stores.
pub struct Spread {
    transport: Arc<Transport>,
    timeout: Duration,
    queues: Mutex<BTreeMap<StoreId, Queue>>,
    /// The runtime of the tasks that send publications.
    runtime: OnceLock<Handle>,
    /// Number of publications that a store may not have got: one for each store.
    pub dropped: AtomicU64,
}

impl Spread {
    /// Creates queues. An answer is expected within `timeout`.
    pub fn new(transport: Arc<Transport>, timeout: Duration) -> Arc<Spread> {
        let (queues, dropped) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Spread { transport, timeout, queues, runtime: OnceLock::new(), dropped })
    }

    /// Sets the runtime of the tasks that send publications, once.
    pub fn run_on(&self, runtime: Handle) {
        let _ = self.runtime.set(runtime);
    }

    /// Sends a publication to all other stores.
    ///
    /// # Panics
    /// Panics without a runtime.
    pub fn to_all(self: &Arc<Spread>, kind: ChannelKind, channel: &[u8], payload: &[u8]) {
        let others = self.transport.others();
        if !others.is_empty() {
            let publication = encode(kind, channel, payload);
            others.into_iter().for_each(|to| self.send(to, publication.clone()));
        }
    }

    /// Sends a publication to one store.
    pub fn to_one(self: &Arc<Spread>, to: StoreId, kind: ChannelKind, channel: &[u8], payload: &[u8]) {
        self.send(to, encode(kind, channel, payload));
    }

    fn send(self: &Arc<Spread>, to: StoreId, publication: Bytes) {
        let mut queues = self.queues.lock();
        let queue = queues.entry(to).or_default();
        let bytes = queue.bytes + publication.len();
        if queue.bytes > 0 && bytes > self.transport.bytes_at_once() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes = bytes;
        queue.publications.push_back(publication);
        if !std::mem::replace(&mut queue.is_served, true) {
            let serving = self.clone().serve(to);
            match self.runtime.get() {
                Some(runtime) => drop(runtime.spawn(serving)),
                None => drop(tokio::spawn(serving)),
            }
        }
    }

    /// Sends what waits for a store, until nothing waits.
    async fn serve(self: Arc<Spread>, to: StoreId) {
        while let Some((count, body)) = self.next(to) {
            let answer = self.transport.call(to, REQUEST_PUBLISH, body, self.timeout).await;
            if !matches!(answer, Ok((STATUS_DONE, _))) {
                self.dropped.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Removes the publications of the next request, with their number. Without any, the queue
    /// goes.
    fn next(&self, to: StoreId) -> Option<(u64, Bytes)> {
        let mut queues = self.queues.lock();
        let queue = queues.get_mut(&to)?;
        let Some(first) = queue.publications.pop_front() else {
            queues.remove(&to);
            return None;
        };
        queue.bytes -= first.len();
        if queue.publications.is_empty() || Message::shares(first.len()) {
            return Some((1, first));
        }
        let (mut count, mut body) = (1, BytesMut::from(&first[..]));
        while let Some(next) = queue.publications.front() {
            if Message::shares(next.len()) || body.len() + next.len() > REQUEST_BYTES_MAX {
                break;
            }
            body.extend_from_slice(next);
            queue.bytes -= next.len();
            queue.publications.pop_front();
            count += 1;
        }
        Some((count, body.freeze()))
    }
}

pub fn encode(kind: ChannelKind, channel: &[u8], payload: &[u8]) -> Bytes {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("arguments are below 4 GiB");
    let mut out = BytesMut::with_capacity(9 + channel.len() + payload.len());
    out.put_u8(u8::from(kind == ChannelKind::Shard));
    out.put_u32_le(length(channel));
    out.put_u32_le(length(payload));
    out.put_slice(channel);
    out.put_slice(payload);
    out.freeze()
}

pub fn decode(body: &mut Bytes) -> Result<(ChannelKind, Bytes, Bytes), FrameError> {
    let kind = match take_u8(body, "a channel's kind")? {
        1 => ChannelKind::Shard,
        _ => ChannelKind::Channel,
    };
    let channel = take_u32(body, "a channel's length")? as usize;
    let payload = take_u32(body, "a message's length")? as usize;
    Ok((kind, take_bytes(body, channel, "a channel")?, take_bytes(body, payload, "a message")?))
}

/// Gives the publications of another store to the clients of this one.
pub async fn receive(pubsub: &PubSub, from: StoreId, mut body: Bytes) -> (u8, Bytes) {
    // The other store sends no more until this is answered.
    for _ in 0..ROOM_LOOKS_MAX {
        if !pubsub.memory().is_short() {
            break;
        }
        tokio::time::sleep(ROOM_LOOK).await;
    }
    while !body.is_empty() {
        match decode(&mut body) {
            Ok((kind, channel, payload)) => drop(pubsub.publish(kind, &channel, &payload)),
            Err(error) => {
                tracing::warn!(from, %error, "the publications of a store cannot be read");
                return (STATUS_ERROR, Bytes::new());
            }
        }
    }
    (STATUS_DONE, Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publications_arrive_as_they_were_sent_and_cut_ones_are_refused() {
        let sent = [
            (ChannelKind::Channel, &b"a"[..], &b"one"[..]),
            (ChannelKind::Shard, b"", b"\0\r\n"),
            (ChannelKind::Channel, b"b", b""),
        ];
        let all: Vec<u8> =
            sent.iter().flat_map(|(kind, channel, payload)| encode(*kind, channel, payload)).collect();
        let mut body = Bytes::from(all.clone());
        for (kind, channel, payload) in sent {
            let (got, on, what) = decode(&mut body).unwrap();
            assert_eq!((got, &on[..], &what[..]), (kind, channel, payload));
        }
        assert!(body.is_empty());
        for length in 1..encode(ChannelKind::Channel, b"a", b"one").len() {
            assert!(decode(&mut Bytes::from(all[..length].to_vec())).is_err());
        }
        let mut huge = Bytes::from_static(b"\0\xff\xff\xff\xff\xff\xff\xff\xffab");
        assert!(decode(&mut huge).is_err());
    }
}
