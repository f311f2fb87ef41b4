//! An outgoing connection for one lane: its queue, the task that writes it, and reconnection.
//!
//! While nothing is queued, the sender of Raft messages writes to the socket itself, so that no
//! other thread must wake up. What the socket does not take is left to the task.
//!
//! Invariants: `connected` is true only while the task holds a connection. Every byte counted in
//! `queued_bytes` belongs to a message in the queue. `queued` counts at least the messages that
//! were queued and are not written. Bytes that a sender left in `wire` come before the queue's.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures::FutureExt;
use parking_lot::Mutex;
use raft::eraftpb;
use tokio::sync::mpsc;
use types::{Output, RegionId, StoreId, SHARED_BYTES_MIN};

use super::frame::{self, Frame, Lane, Refusal};
use super::handshake::Caller;
use super::identity::Identity;
use super::output::{self, WRITE_BYTES};
use super::raft_frames::RaftFrameWriter;
use super::raft_lane::Messages;
use super::socket::Standing;
use super::stream::PeerStream;
use super::{append, LaneBytes};

const RECONNECT_FIRST: Duration = Duration::from_millis(20);
const RECONNECT_LAST: Duration = Duration::from_millis(500);
/// Minimum lifetime of an accepted connection, in which the next attempt need not wait.
const STOOD: Duration = Duration::from_secs(1);
/// Maximum bytes read from the other end, more than the longest refusal.
const HEARD_BYTES_MAX: usize = 4096;
/// Maximum bytes that a sender encodes and writes itself. No part of them is too large to copy.
const AT_ONCE_BYTES_MAX: usize = SHARED_BYTES_MIN;

enum Outgoing {
    Raft(Messages, usize),
    Frame(Frame),
    /// The bytes that a sender has left in the wire.
    Rest,
}

struct State {
    connected: AtomicBool,
    queued: AtomicUsize,
    queued_bytes: AtomicUsize,
    bytes_max: LaneBytes,
    wire: Mutex<Wire>,
}

/// The connection as its senders see it.
#[derive(Default)]
struct Wire {
    stream: Option<Arc<PeerStream>>,
    /// Encoded bytes that the socket did not take yet.
    rest: Output,
}

impl State {
    fn new(bytes_max: LaneBytes) -> State {
        State {
            connected: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            bytes_max,
            wire: Mutex::default(),
        }
    }
}

pub struct Link {
    queue: mpsc::UnboundedSender<Outgoing>,
    state: Arc<State>,
}

impl Link {
    pub fn start(
        address: SocketAddr,
        identity: Arc<Identity>,
        to: StoreId,
        lane: Lane,
        bytes_max: LaneBytes,
    ) -> Link {
        let (queue, receiver) = mpsc::unbounded_channel();
        let state = Arc::new(State::new(bytes_max));
        tokio::spawn(run(address, identity, (to, lane), receiver, state.clone()));
        Link { queue, state }
    }

