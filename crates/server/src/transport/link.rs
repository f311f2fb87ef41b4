//! An outgoing connection for one lane: its queue, the task that writes it, and reconnection.
//!
//! Invariant: `connected` is true only while the task holds a connection, and every byte counted in
//! `queued_bytes` belongs to a message in the queue.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures::FutureExt;
use raft::eraftpb;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use types::{Output, RegionId, StoreId};

use super::frame::{self, Frame, Lane, Refusal};
use super::handshake::Caller;
use super::identity::Identity;
use super::output::{self, WRITE_BYTES};
use super::raft_frames::RaftFrameWriter;
use super::socket::Standing;
use super::{append, LaneBytes};

const RECONNECT_FIRST: Duration = Duration::from_millis(20);
const RECONNECT_LAST: Duration = Duration::from_millis(500);
/// Minimum lifetime of an accepted connection, in which the next attempt need not wait.
const STOOD: Duration = Duration::from_secs(1);
/// Maximum bytes read from the other end, more than the longest refusal.
const HEARD_BYTES_MAX: usize = 4096;

enum Outgoing {
    Raft(Vec<(RegionId, eraftpb::Message)>, usize),
    Frame(Frame),
}

struct State {
    connected: AtomicBool,
    queued_bytes: AtomicUsize,
    bytes_max: LaneBytes,
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
        let (connected, queued_bytes) = (AtomicBool::new(false), AtomicUsize::new(0));
        let state = Arc::new(State { connected, queued_bytes, bytes_max });
        tokio::spawn(run(address, identity, (to, lane), receiver, state.clone()));
        Link { queue, state }
    }

    pub fn send_raft(&self, messages: Vec<(RegionId, eraftpb::Message)>) -> bool {
        if !self.state.connected.load(Ordering::Relaxed) {
            return false;
        }
        let size = messages.iter().map(|(_, message)| append::bytes_of(message)).sum();
        let most = self.state.bytes_max.load(Ordering::Relaxed);
        let is_full = self.state.queued_bytes.fetch_add(size, Ordering::Relaxed) > most;
        if is_full || self.queue.send(Outgoing::Raft(messages, size)).is_err() {
            self.state.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            return false;
        }
        true
    }

    pub fn is_connected(&self) -> bool {
        self.state.connected.load(Ordering::Relaxed)
    }

    pub fn send(&self, frame: Frame) -> bool {
        self.state.connected.load(Ordering::Relaxed) && self.queue.send(Outgoing::Frame(frame)).is_ok()
    }
}

/// Connects to a store that proves to be the intended one. Reports a refusal or a stranger to
/// `identity`.
pub async fn connect(
    address: SocketAddr,
    identity: &Arc<Identity>,
    (to, lane): (StoreId, Lane),
) -> Option<TcpStream> {
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

/// Writes until the connection breaks (returns false) or the store ends (returns true).
async fn write_queue(
    stream: TcpStream,
    queue: &mut mpsc::UnboundedReceiver<Outgoing>,
    state: &State,
    refused: impl Fn(Refusal),
) -> bool {
    let (mut reader, mut writer) = stream.into_split();
    let mut bytes = Output::default();
    let mut heard = BytesMut::new();
    loop {
        let first = tokio::select! {
            next = queue.recv() => match next {
                Some(next) => next,
                None => return true,
            },
            // The other store writes nothing on this lane except a refusal.
            read = reader.read_buf(&mut heard) => match (read, frame::take(&mut heard)) {
                (Ok(1..=HEARD_BYTES_MAX), Ok(None)) if heard.len() <= HEARD_BYTES_MAX => continue,
                (_, Ok(Some(Frame::Refused(refusal)))) => {
                    refused(refusal);
                    return false;
                }
                _ => return false,
            },
        };
        let mut raft = RaftFrameWriter::default();
        let mut next = Some(first);
        while let Some(outgoing) = next {
            forget(state, &outgoing);
            match outgoing {
                Outgoing::Raft(messages, _) => {
                    for (region, message) in messages {
                        for piece in append::pieces(message) {
                            if let Err(error) = raft.push(&mut bytes, region, &piece) {
                                tracing::error!(region, %error, "a raft message cannot be sent");
                            }
                            if bytes.len() >= WRITE_BYTES {
                                raft.finish(&mut bytes);
                                if output::write(&mut bytes, &mut writer).await.is_err() {
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
            }
            next = if bytes.len() < WRITE_BYTES { queue.try_recv().ok() } else { None };
        }
        raft.finish(&mut bytes);
        if output::write(&mut bytes, &mut writer).await.is_err() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE_BYTES: usize = 1 << 20;

    fn unwritten() -> (Link, mpsc::UnboundedReceiver<Outgoing>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let (connected, queued_bytes) = (AtomicBool::new(true), AtomicUsize::new(0));
        let bytes_max = Arc::new(AtomicUsize::new(LANE_BYTES));
        let state = Arc::new(State { connected, queued_bytes, bytes_max });
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
        let (connected, queued_bytes) = (AtomicBool::new(false), AtomicUsize::new(0));
        let state = State { connected, queued_bytes, bytes_max: LaneBytes::default() };
        let dying = AssertUnwindSafe(async {
            let _standing = Standing::new(&state.connected);
            assert!(!state.connected.load(Ordering::Relaxed), "the lane is up, so this panics");
        });
        assert!(dying.catch_unwind().await.is_err());
        assert!(!state.connected.load(Ordering::Relaxed));
    }
}
