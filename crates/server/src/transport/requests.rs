//! Requests to another store and their answers, many at once over one connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::frame::{self, Frame, Hello};
use super::link::{connect, Backoff};

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It never left this store: it may be tried again.
    NotSent,
    /// It was sent: what became of it is unknown.
    Unknown,
}

type Answer = Result<(u8, Bytes), CallError>;

struct Shared {
    connected: AtomicBool,
    next_id: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
}

pub struct Requests {
    queue: mpsc::UnboundedSender<Frame>,
    shared: Arc<Shared>,
}

impl Requests {
    pub fn start(address: SocketAddr, hello: Hello) -> Requests {
        let (queue, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            connected: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            waiting: Mutex::new(HashMap::new()),
        });
        tokio::spawn(run(address, hello, receiver, shared.clone()));
        Requests { queue, shared }
    }

    pub async fn call(&self, kind: u8, body: Bytes, timeout: Duration) -> Answer {
        if !self.shared.connected.load(Ordering::Acquire) {
            return Err(CallError::NotSent);
        }
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.shared.waiting.lock().insert(id, sender);
        if self.queue.send(Frame::Request { id, kind, body }).is_err() {
            self.shared.waiting.lock().remove(&id);
            return Err(CallError::NotSent);
        }
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(CallError::Unknown),
            Err(_) => {
                self.shared.waiting.lock().remove(&id);
                Err(CallError::Unknown)
            }
        }
    }
}

async fn run(
    address: SocketAddr,
    hello: Hello,
    mut queue: mpsc::UnboundedReceiver<Frame>,
    shared: Arc<Shared>,
) {
    let mut backoff = Backoff::new();
    loop {
        if let Ok(stream) = connect(address, &hello).await {
            backoff = Backoff::new();
            shared.connected.store(true, Ordering::Release);
            let (reader, writer) = stream.into_split();
            let ended = tokio::select! {
                ended = write_requests(writer, &mut queue) => ended,
                () = read_answers(reader, &shared) => false,
            };
            shared.connected.store(false, Ordering::Release);
            if ended {
                return;
            }
        }
        // Those still queued never left, but a caller that raced the loss of the connection cannot be
        // told apart from one whose request did leave: both hear "unknown" unless queued here.
        while let Ok(Frame::Request { id, .. }) = queue.try_recv() {
            if let Some(waiter) = shared.waiting.lock().remove(&id) {
                let _ = waiter.send(Err(CallError::NotSent));
            }
        }
        let sent: Vec<_> = shared.waiting.lock().drain().collect();
        for (_, waiter) in sent {
            let _ = waiter.send(Err(CallError::Unknown));
        }
        if queue.is_closed() {
            return;
        }
        backoff.pause().await;
    }
}

async fn write_requests(mut writer: OwnedWriteHalf, queue: &mut mpsc::UnboundedReceiver<Frame>) -> bool {
    let mut bytes = BytesMut::new();
    while let Some(first) = queue.recv().await {
        frame::encode(&first, &mut bytes);
        while bytes.len() < 1 << 20 {
            let Ok(next) = queue.try_recv() else { break };
            frame::encode(&next, &mut bytes);
        }
        if writer.write_all(&bytes).await.is_err() {
            return false;
        }
        bytes.clear();
    }
    true
}

async fn read_answers(mut reader: OwnedReadHalf, shared: &Shared) {
    let mut bytes = BytesMut::with_capacity(64 << 10);
    loop {
        match reader.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        loop {
            match frame::take(&mut bytes) {
                Ok(Some(Frame::Response { id, status, body })) => {
                    if let Some(waiter) = shared.waiting.lock().remove(&id) {
                        let _ = waiter.send(Ok((status, body)));
                    }
                }
                Ok(Some(_)) => return,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "bad answer from another store; reconnecting");
                    return;
                }
            }
        }
    }
}