    pub fn send_raft(&self, messages: Messages) -> bool {
        if !self.state.connected.load(Ordering::Relaxed) {
            return false;
        }
        let size = messages.iter().map(|(_, message)| append::bytes_of(message)).sum();
        if size <= AT_ONCE_BYTES_MAX && self.write_at_once(&messages) {
            return true;
        }
        let most = self.state.bytes_max.load(Ordering::Relaxed);
        let is_full = self.state.queued_bytes.fetch_add(size, Ordering::Relaxed) > most;
        if is_full || !self.enqueue(Outgoing::Raft(messages, size)) {
            self.state.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Writes the messages to the socket unless others wait for it.
    fn write_at_once(&self, messages: &Messages) -> bool {
        let wire = &mut *self.state.wire.lock();
        let Some(stream) = wire.stream.as_ref().filter(|_| self.state.queued.load(Ordering::Acquire) == 0)
        else {
            return false;
        };
        let mut raft = RaftFrameWriter::default();
        for (region, message) in messages {
            push(&mut raft, &mut wire.rest, *region, message);
        }
        raft.finish(&mut wire.rest);
        // The task learns of an error when it writes the rest.
        if !output::write_now(&mut wire.rest, stream).unwrap_or(false) {
            self.enqueue(Outgoing::Rest);
        }
        true
    }

    fn enqueue(&self, outgoing: Outgoing) -> bool {
        self.state.queued.fetch_add(1, Ordering::AcqRel);
        let is_queued = self.queue.send(outgoing).is_ok();
        if !is_queued {
            self.state.queued.fetch_sub(1, Ordering::AcqRel);
        }
        is_queued
    }

    pub fn is_connected(&self) -> bool {
        self.state.connected.load(Ordering::Relaxed)
    }

    pub fn send(&self, frame: Frame) -> bool {
        self.state.connected.load(Ordering::Relaxed) && self.enqueue(Outgoing::Frame(frame))
    }
}

/// Connects to a store that proves to be the intended one. Reports a refusal or a stranger to
/// `identity`.
pub async fn connect(
    address: SocketAddr,
    identity: &Arc<Identity>,
    (to, lane): (StoreId, Lane),
) -> Option<PeerStream> {
    let opened = match Caller::new(identity.clone(), to, lane) {
        Ok(caller) => caller.connect(address).await,
        Err(error) => Err(error.into()),
    };
    opened
        .map_err(|error| {
            if let Some(refusal) = error.refusal() {
                identity.refused(to, refusal);
            }
        })
        .ok()
}

/// The pauses between attempts: short at first, then up to half a second.
pub struct Backoff(Duration);

impl Backoff {
    pub fn new() -> Backoff {
        Backoff(RECONNECT_FIRST)
    }

    pub async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(RECONNECT_LAST);
    }

    /// Resets the pauses if the connection that began at `since` has lasted. A connection that is
    /// refused immediately may be refused for a long time.
    pub fn stood(&mut self, since: Instant) {
        if since.elapsed() >= STOOD {
            self.0 = RECONNECT_FIRST;
        }
    }
}

async fn run(
    address: SocketAddr,
    identity: Arc<Identity>,
    (to, lane): (StoreId, Lane),
    mut queue: mpsc::UnboundedReceiver<Outgoing>,
    state: Arc<State>,
) {
    let mut backoff = Backoff::new();
    loop {
        if let Some(stream) = connect(address, &identity, (to, lane)).await {
            let since = Instant::now();
            let standing = Standing::new(&state.connected);
            // A message that cannot be written must not end the lane for good.
            let refused = |refusal| identity.refused(to, refusal);
            let writing = AssertUnwindSafe(write_queue(stream, &mut queue, &state, refused)).catch_unwind();
            let ended = writing.await.unwrap_or_else(|_| {
                tracing::error!(%address, ?lane, "writing to a store panicked; reconnecting");
                false
            });
            drop(standing);
            if ended {
                return;
            }
            backoff.stood(since);
        }
        // Messages that waited for the broken connection are outdated by the time of the next one.
        while let Ok(lost) = queue.try_recv() {
            forget(&state, &lost);
            state.queued.fetch_sub(1, Ordering::AcqRel);
        }
        if queue.is_closed() {
            return;
        }
        backoff.pause().await;
    }
}

fn forget(state: &State, outgoing: &Outgoing) {
    if let Outgoing::Raft(_, size) = outgoing {
        state.queued_bytes.fetch_sub(*size, Ordering::Relaxed);
    }
}

fn push(raft: &mut RaftFrameWriter, bytes: &mut Output, region: RegionId, message: &eraftpb::Message) {
    if let Err(error) = raft.push(bytes, region, message) {
        tracing::error!(region, %error, "a raft message cannot be sent");
    }
}

/// The connection in the wire, for as long as this lives.
struct Shown<'a>(&'a State);

