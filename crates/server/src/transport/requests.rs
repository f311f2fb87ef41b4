//! Requests to another store and their answers, many at a time over one connection.
//!
//! A request is not sent after its caller has gone, because its late execution would help no
//! caller. So a caller that gives up before its request was written knows that the request was
//! never sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use types::{Output, StoreId};

use super::frame::{self, Frame, Lane, Refusal};
use super::handshake::Caller;
use super::identity::{Identity, NO_STORE};
use super::link::{connect, Backoff};
use super::output::{self, WRITE_BYTES};
use super::socket::{make_room, Standing};
use super::stream::{PeerStream, ReadHalf};

/// Maximum bytes of requests that wait for the connection. They also count against their clients'
/// memory, which is the effective limit.
const QUEUED_BYTES_MAX: usize = 64 << 20;

/// The reason why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The request was never sent, so it may be repeated.
    NotSent,
    /// The request was sent, and its outcome is unknown.
    Unknown,
}

type Answer = Result<(u8, Bytes), CallError>;

struct Waiter {
    answer: oneshot::Sender<Answer>,
    /// True if the request may have left this store.
    sent: bool,
}

struct Shared {
    connected: AtomicBool,
    next_id: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiter>>,
    /// Bytes of requests in the queue.
    queued_bytes: AtomicUsize,
}

impl Shared {
    /// Removes the request from the count of queued bytes.
    fn taken(&self, request: &Request) {
        self.queued_bytes.fetch_sub(request.body.len(), Ordering::Relaxed);
    }

    /// Drops the caller. Returns why it gets no answer.
    fn give_up(&self, id: u64) -> CallError {
        match self.waiting.lock().remove(&id) {
            Some(Waiter { sent: false, .. }) => CallError::NotSent,
            _ => CallError::Unknown,
        }
    }
}

struct Request {
    id: u64,
    kind: u8,
    body: Bytes,
}

pub struct Requests {
    queue: mpsc::UnboundedSender<Request>,
    shared: Arc<Shared>,
}

/// One caller. When it is dropped, its answer is no longer expected.
struct Call<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.shared.waiting.lock().remove(&self.id);
    }
}

impl Requests {
    pub fn start(address: SocketAddr, identity: Arc<Identity>, to: StoreId) -> Requests {
        let (queue, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            connected: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            waiting: Mutex::new(HashMap::new()),
            queued_bytes: AtomicUsize::new(0),
        });
        tokio::spawn(run(address, identity, to, receiver, shared.clone()));
        Requests { queue, shared }
    }

    pub async fn call(&self, kind: u8, body: Bytes, timeout: Duration) -> Answer {
        let shared = &*self.shared;
        if !shared.connected.load(Ordering::Acquire) {
            return Err(CallError::NotSent);
        }
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        shared.waiting.lock().insert(id, Waiter { answer: sender, sent: false });
        let call = Call { shared, id };
        let size = body.len();
        let is_full = shared.queued_bytes.fetch_add(size, Ordering::Relaxed) > QUEUED_BYTES_MAX;
        if is_full || self.queue.send(Request { id, kind, body }).is_err() {
            shared.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            return Err(CallError::NotSent);
        }
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(CallError::Unknown),
            Err(_) => Err(shared.give_up(call.id)),
        }
    }
}

