//! One outgoing connection for one lane: a queue, a task that writes it, and reconnection.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use protobuf::Message as _;
use raft::eraftpb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use types::RegionId;

use super::frame::{self, Frame, Hello, RaftFrameWriter};
use super::LANE_BYTES_MAX;

const RECONNECT_FIRST: Duration = Duration::from_millis(20);
const RECONNECT_LAST: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How much is encoded before it is handed to the socket.
const WRITE_BYTES: usize = 1 << 20;

enum Outgoing {
    Raft(Vec<(RegionId, eraftpb::Message)>, usize),
    Frame(Frame),
}

struct State {
    connected: AtomicBool,
    queued_bytes: AtomicUsize,
}

pub struct Link {
    queue: mpsc::UnboundedSender<Outgoing>,
    state: Arc<State>,
}

impl Link {
    pub fn start(address: SocketAddr, hello: Hello) -> Link {
        let (queue, receiver) = mpsc::unbounded_channel();
        let state = Arc::new(State { connected: AtomicBool::new(false), queued_bytes: AtomicUsize::new(0) });
        tokio::spawn(run(address, hello, receiver, state.clone()));
        Link { queue, state }
    }

    pub fn send_raft(&self, messages: Vec<(RegionId, eraftpb::Message)>) -> bool {
        if !self.state.connected.load(Ordering::Relaxed) {
            return false;
        }
        let size = messages.iter().map(|(_, m)| m.compute_size() as usize + 16).sum();
        if self.state.queued_bytes.fetch_add(size, Ordering::Relaxed) > LANE_BYTES_MAX {
            self.state.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            return false;
        }
        self.queue.send(Outgoing::Raft(messages, size)).is_ok()
    }

    pub fn send(&self, frame: Frame) -> bool {
        self.state.connected.load(Ordering::Relaxed) && self.queue.send(Outgoing::Frame(frame)).is_ok()
    }
}

/// Connects and says hello.
pub async fn connect(address: SocketAddr, hello: &Hello) -> std::io::Result<TcpStream> {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address));
    let mut stream = connecting.await.map_err(|_| std::io::ErrorKind::TimedOut)??;
    stream.set_nodelay(true)?;
    let mut bytes = BytesMut::new();
    frame::encode(&Frame::Hello(hello.clone()), &mut bytes);
    stream.write_all(&bytes).await?;
    Ok(stream)
}

/// Pauses between attempts: short at first, then up to half a second.
pub struct Backoff(Duration);

impl Backoff {
    pub fn new() -> Backoff {
        Backoff(RECONNECT_FIRST)
    }

    pub async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(RECONNECT_LAST);
    }
}

async fn run(
    address: SocketAddr,
    hello: Hello,
    mut queue: mpsc::UnboundedReceiver<Outgoing>,
    state: Arc<State>,
) {
    let mut backoff = Backoff::new();
    loop {
        if let Ok(stream) = connect(address, &hello).await {
            backoff = Backoff::new();
            state.connected.store(true, Ordering::Relaxed);
            let ended = write_queue(stream, &mut queue, &state).await;
            state.connected.store(false, Ordering::Relaxed);
            if ended {
                return;
            }
        }
        // What waited for the broken connection is stale by the time of the next one.
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

/// Writes until the connection breaks (false) or the store ends (true).
async fn write_queue(
    stream: TcpStream,
    queue: &mut mpsc::UnboundedReceiver<Outgoing>,
    state: &State,
) -> bool {
    let (mut reader, mut writer) = stream.into_split();
    let mut bytes = BytesMut::with_capacity(64 << 10);
    let mut nothing = [0u8; 16];
    loop {
        let first = tokio::select! {
            next = queue.recv() => match next {
                Some(next) => next,
                None => return true,
            },
            // The remote store never writes on this lane: a read that returns means that it has gone.
            _ = reader.read(&mut nothing) => return false,
        };
        let mut raft = RaftFrameWriter::new();
        let mut next = Some(first);
        while let Some(outgoing) = next {
            forget(state, &outgoing);
            match outgoing {
                Outgoing::Raft(messages, _) => {
                    messages.iter().for_each(|(region, message)| raft.push(&mut bytes, *region, message));
                }
                Outgoing::Frame(frame) => {
                    raft.finish(&mut bytes);
                    frame::encode(&frame, &mut bytes);
                }
            }
            next = if bytes.len() < WRITE_BYTES { queue.try_recv().ok() } else { None };
        }
        raft.finish(&mut bytes);
        if writer.write_all(&bytes).await.is_err() {
            return false;
        }
        bytes.clear();
        if bytes.capacity() > 4 * WRITE_BYTES {
            bytes = BytesMut::with_capacity(64 << 10);
        }
    }
}