impl<'a> Shown<'a> {
    fn new(state: &'a State, stream: &Arc<PeerStream>) -> Shown<'a> {
        *state.wire.lock() = Wire { stream: Some(stream.clone()), rest: Output::default() };
        Shown(state)
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        *self.0.wire.lock() = Wire::default();
    }
}

/// The messages that the task took from the queue and has not written yet.
struct Taken<'a> {
    state: &'a State,
    count: usize,
}

impl Taken<'_> {
    fn are_written(&mut self) {
        self.state.queued.fetch_sub(std::mem::take(&mut self.count), Ordering::AcqRel);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.are_written();
    }
}

/// Writes until the connection breaks (returns false) or the store ends (returns true).
async fn write_queue(
    stream: PeerStream,
    queue: &mut mpsc::UnboundedReceiver<Outgoing>,
    state: &State,
    refused: impl Fn(Refusal),
) -> bool {
    let stream = Arc::new(stream);
    // Dropped after the connection is out of the wire, so that no sender writes to it after a part
    // of a message.
    let mut taken = Taken { state, count: 0 };
    let _shown = Shown::new(state, &stream);
    let mut bytes = Output::default();
    let mut heard = BytesMut::new();
    loop {
        let first = tokio::select! {
            next = queue.recv() => match next {
                Some(next) => next,
                None => return true,
            },
            // The other store writes nothing on this lane except a refusal.
            read = stream.read_shared(&mut heard) => match (read, frame::take(&mut heard)) {
                (Ok(1..=HEARD_BYTES_MAX), Ok(None)) if heard.len() <= HEARD_BYTES_MAX => continue,
                (_, Ok(Some(Frame::Refused(refusal)))) => {
                    refused(refusal);
                    return false;
                }
                _ => return false,
            },
        };
        std::mem::swap(&mut bytes, &mut state.wire.lock().rest);
        let mut raft = RaftFrameWriter::default();
        let mut next = Some(first);
        while let Some(outgoing) = next {
            taken.count += 1;
            forget(state, &outgoing);
            match outgoing {
                Outgoing::Raft(messages, _) => {
                    for (region, message) in messages {
                        for piece in append::pieces(message) {
                            push(&mut raft, &mut bytes, region, &piece);
                            if bytes.len() >= WRITE_BYTES {
                                raft.finish(&mut bytes);
                                if output::write_to(&mut bytes, &stream).await.is_err() {
                                    return false;
                                }
                            }
                        }
                    }
                }
                Outgoing::Frame(frame) => {
                    raft.finish(&mut bytes);
                    if let Err(error) = frame::put(&frame, &mut bytes) {
                        tracing::error!(%error, "a frame cannot be sent");
                    }
                }
                Outgoing::Rest => {}
            }
            next = if bytes.len() < WRITE_BYTES { queue.try_recv().ok() } else { None };
        }
        raft.finish(&mut bytes);
        if output::write_to(&mut bytes, &stream).await.is_err() {
            return false;
        }
        taken.are_written();
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    const LANE_BYTES: usize = 1 << 20;

    fn unwritten() -> (Link, mpsc::UnboundedReceiver<Outgoing>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let state = Arc::new(State::new(Arc::new(AtomicUsize::new(LANE_BYTES))));
        state.connected.store(true, Ordering::Relaxed);
        (Link { queue, state }, receiver)
    }

    fn messages(bytes: usize) -> Vec<(RegionId, eraftpb::Message)> {
        vec![(1, eraftpb::Message { context: vec![0; bytes].into(), ..Default::default() })]
    }

    fn queued(link: &Link) -> usize {
        link.state.queued_bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn messages_that_are_not_queued_are_not_counted() {
        let (link, receiver) = unwritten();
        assert!(link.send_raft(messages(LANE_BYTES)));
        let full = queued(&link);
        assert!(full > LANE_BYTES);
        assert!(!link.send_raft(messages(1)));
        assert_eq!(queued(&link), full);
        drop(receiver);
        link.state.queued_bytes.store(0, Ordering::Relaxed);
        assert!(!link.send_raft(messages(1)));
        assert_eq!(queued(&link), 0);
    }

    #[tokio::test]
    async fn a_lane_stands_only_while_its_task_does() {
        let state = State::new(LaneBytes::default());
        let dying = AssertUnwindSafe(async {
            let _standing = Standing::new(&state.connected);
            assert!(!state.connected.load(Ordering::Relaxed), "the lane is up, so this panics");
        });
        assert!(dying.catch_unwind().await.is_err());
        assert!(!state.connected.load(Ordering::Relaxed));
    }

    /// Returns a link whose task runs over a connection, and the other end of it. The task ends
    /// with the runtime.
    async fn connected() -> (Arc<Link>, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (link, mut receiver) = unwritten();
        let state = link.state.clone();
        tokio::spawn(
            async move { write_queue(PeerStream::Plain(stream), &mut receiver, &state, |_| ()).await },
        );
        while link.state.wire.lock().stream.is_none() {
            tokio::task::yield_now().await;
        }
        (Arc::new(link), listener.accept().await.unwrap().0)
    }

    /// Reads frames until `count` Raft messages were read. Returns their contexts.
    async fn contexts(stream: &mut TcpStream, count: usize) -> Vec<Vec<u8>> {
        use protobuf::Message as _;
        use tokio::io::AsyncReadExt;
        let (mut bytes, mut seen) = (BytesMut::new(), Vec::new());
        while seen.len() < count {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
            while let Some(frame) = frame::take(&mut bytes).unwrap() {
                let Frame::Raft(batch) = frame else { continue };
                for (_, message) in batch {
                    let message = eraftpb::Message::parse_from_carllerche_bytes(&message).unwrap();
                    seen.push(message.context.to_vec());
                }
            }
        }
        assert!(bytes.is_empty());
        seen
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_written_at_once_and_what_is_queued_arrive_whole_and_in_order() {
        let (link, mut stream) = connected().await;
        let count = 2000u32;
        let sender = link.clone();
        let sending = std::thread::spawn(move || {
            for number in 0..count {
                // Some frames are larger than one write, or than the room of the socket.
                let length =
                    if number % 50 == 7 { 2 * AT_ONCE_BYTES_MAX } else { number as usize * 37 % 20_000 };
                let mut context = vec![number as u8; 4 + length];
                context[..4].copy_from_slice(&number.to_le_bytes());
                let message = eraftpb::Message { context: context.into(), ..Default::default() };
                while !sender.send_raft(vec![(1, message.clone())]) {
                    std::thread::yield_now();
                }
            }
        });
        let other = link.clone();
        let beside = std::thread::spawn(move || {
            (0..count).for_each(|_| assert!(other.send(Frame::Order(vec![1; 100].into()))));
        });
        let seen = contexts(&mut stream, count as usize).await;
        for (number, context) in (0..count).zip(seen) {
            assert_eq!(context[..4], number.to_le_bytes());
            assert!(context[4..].iter().all(|&byte| byte == number as u8), "{number}");
        }
        sending.join().unwrap();
        beside.join().unwrap();
        while link.state.queued.load(Ordering::Acquire) > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(queued(&link), 0);
        // Nothing waits, so this thread writes, and nothing is queued.
        assert!(link.send_raft(messages(10)));
        assert_eq!(link.state.queued.load(Ordering::Acquire), 0);
        assert_eq!(contexts(&mut stream, 1).await.len(), 1);
    }

    #[tokio::test]
    async fn a_connection_that_is_gone_leaves_nothing_in_the_wire() {
        let (link, stream) = connected().await;
        drop(stream);
        while link.state.wire.lock().stream.is_some() {
            link.send_raft(messages(1000));
            tokio::task::yield_now().await;
        }
        assert!(link.state.wire.lock().rest.is_empty());
        while link.send_raft(messages(1)) {
            // The task, which would write it, is about to end.
            tokio::task::yield_now().await;
        }
    }
}