async fn run(
    address: SocketAddr,
    identity: Arc<Identity>,
    to: StoreId,
    mut queue: mpsc::UnboundedReceiver<Request>,
    shared: Arc<Shared>,
) {
    let mut backoff = Backoff::new();
    loop {
        if let Some(stream) = connect(address, &identity, (to, Lane::Request)).await {
            let since = Instant::now();
            let standing = Standing::new(&shared.connected);
            // A request that cannot be written must not end the lane for good.
            let refused = |refusal| identity.refused(to, refusal);
            let talking = AssertUnwindSafe(talk(stream, &mut queue, &shared, refused)).catch_unwind();
            let ended = talking.await.unwrap_or_else(|_| {
                tracing::error!(%address, "passing requests to a store panicked; reconnecting");
                false
            });
            drop(standing);
            if ended {
                return;
            }
            backoff.stood(since);
        }
        let lost: Vec<Waiter> = shared.waiting.lock().drain().map(|(_, waiter)| waiter).collect();
        for Waiter { answer, sent } in lost {
            let _ = answer.send(Err(if sent { CallError::Unknown } else { CallError::NotSent }));
        }
        // A caller may arrive at this moment. Either its request is dropped here with this error,
        // or it stays in the queue. In the latter case it is sent over the next connection if the
        // caller still waits.
        while let Ok(request) = queue.try_recv() {
            shared.taken(&request);
            if let Some(waiter) = shared.waiting.lock().remove(&request.id) {
                let _ = waiter.answer.send(Err(CallError::NotSent));
            }
        }
        if queue.is_closed() {
            return;
        }
        backoff.pause().await;
    }
}

/// Writes requests and reads answers until the connection breaks (returns false) or the store ends
/// (returns true).
async fn talk(
    stream: PeerStream,
    queue: &mut mpsc::UnboundedReceiver<Request>,
    shared: &Shared,
    refused: impl Fn(Refusal),
) -> bool {
    let (reader, writer) = stream.into_split();
    tokio::select! {
        ended = write_requests(writer, queue, shared) => ended,
        () = read_answers(reader, shared, refused) => false,
    }
}

async fn write_requests(
    mut writer: impl AsyncWrite + Unpin,
    queue: &mut mpsc::UnboundedReceiver<Request>,
    shared: &Shared,
) -> bool {
    let mut bytes = Output::default();
    while let Some(first) = queue.recv().await {
        let mut next = Some(first);
        while let Some(request) = next {
            put(request, &mut bytes, shared);
            next = if bytes.len() < WRITE_BYTES { queue.try_recv().ok() } else { None };
        }
        if output::write(&mut bytes, &mut writer).await.is_err() {
            return false;
        }
    }
    true
}

/// Encodes a request, if its caller is still there.
fn put(request: Request, bytes: &mut Output, shared: &Shared) {
    shared.taken(&request);
    let Request { id, kind, body } = request;
    match shared.waiting.lock().get_mut(&id) {
        Some(waiter) => waiter.sent = true,
        None => return,
    }
    if let Err(error) = frame::put(&Frame::Request { id, kind, body }, bytes) {
        tracing::error!(%error, "a request cannot be sent");
        if let Some(waiter) = shared.waiting.lock().remove(&id) {
            let _ = waiter.answer.send(Err(CallError::NotSent));
        }
    }
}

async fn read_answers(mut reader: ReadHalf, shared: &Shared, refused: impl Fn(Refusal)) {
    let mut bytes = BytesMut::with_capacity(64 << 10);
    loop {
        make_room(&mut bytes).await;
        match reader.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        loop {
            match frame::take(&mut bytes) {
                Ok(Some(Frame::Response { id, status, body })) => {
                    if let Some(waiter) = shared.waiting.lock().remove(&id) {
                        let _ = waiter.answer.send(Ok((status, body)));
                    }
                }
                Ok(Some(Frame::Refused(refusal))) => return refused(refusal),
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

/// Sends one request to any store at `address`. Used by a store that is about to join.
pub async fn ask_once(
    address: SocketAddr,
    identity: Arc<Identity>,
    kind: u8,
    body: Bytes,
) -> std::io::Result<(u8, Bytes)> {
    let mut stream = Caller::new(identity, NO_STORE, Lane::Request)?.connect(address).await?;
    let mut bytes = BytesMut::new();
    frame::encode(&Frame::Request { id: 1, kind, body }, &mut bytes).map_err(std::io::Error::other)?;
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    bytes.clear();
    loop {
        match frame::take(&mut bytes).map_err(std::io::Error::other)? {
            Some(Frame::Response { status, body, .. }) => return Ok((status, body)),
            Some(Frame::Refused(refusal)) => return Err(std::io::Error::other(refusal.text)),
            Some(_) => return Err(std::io::Error::other("an answer of an unexpected kind")),
            None if stream.read_buf(&mut bytes).await? == 0 => {
                return Err(std::io::ErrorKind::UnexpectedEof.into())
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Returns a lane that appears connected, but that no task writes.
    fn unwritten() -> (Requests, mpsc::UnboundedReceiver<Request>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            connected: AtomicBool::new(true),
            next_id: AtomicU64::new(1),
            waiting: Mutex::new(HashMap::new()),
            queued_bytes: AtomicUsize::new(0),
        });
        (Requests { queue, shared }, receiver)
    }

    fn queued(requests: &Requests) -> usize {
        requests.shared.queued_bytes.load(Ordering::Relaxed)
    }

    /// Writes everything that is queued. Returns the bodies that were written.
    async fn written(requests: Requests, mut receiver: mpsc::UnboundedReceiver<Request>) -> Vec<Bytes> {
        let shared = requests.shared.clone();
        drop(requests);
        let mut wire = Vec::new();
        assert!(write_requests(&mut wire, &mut receiver, &shared).await);
        assert_eq!(shared.queued_bytes.load(Ordering::Relaxed), 0);
        let (mut wire, mut bodies) = (BytesMut::from(&wire[..]), Vec::new());
        while let Some(frame) = frame::take(&mut wire).unwrap() {
            let Frame::Request { body, .. } = frame else { panic!("unexpected kind of frame") };
            bodies.push(body);
        }
        bodies
    }

    #[tokio::test]
    async fn a_request_whose_caller_has_gone_is_never_sent() {
        let (requests, receiver) = unwritten();
        let timed_out = requests.call(1, "late".into(), Duration::ZERO).await;
        assert_eq!(timed_out, Err(CallError::NotSent));
        let dropped = tokio::select! {
            biased;
            answer = requests.call(1, "dropped".into(), PATIENCE) => Some(answer),
            () = async {} => None,
        };
        assert_eq!(dropped, None);
        assert!(requests.shared.waiting.lock().is_empty());
        // A request whose caller waits is sent.
        let (answer, _still_waits) = oneshot::channel();
        requests.shared.waiting.lock().insert(77, Waiter { answer, sent: false });
        requests.shared.queued_bytes.fetch_add(5, Ordering::Relaxed);
        requests.queue.send(Request { id: 77, kind: 1, body: "alive".into() }).ok().unwrap();
        assert_eq!(written(requests, receiver).await, ["alive"]);
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_after_its_request_was_written_does_not_know_the_outcome() {
        let (requests, mut receiver) = unwritten();
        let shared = requests.shared.clone();
        let (answer, ()) = tokio::join!(biased; requests.call(1, "sent".into(), Duration::from_millis(20)), async {
            put(receiver.recv().await.unwrap(), &mut Output::default(), &shared);
        });
        assert_eq!(answer, Err(CallError::Unknown));
        assert_eq!(queued(&requests), 0);
    }

    #[tokio::test]
    async fn a_full_queue_takes_no_more_until_it_is_written() {
        let (requests, mut receiver) = unwritten();
        let large = Bytes::from(vec![0u8; QUEUED_BYTES_MAX + 1]);
        let size = large.len();
        let shared = requests.shared.clone();
        let filling = requests.call(1, large, PATIENCE);
        let probing = async {
            assert_eq!(queued(&requests), size);
            assert_eq!(requests.call(1, "more".into(), PATIENCE).await, Err(CallError::NotSent));
            assert_eq!(queued(&requests), size);
            put(receiver.recv().await.unwrap(), &mut Output::default(), &shared);
            assert_eq!(queued(&requests), 0);
            assert!(receiver.try_recv().is_err());
        };
        tokio::select! { biased; _ = filling => panic!("nobody answers"), () = probing => {} }
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_queued_leaves_nothing_behind() {
        let (requests, receiver) = unwritten();
        drop(receiver);
        assert_eq!(requests.call(1, "lost".into(), PATIENCE).await, Err(CallError::NotSent));
        assert_eq!(queued(&requests), 0);
        assert!(requests.shared.waiting.lock().is_empty());
    }
}
